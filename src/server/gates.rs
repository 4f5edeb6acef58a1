//! Gates: set, clear, list; and what people changed, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Role;
use crate::model::limits::TEXT_BYTES_MAX;
use crate::model::{Change, Gate, GateAction, HandlerName, NameError, Operation, QueueName, Target, Wall};
use crate::runtime::gates::{Author, ON_DEAD};
use crate::wire::blackout;
use crate::wire::time::{Round, format_time, parse_duration_ms, parse_time};

use super::body::Body;
use super::params::{NoParams, Params, QueuePath};
use super::problem::Problem;
use super::tasks::read;
use super::{Answer, App};

/// The name of a gate that is given none.
const MANUAL: &str = "manual";

/// A gate to be set. Exactly one of `all`, `handler`, `queue` and `collection` says what it stops.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GateBody {
    /// Everything.
    all: bool,
    /// The tasks of a handler.
    handler: Option<String>,
    /// The tasks of a queue.
    queue: Option<String>,
    /// The tasks of a collection.
    collection: Option<String>,
    /// Tells it from others of the same target; `manual` when not given.
    name: Option<String>,
    /// `pause` (default): tasks wait, and their queues with them. `drop`: they are closed as dropped.
    action: Option<String>,
    /// Break off attempts under way, too.
    abort_running: bool,
    /// Until then, RFC 3339.
    until: Option<String>,
    /// For so long from now.
    #[serde(rename = "for")]
    duration: Option<String>,
    /// Only then: days, times of day and an IANA zone, such as `mon-fri 22:00-06:00 Europe/Berlin`.
    blackout: Option<String>,
    /// Who sets it; with tokens it stands in brackets behind the name of the token.
    by: Option<String>,
    /// Why.
    reason: Option<String>,
}

/// A gate to be cleared.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClearBody {
    /// Everything.
    all: bool,
    /// The tasks of a handler.
    handler: Option<String>,
    /// The tasks of a queue.
    queue: Option<String>,
    /// The tasks of a collection.
    collection: Option<String>,
    /// Which of several of the same target; `manual` when not given.
    name: Option<String>,
    /// Who clears it.
    by: Option<String>,
    /// Why.
    reason: Option<String>,
}

/// Who and why, of a pause and a resume of a queue.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AuthorBody {
    /// Who.
    by: Option<String>,
    /// Why.
    reason: Option<String>,
}

impl AuthorBody {
    /// The author.
    pub(super) fn author(self, app: &App) -> Answer<Author> {
        app.caller.author(self.by, self.reason)
    }
}

/// What a gate stops, or what is drained.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(super) struct TargetView {
    /// all, handler, queue, collection; instance, dc.
    pub(super) target: String,
    /// The name of the handler, queue, collection, instance or data centre.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<String>,
}

/// A gate.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct GateView {
    /// What it stops.
    #[serde(flatten)]
    pub(super) target: TargetView,
    /// Tells it from others of the same target.
    pub(super) name: String,
    /// pause, drop.
    pub(super) action: String,
    /// Whether attempts under way were broken off.
    pub(super) abort_running: bool,
    /// Whether it is in force at this moment.
    pub(super) in_force: bool,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    /// Only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blackout: Option<String>,
    /// When it was set.
    pub(super) set_at: String,
    /// Who set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The operation that set it.
    pub(super) operation: u64,
}

/// The gates.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct GatePage {
    /// All that were set and not cleared; those whose time is over are not in force.
    pub(super) gates: Vec<GateView>,
}

/// What a person changed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct OperationView {
    /// Its number, rising.
    pub(super) number: u64,
    /// When.
    pub(super) at: String,
    /// gate_set, gate_cleared, batch_begun, batch_stopped, batch_resumed, drained, undrained.
    pub(super) change: String,
    /// What the gate stops, or what is drained.
    #[serde(flatten)]
    pub(super) target: TargetView,
    /// The gate's name.
    pub(super) name: String,
    /// pause, drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<String>,
    /// The batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) batch: Option<u64>,
    /// Who.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// A page of operations.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct OperationPage {
    /// Newest first.
    pub(super) operations: Vec<OperationView>,
    /// Give it as `page_token` for what is older; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_page_token: Option<String>,
}

/// Set a gate, in place of one of the same target and name. It is durable when this answers, in force on this instance, and
/// within two seconds on every other that reaches the store.
#[utoipa::path(post, path = "/v1/gates", request_body = GateBody, responses(
    (status = 200, body = GateView), (status = 400, body = Problem)))]
pub(super) async fn set(app: App, _: NoParams, Body(body): Body) -> Answer<Json<GateView>> {
    let wanted: GateBody = read(&body)?;
    let now = app.node.service().clock().now().wall;
    let (target, name) = (
        target(&app, wanted.all, [wanted.handler, wanted.queue, wanted.collection], true)?,
        name(wanted.name)?,
    );
    app.caller.note.about(told(&target, &name));
    let action = match wanted.action.as_deref() {
        None => GateAction::Pause,
        Some(word) => GateAction::from_word(word)
            .ok_or_else(|| field("/action", format!("is {word:?}; it is \"pause\" or \"drop\"")))?,
    };
    let blackout = wanted.blackout.as_deref().map(blackout::parse).transpose();
    let gate = Gate {
        target,
        name,
        action,
        abort_running: wanted.abort_running,
        until: until(now, wanted.until.as_deref(), wanted.duration.as_deref())?,
        blackout: blackout.map_err(|why| field("/blackout", why.to_string()))?,
    };
    let author = app.caller.author(wanted.by, wanted.reason)?;
    app.caller.note.about(told_whole(&gate));
    expect_may(&app, &gate.target)?;
    change(&app, now, author, Change::GateSet(gate)).await
}

/// Clear a gate: what waited at it goes on.
#[utoipa::path(post, path = "/v1/gates:clear", request_body = ClearBody, responses(
    (status = 200, body = GateView), (status = 404, body = Problem)))]
pub(super) async fn clear(app: App, _: NoParams, Body(body): Body) -> Answer<Json<GateView>> {
    let wanted: ClearBody = read(&body)?;
    // A handler may have gone since its gate was set.
    let target = target(&app, wanted.all, [wanted.handler, wanted.queue, wanted.collection], false)?;
    let name = name(wanted.name)?;
    app.caller.note.about(told(&target, &name));
    let author = app.caller.author(wanted.by, wanted.reason)?;
    expect_may(&app, &target)?;
    clear_one(&app, target, name, author).await
}

/// Pause a queue: a gate on it, named `manual`.
#[utoipa::path(post, path = "/v1/queues/{queue}/pause", params(("queue" = String, Path)), request_body = AuthorBody,
    responses((status = 200, body = GateView)))]
pub(super) async fn pause(
    app: App,
    QueuePath(queue): QueuePath,
    _: NoParams,
    Body(body): Body,
) -> Answer<Json<GateView>> {
    app.caller.note.about(format!("queue {queue}"));
    let author = read::<AuthorBody>(&body)?.author(&app)?;
    let now = app.node.service().clock().now().wall;
    let gate = Gate::pause(Target::Queue(queue), Arc::from(MANUAL));
    change(&app, now, author, Change::GateSet(gate)).await
}

/// Resume a queue: clears the gate that a pause set, and the one that the death of a task set (`on_dead: stop`).
#[utoipa::path(post, path = "/v1/queues/{queue}/resume", params(("queue" = String, Path)), request_body = AuthorBody,
    responses((status = 200, body = GateView), (status = 404, body = Problem)))]
pub(super) async fn resume(
    app: App,
    QueuePath(queue): QueuePath,
    _: NoParams,
    Body(body): Body,
) -> Answer<Json<GateView>> {
    app.caller.note.about(format!("queue {queue}"));
    let author = read::<AuthorBody>(&body)?.author(&app)?;
    let (gates, target) = (app.node.service().gates().read().await?, Target::Queue(queue));
    if gates.get(&target, ON_DEAD).is_some() {
        let cleared = clear_one(&app, target.clone(), Arc::from(ON_DEAD), author.clone()).await?;
        if gates.get(&target, MANUAL).is_none() {
            return Ok(cleared);
        }
    }
    clear_one(&app, target, Arc::from(MANUAL), author).await
}

/// The gates that were set and not cleared.
#[utoipa::path(get, path = "/v1/gates", responses((status = 200, body = GatePage), (status = 503, body = Problem)))]
pub(super) async fn list(app: App, _: NoParams) -> Answer<Json<GatePage>> {
    let now = app.node.service().clock().now().wall;
    let gates = app.node.service().gates().read().await?;
    let views = gates.iter().map(|(gate, operation)| view(gate, operation, now));
    Ok(Json(GatePage { gates: views.collect() }))
}

/// What people changed: gates set and cleared, batches, drains, by whom and why. Newest first.
#[utoipa::path(get, path = "/v1/operations", params(("page_size" = Option<usize>, Query), ("page_token" = Option<String>, Query)),
    responses((status = 200, body = OperationPage), (status = 503, body = Problem)))]
pub(super) async fn operations(app: App, RawQuery(query): RawQuery) -> Answer<Json<OperationPage>> {
    let params = Params::read(query.as_deref(), &["page_size", "page_token"])?;
    let size = params.page_size()?;
    let wrong = || super::params::parameter("page_token", "is not one that was given out");
    let to = match params.text("page_token") {
        Some(text) => text.parse::<u64>().map_err(|_| wrong())?,
        None => app.node.service().gates().read().await?.last(),
    };
    let after = to.saturating_sub(size as u64);
    let taken = usize::try_from(to - after).unwrap_or(size);
    let found = app.node.service().gates().operations(after, taken).await?;
    let operations = found.iter().rev().map(operation_view).collect();
    Ok(Json(OperationPage { operations, next_page_token: (after > 0).then(|| after.to_string()) }))
}

async fn clear_one(app: &App, target: Target, name: Arc<str>, author: Author) -> Answer<Json<GateView>> {
    let now = app.node.service().clock().now().wall;
    let gates = app.node.service().gates().read().await?;
    let set = gates.get(&target, &name).cloned();
    let Some((Change::GateSet(gate), set)) = set.map(|set| (set.change.clone(), set)) else {
        let detail = format!("There is no gate {name} on {target}; `dueline gate list` shows what there is.");
        return Err(Problem::not_found("unknown_gate", detail));
    };
    let cleared = Change::GateCleared(target, name);
    app.node.service().gates().change(now, author, cleared).await?;
    Ok(Json(GateView { in_force: false, ..view(&gate, &set, now) }))
}

async fn change(app: &App, now: Wall, author: Author, change: Change) -> Answer<Json<GateView>> {
    let operation = app.node.service().gates().change(now, author, change).await?;
    match &operation.change {
        Change::GateSet(gate) => Ok(Json(view(gate, &operation, now))),
        _ => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "a gate was set and is not")),
    }
}

fn view(gate: &Gate, operation: &Operation, now: Wall) -> GateView {
    GateView {
        target: target_view(&gate.target),
        name: gate.name.to_string(),
        action: gate.action.word().to_owned(),
        abort_running: gate.abort_running,
        in_force: gate.is_in_force(now, blackout::is_within),
        until: gate.until.map(format_time),
        blackout: gate.blackout.as_ref().map(blackout::format),
        set_at: format_time(operation.at),
        by: operation.by.as_ref().map(ToString::to_string),
        reason: operation.reason.as_ref().map(ToString::to_string),
        operation: operation.number,
    }
}

fn target_view(target: &Target) -> TargetView {
    TargetView { target: target.word().to_owned(), of: target.name().map(str::to_owned) }
}

fn operation_view(operation: &Operation) -> OperationView {
    let (change, gate, action) = match &operation.change {
        Change::GateSet(gate) => ("gate_set", Some((&gate.target, &gate.name)), Some(gate.action)),
        Change::GateCleared(target, name) => ("gate_cleared", Some((target, name)), None),
        Change::BatchBegun(_) => ("batch_begun", None, None),
        Change::BatchStopped(_) => ("batch_stopped", None, None),
        Change::BatchResumed(_) => ("batch_resumed", None, None),
        Change::Drained(_) => ("drained", None, None),
        Change::Undrained(_) => ("undrained", None, None),
        Change::ShardsReset(_) => ("shards_reset", None, None),
        Change::Other(word) => (&**word, None, None),
    };
    let place = match &operation.change {
        Change::Drained(place) | Change::Undrained(place) => Some(place),
        _ => None,
    };
    let shard = match &operation.change {
        Change::ShardsReset(resets) => {
            let shards = resets.iter().map(|reset| reset.shard.0.to_string());
            Some(("shards", shards.collect::<Vec<_>>().join(", ")))
        }
        _ => None,
    };
    let place = place.map(|place| (place.word(), place.name().to_owned())).or(shard);
    let place = place.map(|(word, name)| TargetView { target: word.to_owned(), of: Some(name) });
    let batch = match &operation.change {
        Change::BatchBegun(_) => Some(operation.number),
        Change::BatchStopped(number) | Change::BatchResumed(number) => Some(*number),
        _ => None,
    };
    OperationView {
        number: operation.number,
        at: format_time(operation.at),
        change: change.to_owned(),
        target: gate.map(|(target, _)| target_view(target)).or(place).unwrap_or_default(),
        name: gate.map(|(_, name)| name.to_string()).unwrap_or_default(),
        action: action.map(|action| action.word().to_owned()),
        batch,
        by: operation.by.as_ref().map(ToString::to_string),
        reason: operation.reason.as_ref().map(ToString::to_string),
    }
}

/// What a body says that a gate stops: exactly one thing.
fn target(app: &App, all: bool, named: [Option<String>; 3], is_new: bool) -> Answer<Target> {
    let [handler, queue, collection] = named;
    match (all, handler, queue, collection) {
        (true, None, None, None) => Ok(Target::All),
        (false, Some(handler), None, None) => {
            let handler = made("/handler", HandlerName::new(&handler))?;
            if !is_new || app.node.rules().handlers.knows(handler.as_str()) {
                return Ok(Target::Handler(handler));
            }
            let known: Vec<&str> = app.node.rules().handlers.names.iter().map(String::as_str).collect();
            let detail = format!("is {handler}, which is no handler here; there are: {}", known.join(", "));
            Err(Problem { code: "unknown_handler".to_owned(), ..field("/handler", detail) })
        }
        (false, None, Some(queue), None) => made("/queue", QueueName::new(&queue)).map(Target::Queue),
        (false, None, None, Some(collection)) if collection.is_empty() => {
            Err(field("/collection", "is empty".to_owned()))
        }
        (false, None, None, Some(collection)) => Ok(Target::Collection(text("/collection", collection)?)),
        _ => {
            let detail = "The body says what is stopped by exactly one of \"all\": true, \"handler\", \"queue\" and \"collection\".";
            Err(Problem::bad_request("invalid_body", detail).at(""))
        }
    }
}

/// A gate on everything stops or starts the whole installation.
fn expect_may(app: &App, target: &Target) -> Answer<()> {
    match target {
        Target::All => app.caller.expect(Role::Admin, "A gate on everything"),
        Target::Handler(_) | Target::Queue(_) | Target::Collection(_) => Ok(()),
    }
}

/// A gate, as the audit log names it.
fn told(target: &Target, name: &str) -> String {
    format!("gate {name} on {target}")
}

/// The same with what it does: `gate manual on queue q: drop abort_running until=…`.
fn told_whole(gate: &Gate) -> String {
    let mut line = format!("{}: {}", told(&gate.target, &gate.name), gate.action.word());
    if gate.abort_running {
        line.push_str(" abort_running");
    }
    line.extend(gate.until.map(|until| format!(" until={}", format_time(until))));
    line.extend(gate.blackout.as_ref().map(|rule| format!(" blackout={:?}", blackout::format(rule))));
    line
}

pub(super) fn made<T>(pointer: &str, name: Result<T, NameError>) -> Answer<T> {
    name.map_err(|why| field(pointer, why.to_string()))
}

fn name(given: Option<String>) -> Answer<Arc<str>> {
    let given = given.unwrap_or_else(|| MANUAL.to_owned());
    if given.is_empty() { Err(field("/name", "is empty".to_owned())) } else { text("/name", given) }
}

pub(super) fn text(pointer: &str, text: String) -> Answer<Arc<str>> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(field(pointer, format!("has {} bytes; at most {TEXT_BYTES_MAX} are taken", text.len())));
    }
    // It is shown on lines, which it must not add to.
    if text.contains(char::is_control) {
        return Err(field(pointer, NameError::ControlCharacter.to_string()));
    }
    Ok(Arc::from(text))
}

fn until(now: Wall, until: Option<&str>, duration: Option<&str>) -> Answer<Option<Wall>> {
    let at = match (until, duration) {
        (Some(_), Some(_)) => {
            return Err(field("/for", "is given beside /until: give one of them".to_owned()));
        }
        (None, None) => return Ok(None),
        (Some(text), None) => parse_time(text, Round::Up).map_err(|why| field("/until", why.to_string()))?,
        (None, Some(text)) => {
            let ms = parse_duration_ms(text).map_err(|why| field("/for", why.to_string()))?;
            now.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX))
        }
    };
    let pointer = if until.is_some() { "/until" } else { "/for" };
    if at <= now { Err(field(pointer, "is over already".to_owned())) } else { Ok(Some(at)) }
}

pub(super) fn field(pointer: &str, detail: String) -> Problem {
    Problem::bad_request("invalid_field", format!("{pointer} {detail}.")).at(pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_ends_in_the_future_and_is_given_one_end() {
        let now = Wall(1_000_000);
        assert_eq!(until(now, None, None).expect("none"), None);
        assert_eq!(until(now, None, Some("10s")).expect("a time"), Some(Wall(1_010_000)));
        for (at, length) in [(Some("1970-01-01T00:00:01Z"), None), (None, Some("0s")), (None, Some("soon"))] {
            assert_eq!(until(now, at, length).expect_err("refused").code, "invalid_field");
        }
        assert!(until(now, Some("2030-01-01T00:00:00Z"), Some("1s")).is_err());
    }

    #[test]
    fn the_audit_log_has_what_a_gate_does() {
        let mut gate = Gate::pause(Target::All, Arc::from(MANUAL));
        assert_eq!(told_whole(&gate), "gate manual on all: pause");
        gate.action = GateAction::Drop;
        gate.abort_running = true;
        gate.until = Some(Wall(1_900_000_000_000));
        gate.blackout = Some(blackout::parse("mon-fri 22:00-06:00 Europe/Berlin").expect("a blackout"));
        let blackout = "\"mon,tue,wed,thu,fri 22:00-06:00 Europe/Berlin\"";
        assert_eq!(
            told_whole(&gate),
            format!(
                "gate manual on all: drop abort_running until=2030-03-17T17:46:40.000Z blackout={blackout}"
            )
        );
    }

    #[test]
    fn a_name_has_no_control_characters() {
        assert_eq!(name(Some("nightly run".to_owned())), Ok("nightly run".into()));
        let refused = name(Some("x\n9  now  gate_set  all".to_owned())).expect_err("refused");
        assert_eq!((&*refused.code, &*refused.detail), ("invalid_field", "/name holds a control character."));
    }

    #[test]
    fn read_takes_an_empty_body() {
        let body: AuthorBody = read(&bytes::Bytes::new()).expect("nothing said");
        assert!(body.by.is_none() && body.reason.is_none());
    }
}
