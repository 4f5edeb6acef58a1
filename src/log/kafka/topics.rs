//! The topics of an installation: their plan, their creation on demand, and whether the real ones are as planned.
//!
//! Nothing here is called by a running instance but [`check`]: topics are never created silently. The plan is plain data;
//! [`render`] writes it as text, JSON, commands of `kafka-topics`, and Strimzi resources.

mod admin;
mod check;
pub mod render;

pub(super) use admin::{ADMIN_TIMEOUT, admin_options, client};
pub use admin::{create, delete};
pub use check::{Aspect, Finding, Level, check, compare};

use serde::Serialize;

use crate::log::Topic;
use crate::model::limits::EVENT_BYTES_MAX;

/// What a rejected record may be larger than the schedule event it holds, in bytes: its headers say why.
const REJECTED_EXTRA_BYTES: u64 = 64 * 1024;
/// Default of how long records are kept, in milliseconds (seven days).
const RETENTION_MS: u64 = 7 * 86_400_000;

/// What the installation wants of its topics.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Prefix of the names.
    pub prefix: String,
    /// Partitions of each topic, the shards: at least 1, fixed for good.
    pub partitions: u32,
    /// Replicas of each partition, at least 1.
    pub replication_factor: u16,
    /// Replicas that must have a record before it is acknowledged, at least 1.
    pub min_insync_replicas: u16,
    /// How long records are kept, in milliseconds.
    pub retention_ms: u64,
    /// Largest schedule record, in bytes.
    pub message_bytes_max: u64,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            prefix: "dueline".into(),
            partitions: 64,
            replication_factor: 3,
            min_insync_replicas: 2,
            retention_ms: RETENTION_MS,
            message_bytes_max: (EVENT_BYTES_MAX as u64).max(1_048_588),
        }
    }
}

/// The topics as they are to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Each topic.
    pub topics: Vec<Planned>,
}

/// One topic as it is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: u32,
    /// Replicas of each partition.
    pub replication_factor: u16,
    /// Its settings by name, in a fixed order.
    pub settings: Vec<Setting>,
}

/// One setting of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name as Kafka knows it.
    pub name: &'static str,
    /// Its value as text.
    pub value: String,
}

impl Plan {
    /// The names of the topics.
    pub fn names(&self) -> Vec<String> {
        self.topics.iter().map(|topic| topic.name.clone()).collect()
    }
}

impl Planned {
    /// The value of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.name == name).map(|setting| setting.value.as_str())
    }
}

/// The plan for what is wanted.
pub fn plan(wanted: &Wanted) -> Plan {
    Plan { topics: Topic::ALL.iter().map(|topic| planned(*topic, wanted)).collect() }
}

fn planned(topic: Topic, wanted: &Wanted) -> Planned {
    let bytes_max = match topic {
        Topic::Rejected => wanted.message_bytes_max + REJECTED_EXTRA_BYTES,
        Topic::Schedule | Topic::Events | Topic::Dead => wanted.message_bytes_max,
    };
    let settings = [
        ("cleanup.policy", "delete".to_owned()),
        ("max.message.bytes", bytes_max.to_string()),
        ("message.timestamp.type", "LogAppendTime".to_owned()),
        ("min.insync.replicas", wanted.min_insync_replicas.to_string()),
        ("retention.ms", wanted.retention_ms.to_string()),
        ("unclean.leader.election.enable", "false".to_owned()),
    ];
    Planned {
        name: topic.name(&wanted.prefix),
        partitions: wanted.partitions,
        replication_factor: wanted.replication_factor,
        settings: settings.into_iter().map(|(name, value)| Setting { name, value }).collect(),
    }
}
