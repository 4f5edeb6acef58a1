//! Reads a topic from its beginning to its end, with a plain consumer.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::site::Site;

const WAIT: Duration = Duration::from_secs(20);

/// A record as it lies in a topic.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) partition: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    /// The last of each name counts.
    pub(crate) headers: BTreeMap<String, String>,
}

/// All records of a topic of the site: `schedule`, `rejected` ….
pub(crate) async fn read(site: &Site, name: &str) -> Vec<Found> {
    let (kafka, topic) = (site.kafka.clone(), site.topic(name));
    tokio::task::spawn_blocking(move || read_all(&kafka, &topic)).await.expect("the topic can be read")
}

/// The names of all topics.
pub(crate) async fn names(site: &Site) -> Vec<String> {
    let kafka = site.kafka.clone();
    let names = move || {
        let metadata = consumer(&kafka).fetch_metadata(None, WAIT).expect("metadata");
        metadata.topics().iter().map(|topic| topic.name().to_owned()).collect()
    };
    tokio::task::spawn_blocking(names).await.expect("the topics can be listed")
}

fn consumer(kafka: &str) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", kafka)
        .set("group.id", "cluster-test-reader")
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer")
}

fn read_all(kafka: &str, topic: &str) -> Vec<Found> {
    let consumer = consumer(kafka);
    let metadata = consumer.fetch_metadata(Some(topic), WAIT).expect("metadata");
    let partitions: Vec<i32> =
        metadata.topics()[0].partitions().iter().map(|partition| partition.id()).collect();
    let mut assigned = TopicPartitionList::new();
    let mut left = 0;
    for partition in partitions {
        let (low, high) = consumer.fetch_watermarks(topic, partition, WAIT).expect("watermarks");
        assigned.add_partition_offset(topic, partition, Offset::Beginning).expect("a place");
        left += high - low;
    }
    consumer.assign(&assigned).expect("an assignment");
    let mut found = Vec::new();
    for _ in 0..left {
        let message = consumer.poll(WAIT).expect("a record within 20 s").expect("a record");
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter()).map(|header| {
            let value = String::from_utf8_lossy(header.value.unwrap_or_default()).into_owned();
            (header.key.to_owned(), value)
        });
        found.push(Found {
            partition: message.partition(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.collect(),
        });
    }
    found
}
