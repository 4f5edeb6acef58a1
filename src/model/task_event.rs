//! Task events: what became of a task, as it is published. One kind for each way into a state of docs/semantics.md.

use std::sync::Arc;

use super::name::{HandlerName, TaskKey};
use super::owner::{Epoch, Shard, Version};
use super::row::{Decision, Ended, Fact, MarkKind, Place, Started};
use super::task::{CloseReason, OnFailure, Outcome, Payload, TaskContent};
use super::time::Wall;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskEventKind {
    /// A new task.
    Scheduled,
    /// A new task in place of an unfinished one of its id.
    Replaced,
    /// A new due time.
    Rescheduled,
    /// A task that was closed without success runs again.
    Redriven,
    /// An attempt is about to be called.
    Started,
    /// An attempt ended without success, and nothing is closed.
    Failed,
    /// The same, and the task waits aside for its next try.
    Parked,
    /// Done.
    Succeeded,
    /// Out of attempts, or failed for good.
    Dead,
    /// A cancel came in time.
    Cancelled,
    /// `expires_at` passed.
    Expired,
    /// Skipped by its misfire policy.
    Skipped,
    /// Dropped by a gate.
    Dropped,
}

impl TaskEventKind {
    /// All of them.
    pub const ALL: [TaskEventKind; 13] = {
        use TaskEventKind::*;
        [
            Scheduled,
            Replaced,
            Rescheduled,
            Redriven,
            Started,
            Failed,
            Parked,
            Succeeded,
            Dead,
            Cancelled,
            Expired,
            Skipped,
            Dropped,
        ]
    };

    /// The word in the event's type, `dueline.task.<word>.v1`, and in metrics.
    pub fn word(self) -> &'static str {
        match self {
            TaskEventKind::Scheduled => "scheduled",
            TaskEventKind::Replaced => "replaced",
            TaskEventKind::Rescheduled => "rescheduled",
            TaskEventKind::Redriven => "redriven",
            TaskEventKind::Started => "started",
            TaskEventKind::Failed => "failed",
            TaskEventKind::Parked => "parked",
            TaskEventKind::Succeeded => "succeeded",
            TaskEventKind::Dead => "dead",
            TaskEventKind::Cancelled => "cancelled",
            TaskEventKind::Expired => "expired",
            TaskEventKind::Skipped => "skipped",
            TaskEventKind::Dropped => "dropped",
        }
    }

    /// Whether there is a task, or another version of it, from here on.
    pub fn makes_a_task(self) -> bool {
        use TaskEventKind::*;
        matches!(self, Scheduled | Replaced | Rescheduled | Redriven)
    }

    /// What a decision makes of a task, if it changes anything.
    pub fn of_decision(decision: Decision) -> Option<TaskEventKind> {
        match decision {
            Decision::Scheduled => Some(TaskEventKind::Scheduled),
            Decision::Replaced => Some(TaskEventKind::Replaced),
            Decision::Rescheduled => Some(TaskEventKind::Rescheduled),
            Decision::Redriven => Some(TaskEventKind::Redriven),
            Decision::Cancelled | Decision::CancelledBefore => Some(TaskEventKind::Cancelled),
            Decision::NotDead
            | Decision::Aborted
            | Decision::NotRunning
            | Decision::TooLate
            | Decision::Repeated
            | Decision::Kept
            | Decision::Conflict
            | Decision::OverQuota
            | Decision::Unknown => None,
        }
    }

    /// What an owner's fact makes of a task, in order. `mark`: what became of it besides; a cancel that came too late to stop an
    /// attempt stops what would have followed.
    pub fn of_fact(
        fact: &Fact,
        content: &TaskContent,
        mark: Option<MarkKind>,
    ) -> impl Iterator<Item = TaskEventKind> {
        use TaskEventKind::*;
        let cancelled = (mark == Some(MarkKind::Cancelled)).then_some(Cancelled);
        let (first, second) = match fact {
            Fact::Task { .. } | Fact::Superseded { .. } => (None, None),
            Fact::Started(_) => (Some(Started), None),
            Fact::Ended(Ended { outcome: Outcome::Succeeded, .. }) => (Some(Succeeded), None),
            Fact::Ended(Ended { closed: Some(_), .. }) => (Some(Dead), None),
            Fact::Ended(ended) => (Some(of_failure(ended, content)), cancelled),
            Fact::Closed { .. } if mark.is_some() => (cancelled, None),
            Fact::Closed { reason, .. } => {
                let kind = match reason {
                    CloseReason::Exhausted | CloseReason::Fatal | CloseReason::Interrupted => Dead,
                    CloseReason::Expired => Expired,
                    CloseReason::Skipped => Skipped,
                    CloseReason::Dropped => Dropped,
                };
                (Some(kind), None)
            }
        };
        [first, second].into_iter().flatten()
    }
}

fn of_failure(ended: &Ended, content: &TaskContent) -> TaskEventKind {
    let has_failed = matches!(ended.outcome, Outcome::Retryable | Outcome::TimedOut);
    if has_failed && ended.next_at.is_some() && content.on_failure == OnFailure::Park {
        TaskEventKind::Parked
    } else {
        TaskEventKind::Failed
    }
}

/// What is on record and is published.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// The schedule event of this version, with the reason its sender gave.
    Event(Version, Option<Arc<str>>),
    /// A start.
    Started(Started),
    /// An end.
    Ended(Ended),
    /// A closing without an attempt.
    Closed {
        /// The owner's epoch.
        epoch: Epoch,
        /// Rising within the epoch.
        seq: u64,
        /// Why.
        reason: CloseReason,
    },
}

/// One task event.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskEvent {
    /// What happened.
    pub kind: TaskEventKind,
    /// The task.
    pub key: TaskKey,
    /// Its shard.
    pub shard: Shard,
    /// Its place: the version tells apart what an id stood for.
    pub place: Place,
    /// When it is due.
    pub due_at: Wall,
    /// When it happened: the append time of a schedule event, an owner's clock else.
    pub at: Wall,
    /// Its handler; of a cancel of what was not in memory, not known.
    pub handler: Option<HandlerName>,
    /// Its collection.
    pub collection: Option<Arc<str>>,
    /// The fact behind it.
    pub cause: Cause,
    /// Of one that died: what its dead letter carries.
    pub payload: Option<Payload>,
}
