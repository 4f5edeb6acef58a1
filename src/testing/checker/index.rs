//! A history, sorted in the ways the rules look at it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Slack;
use crate::testing::history::{
    Answered, Asked, Asks, Begun, Called, Decided, Fault, Finished, History, Owned,
};

pub(super) type Key<'a> = (&'a str, &'a str);
/// Shard and offset.
pub(super) type At = (u32, u64);

/// Ways to find lines.
pub(super) struct Index<'a> {
    pub(super) history: &'a History,
    pub(super) slack: &'a Slack,
    /// Calls that handlers took, by queue, in order of arrival.
    pub(super) queues: BTreeMap<&'a str, Vec<&'a Called>>,
    /// Calls that handlers took, by the version they are of.
    pub(super) versions: BTreeMap<Version<'a>, Vec<&'a Called>>,
    pub(super) asked: BTreeMap<At, &'a Asked>,
    /// Records whose key is known, in order of arrival, with their number.
    pub(super) by_key: BTreeMap<Key<'a>, Vec<(usize, &'a Asked)>>,
    pub(super) answered: BTreeMap<At, &'a Answered>,
    pub(super) begun: BTreeMap<At, Vec<&'a Begun>>,
    pub(super) finished: BTreeMap<At, Vec<&'a Finished>>,
    pub(super) owned: BTreeMap<At, &'a Owned>,
    /// (when, applied) of a shard, rising.
    pub(super) applied: BTreeMap<u32, Vec<(i64, u64)>>,
    /// (when, applied) of a shard as its owners said, rising.
    told: BTreeMap<u32, Vec<(i64, u64)>>,
}

/// What a call is a run of: a version where it is known, the task's key and due time otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version<'a> {
    Known(u32, u64),
    Keyed(&'a str, &'a str, i64),
}

impl<'a> Index<'a> {
    pub(super) fn of(history: &'a History, slack: &'a Slack) -> Index<'a> {
        let mut index = Index {
            history,
            slack,
            queues: BTreeMap::new(),
            versions: BTreeMap::new(),
            asked: BTreeMap::new(),
            by_key: BTreeMap::new(),
            answered: BTreeMap::new(),
            begun: BTreeMap::new(),
            finished: BTreeMap::new(),
            owned: BTreeMap::new(),
            applied: BTreeMap::new(),
            told: BTreeMap::new(),
        };
        for call in history.called.iter().filter(|call| !call.refused) {
            index.queues.entry(&call.queue).or_default().push(call);
            index.versions.entry(version_of(call)).or_default().push(call);
        }
        index.queues.values_mut().for_each(|calls| calls.sort_by_key(|call| call.arrived));
        index.versions.values_mut().for_each(|calls| calls.sort_by_key(|call| call.arrived));
        index.take_asked();
        for line in &history.answered {
            let at = (line.shard, line.offset);
            // What was refused may be on record all the same; it stands for nothing.
            if index.asked.get(&at).is_none_or(|asked| asked.asks != Asks::Nonsense) {
                index.answered.insert(at, line);
            }
        }
        for line in &history.begun {
            index.begun.entry((line.shard, line.version)).or_default().push(line);
        }
        for line in &history.finished {
            index.finished.entry((line.shard, line.version)).or_default().push(line);
        }
        for line in &history.owned {
            index.owned.entry((line.shard, line.epoch)).or_insert(line);
        }
        for line in &history.reached {
            if let Some(applied) = line.applied {
                index.applied.entry(line.shard).or_default().push((line.at, applied));
            }
        }
        for line in &history.told {
            index.told.entry(line.shard).or_default().push((line.at, line.applied));
        }
        index
    }

    fn take_asked(&mut self) {
        for (number, line) in self.history.asked.iter().enumerate() {
            if let (Some(shard), Some(offset)) = (line.shard, line.offset) {
                self.asked.insert((shard, offset), line);
            }
            let readable = line.asks != Asks::Nonsense && !line.misplaced;
            if let (Some(queue), Some(id)) = (&line.queue, &line.id)
                && readable
            {
                self.by_key.entry((queue, id)).or_default().push((number, line));
            }
        }
    }

    /// From when the owner of its queue is to know of an event; `None` = never for sure.
    pub(super) fn known(&self, event: &Asked) -> Option<i64> {
        let Slack { known_ms, known_near_ms, from_applied, .. } = *self.slack;
        let from = if from_applied { event.acked.max(self.told_at(event)?) } else { event.acked };
        let near = from + known_near_ms;
        let is_near = |fault: &Fault| fault.from <= near && from <= fault.to + known_near_ms;
        Some(if self.history.faults.iter().any(is_near) { near } else { from + known_ms })
    }

    /// When an owner first said to have applied an event.
    fn told_at(&self, event: &Asked) -> Option<i64> {
        let (shard, offset) = (event.shard?, event.offset?);
        let mut steps = self.told.get(&shard)?.iter();
        steps.find(|(_, applied)| *applied >= offset).map(|(at, _)| *at)
    }

    /// Whether answers are known: then every decision is.
    pub(super) fn knows_answers(&self) -> bool {
        !self.history.answered.is_empty()
    }

    /// When the owner of a shard had applied an offset, durably.
    pub(super) fn applied_at(&self, at: At) -> Option<i64> {
        let steps = self.applied.get(&at.0)?;
        steps.iter().find(|(_, next)| *next > at.1).map(|(when, _)| *when)
    }

    /// Whether a version is on record as finished at a time.
    pub(super) fn is_finished(&self, version: At, at: i64) -> bool {
        let lines = self.finished.get(&version);
        lines
            .is_some_and(|lines| lines.iter().any(|line| line.from <= at && line.to.is_none_or(|to| at < to)))
    }

    /// Whether it came to be on record as finished in this time.
    pub(super) fn was_finished(&self, version: At, time: Range<i64>) -> bool {
        self.finished.get(&version).is_some_and(|lines| lines.iter().any(|line| time.contains(&line.from)))
    }

    pub(super) fn is_closed(&self, version: At) -> bool {
        self.finished.get(&version).is_some_and(|lines| lines.iter().any(|line| line.closed))
    }

    pub(super) fn calls_of(&self, version: At) -> &[&'a Called] {
        self.versions.get(&Version::Known(version.0, version.1)).map_or(&[], Vec::as_slice)
    }

    /// The answers that stopped a version: (shard, version stopped) and the answer.
    pub(super) fn stops(&self) -> Vec<(At, &'a Answered)> {
        let mut before: BTreeMap<Key<'_>, &Answered> = BTreeMap::new();
        let mut stops = Vec::new();
        for line in self.answered.values() {
            let key = (line.queue.as_str(), line.id.as_str());
            let prior = before.insert(key, line).and_then(|prior| prior.current);
            let stopped = match line.decided {
                Decided::Replaced | Decided::Rescheduled | Decided::Cancelled => prior,
                Decided::CancelledBefore => line.current,
                Decided::Scheduled
                | Decided::TooLate
                | Decided::Repeated
                | Decided::Refused
                | Decided::Redriven
                | Decided::NotDead
                | Decided::Aborted
                | Decided::NotRunning
                | Decided::Unknown => None,
            };
            stops.extend(stopped.map(|version| ((line.shard, version), *line)));
        }
        stops
    }

    /// Whether the owner of a call stood still, or could not reach the store, when its handler ended it.
    pub(super) fn halted_at(&self, call: &Called, at: i64) -> bool {
        self.halted_within(call, at, at)
    }

    /// The same of any moment between two.
    pub(super) fn halted_within(&self, call: &Called, from: i64, to: i64) -> bool {
        let slack = self.slack.clocks_ms;
        let own = |shard: u32, epoch: u64| shard == call.shard && epoch == call.token[1];
        let mut halted = self.history.halted.iter().filter(|line| own(line.shard, line.epoch));
        halted.any(|line| line.from <= to + slack && line.to + slack >= from)
    }

    /// When the next owner of a shard came, where that was seen.
    pub(super) fn followed_at(&self, (shard, epoch): At) -> Option<i64> {
        let mut later = self.owned.range((shard, epoch + 1)..=(shard, u64::MAX));
        later.next().map(|(_, owned)| owned.at)
    }

    /// Whether a fault of this name was about between two times.
    pub(super) fn fault_between(&self, what: &str, from: i64, to: i64) -> bool {
        self.history.faults.iter().any(|fault| fault.what == what && fault.from < to && fault.to > from)
    }
}

pub(super) fn version_of(call: &Called) -> Version<'_> {
    match call.version {
        Some(version) => Version::Known(call.shard, version),
        None => Version::Keyed(&call.queue, &call.id, call.due),
    }
}
