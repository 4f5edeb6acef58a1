//! Writing schedule events, and waiting for what is decided.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;

use crate::model::{Decision, Event, EventRow, TaskId, TaskKey, Verb};
use crate::wire::event::{decode_plain, request};

use super::params::{header, preferred_wait};
use super::problem::Problem;
use super::views::{Accepted, DecisionView};
use super::{Answer, App, LOOK_AGAIN, limits};

/// An event that was written.
pub(super) struct Sent {
    pub(super) key: TaskKey,
    partition: u32,
    offset: u64,
}

/// Checks and writes one event, as a producer would. A task without an id gets one, so that the answer can name it.
pub(super) async fn send(app: &App, body: Bytes, headers: &HeaderMap) -> Answer<Sent> {
    let now = app.node.service().clock().now().wall;
    let mut event = decode_plain(&body, now, app.node.rules()).map_err(Problem::from)?;
    let mut value = body;
    if event.id.is_none() {
        let id = made_id(headers)?;
        value = with_id(&value, &id);
        event.id = Some(id);
    }
    let key = key_of(&event)?;
    let traceparent = header(headers, &axum::http::HeaderName::from_static("traceparent"))?;
    let message = request::message(&event, value, traceparent);
    let written = app.node.producer().produce(message).await.map_err(Problem::from)?;
    Ok(Sent { key, partition: written.partition, offset: written.offset })
}

/// A new id; the same for the same `Idempotency-Key`, so that sending again is found to be a repeat.
fn made_id(headers: &HeaderMap) -> Answer<TaskId> {
    use sha2::Digest as _;
    let given = header(headers, &axum::http::HeaderName::from_static("idempotency-key"))?;
    let text = match given {
        None => uuid::Uuid::new_v4().to_string(),
        Some(key) if key.is_empty() || key.len() > limits::IDEMPOTENCY_KEY_BYTES_MAX => {
            let most = limits::IDEMPOTENCY_KEY_BYTES_MAX;
            let detail = format!("The header Idempotency-Key must have 1 to {most} bytes.");
            return Err(Problem::bad_request("invalid_header", detail));
        }
        Some(key) => {
            let hash = sha2::Sha256::digest(key.as_bytes());
            hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
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

fn key_of(event: &Event) -> Answer<TaskKey> {
    let id = event
        .id
        .clone()
        .ok_or_else(|| Problem::bad_request("missing_id", "The event has no id.").at("/id"))?;
    let queue = event.queue.clone().unwrap_or_else(|| id.clone().into());
    Ok(TaskKey { queue, id })
}

/// The answer to a schedule event: at once, or when it is decided.
pub(super) async fn answer(app: &App, sent: Sent, headers: &HeaderMap) -> Answer<(StatusCode, Accepted)> {
    let decided = match preferred_wait(headers) {
        None => None,
        Some(wait) => decision(app, &sent, wait).await?,
    };
    let Some(row) = decided else { return Ok((StatusCode::ACCEPTED, sent.accepted(None))) };
    let status = match row.decision {
        Decision::Scheduled | Decision::Replaced => StatusCode::CREATED,
        Decision::Rescheduled
        | Decision::Cancelled
        | Decision::Repeated
        | Decision::Kept
        | Decision::CancelledBefore => StatusCode::OK,
        Decision::TooLate => return Err(too_late(&sent.key)),
        Decision::Unknown => return Err(unknown(&sent.key)),
        Decision::Conflict => {
            let detail = "Another task of this id is unfinished, and on_conflict is reject.";
            return Err(Problem::new(StatusCode::CONFLICT, "conflict", detail));
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

fn too_late(key: &TaskKey) -> Problem {
    let detail = format!("Task {} of queue {} has started or ended.", key.id, key.queue);
    Problem::new(StatusCode::CONFLICT, "too_late", detail)
}

fn unknown(key: &TaskKey) -> Problem {
    let detail =
        format!("No task {} of queue {} is known; a cancel is remembered for an hour.", key.id, key.queue);
    Problem::not_found("unknown_task", detail)
}

/// Looks for the row of the event until it is there or the wait is over.
async fn decision(app: &App, sent: &Sent, wait: Duration) -> Answer<Option<EventRow>> {
    let look = async {
        loop {
            let rows = app.node.store().history(sent.key.clone(), limits::HISTORY_MAX).await?;
            let mine = |row: &EventRow| row.version.offset() == sent.offset && row.shard.0 == sent.partition;
            if let Some(row) = rows.into_iter().find(mine) {
                return Ok::<EventRow, crate::store::Error>(row);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    match tokio::time::timeout(wait, look).await {
        Ok(Ok(row)) => Ok(Some(row)),
        Ok(Err(error)) => Err(Problem::from(error)),
        Err(_) => Ok(None),
    }
}

/// Refuses an event of another kind than the path is for.
pub(super) fn expect_schedule(app: &App, body: &[u8]) -> Answer<()> {
    let now = app.node.service().clock().now().wall;
    let event = decode_plain(body, now, app.node.rules()).map_err(Problem::from)?;
    match event.verb {
        Verb::Schedule(..) => Ok(()),
        Verb::Cancel | Verb::Reschedule(_) => {
            let detail =
                "Only schedule events are taken here; cancel with POST /v1/tasks/{queue}/{id}/cancel.";
            Err(Problem::bad_request("wrong_type", detail).at("/type"))
        }
    }
}
