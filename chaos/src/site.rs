//! The place of a run on the servers: topics, group and keyspace of its own, dropped at the end; a folder for logs and
//! ledgers, which stays.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline::config::Config;
use dueline::log::kafka::topics;
use dueline::store::cassandra::migrate;

use crate::event::HANDLERS;
use crate::say;
use crate::sink::Sink;

/// Shards of a run: several for each instance, few enough to be asked about ten times a second.
pub(crate) const SHARDS: u32 = 12;
/// Time for one attempt, in seconds, and so for what an instance leaves open when it is killed.
const TIMEOUT_SECONDS: u64 = 8;
/// Calls of a handler at once for each instance that a run begins with, where it is not told otherwise: enough for the load, and
/// few enough that a slow handler uses all of them.
const SLOTS_AN_INSTANCE: u32 = 8;
/// Dropping a keyspace may take this long.
const DROP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a topic to go, and between two tries to make it again.
const RENEWED_WITHIN: Duration = Duration::from_secs(60);
const RENEWED_AGAIN: Duration = Duration::from_millis(100);

/// What a place is made of.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) kafka: String,
    pub(crate) cassandra: String,
    pub(crate) dir: PathBuf,
    /// Three data centres: a copy of each topic in every one. Otherwise one.
    pub(crate) spread: bool,
    /// Copies of each table by data centre.
    pub(crate) copies: &'static str,
    /// The filter of the instances' logs.
    pub(crate) log: String,
}

/// Where an instance runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) dc: &'static str,
    /// Its HTTP.
    pub(crate) listen: SocketAddr,
}

impl Spot {
    /// On this machine, with its one data centre.
    pub(crate) fn alone(port: u16) -> Spot {
        Spot { dc: ALONE, listen: (Ipv4Addr::LOCALHOST, port).into() }
    }
}

/// The name of the data centre where there is only one.
pub(crate) const ALONE: &str = "dc1";

/// A place, made.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) options: Options,
    /// Prefix of the topics, name of group and keyspace.
    unique: String,
}

impl Site {
    /// Makes topics and tables.
    pub(crate) async fn make(options: Options) -> Result<Site> {
        let unique = format!("chaos_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        std::fs::create_dir_all(&options.dir).with_context(|| format!("{}", options.dir.display()))?;
        let site = Site { options, unique };
        if let Err(error) = site.prepare().await {
            site.clear().await;
            return Err(error);
        }
        Ok(site)
    }

    async fn prepare(&self) -> Result<()> {
        let config = self.product_config()?;
        let plan = topics::plan(&dueline::node::wanted_topics(&config));
        topics::create(&dueline::node::kafka_options(&config), &plan)
            .await
            .context("the topics of this run")?;
        let options = dueline::node::cassandra_options(&config);
        migrate::up(&options, "chaos", &mut |_| {}).await.context("the keyspace of this run")?;
        Ok(())
    }

    /// Drops topics and keyspace, and says what stays.
    pub(crate) async fn clear(&self) {
        if let Err(error) = self.delete_topics().await {
            say::line(format_args!("the topics {}.* stay: {error:#}", self.unique));
        }
        if let Err(error) = self.drop_keyspace().await {
            say::line(format_args!("the keyspace {} stays: {error:#}", self.unique));
        }
    }

    async fn delete_topics(&self) -> Result<()> {
        let config = self.product_config()?;
        let plan = topics::plan(&dueline::node::wanted_topics(&config));
        Ok(topics::delete(&dueline::node::kafka_options(&config), &plan).await?)
    }

    /// Deletes the schedule topic and makes it again, empty.
    pub(crate) async fn renew_schedule_topic(&self) -> Result<()> {
        let config = self.product_config()?;
        let mut plan = topics::plan(&dueline::node::wanted_topics(&config));
        plan.topics.retain(|topic| topic.name == self.schedule_topic());
        let options = dueline::node::kafka_options(&config);
        topics::delete(&options, &plan).await?;
        let until = tokio::time::Instant::now() + RENEWED_WITHIN;
        // It is there for a moment after it was deleted.
        while topics::create(&options, &plan).await?.is_empty() {
            anyhow::ensure!(tokio::time::Instant::now() < until, "the schedule topic is still there");
            tokio::time::sleep(RENEWED_AGAIN).await;
        }
        Ok(())
    }

    async fn drop_keyspace(&self) -> Result<()> {
        let session = scylla::client::session_builder::SessionBuilder::new()
            .known_nodes(self.options.cassandra.split(','))
            .build()
            .await?;
        let mut drop = scylla::statement::Statement::new(format!("DROP KEYSPACE IF EXISTS {}", self.unique));
        drop.set_request_timeout(Some(DROP_TIMEOUT));
        session.query_unpaged(drop, ()).await?;
        Ok(())
    }

    fn product_config(&self) -> Result<Config> {
        let file = self.options.dir.join("site.toml");
        std::fs::write(&file, self.config("site", &Spot::alone(1), "http://127.0.0.1:1/"))?;
        let sources = dueline::config::Sources { file: Some(file), ..dueline::config::Sources::default() };
        Ok(dueline::config::load(sources).context("the configuration of a run")?.config)
    }

    /// Name of the schedule topic.
    pub(crate) fn schedule_topic(&self) -> String {
        format!("{}.schedule", self.unique)
    }

    /// Name of the consumer group.
    pub(crate) fn group(&self) -> String {
        self.unique.clone()
    }

    /// Name of the keyspace.
    pub(crate) fn keyspace(&self) -> String {
        self.unique.clone()
    }

    /// The file of that name in the folder of the run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.options.dir.join(name)
    }

    /// Writes the configuration of an instance. Session and lease are the defaults: 6 s each.
    pub(crate) fn config_file(&self, instance: &str, spot: &Spot, sink: &Sink) -> Result<PathBuf> {
        let path = self.file(&format!("{instance}.toml"));
        std::fs::write(&path, self.config(instance, spot, &sink.url(spot.dc, instance)?))?;
        Ok(path)
    }

    fn config(&self, instance: &str, spot: &Spot, url: &str) -> String {
        let Site { options: Options { kafka, cassandra, log, spread, copies: tables, .. }, unique } = self;
        let Spot { dc, listen } = spot;
        let nodes = cassandra.split(',').map(|node| format!("{node:?}")).collect::<Vec<_>>().join(", ");
        let (copies, copies_min) = if *spread { (3, 2) } else { (1, 1) };
        let slots = SLOTS_AN_INSTANCE * if *spread { 6 } else { 3 };
        let handlers = HANDLERS.map(|name| handler(name, url, slots)).concat();
        format!(
            r#"
[instance]
name = "{instance}"
dc = "{dc}"
[kafka]
brokers = "{kafka}"
group = "{unique}"
[topics]
prefix = "{unique}"
partitions = {SHARDS}
replication_factor = {copies}
min_insync_replicas = {copies_min}
[cassandra]
nodes = [{nodes}]
keyspace = "{unique}"
[cassandra.replication]
{tables}
[http]
listen = "{listen}"
access = "open"
[log]
format = "text"
filter = "{log}"
{handlers}"#
        )
    }
}

/// A handler of a configuration. Several share an address, and nothing else.
fn handler(name: &str, url: &str, slots: u32) -> String {
    format!(
        r#"
[[handler]]
name = "{name}"
kind = "http"
url = "{url}"
timeout = "{TIMEOUT_SECONDS}s"
concurrency = {slots}
[handler.retry]
max_attempts = 1000
initial = "500ms"
max = "2s"
"#
    )
}

/// The port of `host:port`.
pub(crate) fn port_of(address: &str) -> Result<u16> {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.with_context(|| format!("{address:?} is not host:port"))
}

/// Whether an address is this machine's loopback: only that can be forwarded into a network of an instance's own.
pub(crate) fn is_loopback(address: &str) -> bool {
    address.starts_with("127.0.0.1:")
}

/// The program of the product: the one that is named, or the one beside this program, which is built first when it is not
/// there or when cargo runs this: then it is the one of this checkout. One that can make mistakes on purpose is always built.
pub(crate) fn program(given: Option<&Path>, planted: bool) -> Result<PathBuf> {
    if let Some(given) = given {
        return given.canonicalize().with_context(|| format!("{}", given.display()));
    }
    let own = std::env::current_exe().context("the path of this program")?;
    let beside = own.with_file_name("dueline");
    if beside.exists() && std::env::var_os("CARGO").is_none() && !planted {
        return Ok(beside);
    }
    let product = ["--package", "dueline", "--bin", "dueline"];
    match planted {
        false => build(&product, "dueline").context("name the program with --dueline PATH"),
        // In a folder of its own: nobody is to take it for the product.
        true => {
            let target = crate::servers::workspace().join("target/planted");
            let apart = [
                "--features".into(),
                "testing".into(),
                "--target-dir".into(),
                target.clone().into_os_string(),
            ];
            cargo_build(product.map(Into::into).into_iter().chain(apart), "dueline that can be broken")?;
            let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
            Ok(target.join(profile).join("dueline"))
        }
    }
}

/// Builds a part of this checkout, in this program's profile; gives the file of that name beside this program.
pub(crate) fn build(what: &[&str], name: &str) -> Result<PathBuf> {
    cargo_build(what.iter().map(Into::into), name)?;
    let built = std::env::current_exe().context("the path of this program")?.with_file_name(name);
    anyhow::ensure!(built.exists(), "{name} was not built where it is looked for: {}", built.display());
    Ok(built)
}

fn cargo_build(what: impl Iterator<Item = OsString>, name: &str) -> Result<()> {
    say::line(format_args!("building {name}"));
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::servers::workspace()).arg("build").args(what);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let status = cargo.stdout(std::io::stderr()).status().context("running cargo")?;
    anyhow::ensure!(status.success(), "{name} cannot be built");
    Ok(())
}
