//! The fake store: the tables on five replicas in three data centres. It applies what reaches a replica and answers
//! from those that are asked; who is reached, delays and losses are the world's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dueline::engine::KeyLookup;
use dueline::model::{
    DeadLetterRow, Died, Epoch, EventRow, Fact, FactRow, IdsRow, LateQueueRow, OwnerRow, Place, PointerPage,
    PointerRange, Progress, Row, Segment, Shard, TaskKey, Version,
};
use dueline::planted;

pub(crate) mod cell;
pub(crate) mod late;
pub(crate) mod nodes;
pub(crate) mod owners;

use cell::{ALL, Cell, Landed, Mask};
use late::Lates;
use nodes::Nodes;
use owners::Owners;

type FactKey = (u8, u64, u64);
type EventKey = (Reverse<Version>, Reverse<Epoch>);

/// Sets of replicas that answer a read: each partition is answered by one of them.
pub(crate) type Asked = [Mask; 4];

/// The tables.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) nodes: Nodes,
    pub(crate) owners: Owners,
    due: BTreeMap<(Shard, Place), BTreeMap<FactKey, Cell<FactRow>>>,
    events: BTreeMap<TaskKey, BTreeMap<EventKey, Cell<EventRow>>>,
    /// Those that are packed: no id leads to them.
    packed: BTreeSet<(TaskKey, EventKey)>,
    payloads: BTreeMap<(Shard, Place), Cell<Arc<[u8]>>>,
    progress: BTreeMap<(Shard, Epoch), Cell<Progress>>,
    ids: BTreeMap<(Shard, u64, Epoch), Cell<Vec<u32>>>,
    dead_letters: BTreeMap<(Shard, Died), Cell<DeadLetterRow>>,
    late: Lates,
    /// Rows that a read repair brought to a quorum.
    pub(crate) repaired: Vec<Row>,
}

fn fact_key(fact: &Fact) -> FactKey {
    match fact {
        Fact::Task { .. } => (0, 0, 0),
        Fact::Superseded { by, epoch, .. } => (1, epoch.0, by.0),
        Fact::Started(started) => (2, started.epoch.0, started.seq),
        Fact::Ended(ended) => (3, ended.epoch.0, ended.seq),
        Fact::Closed { epoch, seq, .. } => (4, epoch.0, *seq),
    }
}

/// Reads a cell from the replicas asked.
fn read<V: PartialEq + Clone>(cell: &mut Cell<V>, from: Mask, repaired: impl FnOnce(V)) -> Option<V> {
    let (value, everywhere) = cell.read(from)?;
    let value = value.clone();
    if !everywhere && cell.spread(from, from) {
        repaired(value.clone());
    }
    Some(value)
}

impl Store {
    /// Writes a row on replicas.
    pub(crate) fn put(&mut self, row: &Row, stamp: u64, on: Mask) -> Landed {
        match row {
            Row::Event(row) => {
                let rows = self.events.entry(row.key.clone()).or_default();
                let key = (Reverse(row.version), Reverse(row.epoch));
                if row.is_first && row.is_listed {
                    self.packed.insert((row.key.clone(), key));
                } else if on != 0 {
                    self.packed.remove(&(row.key.clone(), key));
                }
                // What is not stored is not kept.
                let row = EventRow { is_first: false, is_listed: false, ..row.clone() };
                rows.entry(key).or_default().put(stamp, row, on)
            }
            Row::Fact(row) => {
                let rows = self.due.entry((row.shard, row.place)).or_default();
                rows.entry(fact_key(&row.fact)).or_default().put(stamp, row.clone(), on)
            }
            Row::Payload(row) => {
                let cell = self.payloads.entry((row.shard, row.place)).or_default();
                cell.put(stamp, row.bytes.clone(), on)
            }
            Row::Pointer(row) => self.late.put_pointer(row, stamp, on),
            Row::LateQueue(row) => self.late.put_list_row(row, stamp, on),
            Row::DeadLetter(row) => {
                let cell = self.dead_letters.entry((row.shard, row.died())).or_default();
                cell.put(stamp, row.clone(), on)
            }
        }
    }

    pub(crate) fn put_progress(&mut self, shard: Shard, progress: &Progress, stamp: u64, on: Mask) {
        let cell = self.progress.entry((shard, progress.epoch)).or_default();
        cell.put(stamp, progress.clone(), on);
    }

    /// Rows of `event_ids`, on replicas.
    pub(crate) fn put_ids(&mut self, rows: &[IdsRow], stamp: u64, on: Mask) {
        for row in rows {
            let cell = self.ids.entry((row.shard, row.chunk, row.epoch)).or_default();
            cell.put(stamp, row.prints.clone(), on);
        }
    }

    /// All rows of `event_ids` of a shard from a chunk on.
    pub(crate) fn ids(&mut self, shard: Shard, first: u64, from: Mask) -> Vec<IdsRow> {
        let all = self.ids.range_mut((shard, first, Epoch(0))..=(shard, u64::MAX, Epoch(u64::MAX)));
        let rows = all.filter_map(|((shard, chunk, epoch), cell)| {
            let prints = read(cell, from, |_| {}).filter(|prints| !prints.is_empty())?;
            Some(IdsRow { shard: *shard, chunk: *chunk, epoch: *epoch, prints })
        });
        rows.collect()
    }

    pub(crate) fn lookup(&mut self, lookups: &[KeyLookup], asked: Asked) -> Vec<Vec<EventRow>> {
        let mut answers = Vec::with_capacity(lookups.len());
        for (number, lookup) in lookups.iter().enumerate() {
            let from = asked[number % asked.len()];
            let packed = &self.packed;
            let is_found = |row: &EventRow| {
                let key = (Reverse(row.version), Reverse(row.epoch));
                lookup.listed.contains(&row.version) || !packed.contains(&(row.key.clone(), key))
            };
            let mut found = Vec::new();
            for cell in self.events.get_mut(&lookup.key).into_iter().flat_map(|rows| rows.values_mut()) {
                let repaired = &mut self.repaired;
                let row = read(cell, from, |row| repaired.push(Row::Event(row)));
                let Some(row) = row.filter(|row| row.version <= lookup.last && is_found(row)) else {
                    continue;
                };
                let below = row.version < lookup.first;
                found.push(row);
                if below {
                    break;
                }
            }
            answers.push(found);
        }
        answers
    }

    /// Rows of whole places, about `rows_max` of them, and where to go on.
    pub(crate) fn slice(
        &mut self,
        shard: Shard,
        range: (Place, Place),
        rows_max: usize,
        asked: Asked,
    ) -> (Vec<FactRow>, Option<Place>) {
        let mut rows = Vec::new();
        for ((_, place), facts) in self.due.range_mut((shard, range.0)..(shard, range.1)) {
            if rows.len() >= rows_max {
                return (rows, Some(*place));
            }
            let from = asked[partition_of(*place) % asked.len()];
            for cell in facts.values_mut() {
                let repaired = &mut self.repaired;
                rows.extend(read(cell, from, |row| repaired.push(Row::Fact(row))));
            }
        }
        (rows, None)
    }

    pub(crate) fn facts(&mut self, shard: Shard, place: Place, from: Mask) -> Vec<FactRow> {
        let mut rows = Vec::new();
        for cell in self.due.get_mut(&(shard, place)).into_iter().flat_map(|facts| facts.values_mut()) {
            let repaired = &mut self.repaired;
            rows.extend(read(cell, from, |row| repaired.push(Row::Fact(row))));
        }
        rows
    }

    pub(crate) fn payload(&mut self, shard: Shard, place: Place, from: Mask) -> Option<Arc<[u8]>> {
        read(self.payloads.get_mut(&(shard, place))?, from, |_| {})
    }

    pub(crate) fn late_queues(&mut self, shard: Shard, segment: Segment, from: Mask) -> Vec<LateQueueRow> {
        self.late.list(shard, segment, from)
    }

    pub(crate) fn pointers(
        &mut self,
        shard: Shard,
        range: &PointerRange,
        rows_max: usize,
        asked: Asked,
    ) -> PointerPage {
        self.late.pointers(shard, range, rows_max, asked)
    }

    /// The newest row of the highest epoch that these replicas know of.
    pub(crate) fn progress(&mut self, shard: Shard, from: Mask) -> Option<Progress> {
        let all = self.progress.range_mut((shard, Epoch(0))..=(shard, Epoch(u64::MAX)));
        if planted!(ZombieProgressBelieved) {
            return newest_by_time(all.map(|(_, cell)| &*cell), from);
        }
        all.rev().find_map(|(_, cell)| read(cell, from, |_| {}))
    }

    /// What every majority of the replicas that answer reads knows at least.
    pub(crate) fn durable_progress(&self, shard: Shard) -> Option<Progress> {
        let one = |replica: usize| {
            let all = self.progress.range((shard, Epoch(0))..=(shard, Epoch(u64::MAX)));
            let mut newest = all.rev().filter_map(|(_, cell)| cell.read(1 << replica));
            newest.next().map(|(progress, _)| progress)
        };
        let answering = cell::bits(ALL & !self.nodes.joining());
        let mut rows: Vec<Option<&Progress>> = answering.map(one).collect();
        rows.sort_by_key(|row| row.map(|row| (row.epoch, row.next_offset, row.watermark)));
        rows.get(cell::QUORUM as usize - 1)?.cloned()
    }

    /// Whether any replica has a dead letter of a place.
    pub(crate) fn has_letter(&self, shard: Shard, place: Place) -> bool {
        let is_it = |(of, died): &(Shard, Died)| *of == shard && died.version == place.version;
        let mut letters = self.dead_letters.iter().filter(|(at, _)| is_it(at));
        letters.any(|(_, cell)| cell.read(ALL).is_some())
    }

    /// Everything any replica has of a place.
    pub(crate) fn known(&self, shard: Shard, place: Place) -> Vec<&FactRow> {
        let cells = self.due.get(&(shard, place)).into_iter().flat_map(BTreeMap::values);
        cells.filter_map(|cell| cell.read(ALL).map(|(row, _)| row)).collect()
    }

    /// A replica loses its disk.
    pub(crate) fn wipe(&mut self, replica: usize) {
        self.nodes.wiped(replica);
        self.owners.wipe(replica);
        self.due.values_mut().flat_map(BTreeMap::values_mut).for_each(|cell| cell.wipe(replica));
        self.events.values_mut().flat_map(BTreeMap::values_mut).for_each(|cell| cell.wipe(replica));
        self.payloads.values_mut().for_each(|cell| cell.wipe(replica));
        self.dead_letters.values_mut().for_each(|cell| cell.wipe(replica));
        self.progress.values_mut().for_each(|cell| cell.wipe(replica));
        self.ids.values_mut().for_each(|cell| cell.wipe(replica));
        self.late.wipe(replica);
    }

    /// A replica gets everything that those which serve have, and serves from now on.
    pub(crate) fn repair(&mut self, replica: usize) -> Vec<(Shard, OwnerRow)> {
        let (from, to) = (self.nodes.serving(), 1 << replica);
        for cell in self.due.values_mut().flat_map(BTreeMap::values_mut) {
            if cell.spread(from, to)
                && let Some((row, _)) = cell.read(ALL)
            {
                self.repaired.push(Row::Fact(row.clone()));
            }
        }
        for cell in self.events.values_mut().flat_map(BTreeMap::values_mut) {
            if cell.spread(from, to)
                && let Some((row, _)) = cell.read(ALL)
            {
                self.repaired.push(Row::Event(row.clone()));
            }
        }
        for cell in self.payloads.values_mut() {
            cell.spread(from, to);
        }
        for cell in self.dead_letters.values_mut() {
            cell.spread(from, to);
        }
        for cell in self.progress.values_mut() {
            cell.spread(from, to);
        }
        for cell in self.ids.values_mut() {
            cell.spread(from, to);
        }
        self.late.repair(from, to);
        self.nodes.repaired(replica);
        self.owners.repair(from, to)
    }
}

/// The row written last, whoever wrote it.
fn newest_by_time<'a>(cells: impl Iterator<Item = &'a Cell<Progress>>, from: Mask) -> Option<Progress> {
    let found = cells.filter_map(|cell| cell.read_with_time(from));
    found.max_by_key(|(stamp, _)| *stamp).map(|(_, progress)| progress.clone())
}

/// The partition of a place: its bucket.
fn partition_of(place: Place) -> usize {
    (place.ready_at.0 / 300_000 + place.version.0 as i64 % 4) as usize
}
