//! Records and messages: values, of no log in particular.

use std::borrow::Cow;

use bytes::Bytes;

use crate::model::Wall;

/// The topics of an installation; their names carry the configured prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Schedule events.
    Schedule,
    /// Task events.
    Events,
    /// Records that are not valid schedule events.
    Rejected,
    /// Dead letters.
    Dead,
}

impl Topic {
    /// All of them.
    pub const ALL: [Topic; 4] = [Topic::Schedule, Topic::Events, Topic::Rejected, Topic::Dead];

    /// The topic's name under a prefix: `dueline.schedule`.
    pub fn name(self, prefix: &str) -> String {
        let word = match self {
            Topic::Schedule => "schedule",
            Topic::Events => "events",
            Topic::Rejected => "rejected",
            Topic::Dead => "dead",
        };
        format!("{prefix}.{word}")
    }
}

/// A header of a record: its name, and its value.
pub type Header = (Cow<'static, str>, Option<Bytes>);

/// A record as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its offset.
    pub offset: u64,
    /// The broker's append time.
    pub appended: Wall,
    /// The epoch of the leader that took it in; `None` = there is none, or it is not known.
    pub leader_epoch: Option<u32>,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
    /// Its value; `None` = a tombstone.
    pub value: Option<Bytes>,
}

impl Record {
    /// Its key, value and headers together, in bytes.
    pub fn bytes(&self) -> usize {
        let headers =
            self.headers.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Bytes::len));
        let value = self.value.as_ref().map_or(0, Bytes::len);
        self.key.as_ref().map_or(0, Bytes::len) + value + headers.sum::<usize>()
    }
}

/// Where a record is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A topic of ours.
    Topic(Topic),
    /// Any other topic, by name (the topic handler).
    Named(String),
}

/// A record to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub target: Target,
    /// Its partition; `None` = by murmur2 of the key, as Java's default partitioner would.
    pub partition: Option<u32>,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers.
    pub headers: Vec<Header>,
    /// Its value.
    pub value: Option<Bytes>,
}
