//! The one thread that writes: group commit.
//!
//! It takes every change waiting, stages them in order in one batch, makes the batch durable with one fsync, and then
//! answers them all. Changes that compare (owner rows, offsets) compare against what is staged, so that they are
//! linearizable without a lock. While an fsync runs the next batch gathers; an idle writer adds no delay.
//!
//! The batch is written with `PersistMode::SyncData`: fjall then writes its journal, calls `fdatasync` on it, and
//! only after that applies the rows to memory, so that a reader never sees what a crash could take back. Before that it reads the
//! first rows of tasks that get an event and are not known to be new ([`super::events`]). A failed
//! commit poisons the database for good, so staged state needs no way back: from then on everything is refused.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fjall::{AbstractTree as _, OwnedWriteBatch, PersistMode, Slice};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::db::{Failure, MEMTABLE_BYTES, MEMTABLE_BYTES_MAX, Table, Tables};
use super::events::{Map, Touched};
use super::meta::Staged;

/// Most changes of one batch.
const BATCH_CHANGES_MAX: usize = 4_096;
/// A batch takes no further change from this size on, in bytes.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Sealed memtables of a table at which the writer waits for the flush. fjall itself would wait from four on, without
/// end should its flush have failed.
const SEALED_MEMTABLES_MAX: usize = 3;
/// Tables are quiet when for so long no more than so much was written, in bytes.
const QUIET: Duration = Duration::from_secs(3);
const QUIET_BYTES: usize = 256 * 1024;
/// Memtables of quiet tables are flushed when they hold more than this together, in bytes: memory at rest is small,
/// and so is the journal that the next start reads.
const QUIET_MEMTABLES_BYTES: u64 = 1024 * 1024;
/// How long the writer waits before it looks at the flush again.
const FLUSH_POLL: Duration = Duration::from_millis(5);

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
    /// What puts rows that gather over all changes.
    last: Vec<Last>,
}

type Last = Box<dyn FnOnce(&mut Batch<'_>)>;

impl<'a> Batch<'a> {
    /// An empty one.
    pub(super) fn new(tables: &'a Tables, staged: &'a mut Staged) -> Batch<'a> {
        let rows = tables.database.batch().durability(Some(PersistMode::SyncData));
        Batch { rows, tables, staged, touched: Map::default(), last: Vec::new() }
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
        self.rows.commit()
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

    fn begin(&self) {
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

/// Bytes written since a moment.
pub(super) struct Lately {
    since: Instant,
    bytes: usize,
}

impl Lately {
    /// Nothing yet.
    pub(super) fn new() -> Lately {
        Lately { since: Instant::now(), bytes: 0 }
    }

    /// Notes a batch; true when little was written for a while.
    fn is_quiet(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        if self.since.elapsed() < QUIET {
            return false;
        }
        let quiet = self.bytes < QUIET_BYTES;
        *self = Lately::new();
        quiet
    }
}

impl Writer {
    /// Runs until every sender is gone and all they sent is answered.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        loop {
            let first = match queue.recv_timeout(QUIET) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.look_for_quiet(0);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.busy.begin();
            let mut bytes = first.bytes;
            let mut jobs = vec![first];
            while jobs.len() < BATCH_CHANGES_MAX && bytes < BATCH_BYTES_MAX {
                let Ok(job) = queue.try_recv() else { break };
                bytes += job.bytes;
                jobs.push(job);
            }
            let outcome = self.write(&mut jobs);
            for job in jobs {
                job.change.settle(outcome.clone());
            }
            self.busy.end();
            self.look_for_quiet(bytes);
        }
    }

    /// After a batch of so many bytes.
    fn look_for_quiet(&mut self, bytes: usize) {
        if !self.lately.is_quiet(bytes) || self.failed.is_some() {
            return;
        }
        if self.tables.database.write_buffer_size() > QUIET_MEMTABLES_BYTES {
            self.flush_quiet_tables();
            self.has_flushed = true;
        } else if std::mem::take(&mut self.has_flushed)
            && let Err(error) = self.tables.forget_flushed()
        {
            tracing::warn!(%error, "flushed memtables of the embedded store stay in memory");
        }
    }

    /// The flush itself runs on the database's own threads. A failure shows at the next write.
    fn flush_quiet_tables(&self) {
        self.tables.all().into_iter().filter(|table| has_room(table)).for_each(rotate);
    }

    fn write(&mut self, jobs: &mut [Job]) -> Result<(), Failure> {
        self.admit()?;
        let mut batch = Batch::new(&self.tables, &mut self.staged);
        for job in jobs {
            job.change.stage(&mut batch);
        }
        let committed = batch.commit().map_err(|error| {
            let failure = Failure::of_write(&error);
            tracing::error!(error = %failure, dir = %self.dir.display(), "embedded store cannot write: restart it");
            self.failed = Some(match &failure {
                Failure::Unavailable(text) => Failure::Restart(format!("a write failed before: {text}")),
                lasting => lasting.clone(),
            });
            failure
        });
        if committed.is_ok() {
            self.rotate_full_memtables();
        }
        committed
    }

    /// Rotates what is full, and does not leave it to fjall. fjall asks its worker to, with every batch until it is done, in a queue
    /// of 1,000 that the worker itself writes to: filled during a long compaction, both waited for ever. While older ones wait
    /// for their flush a memtable grows instead, to its bound, so that a compaction does not hold up writes at once.
    fn rotate_full_memtables(&self) {
        for table in self.tables.all() {
            let size = table.tree.active_memtable().size();
            if (size > MEMTABLE_BYTES && has_room(table)) || size > MEMTABLE_BYTES_MAX {
                rotate(table);
            }
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
        self.await_flush()
    }

    fn await_flush(&self) -> Result<(), Failure> {
        while self.tables.all().iter().any(|table| table.sealed_memtable_count() >= SEALED_MEMTABLES_MAX) {
            // Answers whether the database still lives; writes out nothing that is not written out anyway.
            self.tables.database.persist(PersistMode::Buffer).map_err(|error| Failure::of_write(&error))?;
            std::thread::park_timeout(FLUSH_POLL);
        }
        Ok(())
    }
}

/// Whether a memtable may be sealed without holding up the next batch.
fn has_room(table: &fjall::Keyspace) -> bool {
    table.sealed_memtable_count() + 1 < SEALED_MEMTABLES_MAX
}

fn rotate(table: &fjall::Keyspace) {
    if let Err(error) = table.rotate_memtable() {
        tracing::warn!(%error, "rotating a memtable of the embedded store failed");
    }
}

fn free_bytes(dir: &std::path::Path) -> Result<u64, Failure> {
    let stat = rustix::fs::statvfs(dir)
        .map_err(|error| Failure::Unavailable(format!("{}: {error}", dir.display())))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
