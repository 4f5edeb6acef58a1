//! The fake store: rows as plain data, owner rows by compare-and-set, progress by (epoch, stamp). It holds what was
//! applied and writes down when; delays and losses are the world's.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use dueline::engine::{KeyLookup, Next, fold};
use dueline::model::{
    Epoch, EventRow, Fact, FactRow, LateQueueRow, OwnerRow, OwnerUuid, Place, Pointer, PointerPage,
    PointerRange, Progress, QueueName, Row, Segment, Shard, Standing, TaskKey, Version,
};

use crate::ledger::{Answered, BASE, Ledger};

type FactKey = (u8, u64, u64);
type EventKey = (Reverse<Version>, Reverse<Epoch>);

/// The tables.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) due: BTreeMap<(Shard, Place), BTreeMap<FactKey, FactRow>>,
    events: BTreeMap<TaskKey, BTreeMap<EventKey, EventRow>>,
    payloads: BTreeMap<(Shard, Place), Arc<[u8]>>,
    owners: BTreeMap<Shard, OwnerRow>,
    progress: BTreeMap<(Shard, Epoch), (u64, Progress)>,
    pointers: BTreeMap<(Shard, QueueName), BTreeMap<Standing, Pointer>>,
    late_queues: BTreeMap<(Shard, Segment), BTreeMap<u64, LateQueueRow>>,
}

/// A compare-and-set of an owner row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bump {
    pub(crate) expected: Epoch,
    pub(crate) owner: OwnerUuid,
    pub(crate) lease_ms: u64,
    pub(crate) wait_ms: u64,
}

impl Store {
    pub(crate) fn write(&mut self, row: &Row, now: u64, ledger: &mut Ledger) {
        match row {
            Row::Event(row) => self.write_event(row, now, ledger),
            Row::Fact(row) => self.write_fact(row, now, ledger),
            Row::Payload(row) => {
                self.payloads.insert((row.shard, row.place), row.bytes.clone());
            }
            Row::Pointer(row) => {
                ledger.count("pointer written");
                let pointers = self.pointers.entry((row.shard, row.queue.clone())).or_default();
                pointers.insert(row.pointer.standing(), row.pointer);
            }
            Row::LateQueue(row) => self.write_late_queue(row, ledger),
        }
    }

    fn write_late_queue(&mut self, row: &LateQueueRow, ledger: &mut Ledger) {
        let rows = self.late_queues.entry((row.shard, row.segment)).or_default();
        let old = rows.insert(row.seq, row.clone());
        if old.as_ref().is_some_and(|old| old != row) {
            ledger.wrongs.push(format!("a row of a list of late queues changed: {old:?} became {row:?}"));
        }
    }

    pub(crate) fn late_queues(&self, shard: Shard, segment: Segment) -> Vec<LateQueueRow> {
        let rows = self.late_queues.get(&(shard, segment));
        rows.map(|rows| rows.values().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn pointers(&self, shard: Shard, range: &PointerRange, rows_max: usize) -> PointerPage {
        let Some(pointers) = self.pointers.get(&(shard, range.queue.clone())) else {
            return PointerPage::default();
        };
        let mut left = pointers.range(range.from..).map(|(_, pointer)| *pointer);
        let pointers = left.by_ref().take(rows_max).take_while(|pointer| pointer.due_at < range.to).collect();
        let next = left.next().filter(|pointer| pointer.due_at < range.to).map(|pointer| pointer.standing());
        PointerPage { pointers, next }
    }

    fn write_event(&mut self, row: &EventRow, now: u64, ledger: &mut Ledger) {
        let rows = self.events.entry(row.key.clone()).or_default();
        let old = rows.insert((Reverse(row.version), Reverse(row.epoch)), row.clone());
        if old.as_ref().is_some_and(|old| old != row) {
            ledger.wrongs.push(format!("an event row changed: {old:?} became {row:?}"));
        }
        let answer = ledger.answers.get(&(row.shard, row.version));
        if answer.is_none_or(|answer| answer.row.epoch < row.epoch) {
            let answer = Answered { at: now, row: row.clone() };
            ledger.answers.insert((row.shard, row.version), answer);
        } else if old.is_none() {
            ledger.count("answer of an old epoch ignored");
        }
    }

    fn write_fact(&mut self, row: &FactRow, now: u64, ledger: &mut Ledger) {
        let key = match &row.fact {
            Fact::Task { .. } => (0, 0, 0),
            Fact::Superseded { by, .. } => (1, 0, by.0),
            Fact::Started(started) => (2, started.epoch.0, started.seq),
            Fact::Ended(ended) => (3, ended.epoch.0, ended.seq),
            Fact::Closed { epoch, seq, .. } => (4, epoch.0, *seq),
        };
        let rows = self.due.entry((row.shard, row.place)).or_default();
        let old = rows.insert(key, row.clone());
        if old.as_ref().is_some_and(|old| old != row) {
            ledger.wrongs.push(format!("a fact changed: {old:?} became {row:?}"));
        }
        let history = ledger.places.entry((row.shard, row.place)).or_default();
        match &row.fact {
            Fact::Started(started) => {
                history.starts.insert((started.epoch.0, started.seq), started.at.0);
            }
            Fact::Superseded { by, .. } => {
                history.marks.entry(*by).or_insert(now);
            }
            Fact::Closed { .. } => history.closed = true,
            Fact::Task { .. } | Fact::Ended(_) => {}
        }
        let folded = fold(rows.values().map(|row| &row.fact), Version::MAX);
        let late = matches!(&row.fact, Fact::Started(started) if started.epoch < self.owner(row.shard).epoch);
        if late && history.finished_at(now) {
            return ledger.count("late start ignored");
        }
        history.turns.retain(|(at, _)| *at <= now);
        history.turns.push((now, matches!(folded.next(), Next::Finished(_))));
        if let (Next::Open(started), Some(_)) = (folded.next(), folded.mark) {
            let deadline = (started.deadline.0 - BASE).max(now as i64) as u64;
            history.turns.push((deadline, true));
        }
    }

    pub(crate) fn lookup(&self, lookups: &[KeyLookup]) -> Vec<Vec<EventRow>> {
        let one = |lookup: &KeyLookup| {
            let Some(rows) = self.events.get(&lookup.key) else { return Vec::new() };
            let inside = |row: &&EventRow| row.version >= lookup.first && row.version <= lookup.last;
            let below = rows.values().find(|row| row.version < lookup.first);
            rows.values().filter(inside).chain(below).cloned().collect()
        };
        lookups.iter().map(one).collect()
    }

    /// Rows of whole places, about `rows_max` of them, and where to go on.
    pub(crate) fn slice(
        &self,
        shard: Shard,
        range: (Place, Place),
        rows_max: usize,
    ) -> (Vec<FactRow>, Option<Place>) {
        let mut rows = Vec::new();
        for ((_, place), facts) in self.due.range((shard, range.0)..(shard, range.1)) {
            if rows.len() >= rows_max {
                return (rows, Some(*place));
            }
            rows.extend(facts.values().cloned());
        }
        (rows, None)
    }

    pub(crate) fn facts(&self, shard: Shard, place: Place) -> Vec<FactRow> {
        self.due.get(&(shard, place)).map(|rows| rows.values().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn payload(&self, shard: Shard, place: Place) -> Option<Arc<[u8]>> {
        self.payloads.get(&(shard, place)).cloned()
    }

    pub(crate) fn progress(&self, shard: Shard) -> Option<Progress> {
        let all = self.progress.range((shard, Epoch(0))..=(shard, Epoch(u64::MAX)));
        all.last().map(|(_, (_, progress))| progress.clone())
    }

    pub(crate) fn write_progress(
        &mut self,
        shard: Shard,
        progress: &Progress,
        stamp: u64,
        now: u64,
        ledger: &mut Ledger,
    ) {
        let before = self.progress(shard);
        let entry = self.progress.entry((shard, progress.epoch)).or_insert_with(|| (stamp, progress.clone()));
        if stamp > entry.0 {
            *entry = (stamp, progress.clone());
        }
        let after = self.progress(shard);
        let (Some(before), Some(after)) = (before, after.clone()) else {
            if let Some(after) = after {
                ledger.applied.entry(shard).or_default().push((now, after.next_offset));
            }
            return;
        };
        if after.next_offset < before.next_offset {
            ledger.wrongs.push(format!("applied went back: {before:?} became {after:?}"));
        }
        if after.watermark < before.watermark {
            ledger.wrongs.push(format!("the watermark went back: {before:?} became {after:?}"));
        }
        if after.next_offset > before.next_offset {
            ledger.applied.entry(shard).or_default().push((now, after.next_offset));
        }
    }

    pub(crate) fn owner(&self, shard: Shard) -> OwnerRow {
        self.owners.get(&shard).cloned().unwrap_or_default()
    }

    pub(crate) fn bump(&mut self, shard: Shard, bump: Bump, now: u64, ledger: &mut Ledger) -> bool {
        let row = self.owner(shard);
        if row.epoch != bump.expected {
            return false;
        }
        let epoch = Epoch(bump.expected.0 + 1);
        let row =
            OwnerRow { epoch, owner: bump.owner, lease_ms: bump.lease_ms, wait_ms: bump.wait_ms, ..row };
        self.owners.insert(shard, row);
        ledger.bumps.insert((shard, epoch.0), now);
        true
    }

    pub(crate) fn release(&mut self, shard: Shard, epoch: Epoch, owner: OwnerUuid) -> bool {
        match self.owners.get_mut(&shard) {
            Some(row) if row.epoch == epoch && row.owner == owner => {
                row.released_epoch = epoch;
                true
            }
            Some(_) | None => false,
        }
    }
}
