//! What was accepted and what was called, and the verdict over both.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One call of the handler.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) at: Instant,
    pub(super) shard: u32,
    /// Whether it said how the one before it ended.
    pub(super) explained: bool,
}

/// A task that was accepted.
#[derive(Debug, Clone, Copy)]
struct Accepted {
    at: Instant,
    due: Instant,
}

#[derive(Debug, Default)]
struct Entries {
    accepted: BTreeMap<String, Accepted>,
    calls: BTreeMap<String, Vec<Call>>,
    /// Questions to schedule that nobody had answered with yes in time.
    refused: usize,
}

/// Both, by the id of the task.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<Entries>,
    changed: Condvar,
}

/// What came of the tasks that were accepted in a stretch of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) accepted: usize,
    /// Never called.
    pub(super) lost: Vec<String>,
    /// Called again.
    pub(super) again: usize,
    /// Called again without a word of what had become of the call before.
    pub(super) unexplained: usize,
    /// 99 of 100 were called so long after they were due, in milliseconds.
    pub(super) late_ms: u128,
    /// The longest time in which a shard that had calls before and after had none.
    pub(super) pause_ms: u128,
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn accepted(&self, id: &str, due: Instant) {
        self.entries().accepted.insert(id.to_owned(), Accepted { at: Instant::now(), due });
        self.changed.notify_all();
    }

    pub(super) fn refused(&self) {
        self.entries().refused += 1;
    }

    /// How many were refused until now.
    pub(super) fn refusals(&self) -> usize {
        self.entries().refused
    }

    pub(super) fn called(&self, id: &str, call: Call) {
        self.entries().calls.entry(id.to_owned()).or_default().push(call);
        self.changed.notify_all();
    }

    /// Waits until so many were accepted from a time on; whether they were, within a limit.
    pub(super) fn wait_accepted(&self, from: Instant, count: usize, limit: Duration) -> bool {
        let enough =
            |entries: &Entries| entries.accepted.values().filter(|one| one.at >= from).count() >= count;
        self.wait(limit, enough)
    }

    /// Waits until all that were accepted in a stretch were called, and judges them.
    pub(super) fn judge(&self, from: Instant, to: Instant, limit: Duration) -> Verdict {
        self.wait(limit, |entries| entries.verdict(from, to).lost.is_empty());
        self.entries().verdict(from, to)
    }

    /// How many of the tasks were called before a time.
    pub(super) fn called_before(&self, ids: &[String], before: Instant) -> usize {
        let entries = self.entries();
        let was = |id: &&String| {
            entries.calls.get(*id).is_some_and(|calls| calls.iter().any(|call| call.at < before))
        };
        ids.iter().filter(was).count()
    }

    fn wait(&self, limit: Duration, holds: impl Fn(&Entries) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut entries = self.entries();
        while !holds(&entries) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            entries = self.changed.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Entries {
    fn verdict(&self, from: Instant, to: Instant) -> Verdict {
        let mut verdict = Verdict::default();
        let mut late = Vec::new();
        let mut by_shard: BTreeMap<u32, Vec<Instant>> = BTreeMap::new();
        for (id, one) in self.accepted.iter().filter(|(_, one)| from <= one.at && one.at < to) {
            verdict.accepted += 1;
            let Some(calls) = self.calls.get(id) else {
                verdict.lost.push(id.clone());
                continue;
            };
            verdict.again += calls.len() - 1;
            verdict.unexplained += calls.iter().skip(1).filter(|call| !call.explained).count();
            late.extend(calls.first().map(|call| call.at.saturating_duration_since(one.due).as_millis()));
            for call in calls {
                by_shard.entry(call.shard).or_default().push(call.at);
            }
        }
        late.sort_unstable();
        verdict.late_ms = late.get(late.len() * 99 / 100).copied().unwrap_or_default();
        for calls in by_shard.values_mut() {
            calls.sort_unstable();
            let pauses = calls.windows(2).map(|two| (two[1] - two[0]).as_millis());
            verdict.pause_ms = verdict.pause_ms.max(pauses.max().unwrap_or_default());
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(at: Instant, explained: bool) -> Call {
        Call { at, shard: 0, explained }
    }

    #[test]
    fn a_task_that_was_never_called_is_lost_and_one_called_again_is_counted() {
        let ledger = Ledger::default();
        let begun = Instant::now();
        for id in ["a", "b", "c"] {
            ledger.accepted(id, begun);
        }
        let at = begun + Duration::from_millis(40);
        ledger.called("a", call(at, false));
        ledger.called("b", call(at, false));
        ledger.called("b", call(at + Duration::from_millis(500), true));
        ledger.called("b", call(at + Duration::from_millis(600), false));
        let verdict = ledger.judge(begun, Instant::now(), Duration::ZERO);
        assert_eq!(verdict.lost, ["c"]);
        assert_eq!((verdict.accepted, verdict.again, verdict.unexplained), (3, 2, 1));
        assert_eq!((verdict.late_ms, verdict.pause_ms), (40, 500));
    }

    #[test]
    fn what_was_accepted_at_another_time_is_not_judged() {
        let ledger = Ledger::default();
        ledger.accepted("before", Instant::now());
        let begun = Instant::now();
        assert_eq!(ledger.judge(begun, Instant::now(), Duration::ZERO), Verdict::default());
        assert!(!ledger.wait_accepted(begun, 1, Duration::ZERO));
    }

    #[test]
    fn calls_before_a_time_are_counted_once_a_task() {
        let ledger = Ledger::default();
        let now = Instant::now();
        ledger.called("a", call(now, false));
        ledger.called("a", call(now, false));
        ledger.called("b", call(now + Duration::from_secs(9), false));
        let ids = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(ledger.called_before(&ids, now + Duration::from_secs(1)), 1);
    }
}
