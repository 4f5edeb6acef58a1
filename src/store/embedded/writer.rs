//! The one thread that writes: group commit.
//!
//! It takes every change waiting, stages them in order in one batch, makes the batch durable with one fsync, and then
//! answers them all. Changes that compare (owner rows, offsets) compare against what is staged, so that they are
//! linearizable without a lock. While an fsync runs the next batch gathers; how long it gathers on after that, and that an idle
//! writer adds no delay, is [`super::gather`].
//!
//! The batch is written with `PersistMode::SyncData`: fjall then writes its journal, calls `fdatasync` on it, and
//! only after that applies the rows to memory, so that a reader never sees what a crash could take back. Before that it reads the
//! first rows of tasks that get an event and are not known to be new ([`super::events`]). A failed
//! commit poisons the database for good, so staged state needs no way back: from then on everything is refused.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use fjall::{OwnedWriteBatch, PersistMode, Slice};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::db::{Failure, Table, Tables};
use super::events::{Map, Touched};
use super::firsts::Firsts;
use super::gather::{Gathered, Gatherer};
use super::meta::Staged;
use super::upkeep::{Lately, QUIET};

/// A change to the tables.
pub(super) trait Change: Send {
    /// Puts its rows into the batch, seeing all changes before it.
    fn stage(&mut self, batch: &mut Batch<'_>);
    /// Says how it ended.
    fn settle(self: Box<Self>, outcome: Result<(), Failure>);
}

/// A change on its way, with the room it takes.
pub(super) struct Job {
    /// The change.
    pub(super) change: Box<dyn Change>,
    /// Its size in bytes.
    pub(super) bytes: usize,
    /// Given back when it is settled.
    pub(super) _room: OwnedSemaphorePermit,
}

/// The rows of one batch.
pub(crate) struct Batch<'a> {
    rows: OwnedWriteBatch,
    /// As they were before this batch.
    pub(crate) tables: &'a Tables,
    /// The rows that are compared before they change.
    pub(super) staged: &'a mut Staged,
    /// Tasks whose events this batch changes, by the keys of their first rows.
    pub(super) touched: Map<Slice, Touched>,
    /// First events that gather over all changes, and what is forgotten of them.
    pub(super) firsts: Firsts,
    /// What puts other rows that gather over all changes.
    last: Vec<Last>,
}

type Last = Box<dyn FnOnce(&mut Batch<'_>)>;

impl<'a> Batch<'a> {
    /// An empty one.
    pub(super) fn new(tables: &'a Tables, staged: &'a mut Staged) -> Batch<'a> {
        let rows = tables.database.batch().durability(Some(PersistMode::SyncData));
        Batch { rows, tables, staged, touched: Map::default(), firsts: Firsts::default(), last: Vec::new() }
    }

    /// When all changes are staged.
    pub(crate) fn at_last(&mut self, put: impl FnOnce(&mut Batch<'_>) + 'static) {
        self.last.push(Box::new(put));
    }

    /// Makes it durable, and then lets readers see it.
    pub(super) fn commit(mut self) -> fjall::Result<()> {
        for put in std::mem::take(&mut self.last) {
            put(&mut self);
        }
        let noted = self.close_firsts();
        self.rows.commit()?;
        noted.note(&self.tables.index);
        Ok(())
    }

    /// Puts a row; the last of one key in a batch stays.
    pub(crate) fn put(&mut self, table: Table, key: impl Into<Slice>, data: impl Into<Slice>) {
        self.rows.insert(self.tables.of(table), key.into(), data.into());
    }

    /// Takes a row away.
    pub(crate) fn remove(&mut self, table: Table, key: impl Into<Slice>) {
        self.rows.remove(self.tables.of(table), key);
    }
}

/// A change made of two functions: `stage` puts rows and gives the answer, `published` runs on the writer once they
/// are durable, before the answer goes out.
pub(super) struct Ask<T, S, P> {
    stage: Option<S>,
    published: P,
    staged: Option<T>,
    answer: oneshot::Sender<Result<T, Failure>>,
}

impl<T, S, P> Ask<T, S, P>
where
    T: Send,
    S: FnOnce(&mut Batch<'_>) -> T + Send,
    P: FnOnce(&T) + Send,
{
    /// The change and where its answer comes.
    pub(super) fn new(stage: S, published: P) -> (Ask<T, S, P>, oneshot::Receiver<Result<T, Failure>>) {
        let (answer, answered) = oneshot::channel();
        (Ask { stage: Some(stage), published, staged: None, answer }, answered)
    }
}

impl<T, S, P> Change for Ask<T, S, P>
where
    T: Send,
    S: FnOnce(&mut Batch<'_>) -> T + Send,
    P: FnOnce(&T) + Send,
{
    fn stage(&mut self, batch: &mut Batch<'_>) {
        self.staged = self.stage.take().map(|stage| stage(batch));
    }

    fn settle(self: Box<Self>, outcome: Result<(), Failure>) {
        let answer = match (outcome, self.staged) {
            (Ok(()), Some(staged)) => {
                (self.published)(&staged);
                Ok(staged)
            }
            (Ok(()), None) => Err(Failure::Restart("a change was answered that was never staged".to_owned())),
            (Err(failure), _) => Err(failure),
        };
        // Whoever asked may have stopped waiting.
        let _ = self.answer.send(answer);
    }
}

/// Since when the writer has been at its present batch, for liveness.
#[derive(Clone)]
pub(super) struct Busy {
    anchor: Instant,
    /// Milliseconds after the anchor, plus 1; 0 = idle.
    since: Arc<AtomicU64>,
}

impl Busy {
    /// Idle.
    pub(super) fn new() -> Busy {
        Busy { anchor: Instant::now(), since: Arc::new(AtomicU64::new(0)) }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.anchor.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// At the next step from now on.
    pub(super) fn begin(&self) {
        self.since.store(self.now_ms() + 1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Milliseconds that the present batch has taken so far; 0 when idle.
    pub(super) fn ms(&self) -> u64 {
        match self.since.load(Ordering::Relaxed) {
            0 => 0,
            since => self.now_ms().saturating_sub(since - 1),
        }
    }
}

/// The writer's own state.
pub(super) struct Writer {
    /// The tables.
    pub(super) tables: Tables,
    /// Rows as of the last change staged.
    pub(super) staged: Staged,
    /// For free space.
    pub(super) dir: PathBuf,
    /// Free space below which nothing is written, in bytes.
    pub(super) disk_reserve_bytes: u64,
    /// For liveness.
    pub(super) busy: Busy,
    /// Set by the first commit that failed.
    pub(super) failed: Option<Failure>,
    /// What was written lately.
    pub(super) lately: Lately,
    /// Quiet tables were flushed, and what was flushed may still be in memory.
    pub(super) has_flushed: bool,
}

impl Writer {
    /// Runs until every sender is gone and all they sent is answered.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        let mut gatherer = Gatherer::default();
        loop {
            let first = match queue.recv_timeout(QUIET) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.tend_index();
                    self.look_for_quiet(0);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
            };
            self.busy.begin();
            let Gathered { mut jobs, bytes } = gatherer.gather(first, queue, std::thread::sleep);
            let outcome = self.write(&mut jobs);
            let is_written = outcome.is_ok();
            for job in jobs {
                job.change.settle(outcome.clone());
            }
            // Nobody waits for their answer meanwhile.
            if is_written {
                self.rotate_full_memtables();
                self.tend_index();
            }
            self.busy.end();
            self.look_for_quiet(bytes);
        }
    }

    /// What the index has written is put on record, unless writing failed: then the next start reads it again.
    fn finish(mut self) {
        let finished = self.tables.index.finish().and_then(|()| {
            let batch = Batch::new(&self.tables, &mut self.staged);
            if self.failed.is_none() { batch.commit().map_err(|e| Failure::of_write(&e)) } else { Ok(()) }
        });
        if let Err(failure) = finished {
            tracing::warn!(error = %failure, "the next start of the embedded store reads more");
        }
    }

    fn write(&mut self, jobs: &mut [Job]) -> Result<(), Failure> {
        self.admit()?;
        let mut batch = Batch::new(&self.tables, &mut self.staged);
        for job in jobs {
            job.change.stage(&mut batch);
        }
        let committed = batch.commit().map_err(|error| Failure::of_write(&error));
        committed.inspect_err(|failure| self.fail(failure))
    }

    /// From now on everything is refused.
    fn fail(&mut self, failure: &Failure) {
        tracing::error!(error = %failure, dir = %self.dir.display(), "embedded store cannot write: restart it");
        self.failed = Some(match failure {
            Failure::Unavailable(text) => Failure::Restart(format!("a write failed before: {text}")),
            lasting => lasting.clone(),
        });
    }

    fn tend_index(&mut self) {
        if self.failed.is_none()
            && let Err(failure) = self.tables.index.tend(&self.tables.event_at)
        {
            self.fail(&failure);
        }
    }

    /// Refuses a batch before anything of it is staged: these refusals pass by themselves or by a restart.
    fn admit(&mut self) -> Result<(), Failure> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone());
        }
        let free = free_bytes(&self.dir)?;
        if free < self.disk_reserve_bytes {
            return Err(Failure::Unavailable(format!(
                "disk nearly full: {free} bytes free under {}, {} are kept free",
                self.dir.display(),
                self.disk_reserve_bytes
            )));
        }
        self.await_files()
    }
}

fn free_bytes(dir: &std::path::Path) -> Result<u64, Failure> {
    let stat = rustix::fs::statvfs(dir)
        .map_err(|error| Failure::Unavailable(format!("{}: {error}", dir.display())))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
