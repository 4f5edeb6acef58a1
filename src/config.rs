//! The configuration: flag over environment over TOML file over default.
//!
//! Everything that is wrong is found at once, and each problem says where it is, what was found and what to write
//! instead. Unknown keys are refused with the nearest known one. Secrets come from files of their own or from the
//! environment, and are shown nowhere: not by [`Loaded::show`], not by `Debug`, not in a problem.
//!
//! ```text
//! keys (the table) → section (values with origins) ← file ← environment ← flags
//!                     └→ build → Config            └→ show
//! ```

mod access;
mod build;
mod collection;
mod docs;
mod doubts;
mod environment;
mod file;
mod handler;
mod keys;
mod kind;
mod load;
mod otlp;
mod queue;
mod section;
mod show;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use access::{Access, Role, TOKENS_MAX, Token, TokenSource, Unread, read_tokens};
pub(crate) use build::read_secret;
#[cfg(test)]
pub(crate) use docs::check_generated;
pub use docs::reference;
pub use load::{Flag, Loaded, Sources, load, load_dev, load_embedded};
pub use otlp::Otlp;
pub use section::Origin;
pub use show::Entry;

use crate::dispatch::log_line;
use crate::dispatch::registry::{Kind, Policy, Route};
use crate::model::{CollectionLimits, HandlerName, HeadPolicy};

/// Most handlers, and most collections.
pub const TABLES_MAX: usize = 1_000;
/// Shards of an embedded installation.
pub const EMBEDDED_SHARDS: u32 = 8;
/// Largest file with a secret, in bytes.
pub const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;

/// The whole configuration, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// This instance.
    pub instance: Instance,
    /// Kafka.
    pub kafka: Kafka,
    /// Dueline's own topics.
    pub topics: Topics,
    /// Cassandra.
    pub cassandra: Cassandra,
    /// Lease of a shard's owner, in milliseconds.
    pub lease_ms: u64,
    /// Bounds.
    pub limits: Limits,
    /// How long what is kept.
    pub retention: Retention,
    /// The HTTP interface.
    pub http: Http,
    /// Logs.
    pub log: Log,
    /// Where spans of attempts go.
    pub otlp: Otlp,
    /// The handlers, names all different.
    pub handlers: Vec<Route>,
    /// What collections are limited to.
    pub collections: CollectionLimits,
    /// What tasks of a queue do to it when they fail or die, by the queue's name.
    pub queues: BTreeMap<String, HeadPolicy>,
    /// Set when everything is kept embedded, without servers.
    pub embedded: Option<Embedded>,
    /// The rules of `dueline dev`, for one's own machine: loopback URLs are handlers, nobody is asked for a token.
    pub is_dev: bool,
}

/// This instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Its data centre.
    pub dc: String,
    /// How long a stop waits for calls that run, in milliseconds.
    pub stop_wait_ms: u64,
}

/// Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kafka {
    /// Brokers to begin with, `host:port` with commas between; `None` until set.
    pub brokers: Option<String>,
    /// The consumer group.
    pub group: String,
    /// Static membership under this id.
    pub group_instance: Option<String>,
    /// The rack.
    pub rack: Option<String>,
    /// Without a heartbeat for this long an instance is dead to the group, in milliseconds.
    pub session_timeout_ms: u64,
    /// The group protocol.
    pub protocol: Protocol,
    /// A record that is not durable after this long has failed, in milliseconds.
    pub message_timeout_ms: u64,
    /// Records fetched ahead, in bytes.
    pub buffer_bytes: usize,
    /// librdkafka properties for all clients.
    pub librdkafka: Properties,
    /// For the producer alone.
    pub producer: Properties,
    /// For the consumer alone.
    pub consumer: Properties,
}

/// The group protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Classic, with cooperative-sticky assignment.
    Classic,
    /// KIP-848.
    Consumer,
}

/// librdkafka properties; secret ones are not shown by `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties(pub BTreeMap<String, String>);

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): &(&String, &String)| -> String {
            if is_secret_name(name) { "(not shown)".to_owned() } else { (*value).clone() }
        };
        f.debug_map().entries(self.0.iter().map(|pair| (pair.0, shown(&pair)))).finish()
    }
}

/// Dueline's own topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    /// Prefix of their names.
    pub prefix: String,
    /// Partitions of the schedule topic = shards.
    pub partitions: u32,
    /// Replicas.
    pub replication_factor: u32,
    /// Replicas that must have a record before it counts.
    pub min_insync_replicas: u32,
    /// Whether what becomes of tasks is published on the events topic.
    pub task_events: bool,
    /// Whether a copy of each dead letter is put on the dead topic.
    pub dead_letters: bool,
}

/// Cassandra.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cassandra {
    /// Nodes to begin with, `host:port`; empty until set.
    pub nodes: Vec<String>,
    /// The keyspace.
    pub keyspace: String,
    /// The data centre whose nodes coordinate.
    pub local_dc: String,
    /// User and password.
    pub credentials: Option<(String, Hidden)>,
    /// Encryption; `None` = plain text.
    pub tls: Option<Tls>,
    /// One request, in milliseconds.
    pub request_timeout_ms: u64,
    /// Replication factor of each data centre.
    pub replication: BTreeMap<String, u32>,
    /// Whether start refuses a replication that cannot lose a data centre.
    pub require_dc_loss_survival: bool,
}

impl Cassandra {
    /// Whether a quorum is left whichever data centre is lost, with the replication of the configuration. A keyspace
    /// that exists may have another.
    pub fn survives_dc_loss(&self) -> bool {
        survives_dc_loss(&self.replication)
    }
}

/// Whether a quorum is left whichever data centre is lost, by the replication factor of each.
pub fn survives_dc_loss(replication: &BTreeMap<String, u32>) -> bool {
    let total: u32 = replication.values().sum();
    let left = |factor: &u32| total - factor;
    !replication.is_empty() && replication.values().all(|factor| left(factor) > total / 2)
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl From<String> for Hidden {
    fn from(text: String) -> Hidden {
        Hidden(text)
    }
}

impl Hidden {
    /// The text itself, for the client that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// Files for encryption, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that sign node certificates.
    pub ca_file: PathBuf,
    /// This client's certificate chain and key.
    pub client_files: Option<(PathBuf, PathBuf)>,
}

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tasks this instance holds in memory.
    pub tasks_in_memory: usize,
    /// Memory for schedule events that are fetched and not stored yet, in bytes.
    pub intake_bytes: usize,
    /// Memory for task events that are not published yet, in bytes.
    pub events_bytes: usize,
    /// Ids with events on record that this instance knows of in memory.
    pub ids_in_memory: usize,
    /// Largest payload, in bytes.
    pub payload_bytes: usize,
}

/// How long what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// What is known of a finished task, in milliseconds.
    pub history_ms: u64,
    /// The repeat window, in milliseconds.
    pub repeat_window_ms: u64,
    /// Records of embedded topics, in milliseconds.
    pub topics_ms: u64,
    /// And how many of each partition.
    pub topic_records: u64,
}

/// The HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where other instances reach it, as URL.
    pub advertise: String,
    /// Further names that requests may have as their host.
    pub hosts: Vec<String>,
    /// Who may ask.
    pub access: Access,
    /// Whether it was said that whoever reaches it may do everything.
    pub is_open_on_purpose: bool,
}

/// Logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// What is logged.
    pub filter: String,
    /// How it is written.
    pub format: LogFormat,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// Storage without servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// Where everything is kept.
    pub data_dir: PathBuf,
}

impl Config {
    /// The configuration of `dueline dev`: defaults, a handler `log` that shows the start of payloads, and loopback
    /// URLs as handlers. Reads no file and no environment.
    pub fn dev(data_dir: &Path, listen: SocketAddr) -> Config {
        let flags = vec![Flag { flag: "--listen", key: "http.listen", value: listen.to_string() }];
        let sources = Sources { flags, ..Sources::default() };
        load_dev(sources, data_dir).expect("defaults and an address are in order").0
    }

    /// The same without servers: everything is kept under a folder.
    fn into_embedded(mut self, data_dir: &Path) -> Config {
        self.topics.partitions = EMBEDDED_SHARDS;
        self.embedded = Some(Embedded { data_dir: data_dir.to_owned() });
        self
    }

    /// The same embedded under a folder by the rules of `dev`, with a handler `log` unless there is one.
    fn into_dev(mut self, data_dir: &Path) -> Config {
        let name = HandlerName::new("log").expect("a name");
        if self.handlers.iter().all(|route| route.name != name) {
            let kind = Kind::Log(log_line::Options { show_payload: true });
            self.handlers.push(Route { name, policy: Policy::default(), kind });
        }
        self.is_dev = true;
        self.into_embedded(data_dir)
    }

    /// What tasks get whose handler is a loopback URL; `None` = such URLs are no handlers.
    pub fn loopback_urls(&self) -> Option<Policy> {
        self.is_dev.then(Policy::default)
    }
}

/// One thing that is wrong: where, which key, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was said.
    pub origin: Origin,
    /// The key; empty when it is about the whole.
    pub key: String,
    /// What is wrong and what to write instead.
    pub text: String,
}

impl Problem {
    fn new(origin: &Origin, key: impl Into<String>, text: impl Into<String>) -> Problem {
        Problem { origin: origin.clone(), key: key.into(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin != Origin::Default {
            write!(f, "{}: ", self.origin)?;
        }
        if !self.key.is_empty() {
            write!(f, "{} ", self.key)?;
        }
        f.write_str(&self.text)
    }
}

/// Everything that is wrong, one problem a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// Whether a librdkafka property holds a secret rather than the place of one.
fn is_secret_name(name: &str) -> bool {
    const WORDS: [&str; 7] = ["password", "secret", "pem", "key", "token", "jaas", "oauthbearer.config"];
    const PLACES: [&str; 4] = ["location", "_file", "endpoint.url", "unsecure.jwt"];
    WORDS.iter().any(|word| name.contains(word)) && !PLACES.iter().any(|place| name.ends_with(place))
}

fn did_you_mean(given: &str, known: &[String]) -> String {
    const LIKE_ENOUGH: f64 = 0.75;
    let like = |name: &&String| strsim::jaro_winkler(given, name);
    let nearest = known.iter().max_by(|a, b| like(a).total_cmp(&like(b)));
    match nearest.filter(|name| like(name) >= LIKE_ENOUGH) {
        Some(name) => format!("; did you mean {name}?"),
        None => "; docs/configuration.md has them all".to_owned(),
    }
}
