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
    /// Fetches that wait for records: (instance, life, ticket).
    pub(crate) waiting: Vec<BTreeSet<(usize, u32, u64)>>,
    /// No broker answers.
    pub(crate) away: bool,
}

impl Log {
    pub(crate) fn new(shards: u32) -> Log {
        Log {
            partitions: vec![Vec::new(); shards as usize],
            waiting: vec![BTreeSet::new(); shards as usize],
            away: false,
        }
    }

    pub(crate) fn append(&mut self, shard: Shard, decoded: Decoded, now: u64) -> u64 {
        let records = &mut self.partitions[shard.0 as usize];
        let offset = records.len() as u64;
        records.push(Incoming { offset, bytes: 200, appended: Wall(BASE + now as i64), decoded });
        offset
    }

    pub(crate) fn read(&self, shard: Shard, from: u64, max: usize) -> Vec<Incoming> {
        let records = &self.partitions[shard.0 as usize];
        records.iter().skip(from as usize).take(max).cloned().collect()
    }

    pub(crate) fn record(&self, shard: Shard, offset: u64) -> &Incoming {
        &self.partitions[shard.0 as usize][offset as usize]
    }

    pub(crate) fn end(&self, shard: Shard) -> LogEnd {
        let next = self.partitions[shard.0 as usize].len() as u64;
        LogEnd { first: 0, next, topic_id: "topic-1".into() }
    }
}
