//! Task events as records of the events topic: CloudEvents 1.0, binary mode, key = queue. The schema with examples is in
//! schemas/events.
//!
//! The `id` is the same whenever an event is published again; with the source it names the event.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Write as _};
use std::ops::Range;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::time::{serialize_time, write_time};
use crate::log::{Header, Message, Target, Topic};
use crate::model::{Cause, Ended, TaskEvent, TaskEventKind, Wall};

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
    due_at: Time,
    ready_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Time>,
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
    next_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    result_cut: bool,
}

/// A time as people write it.
struct Time(Wall);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_time(self.0, serializer)
    }
}

/// Room for most records, in bytes.
const RECORD_BYTES: usize = 704;

/// The record of a task event; `prefix` is that of the topics. Its texts lie one behind the other in one piece of memory: there
/// are several events a task.
pub fn message(event: &TaskEvent, prefix: &str) -> Message {
    let mut texts = Texts(Vec::with_capacity(RECORD_BYTES));
    let queue = texts.add(|to| to.write_all(event.key.queue.as_str().as_bytes()));
    let kind = texts.add(|to| write!(to, "dueline.task.{}.v1", event.kind.word()));
    let source = texts.add(|to| write!(to, "/dueline/{prefix}/shards/{}", event.shard.0));
    let id = texts.add(|to| write!(to, "{}", id(event)));
    let subject = texts.add(|to| to.write_all(event.key.id.as_str().as_bytes()));
    let time = texts.add(|to| {
        write_time(event.at, to);
        Ok(())
    });
    let value = texts.add(|to| Ok(serde_json::to_writer(to, &data(event))?));
    let bytes = Bytes::from(texts.0);
    let header =
        |name: &'static str, part: Range<usize>| -> Header { (name.into(), Some(bytes.slice(part))) };
    let fixed = |name: &'static str, value: &'static str| -> Header {
        (name.into(), Some(Bytes::from_static(value.as_bytes())))
    };
    Message {
        target: Target::Topic(Topic::Events),
        partition: None,
        key: Some(bytes.slice(queue.clone())),
        headers: vec![
            fixed("ce_specversion", "1.0"),
            header("ce_type", kind),
            header("ce_source", source),
            header("ce_id", id),
            header("ce_subject", subject),
            header("ce_time", time),
            header("ce_partitionkey", queue),
            fixed("content-type", "application/json"),
        ],
        value: Some(bytes.slice(value)),
    }
}

/// The texts of a record.
struct Texts(Vec<u8>);

impl Texts {
    /// Where the text lies that `write` adds.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Range<usize> {
        let start = self.0.len();
        write(&mut self.0).expect("texts and numbers are always JSON, and are written to memory");
        start..self.0.len()
    }
}

/// Names the event within its shard: by the schedule event, or by the fact of an owner.
pub fn id(event: &TaskEvent) -> impl fmt::Display {
    fmt::from_fn(|f| {
        let version = event.place.version.0;
        if event.kind == TaskEventKind::Cancelled {
            // Of a version once, whether the cancel came in time or stopped what would have followed an attempt.
            return write!(f, "{version}-cancelled");
        }
        match &event.cause {
            Cause::Event(version, _) => write!(f, "{}-{}", version.0, event.kind.word()),
            Cause::Started(started) => write!(f, "{version}-{}-{}-started", started.epoch.0, started.seq),
            Cause::Ended(ended) => write!(f, "{version}-{}-{}-ended", ended.epoch.0, ended.seq),
            Cause::Closed { epoch, seq, .. } => write!(f, "{version}-{}-{seq}-closed", epoch.0),
        }
    })
}

fn data(event: &TaskEvent) -> Data<'_> {
    let base = Data {
        queue: event.key.queue.as_str(),
        id: event.key.id.as_str(),
        handler: event.handler.as_ref().map(|handler| handler.as_str()),
        collection: event.collection.as_deref(),
        shard: event.shard.0,
        offset: event.place.version.offset(),
        due_at: Time(event.due_at),
        ready_at: Time(event.place.ready_at),
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
        result_cut: false,
    };
    match &event.cause {
        Cause::Ended(Ended { epoch, seq, .. }) if event.kind == TaskEventKind::Cancelled => {
            Data { epoch: Some(epoch.0), sequence: Some(*seq), ..base }
        }
        Cause::Event(_, reason) => Data { reason: reason.as_deref(), ..base },
        Cause::Started(started) => Data {
            attempt: Some(started.attempt),
            deadline: Some(Time(started.deadline)),
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
            next_at: ended.next_at.map(Time),
            reason: ended.closed.map(|reason| reason.word()),
            error: ended.error.as_deref(),
            result: ended.result.as_deref().and_then(json_or_text),
            result_cut: ended.result_cut,
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
