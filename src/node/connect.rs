//! Opens the store and the log that a configuration names.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{Config, Embedded, survives_dc_loss};
use crate::log::Producer;
use crate::log::embedded::{EmbeddedLog, Retention};
use crate::store::Store;
use crate::store::embedded::{Database, EmbeddedStore};

use super::{Backends, Error};

pub(super) async fn open(config: &Config) -> Result<Backends, Error> {
    match &config.embedded {
        Some(embedded) => open_embedded(config, embedded).await,
        None => open_servers(config).await,
    }
}

async fn open_embedded(config: &Config, embedded: &Embedded) -> Result<Backends, Error> {
    let db = Database::open(&crate::store::embedded::Options::at(&embedded.data_dir))?;
    let mut options = crate::log::embedded::Options::new(&config.topics.prefix, config.topics.partitions);
    options.retention = Retention {
        age: std::time::Duration::from_millis(config.retention.topics_ms),
        records_max: config.retention.topic_records,
    };
    let log = EmbeddedLog::open(&db, options).await?;
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new(&db));
    let producer: Arc<dyn Producer> = log.producer();
    Ok(Backends {
        store,
        consumer: log.consumer()?,
        handlers_producer: producer.clone(),
        events_producer: producer.clone(),
        producer,
        embedded: Some(log),
        redundancy: None,
    })
}

#[cfg(all(feature = "kafka", feature = "cassandra"))]
async fn open_servers(config: &Config) -> Result<Backends, Error> {
    let store = crate::store::cassandra::Cassandra::connect(&cassandra_options(config)).await?;
    judged(config, &store.replication()?.factors)?;
    let options = kafka_options(config);
    let redundancy = Some(super::redundancy::Redundancy {
        store: store.clone(),
        log: options.clone(),
        topics: crate::log::kafka::topics::plan(&wanted_topics(config)).names(),
        min_insync_replicas: usize::try_from(config.topics.min_insync_replicas).unwrap_or(usize::MAX),
    });
    let store: Arc<dyn Store> = Arc::new(store);
    let producer: Arc<dyn Producer> = Arc::new(crate::log::kafka::Producer::start(options.clone())?);
    let has_topics =
        config.handlers.iter().any(|route| matches!(route.kind, crate::dispatch::registry::Kind::Topic(_)));
    let handlers_producer: Arc<dyn Producer> = if has_topics {
        Arc::new(crate::log::kafka::Producer::for_handlers(options.clone(), patience(config))?)
    } else {
        producer.clone()
    };
    let events_producer: Arc<dyn Producer> = if config.topics.task_events || config.topics.dead_letters {
        Arc::new(crate::log::kafka::Producer::start(options.clone())?)
    } else {
        producer.clone()
    };
    // The service joins when it knows whether it is drained.
    let consumer = Arc::new(crate::log::kafka::Consumer::start_away(options)?);
    Ok(Backends { store, consumer, producer, handlers_producer, events_producer, embedded: None, redundancy })
}

/// What waits to be sent to a handler's topic is given up no later than the lease under which its task was started.
#[cfg(feature = "kafka")]
fn patience(config: &Config) -> std::time::Duration {
    let timing = super::options_of(config).timing;
    std::time::Duration::from_millis(timing.lease_ms - timing.margin_ms)
}

/// Whether the keyspace, as it is replicated, may be used.
///
/// # Errors
/// It does not survive the loss of a data centre, and the configuration requires it.
fn judged(config: &Config, factors: &BTreeMap<String, u32>) -> Result<(), Error> {
    if config.cassandra.require_dc_loss_survival && !survives_dc_loss(factors) {
        let found: Vec<String> = factors.iter().map(|(dc, factor)| format!("{dc} = {factor}")).collect();
        let text = format!(
            "keyspace {} is replicated as {}, which leaves no quorum when one data centre is lost, and \
             cassandra.require_dc_loss_survival forbids that: spread it, as in dc1 = 2, dc2 = 2, dc3 = 1",
            config.cassandra.keyspace,
            found.join(", ")
        );
        return Err(crate::store::Error::Misconfigured(text).into());
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replication_that_was_found_is_judged_not_the_one_of_the_configuration() {
        let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config::dev("/tmp/d".as_ref(), listen);
        let factors = |of: &[(&str, u32)]| of.iter().map(|(dc, n)| ((*dc).to_owned(), *n)).collect();
        let (weak, strong): (BTreeMap<String, u32>, BTreeMap<String, u32>) =
            (factors(&[("dc1", 3)]), factors(&[("dc1", 2), ("dc2", 2), ("dc3", 1)]));
        config.cassandra.replication = strong.clone();
        assert!(judged(&config, &weak).is_ok());
        config.cassandra.require_dc_loss_survival = true;
        let refused = judged(&config, &weak).expect_err("refused").to_string();
        assert!(refused.contains("replicated as dc1 = 3"), "{refused}");
        config.cassandra.replication = weak;
        assert!(judged(&config, &strong).is_ok());
    }
}
