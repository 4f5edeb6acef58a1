//! Lists: tasks by the time they may start, of one queue or of all, oldest or newest first, and what was rejected.
//!
//! A page reads the same stretch of time from all shards that matter and merges by time, a bounded piece of work. What
//! one shard has not reached yet is left for the next round, so that no task is passed over. The page token is a place
//! and a shard: a page goes on exactly where the one before ended, whatever was written in between.

use std::cmp::Reverse;

use axum::Json;
use axum::extract::RawQuery;
use futures::{StreamExt as _, stream};

use crate::log::embedded::EmbeddedLog;
use crate::log::{Record, Target, Topic};
use crate::model::limits::BUCKET_MS;
use crate::model::{FactRow, Place, QueueName, Shard, TaskState, Version, Wall};
use crate::store::Slice;
use crate::wire::forward;
use crate::wire::time::format_time;

use super::params::{NoParams, Params, parameter, same_stretch, shards_of};
use super::problem::Problem;
use super::views::{RejectedPage, RejectedView, TaskPage, TaskView, known_state, task_view};
use super::{Answer, App, limits, topics};

const DAY_MS: i64 = 86_400_000;
/// How far a list looks back and ahead when nothing is said: over all queues, and for one queue.
const LOOK_MS: i64 = DAY_MS;
const QUEUE_LOOK_MS: i64 = 7 * DAY_MS;
/// Rows of one shard in one round: at least, and at most.
const ROUND_ROWS_MIN: usize = 16;
const ROUND_ROWS_MAX: usize = 1_000;
/// Rows that a task has, about: itself, a start, an end.
const ROWS_A_TASK: usize = 4;

/// What a list is narrowed down to.
struct Filter {
    queue: Option<QueueName>,
    state: Option<String>,
    handler: Option<String>,
    collection: Option<String>,
}

impl Filter {
    fn read(params: &Params) -> Answer<Filter> {
        let text = |name: &str| params.text(name).map(str::to_owned);
        let state = text("state");
        if let Some(state) = state.as_ref().filter(|state| !known_state(state)) {
            return Err(parameter("state", &format!("is {state:?}, which is no state of a task")));
        }
        Ok(Filter { queue: params.queue()?, state, handler: text("handler"), collection: text("collection") })
    }

    fn takes(&self, task: &TaskView) -> bool {
        let same =
            |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        let put_aside = self.state.is_none() && task.state == TaskState::Replaced.word();
        !put_aside
            && self.queue.as_ref().is_none_or(|queue| queue.as_str() == task.queue)
            && same(&self.state, &task.state)
            && same(&self.handler, &task.handler)
            && same(&self.collection, task.collection.as_deref().unwrap_or_default())
    }
}

/// A place of one shard among those of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    place: Place,
    shard: Shard,
}

/// Which end of the stretch of time comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Oldest,
    Newest,
}

impl Order {
    fn read(params: &Params) -> Answer<Order> {
        match params.text("order") {
            None | Some("oldest") => Ok(Order::Oldest),
            Some("newest") => Ok(Order::Newest),
            Some(other) => Err(parameter("order", &format!("is {other:?}: it is oldest or newest"))),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Order::Oldest => "o",
            Order::Newest => "n",
        }
    }
}

/// A list: from where, to where, from which end, and where this page begins: at this position, or right before it with the
/// newest first.
#[derive(Clone, Copy)]
struct Start {
    order: Order,
    from: Wall,
    to: Wall,
    at: Position,
}

/// List tasks by ready time, from `from` (default: a day ago) to before `to` (default: in a day); of one queue, a week.
/// `order=newest` begins with the newest; `to` is now then unless it is given, and `from` lies before now.
/// Versions that a replace or reschedule put aside are left out unless `state=replaced` is asked for.
/// A page may hold fewer tasks than asked for, and none; it is the last one when it has no `next_page_token`.
#[utoipa::path(get, path = "/v1/tasks", params(("queue" = Option<String>, Query), ("state" = Option<String>, Query),
    ("handler" = Option<String>, Query), ("collection" = Option<String>, Query), ("from" = Option<String>, Query),
    ("to" = Option<String>, Query), ("order" = Option<String>, Query), ("page_size" = Option<usize>, Query),
    ("page_token" = Option<String>, Query)),
    responses((status = 200, body = TaskPage), (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn tasks(app: App, RawQuery(query): RawQuery) -> Answer<Json<TaskPage>> {
    let known = ["queue", "state", "handler", "collection", "from", "to", "order", "page_size", "page_token"];
    let params = Params::read(query.as_deref(), &known)?;
    let filter = Filter::read(&params)?;
    let look_ms = if filter.queue.is_some() { QUEUE_LOOK_MS } else { LOOK_MS };
    let start = start(&params, app.node.service().clock().now().wall, look_ms)?;
    let shards = shards_of(filter.queue.as_ref(), app.node.cluster().shards);
    let scan = Scan { app: &app, shards, filter, start, size: params.page_size()? };
    let (tasks, next) = scan.page().await?;
    Ok(Json(TaskPage {
        tasks,
        from: format_time(start.from),
        to: format_time(start.to),
        next_page_token: next.map(|at| token_of(Start { at, ..start })),
    }))
}

fn start(params: &Params, now: Wall, look_ms: i64) -> Answer<Start> {
    let (from, to, order) = (params.time("from")?, params.time("to")?, Order::read(params)?);
    if let Some(text) = params.text("page_token") {
        let start = token(text).ok_or_else(|| parameter("page_token", "is not one that was given out"))?;
        same_stretch((from, to), (start.from, start.to))?;
        if params.text("order").is_some() && order != start.order {
            return Err(parameter("page_token", "was given out for another order"));
        }
        return Ok(start);
    }
    let at = |ready_at| Position { place: Place::start_of(ready_at), shard: Shard(0) };
    Ok(match order {
        Order::Oldest => {
            let from = from.unwrap_or(now.plus_ms(-look_ms));
            Start { order, from, to: to.unwrap_or(now.plus_ms(look_ms)), at: at(from) }
        }
        Order::Newest => {
            let to = to.unwrap_or(now);
            Start { order, from: from.unwrap_or(to.min(now).plus_ms(-look_ms)), to, at: at(to) }
        }
    })
}

fn token_of(Start { order, from, to, at }: Start) -> String {
    let Place { ready_at, version } = at.place;
    format!("{}.{}.{}.{}.{}.{}", order.word(), from.0, to.0, ready_at.0, version.0, at.shard.0)
}

fn token(text: &str) -> Option<Start> {
    let parts: Vec<&str> = text.split('.').collect();
    let [order, from, to, ready_at, version, shard] = parts[..] else { return None };
    let order = [Order::Oldest, Order::Newest].into_iter().find(|known| known.word() == order)?;
    let place = Place { ready_at: Wall(ready_at.parse().ok()?), version: Version(version.parse().ok()?) };
    let at = Position { place, shard: Shard(shard.parse().ok()?) };
    let start = Start { order, from: Wall(from.parse().ok()?), to: Wall(to.parse().ok()?), at };
    // Only times that a place can have: stores count in them.
    let times = [start.from, start.to, place.ready_at];
    let known = times.iter().all(|time| (0..=Wall::MAX.0 / 2).contains(&time.0));
    (known && version_is_known(place.version)).then_some(start)
}

fn version_is_known(version: Version) -> bool {
    (Version::MIN..=Version::MAX).contains(&version)
}

/// One list over some shards.
struct Scan<'a> {
    app: &'a App,
    shards: Vec<Shard>,
    filter: Filter,
    start: Start,
    size: usize,
}

/// What one round found: wanted tasks in order, up to where all shards were read.
struct Round {
    found: Vec<(Position, TaskView)>,
    rows: usize,
    reached: Option<Place>,
}

impl Scan<'_> {
    /// A page, and where the next one begins.
    async fn page(&self) -> Answer<(Vec<TaskView>, Option<Position>)> {
        let Start { order, from, to, mut at } = self.start;
        // How far this page looks, and how far the list goes.
        let (until, end) = match order {
            Order::Oldest => (to.min(at.place.ready_at.plus_ms(self.look_ms())), Place::start_of(to)),
            Order::Newest => (from.max(at.place.ready_at.plus_ms(-self.look_ms())), Place::start_of(from)),
        };
        let until = Place::start_of(until);
        let (mut tasks, mut rows, mut last) = (Vec::new(), 0, at);
        loop {
            let round = self.round(at, until).await?;
            rows += round.rows;
            for (position, task) in round.found {
                if tasks.len() == self.size {
                    let next = if order == Order::Oldest { position } else { last };
                    return Ok((tasks, Some(next)));
                }
                last = position;
                tasks.push(task);
            }
            let reached = round.reached.unwrap_or(until);
            at = Position { place: reached, shard: Shard(0) };
            let is_over = match order {
                Order::Oldest => reached >= end,
                Order::Newest => reached <= end,
            };
            if is_over {
                return Ok((tasks, None));
            }
            if round.reached.is_none() || rows >= limits::LIST_ROWS_MAX {
                return Ok((tasks, Some(at)));
            }
        }
    }

    /// How far one page looks. On servers every bucket costs a request, empty or not.
    fn look_ms(&self) -> i64 {
        if self.app.node.embedded_log().is_some() {
            return i64::MAX;
        }
        let shards = i64::try_from(self.shards.len()).unwrap_or(i64::MAX).max(1);
        (limits::LIST_BUCKETS_MAX / shards).max(1).saturating_mul(BUCKET_MS)
    }

    async fn slice(&self, shard: Shard, at: Position, until: Place, rows_max: usize) -> Answer<Slice> {
        let store = self.app.node.store();
        Ok(match self.start.order {
            Order::Oldest => store.slice(shard, at.place, until, rows_max).await?,
            // Other shards may have tasks at the very place of this position.
            Order::Newest => store.slice_back(shard, until, at.place.next(), rows_max).await?,
        })
    }

    async fn round(&self, at: Position, until: Place) -> Answer<Round> {
        let share =
            (self.size * ROWS_A_TASK / self.shards.len().max(1)).clamp(ROUND_ROWS_MIN, ROUND_ROWS_MAX);
        let slices = stream::iter(self.shards.iter().copied())
            .map(|shard| async move { (shard, self.slice(shard, at, until, share).await) });
        let mut slices = std::pin::pin!(slices.buffered(limits::SHARDS_AT_ONCE));
        let mut round = Round { found: Vec::new(), rows: 0, reached: None };
        let is_oldest = self.start.order == Order::Oldest;
        while let Some((shard, slice)) = slices.next().await {
            let slice = slice?;
            round.rows += slice.rows.len();
            let reached = [round.reached, slice.next].into_iter().flatten();
            round.reached = if is_oldest { reached.min() } else { reached.max() };
            for rows in slice.rows.chunk_by(|one, next| one.place == next.place) {
                let position = Position { place: rows[0].place, shard };
                let is_ahead = if is_oldest { position >= at } else { position < at };
                let task = listed(rows).filter(|task| is_ahead && self.filter.takes(task));
                round.found.extend(task.map(|task| (position, task)));
            }
        }
        let reached = round.reached;
        if is_oldest {
            round.found.retain(|(position, _)| reached.is_none_or(|reached| position.place < reached));
            round.found.sort_by_key(|(position, _)| *position);
        } else {
            round.found.retain(|(position, _)| reached.is_none_or(|reached| position.place >= reached));
            round.found.sort_by_key(|(position, _)| Reverse(*position));
        }
        Ok(round)
    }
}

fn listed(rows: &[FactRow]) -> Option<TaskView> {
    task_view(rows).map(|task| TaskView { payload: None, ..task })
}

/// Rejected records of each partition that are shown, the newest.
const REJECTED_SHOWN: usize = 100;
/// Rejected records read at once, and pages of them at most for one partition.
const REJECTED_READ: usize = 500;
const REJECTED_PAGES_MAX: usize = 200;
/// Longest value that is shown, in bytes.
const VALUE_BYTES_MAX: usize = 4 * 1024;

/// The newest rejected records, at most 100 a partition: embedded only; on Kafka read the rejected topic itself.
#[utoipa::path(get, path = "/v1/rejected", responses((status = 200, body = RejectedPage), (status = 501, body = Problem)))]
pub(super) async fn rejected(app: App, _: NoParams) -> Answer<Json<RejectedPage>> {
    let log = topics::embedded(&app, &Topic::Rejected.name(&app.node.config().topics.prefix))?;
    let mut found = Vec::new();
    for partition in 0..app.node.cluster().shards {
        found.extend(newest_rejected(log, partition).await?.iter().map(rejected_view));
    }
    Ok(Json(RejectedPage { rejected: found }))
}

async fn newest_rejected(log: &EmbeddedLog, partition: u32) -> Answer<Vec<Record>> {
    let (mut newest, mut from) = (Vec::new(), 0);
    for _ in 0..REJECTED_PAGES_MAX {
        let read = log.tail(&Target::Topic(Topic::Rejected), partition, from, REJECTED_READ).await?;
        let Some(last) = read.last() else { break };
        from = last.offset + 1;
        let more = read.len() == REJECTED_READ;
        newest.extend(read);
        newest.drain(..newest.len().saturating_sub(REJECTED_SHOWN));
        if !more {
            break;
        }
    }
    Ok(newest)
}

fn rejected_view(record: &Record) -> RejectedView {
    let header = |name: &str| {
        // Of several headers of one name the last one is ours.
        let found = record.headers.iter().rev().find(|(known, _)| known == name);
        let bytes = found.and_then(|(_, value)| value.as_ref());
        bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    };
    let value = record.value.as_deref().unwrap_or_default();
    RejectedView {
        reason: header(forward::REASON),
        detail: header(forward::DETAIL),
        partition: header(forward::PARTITION).parse().unwrap_or(0),
        offset: header(forward::OFFSET).parse().unwrap_or(0),
        value: String::from_utf8_lossy(&value[..value.len().min(VALUE_BYTES_MAX)]).into_owned(),
    }
}
