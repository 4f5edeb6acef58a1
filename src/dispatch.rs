//! The dispatch port: how a task's handler is called: in process, by HTTP callback, to a Kafka topic, as a log line.
//!
//! An adapter makes one call and says how it ended. Retry, order and deadline are the engine's; a call is broken
//! off by dropping its future.

pub mod registry;

pub mod http;
pub mod in_process;
pub mod log_line;
pub mod topic;

pub mod guard;
pub mod headers;
pub mod signature;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;

pub use registry::{Policy, Registry};

use crate::model::limits::TEXT_BYTES_MAX;
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
    /// The handler's answer, as far as it is kept.
    pub result: Option<Arc<[u8]>>,
    /// Whether there was more of it.
    pub result_cut: bool,
    /// What went wrong.
    pub error: Option<String>,
    /// When to come back, in milliseconds: `Retry-After` of a failure, the wait of a snooze.
    pub after_ms: Option<u64>,
    /// The handler refused the token as too low: the lease is to be verified at once.
    pub fenced: bool,
    /// What became of the call is not known: the handler may be at work until its deadline.
    pub lost: bool,
}

impl Ending {
    /// An ending with only an outcome.
    pub fn of(outcome: Outcome) -> Ending {
        Ending {
            outcome,
            result: None,
            result_cut: false,
            error: None,
            after_ms: None,
            fenced: false,
            lost: false,
        }
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

/// Wall time as this machine says it: for timestamps in what is sent, never for a decision of the engine.
fn wall_now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// An error text on one line: control characters become spaces, more than [`TEXT_BYTES_MAX`] bytes are cut.
fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(&line, TEXT_BYTES_MAX).to_owned()
}

/// The longest start of a text with at most `bytes_max` bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::{Call, cut, one_line};
    use crate::model::{
        AttemptToken, Epoch, Generation, HandlerName, QueueName, Shard, TaskId, TaskKey, Wall,
    };

    /// A call that tests change as they need.
    pub(super) fn call() -> Call {
        Call {
            key: TaskKey {
                queue: QueueName::new("incident 42").expect("a name"),
                id: TaskId::new("notify/1").expect("a name"),
            },
            handler: HandlerName::new("notify").expect("a name"),
            payload: br#"{"user":7}"#.as_slice().into(),
            call_id: "call-1".into(),
            token: AttemptToken { generation: Generation(0), epoch: Epoch(3), sequence: 41 },
            shard: Shard(5),
            attempt: 2,
            max_attempts: 10,
            due_at: Wall(1_795_255_200_000),
            deadline: Wall(1_795_255_230_000),
            previous_outcome: None,
            traceparent: None,
        }
    }

    #[test]
    fn an_error_text_is_one_short_line() {
        assert_eq!(one_line("a\nb\tc"), "a b c");
        assert_eq!(one_line(&"x".repeat(5_000)).len(), 1_024);
        assert_eq!(cut("aé", 2), "a");
    }
}
