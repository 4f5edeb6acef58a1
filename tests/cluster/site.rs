//! A place of its own for a test on the real servers: topics, group and keyspace that are dropped afterwards, a folder
//! for logs, a sink, and the instances that were started, all ended with it.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dueline::log::kafka::topics;
use dueline::store::cassandra::{Cassandra, migrate};
use dueline::store::{Cluster, Store};
use futures::FutureExt as _;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::NewSessionError;

use crate::clock;
use crate::instance::Instance;
use crate::servers::Turn;
use crate::sink::Sink;

/// Without a heartbeat for this long an instance is dead to its group.
const SESSION: &str = "6s";
/// Long enough for a slow machine, short enough for a test.
const LEASE: &str = "9s";
/// Time for one attempt, and so for what an instance leaves open when it is killed.
pub(crate) const TIMEOUT_SECONDS: u64 = 8;
/// How many lines of each instance's log are shown when a test fails.
const LOG_LINES_SHOWN: usize = 30;

/// What a test needs to differ from the others.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) name: &'static str,
    pub(crate) shards: u32,
    /// Largest schedule record, in bytes.
    pub(crate) record_bytes_max: u64,
    /// Width of the buckets of due tasks, in milliseconds; the product's own when `None`.
    pub(crate) bucket_ms: Option<i64>,
    /// Whether topics and tables are made beforehand.
    pub(crate) prepared: bool,
    /// Static membership of all instances under one and the same id.
    pub(crate) group_instance: Option<&'static str>,
    /// What the sink is limited to, as lines of its table.
    pub(crate) limits: &'static str,
    /// More of the configuration, at its end.
    pub(crate) more: &'static str,
}

impl Wanted {
    pub(crate) fn named(name: &'static str) -> Wanted {
        let (shards, record_bytes_max) = (8, 1_048_588);
        Wanted {
            name,
            shards,
            record_bytes_max,
            bucket_ms: None,
            prepared: true,
            group_instance: None,
            limits: "",
            more: "",
        }
    }
}

/// The place of a test.
pub(crate) struct Site {
    pub(crate) kafka: String,
    pub(crate) sink: Sink,
    pub(crate) dir: PathBuf,
    /// Prefix of the topics, name of group and keyspace.
    pub(crate) unique: String,
    wanted: Wanted,
    cassandra: String,
    logs: Mutex<BTreeMap<String, PathBuf>>,
}

/// Runs a test at a place of its own, in its turn. Without servers it says so loudly and does nothing.
pub(crate) async fn on_site<F: Future<Output = ()>>(
    wanted: Wanted,
    turn: Turn,
    test: impl FnOnce(Arc<Site>) -> F,
) {
    let address = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(kafka), Some(cassandra)) = (address("DUELINE_TEST_KAFKA"), address("DUELINE_TEST_CASSANDRA"))
    else {
        // Written past the test harness, which would keep it to itself.
        let said = "DUELINE_TEST_KAFKA and DUELINE_TEST_CASSANDRA are not set; `cargo xtask test` sets them";
        writeln!(std::io::stderr(), "SKIPPED: {}: {said}", wanted.name).expect("stderr");
        return;
    };
    let _held = turn.take().await;
    let dir = tempfile::Builder::new().prefix("dueline-cluster-").tempdir().expect("a folder");
    let unique = format!("dlc_{}_{}", wanted.name, &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let sink = Sink::start().await;
    let logs = Mutex::default();
    let site = Site { kafka, sink, dir: dir.path().to_owned(), unique, wanted, cassandra, logs };
    let site = Arc::new(site);
    if wanted.prepared {
        site.prepare().await;
    }
    let result = std::panic::AssertUnwindSafe(test(site.clone())).catch_unwind().await;
    if result.is_err() {
        site.show();
        eprintln!("the ledger and the logs stay in {}", dir.keep().display());
    }
    site.clear().await;
    if let Err(failure) = result {
        std::panic::resume_unwind(failure);
    }
}

impl Site {
    /// The configuration of an instance that listens on `port`.
    pub(crate) fn config(&self, instance: &str, port: u16) -> String {
        let Site { kafka, cassandra, unique, sink, .. } = self;
        let (shards, url) = (self.wanted.shards, &sink.url);
        let id =
            self.wanted.group_instance.map(|id| format!("group_instance = \"{id}\"")).unwrap_or_default();
        let Wanted { more, limits, .. } = self.wanted;
        format!(
            r#"
[instance]
name = "{instance}"
[kafka]
brokers = "{kafka}"
group = "{unique}"
session_timeout = "{SESSION}"
{id}
[topics]
prefix = "{unique}"
partitions = {shards}
replication_factor = 1
min_insync_replicas = 1
[cassandra]
nodes = ["{cassandra}"]
keyspace = "{unique}"
[cassandra.replication]
dc1 = 1
[ownership]
lease = "{LEASE}"
[http]
listen = "127.0.0.1:{port}"
[log]
format = "text"
filter = "info,dueline=debug"
[[handler]]
name = "sink"
kind = "http"
url = "{url}"
timeout = "{TIMEOUT_SECONDS}s"
{limits}
[handler.retry]
initial = "500ms"
max = "2s"
{more}
"#
        )
    }

    /// Writes a configuration file for an instance.
    pub(crate) fn config_file(&self, instance: &str, port: u16) -> PathBuf {
        let path = self.dir.join(format!("{instance}.toml"));
        // Written aside: a process that was started with it before may be reading it.
        let new = tempfile::NamedTempFile::new_in(&self.dir).expect("a file");
        std::fs::write(new.path(), self.config(instance, port)).expect("a file");
        new.persist(&path).expect("a file");
        path
    }

    /// Starts an instance and does not wait for it.
    pub(crate) fn start(&self, name: &str) -> Instance {
        let instance = Instance::start(self, name);
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.insert(name.to_owned(), instance.log.clone());
        instance
    }

    /// Starts an instance and waits until it is ready.
    pub(crate) async fn ready(&self, name: &str) -> Instance {
        let instance = self.start(name);
        instance.until_ready().await;
        instance
    }

    /// Starts instances and waits until they share all shards, and the last of them runs.
    pub(crate) async fn settled(&self, names: &[&str]) -> Vec<Instance> {
        let instances: Vec<Instance> = names.iter().map(|name| self.start(name)).collect();
        clock::until_async("the instances share all shards", 90, || async {
            let owned: Vec<u32> =
                futures::future::join_all(instances.iter().map(Instance::shards_owned)).await;
            owned.iter().all(|owned| *owned > 0) && owned.iter().sum::<u32>() == self.wanted.shards
        })
        .await;
        instances
    }

    /// Name of a topic: `schedule`, `rejected` ….
    pub(crate) fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.unique)
    }

    /// The topics of this site, and how the brokers are reached.
    pub(crate) fn topics(&self) -> (dueline::log::kafka::Options, topics::Plan) {
        let config = self.product_config();
        let plan = topics::plan(&dueline::node::wanted_topics(&config));
        (dueline::node::kafka_options(&config), plan)
    }

    fn product_config(&self) -> dueline::config::Config {
        let file = Some(self.config_file("test", 1));
        let sources = dueline::config::Sources { file, ..dueline::config::Sources::default() };
        dueline::config::load(sources).expect("the configuration of tests is in order").config
    }

    async fn prepare(&self) {
        let config = self.product_config();
        let options = dueline::node::cassandra_options(&config);
        let tables = async {
            migrate::up(&options, "test", &mut |_| {}).await.expect("the tables are made");
            if let Some(bucket_ms) = self.wanted.bucket_ms {
                self.settle(&options, bucket_ms).await;
            }
        };
        let wanted = topics::Wanted {
            message_bytes_max: self.wanted.record_bytes_max,
            ..dueline::node::wanted_topics(&config)
        };
        let (kafka_options, plan) = (dueline::node::kafka_options(&config), topics::plan(&wanted));
        let topics = topics::create(&kafka_options, &plan);
        let (topics, ()) = futures::join!(topics, tables);
        topics.expect("the topics are made");
    }

    /// Settles what an installation settles when it first starts, with narrow buckets.
    async fn settle(&self, options: &dueline::store::cassandra::Options, bucket_ms: i64) {
        let store = Cassandra::connect(options).await.expect("the store answers");
        let cluster = Cluster {
            shards: self.wanted.shards,
            bucket_ms,
            subs: 1,
            hash: "murmur2".to_owned(),
            signing_key: [7; 32],
        };
        let settled = store.cluster(cluster).await.expect("the cluster row is written");
        assert_eq!(settled.bucket_ms, bucket_ms);
    }

    async fn clear(&self) {
        let (options, plan) = self.topics();
        if let Err(error) = topics::delete(&options, &plan).await {
            eprintln!("the topics {}.* stay: {error}", self.unique);
        }
        if let Err(error) = self.drop_keyspace().await {
            eprintln!("the keyspace {} stays: {error}", self.unique);
        }
    }

    async fn session(&self) -> Result<Session, NewSessionError> {
        SessionBuilder::new().known_node(&self.cassandra).build().await
    }

    /// The names of all keyspaces.
    pub(crate) async fn keyspaces(&self) -> Vec<String> {
        let session = self.session().await.expect("the store answers");
        let names = session.query_unpaged("SELECT keyspace_name FROM system_schema.keyspaces", ()).await;
        let names = names.expect("the keyspaces").into_rows_result().expect("rows");
        names.rows::<(String,)>().expect("names").map(|name| name.expect("a name").0).collect()
    }

    async fn drop_keyspace(&self) -> Result<(), Box<dyn std::error::Error>> {
        let session = self.session().await?;
        let mut drop = scylla::statement::Statement::new(format!("DROP KEYSPACE IF EXISTS {}", self.unique));
        drop.set_request_timeout(Some(Duration::from_secs(60)));
        session.query_unpaged(drop, ()).await?;
        Ok(())
    }

    /// Shows the ends of the logs, and writes the sink's ledger down.
    fn show(&self) {
        for (name, path) in self.logs.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let shown = lines.len().saturating_sub(LOG_LINES_SHOWN);
            eprintln!("--- {name}, {} lines, ending with\n{}", lines.len(), lines[shown..].join("\n"));
        }
        self.write_down("calls", &self.sink.calls());
    }

    /// Writes a ledger into the folder of the test, one JSON object a line.
    pub(crate) fn write_down<T: serde::Serialize>(&self, name: &str, entries: &[T]) {
        let lines = entries.iter().map(|entry| serde_json::to_string(entry).expect("JSON") + "\n");
        std::fs::write(self.dir.join(format!("{name}.jsonl")), lines.collect::<String>()).expect("a file");
    }
}
