//! Batches: one verb for many tasks, carried out by the instances whether anybody looks or not.

use std::sync::Arc;

use axum::Json;
use axum::extract::RawQuery;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Role;
use crate::model::limits::DUE_AHEAD_MS_MAX;
use crate::model::{
    Batch, BatchFilter, BatchProgress, BatchVerb, Change, CloseReason, HandlerName, KnownBatch, QueueName,
    TaskId, TaskState, Wall,
};
use crate::wire::row::percent_encode;
use crate::wire::time::{Round, format_duration_ms, format_time, parse_duration_ms, parse_time};

use super::body::Body;
use super::gates::{AuthorBody, field, made, text};
use super::params::{NoParams, Params, parameter};
use super::problem::Problem;
use super::produce::Asked;
use super::tasks::read;
use super::{Answer, App, limits};

const DAY_MS: i64 = 86_400_000;
/// Which tasks when no time is given, by when they may start: from so long ago to so long ahead.
const TASKS_BACK_MS: i64 = DAY_MS;
const TASKS_AHEAD_MS: i64 = 7 * DAY_MS;
/// Which dead letters when no time is given: those that died since so long ago.
const LETTERS_BACK_MS: i64 = 30 * DAY_MS;
/// The same of one that is named.
const LETTER_BACK_MS: i64 = 366 * DAY_MS;
/// Tasks a second when nothing is said: a redrive means calls at once.
const RATE: u32 = 1_000;
const REDRIVE_RATE: u32 = 100;
const RATE_MAX: u32 = 100_000;

/// A batch to be carried out. `queue`, `handler` or `collection` narrows it down, or `all` says that those of every queue are
/// meant; `state` and `died` choose among them.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BatchBody {
    /// cancel, reschedule (by `shift`), redrive or purge dead letters.
    verb: String,
    /// Of this queue.
    queue: Option<String>,
    /// With this id, of a queue.
    id: Option<String>,
    /// Of this handler.
    handler: Option<String>,
    /// Of this collection.
    collection: Option<String>,
    /// Cancel: scheduled, retrying, parked or running; all but running when not given. Reschedule: scheduled.
    state: Option<String>,
    /// Redrive and purge: exhausted, fatal, interrupted.
    died: Option<String>,
    /// Those of every queue, handler and collection in the time given.
    all: bool,
    /// From this time on, RFC 3339: tasks by when they may start (default: a day ago), dead letters by when they died (default: 30
    /// days ago; of one with an id a year ago).
    from: Option<String>,
    /// To before this one (default: in a week; for dead letters now).
    to: Option<String>,
    /// How far due times move: `1h`, `-30m`.
    shift: Option<String>,
    /// Tasks a second, at most: 1 to 100000. Default: 1000, of a redrive 100.
    rate: Option<u32>,
    /// Count, show the first, and change nothing.
    dry_run: bool,
    /// Who asks.
    by: Option<String>,
    /// Why; it goes with each event, too.
    reason: Option<String>,
}

/// A task by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct KeyView {
    /// Its queue.
    pub(super) queue: String,
    /// Its id.
    pub(super) id: String,
}

/// A batch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct BatchView {
    /// Its number: the one of the operation that began it.
    pub(super) id: u64,
    /// cancel, reschedule, redrive, purge.
    pub(super) verb: String,
    /// waiting (for an owner of its home shard), running, stopped, done.
    pub(super) state: String,
    /// Of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<String>,
    /// With this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<String>,
    /// Of this handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) handler: Option<String>,
    /// Of this collection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) collection: Option<String>,
    /// In this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) task_state: Option<String>,
    /// That died so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) died: Option<String>,
    /// From this time on …
    pub(super) from: String,
    /// … to before this one.
    pub(super) to: String,
    /// How far due times move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shift: Option<String>,
    /// Tasks a second, at most.
    pub(super) rate: u32,
    /// Nothing is changed.
    pub(super) dry_run: bool,
    /// Tasks that were found.
    pub(super) found: u64,
    /// Those that were asked to change: what was decided about each is in its history.
    pub(super) asked: u64,
    /// Those that cannot be asked, for good: the log of the instance names them.
    pub(super) failed: u64,
    /// The first of those that were found.
    pub(super) sample: Vec<KeyView>,
    /// Shards that are done, and all of them.
    pub(super) shards_done: u32,
    /// See there.
    pub(super) shards: u32,
    /// Who carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instance: Option<String>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trouble: Option<String>,
    /// When it began.
    pub(super) begun_at: String,
    /// When it was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) updated_at: Option<String>,
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// A page of batches.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct BatchPage {
    /// Newest first.
    pub(super) batches: Vec<BatchView>,
    /// Give it as `page_token` for what is older; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_page_token: Option<String>,
}

/// The batch named by `/v1/batches/{id}…`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchPath(u64);

impl<S: Send + Sync> FromRequestParts<S> for BatchPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<BatchPath> {
        let Path(id) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|why| Problem::bad_request("invalid_path", why.to_string()))?;
        let wrong =
            |_| Problem::bad_request("invalid_path", format!("The batch {id:?} in the path is no number."));
        id.parse().map(BatchPath).map_err(wrong)
    }
}

/// Begin a batch. It acts on what was there when it began, at the rate given, and goes on until it is done or stopped, whichever
/// instance is lost. It is on record when this answers. Sent again under the same `Idempotency-Key` it begins no second one.
#[utoipa::path(post, path = "/v1/batches", request_body = BatchBody, responses(
    (status = 202, body = BatchView), (status = 400, body = Problem), (status = 409, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn begin(
    app: App,
    _: NoParams,
    headers: HeaderMap,
    Body(body): Body,
) -> Answer<(StatusCode, Json<BatchView>)> {
    let wanted: BatchBody = read(&body)?;
    let now = app.node.service().clock().now().wall;
    let author = app.caller.author(wanted.by.clone(), wanted.reason.clone())?;
    let batch = wanted.batch(now)?;
    app.caller.note.about(format!("batch: {}", told(&batch)));
    expect_may(&app, &batch)?;
    let id = Asked::read(&headers)?.number().unwrap_or_else(|| uuid::Uuid::new_v4().as_u128());
    let change = Change::BatchBegun(batch.clone());
    let operation = app.node.service().gates().change_as(id, now, author, change).await?;
    app.caller.note.about(format!("batch {}: {}", operation.number, told(&batch)));
    // Under a key that was used before it is the one that began then.
    match &operation.change {
        Change::BatchBegun(begun) if begun.asks_the_same(&batch) => {
            let known = KnownBatch { batch: begun.clone(), begun: operation.clone(), stopped: None };
            Ok((StatusCode::ACCEPTED, Json(seen(app, known).await?)))
        }
        _ => {
            let detail =
                format!("Batch {} began under this Idempotency-Key and is another.", operation.number);
            Err(Problem::new(StatusCode::CONFLICT, "conflict", detail))
        }
    }
}

/// The batches, newest first.
#[utoipa::path(get, path = "/v1/batches", params(("page_size" = Option<usize>, Query), ("page_token" = Option<String>, Query)),
    responses((status = 200, body = BatchPage), (status = 503, body = Problem)))]
pub(super) async fn list(app: App, RawQuery(query): RawQuery) -> Answer<Json<BatchPage>> {
    let params = Params::read(query.as_deref(), &["page_size", "page_token"])?;
    let size = params.page_size()?;
    let wrong = |_| parameter("page_token", "is not one that was given out");
    let below = params.text("page_token").map_or(Ok(u64::MAX), |text| text.parse().map_err(wrong))?;
    app.node.service().gates().read().await?;
    let shown: Vec<KnownBatch> = {
        let batches = app.node.service().gates().batches();
        let older = batches.newest_first().filter(|known| known.begun.number < below);
        older.take(size + 1).cloned().collect()
    };
    let next = (shown.len() > size).then(|| shown[size - 1].begun.number.to_string());
    let views = stream::iter(shown.into_iter().take(size)).map(|known| seen(app.clone(), known));
    let mut views = std::pin::pin!(views.buffered(limits::SHARDS_AT_ONCE));
    let mut batches = Vec::new();
    while let Some(view) = views.next().await {
        batches.push(view?);
    }
    Ok(Json(BatchPage { batches, next_page_token: next }))
}

/// A batch, and how far it got.
#[utoipa::path(get, path = "/v1/batches/{id}", params(("id" = u64, Path)), responses(
    (status = 200, body = BatchView), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn show(app: App, BatchPath(id): BatchPath, _: NoParams) -> Answer<Json<BatchView>> {
    app.node.service().gates().read().await?;
    let known = known(&app, id)?;
    seen(app, known).await.map(Json)
}

/// Stop a batch. What was asked stays asked; it can be resumed.
#[utoipa::path(post, path = "/v1/batches/{id}/stop", params(("id" = u64, Path)), request_body = AuthorBody, responses(
    (status = 200, body = BatchView), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn stop(
    app: App,
    BatchPath(id): BatchPath,
    _: NoParams,
    Body(body): Body,
) -> Answer<Json<BatchView>> {
    change(app, id, &body, Change::BatchStopped(id)).await
}

/// Resume a batch that was stopped, where it was.
#[utoipa::path(post, path = "/v1/batches/{id}/resume", params(("id" = u64, Path)), request_body = AuthorBody, responses(
    (status = 200, body = BatchView), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn resume(
    app: App,
    BatchPath(id): BatchPath,
    _: NoParams,
    Body(body): Body,
) -> Answer<Json<BatchView>> {
    change(app, id, &body, Change::BatchResumed(id)).await
}

async fn change(app: App, id: u64, body: &bytes::Bytes, change: Change) -> Answer<Json<BatchView>> {
    app.caller.note.about(format!("batch {id}"));
    let author = read::<AuthorBody>(body)?.author(&app)?;
    let now = app.node.service().clock().now().wall;
    let gates = app.node.service().gates();
    gates.read().await?;
    let present = known(&app, id)?;
    let stops = matches!(change, Change::BatchStopped(_));
    if !stops {
        expect_may(&app, &present.batch)?;
    }
    let is_done = app.node.store().batch_progress(id).await?.is_some_and(|progress| progress.is_done);
    if is_done {
        let detail = format!("Batch {id} is done.");
        return Err(Problem::new(StatusCode::CONFLICT, "batch_done", detail));
    }
    if stops != present.stopped.is_some() {
        gates.change(now, author, change).await?;
    }
    let known = known(&app, id)?;
    seen(app, known).await.map(Json)
}

/// What destroys, and what goes over everything, is not daily work.
fn expect_may(app: &App, batch: &Batch) -> Answer<()> {
    match batch.verb {
        _ if batch.dry_run => Ok(()),
        BatchVerb::Purge => app.caller.expect(Role::Admin, "A purge"),
        _ if !batch.filter.is_narrow() => {
            app.caller.expect(Role::Admin, "A batch over more than a queue, a handler or a collection")
        }
        BatchVerb::Cancel | BatchVerb::Reschedule | BatchVerb::Redrive => Ok(()),
    }
}

/// What a batch does, as the audit log has it: `cancel queue=q from=… to=… dry_run`.
fn told(batch: &Batch) -> String {
    let BatchFilter { queue, id, handler, collection, state, died } = &batch.filter;
    let filter = [
        ("queue", queue.as_ref().map(QueueName::as_str)),
        ("id", id.as_ref().map(TaskId::as_str)),
        ("handler", handler.as_ref().map(HandlerName::as_str)),
        ("collection", collection.as_deref()),
        ("state", state.map(TaskState::word)),
        ("died", died.map(CloseReason::word)),
    ];
    let mut line = batch.verb.word().to_owned();
    if !batch.filter.is_narrow() {
        line.push_str(" all");
    }
    for (word, value) in filter {
        line.extend(value.map(|value| format!(" {word}={}", percent_encode(value))));
    }
    line.push_str(&format!(" from={} to={}", format_time(batch.from), format_time(batch.to)));
    if batch.shift_ms != 0 {
        line.push_str(&format!(" shift={}", shift_text(batch.shift_ms)));
    }
    if batch.dry_run {
        line.push_str(" dry_run");
    }
    line
}

fn known(app: &App, id: u64) -> Answer<KnownBatch> {
    let found = app.node.service().gates().batches().get(id).cloned();
    let detail = || format!("There is no batch {id}; `dueline batch list` shows what there is.");
    found.ok_or_else(|| Problem::not_found("unknown_batch", detail()))
}

async fn seen(app: App, known: KnownBatch) -> Answer<BatchView> {
    let progress = app.node.store().batch_progress(known.begun.number).await?;
    Ok(view(&app, &known, progress))
}

fn view(app: &App, known: &KnownBatch, progress: Option<BatchProgress>) -> BatchView {
    let KnownBatch { begun, batch, stopped } = known;
    let filter = &batch.filter;
    let shards = if filter.queue.is_some() { 1 } else { app.node.cluster().shards };
    let is_done = progress.as_ref().is_some_and(|progress| progress.is_done);
    let state = match (&progress, stopped) {
        _ if is_done => "done",
        (_, Some(_)) => "stopped",
        (None, None) => "waiting",
        (Some(_), None) => "running",
    };
    let text = |text: &Arc<str>| text.to_string();
    let sample = progress.iter().flat_map(|progress| &progress.sample);
    let count = |of: fn(&BatchProgress) -> u64| progress.as_ref().map_or(0, of);
    let shards_done = progress.as_ref().map_or(0, |progress| match is_done {
        true => shards,
        false if shards == 1 => 0,
        false => progress.shard.0,
    });
    BatchView {
        id: begun.number,
        verb: batch.verb.word().to_owned(),
        state: state.to_owned(),
        queue: filter.queue.as_ref().map(ToString::to_string),
        task_id: filter.id.as_ref().map(ToString::to_string),
        handler: filter.handler.as_ref().map(ToString::to_string),
        collection: filter.collection.as_ref().map(text),
        task_state: filter.state.map(|state| state.word().to_owned()),
        died: filter.died.map(|died| died.word().to_owned()),
        from: format_time(batch.from),
        to: format_time(batch.to),
        shift: (batch.shift_ms != 0).then(|| shift_text(batch.shift_ms)),
        rate: batch.rate,
        dry_run: batch.dry_run,
        found: count(|progress| progress.found),
        asked: count(|progress| progress.asked),
        failed: count(|progress| progress.failed),
        sample: sample.map(|key| KeyView { queue: key.queue.to_string(), id: key.id.to_string() }).collect(),
        shards_done,
        shards,
        instance: progress.as_ref().map(|progress| text(&progress.instance)),
        trouble: progress.as_ref().and_then(|progress| progress.trouble.as_ref().map(text)),
        begun_at: format_time(begun.at),
        updated_at: progress.as_ref().map(|progress| format_time(progress.at)),
        by: begun.by.as_ref().map(text),
        reason: begun.reason.as_ref().map(text),
    }
}

fn shift_text(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    format!("{sign}{}", format_duration_ms(ms.unsigned_abs()))
}

impl BatchBody {
    fn batch(&self, now: Wall) -> Answer<Batch> {
        let verb = BatchVerb::from_word(&self.verb).ok_or_else(|| {
            let known = BatchVerb::ALL.map(BatchVerb::word).join(", ");
            field("/verb", format!("is {:?}; it is one of {known}", self.verb))
        })?;
        let filter = self.filter(verb)?;
        if filter.is_narrow() == self.all {
            let detail = if self.all {
                "\"all\" is true beside a queue, a handler or a collection: give one of them."
            } else {
                "It goes over every queue: give \"queue\", \"handler\" or \"collection\", or \"all\": true if all are meant."
            };
            return Err(Problem::bad_request("invalid_body", detail).at("/all"));
        }
        let (from, to) = self.times(verb, now)?;
        let rate = self.rate.unwrap_or(if verb == BatchVerb::Redrive { REDRIVE_RATE } else { RATE });
        if !(1..=RATE_MAX).contains(&rate) {
            return Err(field("/rate", format!("is {rate}; it is a number from 1 to {RATE_MAX}")));
        }
        Ok(Batch { verb, filter, from, to, shift_ms: self.shift(verb)?, rate, dry_run: self.dry_run })
    }

    fn filter(&self, verb: BatchVerb) -> Answer<BatchFilter> {
        if self.id.is_some() && self.queue.is_none() {
            return Err(field("/id", "is given without its queue".to_owned()));
        }
        let collection = self.collection.clone().map(|name| text("/collection", name));
        let handler = self.handler.as_deref().map(|name| made("/handler", HandlerName::new(name)));
        Ok(BatchFilter {
            queue: self.queue.as_deref().map(|name| made("/queue", QueueName::new(name))).transpose()?,
            id: self.id.as_deref().map(|name| made("/id", TaskId::new(name))).transpose()?,
            handler: handler.transpose()?,
            collection: collection.transpose()?,
            state: self.state.as_deref().map(|word| state(verb, word)).transpose()?,
            died: self.died.as_deref().map(|word| died(verb, word)).transpose()?,
        })
    }

    fn times(&self, verb: BatchVerb, now: Wall) -> Answer<(Wall, Wall)> {
        let time = |pointer: &str, given: &Option<String>, default: Wall| match given {
            Some(text) => parse_time(text, Round::Down).map_err(|why| field(pointer, why.to_string())),
            None => Ok(default),
        };
        let of_letters = verb.is_of_dead_letters();
        let (back, ahead) = match of_letters {
            true if self.id.is_some() => (LETTER_BACK_MS, 0),
            true => (LETTERS_BACK_MS, 0),
            false => (TASKS_BACK_MS, TASKS_AHEAD_MS),
        };
        let from = time("/from", &self.from, now.plus_ms(-back))?.max(Wall(0));
        let to = time("/to", &self.to, now.plus_ms(ahead))?;
        // Those that die while it runs are left for the next one, or a task that dies at once would run for ever.
        let to = if of_letters { to.min(now) } else { to.min(now.plus_ms(2 * DUE_AHEAD_MS_MAX)) };
        if from >= to {
            let detail = format!("ends at {}, which is not after its begin", format_time(to));
            return Err(field("/to", detail));
        }
        Ok((from, to))
    }

    fn shift(&self, verb: BatchVerb) -> Answer<i64> {
        let Some(text) = self.shift.as_deref() else {
            let is_wanted = verb == BatchVerb::Reschedule;
            let missing =
                || field("/shift", "is missing: how far due times move, as \"1h\" or \"-30m\"".into());
            return if is_wanted { Err(missing()) } else { Ok(0) };
        };
        if verb != BatchVerb::Reschedule {
            return Err(field("/shift", format!("is given, and a {} moves nothing", verb.word())));
        }
        let (sign, length) = text.strip_prefix('-').map_or((1, text), |length| (-1, length));
        let ms = parse_duration_ms(length).map_err(|why| field("/shift", why.to_string()))?;
        let ms = i64::try_from(ms).ok().filter(|ms| (1..=DUE_AHEAD_MS_MAX).contains(ms));
        ms.map(|ms| sign * ms).ok_or_else(|| field("/shift", "is nothing, or more than ten years".to_owned()))
    }
}

fn state(verb: BatchVerb, word: &str) -> Answer<TaskState> {
    use TaskState::{Parked, Retrying, Running, Scheduled};
    let fit: &[TaskState] = match verb {
        BatchVerb::Cancel => &[Scheduled, Retrying, Parked, Running],
        BatchVerb::Reschedule => &[Scheduled],
        BatchVerb::Redrive | BatchVerb::Purge => &[],
    };
    let found = fit.iter().copied().find(|state| state.word() == word);
    found.ok_or_else(|| {
        let known: Vec<&str> = fit.iter().map(|state| state.word()).collect();
        let known =
            if known.is_empty() { "no state: dead letters are dead".to_owned() } else { known.join(", ") };
        field("/state", format!("is {word:?}; a {} takes {known}", verb.word()))
    })
}

fn died(verb: BatchVerb, word: &str) -> Answer<CloseReason> {
    let fit = [CloseReason::Exhausted, CloseReason::Fatal, CloseReason::Interrupted];
    if !verb.is_of_dead_letters() {
        return Err(field("/died", format!("is given, and a {} is not about dead letters", verb.word())));
    }
    let found = fit.into_iter().find(|reason| reason.word() == word);
    let detail = || format!("is {word:?}; it is one of exhausted, fatal, interrupted");
    found.ok_or_else(|| field("/died", detail()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Wall = Wall(1_900_000_000_000);

    fn batch(json: &str) -> Answer<Batch> {
        serde_json::from_str::<BatchBody>(json).expect("a body").batch(NOW)
    }

    #[test]
    fn a_batch_that_means_everything_says_so_and_dead_letters_of_later_are_left() {
        let refused = batch(r#"{"verb":"redrive"}"#).expect_err("everything");
        assert!(refused.detail.contains("\"all\": true"), "{}", refused.detail);
        assert!(batch(r#"{"verb":"redrive","all":true,"handler":"h"}"#).is_err());
        for every in [r#"{"verb":"cancel","state":"scheduled"}"#, r#"{"verb":"purge","died":"fatal"}"#] {
            let refused = batch(every).expect_err("the dead or the waiting of every queue");
            assert!(refused.detail.contains("\"all\": true"), "{}", refused.detail);
        }
        assert!(batch(r#"{"verb":"cancel","all":true,"state":"scheduled"}"#).is_ok());
        let all = batch(r#"{"verb":"redrive","all":true,"to":"2099-01-01T00:00:00Z"}"#).expect("a batch");
        assert_eq!((all.to, all.rate, all.filter.is_narrow()), (NOW, 100, false));
        let some = batch(r#"{"verb":"cancel","collection":"c"}"#).expect("a batch");
        assert_eq!((some.to, some.rate), (NOW.plus_ms(7 * DAY_MS), 1_000));
    }

    #[test]
    fn the_audit_log_has_what_a_batch_goes_over() {
        let told = |json: &str| told(&batch(json).expect("a batch"));
        let times = "from=2030-03-16T17:46:40.000Z to=2030-03-24T17:46:40.000Z";
        assert_eq!(
            told(r#"{"verb":"cancel","queue":"q 1","id":"a","handler":"h","state":"parked","dry_run":true}"#),
            format!("cancel queue=q%201 id=a handler=h state=parked {times} dry_run")
        );
        assert_eq!(
            told(r#"{"verb":"reschedule","collection":"c","shift":"-30m"}"#),
            format!("reschedule collection=c {times} shift=-30m")
        );
        assert_eq!(
            told(r#"{"verb":"purge","all":true,"died":"fatal"}"#),
            "purge all died=fatal from=2030-02-15T17:46:40.000Z to=2030-03-17T17:46:40.000Z"
        );
        assert!(told(r#"{"verb":"purge","all":true}"#).starts_with("purge all from="));
    }

    #[test]
    fn a_shift_goes_either_way_and_belongs_to_a_reschedule() {
        let shift = |text: &str| {
            batch(&format!(r#"{{"verb":"reschedule","queue":"q","shift":"{text}"}}"#))
                .map(|batch| batch.shift_ms)
        };
        assert_eq!(shift("1h").expect("a shift"), 3_600_000);
        assert_eq!(shift("-30m").expect("a shift"), -1_800_000);
        for text in ["0s", "--1s", "soon", "", "4000d"] {
            assert!(shift(text).is_err(), "{text}");
        }
        assert!(batch(r#"{"verb":"reschedule","queue":"q"}"#).is_err());
        assert!(batch(r#"{"verb":"cancel","queue":"q","shift":"1h"}"#).is_err());
    }

    #[test]
    fn what_does_not_fit_the_verb_is_refused_by_name() {
        for (json, pointer) in [
            (r#"{"verb":"delete","all":true}"#, "/verb"),
            (r#"{"verb":"cancel","queue":"q","rate":0}"#, "/rate"),
            (r#"{"verb":"cancel","id":"a"}"#, "/id"),
            (r#"{"verb":"cancel","state":"dead"}"#, "/state"),
            (r#"{"verb":"redrive","state":"dead"}"#, "/state"),
            (r#"{"verb":"cancel","died":"fatal"}"#, "/died"),
            (r#"{"verb":"purge","died":"old"}"#, "/died"),
            (r#"{"verb":"purge","all":true,"from":"2099-01-01T00:00:00Z"}"#, "/to"),
        ] {
            let refused = batch(json).expect_err(json);
            assert!(refused.detail.starts_with(pointer), "{json}: {}", refused.detail);
        }
    }
}
