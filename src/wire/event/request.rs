//! The plain event as types: what the HTTP API takes, the command line fills and the OpenAPI document shows.
//!
//! These types say how an event is written, not whether it is valid: that is [`super::decode_plain`]'s alone, so
//! that every way in has the same rules. A field that is left out has the default of the event, not of a type here.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::log::{Header, Message, Target, Topic};
use crate::model::Event;

/// A schedule event in plain JSON.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Request {
    /// Run a task at a time.
    Schedule(Box<ScheduleRequest>),
    /// Do not run it.
    Cancel(CancelRequest),
    /// Run it at another time.
    Reschedule(RescheduleRequest),
    /// Run it again, although it was closed without success.
    Redrive(RedriveRequest),
    /// Break off its attempt.
    Abort(AbortRequest),
}

/// Asks for a task.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest {
    /// Always `schedule`; may be left out.
    #[serde(rename = "type", default)]
    pub verb: ScheduleVerb,
    /// The queue, 1 to 500 bytes; its tasks run in order, one at a time. Default: the id, no ordering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The task's name within its queue, 1 to 500 bytes. Default: made from the record's coordinates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When it is due, RFC 3339, at most ten years ahead. Default: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// When it is due, as a duration from the record's append time: `10s`, `1h30m`, `PT10M`. Not with `due_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// The handler that runs it.
    pub handler: String,
    /// What the handler is given: any JSON, at most 256 KiB. Default: `{}`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub payload: Option<Box<RawValue>>,
    /// 0 to 9, 9 first; between queues. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// A tag for gating, quota and bulk work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// Time for one attempt, at most 24 h. Default: the handler's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Not started after this time, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// What happens when it is late. Default: `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire: Option<Misfire>,
    /// How late is late. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire_grace: Option<String>,
    /// What this does to an unfinished task of the id with other content. Default: `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
    /// What its failure does to the queue. Default: `block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// What its death does to the queue. Default: `continue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_dead: Option<OnDead>,
    /// At most 32 free labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Who asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When a failed attempt is tried again. Default: the handler's policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Takes a task back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// Always `cancel`.
    #[serde(rename = "type")]
    pub verb: CancelVerb,
    /// The queue. Default: the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The task.
    pub id: String,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Moves a task to another time; exactly one of `due_at` and `delay`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RescheduleRequest {
    /// Always `reschedule`.
    #[serde(rename = "type")]
    pub verb: RescheduleVerb,
    /// The queue. Default: the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The task.
    pub id: String,
    /// The new time, RFC 3339, at most ten years ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// The new time, as a duration from the record's append time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Runs a task again that is dead, expired, skipped or dropped; at most one of `due_at` and `delay`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RedriveRequest {
    /// Always `redrive`.
    #[serde(rename = "type")]
    pub verb: RedriveVerb,
    /// The queue. Default: the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The task.
    pub id: String,
    /// When, RFC 3339, at most ten years ahead. Default: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// When, as a duration from the record's append time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// What the handler is given from now on. Default: what it had.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Breaks off the attempt that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AbortRequest {
    /// Always `abort`.
    #[serde(rename = "type")]
    pub verb: AbortVerb,
    /// The queue. Default: the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The task.
    pub id: String,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A retry policy; what is left out is 10, `1s`, 2, `10m`, 0.2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a retry policy, an object such as {\"max_attempts\":3,\"initial\":\"1s\"}"
)]
pub struct Retry {
    /// Attempts in all, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Wait after the first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<String>,
    /// Each further wait is this times the last, 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// Part of the wait that is drawn at random, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// No further try later than this after the task could first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<String>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $(#[$first_doc:meta])* $first:ident $(, $(#[$word_doc:meta])* $word:ident)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $(#[$first_doc])*
            #[default]
            $first,
            $($(#[$word_doc])* $word,)*
        }
    };
}

words! {
    /// The verb of a [`ScheduleRequest`].
    ScheduleVerb {
        /// Run a task at a time.
        Schedule
    }
}
words! {
    /// The verb of a [`CancelRequest`].
    CancelVerb {
        /// Do not run it.
        Cancel
    }
}
words! {
    /// The verb of a [`RescheduleRequest`].
    RescheduleVerb {
        /// Run it at another time.
        Reschedule
    }
}
words! {
    /// The verb of a [`RedriveRequest`].
    RedriveVerb {
        /// Run it again.
        Redrive
    }
}
words! {
    /// The verb of an [`AbortRequest`].
    AbortVerb {
        /// Break off its attempt.
        Abort
    }
}
words! {
    /// What happens to a task that could not start in time.
    Misfire {
        /// It runs late.
        Run,
        /// It is skipped, on record.
        Skip
    }
}
words! {
    /// What an event does to an unfinished task of its id with other content.
    OnConflict {
        /// The new one takes its place; a running attempt ends first.
        Replace,
        /// The old one stays.
        Keep,
        /// The new one is rejected.
        Reject
    }
}
words! {
    /// What a failed task does to its queue.
    OnFailure {
        /// The queue waits through all attempts.
        Block,
        /// The task waits aside for its next try, and the queue goes on.
        Park
    }
}
words! {
    /// What a dead task does to its queue.
    OnDead {
        /// The queue goes on.
        Continue,
        /// The queue stops until a person resumes it.
        Stop
    }
}

/// JSON `null` is a payload too.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The bytes of a request: the value of a record, or the body of an HTTP request.
pub fn encode(request: &Request) -> Bytes {
    Bytes::from(serde_json::to_vec(request).expect("requests have text keys and are written to memory"))
}

/// The headers of a record that is a CloudEvent: intake takes two of one source and id for one, whatever their content. The type of
/// the event is in them, and has to be taken out of its value.
pub fn cloud_event_headers(verb: &str, source: &str, id: &str) -> Vec<Header> {
    let kind = format!("dueline.task.{verb}.v1");
    let attributes = [("ce_specversion", "1.0"), ("ce_type", &kind), ("ce_source", source), ("ce_id", id)];
    let header = |(name, value): (&'static str, &str)| -> Header {
        (name.into(), Some(Bytes::copy_from_slice(value.as_bytes())))
    };
    attributes.into_iter().map(header).collect()
}

/// The record of an event for the schedule topic: its key is the queue, or the id where there is none, so that it
/// lands on its home shard. `value` is the event as it was sent.
pub fn message(event: &Event, value: Bytes, traceparent: Option<&str>) -> Message {
    let queue = event.queue.as_ref().map(|queue| queue.as_str());
    let key = queue.or(event.id.as_ref().map(|id| id.as_str()));
    let header =
        |text: &str| -> Header { ("traceparent".into(), Some(Bytes::copy_from_slice(text.as_bytes()))) };
    Message {
        target: Target::Topic(Topic::Schedule),
        partition: None,
        key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
        headers: traceparent.map(header).into_iter().collect(),
        value: Some(value),
    }
}
