//! The dispatch port: how a task's handler is called: in process, by HTTP callback, to a Kafka topic, as a log line.
//!
//! An adapter makes one call and says how it ended. Retry, order and deadline are the engine's; a call is broken
//! off by dropping its future.

pub mod http;
pub mod in_process;
pub mod log_line;
pub mod signature;
pub mod topic;

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::model::{AttemptToken, HandlerName, Outcome, Shard, TaskKey, Wall};

/// One attempt at a task, as its handler sees it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The task.
    pub key: TaskKey,
    /// The handler.
    pub handler: HandlerName,
    /// What to do: JSON text as sent.
    pub payload: Arc<[u8]>,
    /// Opaque, the same over all attempts at one task: what a handler removes duplicates by.
    pub call_id: Arc<str>,
    /// Refuse a token lower than one seen for the queue.
    pub token: AttemptToken,
    /// The task's shard.
    pub shard: Shard,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Attempts in all.
    pub max_attempts: u32,
    /// When the task was due.
    pub due_at: Wall,
    /// When this attempt ends at the latest.
    pub deadline: Wall,
    /// How the attempt before ended.
    pub previous_outcome: Option<Outcome>,
    /// W3C trace context.
    pub traceparent: Option<Arc<str>>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// The outcome; never `Interrupted` or `NotCalled`, which only the engine finds.
    pub outcome: Outcome,
    /// The handler's answer.
    pub result: Option<Arc<[u8]>>,
    /// What went wrong.
    pub error: Option<String>,
    /// When to come back, in milliseconds: `Retry-After` of a failure, the wait of a snooze.
    pub after_ms: Option<u64>,
    /// The handler refused the token as too low: the lease is to be verified at once.
    pub fenced: bool,
}

impl Ending {
    /// An ending with only an outcome.
    pub fn of(outcome: Outcome) -> Ending {
        Ending { outcome, result: None, error: None, after_ms: None, fenced: false }
    }

    /// A failure with its text.
    pub fn failed(outcome: Outcome, error: impl Into<String>) -> Ending {
        Ending { error: Some(error.into()), ..Ending::of(outcome) }
    }
}

/// A way of calling handlers.
pub trait Dispatch: Send + Sync + 'static {
    /// Calls the handler and waits for its end.
    fn call(&self, call: Call) -> BoxFuture<'static, Ending>;
}
