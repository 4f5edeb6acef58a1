//! What engines observe, told to metrics and logs. Payloads are never logged; single tasks at DEBUG,
//! and dead ones and failed attempts at WARN, each at most every 10 s.

use crate::engine::{LeaveCause, Observation, Step, Takeover};
use crate::metrics::TakeoverPhase;
use crate::model::{CloseReason, Decision, MarkKind, Outcome, Shard};

use super::Shared;

impl Shared {
    /// Asks for a rejoin; one that was asked for already will do.
    pub(super) fn ask_rejoin(&self, cause: LeaveCause) {
        let _ = self.rejoin.try_send(cause);
    }

    /// Whether a trouble is to be logged now, with how often it came.
    pub(super) fn told(&self, what: &'static str) -> Option<u64> {
        self.troubles.count(what, self.clock.now().boot)
    }

    pub(super) fn observe(&self, shard: Shard, observation: &Observation) {
        let metrics = &self.metrics;
        let shard = shard.0;
        match observation {
            Observation::AttemptEnded { key, handler, outcome, run_ms } => {
                metrics.attempt_ended(handler, *outcome, *run_ms as f64 / 1e3);
                let has_failed = matches!(outcome, Outcome::Retryable | Outcome::TimedOut | Outcome::Fatal);
                if has_failed && let Some(times) = self.told("attempt failed") {
                    let outcome = outcome.word();
                    tracing::warn!(queue = %key.queue, id = %key.id, %handler, outcome, times, "attempt failed: task show has the error");
                }
            }
            Observation::Closed { reason, key, handler } => {
                metrics.closed(*reason);
                if !matches!(reason, CloseReason::Expired | CloseReason::Skipped | CloseReason::Dropped) {
                    metrics.dead_letter(handler);
                    if let Some(times) = self.told("task dead") {
                        let reason = reason.word();
                        tracing::warn!(queue = %key.queue, id = %key.id, %handler, reason, times, "task is dead");
                    }
                }
                tracing::debug!(shard, queue = %key.queue, id = %key.id, reason = reason.word(), "task closed");
            }
            Observation::RepeatStart(key) => {
                metrics.repeat_start("owner_lost");
                tracing::debug!(shard, queue = %key.queue, id = %key.id, "starts again after a lost owner");
            }
            Observation::Decided(decision) => match decision {
                Decision::Repeated => metrics.event_repeated(),
                Decision::Cancelled | Decision::CancelledBefore => metrics.superseded(MarkKind::Cancelled),
                Decision::Replaced => metrics.superseded(MarkKind::Replaced),
                Decision::Rescheduled => metrics.superseded(MarkKind::Rescheduled),
                Decision::Scheduled
                | Decision::Redriven
                | Decision::NotDead
                | Decision::Aborted
                | Decision::NotRunning
                | Decision::TooLate
                | Decision::Kept
                | Decision::Conflict
                | Decision::OverQuota
                | Decision::Unknown => {}
            },
            Observation::Rejected(reason) => metrics.event_rejected(*reason),
            Observation::Forwarded => metrics.event_forwarded(),
            Observation::Phase(phase, epoch) => tracing::debug!(shard, epoch = epoch.0, phase, "shard"),
            Observation::TakenOver(takeover) => self.taken_over(shard, takeover),
            Observation::Gap(ms) => metrics.ownership_gap(*ms as f64 / 1e3),
            Observation::LeaseLost(cause) => {
                metrics.lease_lost(cause);
                tracing::warn!(shard, cause, "lease lost");
            }
            Observation::Stopped(why) => {
                metrics.shard_stopped();
                tracing::error!(
                    shard,
                    why,
                    "shard stopped until a person decides: docs/operations.md, \"A stopped shard\""
                );
            }
            Observation::BegunAnew { generation, wanted, first } => {
                let generation = generation.0;
                tracing::warn!(
                    shard,
                    generation,
                    wanted,
                    first,
                    "shard reset: what its log lost is given up, and it goes on with what is there"
                );
            }
            Observation::IdsNotKept(ids) => {
                tracing::info!(
                    shard,
                    ids,
                    "more ids have events than limits.ids_in_memory has room for: each new one is looked up"
                );
            }
            Observation::EventRefused { kind, why } => {
                metrics.task_event_refused();
                if let Some(times) = self.told("task event refused") {
                    let kind = kind.word();
                    tracing::error!(
                        shard,
                        kind,
                        why,
                        times,
                        "a task event is left out: the events topic does not take it"
                    );
                }
            }
            Observation::Trouble { what, detail } => {
                // In an outage every shard has the same trouble many times a second.
                if let Some(times) = self.told(what) {
                    tracing::warn!(shard, what, detail, times, "trying again");
                }
            }
        }
    }

    fn taken_over(&self, shard: u32, takeover: &Takeover) {
        for (phase, ms) in TakeoverPhase::ALL.iter().zip(takeover.phases_ms()) {
            self.metrics.takeover(*phase, ms as f64 / 1e3);
        }
        let ms = |step| takeover.after_ms(step);
        tracing::debug!(
            target: "dueline::takeover",
            shard,
            bumped_ms = ms(Step::Bumped),
            owned_ms = ms(Step::Owned),
            loaded_ms = ms(Step::Loaded),
            end_known_ms = ms(Step::EndKnown),
            fetched_ms = ms(Step::Fetched),
            applied_ms = ms(Step::Applied),
            running_ms = ms(Step::Running),
            "the shard runs: milliseconds until it came to each step"
        );
    }
}
