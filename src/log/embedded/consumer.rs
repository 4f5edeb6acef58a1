//! The reading side: the only member of its group, so it has every shard from the start.
//!
//! Fetches are long polls: they read what is there, from memory if it is recent, or wait until the writer publishes
//! more. Offsets that are not held are an error, never a jump.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tokio::sync::Notify;

use super::partition::{Partition, Span};
use super::topic::TopicState;
use super::trim;
use crate::log::{Answer, Assignment, Consumer, End, Error, Record};
use crate::model::Shard;
use crate::store::embedded::{Database, lock};

/// The consumer of an [`super::EmbeddedLog`].
pub(super) struct EmbeddedConsumer(Arc<Member>);

struct Member {
    db: Database,
    topic: Arc<TopicState>,
    group: Mutex<Group>,
    changed: Notify,
}

#[derive(Default)]
struct Group {
    closed: bool,
    /// Left, until somebody says to join again.
    away: bool,
    /// Not told yet; at most one revoke and one assignment.
    pending: VecDeque<Assignment>,
    /// Where each shard is read next that is assigned, or was taken and is not stopped yet.
    positions: BTreeMap<Shard, u64>,
}

impl EmbeddedConsumer {
    /// Joins.
    pub(super) fn new(db: Database, topic: Arc<TopicState>) -> EmbeddedConsumer {
        let member = Member { group: Mutex::default(), db, topic, changed: Notify::new() };
        lock(&member.group).pending.push_back(Assignment::Assigned(member.shards()));
        EmbeddedConsumer(Arc::new(member))
    }
}

impl Member {
    fn shards(&self) -> Vec<Shard> {
        let count = u32::try_from(self.topic.partitions.len()).expect("made from a u32");
        (0..count).map(Shard).collect()
    }

    fn partition(&self, shard: Shard) -> Result<&Partition, Error> {
        let index = usize::try_from(shard.0).map_err(|_| Error::NotAssigned(shard))?;
        self.topic.partitions.get(index).ok_or(Error::NotAssigned(shard))
    }

    fn wake_all(&self) {
        self.changed.notify_waiters();
        for partition in &self.topic.partitions {
            partition.changed.notify_waiters();
        }
    }

    fn next_assignment(&self) -> Option<Option<Assignment>> {
        let mut group = lock(&self.group);
        if group.closed {
            return Some(None);
        }
        let assignment = group.pending.pop_front()?;
        if let Assignment::Assigned(shards) = &assignment {
            let firsts =
                shards.iter().map(|shard| (*shard, self.partition(*shard).map_or(0, |p| p.span().first)));
            group.positions = firsts.collect();
        }
        Some(Some(assignment))
    }

    fn position(&self, shard: Shard) -> Result<u64, Error> {
        lock(&self.group).positions.get(&shard).copied().ok_or(Error::NotAssigned(shard))
    }

    fn seek(&self, shard: Shard, offset: u64) -> Result<(), Error> {
        let partition = self.partition(shard)?;
        let mut group = lock(&self.group);
        if group.away && !group.positions.contains_key(&shard) {
            return Err(Error::NotAssigned(shard));
        }
        group.positions.insert(shard, offset);
        drop(group);
        partition.changed.notify_waiters();
        Ok(())
    }

    /// Moves on, unless somebody sought elsewhere meanwhile.
    fn advance(&self, shard: Shard, from: u64, to: u64) -> bool {
        match lock(&self.group).positions.get_mut(&shard) {
            Some(position) if *position == from => {
                *position = to;
                true
            }
            _ => false,
        }
    }

    async fn read(
        self: &Arc<Self>,
        shard: Shard,
        offset: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, Error> {
        if let Some(records) = self.partition(shard)?.take_recent(offset, records_max, bytes_max) {
            return Ok(records);
        }
        let member = Arc::clone(self);
        let read = self.db.read(move |tables| match member.partition(shard) {
            Ok(partition) => partition.stored(tables, offset, records_max, bytes_max),
            Err(_) => Ok(Vec::new()),
        });
        Ok(read.await?)
    }

    async fn fetch(
        self: Arc<Self>,
        shard: Shard,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, Error> {
        let partition = self.partition(shard)?;
        loop {
            let mut changed = std::pin::pin!(partition.changed.notified());
            changed.as_mut().enable();
            let wanted = self.position(shard)?;
            let Span { first, next } = partition.span();
            if wanted < first || wanted > next {
                return Err(Error::OffsetGone { shard, wanted, first, next });
            }
            if wanted == next {
                changed.await;
                continue;
            }
            let records = self.read(shard, wanted, records_max, bytes_max).await?;
            match records.last() {
                Some(last) if self.advance(shard, wanted, last.offset + 1) => return Ok(records),
                Some(_) => {}
                None if partition.span().first > wanted => {}
                None => return Err(Error::Fatal(format!("shard {} lacks offset {wanted}", shard.0))),
            }
        }
    }
}

impl Consumer for EmbeddedConsumer {
    fn assignment(&self) -> BoxFuture<'_, Option<Assignment>> {
        Box::pin(async {
            loop {
                let mut changed = std::pin::pin!(self.0.changed.notified());
                changed.as_mut().enable();
                if let Some(assignment) = self.0.next_assignment() {
                    return assignment;
                }
                changed.await;
            }
        })
    }

    fn seek(&self, shard: Shard, offset: u64) -> Answer<()> {
        let sought = self.0.seek(shard, offset);
        Box::pin(async move { sought })
    }

    fn fetch(&self, shard: Shard, records_max: usize, bytes_max: usize) -> Answer<Vec<Record>> {
        Box::pin(Arc::clone(&self.0).fetch(shard, records_max, bytes_max))
    }

    fn stop(&self, shard: Shard) {
        let mut group = lock(&self.0.group);
        group.positions.remove(&shard);
        drop(group);
        if let Ok(partition) = self.0.partition(shard) {
            partition.changed.notify_waiters();
        }
    }

    fn end(&self, shard: Shard) -> Answer<End> {
        let end = self.0.partition(shard).map(|partition| {
            let Span { first, next } = partition.span();
            End { first, next, leader_epoch: None, topic_id: self.0.topic.id.clone() }
        });
        Box::pin(async move { end })
    }

    fn commit(&self, shard: Shard, next_offset: u64) {
        trim::hint(&self.0.db, &self.0.topic, shard, next_offset);
    }

    fn leave(&self) {
        let mut group = lock(&self.0.group);
        if group.closed || group.away {
            return;
        }
        group.away = true;
        match group.pending.back() {
            // Nobody has heard of it yet.
            Some(Assignment::Assigned(_)) => {
                group.pending.pop_back();
            }
            _ => {
                group.pending.push_back(Assignment::Revoked(self.0.shards()));
            }
        }
        drop(group);
        self.0.wake_all();
    }

    fn join(&self) {
        let mut group = lock(&self.0.group);
        if group.closed || !group.away {
            return;
        }
        group.away = false;
        group.pending.push_back(Assignment::Assigned(self.0.shards()));
        drop(group);
        self.0.wake_all();
    }

    fn silent_ms(&self) -> u64 {
        self.0.db.busy_ms()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let mut group = lock(&self.0.group);
        group.closed = true;
        group.positions.clear();
        group.pending.clear();
        drop(group);
        self.0.wake_all();
        Box::pin(async {})
    }
}
