//! How many tasks come due soon: counted from the store, again and again, by who runs their shard.
//!
//! Nobody waits for it, and it leaves the store alone for most of the time, so that millions of tasks make counts old rather
//! than others slow. A count is of rows: a task that is tried again counts where it was due at first.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::Horizon;
use crate::model::{Fact, FactRow, Place, Shard, Wall};
use crate::store::{Error, Store};

use super::Service;

/// From one count to the next, at least.
const EVERY: Duration = Duration::from_secs(15);
/// For the time that a read took, so many times as long nothing is read.
const REST: u32 = 19;
/// Rows of one page.
const PAGE_ROWS: usize = 2_000;
/// Counts until the service ends.
pub(super) async fn follow(service: Service, horizon: Horizon) {
    loop {
        match count(&service, horizon).await {
            Ok(tasks) => service.shared.metrics.due_soon(horizon, tasks),
            Err(error) => {
                tracing::debug!(%error, horizon = horizon.word(), "tasks due soon were not counted")
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn count(service: &Service, horizon: Horizon) -> Result<usize, Error> {
    let mut tasks = 0;
    for shard in service.shards() {
        let runs = |now| move |engine: &crate::engine::Engine| engine.shard_view(now).phase == "running";
        if service.ask(shard, runs(service.clock().now().boot)).await == Some(true) {
            let from = service.clock().now().wall;
            tasks += between(&service.shared.store, shard, from, from.plus_ms(length_ms(horizon))).await?;
        }
    }
    Ok(tasks)
}

fn length_ms(horizon: Horizon) -> i64 {
    match horizon {
        Horizon::Minute => 60_000,
        Horizon::Hour => 3_600_000,
        Horizon::Day => 86_400_000,
    }
}

/// Tasks of a shard that are due within a time.
async fn between(store: &Arc<dyn Store>, shard: Shard, from: Wall, to: Wall) -> Result<usize, Error> {
    let mut tasks = 0;
    let mut next = Some(Place::start_of(from));
    while let Some(at) = next {
        let began = Instant::now();
        let slice = store.slice(shard, at, Place::start_of(to), PAGE_ROWS).await?;
        tasks += waiting(&slice.rows);
        next = slice.next;
        tokio::time::sleep(began.elapsed() * REST).await;
    }
    Ok(tasks)
}

/// Tasks among rows that nothing has closed or superseded, and that have not ended. All rows of a place are there, and lie together.
fn waiting(rows: &[FactRow]) -> usize {
    let is_over = |row: &FactRow| !matches!(row.fact, Fact::Task { .. } | Fact::Started(_));
    let has_task = |row: &FactRow| matches!(row.fact, Fact::Task { .. });
    let places = rows.chunk_by(|one, other| one.place == other.place);
    places.filter(|rows| rows.iter().any(has_task) && !rows.iter().any(is_over)).count()
}
