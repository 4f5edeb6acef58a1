//! Before an instance joins the group it reads what a takeover reads, again and again until that takes no less time than before.
//!
//! The first requests of a kind take seconds on servers that have just been started, and hundreds of milliseconds on connections
//! that were just made. A shard that changes hands meanwhile has no running owner for all of that time, where whoever runs it
//! now could go on: so the slow requests are made before the shard is asked for. Replicas that were away are repaired by it, where a
//! takeover would wait for that. Compare-and-sets are asked for of shards that there are none of: nothing is set, and nobody's
//! is in their way. It is left out where nobody could go on: when no
//! other instance was seen lately, and for a static member, whose shards wait for it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use tokio::time::Instant;

use crate::model::{Epoch, Fact, FactRow, Place, Release, Shard, Wall};
use crate::store::{Error, Instance, Lookup, Store};

use super::{BEAT, Service};

/// It ends after so long, steady or not.
const LONGEST: Duration = Duration::from_secs(5);
/// Another instance runs shards if its last heartbeat is younger, in milliseconds.
const SEEN_MS: u64 = 3 * BEAT.as_millis() as u64;
/// Shards that are read, at most; they are spread over all.
const SHARDS_MAX: u32 = 16;
/// Rows of a slice that are read.
const ROWS: usize = 500;
/// Events that are looked up for a shard.
const LOOKUPS: usize = 10;
/// Compare-and-sets of a round.
const SETS: u32 = 4;
/// Shards that there are none of begin this far beyond those that there are.
const BEYOND: u32 = 1 << 20;

/// Reads until it is steady. A store that does not answer ends it: who takes over asks until it does.
pub(super) async fn rehearse(service: &Service) {
    let began = Instant::now();
    let mut shortest = Duration::MAX;
    let all = async {
        if service.shared.options.static_member || !others_live(service).await {
            return;
        }
        let shards = shards(service);
        if read_owners(service, &shards).await.is_err() {
            return;
        }
        loop {
            let began = Instant::now();
            if round(service, &shards).await.is_err() || is_steady(&mut shortest, began.elapsed()) {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LONGEST, all).await;
    let (took, shortest) = (began.elapsed(), shortest.min(LONGEST));
    tracing::debug!(?took, ?shortest, "read what a takeover reads");
}

async fn others_live(service: &Service) -> bool {
    let shared = &service.shared;
    let now = shared.clock.now().wall;
    let lives = |one: &Instance| one.name != shared.options.instance && one.seen_within(now, SEEN_MS);
    shared.store.instances().await.is_ok_and(|all| all.iter().any(lives))
}

/// Some of all shards, others each time.
fn shards(service: &Service) -> Vec<Shard> {
    let all = service.shared.cluster.shards;
    let step = all.div_ceil(SHARDS_MAX).max(1);
    let first = (uuid::Uuid::new_v4().as_u128() % u128::from(step)) as u32;
    (first..all).step_by(step as usize).map(Shard).collect()
}

/// Linearizable reads, as a change of owner begins with; once, for they are in the way of such changes.
async fn read_owners(service: &Service, shards: &[Shard]) -> Result<(), Error> {
    let reads: Vec<_> = shards.iter().map(|shard| service.shared.store.owner(*shard)).collect();
    try_join_all(reads).await.map(|_| ())
}

/// What a takeover asks for, of all these shards at once.
async fn round(service: &Service, shards: &[Shard]) -> Result<(), Error> {
    let shared = &service.shared;
    let to = shared.clock.now().wall.plus_ms(shared.options.look_ahead_ms);
    let reads = try_join_all(shards.iter().map(|shard| reads(shared.store.clone(), *shard, to)));
    let first = shared.cluster.shards.saturating_add(BEYOND) + uuid::Uuid::new_v4().as_u128() as u32 % BEYOND;
    let sets =
        try_join_all((first..first + SETS).map(|shard| shared.store.release(Shard(shard), of_nobody())));
    tokio::try_join!(reads, sets).map(|_| ())
}

/// A release that no row takes.
fn of_nobody() -> Release {
    Release { released: Epoch(0), epoch: Epoch(1), owner: uuid::Uuid::new_v4().as_u128(), wait_ms: 0 }
}

/// Looks at the owner, reads the progress, the tasks from there on and the events of some, one after the other, as at a takeover.
async fn reads(store: Arc<dyn Store>, shard: Shard, to: Wall) -> Result<(), Error> {
    store.look_at_owner(shard).await?;
    if let Some(progress) = store.progress(shard).await? {
        let from = Place::start_of(progress.watermark);
        let slice = store.slice(shard, from, Place::start_of(to), ROWS).await?;
        store.lookup(slice.rows.iter().rev().filter_map(event_of).take(LOOKUPS).collect()).await?;
    }
    Ok(())
}

/// The event that a row of a task came of.
fn event_of(row: &FactRow) -> Option<Lookup> {
    let Fact::Task { key, .. } = &row.fact else { return None };
    let version = row.place.version;
    Some(Lookup { key: key.clone(), first: version, last: version, listed: vec![version] })
}

/// Whether a round took three quarters of the time of the shortest one before it, or more.
fn is_steady(shortest: &mut Duration, took: Duration) -> bool {
    let is_steady = took >= *shortest / 4 * 3;
    *shortest = took.min(*shortest);
    is_steady
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many rounds there are.
    fn rounds(took_ms: &[u64]) -> usize {
        let mut shortest = Duration::MAX;
        let steady = |ms: &u64| is_steady(&mut shortest, Duration::from_millis(*ms));
        took_ms.iter().position(steady).map_or(took_ms.len(), |last| last + 1)
    }

    #[test]
    fn rounds_go_on_while_they_get_shorter() {
        assert_eq!(rounds(&[40, 38, 0]), 2);
        assert_eq!(rounds(&[2_000, 600, 200, 190, 0]), 4);
        assert_eq!(rounds(&[100, 300, 0]), 2);
        assert_eq!(rounds(&[0, 0, 0]), 2);
    }
}
