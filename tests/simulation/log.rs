//! The fake log: partitions of the schedule topic with append times. Who may read them is the group's business.

use std::collections::BTreeSet;

use dueline::engine::{Incoming, LogEnd};
use dueline::model::{Event, Origin, Rejection, Shard, Wall};

use crate::ledger::BASE;

/// What a record says, as decoded.
pub(crate) type Decoded = Result<(Event, Option<Origin>), Rejection>;

/// The schedule topic.
#[derive(Debug)]
pub(crate) struct Log {
    partitions: Vec<Vec<Incoming>>,
    /// The first offset of each that is still held.
    firsts: Vec<u64>,
    /// By how much the leader's clock is off, in milliseconds: append times step back when it changes.
    pub(crate) clock_ms: i64,
    /// The committed offset of each.
    pub(crate) committed: Vec<u64>,
    /// Fetches that wait for records: (instance, life, ticket).
    pub(crate) waiting: Vec<BTreeSet<(usize, u32, u64)>>,
    /// From this offset of a shard's log on, records are shown to this instance only: a new leader may show later what the one
    /// before had shown already.
    pub(crate) hidden: Option<(usize, Shard, u64)>,
    /// The epoch of the leader of each.
    epochs: Vec<u32>,
    /// To this instance a broker answers that led this shard's log before: in which epoch, and up to where.
    pub(crate) former: Option<(usize, Shard, u32, u64)>,
    /// No broker answers.
    pub(crate) away: bool,
}

impl Log {
    pub(crate) fn new(shards: u32) -> Log {
        Log {
            partitions: vec![Vec::new(); shards as usize],
            firsts: vec![0; shards as usize],
            clock_ms: 0,
            committed: vec![0; shards as usize],
            waiting: vec![BTreeSet::new(); shards as usize],
            hidden: None,
            epochs: vec![0; shards as usize],
            former: None,
            away: false,
        }
    }

    pub(crate) fn append(&mut self, shard: Shard, decoded: Decoded, now: u64) -> u64 {
        let records = &mut self.partitions[shard.0 as usize];
        let offset = records.len() as u64;
        records.push(Incoming {
            offset,
            bytes: 200,
            leader_epoch: Some(self.epochs[shard.0 as usize]),
            appended: Wall(BASE + now as i64 + self.clock_ms),
            decoded,
        });
        offset
    }

    pub(crate) fn read(&self, by: usize, shard: Shard, from: u64, max: usize) -> Vec<Incoming> {
        let records = &self.partitions[shard.0 as usize];
        let hidden = self.hidden.filter(|(only, of, _)| *of == shard && *only != by);
        let former = self.former_of(by, shard).map(|(_, next)| next);
        let shown = hidden.map(|(_, _, from)| from).into_iter().chain(former).min();
        let shown = shown.map_or(records.len(), |to| to as usize);
        records[..shown].iter().skip(from as usize).take(max).cloned().collect()
    }

    pub(crate) fn record(&self, shard: Shard, offset: u64) -> &Incoming {
        &self.partitions[shard.0 as usize][offset as usize]
    }

    pub(crate) fn end(&self, shard: Shard) -> LogEnd {
        let next = self.partitions[shard.0 as usize].len() as u64;
        let leader_epoch = Some(self.epochs[shard.0 as usize]);
        LogEnd { first: self.firsts[shard.0 as usize], next, leader_epoch, topic_id: "topic-1".into() }
    }

    /// What an instance is told of it.
    pub(crate) fn end_told(&self, to: usize, shard: Shard) -> LogEnd {
        let end = self.end(shard);
        match self.former_of(to, shard) {
            Some((epoch, next)) => LogEnd { next, leader_epoch: Some(epoch), ..end },
            None => end,
        }
    }

    /// The epoch of a broker that led before, and up to where it has records, when it is what this instance reaches.
    pub(crate) fn former_of(&self, by: usize, shard: Shard) -> Option<(u32, u64)> {
        let of_it = |(only, of, ..): &(usize, Shard, u32, u64)| *only == by && *of == shard;
        self.former.filter(of_it).map(|(_, _, epoch, next)| (epoch, next))
    }

    /// Another broker leads from now on, and this instance is not told.
    pub(crate) fn elect(&mut self, untold: usize, shard: Shard) {
        let epoch = &mut self.epochs[shard.0 as usize];
        self.former = Some((untold, shard, *epoch, self.partitions[shard.0 as usize].len() as u64));
        *epoch += 1;
    }

    /// Retention: records below `first` are gone.
    pub(crate) fn retain(&mut self, shard: Shard, first: u64) -> bool {
        let held = &mut self.firsts[shard.0 as usize];
        let gone = first > *held;
        *held = first.max(*held);
        gone
    }
}
