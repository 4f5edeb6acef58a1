//! Queues, shards, handlers: what the owners know, gathered.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{OriginalUri, RawQuery};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::engine;
use crate::model::{QueueName, Shard, Wall, home_shard};
use crate::wire::time::format_time;

use super::params::{NoParams, Params, QueuePath};
use super::problem::Problem;
use super::views::{HandlerPage, HandlerView, LossView, QueuePage, QueueView, ShardPage, ShardView};
use super::{Answer, App, hop, limits};

/// Queues with ready tasks, by name, over all instances; with `blocked=true` those that do not move, and why.
#[utoipa::path(get, path = "/v1/queues", params(("blocked" = Option<bool>, Query), ("page_size" = Option<usize>, Query), ("page_token" = Option<String>, Query)),
    responses((status = 200, body = QueuePage), (status = 400, body = Problem)))]
pub(super) async fn queues(
    app: App,
    OriginalUri(uri): OriginalUri,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer<Json<QueuePage>> {
    let params = Params::read(query.as_deref(), &["blocked", "page_size", "page_token"])?;
    let only_blocked = params.flag("blocked")?;
    let size = params.page_size()?;
    let wrong = |error| super::params::parameter("page_token", &format!("{error}"));
    let after = params.text("page_token").map(QueueName::new).transpose().map_err(wrong)?;
    let own = hop::ask_all(&app, move |engine| engine.queues(after.as_ref(), only_blocked, size + 1)).await;
    let others = hop::ask_others::<QueuePage>(&app, &uri, &headers).await;
    let mut missing = [own.missing, others.missing].concat();
    let mut found: Vec<QueueView> = Vec::new();
    for (shard, queues) in own.found {
        found.extend(queues.iter().map(|queue| view_of(&app, shard, queue)));
    }
    for page in others.found {
        found.extend(page.queues);
        missing.extend(page.missing);
    }
    found.sort_by(|a, b| a.queue.cmp(&b.queue));
    // Two may think they own a shard for a moment.
    found.dedup_by(|a, b| a.queue == b.queue);
    let next_page_token = found.get(size).is_some().then(|| found[size - 1].queue.clone());
    // A part keeps one more than the page, so that whoever asked for it knows that there are more.
    found.truncate(size + usize::from(headers.contains_key(hop::HOP)));
    Ok(Json(QueuePage { queues: found, next_page_token, missing }))
}

fn view_of(app: &App, shard: Shard, queue: &engine::QueueView) -> QueueView {
    QueueView {
        queue: queue.queue.to_string(),
        shard: shard.0,
        ready: queue.ready,
        running: queue.busy,
        instance: app.node.config().instance.name.clone(),
        head: queue.head_id.as_ref().map(ToString::to_string),
        head_ready_at: queue.head.map(|place| format_time(place.ready_at)),
        next_try: queue.next_try.map(format_time),
        blocked: queue.blocked.map(|blocked| blocked.word().to_owned()),
        gate: queue.gate.as_ref().map(|bar| bar.target.to_string()),
        held_up: queue
            .waits_for
            .as_ref()
            .and_then(|lane| super::explain::holdup_in_view(app, lane))
            .map(|(view, _)| view),
    }
}

/// One queue; with nothing ready it is all zeros. Asked of its owner.
#[utoipa::path(get, path = "/v1/queues/{queue}", params(("queue" = String, Path)),
    responses((status = 200, body = QueueView), (status = 503, body = Problem)))]
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
    let found = hop::ask(&app, shard, move |engine| engine.queue(&name)).await;
    let found = found.ok_or_else(|| hop::no_owner(shard))?;
    let found = found.unwrap_or_else(|| engine::QueueView::nothing_of(queue));
    Ok(Json(view_of(&app, shard, &found)).into_response())
}

const SHARDS: &str = "/v1/shards";
const SHARDS_WITHOUT_LAG: &str = "/v1/shards?lag=false";

/// Every shard: its owner, epoch, progress. With `lag=false` Kafka is not asked how far it is behind, for whoever asks often.
#[utoipa::path(get, path = "/v1/shards", params(("lag" = Option<bool>, Query)),
    responses((status = 200, body = ShardPage)))]
pub(super) async fn shards(
    app: App,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer<Json<ShardPage>> {
    let with_lag = Params::read(query.as_deref(), &["lag"])?.flag_or("lag", true)?;
    let (known, missing) = everywhere(&app, &headers, with_lag).await?;
    Ok(Json(ShardPage { shards: known.into_values().collect(), missing }))
}

/// Every shard, by number, as its owner or else the store has it, and who did not answer. Without lag Kafka is not asked.
pub(super) async fn everywhere(
    app: &App,
    headers: &HeaderMap,
    with_lag: bool,
) -> Answer<(BTreeMap<u32, ShardView>, Vec<String>)> {
    let (mut known, mut missing) = own_shards(app, with_lag).await;
    let uri = Uri::from_static(if with_lag { SHARDS } else { SHARDS_WITHOUT_LAG });
    let others = hop::ask_others::<ShardPage>(app, &uri, headers).await;
    missing.extend(others.missing);
    for page in others.found {
        missing.extend(page.missing);
        for view in page.shards {
            // Two may think they own a shard for a moment: the higher epoch does.
            let newer = known.get(&view.shard).is_none_or(|own| own.epoch < view.epoch);
            if newer {
                known.insert(view.shard, view);
            }
        }
    }
    if !headers.contains_key(hop::HOP) {
        let unheard: Vec<u32> =
            (0..app.node.cluster().shards).filter(|shard| !known.contains_key(shard)).collect();
        let read = stream::iter(unheard).map(|shard| from_store(app, Shard(shard)));
        let read: Vec<ShardView> = read.buffered(limits::SHARDS_AT_ONCE).try_collect().await?;
        known.extend(read.into_iter().map(|view| (view.shard, view)));
    }
    Ok((known, missing))
}

/// The shards that this instance holds or is taking, and those that did not say.
async fn own_shards(app: &App, with_lag: bool) -> (BTreeMap<u32, ShardView>, Vec<String>) {
    let now = app.node.service().clock().now().boot;
    let asked = hop::ask_all(app, move |engine| engine.shard_view(now)).await;
    let held = asked.found.into_iter().filter(|(_, view)| !matches!(view.phase, "idle" | "fenced"));
    let shown = stream::iter(held).map(|(shard, view)| async move {
        let lag = if with_lag { lag(app, shard, &view).await } else { None };
        (shard.0, shard_view(app, shard, &view, lag))
    });
    (shown.buffered(limits::SHARDS_AT_ONCE).collect().await, asked.missing)
}

/// Records that a shard is behind its log, whose end is asked for; failing that, behind the end that it last heard of.
async fn lag(app: &App, shard: Shard, view: &engine::ShardView) -> Option<u64> {
    let end = tokio::time::timeout(limits::ASK_TIMEOUT, app.node.consumer().end(shard)).await;
    let next = end.ok().and_then(Result::ok).map(|end| end.next);
    let behind = next.or(view.log_end)?.saturating_sub(view.next_offset);
    Some(behind.max(view.backlog as u64))
}

fn shard_view(app: &App, shard: Shard, view: &engine::ShardView, lag: Option<u64>) -> ShardView {
    ShardView {
        shard: shard.0,
        owner: Some(app.node.config().instance.name.clone()),
        epoch: view.epoch.0,
        generation: Some(view.generation.0),
        phase: view.phase.to_owned(),
        stopped: view.stopped.as_ref().map(|loss| LossView {
            why: loss.why.clone(),
            first: loss.first,
            topic_id: loss.topic_id.clone(),
        }),
        applied: i64::try_from(view.next_offset).unwrap_or(i64::MAX) - 1,
        lag,
        watermark: watermark(view.watermark),
        tasks_in_memory: view.tasks,
    }
}

/// A shard that nobody answers for, as the store has it.
async fn from_store(app: &App, shard: Shard) -> Answer<ShardView> {
    let row = app.node.store().owner(shard).await?;
    let progress = app.node.store().progress(shard).await?;
    let free = row.released_epoch == row.epoch;
    Ok(ShardView {
        shard: shard.0,
        owner: (!free).then_some(row.instance),
        epoch: row.epoch.0,
        generation: Some(progress.as_ref().map_or(0, |progress| progress.generation.0)),
        stopped: None,
        phase: if free { "free" } else { "unknown" }.to_owned(),
        applied: progress.as_ref().map_or(-1, |p| i64::try_from(p.next_offset).unwrap_or(i64::MAX) - 1),
        lag: None,
        watermark: progress.and_then(|progress| watermark(progress.watermark)),
        tasks_in_memory: 0,
    })
}

/// A watermark that was not set yet is no time.
fn watermark(at: Wall) -> Option<String> {
    (at > Wall::MIN).then(|| format_time(at))
}

/// The handlers of this instance.
#[utoipa::path(get, path = "/v1/handlers", responses((status = 200, body = HandlerPage)))]
pub(super) async fn handlers(app: App, _: NoParams) -> Json<HandlerPage> {
    let view = |(name, kind, policy): (&crate::model::HandlerName, &'static str, crate::dispatch::Policy)| {
        HandlerView {
            name: name.to_string(),
            kind: kind.to_owned(),
            concurrency: policy.concurrency,
            rate: policy.rate.map(|rate| rate.to_string()),
            catch_up: policy.catch_up.map(|rate| rate.to_string()),
            intake: policy.intake.map(|rate| rate.to_string()),
            reserve_slots: policy.reserve.map(|reserve| reserve.slots),
            reserve_priority: policy.reserve.map(|reserve| reserve.priority),
            breaker_failures: policy.breaker.map(|breaker| breaker.failures),
            breaker_pause_ms: policy.breaker.map(|breaker| breaker.pause_ms),
            held_up: super::explain::holdup_view(&app, name).map(|(view, _)| view),
            held_up_apart: super::explain::holdups_apart(&app, name),
            timeout_ms: policy.timeout_ms,
            max_attempts: policy.retry.max_attempts,
        }
    };
    Json(HandlerPage { handlers: app.node.registry().handlers().map(view).collect() })
}
