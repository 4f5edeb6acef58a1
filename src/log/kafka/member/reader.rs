//! What reads: a client of its own that knows of no group, so that a shard the group has taken in order can be read until the one
//! who runs it lets it go. librdkafka gives nothing of a partition that was given back to the group.
//!
//! A partition is assigned when it is first placed, and from then on sought, until it is stopped. Seeking fails on one that the
//! client itself has stopped (after an offset out of range): such a one is assigned anew.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::super::options::Options;
use super::super::recall::Recall;
use super::super::{context, error, raw};
use super::{only, partition_of, record_of};
use crate::log::{Error, Record};
use crate::model::Shard;

/// Longest time that the client may take to begin a seek, in milliseconds.
const SEEK_MS: u64 = 500;

/// The reading client and what it reads.
pub(super) struct Reader {
    client: BaseConsumer<Apart>,
    topic: String,
    assigned: BTreeSet<Shard>,
}

impl Reader {
    /// # Errors
    /// [`Error::Fatal`] when the settings are wrong.
    pub(super) fn connect(options: &Options, topic: &str) -> Result<Reader, Error> {
        let context = Apart { recall: Recall::new(&options.brokers) };
        let client = BaseConsumer::from_config_and_context(&options.reader_config(), context);
        Ok(Reader {
            client: client.map_err(error::creation)?,
            topic: topic.to_owned(),
            assigned: BTreeSet::new(),
        })
    }

    /// Calls when there is something to poll.
    pub(super) fn set_nonempty_callback(&mut self, wake: impl Fn() + Send + Sync + 'static) {
        self.client.set_nonempty_callback(wake);
    }

    /// Brings brokers back that it has forgotten.
    pub(super) fn serve(&self) {
        self.client.context().recall.serve(self.client.client());
    }

    /// The next record or error that is there.
    pub(super) fn poll(&self) -> Option<Result<(Shard, Record), KafkaError>> {
        let message = match self.client.poll(Duration::ZERO)? {
            Ok(message) => message,
            Err(error) => return Some(Err(error)),
        };
        let shard = Shard(u32::try_from(message.partition()).ok()?);
        Some(Ok((shard, record_of(&message))))
    }

    /// Reads a shard from an offset on.
    pub(super) fn seek(&mut self, shard: Shard, offset: u64) -> KafkaResult<()> {
        if !self.assigned.contains(&shard) {
            return self.assign(shard, offset);
        }
        let sought = self.client.seek_partitions(self.at(shard, offset)?, Duration::from_millis(SEEK_MS))?;
        sought.elements().iter().try_for_each(|element| element.error())?;
        self.client.resume(&self.list(shard))
    }

    /// For a partition that the client has stopped: it can only be started, not sought.
    pub(super) fn assign_anew(&mut self, shard: Shard, offset: u64) -> KafkaResult<()> {
        if self.assigned.remove(&shard) {
            self.client.incremental_unassign(&self.list(shard))?;
        }
        self.assign(shard, offset)
    }

    fn assign(&mut self, shard: Shard, offset: u64) -> KafkaResult<()> {
        self.client.incremental_assign(&self.at(shard, offset)?)?;
        self.assigned.insert(shard);
        self.client.resume(&self.list(shard))
    }

    /// Reads nothing more of a partition whose buffer is full, until it is sought.
    pub(super) fn pause(&self, shard: Shard) {
        if let Err(error) = self.client.pause(&self.list(shard)) {
            tracing::debug!(%error, shard = shard.0, "a partition was not paused");
        }
    }

    /// Reads a shard no more.
    pub(super) fn stop(&mut self, shard: Shard) {
        if self.assigned.remove(&shard)
            && let Err(error) = self.client.incremental_unassign(&self.list(shard))
        {
            tracing::debug!(%error, shard = shard.0, "a partition is read on, and what comes of it dropped");
        }
    }

    /// How many partitions it has.
    #[cfg(feature = "testing")]
    pub(super) fn reads(&self) -> usize {
        self.assigned.len()
    }

    /// Has the connections made to the leaders of these partitions.
    pub(super) fn wake_leaders(&self, partitions: &[i32]) {
        raw::wake_leaders(self.client.client(), &self.topic, partitions);
    }

    fn list(&self, shard: Shard) -> TopicPartitionList {
        only(&self.topic, partition_of(shard))
    }

    fn at(&self, shard: Shard, offset: u64) -> Result<TopicPartitionList, KafkaError> {
        let offset = Offset::Offset(i64::try_from(offset).unwrap_or(i64::MAX));
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&self.topic, partition_of(shard), offset)?;
        Ok(list)
    }
}

/// For a client apart from the group.
struct Apart {
    recall: Recall,
}

impl ClientContext for Apart {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        context::log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka reader");
        self.recall.note(&error);
    }
}

impl ConsumerContext for Apart {}
