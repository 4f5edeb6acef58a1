//! Whether an installation keeps its promises, and would if a data centre were lost: judged from facts, line by line, each
//! with what to do.
//!
//! Pure functions of what the adapters gathered ([`crate::log::kafka::facts`], [`crate::store::cassandra::facts`]): nothing
//! here asks anybody. `dueline doctor` prints the findings; a running instance exports the answers about data centres.
//!
//! ```text
//! kafka: brokers, racks, topics, rights ── placement: what is left of each partition without a rack
//! cassandra: nodes, versions, settings, clocks ── quorum: what is left of each set of copies without a data centre
//! installation: shards and instances
//! ```

pub mod cassandra;
mod check;
pub mod installation;
pub mod kafka;
pub mod placement;
pub mod quorum;
mod rows;
mod settings;

pub use check::{Check, reference};

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it is to be.
    Ok,
    /// Works, but not as it is to be, or could not be found out.
    Warn,
    /// A promise does not hold.
    Fail,
}

impl Level {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        }
    }
}

/// One thing found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at.
    pub check: Check,
    /// What was found.
    pub what: String,
    /// What to do about it, or to run; empty when nothing is to be done.
    pub todo: String,
}

impl Finding {
    /// Nothing is to be done.
    pub fn ok(check: Check, what: impl Into<String>) -> Finding {
        Finding { level: Level::Ok, check, what: what.into(), todo: String::new() }
    }

    /// Something is to be done.
    pub fn warn(check: Check, what: impl Into<String>, todo: impl Into<String>) -> Finding {
        Finding { level: Level::Warn, check, what: what.into(), todo: todo.into() }
    }

    /// Something is to be done at once.
    pub fn fail(check: Check, what: impl Into<String>, todo: impl Into<String>) -> Finding {
        Finding { level: Level::Fail, check, what: what.into(), todo: todo.into() }
    }
}

/// What is wanted of an installation, as far as checks depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Shards.
    pub shards: u32,
    /// Copies of each record.
    pub replication_factor: usize,
    /// Copies that must be in sync for a record to be taken.
    pub min_insync_replicas: usize,
    /// Prefix of the topics.
    pub prefix: String,
    /// The consumer group.
    pub group: String,
    /// The keyspace.
    pub keyspace: String,
    /// Whether task events are published.
    pub task_events: bool,
    /// Whether dead letters are copied to their topic.
    pub dead_letters: bool,
    /// Data centres with copies of the keyspace's rows.
    pub dcs: usize,
    /// Whether the loss of any data centre has to be survived.
    pub dc_loss: bool,
}

impl Wanted {
    /// As configured.
    pub fn of(config: &crate::config::Config) -> Wanted {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Wanted {
            shards: config.topics.partitions,
            replication_factor: count(config.topics.replication_factor),
            min_insync_replicas: count(config.topics.min_insync_replicas),
            prefix: config.topics.prefix.clone(),
            group: config.kafka.group.clone(),
            keyspace: config.cassandra.keyspace.clone(),
            task_events: config.topics.task_events,
            dead_letters: config.topics.dead_letters,
            dcs: config.cassandra.replication.len(),
            dc_loss: config.cassandra.require_dc_loss_survival,
        }
    }
}

/// A loss that would not be survived: worse where that is required, or where it was so until something went down.
fn of_loss(is_bad: bool, check: Check, what: String, todo: &str) -> Finding {
    match is_bad {
        true => Finding::fail(check, what, todo),
        false => Finding::warn(check, what, todo),
    }
}

/// Names in a sentence, the first few of them.
fn listed<T: std::fmt::Display>(names: impl IntoIterator<Item = T>) -> String {
    const NAMES_MAX: usize = 6;
    let all: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    match all.len().checked_sub(NAMES_MAX) {
        None | Some(0) => all.join(", "),
        Some(more) => format!("{} and {more} more", all[..NAMES_MAX].join(", ")),
    }
}
