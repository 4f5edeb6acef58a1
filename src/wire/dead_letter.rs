//! Dead letters as records of the dead topic: the payload as it was sent, the queue as key, and headers that say what
//! happened, in three forms: ours, those of Kafka Connect's dead letter queues (texts), and those of Spring Kafka's (numbers as
//! big-endian bytes). Tools made for either read them.

#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::task_event;
use super::time::format_time;
use crate::log::{Header, Message, Target, Topic};
use crate::model::{Cause, CloseReason, TaskEvent};

/// The stage of Kafka Connect at which a record's own processing fails.
const STAGE: &str = "TASK_PUT";

/// The record of a dead letter. `prefix` is that of the topics, `group` the consumer group's name.
pub fn message(event: &TaskEvent, payload: Bytes, prefix: &str, group: &str) -> Message {
    let (reason, failures, error) = match &event.cause {
        Cause::Ended(ended) => (ended.closed, Some(ended.failures), ended.error.as_deref()),
        Cause::Closed { reason, .. } => (Some(*reason), None, None),
        Cause::Event(..) | Cause::Started(_) => (None, None, None),
    };
    let word = reason.map_or("unknown", CloseReason::word);
    let error = error.unwrap_or(match reason {
        Some(CloseReason::Interrupted) => "its owner was lost too often",
        _ => "no error text",
    });
    let (topic, offset) = (Topic::Schedule.name(prefix), event.place.version.offset());
    let text = |name: &'static str, value: String| -> Header { (name.into(), Some(Bytes::from(value))) };
    let number =
        |name: &'static str, bytes: &[u8]| -> Header { (name.into(), Some(Bytes::copy_from_slice(bytes))) };
    let partition = i32::try_from(event.shard.0).unwrap_or(i32::MAX);
    let class = format!("dueline.{word}");
    let mut headers = vec![
        // With its shard: the id of a task event is unique within its source.
        text("dueline-event-id", format!("{}/{}", event.shard.0, task_event::id(event))),
        text("dueline-queue", event.key.queue.as_str().to_owned()),
        text("dueline-task-id", event.key.id.as_str().to_owned()),
        text("dueline-reason", word.to_owned()),
        text("dueline-error", error.to_owned()),
        text("dueline-due-at", format_time(event.due_at)),
        text("dueline-died-at", format_time(event.at)),
        text("content-type", "application/json".to_owned()),
        text("__connect.errors.topic", topic.clone()),
        text("__connect.errors.partition", event.shard.0.to_string()),
        text("__connect.errors.offset", offset.to_string()),
        text("__connect.errors.connector.name", "dueline".to_owned()),
        text("__connect.errors.task.id", event.shard.0.to_string()),
        text("__connect.errors.stage", STAGE.to_owned()),
        text("__connect.errors.class.name", class.clone()),
        text("__connect.errors.exception.class.name", class.clone()),
        text("__connect.errors.exception.message", error.to_owned()),
        text("kafka_dlt-original-topic", topic),
        number("kafka_dlt-original-partition", &partition.to_be_bytes()),
        number("kafka_dlt-original-offset", &i64::try_from(offset).unwrap_or(i64::MAX).to_be_bytes()),
        text("kafka_dlt-original-consumer-group", group.to_owned()),
        text("kafka_dlt-exception-fqcn", class),
        text("kafka_dlt-exception-message", error.to_owned()),
    ];
    headers.extend(event.handler.as_ref().map(|name| text("dueline-handler", name.as_str().to_owned())));
    headers.extend(event.collection.as_ref().map(|name| text("dueline-collection", name.to_string())));
    headers.extend(failures.map(|failures| text("dueline-failures", failures.to_string())));
    Message {
        target: Target::Topic(Topic::Dead),
        partition: None,
        key: Some(Bytes::copy_from_slice(event.key.queue.as_str().as_bytes())),
        headers,
        value: Some(payload),
    }
}
