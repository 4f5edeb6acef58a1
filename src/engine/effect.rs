//! The one door out: everything an engine asks for. Each is answered by the [`super::Input`] of its name, with its ticket
//! (the first number).

use std::sync::Arc;

use crate::model::{
    AttemptToken, Boot, CloseReason, Decision, Epoch, Generation, HandlerName, IdsRow, Outcome, OwnerUuid,
    Payload, Place, PointerRange, Progress, RejectReason, Rejection, Release, Row, Segment, Shard,
    TaskContent, TaskEvent, TaskEventKind, TaskKey, Version, Wall,
};

use super::lane::Lane;
use super::takeover::Takeover;

/// One id to look up: rows of versions `first..=last`, and the newest below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLookup {
    /// The task.
    pub key: TaskKey,
    /// The version of the event that is to be decided.
    pub first: Version,
    /// The highest of its batch.
    pub last: Version,
    /// Versions of events that may be the id's and packed.
    pub listed: Vec<Version>,
}

/// An attempt to be called.
#[derive(Clone, Debug, PartialEq)]
pub struct CallOrder {
    /// The task.
    pub key: TaskKey,
    /// Its place.
    pub place: Place,
    /// What to run.
    pub content: Arc<TaskContent>,
    /// The payload, wherever it came from.
    pub payload: Arc<[u8]>,
    /// The fencing token; its sequence names the call.
    pub token: AttemptToken,
    /// Number of the attempt.
    pub attempt: u32,
    /// Attempts in all.
    pub max_attempts: u32,
    /// When the task was due.
    pub due_at: Wall,
    /// When it could first run: due and appended.
    pub ready_at: Wall,
    /// When the attempt ends at the latest.
    pub deadline: Wall,
    /// How the attempt before ended.
    pub previous: Option<Outcome>,
}

/// What metrics and logs are told. Nothing depends on it.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// A task event can never be published, and is left out.
    EventRefused {
        /// What it says.
        kind: TaskEventKind,
        /// Why.
        why: String,
    },
    /// An attempt ended, after `run_ms`.
    AttemptEnded {
        /// Its task.
        key: TaskKey,
        /// The handler.
        handler: HandlerName,
        /// How.
        outcome: Outcome,
        /// Run time in milliseconds.
        run_ms: u64,
    },
    /// A task was closed without success.
    Closed {
        /// Why.
        reason: CloseReason,
        /// The task.
        key: TaskKey,
        /// Its handler.
        handler: HandlerName,
    },
    /// An attempt starts again after an owner was lost.
    RepeatStart(TaskKey),
    /// An event was decided.
    Decided(Decision),
    /// A record was rejected.
    Rejected(RejectReason),
    /// A record was sent to its home.
    Forwarded,
    /// The shard's phase changed.
    Phase(&'static str, Epoch),
    /// An assigned shard runs.
    TakenOver(Box<Takeover>),
    /// No start was possible for this long, from the first sign of a change of owner, in milliseconds.
    Gap(u64),
    /// The lease was lost.
    LeaseLost(&'static str),
    /// The shard stopped and needs a person.
    Stopped(String),
    /// What the log lost is accepted: it goes on under another generation.
    BegunAnew {
        /// That generation.
        generation: Generation,
        /// The offset that was wanted.
        wanted: u64,
        /// The first offset that is there, and gone on with.
        first: u64,
    },
    /// So many ids with events are more than there is memory for: while this owner has the shard each one is looked up.
    IdsNotKept(usize),
    /// Something failed and is tried again.
    Trouble {
        /// What.
        what: &'static str,
        /// How.
        detail: String,
    },
}

/// Something the runtime is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Linearizable read of the owner row.
    ReadOwner,
    /// Plain quorum read of the owner row: what was decided, now or before.
    LookAtOwner,
    /// Compare-and-set of the owner row.
    Bump {
        /// The epoch that was read.
        expected: Epoch,
        /// Fresh for this bump.
        owner: OwnerUuid,
        /// What the new owner has to wait for, in milliseconds.
        wait_ms: u64,
    },
    /// Let go in order: compare-and-set of the owner row.
    Release(Release),
    /// Read the newest progress row.
    ReadProgress(u64),
    /// Write a progress row.
    WriteProgress {
        /// Names the answer.
        ticket: u64,
        /// The row.
        progress: Progress,
        /// Of two rows of one epoch the higher stamp stays.
        stamp: u64,
        /// To be written before it, with the same stamp; when they are not, it is not either.
        ids: Arc<[IdsRow]>,
    },
    /// Read the rows of `event_ids` from a chunk (the second number) on, and what of generations that ended there is in none of them.
    ReadIds(u64, u64, Vec<Version>),
    /// Ask what the log holds.
    ReadLogEnd(u64),
    /// Read the log from this offset (the second number) on. A fetch that is not answered yet is given up before: it
    /// takes nothing any more.
    Seek(u64, u64),
    /// Get the next records.
    Fetch {
        /// Comes back with the answer.
        ticket: u64,
        /// Records at most.
        records_max: usize,
        /// Bytes at most, past the first record.
        bytes_max: usize,
    },
    /// Nothing more is fetched until the next seek; a fetch that is not answered yet is given up.
    StopFetch,
    /// Commit this next offset: a hint.
    Commit(u64),
    /// Look up ids for an intake batch.
    LookUp(u64, Vec<KeyLookup>),
    /// Read rows of `due`, from the first place to before the second.
    Slice(u64, Place, Place),
    /// Read all facts of one place.
    ReadFacts(u64, Place),
    /// Read a payload stored apart.
    ReadPayload(u64, Place),
    /// Read a list of late queues.
    ReadLateQueues(u64, Segment),
    /// Read a page of pointers.
    ReadPointers(u64, PointerRange),
    /// Write rows durably.
    Write(u64, Arc<[Row]>),
    /// Publish task events, in this order. Answered when all of them are durable.
    Publish(u64, Vec<Arc<TaskEvent>>),
    /// Put the record at this offset on the rejected topic.
    Reject(u64, Rejection),
    /// Put the record at this offset on its home partition.
    Forward(u64, Shard),
    /// Ask for slots of a lane: how many, and since when its heads have had none.
    WantSlots(Lane, u32, Boot),
    /// Give slots back after their calls.
    FreeSlots(Lane, u32),
    /// No slots of a handler are needed any more: withdraw what was asked for and not granted, and give back so many unused.
    WithdrawSlots(Lane, u32),
    /// Call a handler.
    Call(Box<CallOrder>),
    /// Break off the call of this sequence number, which has ended so.
    BreakOff(u64, Outcome),
    /// Ask for the gates anew: those known may be older than what an owner before set.
    AskGates,
    /// Stop the queue of a task that dies, until a person resumes it. Answered when that is on record, and in force here.
    StopQueue {
        /// Names the answer.
        seq: u64,
        /// The task.
        key: TaskKey,
        /// Why it dies.
        reason: CloseReason,
    },
    /// Leave the group, for this cause, and join again when the store answers.
    Rejoin(LeaveCause),
    /// Tell metrics and logs.
    Observe(Observation),
}

/// The payload of an order when it lies inline.
pub(super) fn inline(payload: &Payload) -> Option<Arc<[u8]>> {
    match payload {
        Payload::Inline(bytes) => Some(bytes.clone()),
        Payload::Stored(_) => None,
    }
}

/// Why the group is to be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveCause {
    /// Another owns the shard.
    Fenced,
    /// Nothing is heard of the shard's owner row.
    StoreSilent,
}

impl LeaveCause {
    /// As it is logged.
    pub fn words(self) -> &'static str {
        match self {
            LeaveCause::Fenced => "another owns the shard",
            LeaveCause::StoreSilent => "the store does not answer",
        }
    }

    /// What an operator can do about it.
    pub fn advice(self) -> &'static str {
        match self {
            LeaveCause::Fenced => {
                "none, unless it comes again and again: another instance may have the same kafka.group_instance, \
                 give each instance its own"
            }
            LeaveCause::StoreSilent => "see whether a quorum of the store's nodes is up: dueline doctor",
        }
    }
}
