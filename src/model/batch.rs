//! Batches: one verb for many tasks, as a person asked for it; and how far such a one got.
//!
//! A batch is an operation, and its number is the operation's. It acts on what was there when it began, shard after shard, by
//! events like any producer's; whoever owns its home shard goes on where the last owner was.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::name::{HandlerName, QueueName, TaskId, TaskKey};
use super::owner::{Epoch, Shard, Version};
use super::task::{CloseReason, TaskState};
use super::time::Wall;
use super::{Change, Operation};

/// What is done to each task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchVerb {
    /// It is cancelled.
    Cancel,
    /// Its due time moves.
    Reschedule,
    /// A dead one runs again.
    Redrive,
    /// A dead letter is taken from the list.
    Purge,
}

impl BatchVerb {
    /// All of them.
    pub const ALL: [BatchVerb; 4] =
        [BatchVerb::Cancel, BatchVerb::Reschedule, BatchVerb::Redrive, BatchVerb::Purge];

    /// The word used in rows and API.
    pub fn word(self) -> &'static str {
        match self {
            BatchVerb::Cancel => "cancel",
            BatchVerb::Reschedule => "reschedule",
            BatchVerb::Redrive => "redrive",
            BatchVerb::Purge => "purge",
        }
    }

    /// The verb of a word.
    pub fn from_word(word: &str) -> Option<BatchVerb> {
        BatchVerb::ALL.into_iter().find(|verb| verb.word() == word)
    }

    /// Whether it is about dead letters, by when they died; else about tasks, by when they may start.
    pub fn is_of_dead_letters(self) -> bool {
        matches!(self, BatchVerb::Redrive | BatchVerb::Purge)
    }
}

/// Which tasks; what is not given takes every one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchFilter {
    /// Of this queue.
    pub queue: Option<QueueName>,
    /// With this id.
    pub id: Option<TaskId>,
    /// Of this handler.
    pub handler: Option<HandlerName>,
    /// Of this collection.
    pub collection: Option<Arc<str>>,
    /// In this state: scheduled, retrying, parked or running.
    pub state: Option<TaskState>,
    /// That died so.
    pub died: Option<CloseReason>,
}

impl BatchFilter {
    /// Whether it is about some queues, handlers or collections, and not about all.
    pub fn is_narrow(&self) -> bool {
        self.queue.is_some() || self.handler.is_some() || self.collection.is_some()
    }

    /// Whether it takes a task of this name, handler and collection.
    pub fn takes(&self, key: &TaskKey, handler: &HandlerName, collection: Option<&Arc<str>>) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == key.queue)
            && self.id.as_ref().is_none_or(|id| *id == key.id)
            && self.handler.as_ref().is_none_or(|wanted| wanted == handler)
            && self.collection.as_ref().is_none_or(|wanted| collection == Some(wanted))
    }
}

/// One verb for many tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What is done.
    pub verb: BatchVerb,
    /// To which.
    pub filter: BatchFilter,
    /// From this time on: by when tasks may start, or died.
    pub from: Wall,
    /// To before this one.
    pub to: Wall,
    /// How far due times move, in milliseconds; 0 but for a reschedule.
    pub shift_ms: i64,
    /// Tasks a second, at most.
    pub rate: u32,
    /// Nothing is done, only counted.
    pub dry_run: bool,
}

impl Batch {
    /// Whether another one asks for the same, its times aside: they may be counted from when it was asked.
    pub fn asks_the_same(&self, other: &Batch) -> bool {
        let of =
            |batch: &Batch| (batch.verb, batch.filter.clone(), batch.shift_ms, batch.rate, batch.dry_run);
        of(self) == of(other)
    }
}

/// How far a batch got, as one owner of its home shard wrote it. The highest epoch's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchProgress {
    /// The epoch of the owner.
    pub epoch: Epoch,
    /// The owner's instance, for people.
    pub instance: Arc<str>,
    /// The shard it is at; those before are done.
    pub shard: Shard,
    /// Tasks of this shard that stand before this are done.
    pub reached: Reached,
    /// For each shard: versions from this one on came after the batch began, and are left alone.
    pub cutoffs: Vec<Version>,
    /// Tasks that the filter took.
    pub found: u64,
    /// Those that were asked to change.
    pub asked: u64,
    /// Those that could not be asked, for good.
    pub failed: u64,
    /// The first of those that were found.
    pub sample: Vec<TaskKey>,
    /// What it waits for, or what went wrong last.
    pub trouble: Option<Arc<str>>,
    /// When this was written.
    pub at: Wall,
    /// Nothing is left.
    pub is_done: bool,
}

/// How far a batch got within a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reached {
    /// Everything before this time is done.
    pub at: Wall,
    /// Of this time: everything with a version below this.
    pub version: Version,
}

impl Reached {
    /// Nothing from this time on is done.
    pub fn start_of(at: Wall) -> Reached {
        Reached { at, version: Version::MIN }
    }
}

/// A batch as the operations tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownBatch {
    /// The operation that began it.
    pub begun: Operation,
    /// What is to be done.
    pub batch: Batch,
    /// Whether a person has stopped it: the operation.
    pub stopped: Option<u64>,
}

/// All batches, made of the operations in order.
#[derive(Clone, Debug, Default)]
pub struct Batches {
    last: u64,
    known: BTreeMap<u64, KnownBatch>,
}

impl Batches {
    /// Takes the next operation. One that was taken before changes nothing.
    pub fn apply(&mut self, operation: &Operation) {
        if operation.number <= self.last {
            return;
        }
        self.last = operation.number;
        match &operation.change {
            Change::BatchBegun(batch) => {
                let known = KnownBatch { begun: operation.clone(), batch: batch.clone(), stopped: None };
                self.known.insert(operation.number, known);
            }
            Change::BatchStopped(number) => self.set(*number, Some(operation.number)),
            Change::BatchResumed(number) => self.set(*number, None),
            Change::GateSet(_)
            | Change::GateCleared(..)
            | Change::Drained(_)
            | Change::Undrained(_)
            | Change::ShardsReset(_)
            | Change::Other(_) => {}
        }
    }

    fn set(&mut self, number: u64, stopped: Option<u64>) {
        if let Some(known) = self.known.get_mut(&number) {
            known.stopped = stopped;
        }
    }

    /// The batch of a number.
    pub fn get(&self, number: u64) -> Option<&KnownBatch> {
        self.known.get(&number)
    }

    /// The operation of an id that began one.
    pub fn of_id(&self, id: u128) -> Option<&Operation> {
        self.known.values().map(|known| &known.begun).find(|begun| begun.id == id)
    }

    /// All of them, the oldest first.
    pub fn oldest_first(&self) -> impl Iterator<Item = &KnownBatch> {
        self.known.values()
    }

    /// All of them, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &KnownBatch> {
        self.known.values().rev()
    }
}
