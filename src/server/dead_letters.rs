//! Dead letters: tasks that are dead, newest first.
//!
//! The list names who died and when; what became of each since is read from its facts, so that one that was redriven is not
//! shown. A page reads the same stretch of time from all shards that matter, a bounded piece of work.

use axum::Json;
use axum::extract::RawQuery;
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::{CloseReason, DeadLetterRow, Died, QueueName, Shard, Version, Wall};
use crate::runtime::batch::is_dead;
use crate::wire::time::format_time;

use super::params::{Params, parameter, same_stretch, shards_of};
use super::problem::Problem;
use super::{Answer, App, limits};

const DAY_MS: i64 = 86_400_000;
/// How far the list looks back when nothing is said.
const LOOK_MS: i64 = 30 * DAY_MS;
/// How far it looks back at most: every week costs a request a shard.
const LOOK_MS_MAX: i64 = 370 * DAY_MS;
/// Rows of one shard in one round: at least, and at most.
const ROUND_ROWS_MIN: usize = 16;
const ROUND_ROWS_MAX: usize = 1_000;

/// A dead letter.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct DeadLetterView {
    /// The task's queue.
    pub(super) queue: String,
    /// Its id.
    pub(super) id: String,
    /// Its handler.
    pub(super) handler: String,
    /// The caller's tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) collection: Option<String>,
    /// exhausted, fatal, interrupted.
    pub(super) reason: String,
    /// When it died.
    pub(super) died_at: String,
    /// Attempts that were made.
    pub(super) attempts: u32,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Its shard.
    pub(super) shard: u32,
}

/// A page of dead letters.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct DeadLetterPage {
    /// Newest first.
    pub(super) dead_letters: Vec<DeadLetterView>,
    /// Those that died from this time …
    pub(super) from: String,
    /// … to before this one.
    pub(super) to: String,
    /// Give it as `page_token` for what is older; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_page_token: Option<String>,
}

/// What a list is narrowed down to.
struct Filter {
    queue: Option<QueueName>,
    handler: Option<String>,
    collection: Option<String>,
    reason: Option<CloseReason>,
}

impl Filter {
    fn read(params: &Params) -> Answer<Filter> {
        let text = |name: &str| params.text(name).map(str::to_owned);
        let reason = params.text("reason").map(|word| {
            let dead = [CloseReason::Exhausted, CloseReason::Fatal, CloseReason::Interrupted];
            let known = dead.into_iter().find(|reason| reason.word() == word);
            known.ok_or_else(|| parameter("reason", "is none of exhausted, fatal and interrupted"))
        });
        Ok(Filter {
            queue: params.queue()?,
            handler: text("handler"),
            collection: text("collection"),
            reason: reason.transpose()?,
        })
    }

    fn takes(&self, row: &DeadLetterRow) -> bool {
        let same = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == found)
        };
        self.queue.as_ref().is_none_or(|queue| *queue == row.key.queue)
            && same(&self.handler, Some(row.handler.as_str()))
            && same(&self.collection, row.collection.as_deref())
            && self.reason.is_none_or(|reason| reason == row.reason)
    }
}

/// List tasks that are dead by when they died, newest first, from `from` (default: 30 days ago) to before `to`. One that was
/// redriven is not among them. A page may hold fewer than asked for, and none; it is the last one when it has no `next_page_token`.
#[utoipa::path(get, path = "/v1/dead-letters", params(("queue" = Option<String>, Query), ("handler" = Option<String>, Query),
    ("collection" = Option<String>, Query), ("reason" = Option<String>, Query), ("from" = Option<String>, Query),
    ("to" = Option<String>, Query), ("page_size" = Option<usize>, Query), ("page_token" = Option<String>, Query)),
    responses((status = 200, body = DeadLetterPage), (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn list(app: App, RawQuery(query): RawQuery) -> Answer<Json<DeadLetterPage>> {
    let known = ["queue", "handler", "collection", "reason", "from", "to", "page_size", "page_token"];
    let params = Params::read(query.as_deref(), &known)?;
    let filter = Filter::read(&params)?;
    let now = app.node.service().clock().now().wall;
    let start = start(&params, now)?;
    let shards = shards_of(filter.queue.as_ref(), app.node.cluster().shards);
    let scan = Scan { app: &app, shards, filter, from: start.from, size: params.page_size()? };
    let (dead_letters, next) = scan.page(start.before).await?;
    Ok(Json(DeadLetterPage {
        dead_letters,
        from: format_time(start.from),
        to: format_time(start.to),
        next_page_token: next.map(|before| token_of(Start { before, ..start })),
    }))
}

/// A dead letter of one shard among those of all. Versions are numbers of a shard: two shards may have the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    died: Died,
    shard: Shard,
}

impl Position {
    fn of(row: &DeadLetterRow) -> Position {
        Position { died: row.died(), shard: row.shard }
    }

    /// Before all that died then.
    fn before(died: Died) -> Position {
        Position { died, shard: Shard(0) }
    }

    /// The place that a page goes on from when this one is the first that it has no room for.
    fn inclusive(self) -> Position {
        Position { shard: Shard(self.shard.0 + 1), ..self }
    }
}

/// A list: from when, to when, and before what this page begins.
#[derive(Clone, Copy)]
struct Start {
    from: Wall,
    to: Wall,
    before: Position,
}

fn start(params: &Params, now: Wall) -> Answer<Start> {
    let (from, to) = (params.time("from")?, params.time("to")?);
    if let Some(text) = params.text("page_token") {
        let start =
            token(text, now).ok_or_else(|| parameter("page_token", "is not one that was given out"))?;
        same_stretch((from, to), (start.from, start.to))?;
        return Ok(start);
    }
    let to = to.unwrap_or(Wall::MAX).min(now.plus_ms(DAY_MS));
    let from = from.unwrap_or(now.plus_ms(-LOOK_MS)).max(Wall::MIN);
    if to.0 - from.0 > LOOK_MS_MAX {
        return Err(parameter("from", "lies more than a year before `to`: ask for a year at a time"));
    }
    Ok(Start { from, to, before: Position::before(Died { at: to, version: Version(0) }) })
}

fn token_of(Start { from, to, before: Position { died, shard } }: Start) -> String {
    format!("{}.{}.{}.{}.{}", from.0, to.0, died.at.0, died.version.0, shard.0)
}

fn token(text: &str, now: Wall) -> Option<Start> {
    let parts: Vec<&str> = text.split('.').collect();
    let [from, to, at, version, shard] = parts[..] else { return None };
    let died = Died { at: Wall(at.parse().ok()?), version: Version(version.parse().ok()?) };
    let before = Position { died, shard: Shard(shard.parse().ok()?) };
    let start = Start { from: Wall(from.parse().ok()?), to: Wall(to.parse().ok()?), before };
    let (from, to) = (start.from.0, start.to.0);
    let known = from >= 0 && to >= from && to - from <= LOOK_MS_MAX && (from..=to).contains(&died.at.0);
    (known && start.to <= now.plus_ms(2 * DAY_MS) && died.version <= Version::MAX).then_some(start)
}

/// One list over some shards.
struct Scan<'a> {
    app: &'a App,
    shards: Vec<Shard>,
    filter: Filter,
    from: Wall,
    size: usize,
}

impl Scan<'_> {
    /// A page of what stands before a position, and where the next one begins.
    async fn page(&self, mut before: Position) -> Answer<(Vec<DeadLetterView>, Option<Position>)> {
        let (mut found, mut rows) = (Vec::new(), 0);
        loop {
            let (round, reached) = self.round(before).await?;
            rows += round.len();
            let wanted: Vec<DeadLetterRow> = round.into_iter().filter(|row| self.filter.takes(row)).collect();
            let checked = stream::iter(wanted).map(|row| async move {
                let store = self.app.node.store();
                (is_dead(&**store, &row).await, row)
            });
            let mut checked = std::pin::pin!(checked.buffered(limits::SHARDS_AT_ONCE));
            while let Some((is_dead, row)) = checked.next().await {
                if !is_dead? {
                    continue;
                }
                if found.len() >= self.size {
                    return Ok((found, Some(Position::of(&row).inclusive())));
                }
                found.push(view(&row));
            }
            match reached {
                None => return Ok((found, None)),
                Some(reached) if rows >= limits::LIST_ROWS_MAX => return Ok((found, Some(reached))),
                Some(reached) => before = reached,
            }
        }
    }

    /// Rows before a position, newest first, down to where all shards were read; `None` = to their end.
    async fn round(&self, before: Position) -> Answer<(Vec<DeadLetterRow>, Option<Position>)> {
        let share = (2 * self.size / self.shards.len().max(1)).clamp(ROUND_ROWS_MIN, ROUND_ROWS_MAX);
        let store = self.app.node.store();
        let Died { at, version } = before.died;
        // Up to and with those of the position itself: which of them stand before it, their shards say.
        let bound = Died { at, version: Version(version.0.saturating_add(1)).min(Version::MAX) };
        let reads = stream::iter(self.shards.iter().copied())
            .map(|shard| store.dead_letters(shard, self.from, bound, share));
        let mut reads = std::pin::pin!(reads.buffered(limits::SHARDS_AT_ONCE));
        let (mut rows, mut reached) = (Vec::new(), None);
        while let Some(read) = reads.next().await {
            let read = read?;
            let last = read.last().filter(|_| read.len() == share).map(DeadLetterRow::died);
            reached = reached.max(last);
            rows.extend(read);
        }
        rows.retain(|row| Position::of(row) < before && reached.is_none_or(|reached| row.died() >= reached));
        rows.sort_by_key(|row| std::cmp::Reverse(Position::of(row)));
        Ok((rows, reached.map(Position::before)))
    }
}

fn view(row: &DeadLetterRow) -> DeadLetterView {
    DeadLetterView {
        queue: row.key.queue.to_string(),
        id: row.key.id.to_string(),
        handler: row.handler.to_string(),
        collection: row.collection.as_ref().map(ToString::to_string),
        reason: row.reason.word().to_owned(),
        died_at: format_time(row.at),
        attempts: row.attempts,
        error: row.error.as_ref().map(ToString::to_string),
        shard: row.shard.0,
    }
}
