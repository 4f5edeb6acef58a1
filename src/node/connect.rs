//! Opens the store and the log that a configuration names.

use std::sync::Arc;

use crate::config::{Config, Dev};
use crate::log::embedded::EmbeddedLog;
use crate::store::Store;
use crate::store::embedded::{Database, EmbeddedStore};

use super::{Backends, Error};

pub(super) async fn open(config: &Config) -> Result<Backends, Error> {
    match &config.dev {
        Some(dev) => open_embedded(config, dev).await,
        None => open_servers(config).await,
    }
}

async fn open_embedded(config: &Config, dev: &Dev) -> Result<Backends, Error> {
    let db = Database::open(&crate::store::embedded::Options::at(&dev.data_dir))?;
    let options = crate::log::embedded::Options::new(&config.topics.prefix, config.topics.partitions);
    let log = EmbeddedLog::open(&db, options).await?;
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new(&db));
    Ok(Backends { store, consumer: log.consumer()?, producer: log.producer(), embedded: Some(log) })
}

#[cfg(all(feature = "kafka", feature = "cassandra"))]
async fn open_servers(config: &Config) -> Result<Backends, Error> {
    let store: Arc<dyn Store> =
        Arc::new(crate::store::cassandra::Cassandra::connect(&cassandra_options(config)).await?);
    let options = kafka_options(config);
    let producer = Arc::new(crate::log::kafka::Producer::start(options.clone())?);
    let consumer = Arc::new(crate::log::kafka::Consumer::start(options)?);
    Ok(Backends { store, consumer, producer, embedded: None })
}

#[cfg(not(all(feature = "kafka", feature = "cassandra")))]
async fn open_servers(_config: &Config) -> Result<Backends, Error> {
    Err(Error::Feature("kafka and cassandra"))
}

/// What the store's client is given.
#[cfg(feature = "cassandra")]
pub fn cassandra_options(config: &Config) -> crate::store::cassandra::Options {
    let cassandra = &config.cassandra;
    let mut options = crate::store::cassandra::Options::new(
        cassandra.nodes.clone(),
        &cassandra.keyspace,
        &cassandra.local_dc,
    );
    options.credentials =
        cassandra.credentials.as_ref().map(|(user, password)| (user.clone(), password.expose().to_owned()));
    options.tls = cassandra.tls.as_ref().map(|tls| crate::store::cassandra::Tls {
        ca_file: tls.ca_file.clone(),
        client_files: tls.client_files.clone(),
    });
    options.request_timeout = std::time::Duration::from_millis(cassandra.request_timeout_ms);
    options.owner_ask_again = std::time::Duration::from_millis(config.lease_ms / 8);
    options.replication = cassandra.replication.clone();
    options
}

/// What the log's clients are given.
#[cfg(feature = "kafka")]
pub fn kafka_options(config: &Config) -> crate::log::kafka::Options {
    use crate::config::Protocol;
    let kafka = &config.kafka;
    let brokers = kafka.brokers.clone().unwrap_or_default();
    let mut options = crate::log::kafka::Options::new(brokers, &kafka.group, &config.instance.name);
    options.group_instance.clone_from(&kafka.group_instance);
    options.rack.clone_from(&kafka.rack);
    options.session_timeout = std::time::Duration::from_millis(kafka.session_timeout_ms);
    options.protocol = match kafka.protocol {
        Protocol::Classic => crate::log::kafka::Protocol::Classic,
        Protocol::Consumer => crate::log::kafka::Protocol::Consumer,
    };
    options.prefix.clone_from(&config.topics.prefix);
    options.message_timeout = std::time::Duration::from_millis(kafka.message_timeout_ms);
    options.buffer_bytes = kafka.buffer_bytes;
    options.librdkafka = kafka.librdkafka.0.clone();
    options.producer = kafka.producer.0.clone();
    options.consumer = kafka.consumer.0.clone();
    options
}

/// The topics an installation wants.
#[cfg(feature = "kafka")]
pub fn wanted_topics(config: &Config) -> crate::log::kafka::topics::Wanted {
    let topics = &config.topics;
    crate::log::kafka::topics::Wanted {
        prefix: topics.prefix.clone(),
        partitions: topics.partitions,
        replication_factor: u16::try_from(topics.replication_factor).unwrap_or(u16::MAX),
        min_insync_replicas: u16::try_from(topics.min_insync_replicas).unwrap_or(u16::MAX),
        ..crate::log::kafka::topics::Wanted::default()
    }
}
