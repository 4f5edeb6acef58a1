//! Retention: what is finished and older than the history that is kept is forgotten, bucket by bucket, by the owner of its shard.
//!
//! Nobody waits for it. It reads each old bucket, and drops it only when everything in it is finished and old; else it looks
//! again at the next round. Events go before the tasks they speak of, so that what is known by id is always there. What it
//! does twice, or beside another owner, changes nothing more.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Aged, Forget, aged, forget};
use crate::model::{FactRow, Place, Shard, TaskKey, Version, Wall};
use crate::store::{Error, Lookup, Store, Stretch};

use super::Service;

/// Time between rounds, at most; a round reads all partition keys.
const EVERY_MAX: Duration = Duration::from_hours(6);
/// From the start to the first round, at most: an instance may be restarted more often than rounds come.
const FIRST: Duration = Duration::from_mins(10);
/// The same at least.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// Rounds within the time that history is kept.
const ROUNDS: u32 = 20;
/// Rows of one page.
const PAGE_ROWS: usize = 2_000;
/// Tasks looked up and forgotten at once.
const TASKS_AT_ONCE: usize = 200;

/// Forgets what is old, round after round, until the service ends.
pub(super) async fn follow(service: Service) {
    let history = Duration::from_millis(service.shared.options.history_ms);
    let every = (history / ROUNDS).clamp(EVERY_MIN, EVERY_MAX);
    let mut wait = every.min(FIRST);
    loop {
        tokio::time::sleep(wait).await;
        wait = every;
        let before = service.clock().now().wall.plus_ms(-(history.as_millis() as i64));
        match round(&service, before).await {
            Ok(done) if done.buckets > 0 => {
                tracing::info!(
                    buckets = done.buckets,
                    tasks = done.tasks,
                    kept = done.kept,
                    "history forgotten"
                );
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "history is not forgotten; tried again in the next round"),
        }
    }
}

#[derive(Debug, Default)]
struct Done {
    buckets: usize,
    tasks: usize,
    /// Buckets that stay for now.
    kept: usize,
}

async fn round(service: &Service, before: Wall) -> Result<Done, Error> {
    let store = &service.shared.store;
    let mut done = Done::default();
    for stretch in store.stretches(before).await? {
        let Some(applied_to) = may_forget(service, stretch).await else { continue };
        let sweep = Sweep { store: store.clone(), stretch, before, applied_to };
        match sweep.run().await {
            // Other buckets do not wait for one that a person has to look at.
            Err(error @ Error::Corrupt(_)) => {
                tracing::warn!(%error, ?stretch, "a bucket of history stays: it cannot be read");
                done.kept += 1;
            }
            Err(error) => return Err(error),
            Ok(None) => done.kept += 1,
            Ok(Some(tasks)) => {
                done.buckets += 1;
                done.tasks += tasks;
                service.shared.metrics.history_forgotten(tasks);
            }
        }
    }
    for shard in service.shards() {
        if owned(service, shard).await.is_some() {
            store.drop_dead_letters(shard, before).await?;
        }
    }
    Ok(done)
}

/// Up to which version events are applied, if the shard runs here and will place nothing in this stretch any more: it lies below its
/// watermark.
async fn may_forget(service: &Service, stretch: Stretch) -> Option<Version> {
    let (watermark, applied_to) = owned(service, stretch.shard).await?;
    (stretch.to <= watermark).then_some(applied_to)
}

async fn owned(service: &Service, shard: Shard) -> Option<(Wall, Version)> {
    let boot = service.clock().now().boot;
    let asked = service.ask(shard, move |engine| {
        let view = engine.shard_view(boot);
        (view.phase, view.watermark, Version::new(engine.generation(), engine.next_offset()))
    });
    let (phase, watermark, applied_to) = asked.await?;
    (phase == "running").then_some((watermark, applied_to))
}

/// One bucket.
struct Sweep {
    store: Arc<dyn Store>,
    stretch: Stretch,
    before: Wall,
    applied_to: Version,
}

/// An old task.
struct Old {
    place: Place,
    key: TaskKey,
    has_payload: bool,
}

impl Sweep {
    /// How many tasks were forgotten; `None` = the bucket stays for now.
    async fn run(&self) -> Result<Option<usize>, Error> {
        // First whether all is old: nothing is forgotten of a bucket that stays for a task of its own.
        let mut at = Some(self.first());
        while let Some(from) = at {
            let Some((_, next)) = self.page(from).await? else { return Ok(None) };
            at = next;
        }
        let (mut tasks, mut payloads, mut stays) = (0, Vec::new(), false);
        let mut at = Some(self.first());
        while let Some(from) = at {
            let Some((old, next)) = self.page(from).await? else { return Ok(None) };
            for some in old.chunks(TASKS_AT_ONCE) {
                stays |= self.forget(some).await?;
            }
            tasks += old.len();
            payloads.extend(old.iter().filter(|old| old.has_payload).map(|old| old.place));
            at = next;
        }
        if stays {
            return Ok(None);
        }
        self.store.drop_stretch(self.stretch, payloads).await?;
        Ok(Some(tasks))
    }

    fn first(&self) -> Place {
        Place::start_of(self.stretch.from)
    }

    /// The old tasks of a page, and where the next begins; `None` = one is not old.
    async fn page(&self, from: Place) -> Result<Option<(Vec<Old>, Option<Place>)>, Error> {
        let to = Place::start_of(self.stretch.to);
        let slice = self.store.slice(self.stretch.shard, from, to, PAGE_ROWS).await?;
        let mut found = Vec::new();
        for rows in slice.rows.chunk_by(|a: &FactRow, b: &FactRow| a.place == b.place) {
            match aged(rows, self.before, self.applied_to) {
                Aged::Young => return Ok(None),
                Aged::Nothing => {}
                Aged::Old { key, has_payload } => {
                    found.push(Old { place: rows[0].place, key, has_payload });
                }
            }
        }
        Ok(Some((found, slice.next)))
    }

    /// Forgets the events of tasks; whether one of them has to stay.
    async fn forget(&self, old: &[Old]) -> Result<bool, Error> {
        let newest = |old: &Old| Lookup { key: old.key.clone(), first: Version::MAX, last: Version::MAX };
        let found = self.store.lookup(old.iter().map(newest).collect()).await?;
        let mut gone = Vec::new();
        let mut stays = false;
        for (old, rows) in old.iter().zip(found) {
            match forget(old.place, rows.first(), self.before) {
                Forget::Keep => stays = true,
                Forget::Nothing => {}
                Forget::UpTo(version) => gone.push((old.key.clone(), version)),
            }
        }
        if !gone.is_empty() {
            self.store.forget(gone).await?;
        }
        Ok(stays)
    }
}
