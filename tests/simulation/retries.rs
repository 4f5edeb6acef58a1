//! When a task is tried again, and how often: starts and ends on record, against what the task's policy and its handler's
//! answers say. What an owner is sure to know is told from what it may know: late rows of owners before are seen by some.

use std::sync::Arc;

use dueline::model::{Ended, Fact, Outcome, Place, RetryPolicy, Shard, Started, TaskContent, TaskKey, Wall};
use dueline::testing::rng::Rng;

use crate::world::World;

/// What handlers have unless a task says otherwise.
pub(crate) const OF_HANDLERS: RetryPolicy = RetryPolicy {
    max_attempts: 4,
    initial_ms: 400,
    factor: 2.0,
    max_ms: 5_000,
    jitter: 0.2,
    max_age_ms: None,
};

/// Wait at least so long after a call that was broken off on purpose, or whose handler refused the token.
const BROKEN_OFF_MS: i64 = 1_000;
/// Waits are computed in another way than the engine does it: they may be rounded otherwise.
const ROUNDED_MS: i64 = 1;

/// The policy that a task brings along.
pub(crate) fn own_policy(number: u64) -> Option<RetryPolicy> {
    let mut rng = Rng::new(number ^ 0x7e_7217);
    if !rng.chance(400) {
        return None;
    }
    Some(RetryPolicy {
        max_attempts: rng.range(1, 6) as u32,
        initial_ms: rng.range(50, 2_000),
        factor: [1.0, 1.5, 3.0][rng.index(3)],
        max_ms: rng.range(1_000, 6_000),
        jitter: [0.0, 0.2, 0.9][rng.index(3)],
        max_age_ms: rng.chance(400).then(|| rng.range(1_000, 12_000)),
    })
}

/// How often a task had failed before a fact of it: for sure, and at most.
#[derive(Clone, Copy, Debug)]
struct Failed {
    least: u32,
    most: u32,
}

/// What a fact is judged by.
#[derive(Clone, Copy, Debug)]
struct Judged {
    policy: RetryPolicy,
    failed: Failed,
    ready_at: Wall,
    /// The time that the handler asked for, in milliseconds.
    asked_ms: Option<i64>,
}

impl World {
    /// A replica has a start that none had: the wait after each end that its owner knew of was over, and not all attempts were
    /// used up.
    pub(crate) fn judge_start(&mut self, shard: Shard, place: Place, started: &Started) {
        let this = (started.epoch.0, started.seq);
        let Some((key, content)) = self.task_at(shard, place) else { return };
        let before = self.ends_before(shard, place, this);
        let sure: Vec<&Ended> = before.iter().filter(|(_, is_sure)| *is_sure).map(|(end, _)| end).collect();
        let failed = failed(&before);
        let mut wrongs = Vec::new();
        for end in &sure {
            if end.next_at.is_some_and(|next_at| started.at < next_at) {
                wrongs.push(format!("was tried before its wait was over, after {end:?}"));
            }
        }
        if started.failures < failed.least || started.failures > failed.most {
            wrongs.push(format!("was told of other failures than there were, {failed:?}"));
        }
        let policy = content.retry.unwrap_or(OF_HANDLERS);
        if failed.least >= policy.max_attempts {
            wrongs.push(format!("was tried once more after {} failures", failed.least));
        }
        let waited = |of: fn(&Ended) -> bool| sure.iter().any(|end| of(end));
        let (waited_for_failure, waited_for_snooze) =
            (waited(|end| is_failure(end.outcome)), waited(|end| end.outcome == Outcome::Snoozed));
        let of_before = sure.last().is_some_and(|end| end.epoch < started.epoch && is_failure(end.outcome));
        for (event, happened) in [
            ("tried again after a failure", waited_for_failure),
            ("tried again after a snooze", waited_for_snooze),
            ("tried again after a failure of an owner before", of_before),
            ("tried again without a failure", !before.is_empty() && failed.most == 0),
            ("tried again after an owner was lost", started.interruptions > 0),
        ] {
            if happened {
                self.ledger.count(event);
            }
        }
        for wrong in wrongs {
            self.ledger.wrong(format!("{key:?} {wrong}: {started:?} at {}", self.now));
        }
    }

    /// A replica has an end that none had: what follows from it is what policy and handler say.
    pub(crate) fn judge_end(&mut self, shard: Shard, place: Place, ended: &Ended) {
        let Some((key, content)) = self.task_at(shard, place) else { return };
        let before = self.ends_before(shard, place, (ended.epoch.0, ended.seq));
        let judged = Judged {
            policy: content.retry.unwrap_or(OF_HANDLERS),
            failed: failed(&before),
            ready_at: place.ready_at,
            asked_ms: self.asked_for(shard, ended),
        };
        if judged.asked_ms.is_some() {
            self.ledger.count("time asked for by a handler");
        }
        match judged.follows(ended) {
            Ok(None) => {}
            Ok(Some(event)) => {
                self.ledger.count(event);
                self.ledger.places.entry((shard, place)).or_default().closed = true;
            }
            Err(wrong) => {
                self.ledger.wrong(format!("{key:?} {wrong}: {ended:?}, {judged:?} at {}", self.now));
            }
        }
    }

    fn task_at(&self, shard: Shard, place: Place) -> Option<(TaskKey, Arc<TaskContent>)> {
        self.store.known(shard, place).into_iter().find_map(|row| match &row.fact {
            Fact::Task { key, content, .. } => Some((key.clone(), content.clone())),
            _ => None,
        })
    }

    /// The ends on record of attempts before one, in their order, and whether its owner was sure to know of each: its own, and what
    /// a majority had before it, or an owner between, read.
    fn ends_before(&self, shard: Shard, place: Place, this: (u64, u64)) -> Vec<(Ended, bool)> {
        let history = self.ledger.places.get(&(shard, place));
        let is_sure = |end: &Ended| {
            let durable = history.and_then(|history| history.ends.get(&(end.epoch.0, end.seq)));
            let mut later = self.ledger.loads.range((shard, end.epoch.0 + 1)..(shard, this.0 + 1));
            let read = later.next().map(|(_, read)| *read);
            durable.is_some_and(|at| read.is_none_or(|read| *at < read))
        };
        let rows = self.store.known(shard, place);
        let ends = rows.iter().filter_map(|row| match &row.fact {
            Fact::Ended(end) if (end.epoch.0, end.seq) < this => Some((end.clone(), is_sure(end))),
            _ => None,
        });
        let mut ends: Vec<(Ended, bool)> = ends.collect();
        ends.sort_by_key(|(end, _)| (end.epoch, end.seq));
        ends
    }

    /// The time that a handler asked for with the answer that an end says.
    fn asked_for(&self, shard: Shard, ended: &Ended) -> Option<i64> {
        let this = (ended.epoch, ended.seq);
        let mut calls = self.ledger.calls.iter().rev();
        let call =
            calls.find(|call| call.shard == shard && (call.token.epoch, call.token.sequence) == this)?;
        let answered = call.ended.is_some_and(|(_, outcome)| outcome == ended.outcome);
        call.asks_ms.filter(|_| answered && !call.broken_off).map(|ms| ms as i64)
    }
}

fn is_failure(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Retryable | Outcome::TimedOut)
}

fn failed(ends: &[(Ended, bool)]) -> Failed {
    let count = |needs_sure: bool| {
        let failures =
            ends.iter().filter(|(end, is_sure)| is_failure(end.outcome) && (*is_sure || !needs_sure));
        failures.count() as u32
    };
    Failed { least: count(true), most: count(false) }
}

/// The wait after so many failures, before anything of it is drawn, in milliseconds.
fn full_wait_ms(policy: &RetryPolicy, failures: u32) -> f64 {
    let first = (policy.initial_ms as f64).min(policy.max_ms as f64);
    (1..failures).fold(first, |wait, _| (wait * policy.factor).min(policy.max_ms as f64))
}

impl Judged {
    /// When the next try after a failure may be: not before, and not after.
    fn next_try(&self, ended: &Ended) -> (Wall, Wall) {
        let asked = self.asked_ms.unwrap_or(0);
        let least = full_wait_ms(&self.policy, self.failed.least + 1) * (1.0 - self.policy.jitter);
        let most = full_wait_ms(&self.policy, self.failed.most + 1);
        let (least, most) = (least as i64 - ROUNDED_MS, most as i64 + ROUNDED_MS);
        (ended.at.plus_ms(least.max(asked)), ended.at.plus_ms(most.max(asked)))
    }

    fn is_too_old(&self, next_at: Wall) -> bool {
        self.policy.max_age_ms.is_some_and(|ms| next_at.0 - self.ready_at.0 > ms as i64)
    }

    /// Why an end gives its task up, where it does and may, or what is wrong with it.
    fn follows(&self, ended: &Ended) -> Result<Option<&'static str>, &'static str> {
        let wait_ms = ended.next_at.map(|next_at| next_at.0 - ended.at.0);
        match ended.outcome {
            Outcome::Succeeded | Outcome::Fatal => Ok(None),
            Outcome::Retryable | Outcome::TimedOut => self.follows_failure(ended),
            Outcome::Snoozed if ended.closed.is_some() => self.follows_long_snooze(ended),
            _ if ended.closed.is_some() => Err("was given up though it had not failed"),
            Outcome::Snoozed if ended.next_at.is_some_and(|next_at| self.is_too_old(next_at)) => {
                Err("snoozes on though it is too old")
            }
            Outcome::Snoozed if wait_ms.is_some_and(|ms| ms < self.asked_ms.unwrap_or(0)) => {
                Err("comes back before the time that its handler asked for")
            }
            Outcome::Aborted | Outcome::Interrupted if wait_ms.is_some_and(|ms| ms < BROKEN_OFF_MS) => {
                Err("comes back at once though its call was broken off")
            }
            Outcome::Snoozed | Outcome::Aborted | Outcome::Interrupted | Outcome::NotCalled => Ok(None),
        }
    }

    fn follows_long_snooze(&self, ended: &Ended) -> Result<Option<&'static str>, &'static str> {
        let next_at = ended.at.plus_ms(self.asked_ms.unwrap_or(0));
        if self.is_too_old(next_at) {
            Ok(Some("snoozed until it was too old"))
        } else {
            Err("was given up for a snooze though it had time left")
        }
    }

    fn follows_failure(&self, ended: &Ended) -> Result<Option<&'static str>, &'static str> {
        let (least, most) = self.next_try(ended);
        let (used_up, may_be_used_up) = (
            self.failed.least + 1 >= self.policy.max_attempts,
            self.failed.most + 1 >= self.policy.max_attempts,
        );
        match (ended.closed, ended.next_at) {
            (Some(_), _) if may_be_used_up => Ok(Some("all attempts used up")),
            (Some(_), _) if self.is_too_old(most) => Ok(Some("given up for its age")),
            (Some(_), _) => Err("was given up though it had attempts and time left"),
            (None, _) if used_up => Err("is to be tried once more though its attempts are used up"),
            (None, _) if self.is_too_old(least) => Err("is to be tried once more though it is too old"),
            (None, Some(next_at)) if next_at < least => Err("does not wait as long as its policy says"),
            (None, Some(next_at)) if next_at > most => Err("waits longer than its policy says"),
            (None, _) => Ok(None),
        }
    }
}
