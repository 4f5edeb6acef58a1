//! What the member's thread shares with callers and callbacks: the board, its orders, its signs of life.

use std::collections::{BTreeMap, VecDeque};
#[cfg(feature = "testing")]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;
use std::time::Instant;

use tokio::sync::{oneshot, watch};

use super::board::{Board, Cell, locked};
use super::leaders::{Checked, Stranded};
use crate::log::{Assignment, Error};
use crate::model::Shard;

/// Commands that may wait.
const COMMANDS_MAX: usize = 65_536;

/// What the thread is told to do.
pub(super) enum Command {
    /// Read a shard from an offset.
    Seek { shard: Shard, offset: u64, answer: oneshot::Sender<Result<(), Error>> },
    /// Read on: the shard's buffer has room.
    Resume(Shard),
    /// Read a shard no more.
    Stop(Shard),
    /// Make the connections to the leaders of these shards' partitions.
    Meet(Vec<Shard>),
    /// What the leaders hold.
    Checked(Checked),
    /// Which shards have no member.
    Stranded(Stranded),
    /// Leave the group.
    Leave,
    /// Join it again.
    Join,
    /// Have librdkafka fail for good.
    #[cfg(feature = "testing")]
    Fail,
    /// Do nothing until the sender is dropped.
    #[cfg(feature = "testing")]
    Hold(std::sync::mpsc::Receiver<()>),
}

/// Offsets to be committed, each with the assignment it belongs to: a later one of the same shard is another.
pub(super) type Commits = BTreeMap<Shard, (Arc<Cell>, u64)>;

/// What the thread shares with callers and callbacks.
pub(super) struct Shared {
    pub(super) board: Board,
    commands: Mutex<VecDeque<Command>>,
    commits: Mutex<Commits>,
    begun: Instant,
    beat_ms: AtomicU64,
    closing: AtomicBool,
    broken: AtomicBool,
    closed: watch::Sender<bool>,
    thread: OnceLock<Thread>,
    #[cfg(feature = "testing")]
    fails_when_taken: AtomicBool,
    #[cfg(feature = "testing")]
    reads: AtomicUsize,
}

impl Shared {
    pub(super) fn new(buffer_bytes: usize) -> Shared {
        Shared {
            board: Board::new(buffer_bytes),
            commands: Mutex::default(),
            commits: Mutex::default(),
            begun: Instant::now(),
            beat_ms: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            closed: watch::Sender::new(false),
            thread: OnceLock::new(),
            #[cfg(feature = "testing")]
            fails_when_taken: AtomicBool::new(false),
            #[cfg(feature = "testing")]
            reads: AtomicUsize::new(0),
        }
    }

    /// Gives the thread an order; false when it has too many.
    pub(super) fn order(&self, command: Command) -> bool {
        let mut commands = locked(&self.commands);
        if commands.len() >= COMMANDS_MAX || self.closing.load(Ordering::Acquire) {
            return false;
        }
        commands.push_back(command);
        drop(commands);
        self.wake();
        true
    }

    /// Notes an offset to be committed.
    pub(super) fn commit(&self, shard: Shard, next: u64) {
        if let Some(cell) = self.board.cell(shard) {
            locked(&self.commits).insert(shard, (cell, next));
        }
    }

    /// Shards may be another's already: they are read no more, and that is told.
    pub(super) fn lose(&self, shards: &[Shard]) {
        let lost = self.board.take_away(shards);
        for shard in &lost {
            // With too many orders waiting it is read on, and what comes of it dropped.
            self.order(Command::Stop(*shard));
        }
        self.board.tell(Assignment::Lost(lost));
    }

    /// The client is beyond repair.
    pub(super) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    #[cfg(feature = "testing")]
    pub(super) fn fail_when_taken(&self) {
        self.fails_when_taken.store(true, Ordering::Release);
    }

    #[cfg(feature = "testing")]
    pub(super) fn fails_when_taken(&self) -> bool {
        self.fails_when_taken.swap(false, Ordering::AcqRel)
    }

    #[cfg(feature = "testing")]
    pub(super) fn note_reads(&self, reads: usize) {
        self.reads.store(reads, Ordering::Release);
    }

    #[cfg(feature = "testing")]
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn closed(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }

    pub(super) fn silent_ms(&self) -> u64 {
        self.age_ms().saturating_sub(self.beat_ms.load(Ordering::Relaxed))
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The thread is alive.
    pub(super) fn beat(&self) {
        self.beat_ms.store(self.age_ms(), Ordering::Relaxed);
    }

    /// Orders and commits of this thread's callers reach it from now on.
    pub(super) fn serve_here(&self) {
        self.thread.get_or_init(std::thread::current);
    }

    pub(super) fn take_commands(&self) -> VecDeque<Command> {
        std::mem::take(&mut *locked(&self.commands))
    }

    pub(super) fn take_commits(&self) -> Commits {
        std::mem::take(&mut *locked(&self.commits))
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Whether the client was marked as broken since the last call.
    pub(super) fn take_broken(&self) -> bool {
        self.broken.swap(false, Ordering::AcqRel)
    }

    /// The group is left.
    pub(super) fn say_closed(&self) {
        self.closed.send_replace(true);
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
