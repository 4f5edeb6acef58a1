//! A schedule event after decoding: what a record on the schedule topic asks for.

use super::name::{QueueName, TaskId};
use super::owner::{Generation, Shard};
use super::task::{Payload, TaskContent};
use super::time::Wall;

/// A decoded schedule event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The queue; `None` = the id, no ordering wanted.
    pub queue: Option<QueueName>,
    /// The id; `None` = made from the record's coordinates, the same on every replay.
    pub id: Option<TaskId>,
    /// What is asked.
    pub verb: Verb,
    /// Canonical hash of the fields given, before defaults.
    pub content_hash: [u8; 16],
    /// Hash of CloudEvents `source` and `id`, where the record has them.
    pub event_id_hash: Option<[u8; 16]>,
    /// Why, in the producer's words.
    pub reason: Option<String>,
}

/// What an event asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Run a task at a time.
    Schedule(Due, Box<TaskContent>),
    /// Do not run it.
    Cancel,
    /// Run it at another time.
    Reschedule(Due),
    /// Run it again, although it was closed without success.
    Redrive(Redrive),
    /// Break off the attempt that is under way.
    Abort,
}

/// How a closed task is run again.
#[derive(Clone, Debug, PartialEq)]
pub struct Redrive {
    /// When.
    pub due: Due,
    /// With this payload; `None` = with the one it had.
    pub payload: Option<Payload>,
}

impl Verb {
    /// The word used on the wire and in rows.
    pub fn word(&self) -> &'static str {
        match self {
            Verb::Schedule(..) => "schedule",
            Verb::Cancel => "cancel",
            Verb::Reschedule(..) => "reschedule",
            Verb::Redrive(_) => "redrive",
            Verb::Abort => "abort",
        }
    }
}

/// When a task is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At the record's append time.
    Now,
    /// At a wall time, rounded up to the millisecond.
    At(Wall),
    /// This many milliseconds after the record's append time.
    After(u64),
}

impl Due {
    /// The wall time, given the record's append time (the origin's for a forwarded record).
    pub fn at(self, appended: Wall) -> Wall {
        match self {
            Due::Now => appended,
            Due::At(at) => at,
            Due::After(ms) => appended.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX)),
        }
    }
}

/// Where a forwarded record first landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The partition it first landed in.
    pub shard: Shard,
    /// That partition's generation.
    pub generation: Generation,
    /// Its offset there.
    pub offset: u64,
    /// Its append time there.
    pub appended: Wall,
}

/// A record that is refused: it goes to the rejected topic with its bytes untouched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason, a closed list for metrics.
    pub reason: RejectReason,
    /// What exactly is wrong, for people: which field, what was found, what is allowed.
    pub detail: String,
}

/// Why a record was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectReason {
    /// A null value.
    Tombstone,
    /// No bytes.
    Empty,
    /// More bytes than an event may have.
    TooLarge,
    /// Not UTF-8.
    NotUtf8,
    /// Not JSON.
    NotJson,
    /// JSON, but not an event: not an object, a wrong type, a missing or out-of-range field.
    InvalidField,
    /// A field that no event has.
    UnknownField,
    /// A `type` that does not exist.
    UnknownType,
    /// A schedule with a handler that is not configured.
    UnknownHandler,
    /// A feature that this version does not have.
    Unsupported,
    /// Another task of the id is unfinished, and `on_conflict` is `reject`.
    Conflict,
    /// More came in of its handler or collection than may.
    OverQuota,
    /// Forwarded once and still not at home, or with headers of a forwarded record that this cluster did not sign.
    Misrouted,
    /// The store refuses this row while it takes others.
    RefusedByStore,
}

impl RejectReason {
    /// The word used in headers and metrics.
    pub fn word(self) -> &'static str {
        match self {
            RejectReason::Tombstone => "tombstone",
            RejectReason::Empty => "empty",
            RejectReason::TooLarge => "too_large",
            RejectReason::NotUtf8 => "not_utf8",
            RejectReason::NotJson => "not_json",
            RejectReason::InvalidField => "invalid_field",
            RejectReason::UnknownField => "unknown_field",
            RejectReason::UnknownType => "unknown_type",
            RejectReason::UnknownHandler => "unknown_handler",
            RejectReason::Unsupported => "unsupported",
            RejectReason::Conflict => "conflict",
            RejectReason::OverQuota => "over_quota",
            RejectReason::Misrouted => "misrouted",
            RejectReason::RefusedByStore => "refused_by_store",
        }
    }
}
