//! The data columns as they are written. Field names are the stored format: add, do not rename.
//!
//! Times are milliseconds since the Unix epoch, hashes are hexadecimal. Texts and payloads are borrowed both ways.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::model::{
    self, CloseReason, Current, Decision, Epoch, EventRow, Fact, Generation, HandlerName, Misfire,
    OnConflict, OriginMark, Place, QueueName, Shard, TaskContent, TaskId, TaskKey, Version, Wall,
};

/// A text, borrowed where it has no escapes.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Text(Cow::Borrowed(text))
    }
}

fn text(arc: &Arc<str>) -> Text<'_> {
    Text(Cow::Borrowed(arc))
}

fn arc(text: Text<'_>) -> Arc<str> {
    Arc::from(text.0)
}

/// A number that reads back to the very bits that were written.
#[derive(Clone, Copy)]
pub(super) struct Exact(f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let number = raw.get().parse().ok().filter(|number: &f64| number.is_finite());
        number.map(Exact).ok_or_else(|| serde::de::Error::custom("expected a finite number"))
    }
}

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<Retry>,
    #[serde(default, skip_serializing_if = "no_labels")]
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

#[derive(Serialize, Deserialize)]
struct Retry {
    max_attempts: u32,
    initial_ms: u64,
    factor: Exact,
    max_ms: u64,
    jitter: Exact,
}

/// JSON `null` is a payload too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn no_labels(labels: &Cow<'_, BTreeMap<String, String>>) -> bool {
    labels.is_empty()
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
            retry: self.retry.map(Retry::into_policy),
            labels: self.labels.into_owned(),
            created_by: self.created_by.map(arc),
            traceparent: self.traceparent.map(arc),
        };
        let (due_at, appended) = (Wall(self.due_at), Wall(self.appended));
        Ok(Fact::Task { key: TaskKey { queue, id }, due_at, appended, content: Arc::new(content) })
    }

    fn payload(&self) -> Result<model::Payload, String> {
        match (self.payload, &self.payload_base64, self.payload_len) {
            (Some(raw), None, None) => Ok(model::Payload::Inline(raw.get().as_bytes().into())),
            (None, Some(base64), None) => Ok(model::Payload::Inline(bytes_of(base64)?.into())),
            (None, None, Some(len)) => Ok(model::Payload::Stored(len)),
            _ => Err("not exactly one of payload, payload_base64, payload_len".into()),
        }
    }
}

/// As JSON where the bytes are the text of one value and nothing around it; other bytes would not come back the same.
fn payload_fields(payload: &model::Payload) -> (Option<&RawValue>, Option<String>, Option<u32>) {
    match payload {
        model::Payload::Stored(len) => (None, None, Some(*len)),
        model::Payload::Inline(bytes) => match serde_json::from_slice::<&RawValue>(bytes) {
            Ok(raw) if raw.get().len() == bytes.len() => (Some(raw), None, None),
            _ => (None, Some(STANDARD.encode(bytes)), None),
        },
    }
}

fn bytes_of(base64: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(base64).map_err(|why| format!("not base64: {why}"))
}

impl Retry {
    fn of(policy: model::RetryPolicy) -> Self {
        Retry {
            max_attempts: policy.max_attempts,
            initial_ms: policy.initial_ms,
            factor: Exact(policy.factor),
            max_ms: policy.max_ms,
            jitter: Exact(policy.jitter),
        }
    }

    fn into_policy(self) -> model::RetryPolicy {
        model::RetryPolicy {
            max_attempts: self.max_attempts,
            initial_ms: self.initial_ms,
            factor: self.factor.0,
            max_ms: self.max_ms,
            jitter: self.jitter.0,
        }
    }
}

/// Kind 1.
#[derive(Serialize, Deserialize)]
pub(super) struct Superseded<'a> {
    #[serde(borrow)]
    pub(super) mark: Text<'a>,
}

/// Kind 2.
#[derive(Serialize, Deserialize)]
pub(super) struct Started<'a> {
    pub(super) at: i64,
    pub(super) deadline: i64,
    pub(super) attempt: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) failures: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) interruptions: u32,
    #[serde(borrow)]
    pub(super) instance: Text<'a>,
}

impl<'a> Started<'a> {
    pub(super) fn of(started: &'a model::Started) -> Self {
        Started {
            at: started.at.0,
            deadline: started.deadline.0,
            attempt: started.attempt,
            failures: started.failures,
            interruptions: started.interruptions,
            instance: text(&started.instance),
        }
    }
}

/// Kind 3.
#[derive(Serialize, Deserialize)]
pub(super) struct Ended<'a> {
    pub(super) at: i64,
    #[serde(borrow)]
    pub(super) outcome: Text<'a>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_at: Option<i64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) closed: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    result: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Text<'a>>,
}

impl<'a> Ended<'a> {
    pub(super) fn of(ended: &'a model::Ended) -> Self {
        let result = ended.result.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok());
        let other = ended.result.as_deref().filter(|_| result.is_none());
        Ended {
            at: ended.at.0,
            outcome: ended.outcome.word().into(),
            failures: ended.failures,
            next_at: ended.next_at.map(|at| at.0),
            closed: ended.closed.map(|reason| reason.word().into()),
            result: result.map(Text::from),
            result_base64: other.map(|bytes| STANDARD.encode(bytes)),
            error: ended.error.as_ref().map(text),
        }
    }

    pub(super) fn result(&self) -> Result<Option<Arc<[u8]>>, String> {
        match (&self.result, &self.result_base64) {
            (None, None) => Ok(None),
            (Some(text), None) => Ok(Some(text.0.as_bytes().into())),
            (None, Some(base64)) => Ok(Some(bytes_of(base64)?.into())),
            (Some(_), Some(_)) => Err("both result and result_base64".into()),
        }
    }
}

/// Kind 4.
#[derive(Serialize, Deserialize)]
pub(super) struct Closed<'a> {
    pub(super) at: i64,
    #[serde(borrow)]
    pub(super) reason: Text<'a>,
}

pub(super) fn close_reason(word: &Text<'_>) -> Result<CloseReason, String> {
    CloseReason::from_word(&word.0).ok_or_else(|| super::unknown_word("close reason", word))
}

/// A row of `task_event`.
#[derive(Serialize, Deserialize)]
pub(super) struct Event<'a> {
    shard: u32,
    #[serde(borrow)]
    verb: Text<'a>,
    hash: Hash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_id_hash: Option<Hash>,
    appended: i64,
    #[serde(borrow)]
    pub(super) decision: Text<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<CurrentData>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel_remembered: Option<i64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    reason: Option<Text<'a>>,
}

#[derive(Serialize, Deserialize)]
struct CurrentData {
    ready_at: i64,
    version: u64,
    due_at: i64,
    hash: Hash,
    appended: i64,
}

/// Sixteen bytes, written as hexadecimal.
#[derive(Clone, Copy)]
struct Hash([u8; 16]);

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", u128::from_be_bytes(self.0)))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        let digits = text.0.len() == 32 && text.0.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(&text.0, 16).ok()).flatten();
        let number = number.ok_or_else(|| serde::de::Error::custom("expected 32 hexadecimal digits"))?;
        Ok(Hash(number.to_be_bytes()))
    }
}

impl<'a> Event<'a> {
    pub(super) fn of(row: &'a EventRow) -> Self {
        Event {
            shard: row.shard.0,
            verb: text(&row.verb),
            hash: Hash(row.content_hash),
            event_id_hash: row.event_id_hash.map(Hash),
            appended: row.appended.0,
            decision: row.decision.word().into(),
            current: row.current.map(|current| CurrentData {
                ready_at: current.place.ready_at.0,
                version: current.place.version.0,
                due_at: current.due_at.0,
                hash: Hash(current.content_hash),
                appended: current.appended.0,
            }),
            cancel_remembered: row.cancel_remembered.map(|at| at.0),
            reason: row.reason.as_deref().map(Text::from),
        }
    }

    pub(super) fn into_row(
        self,
        key: TaskKey,
        version: Version,
        epoch: Epoch,
        decision: Decision,
    ) -> EventRow {
        EventRow {
            key,
            version,
            epoch,
            shard: Shard(self.shard),
            verb: arc(self.verb),
            content_hash: self.hash.0,
            event_id_hash: self.event_id_hash.map(|hash| hash.0),
            appended: Wall(self.appended),
            decision,
            current: self.current.map(|current| Current {
                place: Place { ready_at: Wall(current.ready_at), version: Version(current.version) },
                due_at: Wall(current.due_at),
                content_hash: current.hash.0,
                appended: Wall(current.appended),
            }),
            cancel_remembered: self.cancel_remembered.map(Wall),
            reason: self.reason.map(|text| text.0.into_owned()),
        }
    }
}

/// A row of `shard_progress`.
#[derive(Serialize, Deserialize)]
pub(super) struct Progress<'a> {
    #[serde(default, skip_serializing_if = "is_default")]
    generation: u32,
    #[serde(borrow)]
    topic_id: Text<'a>,
    next_offset: u64,
    watermark: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    marks: Vec<Mark>,
}

#[derive(Serialize, Deserialize)]
struct Mark {
    shard: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    generation: u32,
    origin_offset: u64,
    home_offset: u64,
}

impl<'a> Progress<'a> {
    pub(super) fn of(progress: &'a model::Progress) -> Self {
        let mark = |(shard, mark): (&Shard, &OriginMark)| Mark {
            shard: shard.0,
            generation: mark.generation.0,
            origin_offset: mark.origin_offset,
            home_offset: mark.home_offset,
        };
        Progress {
            generation: progress.generation.0,
            topic_id: progress.topic_id.as_str().into(),
            next_offset: progress.next_offset,
            watermark: progress.watermark.0,
            marks: progress.marks.iter().map(mark).collect(),
        }
    }

    pub(super) fn into_progress(self, epoch: Epoch) -> model::Progress {
        let mark = |mark: Mark| {
            let Mark { shard, generation, origin_offset, home_offset } = mark;
            (Shard(shard), OriginMark { generation: Generation(generation), origin_offset, home_offset })
        };
        model::Progress {
            epoch,
            generation: Generation(self.generation),
            topic_id: self.topic_id.0.into_owned(),
            next_offset: self.next_offset,
            watermark: Wall(self.watermark),
            marks: self.marks.into_iter().map(mark).collect(),
        }
    }
}
