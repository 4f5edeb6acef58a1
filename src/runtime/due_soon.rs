//! How many tasks come due soon: counted from the store, again and again, by who runs their shard.
//!
//! Nobody waits for it, and it leaves the store alone for nearly all of the time: what it costs goes by shards and by the
//! buckets of their tasks, so that many make counts old rather than others slow. A count is of rows that lie ahead: a task that
//! waits for its next attempt lies behind, and is in none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use tokio::time::Instant;

use crate::engine::fold;
use crate::metrics::Horizon;
use crate::model::{Fact, FactRow, Place, Shard, TaskState, Version, Wall};
use crate::store::{Error, Store};

use super::Service;

/// What is counted together, the longest last: a day takes long, and an hour need not wait for it.
pub(super) const TOGETHER: [&[Horizon]; 2] = [&[Horizon::Minute, Horizon::Hour], &[Horizon::Day]];
/// From one count to the next, at least.
const EVERY: Duration = Duration::from_secs(15);
/// For the time that a shard took, so many times as long nothing is read.
const REST: u32 = 49;
/// A shard's time ahead is read in so many pieces at once.
const PIECES: i64 = 12;
/// Rows of one page; with the largest payloads that lie in rows, all pieces together hold some 40 MB for a moment.
const PAGE_ROWS: usize = 200;

/// Counts until the service ends.
pub(super) async fn follow(service: Service, horizons: &'static [Horizon]) {
    let mut counts: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
    loop {
        let shards = service.running().await;
        counts.retain(|shard, _| shards.contains(shard));
        for shard in shards {
            let began = Instant::now();
            match count(&service.shared.store, shard, service.clock().now().wall, horizons).await {
                Ok(count) => drop(counts.insert(shard, count)),
                // What was counted before stands.
                Err(error) => tracing::debug!(%error, ?shard, "tasks due soon were not counted"),
            }
            tokio::time::sleep(began.elapsed() * REST).await;
        }
        for (n, horizon) in horizons.iter().enumerate() {
            service.shared.metrics.due_soon(*horizon, counts.values().map(|count| count[n]).sum());
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn length_ms(horizon: Horizon) -> i64 {
    match horizon {
        Horizon::Minute => 60_000,
        Horizon::Hour => 3_600_000,
        Horizon::Day => 86_400_000,
    }
}

/// Tasks of a shard that are due within each of some horizons.
async fn count(
    store: &Arc<dyn Store>,
    shard: Shard,
    now: Wall,
    horizons: &[Horizon],
) -> Result<Vec<usize>, Error> {
    let ends: Vec<Wall> = horizons.iter().map(|horizon| now.plus_ms(length_ms(*horizon))).collect();
    let step_ms = horizons.iter().map(|horizon| length_ms(*horizon)).max().unwrap_or(0) / PIECES;
    let piece =
        |n: i64| between(store, shard, (now.plus_ms(n * step_ms), now.plus_ms((n + 1) * step_ms)), &ends);
    let counted = try_join_all((0..PIECES).map(piece)).await?;
    Ok((0..ends.len()).map(|n| counted.iter().map(|count| count[n]).sum()).collect())
}

async fn between(
    store: &Arc<dyn Store>,
    shard: Shard,
    (from, to): (Wall, Wall),
    ends: &[Wall],
) -> Result<Vec<usize>, Error> {
    let mut count = vec![0; ends.len()];
    let mut next = Some(Place::start_of(from));
    while let Some(at) = next {
        let slice = store.slice(shard, at, Place::start_of(to), PAGE_ROWS).await?;
        for place in waiting(&slice.rows) {
            let within = ends.iter().map(|end| usize::from(place.ready_at < *end));
            count.iter_mut().zip(within).for_each(|(count, one)| *count += one);
        }
        next = slice.next;
    }
    Ok(count)
}

/// Tasks among rows that are to run, and of which no attempt has ended. All rows of a place are there, and lie together.
fn waiting(rows: &[FactRow]) -> impl Iterator<Item = Place> {
    let has_task = |rows: &&[FactRow]| rows.iter().any(|row| matches!(row.fact, Fact::Task { .. }));
    let is_to_run = |rows: &&[FactRow]| {
        let folded = fold(rows.iter().map(|row| &row.fact), Version::MAX);
        matches!(folded.state(), TaskState::Scheduled | TaskState::Running)
    };
    let places = rows.chunk_by(|one, other| one.place == other.place);
    places.filter(has_task).filter(is_to_run).map(|rows| rows[0].place)
}
