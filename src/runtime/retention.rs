//! Retention: what is finished and older than the history that is kept is forgotten, bucket by bucket, by the owner of its shard.
//!
//! Nobody waits for it. It reads each old bucket, and drops it only when everything in it is finished and old; else it looks
//! again at the next round. Events go before the tasks they speak of, so that what is known by id is always there. What it
//! does twice, or beside another owner, changes nothing more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Aged, Forget, Input, aged, forget};
use crate::model::{EventRow, FactRow, Place, Shard, TaskKey, Version, Wall};
use crate::store::{Error, Forgotten, Lookup, Store, Stretch};

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
/// After so many failures in a row the store is left alone.
const FAILURES_IN_A_ROW: u32 = 5;
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
            Err(error) => {
                tracing::warn!(%error, "not all history that is old was forgotten; tried again soon");
                wait = every.min(FIRST);
            }
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

/// A round over all that is owned here. What fails for one bucket does not hold up the others.
async fn round(service: &Service, before: Wall) -> Result<Done, Error> {
    let store = &service.shared.store;
    let (mut done, mut failed, mut in_a_row) = (Done::default(), None, 0);
    for stretch in store.stretches(before).await? {
        let Some(applied_to) = may_forget(service, stretch).await else { continue };
        let sweep = Sweep { service: service.clone(), store: store.clone(), stretch, before, applied_to };
        match sweep.run().await {
            Err(error) => {
                tracing::warn!(%error, ?stretch, "a bucket of history stays");
                let is_lasting = matches!(error, Error::Corrupt(_));
                (failed, in_a_row) = (Some(error).filter(|_| !is_lasting).or(failed), in_a_row + 1);
                done.kept += 1;
                if in_a_row == FAILURES_IN_A_ROW {
                    break;
                }
                continue;
            }
            Ok(None) => done.kept += 1,
            Ok(Some(tasks)) => {
                done.buckets += 1;
                done.tasks += tasks;
                service.shared.metrics.history_forgotten(tasks);
            }
        }
        in_a_row = 0;
    }
    for shard in service.shards() {
        if on_record(service, shard).await.is_some() {
            store.drop_dead_letters(shard, before).await?;
        }
    }
    failed.map_or(Ok(done), Err)
}

/// Up to which version events are applied, if the shard runs here and will place nothing in this stretch any more: it lies below its
/// watermark.
async fn may_forget(service: &Service, stretch: Stretch) -> Option<Version> {
    let (watermark, applied_to) = on_record(service, stretch.shard).await?;
    (stretch.to <= watermark).then_some(applied_to)
}

/// By the durable row: an owner that comes next begins there.
async fn on_record(service: &Service, shard: Shard) -> Option<(Wall, Version)> {
    service.ask(shard, |engine| engine.progress_on_record()).await.flatten()
}

/// One bucket.
struct Sweep {
    service: Service,
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
    marked_by: Option<Version>,
}

/// What goes.
#[derive(Default)]
struct Gone {
    tasks: Vec<Forgotten>,
    /// Of these events it is known that they are among those.
    events: Vec<(TaskKey, Version)>,
}

impl Sweep {
    /// How many tasks were forgotten; `None` = the bucket stays for now.
    async fn run(&self) -> Result<Option<usize>, Error> {
        // First whether all is old: nothing is forgotten of a bucket that stays.
        if self.pass(false).await?.is_none() {
            return Ok(None);
        }
        let Some((tasks, payloads)) = self.pass(true).await? else { return Ok(None) };
        self.store.drop_stretch(self.stretch, payloads).await?;
        Ok(Some(tasks))
    }

    /// Goes through the bucket, and forgets its tasks' events if it is to: how many tasks there are, and which have payloads
    /// apart. `None` = it ended at something that has to stay.
    async fn pass(&self, forgets: bool) -> Result<Option<(usize, Vec<Place>)>, Error> {
        let (mut tasks, mut payloads) = (0, Vec::new());
        let mut at = Some(Place::start_of(self.stretch.from));
        while let Some(from) = at {
            let Some((old, next)) = self.page(from).await? else { return Ok(None) };
            for some in old.chunks(TASKS_AT_ONCE) {
                let Some(gone) = self.gone(some).await? else { return Ok(None) };
                if forgets && !gone.tasks.is_empty() {
                    self.store.forget(self.with_lists(gone.tasks).await).await?;
                    let forgotten = (self.stretch.shard, Input::Forgotten(gone.events));
                    self.service.tell_each(std::iter::once(forgotten));
                }
            }
            tasks += old.len();
            payloads.extend(old.iter().filter(|old| old.has_payload).map(|old| old.place));
            at = next;
        }
        Ok(Some((tasks, payloads)))
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
                Aged::Old { key, has_payload, marked_by } => {
                    found.push(Old { place: rows[0].place, key, has_payload, marked_by });
                }
            }
        }
        Ok(Some((found, slice.next)))
    }

    /// The same with what the shard's owner lists of their ids; where it does not run here any more, the store reads that.
    async fn with_lists(&self, mut tasks: Vec<Forgotten>) -> Vec<Forgotten> {
        let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
        let listed = self.service.ask(self.stretch.shard, move |engine| engine.listed_versions(&keys)).await;
        for (task, listed) in tasks.iter_mut().zip(listed.flatten().unwrap_or_default()) {
            task.listed = Some(listed);
        }
        tasks
    }

    /// Which events go with these tasks; `None` = one of them has to stay.
    async fn gone(&self, old: &[Old]) -> Result<Option<Gone>, Error> {
        // Of what the list alone finds only the task's own event can be the newest of its id.
        let exactly = |old: &Old, version| Lookup {
            key: old.key.clone(),
            first: version,
            last: version,
            listed: vec![old.place.version],
        };
        let newest = old.iter().map(|old| exactly(old, Version::MAX));
        let marks = old.iter().filter_map(|old| Some(exactly(old, old.marked_by?)));
        let mut found = self.store.lookup(newest.chain(marks).collect()).await?.into_iter();
        let newest: Vec<Vec<EventRow>> = found.by_ref().take(old.len()).collect();
        let mut gone = Gone::default();
        for (old, newest) in old.iter().zip(newest) {
            let rows = old.marked_by.and_then(|_| found.next()).unwrap_or_default();
            let mark = rows.iter().find(|row| Some(row.version) == old.marked_by);
            match forget(old.place, newest.first(), mark, self.before, self.applied_to) {
                Forget::Keep => return Ok(None),
                Forget::Nothing => {}
                Forget::UpTo(version) => {
                    let known =
                        [Some(old.place.version), old.marked_by, newest.first().map(|row| row.version)];
                    let known: BTreeSet<Version> =
                        known.into_iter().flatten().filter(|known| *known <= version).collect();
                    let known = known.into_iter();
                    gone.events.extend(known.map(|known| (old.key.clone(), known)));
                    gone.tasks.push(Forgotten { key: old.key.clone(), up_to: version, listed: None });
                }
            }
        }
        Ok(Some(gone))
    }
}
