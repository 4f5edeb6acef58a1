//! Reading topics from anywhere, beside the one consumer: whoever reads says from which offset, and is not remembered.

use std::sync::Arc;

use super::EmbeddedLog;
use super::partition::Span;
use super::topic::TopicState;
use crate::log::{Error, Record};
use crate::store::embedded::{Database, lock};

/// A topic, to be read.
pub struct TopicReader {
    db: Database,
    topic: Arc<TopicState>,
}

/// One partition of a topic, to be read.
pub struct PartitionReader {
    db: Database,
    topic: Arc<TopicState>,
    index: usize,
}

impl EmbeddedLog {
    /// All topics, by name.
    pub fn topics(&self) -> Vec<TopicReader> {
        let shared = &self.shared;
        let named = lock(&shared.named);
        let mut topics: Vec<TopicReader> = (shared.ours.values().chain(named.values()))
            .map(|topic| TopicReader { db: shared.db.clone(), topic: Arc::clone(topic) })
            .collect();
        topics.sort_by(|one, other| one.name().cmp(other.name()));
        topics
    }
}

impl TopicReader {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.topic.name
    }

    /// What each of its partitions holds.
    pub fn spans(&self) -> Vec<Span> {
        self.topic.partitions.iter().map(|partition| partition.span()).collect()
    }

    /// One of its partitions.
    pub fn partition(&self, number: u32) -> Option<PartitionReader> {
        let index = usize::try_from(number).ok().filter(|index| *index < self.topic.partitions.len())?;
        Some(PartitionReader { db: self.db.clone(), topic: Arc::clone(&self.topic), index })
    }
}

impl PartitionReader {
    /// What it holds.
    pub fn span(&self) -> Span {
        self.topic.partitions[self.index].span()
    }

    /// Waits until it holds records from this offset on.
    pub async fn reaches(&self, offset: u64) {
        let partition = &self.topic.partitions[self.index];
        loop {
            let mut changed = std::pin::pin!(partition.changed.notified());
            changed.as_mut().enable();
            if partition.span().next > offset {
                return;
            }
            changed.await;
        }
    }

    /// Records from an offset on, at most so many and, past the first, so many bytes; none when it is not held.
    ///
    /// # Errors
    /// What the database says.
    pub async fn read(&self, from: u64, records_max: usize, bytes_max: usize) -> Result<Vec<Record>, Error> {
        let (topic, index) = (Arc::clone(&self.topic), self.index);
        let read =
            self.db.read(move |tables| topic.partitions[index].stored(tables, from, records_max, bytes_max));
        Ok(read.await?)
    }
}
