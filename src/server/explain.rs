//! Why something is not running: a task, a queue, a handler.

use std::sync::Arc;

use axum::Json;
use axum::extract::OriginalUri;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::engine::{Explanation, Holdup, Lane, Whose};
use crate::model::{
    HandlerName, NameError, Outcome, QueueName, Target, TaskKey, TaskState, Wall, home_shard,
};
use crate::wire::time::{Round, format_time, parse_time};

use super::params::{HandlerPath, NoParams, QueuePath, TaskPath};
use super::problem::Problem;
use super::tasks::{Found, TaskName, find};
use super::views::{
    ExplainView, HandlerExplainView, HandlerInstanceView, NextView, QueueExplainView, ReasonView, TaskView,
};
use super::{Answer, App, hop};

/// Why a task is not running: every reason, and the earliest time it can start. Asked of the shard's owner.
#[utoipa::path(get, path = "/v1/tasks/{queue}/{id}/explain", params(TaskName),
    responses((status = 200, body = ExplainView), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn task(
    app: App,
    TaskPath(key): TaskPath,
    _: NoParams,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Answer<Response> {
    let found = match find(&app, &key).await {
        Err(problem) if problem.code == STORE_AWAY => {
            return Ok(Json(without_store(&app, key, &problem).await).into_response());
        }
        found => found?,
    };
    if is_finished(&found.view.state) {
        return Ok(Json(view_of(&app, of_view(found.view), &[Explanation::NotPending])).into_response());
    }
    let explained = match hop::to_owner(&app, found.shard, &uri, &headers).await {
        Ok(Some(answered)) => return Ok(answered),
        Ok(None) => explained_here(&app, &found).await,
        Err(problem) => Err(problem),
    };
    match explained {
        Err(problem) if OF_NO_OWNER.contains(&problem.code.as_str()) => {
            Ok(Json(without_owner(&app, found.view, &problem)?).into_response())
        }
        explained => Ok(Json(explained?).into_response()),
    }
}

/// The store does not answer.
const STORE_AWAY: &str = "store_unavailable";

/// What this instance knows by itself of a task while the store does not answer.
async fn without_store(app: &App, key: TaskKey, problem: &Problem) -> ExplainView {
    let shard = home_shard(&key.queue, app.node.cluster().shards);
    let sought = key.clone();
    let asked = hop::ask(app, shard, move |engine| {
        let known = engine.explain_in_memory(&sought);
        known.map_or_else(
            || (None, engine.not_running().into_iter().collect()),
            |(state, why)| (Some(state), why),
        )
    });
    let (state, known): (Option<TaskState>, Vec<Explanation>) = asked.await.unwrap_or_default();
    let word = state.map_or("unknown", TaskState::word);
    let told = (key.queue.to_string(), key.id.to_string(), word.to_owned());
    let mut view = view_of(app, told, &known);
    view.reasons.insert(0, ReasonView::of_problem(problem));
    if state.is_none() {
        let detail = format!(
            "Nothing is known here of the task without the store. It is of shard {}: the instance that runs that knows it if it is due soon; ask each.",
            shard.0
        );
        view.reasons.push(ReasonView::new("not_known", detail, None));
    }
    view
}

/// What it means that nobody can be asked about a shard's tasks.
const OF_NO_OWNER: [&str; 2] = ["no_owner", "owner_unreachable"];

/// What the store and this instance know of a task that no owner can be asked about.
fn without_owner(app: &App, task: TaskView, problem: &Problem) -> Answer<ExplainView> {
    let whose = whose(&task)?;
    let time = |text: &str| parse_time(text, Round::Up).ok();
    let now = app.node.service().clock().now().wall;
    let is_ahead = |text: Option<&str>| text.and_then(time).filter(|at| *at > now);
    let last = task.attempts.last();
    let waits = match (is_ahead(task.next_at.as_deref()), last) {
        (Some(at), Some(last)) => {
            let used = u32::from(last.outcome.as_deref() != Some(Outcome::NotCalled.word()));
            Some(Explanation::Retrying(last.attempt + used, at))
        }
        _ => is_ahead(Some(&task.ready_at)).map(Explanation::NotDue),
    };
    let closed = app.node.service().gates().closed();
    let bars = closed
        .iter()
        .flat_map(|known| known.closed.bars(&whose.queue, &whose.handler, whose.collection.as_deref()));
    let known: Vec<Explanation> = waits.into_iter().chain(bars.cloned().map(Explanation::Gate)).collect();
    let mut view = view_of(app, of_view(task), &known);
    view.reasons.insert(0, ReasonView::of_problem(problem));
    Ok(view)
}

fn whose(task: &TaskView) -> Answer<Whose> {
    let wrong = |what: &str, why: NameError| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("The {what}'s name {why}."))
    };
    Ok(Whose {
        queue: QueueName::new(&task.queue).map_err(|why| wrong("queue", why))?,
        handler: HandlerName::new(&task.handler).map_err(|why| wrong("handler", why))?,
        collection: task.collection.as_deref().map(Arc::from),
    })
}

/// Why an unfinished task of a shard of this instance is not running.
async fn explained_here(app: &App, found: &Found) -> Answer<ExplainView> {
    let (whose, shard, place) = (whose(&found.view)?, found.shard, found.place);
    let asked = hop::ask(app, shard, move |engine| engine.explain(&whose, place)).await;
    let reasons = asked.ok_or_else(|| hop::not_answered(app, shard))?;
    Ok(view_of(app, of_view(found.view.clone()), &reasons))
}

/// A task's queue, id and state.
type Told = (String, String, String);

fn of_view(task: TaskView) -> Told {
    (task.queue, task.id, task.state)
}

fn view_of(app: &App, (queue, id, state): Told, reasons: &[Explanation]) -> ExplainView {
    let held_up = held_up(app, reasons);
    let earliest = reasons.iter().filter_map(until).chain(held_up.as_ref().and_then(|(_, at)| *at)).max();
    ExplainView {
        queue,
        id,
        state,
        reasons: reasons.iter().map(ReasonView::of).chain(held_up.map(|(view, _)| view)).collect(),
        earliest_start: earliest.map(format_time),
    }
}

/// Why a queue does not move: what its head waits for, and how many stand behind it. Asked of its owner.
#[utoipa::path(get, path = "/v1/queues/{queue}/explain", params(("queue" = String, Path)),
    responses((status = 200, body = QueueExplainView), (status = 503, body = Problem)))]
pub(super) async fn queue(
    app: App,
    QueuePath(queue): QueuePath,
    _: NoParams,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Answer<Response> {
    let shard = home_shard(&queue, app.node.cluster().shards);
    if let Some(answered) = hop::to_owner(&app, shard, &uri, &headers).await? {
        return Ok(answered);
    }
    let name = queue.clone();
    let asked = hop::ask(&app, shard, move |engine| {
        (engine.queue(&name), engine.next_of(&name), engine.not_running())
    });
    let (found, next, not_running) = asked.await.ok_or_else(|| hop::not_answered(&app, shard))?;
    let mut view = QueueExplainView {
        queue: queue.to_string(),
        shard: shard.0,
        ready: found.as_ref().map_or(0, |queue| queue.ready),
        running: found.as_ref().map_or(0, |queue| queue.busy),
        not_running: not_running.as_ref().map(ReasonView::of),
        head: None,
        next: next.map(|(id, ready_at)| NextView { id: id.to_string(), ready_at: format_time(ready_at) }),
        gates: gates_on(&app, &Target::Queue(queue.clone())),
    };
    if let Some(id) = found.and_then(|queue| queue.head_id) {
        let head = find(&app, &TaskKey { queue, id }).await?;
        // It may have ended meanwhile.
        if !is_finished(&head.view.state) {
            view.head = Some(explained_here(&app, &head).await?);
        }
    }
    Ok(Json(view).into_response())
}

/// What the tasks of a handler wait for, on each instance.
#[utoipa::path(get, path = "/v1/handlers/{handler}/explain", params(("handler" = String, Path)),
    responses((status = 200, body = HandlerExplainView), (status = 404, body = Problem)))]
pub(super) async fn handler(
    app: App,
    HandlerPath(name): HandlerPath,
    _: NoParams,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Answer<Json<HandlerExplainView>> {
    if app.node.registry().policy(&name).is_none() {
        let known: Vec<&str> = app.node.registry().handlers().map(|(name, ..)| name.as_str()).collect();
        let detail = format!("No handler {name} is configured; there are: {}.", known.join(", "));
        return Err(Problem::not_found("unknown_handler", detail));
    }
    let asked = name.clone();
    let own = hop::ask_all(&app, move |engine| engine.handler_queues(&asked)).await;
    let others = hop::ask_others::<HandlerExplainView>(&app, &uri, &headers).await;
    let (slots_taken, concurrency) = app.node.service().slots_taken(&name);
    let mut here = HandlerInstanceView {
        instance: app.node.config().instance.name.clone(),
        concurrency,
        slots_taken,
        held_up: holdup_view(&app, &name).map(|(view, _)| view),
        held_up_apart: holdups_apart(&app, &name),
        ..HandlerInstanceView::default()
    };
    let mut next_try: Option<Wall> = None;
    for (_, queues) in own.found {
        here.in_line += queues.in_line;
        here.retrying += queues.retrying;
        here.at_gates += queues.at_gates;
        here.running += queues.running;
        next_try = next_try.into_iter().chain(queues.next_try).min();
    }
    here.next_try = next_try.map(format_time);
    let mut missing = [own.missing, others.missing].concat();
    let mut instances = vec![here];
    for part in others.found {
        instances.extend(part.instances);
        missing.extend(part.missing);
    }
    instances.sort_by(|a, b| a.instance.cmp(&b.instance));
    let gates = gates_on(&app, &Target::Handler(name.clone()));
    Ok(Json(HandlerExplainView { handler: name.to_string(), gates, instances, missing }))
}

/// The gates in force for everything, and for a target.
fn gates_on(app: &App, target: &Target) -> Vec<ReasonView> {
    let Some(known) = app.node.service().gates().closed() else { return Vec::new() };
    let bars = known.closed.bars_on(&Target::All).chain(known.closed.bars_on(target));
    bars.map(|bar| ReasonView::of(&Explanation::Gate(bar.clone()))).collect()
}

/// What holds up the slots of a task's handler, when it waits for one.
fn held_up(app: &App, reasons: &[Explanation]) -> Option<(ReasonView, Option<Wall>)> {
    let lane = reasons.iter().find_map(|reason| match reason {
        Explanation::WaitsForSlot { lane, .. } => Some(lane),
        _ => None,
    })?;
    holdup_in_view(app, lane)
}

/// What holds up the slots of a lane on this instance, and until when.
pub(super) fn holdup_in_view(app: &App, lane: &Lane) -> Option<(ReasonView, Option<Wall>)> {
    let holdup = app.node.service().holdup_in(lane)?;
    view_of_holdup(app, &lane.handler, lane.collection.as_deref(), holdup)
}

/// What holds up the slots of a handler on this instance, and until when.
pub(super) fn holdup_view(app: &App, handler: &HandlerName) -> Option<(ReasonView, Option<Wall>)> {
    let holdup = app.node.service().holdup(handler)?;
    view_of_holdup(app, handler, None, holdup)
}

/// What holds up some of the tasks of a handler on this instance.
pub(super) fn holdups_apart(app: &App, handler: &HandlerName) -> Vec<ReasonView> {
    let holdups = app.node.service().holdups_apart(handler).into_iter();
    let views = holdups
        .filter_map(|(collection, holdup)| view_of_holdup(app, handler, collection.as_deref(), holdup));
    views.map(|(view, _)| view).collect()
}

fn view_of_holdup(
    app: &App,
    handler: &HandlerName,
    collection: Option<&str>,
    holdup: Holdup,
) -> Option<(ReasonView, Option<Wall>)> {
    let (service, policy) = (app.node.service(), app.node.registry().policy(handler)?);
    let now = service.clock().now();
    let wall =
        |at: crate::model::Boot| now.wall.plus_ms(i64::try_from(at.ms_since(now.boot)).unwrap_or(i64::MAX));
    let until = holdup.until().map(wall);
    let limit = collection.and_then(|name| Some((name, app.node.config().collections.of(name)?)));
    Some((ReasonView::of_holdup(&holdup, &policy, limit, until), until))
}

fn until(reason: &Explanation) -> Option<Wall> {
    match reason {
        Explanation::NotDue(at) | Explanation::Retrying(_, at) | Explanation::HeldUntil(at) => Some(*at),
        Explanation::Behind { next_try, gate, .. } => {
            (*next_try).max(gate.as_ref().and_then(|bar| bar.until))
        }
        Explanation::Gate(bar) => bar.until,
        Explanation::ShardNotRunning(_, until) => *until,
        Explanation::GatesUnknown
        | Explanation::NotLoaded
        | Explanation::BeingDecided
        | Explanation::WaitsForSlot { .. }
        | Explanation::Running
        | Explanation::NotPending => None,
    }
}

fn is_finished(state: &str) -> bool {
    let unfinished = [TaskState::Scheduled, TaskState::Running, TaskState::Retrying, TaskState::Parked];
    unfinished.iter().all(|other| other.word() != state)
}
