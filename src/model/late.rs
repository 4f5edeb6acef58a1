//! Pointers to ready tasks that are neither in memory nor above the watermark, by queue. No truth: what a pointer means
//! is read from the task's facts before anything is done with it, so one too many costs a read and changes nothing.
//!
//! ```text
//! late        shard, queue | due_at, version      → place         one row a pointer, in the order the queue runs
//! late_queue  shard, epoch, number | seq          → queue, from where its pointers are to be read, or none any more
//! ```
//!
//! The rows of `late_queue` under one (epoch, number) are a segment. An owner writes segments of its own epoch only, and
//! the progress row says which one counts: it names the segment and the watermark that rests on it together.

use super::name::QueueName;
use super::owner::{Epoch, Shard, Version};
use super::row::Place;
use super::time::Wall;

/// Where a task stands in its queue: queues run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Standing {
    /// When it is due.
    pub due_at: Wall,
    /// The version that set its due time.
    pub version: Version,
}

impl Standing {
    /// Before all others.
    pub const MIN: Standing = Standing { due_at: Wall(i64::MIN), version: Version::MIN };

    /// The first standing after this one.
    #[must_use]
    pub fn next(self) -> Standing {
        Standing { version: Version(self.version.0.saturating_add(1)), ..self }
    }
}

/// A row of `late`: a ready task of a queue, and where its facts lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointerRow {
    /// The shard.
    pub shard: Shard,
    /// The task's queue.
    pub queue: QueueName,
    /// When the queue got its first pointer: pointers due before lie together.
    pub opened: Wall,
    /// What it points to.
    pub pointer: Pointer,
}

/// A ready task: its standing and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer {
    /// When the task is due.
    pub due_at: Wall,
    /// Its version.
    pub version: Version,
    /// Its ready time.
    pub ready_at: Wall,
}

impl Pointer {
    /// The pointer to a task.
    pub fn of(due_at: Wall, place: Place) -> Pointer {
        Pointer { due_at, version: place.version, ready_at: place.ready_at }
    }

    /// Its standing in its queue.
    pub fn standing(&self) -> Standing {
        Standing { due_at: self.due_at, version: self.version }
    }

    /// Where the task's facts lie.
    pub fn place(&self) -> Place {
        Place { ready_at: self.ready_at, version: self.version }
    }
}

/// Pointers of one queue to be read: from a standing on, those due before a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointerRange {
    /// The queue.
    pub queue: QueueName,
    /// As in its pointer rows.
    pub opened: Wall,
    /// The first standing.
    pub from: Standing,
    /// Due before this.
    pub to: Wall,
}

/// A page of pointers, in order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PointerPage {
    /// The pointers.
    pub pointers: Vec<Pointer>,
    /// Where to go on; `None` = the range was read to its end.
    pub next: Option<Standing>,
}

/// Names a list of late queues. Never used again once another one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Segment {
    /// The epoch that writes it.
    pub epoch: Epoch,
    /// Rising within the epoch.
    pub number: u64,
}

/// A row of `late_queue`; of several for one queue in a segment the highest `seq` counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateQueueRow {
    /// The shard.
    pub shard: Shard,
    /// The list it belongs to.
    pub segment: Segment,
    /// Rising within the segment.
    pub seq: u64,
    /// The queue.
    pub queue: QueueName,
    /// From where its pointers are to be read; `None` = all they point to is finished or in memory above the watermark.
    pub entry: Option<LateEntry>,
}

/// Where the pointers of a late queue begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateEntry {
    /// As in its pointer rows.
    pub opened: Wall,
    /// No pointer to an unfinished task lies before this standing.
    pub from: Standing,
    /// Tasks with an attempt under way although they do not stand first: others came before them.
    pub under_way: Vec<Pointer>,
}
