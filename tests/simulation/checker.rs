//! The history checker: reads the ledgers, never an engine, and says what broke a promise. Each check is a sort and a
//! sweep over the calls.

use std::collections::BTreeMap;

use dueline::model::{Decision, Outcome, QueueName, Shard, Version};

use crate::ledger::{Answered, Asked, BASE, Call, Ledger};

mod answers;
mod order;

#[cfg(test)]
mod tests;

/// Clocks of instances differ by this much at most, in milliseconds; a call may be early by no more.
pub(crate) const CLOCKS_MS: i64 = 40;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) wrongs: Vec<String>,
    pub(crate) checked: u64,
    pub(crate) duplicates: BTreeMap<&'static str, u64>,
}

impl Verdict {
    fn wrong(&mut self, rule: &str, what: impl std::fmt::Debug) {
        self.wrongs.push(format!("{rule}: {what:?}"));
    }

    fn explained(&mut self, cause: &'static str) {
        *self.duplicates.entry(cause).or_insert(0) += 1;
    }
}

/// Checks a history. `at_rest` = all faults are over and everything was given time to end.
pub(crate) fn check(ledger: &Ledger, at_rest: bool) -> Verdict {
    let mut verdict = Verdict { wrongs: ledger.wrongs.clone(), ..Verdict::default() };
    never_early(ledger, &mut verdict);
    tokens_are_refused_only_from_old_epochs(ledger, &mut verdict);
    nothing_sent_after_the_next_owner_reads(ledger, &mut verdict);
    for calls in by_queue(ledger).values() {
        no_overlap(calls, &mut verdict);
        order::in_order(ledger, calls, &mut verdict);
    }
    for calls in by_version(ledger).values() {
        repeats_are_explained(calls, &mut verdict);
        attempts_are_counted(calls, &mut verdict);
    }
    answers::payloads_are_those_asked_for(ledger, &mut verdict);
    answers::what_was_stopped_does_not_run(ledger, &mut verdict);
    answers::too_late_is_true(ledger, &mut verdict);
    if at_rest {
        answers::every_record_is_answered(ledger, &mut verdict);
        answers::nothing_is_lost(ledger, &mut verdict);
    }
    verdict.checked = ledger.calls.len() as u64;
    verdict
}

fn accepted(ledger: &Ledger) -> impl Iterator<Item = &Call> {
    ledger.calls.iter().filter(|call| !call.refused)
}

fn by_queue(ledger: &Ledger) -> BTreeMap<QueueName, Vec<&Call>> {
    let mut queues: BTreeMap<QueueName, Vec<&Call>> = BTreeMap::new();
    accepted(ledger).for_each(|call| queues.entry(call.key.queue.clone()).or_default().push(call));
    queues
}

fn by_version(ledger: &Ledger) -> BTreeMap<(Shard, Version), Vec<&Call>> {
    let mut versions: BTreeMap<(Shard, Version), Vec<&Call>> = BTreeMap::new();
    accepted(ledger).for_each(|call| versions.entry((call.shard, call.version)).or_default().push(call));
    versions
}

fn never_early(ledger: &Ledger, verdict: &mut Verdict) {
    for call in accepted(ledger) {
        if (call.arrived as i64) < call.ready.max(call.due) - CLOCKS_MS {
            verdict.wrong("called before it was due", call);
        }
    }
}

/// The guard refuses only what an owner sends that was replaced.
fn tokens_are_refused_only_from_old_epochs(ledger: &Ledger, verdict: &mut Verdict) {
    let mut highest = BTreeMap::new();
    for call in &ledger.calls {
        let seen = highest.entry(&call.key.queue).or_insert(call.token);
        if call.token < *seen && (!call.refused || call.token.epoch == seen.epoch) {
            verdict.wrong("tokens fell within a queue", call);
        }
        *seen = (*seen).max(call.token);
    }
}

/// From when an owner reads tasks, nobody of an older epoch sends a call.
fn nothing_sent_after_the_next_owner_reads(ledger: &Ledger, verdict: &mut Verdict) {
    for call in &ledger.calls {
        let later = (call.shard, call.token.epoch.0 + 1)..=(call.shard, u64::MAX);
        let read = ledger.loads.range(later).map(|(_, at)| *at).min();
        if read.is_some_and(|read| call.sent > read) {
            verdict.wrong("sent after the next owner had read", call);
        }
    }
}

/// Calls of one queue follow each other, but for those that outlive their deadline.
fn no_overlap(calls: &[&Call], verdict: &mut Verdict) {
    for (index, call) in calls.iter().enumerate() {
        let end = call.ended.map_or(i64::MAX, |(at, _)| at as i64);
        let held_until = end.min(call.deadline) - CLOCKS_MS;
        let next = calls[index + 1..].iter().find(|next| (next.arrived as i64) < held_until);
        if let Some(next) = next {
            verdict.wrong("two calls of a queue at once", (call, next));
        }
    }
}

/// A second run of a version follows a failure of the first or the loss of its owner, and says so.
fn repeats_are_explained(calls: &[&Call], verdict: &mut Verdict) {
    for pair in calls.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        let in_time = first.ended.filter(|(at, _)| (*at as i64) < first.deadline - CLOCKS_MS);
        let cause = match in_time {
            _ if second.token.epoch > first.token.epoch => Some("owner lost"),
            _ if first.broken_off => Some("broken off"),
            None => Some("timed out"),
            Some((_, Outcome::Succeeded | Outcome::Fatal)) => None,
            Some(_) => Some("failed"),
        };
        match cause {
            Some(cause) => verdict.explained(cause),
            None => verdict.wrong("ran again for no reason", (first, second)),
        }
        if second.attempt > 1 && !second.says_previous {
            verdict.wrong("a repeat does not say so", second);
        }
    }
}

/// One owner does not try more often than the policy allows.
fn attempts_are_counted(calls: &[&Call], verdict: &mut Verdict) {
    let failed = |call: &&&Call| !call.broken_off && matches!(call.ended, Some((_, Outcome::Retryable)));
    let mut failures: BTreeMap<u64, u32> = BTreeMap::new();
    for call in calls.iter().filter(failed) {
        let count = failures.entry(call.token.epoch.0).or_insert(0);
        *count += 1;
        if *count > call.max_attempts {
            verdict.wrong("tried more often than allowed", call);
        }
    }
}

/// The answers that changed something, by what they changed: (shard, version stopped) → answers.
fn stops(ledger: &Ledger) -> Vec<(Shard, Version, &Answered)> {
    let mut before: BTreeMap<_, (Shard, &Answered)> = BTreeMap::new();
    let mut stops = Vec::new();
    for ((shard, _), answered) in &ledger.answers {
        let row = &answered.row;
        let prior = before.get(&row.key).and_then(|(_, prior)| prior.row.current);
        match row.decision {
            Decision::Replaced | Decision::Rescheduled | Decision::Cancelled => {
                if let Some(prior) = prior {
                    stops.push((*shard, prior.place.version, answered));
                }
            }
            Decision::CancelledBefore => {
                if let Some(current) = row.current {
                    stops.push((*shard, current.place.version, answered));
                }
            }
            Decision::Scheduled
            | Decision::TooLate
            | Decision::Repeated
            | Decision::Kept
            | Decision::Conflict
            | Decision::Unknown => {}
        }
        before.insert(&row.key, (*shard, answered));
    }
    stops
}

fn asked_at(ledger: &Ledger, shard: Shard, version: Version) -> Option<(u64, Asked, Option<u64>)> {
    let found = ledger.appends.iter().find(|a| a.shard == shard && a.offset == version.offset());
    found.map(|append| (append.at, append.asked, append.payload))
}

/// Simulated time of a wall time.
fn sim(wall: dueline::model::Wall) -> i64 {
    wall.0 - BASE
}
