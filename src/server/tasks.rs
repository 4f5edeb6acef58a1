//! One task: schedule, show, cancel, reschedule; and many at once.

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::model::{Decision, EventRow, Place, Shard, TaskKey, TaskState, home_shard};
use crate::store;
use crate::wire::event::request::{RedriveRequest, Request, ScheduleRequest, encode, present};
use crate::wire::time::format_time;

use super::body::{Body, Lines, expect_object};
use super::params::{NoParams, TaskPath};
use super::problem::Problem;
use super::produce::{Asked, Sent, answer, expect_schedule, ready, send, wait_until};
use super::views::{Accepted, DecisionView, EarlierView, TaskView, task_view};
use super::{Answer, App, audit, limits};

/// Schedule a task. The body is a schedule event; without `id` one is made (the same for the same `Idempotency-Key`).
/// With `Prefer: wait=N` the answer comes when the event is decided, after at most N seconds.
/// A schedule event with the same `Idempotency-Key` as the task's newest event is a repeat, whatever its content.
#[utoipa::path(post, path = "/v1/tasks", request_body = ScheduleRequest, params(EventHeaders), responses(
    (status = 202, body = Accepted, description = "Accepted: it will run"),
    (status = 201, body = Accepted, description = "Stored"),
    (status = 200, body = Accepted, description = "A repeat: nothing changed"), (status = 409, body = Problem)))]
pub(super) async fn schedule(
    app: App,
    _: NoParams,
    headers: HeaderMap,
    Body(body): Body,
) -> Answer<Response> {
    expect_schedule(&app, &body)?;
    written(&app, body, &headers).await
}

/// What every request that writes events may say in its headers.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes headers, which are read by name")]
struct EventHeaders {
    /// `wait=N`: wait for what is decided, at most 30 seconds.
    #[param(rename = "Prefer")]
    prefer: Option<String>,
    /// 1 to 255 bytes: an event sent again under its key changes nothing. Each verb has its own keys.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<String>,
    /// W3C trace context, passed on to the handler.
    traceparent: Option<String>,
}

/// The task that a path names.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes a path, which is read by its segments")]
pub(super) struct TaskName {
    /// Its queue, percent-encoded.
    queue: String,
    /// Its id, percent-encoded.
    id: String,
}

/// Schedule, cancel and reschedule many at once: one event a line; one answer a line, in the same order. A bad line never stops the others.
/// Each line has a key of its own, made from the `Idempotency-Key` and its number among the lines that are not empty:
/// send the same lines again. A wait is one for all lines.
#[utoipa::path(post, path = "/v1/tasks:batch", request_body(content = String, content_type = "application/x-ndjson"),
    params(EventHeaders),
    responses((status = 200, description = "One Accepted or Problem a line", content_type = "application/x-ndjson")))]
pub(super) async fn batch(app: App, _: NoParams, headers: HeaderMap, Lines(body): Lines) -> Answer<Response> {
    let asked = Asked::read(&headers)?;
    let lines: Vec<Bytes> = body
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
        .map(|line| body.slice_ref(line))
        .collect();
    if lines.len() > limits::BATCH_LINES_MAX {
        let detail =
            format!("A batch has at most {} lines, this one {}.", limits::BATCH_LINES_MAX, lines.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_lines", detail));
    }
    app.caller.note.about(format!("{} events", lines.len()));
    let numbered = lines.into_iter().zip(1..);
    let sends = stream::iter(numbered).map(|(line, number)| send_one(&app, line, number, asked));
    // All are written before any is waited for: a wait holds up no line behind it.
    let sent: Vec<Answer<Sent>> = sends.buffered(limits::BATCH_IN_FLIGHT_MAX).collect().await;
    let until = wait_until(&headers);
    let waits = stream::iter(sent).map(|sent| async {
        answer(&app, sent?, until).await.map(|(_, accepted)| serde_json::to_string(&accepted))
    });
    let answers: Vec<_> = waits.buffered(limits::BATCH_IN_FLIGHT_MAX).collect().await;
    let mut text = String::new();
    for one in answers {
        let line = match one {
            Ok(accepted) => accepted,
            Err(problem) => serde_json::to_string(&problem),
        };
        text.push_str(&line.unwrap_or_default());
        text.push('\n');
    }
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], text).into_response())
}

/// Sends one event of many, which has a line of its own in the audit log: also if the request is broken off meanwhile,
/// since the event may be written all the same.
async fn send_one(app: &App, line: Bytes, number: usize, asked: Asked<'_>) -> Answer<Sent> {
    let mut entry = audit::Entry::of_line(&app.caller, number);
    let sent = match ready(app, line, asked.of_line(number)) {
        Err(problem) => Err(problem),
        Ok(ready) => {
            if let Some(entry) = &mut entry {
                entry.is(ready.verb, &ready.key, ready.reason.as_deref());
            }
            send(app, ready).await
        }
    };
    if let Some(entry) = entry {
        entry.end_event(sent.as_ref().err());
    }
    sent
}

/// Show a task: its state, every attempt, its result, and every event about it.
#[utoipa::path(get, path = "/v1/tasks/{queue}/{id}", params(TaskName), responses(
    (status = 200, body = TaskView), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn show(app: App, TaskPath(key): TaskPath, _: NoParams) -> Answer<Json<TaskView>> {
    let found = find(&app, &key).await?;
    let mut view = found.view;
    if view.payload.is_none() {
        let stored = app.node.store().payload(found.shard, found.place).await?;
        view.payload = stored.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    }
    let earlier = found.earlier.iter().map(|place| app.node.store().facts(found.shard, *place));
    for facts in join_all(earlier).await {
        // What retention has forgotten is left out.
        view.earlier.extend(EarlierView::of(&facts?));
    }
    Ok(Json(view))
}

/// The task an id stands for, and where it lies.
pub(super) struct Found {
    pub(super) view: TaskView,
    pub(super) shard: Shard,
    pub(super) place: Place,
    /// Where the tasks lie that it stood for before, newest first.
    earlier: Vec<Place>,
}

/// Tasks that an id stood for before and that are shown.
const EARLIER_MAX: usize = 10;

/// The events of a task, newest first. Where its queue is run here, it is known without reading which there may be.
pub(super) async fn history(app: &App, key: &TaskKey) -> Result<Vec<EventRow>, store::Error> {
    let (shard, keys) = (home_shard(&key.queue, app.node.cluster().shards), vec![key.clone()]);
    let listed = app.node.service().ask(shard, move |engine| engine.listed_versions(&keys)).await;
    let listed = listed.flatten().map(|of_keys| of_keys.concat());
    app.node.store().history(key.clone(), limits::HISTORY_MAX, listed).await
}

pub(super) async fn find(app: &App, key: &TaskKey) -> Answer<Found> {
    let missing = || {
        let detail = format!("No task {} of queue {} is known.", key.id, key.queue);
        Problem::not_found("unknown_task", detail)
    };
    let mut rows = history(app, key).await?;
    // Of several rows of a version that of the highest epoch counts, and comes first.
    rows.dedup_by_key(|row| row.version);
    let newest = rows.first().ok_or_else(missing)?;
    let place = newest.current.ok_or_else(missing)?.place;
    let shard = newest.shard;
    let facts = app.node.store().facts(shard, place).await?;
    let mut view = task_view(&facts).ok_or_else(missing)?;
    if view.state == TaskState::Cancelled.word() {
        let cancel = rows.iter().find(|row| row.decision == Decision::Cancelled);
        view.reason = cancel.and_then(|row| row.reason.clone());
    }
    view.events = rows.iter().map(DecisionView::of).collect();
    let mut earlier: Vec<Place> = rows.iter().filter_map(|row| Some(row.current?.place)).collect();
    earlier.dedup();
    earlier.retain(|of| *of != place);
    earlier.truncate(EARLIER_MAX);
    Ok(Found { view, shard, place, earlier })
}

/// The state of a task at this moment.
///
/// # Errors
/// No such task is known, or the store does not answer.
pub(super) async fn state_of(app: &App, key: &TaskKey) -> Answer<String> {
    Ok(find(app, key).await?.view.state)
}

/// Why, in the caller's words.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelBody {
    /// Why.
    #[serde(default)]
    reason: Option<String>,
}

/// The new due time: `due_at` or `delay`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RescheduleBody {
    /// RFC 3339.
    #[serde(default)]
    due_at: Option<String>,
    /// `10s`, `PT10M`.
    #[serde(default)]
    delay: Option<String>,
    /// Why.
    #[serde(default)]
    reason: Option<String>,
}

/// Cancel a task. With `Prefer: wait=N`: 200 when it was in time, 409 `too_late` when not.
#[utoipa::path(post, path = "/v1/tasks/{queue}/{id}/cancel", params(TaskName, EventHeaders),
    request_body = CancelBody, responses((status = 202, body = Accepted), (status = 200, body = Accepted),
    (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn cancel(
    app: App,
    TaskPath(key): TaskPath,
    _: NoParams,
    headers: HeaderMap,
    Body(body): Body,
) -> Answer<Response> {
    let wanted: CancelBody = read(&body)?;
    change(&app, "cancel", &key, vec![("reason", wanted.reason)], &headers).await
}

/// Run a task at another time. With `Prefer: wait=N`: 200 when it was in time, 409 `too_late` when not.
#[utoipa::path(post, path = "/v1/tasks/{queue}/{id}/reschedule", params(TaskName, EventHeaders),
    request_body = RescheduleBody, responses((status = 202, body = Accepted), (status = 200, body = Accepted),
    (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn reschedule(
    app: App,
    TaskPath(key): TaskPath,
    _: NoParams,
    headers: HeaderMap,
    Body(body): Body,
) -> Answer<Response> {
    let wanted: RescheduleBody = read(&body)?;
    let fields = vec![("due_at", wanted.due_at), ("delay", wanted.delay), ("reason", wanted.reason)];
    change(&app, "reschedule", &key, fields, &headers).await
}

/// How a closed task runs again; at most one of `due_at` and `delay`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RedriveBody {
    /// RFC 3339; now when nothing is said.
    due_at: Option<String>,
    /// `10s`, `PT10M`.
    delay: Option<String>,
    /// What the handler is given from now on; what it had when nothing is said.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    payload: Option<Box<RawValue>>,
    /// Why.
    reason: Option<String>,
}

/// Run a task again that is dead, expired, skipped or dropped: as a new version, with all its attempts.
/// With `Prefer: wait=N`: 200 when it runs again, 409 `not_dead` when it is in another state.
#[utoipa::path(post, path = "/v1/tasks/{queue}/{id}/redrive", params(TaskName, EventHeaders),
    request_body = RedriveBody, responses((status = 202, body = Accepted), (status = 200, body = Accepted),
    (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn redrive(
    app: App,
    TaskPath(key): TaskPath,
    _: NoParams,
    headers: HeaderMap,
    Body(body): Body,
) -> Answer<Response> {
    let RedriveBody { due_at, delay, payload, reason } =
        read_up_to(&body, app.node.rules().event_bytes_max())?;
    let (queue, id) = (Some(key.queue.to_string()), key.id.to_string());
    let request = RedriveRequest { queue, id, due_at, delay, payload, reason, ..RedriveRequest::default() };
    written(&app, encode(&Request::Redrive(request)), &headers).await
}

/// Break off the attempt of a task that is under way. Its queue waits for the attempt's deadline, as its handler may still be at
/// work; then it is tried again, and no attempt is used up. With `Prefer: wait=N`: 409 `not_running` when nothing runs.
#[utoipa::path(post, path = "/v1/tasks/{queue}/{id}/abort", params(TaskName, EventHeaders),
    request_body = CancelBody, responses((status = 202, body = Accepted), (status = 200, body = Accepted),
    (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn abort(
    app: App,
    TaskPath(key): TaskPath,
    _: NoParams,
    headers: HeaderMap,
    Body(body): Body,
) -> Answer<Response> {
    let wanted: CancelBody = read(&body)?;
    change(&app, "abort", &key, vec![("reason", wanted.reason)], &headers).await
}

/// Run a task now that is not due yet, or waits for its next try: a reschedule to now.
#[utoipa::path(post, path = "/v1/tasks/{queue}/{id}/run", params(TaskName, EventHeaders),
    request_body = CancelBody, responses((status = 202, body = Accepted), (status = 200, body = Accepted),
    (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn run(
    app: App,
    TaskPath(key): TaskPath,
    _: NoParams,
    headers: HeaderMap,
    Body(body): Body,
) -> Answer<Response> {
    let wanted: CancelBody = read(&body)?;
    // Each is an event of its own: the same words a second time would be a repeat.
    let now = format_time(app.node.service().clock().now().wall);
    let fields = vec![("due_at", Some(now)), ("reason", wanted.reason)];
    change(&app, "reschedule", &key, fields, &headers).await
}

/// An empty body stands for `{}`.
pub(super) fn read<T: serde::de::DeserializeOwned>(body: &Bytes) -> Answer<T> {
    read_up_to(body, limits::SMALL_BODY_BYTES_MAX)
}

fn read_up_to<T: serde::de::DeserializeOwned>(body: &Bytes, bytes_max: usize) -> Answer<T> {
    if body.len() > bytes_max {
        let detail = format!("The body has {} bytes, at most {bytes_max} are taken.", body.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
    }
    let text: &[u8] = if body.trim_ascii().is_empty() { b"{}" } else { body };
    expect_object(text)?;
    serde_json::from_slice(text)
        .map_err(|error| Problem::bad_request("invalid_body", format!("The body: {error}.")).at(""))
}

/// Sends an event about a task, with the fields that are given.
async fn change(
    app: &App,
    verb: &str,
    key: &TaskKey,
    fields: Vec<(&str, Option<String>)>,
    headers: &HeaderMap,
) -> Answer<Response> {
    let mut event = serde_json::json!({ "type": verb, "queue": key.queue.as_str(), "id": key.id.as_str() });
    for (name, value) in fields {
        if let Some(value) = value {
            event[name] = value.into();
        }
    }
    written(app, Bytes::from(event.to_string()), headers).await
}

/// Sends an event as the headers ask, and answers with what became of it.
async fn written(app: &App, event: Bytes, headers: &HeaderMap) -> Answer<Response> {
    let ready = ready(app, event, Asked::read(headers)?)?;
    app.caller.note.about(audit::task(&ready.key));
    app.caller.note.reason(ready.reason.as_deref());
    let sent = send(app, ready).await?;
    let (status, accepted) = answer(app, sent, wait_until(headers)).await?;
    Ok((status, Json(accepted)).into_response())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex, PoisonError};

    use futures::FutureExt as _;
    use serde_json::Value;

    use super::*;
    use crate::config::{Config, Role};
    use crate::model::{QueueName, TaskId};
    use crate::node::Node;
    use crate::server::access::Caller;
    use crate::server::hop;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Log {
        fn audited(&self) -> Vec<String> {
            let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let text = String::from_utf8(bytes).expect("UTF-8");
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            let audited = lines.filter(|line| line["target"] == "dueline::audit");
            let said = |line: Value| {
                let field = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
                ["who", "verb", "about", "reason", "outcome"].map(field).join(" | ")
            };
            audited.map(said).collect()
        }
    }

    // On one thread, whose log this is.
    #[tokio::test]
    async fn an_event_whose_request_is_broken_off_is_in_the_audit_log_and_may_be_written() {
        let log = Log::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().json().flatten_event(true);
        let _logged = tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish());
        let dir = tempfile::tempdir().expect("a folder");
        let address = "127.0.0.1:0".parse().expect("an address");
        let node = Node::builder(Config::dev(dir.path(), address)).start().await.expect("a node");
        let caller = Caller {
            who: Some("otto".into()),
            role: Role::Operator,
            note: audit::Note::kept(),
            ..Caller::nobody()
        };
        let app = App { node: node.clone(), http: hop::client(), caller };
        let headers = HeaderMap::new();
        let asked = Asked::read(&headers).expect("no headers");
        let mut expected = Vec::new();
        // A send that is over at the first look would be no broken-off one: the next is tried.
        let broken_off = (1..=100).find(|number| {
            let line =
                format!(r#"{{"queue":"q","id":"t{number}","delay":"1h","handler":"log","reason":"why"}}"#);
            let is_over = send_one(&app, line.into(), *number, asked).now_or_never().is_some();
            let outcome = if is_over { "accepted" } else { "unknown" };
            expected.push(format!("otto | task_schedule | task q/t{number} | why | {outcome}"));
            !is_over
        });
        let number = broken_off.expect("a send under way");
        assert_eq!(log.audited(), expected);
        // First in, first out: what was asked for before was written.
        node.producer().flush(10_000).await;
        let queue = QueueName::new("q").expect("a name");
        let key = TaskKey { queue, id: TaskId::new(&format!("t{number}")).expect("a name") };
        let decided = async {
            while find(&app, &key).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), decided).await.expect("it was written");
        node.stop().await;
    }
}
