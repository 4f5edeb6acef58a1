//! The one door in: everything an engine is told. Matched without `_`, so a new fact has to be thought of everywhere.
//!
//! Answers carry the ticket of their effect: one that was asked for in an earlier life of the shard, or before the log
//! was sought anew, is not taken for an answer to a later question.

use std::sync::Arc;

use crate::model::{
    Boot, Closed, Event, EventRow, FactRow, LateQueueRow, ListedIds, Origin, Outcome, OwnerRow, OwnerUuid,
    Place, PointerPage, Progress, Rejection, Reset, TaskKey, Version, limits,
};

use super::lane::Lane;
/// Why something asked for did not happen, by what the engine can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may or may not have happened: ask again.
    Unavailable(String),
    /// Refused for everybody until a person helps: ask again, slowly.
    Misconfigured(String),
    /// The store refuses the row of this index and would take others.
    RowRefused(usize, String),
    /// The log does not hold the offset asked for.
    OffsetGone(String),
}

/// A record of the schedule topic, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// Its offset.
    pub offset: u64,
    /// Its key, value and headers together, in bytes.
    pub bytes: usize,
    /// The broker's append time.
    pub appended: crate::model::Wall,
    /// The epoch of the leader that took it in, where there is one.
    pub leader_epoch: Option<u32>,
    /// What it says, or why it is refused.
    pub decoded: Result<(Event, Option<Origin>), Rejection>,
}

/// What the log's partition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The first offset held.
    pub first: u64,
    /// The offset after the last stable record.
    pub next: u64,
    /// The epoch of the leader that says so, where there is one.
    pub leader_epoch: Option<u32>,
    /// Identity of the topic.
    pub topic_id: String,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CallEnd {
    /// The outcome.
    pub outcome: Outcome,
    /// The handler's answer.
    pub result: Option<Arc<[u8]>>,
    /// Whether there was more of it.
    pub result_cut: bool,
    /// What went wrong.
    pub error: Option<Arc<str>>,
    /// When to come back, in milliseconds.
    pub after_ms: Option<u64>,
    /// The handler refused the token as too low.
    pub fenced: bool,
    /// The connection was lost: the handler may be at work until its deadline.
    pub lost: bool,
}

/// The share of one shard in what the instance may hold in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Tasks; a payload counts as one more per KiB.
    pub tasks: usize,
    /// Schedule events fetched and not stored yet, in bytes; an event counts three times its own and
    /// `limits::INTAKE_RECORD_BYTES`.
    pub intake_bytes: usize,
    /// Task events that are not published yet, in bytes: at half of it no schedule events are taken in, at all of it no task
    /// starts.
    pub events_bytes: usize,
    /// Ids with events on record, of some thirteen bytes each: when there are more, none are kept.
    pub ids: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            tasks: limits::TASKS_IN_MEMORY,
            intake_bytes: limits::INTAKE_BYTES,
            events_bytes: limits::EVENTS_BYTES,
            ids: limits::IDS_IN_MEMORY,
        }
    }
}

/// A fact the engine is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The group gave the shard to this instance. Fresh randomness comes with it.
    Assigned {
        /// Names the bumps of this assignment.
        owner: OwnerUuid,
    },
    /// The group took it back in order.
    Revoked,
    /// It may already be another's.
    Lost,
    /// What this shard may hold in memory.
    Budget(Budget),
    /// The gates in force, all of them, and when they were asked for in the store.
    Gates(Arc<Closed>, Boot),
    /// The newest reset of this shard: a loss of records that a person accepts.
    Reset(Arc<Reset>),
    /// Answer to `Effect::ReadOwner`.
    OwnerRead(Result<OwnerRow, Failure>),
    /// Answer to `Effect::LookAtOwner`.
    OwnerSeen(Result<OwnerRow, Failure>),
    /// Answer to `Effect::Bump`: whether it applied.
    Bumped(Result<bool, Failure>),
    /// Answer to `Effect::Release`.
    Released(Result<bool, Failure>),
    /// Answer to `Effect::ReadProgress`.
    ProgressRead(u64, Result<Option<Progress>, Failure>),
    /// Answer to `Effect::Publish`: so many from the first on are durable, and why the next one is not. That one can never be
    /// written (`Failure::RowRefused`), or it and those behind it are to be published again.
    Published(u64, usize, Option<Failure>),
    /// The store has forgotten these events.
    Forgotten(Vec<(TaskKey, Version)>),
    /// Answer to `Effect::ReadIds`.
    IdsRead(u64, Result<ListedIds, Failure>),
    /// Answer to `Effect::WriteProgress`.
    ProgressWritten(u64, Result<(), Failure>),
    /// Answer to `Effect::ReadLogEnd`.
    LogEndRead(u64, Result<LogEnd, Failure>),
    /// Answer to `Effect::Seek`.
    Sought(u64, Result<(), Failure>),
    /// Answer to `Effect::Fetch`.
    Fetched(u64, Result<Vec<Incoming>, Failure>),
    /// Answer to `Effect::LookUp`: per key the rows, newest first.
    LookedUp(u64, Result<Vec<Vec<EventRow>>, Failure>),
    /// Answer to `Effect::Slice`: rows, and where to go on.
    Sliced(u64, Result<(Vec<FactRow>, Option<Place>), Failure>),
    /// Answer to `Effect::ReadFacts`.
    FactsRead(u64, Place, Result<Vec<FactRow>, Failure>),
    /// Answer to `Effect::ReadPayload`.
    PayloadRead(u64, Place, Result<Option<Arc<[u8]>>, Failure>),
    /// Answer to `Effect::ReadLateQueues`.
    LateQueuesRead(u64, Result<Vec<LateQueueRow>, Failure>),
    /// Answer to `Effect::ReadPointers`.
    PointersRead(u64, Result<PointerPage, Failure>),
    /// Answer to `Effect::Write`.
    Written(u64, Result<(), Failure>),
    /// Answer to `Effect::Reject` and `Effect::Forward` of the record of this version.
    Produced(Version, Result<(), Failure>),
    /// Slots of a handler granted.
    Slots(Lane, u32),
    /// The call of this sequence number ended.
    CallEnded(u64, CallEnd),
    /// Answer to `Effect::StopQueue`.
    QueueStopped(u64, Result<(), Failure>),
    /// The time asked for by `poll_timeout` has come.
    Tick,
    /// Wall time and boot time moved against each other by more than the lease's margin allows: the boot clock may
    /// have stood still (a machine restored or moved by its host), so no lease measured by it can be relied on.
    ClockJumped,
}
