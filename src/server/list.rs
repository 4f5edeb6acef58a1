//! Lists: tasks by queue and due range, and what was rejected.
//!
//! Tasks are read out of the `due` table over a time range, shard by shard, a bounded number of pages a request; the
//! page token is the place where reading goes on.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;

use crate::log::{Target, Topic};
use crate::model::{FactRow, Place, QueueName, Shard, Version, Wall, home_shard};

use super::params::{NoParams, Params, parameter};
use super::problem::Problem;
use super::views::{RejectedView, TaskPage, TaskView, known_state, task_view};
use super::{Answer, App};

/// Pages of the store that one request reads at most.
const READS_MAX: usize = 40;
const READ_ROWS: usize = 1_000;
const DAY_MS: i64 = 86_400_000;

/// What a list is narrowed down to.
struct Filter {
    queue: Option<QueueName>,
    state: Option<String>,
    handler: Option<String>,
    collection: Option<String>,
}

impl Filter {
    fn takes(&self, task: &TaskView) -> bool {
        let same =
            |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        self.queue.as_ref().is_none_or(|queue| queue.as_str() == task.queue)
            && same(&self.state, &task.state)
            && same(&self.handler, &task.handler)
            && same(&self.collection, task.collection.as_deref().unwrap_or_default())
    }
}

/// Where reading goes on.
#[derive(Clone, Copy)]
struct Position {
    shard: u32,
    place: Place,
}

/// List tasks by ready time, from `from` (default: a day ago) to before `to` (default: in a day).
/// A page may hold fewer tasks than asked for, and none; it is the last one when it has no `next_page_token`.
#[utoipa::path(get, path = "/v1/tasks", params(("queue" = Option<String>, Query), ("state" = Option<String>, Query),
    ("handler" = Option<String>, Query), ("collection" = Option<String>, Query), ("from" = Option<String>, Query),
    ("to" = Option<String>, Query), ("page_size" = Option<usize>, Query), ("page_token" = Option<String>, Query)),
    responses((status = 200, body = TaskPage), (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn tasks(State(app): State<App>, RawQuery(query): RawQuery) -> Answer<Json<TaskPage>> {
    let known = ["queue", "state", "handler", "collection", "from", "to", "page_size", "page_token"];
    let params = Params::read(query.as_deref(), &known)?;
    let now = app.node.service().clock().now().wall;
    let from = params.time("from")?.unwrap_or(now.plus_ms(-DAY_MS));
    let to = params.time("to")?.unwrap_or(now.plus_ms(DAY_MS));
    let text = |name: &str| params.text(name).map(str::to_owned);
    let filter = Filter {
        queue: params.queue()?,
        state: text("state"),
        handler: text("handler"),
        collection: text("collection"),
    };
    if let Some(state) = filter.state.as_ref().filter(|state| !known_state(state)) {
        return Err(parameter("state", &format!("is {state:?}, which is no state of a task")));
    }
    let shards = app.node.cluster().shards;
    let only = filter.queue.as_ref().map(|queue| home_shard(queue, shards));
    let (first, end) = only.map_or((0, shards), |shard| (shard.0, shard.0 + 1));
    let begin = Position { shard: first, place: Place::start_of(from) };
    let position = params.text("page_token").map(token).transpose()?.unwrap_or(begin);
    read(&app, &filter, position, (from, to), end, params.page_size()?).await.map(Json)
}

async fn read(
    app: &App,
    filter: &Filter,
    mut position: Position,
    (from, to): (Wall, Wall),
    end: u32,
    size: usize,
) -> Answer<TaskPage> {
    let mut page = TaskPage { tasks: Vec::new(), next_page_token: None };
    for _ in 0..READS_MAX {
        if position.shard >= end {
            return Ok(page);
        }
        let (shard, until) = (Shard(position.shard), Place::start_of(to));
        let slice = app.node.store().slice(shard, position.place, until, READ_ROWS).await?;
        for rows in slice.rows.chunk_by(|a, b| a.place == b.place) {
            if page.tasks.len() == size {
                page.next_page_token = Some(token_of(Position { place: rows[0].place, ..position }));
                return Ok(page);
            }
            page.tasks.extend(listed(rows).filter(|task| filter.takes(task)));
        }
        position = match slice.next {
            Some(place) => Position { place, ..position },
            None => Position { shard: position.shard + 1, place: Place::start_of(from) },
        };
    }
    page.next_page_token = (position.shard < end).then(|| token_of(position));
    Ok(page)
}

fn listed(rows: &[FactRow]) -> Option<TaskView> {
    task_view(rows).map(|task| TaskView { payload: None, ..task })
}

fn token_of(position: Position) -> String {
    format!("{}.{}.{}", position.shard, position.place.ready_at.0, position.place.version.0)
}

fn token(text: &str) -> Answer<Position> {
    let wrong = || parameter("page_token", "is not one that was given out");
    let mut parts = text.split('.');
    let mut next = || parts.next().ok_or_else(wrong);
    let shard = next()?.parse().map_err(|_| wrong())?;
    let ready_at = Wall(next()?.parse().map_err(|_| wrong())?);
    let version = Version(next()?.parse().map_err(|_| wrong())?);
    Ok(Position { shard, place: Place { ready_at, version } })
}

/// The newest rejected records: embedded only; on Kafka read the rejected topic itself.
#[utoipa::path(get, path = "/v1/rejected", responses((status = 200, body = Vec<RejectedView>), (status = 501, body = Problem)))]
pub(super) async fn rejected(State(app): State<App>, _: NoParams) -> Answer<Json<Vec<RejectedView>>> {
    let Some(log) = app.node.embedded_log() else {
        let topic = Topic::Rejected.name(&app.node.config().topics.prefix);
        let detail = format!("Read the topic itself, for example: kcat -C -t {topic} -f '%h %s\\n'");
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "read_the_topic", detail));
    };
    let mut found = Vec::new();
    for partition in 0..app.node.cluster().shards {
        let records = log.tail(&Target::Topic(Topic::Rejected), partition, 0, 100).await?;
        found.extend(records.iter().map(rejected_view));
    }
    Ok(Json(found))
}

fn rejected_view(record: &crate::log::Record) -> RejectedView {
    let header = |name: &str| {
        let found = record.headers.iter().rev().find(|(known, _)| known == name);
        let bytes = found.and_then(|(_, value)| value.as_ref());
        bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    };
    RejectedView {
        reason: header("dueline-reason"),
        detail: header("dueline-detail"),
        partition: header("dueline-partition").parse().unwrap_or(0),
        offset: header("dueline-offset").parse().unwrap_or(0),
        value: record
            .value
            .as_ref()
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .unwrap_or_default(),
    }
}
