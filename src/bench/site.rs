//! Where a run happens: topics and a keyspace of its own on given servers, or a folder of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::config::{Config, Embedded};
use crate::dispatch::registry::Route;
use crate::log::Producer;
use crate::model::CollectionLimit;
use crate::node::Node;

use super::args::Plan;

/// How long the client of the load waits for others of a partition unless the configuration says, in milliseconds.
const CLIENT_LINGER_MS: u64 = 50;

/// A place for one run; [`Site::close`] removes what it made.
pub(super) struct Site {
    config: Config,
    pub(super) dir: Option<PathBuf>,
}

impl Site {
    pub(super) async fn open(plan: &Plan, given: Option<Config>) -> anyhow::Result<Site> {
        let name = format!("bench_{}", uuid::Uuid::new_v4().simple());
        let base = plan.place.embedded.clone().unwrap_or_else(std::env::temp_dir);
        let dir = base.join(format!("dueline-{name}"));
        let mut config = Config::dev(&dir, std::net::SocketAddr::from(([127, 0, 0, 1], 7420)));
        config.topics.partitions = plan.shards;
        if plan.limited {
            let plenty = Some("1000000/s".parse()?);
            let limit =
                CollectionLimit { concurrency: Some(100_000), rate: plenty, weight: 1, intake: plenty };
            config.collections.each_other = Some(limit);
        }
        if let Some(given) = &given {
            config.limits = given.limits;
        }
        let given = given.filter(|_| plan.place.embedded.is_none());
        let names_brokers = given.as_ref().is_some_and(|given| given.kafka.brokers.is_some());
        if !names_brokers && plan.place.kafka.is_none() {
            std::fs::create_dir_all(&dir).with_context(|| format!("the folder {}", dir.display()))?;
            config.embedded = Some(Embedded { data_dir: dir.clone() });
            return Ok(Site { config, dir: Some(dir) });
        }
        (config.embedded, config.is_dev) = (None, false);
        (config.topics.task_events, config.topics.dead_letters) = (true, true);
        if let Some(given) = &given {
            config.kafka = given.kafka.clone();
            config.topics.task_events = given.topics.task_events;
            config.topics.dead_letters = given.topics.dead_letters;
        }
        // What names no servers says nothing of their copies either.
        match given.filter(|_| names_brokers) {
            Some(given) => {
                config.cassandra = given.cassandra;
                config.topics.replication_factor = given.topics.replication_factor;
                config.topics.min_insync_replicas = given.topics.min_insync_replicas;
            }
            None => {
                config.topics.replication_factor = 1;
                config.topics.min_insync_replicas = 1;
                config.cassandra.replication = [(config.cassandra.local_dc.clone(), 1)].into();
            }
        }
        if let (Some(kafka), Some(cassandra)) = (&plan.place.kafka, &plan.place.cassandra) {
            config.kafka.brokers = Some(kafka.clone());
            config.cassandra.nodes = vec![cassandra.clone()];
        }
        config.topics.prefix.clone_from(&name);
        config.kafka.group.clone_from(&name);
        config.cassandra.keyspace = name[..30].to_owned();
        if let Err(error) = prepare(&config).await {
            // What was made before the failure goes; the failure is what is told.
            let _ = clear(&config).await;
            return Err(error);
        }
        Ok(Site { config, dir: None })
    }

    /// `kafka+cassandra` or `embedded`.
    pub(super) fn word(&self) -> &'static str {
        if self.dir.is_some() { "embedded" } else { "kafka+cassandra" }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// A client that sends the records of the load to servers, as one of a user's would: it waits for others of a partition, of
    /// which there are many. Sent one by one, records take most of what clients and brokers do at a few thousand a second.
    ///
    /// # Errors
    /// Its settings are wrong.
    pub(super) fn client(&self) -> anyhow::Result<Option<Arc<dyn Producer>>> {
        if self.dir.is_some() {
            return Ok(None);
        }
        client(&self.config).map(Some)
    }

    /// A node by this name, with more handlers than those of the configuration.
    pub(super) fn node(&self, name: &str, handlers: impl IntoIterator<Item = Route>) -> crate::node::Builder {
        let mut config = self.config.clone();
        name.clone_into(&mut config.instance.name);
        config.handlers.extend(handlers);
        Node::builder(config)
    }

    pub(super) async fn close(self) -> anyhow::Result<()> {
        match self.dir {
            Some(dir) => remove(&dir).await,
            None => clear(&self.config).await,
        }
    }
}

async fn remove(dir: &Path) -> anyhow::Result<()> {
    tokio::fs::remove_dir_all(dir).await.with_context(|| format!("the folder {} stays", dir.display()))
}

#[cfg(all(feature = "kafka", feature = "cassandra"))]
fn client(config: &Config) -> anyhow::Result<Arc<dyn Producer>> {
    let mut options = crate::node::kafka_options(config);
    options.producer.entry("linger.ms".to_owned()).or_insert_with(|| CLIENT_LINGER_MS.to_string());
    Ok(Arc::new(crate::log::kafka::Producer::start(options)?))
}

#[cfg(not(all(feature = "kafka", feature = "cassandra")))]
fn client(_config: &Config) -> anyhow::Result<Arc<dyn Producer>> {
    anyhow::bail!("this binary was built without Kafka and Cassandra")
}

#[cfg(all(feature = "kafka", feature = "cassandra"))]
async fn prepare(config: &Config) -> anyhow::Result<()> {
    use crate::log::kafka::topics;
    use crate::store::cassandra::migrate;
    let plan = topics::plan(&crate::node::wanted_topics(config));
    topics::create(&crate::node::kafka_options(config), &plan).await.context("the topics of this run")?;
    let options = crate::node::cassandra_options(config);
    migrate::up(&options, "bench", &mut |_| {}).await.context("the keyspace of this run")?;
    Ok(())
}

#[cfg(all(feature = "kafka", feature = "cassandra"))]
async fn clear(config: &Config) -> anyhow::Result<()> {
    let session = super::ceiling::session(config).await?;
    let drop = format!("DROP KEYSPACE IF EXISTS {}", config.cassandra.keyspace);
    tokio::time::timeout(Duration::from_secs(60), session.query_unpaged(drop, ())).await??;
    let plan = crate::log::kafka::topics::plan(&crate::node::wanted_topics(config));
    crate::log::kafka::topics::delete(&crate::node::kafka_options(config), &plan).await?;
    Ok(())
}

#[cfg(not(all(feature = "kafka", feature = "cassandra")))]
async fn prepare(_config: &Config) -> anyhow::Result<()> {
    anyhow::bail!("this binary was built without Kafka and Cassandra")
}

#[cfg(not(all(feature = "kafka", feature = "cassandra")))]
async fn clear(_config: &Config) -> anyhow::Result<()> {
    Ok(())
}
