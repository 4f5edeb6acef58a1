//! The tables as plain data. Every row is an immutable fact: once sent it never changes, a retry sends the same.
//!
//! Two tables hold what is known of tasks. `task_event` has one row per schedule event, under the task's key: the
//! index by id and the answer given. `due` has the task and every fact about it side by side, under its place:
//!
//! ```text
//! due (shard, bucket of ready_at) | ready_at, version, kind, epoch, seq
//!     12:00:01  v7   0 task          -  -     what to run
//!     12:00:01  v7   2 started       3  41    owner 3, its 41st attempt
//!     12:00:01  v7   3 ended         3  41    retryable, next at 12:00:02
//!     12:00:01  v7   1 superseded    -  9     event v9 cancelled it
//! ```
//! How a store lays facts down is its own affair: both put those that are written together into one row (`store/pack`).

use std::sync::Arc;

use super::home::Print;
use super::late::{LateQueueRow, PointerRow};
use super::limits;
use super::name::{HandlerName, TaskKey};
use super::owner::{AttemptToken, Epoch, Generation, Shard, Version};
use super::task::{CloseReason, Outcome, TaskContent};
use super::time::Wall;

/// Where a task and its facts lie within its shard. Ordered as the table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// max(due time, append time): the same on every replay.
    pub ready_at: Wall,
    /// The version of the event that made the task.
    pub version: Version,
}

impl Place {
    /// The first place with this ready time.
    pub fn start_of(ready_at: Wall) -> Place {
        Place { ready_at, version: Version::MIN }
    }

    /// The first place after this one.
    #[must_use]
    pub fn next(self) -> Place {
        Place { version: Version(self.version.0.saturating_add(1)), ..self }
    }
}

/// A row of any table that shards write.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// `task_event`.
    Event(EventRow),
    /// `due`.
    Fact(FactRow),
    /// `payload`.
    Payload(PayloadRow),
    /// `late`.
    Pointer(PointerRow),
    /// `late_queue`.
    LateQueue(LateQueueRow),
    /// `dead_letter`.
    DeadLetter(DeadLetterRow),
}

/// A row of `dead_letter`: that a task died, by when. No truth: what became of the task since says its place. The only row that is
/// written once more: when it is purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterRow {
    /// The shard.
    pub shard: Shard,
    /// When it died.
    pub at: Wall,
    /// The task's place.
    pub place: Place,
    /// The task.
    pub key: TaskKey,
    /// Its handler.
    pub handler: HandlerName,
    /// Its collection.
    pub collection: Option<Arc<str>>,
    /// Why.
    pub reason: CloseReason,
    /// Attempts that were made.
    pub attempts: u32,
    /// What went wrong last.
    pub error: Option<Arc<str>>,
    /// The batch that took it from the list.
    pub purged: Option<u64>,
}

/// A row of `event_ids`: of the events with versions of one chunk, a fingerprint of each id. Of several epochs the highest counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdsRow {
    /// The shard.
    pub shard: Shard,
    /// Which chunk: version / [`limits::IDS_OF_CHUNK`].
    pub chunk: u64,
    /// The epoch that wrote it.
    pub epoch: Epoch,
    /// [`Print`]s by version within the chunk; 0 = no event with an id, or it is forgotten. At most [`limits::IDS_OF_CHUNK`].
    pub prints: Vec<u32>,
}

impl IdsRow {
    /// The chunk of a version.
    pub fn chunk_of(version: Version) -> u64 {
        version.0 / limits::IDS_OF_CHUNK
    }

    /// The versions of its events and their fingerprints.
    pub fn events(&self) -> impl Iterator<Item = (Version, Print)> {
        let first = self.chunk.saturating_mul(limits::IDS_OF_CHUNK);
        let prints = self.prints.iter().copied().map(Print);
        (first..).map(Version).zip(prints).filter(|(_, print)| *print != Print(0))
    }

    /// Of rows those that count: for each chunk that of the highest epoch.
    pub fn counting(mut rows: Vec<IdsRow>) -> Vec<IdsRow> {
        rows.sort_by_key(|row| (row.chunk, std::cmp::Reverse(row.epoch)));
        rows.dedup_by_key(|row| row.chunk);
        rows
    }
}

/// What is on record of the ids of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedIds {
    /// All rows of `event_ids` from a chunk on, in any order.
    pub rows: Vec<IdsRow>,
    /// What may be packed and is in none of them, as a generation of the log ended before.
    pub unlisted: Vec<(TaskKey, Version)>,
}

/// Where a dead letter stands: the newest come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Died {
    /// When.
    pub at: Wall,
    /// The task's version.
    pub version: Version,
}

impl DeadLetterRow {
    /// Where it stands.
    pub fn died(&self) -> Died {
        Died { at: self.at, version: self.place.version }
    }
}

/// A row of `task_event`: one schedule event and what was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// The task.
    pub key: TaskKey,
    /// The event's version.
    pub version: Version,
    /// The epoch that decided; of several the highest counts.
    pub epoch: Epoch,
    /// The shard it was applied in.
    pub shard: Shard,
    /// `schedule`, `cancel`, `reschedule`, `redrive` or `abort`.
    pub verb: Arc<str>,
    /// The event's content hash.
    pub content_hash: [u8; 16],
    /// The event's CloudEvents id, hashed.
    pub event_id_hash: Option<[u8; 16]>,
    /// The record's append time.
    pub appended: Wall,
    /// What was decided.
    pub decision: Decision,
    /// The task that this id stands for after the event.
    pub current: Option<Current>,
    /// Append time of a cancel of an unknown task, while it is to be remembered.
    pub cancel_remembered: Option<Wall>,
    /// Why, in the producer's words.
    pub reason: Option<String>,
    /// For certain no other event of the id is on record: known to who decides, and not stored.
    pub is_first: bool,
    /// Who looks for it by its id is told its version: by the rows of [`IdsRow`], or as it lies close above the offset that is on
    /// record. Not stored either.
    pub is_listed: bool,
}

/// The newest accepted version of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Where its rows lie.
    pub place: Place,
    /// Its due time.
    pub due_at: Wall,
    /// Content hash of the event that made it.
    pub content_hash: [u8; 16],
    /// Append time of that event.
    pub appended: Wall,
    /// A cancel came in time: it never runs.
    pub cancelled: bool,
}

/// The answer to a schedule event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A new task.
    Scheduled,
    /// A new task in place of an unfinished one.
    Replaced,
    /// A new due time.
    Rescheduled,
    /// A cancel in time.
    Cancelled,
    /// A task that was closed without success runs again.
    Redriven,
    /// It was not closed without success: it runs, waits or succeeded.
    NotDead,
    /// Its attempt is broken off.
    Aborted,
    /// No attempt of it was under way.
    NotRunning,
    /// The task had started or finished.
    TooLate,
    /// The same again: nothing changed.
    Repeated,
    /// An unfinished task of the id stays.
    Kept,
    /// Another task of the id is unfinished: rejected.
    Conflict,
    /// More came in of its handler or collection than may: rejected.
    OverQuota,
    /// No task of this id is known.
    Unknown,
    /// A new task that a remembered cancel forbids.
    CancelledBefore,
}

impl Decision {
    /// The word used in rows and API.
    pub fn word(self) -> &'static str {
        match self {
            Decision::Scheduled => "scheduled",
            Decision::Replaced => "replaced",
            Decision::Rescheduled => "rescheduled",
            Decision::Cancelled => "cancelled",
            Decision::Redriven => "redriven",
            Decision::NotDead => "not_dead",
            Decision::Aborted => "aborted",
            Decision::NotRunning => "not_running",
            Decision::TooLate => "too_late",
            Decision::Repeated => "repeated",
            Decision::Kept => "kept",
            Decision::Conflict => "conflict",
            Decision::OverQuota => "over_quota",
            Decision::Unknown => "unknown_task",
            Decision::CancelledBefore => "cancelled_before",
        }
    }

    /// The decision of a word.
    pub fn from_word(word: &str) -> Option<Decision> {
        use Decision::*;
        [
            Scheduled,
            Replaced,
            Rescheduled,
            Cancelled,
            Redriven,
            NotDead,
            Aborted,
            NotRunning,
            TooLate,
            Repeated,
            Kept,
            Conflict,
            OverQuota,
            Unknown,
            CancelledBefore,
        ]
        .into_iter()
        .find(|decision| decision.word() == word)
    }
}

/// A row of `due`.
#[derive(Clone, Debug, PartialEq)]
pub struct FactRow {
    /// The shard.
    pub shard: Shard,
    /// The task's place.
    pub place: Place,
    /// What is known.
    pub fact: Fact,
}

/// One fact about a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// Kind 0: the task itself.
    Task {
        /// Its key.
        key: TaskKey,
        /// When it is due.
        due_at: Wall,
        /// Append time of its event (the origin's for a forwarded one).
        appended: Wall,
        /// What to run.
        content: Arc<TaskContent>,
    },
    /// Kind 1: forbids every further attempt.
    Superseded {
        /// The version of the event that did it: the row's `seq`.
        by: Version,
        /// The owner's epoch: the mark stops nothing that a higher one has started.
        epoch: Epoch,
        /// How.
        mark: MarkKind,
    },
    /// Kind 2: an attempt is about to be called.
    Started(Started),
    /// Kind 3: an attempt ended.
    Ended(Ended),
    /// Kind 4: closed without an attempt.
    Closed {
        /// The owner's epoch.
        epoch: Epoch,
        /// Rising within the epoch.
        seq: u64,
        /// When.
        at: Wall,
        /// Why.
        reason: CloseReason,
    },
}

/// What superseded a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A cancel.
    Cancelled,
    /// A schedule event with other content.
    Replaced,
    /// A reschedule.
    Rescheduled,
    /// A redrive: it was closed, and another version runs.
    Redriven,
}

impl MarkKind {
    /// The word used in rows and API.
    pub fn word(self) -> &'static str {
        match self {
            MarkKind::Cancelled => "cancelled",
            MarkKind::Replaced => "replaced",
            MarkKind::Rescheduled => "rescheduled",
            MarkKind::Redriven => "redriven",
        }
    }

    /// The kind of a word.
    pub fn from_word(word: &str) -> Option<MarkKind> {
        [MarkKind::Cancelled, MarkKind::Replaced, MarkKind::Rescheduled, MarkKind::Redriven]
            .into_iter()
            .find(|k| k.word() == word)
    }
}

/// An attempt about to be called. Carries all counts, so that they never depend on older facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The generation of the shard's log.
    pub generation: Generation,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Rising within the epoch; with it names the attempt.
    pub seq: u64,
    /// When it was decided.
    pub at: Wall,
    /// When the attempt ends at the latest.
    pub deadline: Wall,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Attempts that failed before it.
    pub failures: u32,
    /// Attempts before it whose owner was lost.
    pub interruptions: u32,
    /// The instance, for people.
    pub instance: Arc<str>,
}

impl Started {
    /// What a handler fences by.
    pub fn token(&self) -> AttemptToken {
        AttemptToken { generation: self.generation, epoch: self.epoch, sequence: self.seq }
    }
}

/// How an attempt ended and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The epoch of the attempt.
    pub epoch: Epoch,
    /// The attempt's sequence number.
    pub seq: u64,
    /// When.
    pub at: Wall,
    /// How.
    pub outcome: Outcome,
    /// Failures so far, this one included.
    pub failures: u32,
    /// The next try, if one follows.
    pub next_at: Option<Wall>,
    /// Set when this end closes the task without success.
    pub closed: Option<CloseReason>,
    /// The handler's answer, cut at [`super::limits::RESULT_BYTES_MAX`].
    pub result: Option<Arc<[u8]>>,
    /// Whether there was more of it.
    pub result_cut: bool,
    /// What went wrong, cut at [`super::limits::TEXT_BYTES_MAX`].
    pub error: Option<Arc<str>>,
}

/// A row of `payload`: one that is too large for its task row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadRow {
    /// The shard.
    pub shard: Shard,
    /// The task's place.
    pub place: Place,
    /// The payload.
    pub bytes: Arc<[u8]>,
}
