//! The offsets of a consumer group, moved while nobody is in it, as `kafka-consumer-groups --reset-offsets` does.

use std::time::Duration;

use anyhow::{Context as _, Result};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::plan::Offsets;
use crate::site::SHARDS;

/// A request to the brokers may take this long.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Blocks until a broker has all of them.
pub(crate) fn move_all(kafka: &str, group: &str, topic: &str, to: Offsets) -> Result<()> {
    let client: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .create()
        .context("a client for the group's offsets")?;
    let mut offsets = TopicPartitionList::new();
    for partition in 0..i32::try_from(SHARDS)? {
        let (first, next) =
            client.fetch_watermarks(topic, partition, TIMEOUT).context("a shard's offsets")?;
        let at = match to {
            Offsets::Beginning => first,
            Offsets::End => next,
        };
        offsets.add_partition_offset(topic, partition, Offset::Offset(at))?;
    }
    client.commit(&offsets, CommitMode::Sync).context("the group's offsets")
}
