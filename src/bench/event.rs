//! What the scenarios ask for: schedule events, and the content of a task. A seed decides which queue a task belongs to and what
//! fills its payload.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;

use crate::log::{Message, Target, Topic};
use crate::model::{HandlerName, Payload, TaskContent, Wall, partition_of};

use super::args::{Plan, Scenario};

/// The handler of tasks that are not said to have another.
pub(super) const NOOP: &str = "noop";
/// The HTTP handler.
pub(super) const SINK: &str = "sink";
/// The handler whose attempts stay open.
pub(super) const HOLD: &str = "hold";
/// Room for a record but for its payload: names are short.
const RECORD_BYTES: usize = 192;

impl Plan {
    /// The queue of a task.
    pub(super) fn queue_of(&self, task: u64) -> u64 {
        mixed(self.seed, task) % self.queues
    }

    /// The name of the handler with this number.
    pub(super) fn handler_name(&self, number: u64) -> String {
        match (self.scenario, number) {
            (Scenario::Http, _) => SINK.to_owned(),
            (_, 0) => NOOP.to_owned(),
            (_, number) => format!("{NOOP}-{number}"),
        }
    }

    /// The record of a task in its queue.
    pub(super) fn message(&self, task: u64, due_at_ms: i64) -> Message {
        self.message_of(self.queue_of(task), task, due_at_ms)
    }

    /// The record of a task in any queue.
    pub(super) fn message_of(&self, queue: u64, task: u64, due_at_ms: i64) -> Message {
        let collection = queue.checked_rem(self.collections);
        let collection = collection.map(|n| format!(r#""collection":"c-{n}","#)).unwrap_or_default();
        let handler = self.handler_name(task % self.handlers);
        let (id, payload) = (format!("t-{task}"), self.payload_of(task));
        let queue = format!("q-{queue}");
        let home = partition_of(queue.as_bytes(), self.shards);
        let partition = (self.scenario == Scenario::Forward).then_some((home + 1) % self.shards);
        Message { partition, ..record(&queue, &id, due_at_ms, &handler, &collection, &payload) }
    }

    /// The payload of a task, as JSON.
    pub(super) fn payload_of(&self, task: u64) -> String {
        match self.payload {
            None => {
                let user = mixed(self.seed, !task);
                format!(r#"{{"task":{task},"user":"{user:016x}@example.org","note":"of ordinary length"}}"#)
            }
            Some(bytes) => filled(self.seed, task, bytes as usize),
        }
    }
}

/// The record of the task whose attempt stays open, in a queue of its own.
pub(super) fn held(number: u32, due_at_ms: i64) -> Message {
    record(&format!("hold-{number}"), &format!("h-{number}"), due_at_ms, HOLD, "", "{}")
}

fn record(queue: &str, id: &str, due_at_ms: i64, handler: &str, collection: &str, payload: &str) -> Message {
    let due_at = crate::wire::time::format_time(Wall(due_at_ms));
    let mut value = String::with_capacity(RECORD_BYTES + payload.len());
    let _ = write!(
        value,
        r#"{{"type":"schedule","queue":"{queue}","id":"{id}","due_at":"{due_at}","handler":"{handler}",{collection}"payload":{payload}}}"#
    );
    Message {
        target: Target::Topic(Topic::Schedule),
        partition: None,
        key: Some(Bytes::from(queue.to_owned())),
        headers: Vec::new(),
        value: Some(Bytes::from(value)),
    }
}

/// A JSON object of so many bytes, which no compression makes much smaller.
fn filled(seed: u64, task: u64, bytes: usize) -> String {
    let mut text = format!(r#"{{"task":{task},"fill":""#);
    let mut drawn = mixed(seed, !task);
    while text.len() + 2 < bytes {
        drawn = mixed(seed, drawn);
        let _ = write!(text, "{drawn:016x}");
    }
    text.truncate(bytes.max(2) - 2);
    text + "\"}"
}

/// A number that depends on both and looks like chance: the last steps of splitmix64 (Steele and others 2014).
pub(super) fn mixed(seed: u64, of: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The content of a task in rows that are written past the engine.
pub(super) fn content(handler: HandlerName, payload: &str) -> TaskContent {
    TaskContent::new(handler, Payload::Inline(Arc::from(payload.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_payload_is_json_of_the_size_asked_for_and_the_same_for_a_seed() {
        for bytes in [50, 100, 1_024, 262_144] {
            let text = filled(7, 123, bytes);
            assert_eq!(text.len(), bytes);
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(value["task"], 123);
            assert_eq!(text, filled(7, 123, bytes));
            assert_ne!(text, filled(8, 123, bytes));
        }
    }

    #[test]
    fn a_seed_spreads_tasks_over_queues() {
        let mut counts = [0u32; 10];
        (0..10_000).for_each(|task| counts[(mixed(3, task) % 10) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
