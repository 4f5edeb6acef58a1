//! A task as asked for, and the words for what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::limits;
use super::name::HandlerName;
use super::time::Wall;

/// What a task is to do, exactly as its event asked. Never changes once accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskContent {
    /// The handler that runs it.
    pub handler: HandlerName,
    /// What the handler is given.
    pub payload: Payload,
    /// 0 to 9, 9 first; decides between queues, never within one.
    pub priority: u8,
    /// The caller's tag for gating, quota and bulk work.
    pub collection: Option<Arc<str>>,
    /// Time for one attempt, in milliseconds; `None` = the handler's.
    pub timeout_ms: Option<u64>,
    /// Not started after this time.
    pub expires_at: Option<Wall>,
    /// What to do when it is late.
    pub misfire: Misfire,
    /// How late is late, in milliseconds.
    pub misfire_grace_ms: u64,
    /// What this event does to an unfinished task of the same id.
    pub on_conflict: OnConflict,
    /// What its failure does to its queue.
    pub on_failure: OnFailure,
    /// What its death does to its queue.
    pub on_dead: OnDead,
    /// The retry policy; `None` = the handler's.
    pub retry: Option<RetryPolicy>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// Who asked for it.
    pub created_by: Option<Arc<str>>,
    /// W3C trace context of the producer.
    pub traceparent: Option<Arc<str>>,
}

impl TaskContent {
    /// Of an event that says nothing else.
    pub fn new(handler: HandlerName, payload: Payload) -> TaskContent {
        TaskContent {
            handler,
            payload,
            priority: limits::PRIORITY_DEFAULT,
            collection: None,
            timeout_ms: None,
            expires_at: None,
            misfire: Misfire::Run,
            misfire_grace_ms: 0,
            on_conflict: OnConflict::Replace,
            on_failure: OnFailure::Block,
            on_dead: OnDead::Continue,
            retry: None,
            labels: BTreeMap::new(),
            created_by: None,
            traceparent: None,
        }
    }
}

/// A payload: in memory, or in its own row of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// JSON text as sent.
    Inline(Arc<[u8]>),
    /// Stored apart under the task's place; its length in bytes.
    Stored(u32),
}

impl Payload {
    /// Length in bytes, wherever it lies.
    pub fn len(&self) -> usize {
        match self {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Stored(len) => *len as usize,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What happens to a task that could not start in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfire {
    /// It runs late.
    Run,
    /// It is skipped, on record.
    Skip,
}

/// What a schedule event does when an unfinished task of its id has other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// The new one takes its place; a running attempt ends first.
    Replace,
    /// The old one stays.
    Keep,
    /// The new one is rejected.
    Reject,
}

/// What a task that failed does to its queue until its next try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The queue waits.
    #[default]
    Block,
    /// The task waits aside, and the queue goes on.
    Park,
}

/// What a task that is dead does to its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDead {
    /// The queue goes on.
    #[default]
    Continue,
    /// The queue stops until a person lets it go on.
    Stop,
}

/// What a task that fails or dies does to its queue, where something says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadPolicy {
    /// Until its next try.
    pub on_failure: Option<OnFailure>,
    /// Once it is dead.
    pub on_dead: Option<OnDead>,
}

impl HeadPolicy {
    /// This one, and the other where it says nothing.
    #[must_use]
    pub fn or(self, other: HeadPolicy) -> HeadPolicy {
        let HeadPolicy { on_failure, on_dead } = self;
        HeadPolicy { on_failure: on_failure.or(other.on_failure), on_dead: on_dead.or(other.on_dead) }
    }
}

/// What holds for tasks whose schedule event says nothing: their queue's, then their handler's. It is part of a task from when
/// its event is decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadPolicies {
    /// By the queue's name.
    pub of_queues: BTreeMap<String, HeadPolicy>,
    /// By the handler's name.
    pub of_handlers: BTreeMap<String, HeadPolicy>,
}

impl HeadPolicies {
    /// What holds for a task of this queue and handler.
    pub fn of(&self, queue: &str, handler: &str) -> HeadPolicy {
        let one =
            |policies: &BTreeMap<String, HeadPolicy>, name| policies.get(name).copied().unwrap_or_default();
        one(&self.of_queues, queue).or(one(&self.of_handlers, handler))
    }
}

/// When a failed attempt is tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, 1 to [`limits::ATTEMPTS_MAX`].
    pub max_attempts: u32,
    /// Wait after the first failure, in milliseconds.
    pub initial_ms: u64,
    /// Each further wait is this times the last, 1 to 100.
    pub factor: f64,
    /// Longest wait, in milliseconds.
    pub max_ms: u64,
    /// Part of the wait that is drawn at random, 0 to 1.
    pub jitter: f64,
    /// No further try later than this after the task could first run, in milliseconds.
    pub max_age_ms: Option<u64>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            max_attempts: 10,
            initial_ms: 1_000,
            factor: 2.0,
            max_ms: 600_000,
            jitter: 0.2,
            max_age_ms: None,
        }
    }
}

impl RetryPolicy {
    /// The wait after the `failures`-th failure, in milliseconds; `random` is drawn from 0 to 1.
    pub fn wait_ms(&self, failures: u32, random: f64) -> u64 {
        let exponent = f64::from(failures.saturating_sub(1).min(limits::ATTEMPTS_MAX));
        let full = (self.initial_ms as f64 * self.factor.powf(exponent)).min(self.max_ms as f64);
        (full * (1.0 - self.jitter * random)) as u64
    }
}

/// What follows an attempt whose end nobody knows: its owner or its connection was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenAttempts {
    /// The next attempt, and the queue, wait for the deadline of this one.
    #[default]
    Wait,
    /// They do not: for handlers that bear an overlap.
    Rerun,
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Succeeded,
    /// Failed; try again.
    Retryable,
    /// Failed for good.
    Fatal,
    /// No answer before the deadline.
    TimedOut,
    /// Broken off on purpose; also a handler's refusal of an old fencing token.
    Aborted,
    /// The owner was lost; what happened is not known.
    Interrupted,
    /// The handler asked to be called again later; no failure.
    Snoozed,
    /// Recorded as started but never called; no attempt used.
    NotCalled,
}

impl Outcome {
    /// The word used in rows, headers, metrics and API.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Retryable => "retryable",
            Outcome::Fatal => "fatal",
            Outcome::TimedOut => "timed_out",
            Outcome::Aborted => "aborted",
            Outcome::Interrupted => "interrupted",
            Outcome::Snoozed => "snoozed",
            Outcome::NotCalled => "not_called",
        }
    }

    /// The outcome of a word.
    pub fn from_word(word: &str) -> Option<Outcome> {
        use Outcome::*;
        [Succeeded, Retryable, Fatal, TimedOut, Aborted, Interrupted, Snoozed, NotCalled]
            .into_iter()
            .find(|outcome| outcome.word() == word)
    }
}

/// Why a task was closed without succeeding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// All attempts were used.
    Exhausted,
    /// The handler said that trying again is no use.
    Fatal,
    /// Too many owners were lost while it ran.
    Interrupted,
    /// `expires_at` passed before it could start.
    Expired,
    /// Its misfire policy skipped it.
    Skipped,
    /// A gate dropped it.
    Dropped,
}

impl CloseReason {
    /// The word used in rows, metrics and API.
    pub fn word(self) -> &'static str {
        match self {
            CloseReason::Exhausted => "exhausted",
            CloseReason::Fatal => "fatal",
            CloseReason::Interrupted => "interrupted",
            CloseReason::Expired => "expired",
            CloseReason::Skipped => "skipped",
            CloseReason::Dropped => "dropped",
        }
    }

    /// The state that it leaves a task in.
    pub fn state(self) -> TaskState {
        match self {
            CloseReason::Expired => TaskState::Expired,
            CloseReason::Skipped => TaskState::Skipped,
            CloseReason::Dropped => TaskState::Dropped,
            CloseReason::Exhausted | CloseReason::Fatal | CloseReason::Interrupted => TaskState::Dead,
        }
    }

    /// The reason of a word.
    pub fn from_word(word: &str) -> Option<CloseReason> {
        use CloseReason::*;
        [Exhausted, Fatal, Interrupted, Expired, Skipped, Dropped]
            .into_iter()
            .find(|reason| reason.word() == word)
    }
}

/// The states of a task: the closed table of docs/semantics.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskState {
    /// Accepted, not started.
    Scheduled,
    /// An attempt is open.
    Running,
    /// An attempt failed; another will come.
    Retrying,
    /// The same, and its queue does not wait for it.
    Parked,
    /// Done.
    Succeeded,
    /// Out of attempts, or failed for good.
    Dead,
    /// A cancel came in time.
    Cancelled,
    /// Another version of the same id took its place.
    Replaced,
    /// `expires_at` passed.
    Expired,
    /// Skipped by its misfire policy.
    Skipped,
    /// Dropped by a gate.
    Dropped,
}

impl TaskState {
    /// The word used in API, events and metrics.
    pub fn word(self) -> &'static str {
        match self {
            TaskState::Scheduled => "scheduled",
            TaskState::Running => "running",
            TaskState::Retrying => "retrying",
            TaskState::Parked => "parked",
            TaskState::Succeeded => "succeeded",
            TaskState::Dead => "dead",
            TaskState::Cancelled => "cancelled",
            TaskState::Replaced => "replaced",
            TaskState::Expired => "expired",
            TaskState::Skipped => "skipped",
            TaskState::Dropped => "dropped",
        }
    }

    /// The state of a word.
    pub fn from_word(word: &str) -> Option<TaskState> {
        use TaskState::*;
        [
            Scheduled, Running, Retrying, Parked, Succeeded, Dead, Cancelled, Replaced, Expired, Skipped,
            Dropped,
        ]
        .into_iter()
        .find(|state| state.word() == word)
    }
}
