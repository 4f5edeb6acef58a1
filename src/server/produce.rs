//! Writing schedule events, and waiting for what is decided.

use std::borrow::Cow;
use std::fmt;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use bytes::Bytes;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::log::{Message, Written};
use crate::model::{
    Decision, Event, EventRow, Shard, TaskId, TaskKey, TaskState, Verb, Version, Wall, home_shard,
};
use crate::store::{self, Lookup};
use crate::wire::event::{decode_plain, request};
use crate::wire::hex;

use super::params::{header, preferred_wait};
use super::problem::Problem;
use super::tasks::{history, state_of};
use super::views::{Accepted, DecisionView};
use super::{Answer, App, LOOK_AGAIN, limits};

/// What events with an idempotency key name as their source.
const EVENT_SOURCE: &str = "urn:dueline:http";

/// An event that is in order, and not written yet.
pub(super) struct Ready {
    pub(super) key: TaskKey,
    /// What it asks for.
    pub(super) verb: &'static str,
    /// Why.
    pub(super) reason: Option<String>,
    message: Message,
}

/// An event that was written.
pub(super) struct Sent {
    pub(super) key: TaskKey,
    partition: u32,
    offset: Option<u64>,
    appended: Option<Wall>,
}

/// Checks one event, as a producer would. A task without an id gets one, so that the answer can name it.
pub(super) fn ready(app: &App, body: Bytes, asked: Asked<'_>) -> Answer<Ready> {
    let now = app.node.service().clock().now().wall;
    let mut event = decode_plain(&body, now, app.node.rules()).map_err(Problem::from)?;
    let mut value = body;
    if event.id.is_none() {
        let id = made_id(asked.key)?;
        value = with_id(&value, &id);
        event.id = Some(id);
    }
    let key = key_of(&event)?;
    let mut message = request::message(&event, value, asked.traceparent);
    if let Some(key) = asked.key {
        message = as_cloud_event(message, &event.verb, key);
    }
    message.partition = Some(home_shard(&key.queue, app.node.cluster().shards).0);
    Ok(Ready { key, verb: event.verb.word(), reason: event.reason, message })
}

/// Writes an event.
pub(super) async fn send(app: &App, ready: Ready) -> Answer<Sent> {
    let written = app.node.producer().produce(ready.message).await.map_err(Problem::from)?;
    let Written { partition, offset, appended } = written;
    Ok(Sent { key: ready.key, partition, offset, appended })
}

/// What the headers of a request ask of its events.
#[derive(Clone, Copy)]
pub(super) struct Asked<'h> {
    key: Option<Key<'h>>,
    traceparent: Option<&'h str>,
}

/// An idempotency key; of a batch each line has its own.
#[derive(Clone, Copy)]
struct Key<'h> {
    given: &'h str,
    line: Option<usize>,
}

impl<'h> Asked<'h> {
    /// Reads the headers.
    ///
    /// # Errors
    /// The idempotency key is none.
    pub(super) fn read(headers: &'h HeaderMap) -> Answer<Asked<'h>> {
        let given = header(headers, &HeaderName::from_static("idempotency-key"))?;
        if given.is_some_and(|key| key.is_empty() || key.len() > limits::IDEMPOTENCY_KEY_BYTES_MAX) {
            let most = limits::IDEMPOTENCY_KEY_BYTES_MAX;
            let detail = format!("The header Idempotency-Key must have 1 to {most} bytes.");
            return Err(Problem::bad_request("invalid_header", detail));
        }
        // A trace context that cannot be read is as good as none: tracing never costs a task.
        let traceparent = header(headers, &HeaderName::from_static("traceparent")).ok().flatten();
        Ok(Asked { key: given.map(|given| Key { given, line: None }), traceparent })
    }

    /// A number made of the idempotency key, the same for the same key; `None` = there is none.
    pub(super) fn number(self) -> Option<u128> {
        use sha2::Digest as _;
        let hash = sha2::Sha256::digest(self.key?.seed().as_bytes());
        Some(hash.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte)))
    }

    /// For a line of a batch, counted from 1.
    pub(super) fn of_line(self, line: usize) -> Asked<'h> {
        Asked { key: self.key.map(|key| Key { line: Some(line), ..key }), ..self }
    }
}

impl Key<'_> {
    /// A CloudEvents id. Keys are per verb: a cancel under the key of its schedule event is no repeat of that.
    fn event_id(self, verb: &str) -> String {
        match self.line {
            None => format!("{verb}:{}", self.given),
            Some(line) => format!("{verb}/{line}:{}", self.given),
        }
    }

    /// What the id of a task is made from that has none. No key contains a line end.
    fn seed(self) -> String {
        match self.line {
            None => self.given.to_owned(),
            Some(line) => format!("{line}\n{}", self.given),
        }
    }
}

/// A new id; the same for the same `Idempotency-Key`, so that sending again is found to be a repeat.
fn made_id(key: Option<Key<'_>>) -> Answer<TaskId> {
    use sha2::Digest as _;
    let text = match key {
        None => uuid::Uuid::new_v4().to_string(),
        Some(key) => {
            let hash = sha2::Sha256::digest(key.seed().as_bytes());
            hex(&hash[..16])
        }
    };
    TaskId::new(&text).map_err(|error| Problem::bad_request("invalid_id", error.to_string()))
}

/// The event with an id in front; every other byte stays as it was sent.
fn with_id(body: &Bytes, id: &TaskId) -> Bytes {
    let text = String::from_utf8_lossy(body);
    let inner = text.trim_start().trim_start_matches('{');
    Bytes::from(format!("{{\"id\":\"{id}\",{inner}"))
}

/// The record as a CloudEvent with an id of the key: intake takes two of one id for one, whatever their content.
fn as_cloud_event(mut message: Message, verb: &Verb, key: Key<'_>) -> Message {
    let id = key.event_id(verb.word());
    message.headers.extend(request::cloud_event_headers(verb.word(), EVENT_SOURCE, &id));
    // The type of a CloudEvent is in its headers; the field would be refused.
    message.value = message.value.map(|value| without_type(&value).unwrap_or(value));
    message
}

/// The members of an object in order, names and values as they were sent.
#[derive(Deserialize)]
struct Members<'a>(#[serde(borrow, deserialize_with = "members")] Vec<(Cow<'a, str>, &'a RawValue)>);

fn members<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(Cow<'de, str>, &'de RawValue)>, D::Error> {
    deserializer.deserialize_map(MembersVisitor)
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

/// The object without its `type`, all values as they were sent; `None` when it has none.
fn without_type(object: &[u8]) -> Option<Bytes> {
    let Members(members) = serde_json::from_slice(object).ok()?;
    members.iter().find(|(name, _)| name == "type")?;
    let member = |(name, value): &(Cow<'_, str>, &RawValue)| {
        format!("{}:{}", serde_json::Value::from(name.as_ref()), value.get())
    };
    let rest: Vec<String> = members.iter().filter(|(name, _)| name != "type").map(member).collect();
    Some(Bytes::from(format!("{{{}}}", rest.join(","))))
}

fn key_of(event: &Event) -> Answer<TaskKey> {
    let id = event
        .id
        .clone()
        .ok_or_else(|| Problem::bad_request("missing_id", "The event has no id.").at("/id"))?;
    let queue = event.queue.clone().unwrap_or_else(|| id.clone().into());
    Ok(TaskKey { queue, id })
}

/// Until when an answer may wait for its decision; `None` = it is given at once.
pub(super) fn wait_until(headers: &HeaderMap) -> Option<Instant> {
    preferred_wait(headers).map(|wait| Instant::now() + wait)
}

/// The answer to a schedule event: at once, or when it is decided.
pub(super) async fn answer(app: &App, sent: Sent, until: Option<Instant>) -> Answer<(StatusCode, Accepted)> {
    let decided = match until {
        None => None,
        Some(until) => decision(app, &sent, until).await?,
    };
    let Some(Decided { row, refused }) = decided else {
        return Ok((StatusCode::ACCEPTED, sent.accepted(None)));
    };
    let status = match refused.unwrap_or(row.decision) {
        Decision::Scheduled | Decision::Replaced => StatusCode::CREATED,
        Decision::Rescheduled
        | Decision::Redriven
        | Decision::Aborted
        | Decision::Cancelled
        | Decision::Repeated
        | Decision::Kept
        | Decision::CancelledBefore => StatusCode::OK,
        Decision::TooLate => return Err(too_late(app, &sent.key).await),
        Decision::NotDead => return Err(other_state(app, &sent.key, "not_dead").await),
        Decision::NotRunning => return Err(other_state(app, &sent.key, "not_running").await),
        Decision::Unknown => return Err(unknown(&sent.key, &row.verb)),
        Decision::Conflict => {
            let detail = "Another task of this id is unfinished, and on_conflict is reject.";
            return Err(Problem::new(StatusCode::CONFLICT, "conflict", detail));
        }
        Decision::OverQuota => {
            let detail = "More came in of its handler or collection than its quota (`intake`) allows; send it again later.";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "over_quota", detail));
        }
    };
    Ok((status, sent.accepted(Some(DecisionView::of(&row)))))
}

impl Sent {
    fn accepted(self, decision: Option<DecisionView>) -> Accepted {
        Accepted {
            queue: self.key.queue.to_string(),
            id: self.key.id.to_string(),
            partition: self.partition,
            offset: self.offset,
            decision,
        }
    }
}

/// Refuses a change in the words of what the task is now: it may have moved on since the decision.
async fn too_late(app: &App, key: &TaskKey) -> Problem {
    let state = state_of(app, key).await.ok();
    let now = state.as_deref().map_or("has started or ended", why_too_late);
    let detail = format!("Task {} of queue {} {now}.", key.id, key.queue);
    Problem::new(StatusCode::CONFLICT, "too_late", detail)
}

/// Refuses a redrive or an abort by what the task is.
async fn other_state(app: &App, key: &TaskKey, code: &str) -> Problem {
    let state = state_of(app, key).await.ok();
    let now = state.map_or("in another state".to_owned(), |state| format!("now {state}"));
    let only = match code {
        "not_dead" => "only one that is dead, expired, skipped or dropped is redriven",
        _ => "only one that is running is aborted",
    };
    let detail = format!("Task {} of queue {} is {now}; {only}.", key.id, key.queue);
    Problem::new(StatusCode::CONFLICT, code, detail)
}

fn why_too_late(state: &str) -> &'static str {
    let is = |other: TaskState| state == other.word();
    match state {
        _ if is(TaskState::Cancelled) => {
            "is cancelled already and will not run; to have it run, schedule it under another id"
        }
        _ if is(TaskState::Running) => "has started and is running",
        _ if is(TaskState::Retrying) || is(TaskState::Parked) => "has started: it is between two attempts",
        _ if is(TaskState::Succeeded) => "has ended: it succeeded",
        _ if is(TaskState::Dead) => "has ended: it is dead",
        _ if is(TaskState::Expired) => "was not started before it expired, and is closed",
        _ if is(TaskState::Skipped) => "was skipped, as it was too late, and is closed",
        _ if is(TaskState::Dropped) => "was dropped by a gate, and is closed",
        _ => "had started or ended when this was decided",
    }
}

fn unknown(key: &TaskKey, verb: &str) -> Problem {
    let further = match verb {
        "cancel" => {
            "; the cancel is remembered for an hour, and holds for an event of before it that comes late"
        }
        _ => "",
    };
    let detail = format!("No task {} of queue {} is known{further}.", key.id, key.queue);
    Problem::not_found("unknown_task", detail)
}

/// What was decided about an event.
struct Decided {
    row: EventRow,
    /// It repeats an event that was refused so: its answer is the same refusal.
    refused: Option<Decision>,
}

/// Looks for the row of the event until it is there or the wait is over.
async fn decision(app: &App, sent: &Sent, until: Instant) -> Answer<Option<Decided>> {
    if sent.offset.is_none() {
        // Nobody knows which of the task's events it is.
        return Ok(None);
    }
    let look = async {
        loop {
            match rows_of(app, sent).await {
                Ok(rows) => {
                    if let Some(decided) = decided(&rows, sent) {
                        return Ok(decided);
                    }
                }
                // The event is in the log: a store that is away makes the wait longer and the event no less accepted.
                Err(store::Error::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    match tokio::time::timeout_at(until, look).await {
        Ok(Ok(decided)) => Ok(Some(decided)),
        Ok(Err(error)) => Err(Problem::from(error)),
        Err(_) => Ok(None),
    }
}

/// The rows of the task among which its decision is found: none, while it is not decided.
async fn rows_of(app: &App, sent: &Sent) -> Result<Vec<EventRow>, store::Error> {
    let store = app.node.store();
    let progress = store.progress(Shard(sent.partition)).await?;
    let (Some(offset), Some(progress)) = (sent.offset, progress) else { return Ok(Vec::new()) };
    let version = Version::new(progress.generation, offset);
    let lookup = Lookup { key: sent.key.clone(), first: version, last: version, listed: vec![version] };
    let rows = store.lookup(vec![lookup]).await?.pop().unwrap_or_default();
    match rows.first() {
        // What it repeats may lie anywhere.
        Some(row) if row.version == version && row.decision == Decision::Repeated => {
            history(app, &sent.key).await
        }
        _ => Ok(rows),
    }
}

/// The decision among the rows of the task, newest first.
fn decided(rows: &[EventRow], sent: &Sent) -> Option<Decided> {
    // An event of a log that was lost may have had the same offset.
    let is_of_then = |row: &EventRow| sent.appended.is_none_or(|appended| appended == row.appended);
    let is_ours = |row: &EventRow| {
        Some(row.version.offset()) == sent.offset && row.shard.0 == sent.partition && is_of_then(row)
    };
    let at = rows.iter().position(is_ours)?;
    let row = &rows[at];
    let is_first = |other: &&EventRow| {
        other.version < row.version
            && other.decision != Decision::Repeated
            && other.event_id_hash == row.event_id_hash
    };
    let repeats = row.decision == Decision::Repeated && row.event_id_hash.is_some();
    let first = rows[at..].iter().find(is_first).filter(|_| repeats).map(|first| first.decision);
    let refused = first.filter(|first| {
        matches!(
            first,
            Decision::TooLate
                | Decision::Unknown
                | Decision::Conflict
                | Decision::OverQuota
                | Decision::NotDead
                | Decision::NotRunning
        )
    });
    Some(Decided { row: row.clone(), refused })
}

/// Refuses an event of another kind than the path is for.
pub(super) fn expect_schedule(app: &App, body: &[u8]) -> Answer<()> {
    let now = app.node.service().clock().now().wall;
    let event = decode_plain(body, now, app.node.rules()).map_err(Problem::from)?;
    match event.verb {
        Verb::Schedule(..) => Ok(()),
        Verb::Cancel | Verb::Reschedule(_) | Verb::Redrive(_) | Verb::Abort => {
            let detail =
                "Only schedule events are taken here; cancel with POST /v1/tasks/{queue}/{id}/cancel.";
            Err(Problem::bad_request("wrong_type", detail).at("/type"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, without_type};

    #[test]
    fn a_key_names_one_event_for_each_verb_and_line() {
        let (alone, line) = (Key { given: "1:k", line: None }, Key { given: "k", line: Some(1) });
        let ids = ["schedule", "cancel"].map(|verb| [alone.event_id(verb), line.event_id(verb)]).concat();
        let different: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!(different.len(), 4, "{ids:?}");
        assert_ne!(alone.seed(), line.seed());
    }

    #[test]
    fn the_type_is_taken_out_and_values_stay_as_they_were_sent() {
        let object = br#"{ "type":"schedule", "payload": { "a" : 1.00 } , "i\u0064":"x" }"#;
        let changed = without_type(object).expect("it has a type");
        assert_eq!(String::from_utf8_lossy(&changed), r#"{"payload":{ "a" : 1.00 },"id":"x"}"#);
        assert_eq!(without_type(b"{\"id\":1}"), None);
        assert_eq!(without_type(b"[]"), None);
    }
}
