//! The data column of a task: facts of kind 0.
//!
//! Field names are the stored format: add, do not rename. Times are milliseconds since the Unix epoch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::field::{Exact, Text, arc, base64_of, bytes_of, is_default, text};
use crate::model::{
    Fact, HandlerName, Misfire, OnConflict, OnDead, OnFailure, Payload, QueueName, RetryPolicy, TaskContent,
    TaskId, TaskKey, Wall,
};

/// Kind 0.
#[derive(Serialize, Deserialize)]
pub(super) struct Task<'a> {
    #[serde(borrow)]
    queue: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    due_at: i64,
    appended: i64,
    #[serde(borrow)]
    handler: Text<'a>,
    #[serde(borrow, default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_len: Option<u32>,
    priority: u8,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    collection: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    #[serde(default, skip_serializing_if = "is_default")]
    misfire: MisfireWord,
    #[serde(default, skip_serializing_if = "is_default")]
    misfire_grace_ms: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    on_conflict: OnConflictWord,
    #[serde(default, skip_serializing_if = "is_default")]
    on_failure: OnFailureWord,
    #[serde(default, skip_serializing_if = "is_default")]
    on_dead: OnDeadWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<Retry>,
    #[serde(default, skip_serializing_if = "is_default")]
    labels: Cow<'a, BTreeMap<String, String>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    created_by: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<Text<'a>>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum MisfireWord {
    #[default]
    Run,
    Skip,
}

#[derive(Serialize, Deserialize, Clone, Copy, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum OnConflictWord {
    #[default]
    Replace,
    Keep,
    Reject,
}

#[derive(Serialize, Deserialize, Clone, Copy, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum OnFailureWord {
    #[default]
    Block,
    Park,
}

#[derive(Serialize, Deserialize, Clone, Copy, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum OnDeadWord {
    #[default]
    Continue,
    Stop,
}

#[derive(Serialize, Deserialize)]
struct Retry {
    max_attempts: u32,
    initial_ms: u64,
    factor: Exact,
    max_ms: u64,
    jitter: Exact,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_age_ms: Option<u64>,
}

impl<'a> Task<'a> {
    pub(super) fn of(key: &'a TaskKey, due_at: Wall, appended: Wall, content: &'a TaskContent) -> Self {
        let (payload, payload_base64, payload_len) = payload_fields(&content.payload);
        Task {
            queue: key.queue.as_str().into(),
            id: key.id.as_str().into(),
            due_at: due_at.0,
            appended: appended.0,
            handler: content.handler.as_str().into(),
            payload,
            payload_base64,
            payload_len,
            priority: content.priority,
            collection: content.collection.as_ref().map(text),
            timeout_ms: content.timeout_ms,
            expires_at: content.expires_at.map(|at| at.0),
            misfire: match content.misfire {
                Misfire::Run => MisfireWord::Run,
                Misfire::Skip => MisfireWord::Skip,
            },
            misfire_grace_ms: content.misfire_grace_ms,
            on_conflict: match content.on_conflict {
                OnConflict::Replace => OnConflictWord::Replace,
                OnConflict::Keep => OnConflictWord::Keep,
                OnConflict::Reject => OnConflictWord::Reject,
            },
            on_failure: match content.on_failure {
                OnFailure::Block => OnFailureWord::Block,
                OnFailure::Park => OnFailureWord::Park,
            },
            on_dead: match content.on_dead {
                OnDead::Continue => OnDeadWord::Continue,
                OnDead::Stop => OnDeadWord::Stop,
            },
            retry: content.retry.map(Retry::of),
            labels: Cow::Borrowed(&content.labels),
            created_by: content.created_by.as_ref().map(text),
            traceparent: content.traceparent.as_ref().map(text),
        }
    }

    pub(super) fn into_fact(self) -> Result<Fact, String> {
        let payload = self.payload()?;
        let queue = QueueName::new(&self.queue.0).map_err(|why| format!("the queue {why}"))?;
        let id = TaskId::new(&self.id.0).map_err(|why| format!("the id {why}"))?;
        let content = TaskContent {
            handler: HandlerName::new(&self.handler.0).map_err(|why| format!("the handler {why}"))?,
            payload,
            priority: self.priority,
            collection: self.collection.map(arc),
            timeout_ms: self.timeout_ms,
            expires_at: self.expires_at.map(Wall),
            misfire: match self.misfire {
                MisfireWord::Run => Misfire::Run,
                MisfireWord::Skip => Misfire::Skip,
            },
            misfire_grace_ms: self.misfire_grace_ms,
            on_conflict: match self.on_conflict {
                OnConflictWord::Replace => OnConflict::Replace,
                OnConflictWord::Keep => OnConflict::Keep,
                OnConflictWord::Reject => OnConflict::Reject,
            },
            on_failure: match self.on_failure {
                OnFailureWord::Block => OnFailure::Block,
                OnFailureWord::Park => OnFailure::Park,
            },
            on_dead: match self.on_dead {
                OnDeadWord::Continue => OnDead::Continue,
                OnDeadWord::Stop => OnDead::Stop,
            },
            retry: self.retry.map(Retry::into_policy),
            labels: self.labels.into_owned(),
            created_by: self.created_by.map(arc),
            traceparent: self.traceparent.map(arc),
        };
        let (due_at, appended) = (Wall(self.due_at), Wall(self.appended));
        Ok(Fact::Task { key: TaskKey { queue, id }, due_at, appended, content: Arc::new(content) })
    }

    fn payload(&self) -> Result<Payload, String> {
        match (self.payload, &self.payload_base64, self.payload_len) {
            (Some(raw), None, None) => Ok(Payload::Inline(raw.get().as_bytes().into())),
            (None, Some(base64), None) => Ok(Payload::Inline(bytes_of(base64)?.into())),
            (None, None, Some(len)) => Ok(Payload::Stored(len)),
            _ => Err("not exactly one of payload, payload_base64, payload_len".into()),
        }
    }
}

/// As JSON where the bytes are the text of one value and nothing around it; other bytes would not come back the same.
fn payload_fields(payload: &Payload) -> (Option<&RawValue>, Option<String>, Option<u32>) {
    match payload {
        Payload::Stored(len) => (None, None, Some(*len)),
        Payload::Inline(bytes) => match serde_json::from_slice::<&RawValue>(bytes) {
            Ok(raw) if raw.get().len() == bytes.len() => (Some(raw), None, None),
            _ => (None, Some(base64_of(bytes)), None),
        },
    }
}

impl Retry {
    fn of(policy: RetryPolicy) -> Self {
        Retry {
            max_attempts: policy.max_attempts,
            initial_ms: policy.initial_ms,
            factor: Exact(policy.factor),
            max_ms: policy.max_ms,
            jitter: Exact(policy.jitter),
            max_age_ms: policy.max_age_ms,
        }
    }

    fn into_policy(self) -> RetryPolicy {
        RetryPolicy {
            max_attempts: self.max_attempts,
            initial_ms: self.initial_ms,
            factor: self.factor.0,
            max_ms: self.max_ms,
            jitter: self.jitter.0,
            max_age_ms: self.max_age_ms,
        }
    }
}

/// JSON `null` is a payload too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
