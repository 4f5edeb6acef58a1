//! The one database under a data directory, shared by the embedded store and the embedded log.
//!
//! ```text
//! <dir>/dueline.lock   the exclusive lock, with the holder's process id
//! <dir>/db/            fjall: tables due, due_pack, task_event, event_pack, event_at, event_ids, payload, late, late_queue, dead_letter, log, meta and one journal for all of them
//! ```
//! Reads go straight to the tables from any thread. Writes go to the one writer thread ([`super::writer`]). The
//! database closes, and gives its lock back, when the last handle is dropped: everything answered is on disk before.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fjall::compaction::Leveled;
use fjall::config::{FilterPolicy, PartitioningPolicy};
use fjall::{Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::firsts::Index;
use super::lock::DirLock;
use super::meta::{self, Staged};
use super::upkeep::Lately;
use super::writer::{Ask, Batch, Busy, Job, Writer};
use crate::{log, store};

/// Block cache, in bytes.
const CACHE_BYTES: u64 = 8 * 1024 * 1024;
/// All journals together, in bytes: what a start reads at most.
const JOURNAL_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// One memtable of a table, in bytes.
pub(super) const MEMTABLE_BYTES: u64 = 8 * 1024 * 1024;
/// The same while older ones wait for their flush.
pub(super) const MEMTABLE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Where fjall would rotate it by itself: never reached, as the writer does it before.
const MEMTABLE_BYTES_FJALL: u64 = 4 * MEMTABLE_BYTES_MAX;
/// What compaction writes in one file, in bytes: its fsync is what the journal's waits for (100 ms for fjall's 64 MiB).
const TABLE_BYTES: u64 = 8 * 1024 * 1024;
/// Flushed memtables of a table that are compacted together: more are written less often, and each is one more to look into.
const TABLES_UNSORTED: u8 = 8;
/// Tables that single keys are looked up in, which filters speed up; of the others ranges are read.
const READ_BY_KEY: [&str; 5] = ["task_event", "event_pack", "event_at", "payload", "meta"];
/// The tables whose values lie in files of their own if they are larger than a KiB, as frames and packs under load are: compaction
/// writes their keys anew, and of them what is left in old files that are a quarter dead. fjall syncs the names of such files when it opens
/// them, and leaves it to the file system that a new file's fsync syncs its name too (ext4 and XFS do).
const VALUES_APART: [&str; 2] = ["log", "due_pack"];
/// Threads that flush and compact. Of several, fjall keeps one free for flushes, which spins while others compact.
const WORKER_THREADS: usize = 1;
/// Free disk space below which writes are refused, in bytes (default): room to flush what is in memory, and to start.
const DISK_RESERVE_BYTES: u64 = 512 * 1024 * 1024;
/// Room for changes waiting for the writer, in units of [`ROOM_UNIT_BYTES`]: once for those that wait for room (store
/// calls), once for those that are refused when there is none (appends, which keep the order of the calls).
const LANE_ROOM: u32 = 65_536;
/// A change takes one unit of room for every so many bytes begun.
const ROOM_UNIT_BYTES: usize = 1_024;

/// What is opened, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data directory; made when missing.
    pub dir: PathBuf,
    /// Block cache, in bytes.
    pub cache_bytes: u64,
    /// Free disk space below which writes are refused until there is more, in bytes.
    pub disk_reserve_bytes: u64,
}

impl Options {
    /// The defaults, for a directory.
    pub fn at(dir: impl Into<PathBuf>) -> Options {
        Options { dir: dir.into(), cache_bytes: CACHE_BYTES, disk_reserve_bytes: DISK_RESERVE_BYTES }
    }
}

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process runs on it.
    #[error("data directory {} is in use by {holder}: stop it, or choose another directory", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process, as far as known.
        holder: String,
    },
    /// It cannot be made, read or written.
    #[error("data directory {}: {source}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The database in it cannot be opened.
    #[error("data directory {}: {detail}", dir.display())]
    Database {
        /// The directory.
        dir: PathBuf,
        /// What is wrong.
        detail: String,
    },
}

/// Why a call failed, before store or log word it their way.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// May pass by itself.
    #[error("{0}")]
    Unavailable(String),
    /// Does not pass: this process has to start anew.
    #[error("{0}; restart this process: what was answered is safe and is read again")]
    Restart(String),
    /// Stored bytes are not readable.
    #[error("{0}")]
    Corrupt(String),
}

impl Failure {
    /// Of a commit.
    pub(super) fn of_write(error: &fjall::Error) -> Failure {
        match error {
            fjall::Error::Io(error) => Failure::Unavailable(error.to_string()),
            fjall::Error::Poisoned => {
                Failure::Restart("the database stopped writing after an IO error".to_owned())
            }
            other => Failure::Restart(other.to_string()),
        }
    }

    /// Of a read.
    pub(crate) fn of_read(error: &fjall::Error) -> Failure {
        match error {
            fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
                Failure::Unavailable(error.to_string())
            }
            other => Failure::Corrupt(other.to_string()),
        }
    }

    /// The writer is not there to answer.
    pub(crate) fn writer_gone() -> Failure {
        Failure::Restart("the database's writer has ended".to_owned())
    }
}

impl From<Failure> for store::Error {
    fn from(failure: Failure) -> store::Error {
        let text = failure.to_string();
        match failure {
            Failure::Unavailable(_) => store::Error::Unavailable(text),
            Failure::Restart(_) => store::Error::Misconfigured(text),
            Failure::Corrupt(_) => store::Error::Corrupt(text),
        }
    }
}

impl From<Failure> for log::Error {
    fn from(failure: Failure) -> log::Error {
        let text = failure.to_string();
        match failure {
            Failure::Unavailable(_) => log::Error::Unavailable(text),
            Failure::Restart(_) | Failure::Corrupt(_) => log::Error::Fatal(text),
        }
    }
}

/// The tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// Tasks and their facts.
    Due,
    /// Tasks, starts and ends, many in a row.
    DuePack,
    /// Schedule events by task.
    TaskEvent,
    /// First events of many tasks.
    EventPack,
    /// Where those lie.
    EventAt,
    /// Ids that have events.
    EventIds,
    /// Payloads stored apart.
    Payload,
    /// Pointers of late queues.
    Late,
    /// Lists of late queues.
    LateQueue,
    /// Dead letters.
    DeadLetter,
    /// Records of all topics.
    Log,
    /// The small rows.
    Meta,
}

/// Handles of the tables.
#[derive(Clone)]
pub(crate) struct Tables {
    /// For batches.
    pub(super) database: fjall::Database,
    /// `due`.
    pub(super) due: Keyspace,
    /// `due_pack`.
    pub(super) due_pack: Keyspace,
    /// `task_event`.
    pub(super) task_event: Keyspace,
    /// `event_pack`.
    pub(super) event_pack: Keyspace,
    /// `event_at`.
    pub(super) event_at: Keyspace,
    /// What `event_at` does not have yet.
    pub(super) index: Arc<Index>,
    /// `event_ids`.
    pub(super) event_ids: Keyspace,
    /// `payload`.
    pub(super) payload: Keyspace,
    /// `late`.
    pub(super) late: Keyspace,
    /// `late_queue`.
    pub(super) late_queue: Keyspace,
    /// `dead_letter`.
    pub(super) dead_letter: Keyspace,
    /// `log`.
    pub(crate) log: Keyspace,
    /// `meta`.
    pub(crate) meta: Keyspace,
}

impl Tables {
    fn open(options: &Options) -> fjall::Result<Tables> {
        let database = fjall::Database::builder(options.dir.join("db"))
            .cache_size(options.cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .worker_threads(WORKER_THREADS)
            .open()?;
        // A table that is there already keeps what it was made with.
        let table = |name| {
            let compaction =
                || Leveled::default().with_table_target_size(TABLE_BYTES).with_l0_threshold(TABLES_UNSORTED);
            let options = || {
                let options = KeyspaceCreateOptions::default()
                    .max_memtable_size(MEMTABLE_BYTES_FJALL)
                    .compaction_strategy(Arc::new(compaction()));
                let apart = || KvSeparationOptions::default().file_target_size(TABLE_BYTES);
                let options = options.with_kv_separation(VALUES_APART.contains(&name).then(apart));
                if READ_BY_KEY.contains(&name) {
                    // Else each look-up of a new id reads all of a file's filter, 80 KB, that the block cache does not keep. Those of
                    // files that were just flushed stay in memory.
                    options.filter_block_partitioning_policy(PartitioningPolicy::new([false, true]))
                } else {
                    options.filter_policy(FilterPolicy::disabled())
                }
            };
            database.keyspace(name, options)
        };
        let tables = Tables {
            due: table("due")?,
            due_pack: table("due_pack")?,
            task_event: table("task_event")?,
            event_pack: table("event_pack")?,
            event_at: table("event_at")?,
            index: Arc::default(),
            event_ids: table("event_ids")?,
            payload: table("payload")?,
            late: table("late")?,
            late_queue: table("late_queue")?,
            dead_letter: table("dead_letter")?,
            log: table("log")?,
            meta: table("meta")?,
            database: database.clone(),
        };
        Ok(tables)
    }

    /// One table.
    pub(super) fn of(&self, table: Table) -> &Keyspace {
        match table {
            Table::Due => &self.due,
            Table::DuePack => &self.due_pack,
            Table::TaskEvent => &self.task_event,
            Table::EventPack => &self.event_pack,
            Table::EventAt => &self.event_at,
            Table::EventIds => &self.event_ids,
            Table::Payload => &self.payload,
            Table::Late => &self.late,
            Table::LateQueue => &self.late_queue,
            Table::DeadLetter => &self.dead_letter,
            Table::Log => &self.log,
            Table::Meta => &self.meta,
        }
    }

    /// A flushed memtable stays in memory as part of an older version of its table. fjall drops older versions of all
    /// tables when a memtable with something in it is rotated: one row does.
    pub(super) fn forget_flushed(&self) -> fjall::Result<()> {
        meta::put_format(&self.meta)?;
        self.meta.rotate_memtable().map(drop)
    }

    /// All of them.
    pub(super) fn all(&self) -> [&Keyspace; 12] {
        let Tables { due, due_pack, task_event, event_pack, event_at, event_ids, .. } = self;
        let Tables { payload, late, late_queue, dead_letter, log, meta, .. } = self;
        [
            due,
            due_pack,
            task_event,
            event_pack,
            event_at,
            event_ids,
            payload,
            late,
            late_queue,
            dead_letter,
            log,
            meta,
        ]
    }
}

struct Inner {
    /// Taken on drop, which ends the writer.
    queue: Mutex<Option<Sender<Job>>>,
    writer: Option<JoinHandle<()>>,
    store_room: Arc<Semaphore>,
    log_room: Arc<Semaphore>,
    busy: Busy,
    log_opened: AtomicBool,
    tables: Option<Tables>,
    _lock: DirLock,
}

impl Drop for Inner {
    fn drop(&mut self) {
        lock(&self.queue).take();
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the embedded database's writer panicked");
        }
        // Before the lock goes: whoever takes it opens these files.
        self.tables.take();
    }
}

/// An open database; clones are handles of the same one.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

impl Database {
    /// Opens the database under a directory, making it when there is none, and marks every shard released.
    ///
    /// # Errors
    /// When another process has it (named), the directory cannot be used, or its content cannot be read.
    pub fn open(options: &Options) -> Result<Database, OpenError> {
        let dir = &options.dir;
        let database = |detail: String| OpenError::Database { dir: dir.clone(), detail };
        std::fs::create_dir_all(dir).map_err(|source| OpenError::Directory { dir: dir.clone(), source })?;
        let dir_lock = DirLock::take(dir)?;
        let mut tables = Tables::open(options).map_err(|e| database(e.to_string()))?;
        sync_directories(dir).map_err(|source| OpenError::Directory { dir: dir.clone(), source })?;
        meta::check_format(&tables).map_err(database)?;
        tables.index = Index::open(&tables).map_err(|e| database(e.to_string()))?.into();
        let staged = Staged::load(&tables).map_err(|e| database(e.to_string()))?;
        release_owners(&tables, &staged).map_err(|e| database(e.to_string()))?;
        let (queue, jobs) = channel();
        let busy = Busy::new();
        let writer = Writer {
            tables: tables.clone(),
            staged,
            dir: dir.clone(),
            disk_reserve_bytes: options.disk_reserve_bytes,
            busy: busy.clone(),
            failed: None,
            lately: Lately::new(),
            has_flushed: false,
        };
        let writer = std::thread::Builder::new()
            .name("dueline-writer".to_owned())
            .spawn(move || writer.run(&jobs))
            .map_err(|source| OpenError::Directory { dir: dir.clone(), source })?;
        Ok(Database(Arc::new(Inner {
            queue: Mutex::new(Some(queue)),
            writer: Some(writer),
            store_room: Arc::new(Semaphore::new(LANE_ROOM as usize)),
            log_room: Arc::new(Semaphore::new(LANE_ROOM as usize)),
            busy,
            log_opened: AtomicBool::new(false),
            tables: Some(tables),
            _lock: dir_lock,
        })))
    }

    /// The tables, for reading.
    pub(crate) fn tables(&self) -> &Tables {
        self.0.tables.as_ref().expect("taken only when the last handle is dropped")
    }

    /// Milliseconds that the writer has been at its present batch: a large number means that the disk hangs.
    pub(crate) fn busy_ms(&self) -> u64 {
        self.0.busy.ms()
    }

    /// True for the first caller only: offsets are given out by one log.
    pub(crate) fn claim_log(&self) -> bool {
        !self.0.log_opened.swap(true, Ordering::AcqRel)
    }

    /// Sends a change of about `bytes` bytes, waiting for room; answered when it is durable.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        bytes: usize,
        stage: impl FnOnce(&mut Batch<'_>) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure>> {
        let database = self.clone();
        Box::pin(async move {
            let room = Arc::clone(&database.0.store_room).acquire_many_owned(units(bytes)).await;
            let room = room.map_err(|_| Failure::writer_gone())?;
            let answered = database.send(bytes, room, stage, |_| ())?;
            answered.await.unwrap_or_else(|_| Err(Failure::writer_gone()))
        })
    }

    /// Sends a change now, in the order of the calls; `published` runs on the writer once it is durable.
    ///
    /// # Errors
    /// When so much is under way that there is no room for it.
    pub(crate) fn ask_now<T: Send + 'static>(
        &self,
        bytes: usize,
        stage: impl FnOnce(&mut Batch<'_>) -> T + Send + 'static,
        published: impl FnOnce(&T) + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Failure>>, Failure> {
        let room = Arc::clone(&self.0.log_room).try_acquire_many_owned(units(bytes));
        let room = room.map_err(|_| Failure::Unavailable("too much waits to be written".to_owned()))?;
        self.send(bytes, room, stage, published)
    }

    fn send<T: Send + 'static>(
        &self,
        bytes: usize,
        room: OwnedSemaphorePermit,
        stage: impl FnOnce(&mut Batch<'_>) -> T + Send + 'static,
        published: impl FnOnce(&T) + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Failure>>, Failure> {
        let (change, answered) = Ask::new(stage, published);
        let job = Job { change: Box::new(change), bytes, _room: room };
        let sent = lock(&self.0.queue).as_ref().map(|queue| queue.send(job));
        match sent {
            Some(Ok(())) => Ok(answered),
            _ => Err(Failure::writer_gone()),
        }
    }

    /// Runs a read on the blocking pool.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Tables) -> Result<T, Failure> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure>> {
        let database = self.clone();
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || read(database.tables()));
            read.await.unwrap_or_else(|e| Err(Failure::Unavailable(format!("the read was broken off: {e}"))))
        })
    }
}

/// Locks a mutex whose holders leave it consistent even if they panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes / ROOM_UNIT_BYTES + 1).unwrap_or(LANE_ROOM).min(LANE_ROOM)
}

fn release_owners(tables: &Tables, staged: &Staged) -> fjall::Result<()> {
    let mut batch = tables.database.batch().durability(Some(PersistMode::SyncAll));
    for (key, data) in staged.owner_rows() {
        batch.insert(&tables.meta, key, data);
    }
    batch.commit()
}

/// fjall syncs what it makes, but not the entries of the directories it makes it in.
fn sync_directories(dir: &Path) -> std::io::Result<()> {
    let parent = std::path::absolute(dir)?.parent().map(Path::to_owned);
    let made = [Some(dir.join("db").join("keyspaces")), Some(dir.join("db")), Some(dir.to_owned()), parent];
    for directory in made.into_iter().flatten() {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}
