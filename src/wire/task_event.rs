//! Task events as records of the events topic: CloudEvents 1.0, binary mode, key = queue. The schema with examples is in
//! schemas/events.
//!
//! The `id` is the same whenever an event is published again; with the source it names the event.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::time::format_time;
use crate::log::{Header, Message, Target, Topic};
use crate::model::{Cause, Ended, TaskEvent, TaskEventKind};

/// The data of a task event. What is not known, or says nothing about this kind, is left out.
#[derive(Serialize)]
struct Data<'a> {
    queue: &'a str,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<&'a str>,
    shard: u32,
    /// The offset of the schedule event that made this version of the task.
    offset: u64,
    due_at: String,
    ready_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
}

/// The record of a task event; `prefix` is that of the topics.
pub fn message(event: &TaskEvent, prefix: &str) -> Message {
    let id = id(event);
    let header = |name: &str, value: String| -> Header { (name.to_owned(), Some(Bytes::from(value))) };
    let headers = vec![
        header("ce_specversion", "1.0".to_owned()),
        header("ce_type", format!("dueline.task.{}.v1", event.kind.word())),
        header("ce_source", format!("/dueline/{prefix}/shards/{}", event.shard.0)),
        header("ce_id", id),
        header("ce_subject", event.key.id.as_str().to_owned()),
        header("ce_time", format_time(event.at)),
        header("ce_partitionkey", event.key.queue.as_str().to_owned()),
        header("content-type", "application/json".to_owned()),
    ];
    let value = serde_json::to_vec(&data(event)).expect("texts and numbers are always JSON");
    Message {
        target: Target::Topic(Topic::Events),
        partition: None,
        key: Some(Bytes::copy_from_slice(event.key.queue.as_str().as_bytes())),
        headers,
        value: Some(Bytes::from(value)),
    }
}

/// Names the event within its shard: by the schedule event, or by the fact of an owner.
pub fn id(event: &TaskEvent) -> String {
    let version = event.place.version.0;
    if event.kind == TaskEventKind::Cancelled {
        // Of a version once, whether the cancel came in time or stopped what would have followed an attempt.
        return format!("{version}-cancelled");
    }
    match &event.cause {
        Cause::Event(version, _) => format!("{}-{}", version.0, event.kind.word()),
        Cause::Started(started) => format!("{version}-{}-{}-started", started.epoch.0, started.seq),
        Cause::Ended(ended) => format!("{version}-{}-{}-ended", ended.epoch.0, ended.seq),
        Cause::Closed { epoch, seq, .. } => format!("{version}-{}-{seq}-closed", epoch.0),
    }
}

fn data(event: &TaskEvent) -> Data<'_> {
    let base = Data {
        queue: event.key.queue.as_str(),
        id: event.key.id.as_str(),
        handler: event.handler.as_ref().map(|handler| handler.as_str()),
        collection: event.collection.as_deref(),
        shard: event.shard.0,
        offset: event.place.version.offset(),
        due_at: format_time(event.due_at),
        ready_at: format_time(event.place.ready_at),
        attempt: None,
        deadline: None,
        instance: None,
        epoch: None,
        sequence: None,
        outcome: None,
        failures: None,
        next_at: None,
        reason: None,
        error: None,
        result: None,
    };
    match &event.cause {
        Cause::Ended(Ended { epoch, seq, .. }) if event.kind == TaskEventKind::Cancelled => {
            Data { epoch: Some(epoch.0), sequence: Some(*seq), ..base }
        }
        Cause::Event(_, reason) => Data { reason: reason.as_deref(), ..base },
        Cause::Started(started) => Data {
            attempt: Some(started.attempt),
            deadline: Some(format_time(started.deadline)),
            instance: Some(&started.instance),
            epoch: Some(started.epoch.0),
            sequence: Some(started.seq),
            ..base
        },
        Cause::Ended(ended) => Data {
            epoch: Some(ended.epoch.0),
            sequence: Some(ended.seq),
            outcome: Some(ended.outcome.word()),
            failures: Some(ended.failures),
            next_at: ended.next_at.map(format_time),
            reason: ended.closed.map(|reason| reason.word()),
            error: ended.error.as_deref(),
            result: ended.result.as_deref().and_then(json_or_text),
            ..base
        },
        Cause::Closed { epoch, seq, reason } => {
            Data { epoch: Some(epoch.0), sequence: Some(*seq), reason: Some(reason.word()), ..base }
        }
    }
}

/// A handler's answer: as JSON if it is JSON, else as text.
pub fn json_or_text(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = || serde_json::value::to_raw_value(&String::from_utf8_lossy(bytes)).ok();
    if bytes.is_empty() { None } else { serde_json::from_slice(bytes).ok().or_else(text) }
}
