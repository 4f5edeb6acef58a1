//! The store port: the tables of [`crate::model::row`] and the owner row, on Cassandra or embedded.
//!
//! An adapter moves rows and decides nothing. All writes are durable before they are answered (a quorum of replicas,
//! or an fsync); all reads see every write answered before; owner calls are linearizable. Rows never change once
//! sent, so every call but [`Store::bump`], [`Store::release`] and [`Store::add_operation`] may be sent again after any error.

#[cfg(feature = "cassandra")]
pub mod cassandra;
pub mod embedded;
pub mod metered;
mod pack;

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::model::{
    BatchProgress, DeadLetterRow, Died, Epoch, EventRow, FactRow, IdsRow, LateQueueRow, Operation, OwnerRow,
    OwnerUuid, Place, PointerPage, PointerRange, Progress, Release, Row, Segment, Shard, TaskKey, Version,
    Wall,
};

/// What a store call returns.
pub type Answer<T> = BoxFuture<'static, Result<T, Error>>;

/// Why a store call failed, by what the caller can do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Not answered in time or not reachable: it may have applied. Send the same again.
    #[error("the store is not answering: {0}")]
    Unavailable(String),
    /// The store refuses this very row, and would take others (too large for it, for example).
    #[error("store refuses row {index}: {detail}")]
    RowRefused {
        /// Index of the row in the request.
        index: usize,
        /// The store's words.
        detail: String,
    },
    /// Refused for everybody: guard rail, missing table or column, unauthorized. Needs a person; retried slowly.
    #[error("store refuses requests: {0}")]
    Misconfigured(String),
    /// A stored row cannot be read.
    #[error("stored row unreadable: {0}")]
    Corrupt(String),
}

/// The `cluster` row: fixed when the store is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Number of shards = partitions of the schedule topic.
    pub shards: u32,
    /// Width of a bucket of `due`, in milliseconds.
    pub bucket_ms: i64,
    /// Partitions per bucket (`sub` = version mod this).
    pub subs: u32,
    /// Name of the hash that gives a queue its home.
    pub hash: String,
    /// Key that signs the headers of forwarded records.
    pub signing_key: [u8; 32],
}

/// One id to look up in `task_event`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The task.
    pub key: TaskKey,
    /// Rows from this version …
    pub first: Version,
    /// … to this one are wanted, and the newest row below `first`.
    pub last: Version,
    /// Versions that events of the id may have which were the first and listed when they were written ([`EventRow::is_listed`]). All
    /// others are found by the id.
    pub listed: Vec<Version>,
}

/// Events of an id that are forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// The task.
    pub key: TaskKey,
    /// Up to this version.
    pub up_to: Version,
    /// As in a [`Lookup`]; `None` = not known, the store reads the list.
    pub listed: Option<Vec<Version>>,
}

/// Rows of `due`, whole places only, in order.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Slice {
    /// The rows.
    pub rows: Vec<FactRow>,
    /// Where to go on; `None` = the range was read to its end.
    pub next: Option<Place>,
}

/// A bucket of `due` of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The shard.
    pub shard: Shard,
    /// Ready times from here …
    pub from: Wall,
    /// … to before this.
    pub to: Wall,
}

/// A change of ownership, applied only if the row's epoch still is `expected` (0 = no row yet).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bump {
    /// The epoch that was read; the new one is one higher.
    pub expected: Epoch,
    /// Fresh for this bump.
    pub owner: OwnerUuid,
    /// The new owner's lease, in milliseconds.
    pub lease_ms: u64,
    /// What the new owner has to wait for before it may act, in milliseconds.
    pub wait_ms: u64,
    /// The new owner's instance name.
    pub instance: String,
    /// Where its HTTP interface answers.
    pub advertise: String,
}

/// A row of `instance`: who is alive, for people and for the hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Its data centre.
    pub dc: String,
    /// Where its HTTP interface answers.
    pub advertise: String,
    /// Its version.
    pub version: String,
    /// When it started.
    pub started_at: Wall,
    /// Its last heartbeat.
    pub seen_at: Wall,
}

impl Instance {
    /// Whether its last heartbeat is younger than so many milliseconds. What that proves is the caller's to say: who has ended
    /// a moment ago looks the same as who runs.
    pub(crate) fn seen_within(&self, now: Wall, ms: u64) -> bool {
        now.ms_since(self.seen_at) < ms
    }
}

/// Rows that were written in fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packs {
    /// What was written for rows of `due`.
    pub packs: u64,
    /// Those rows.
    pub rows: u64,
    /// What was written for rows of `task_event`.
    pub event_packs: u64,
    /// Those rows.
    pub events: u64,
}

/// The store.
pub trait Store: Send + Sync + 'static {
    /// Requests made to servers so far, those that a driver repeats by itself counted once; `None` where there are none.
    fn requests(&self) -> Option<u64> {
        None
    }

    /// Packs made of rows so far.
    fn packed(&self) -> Packs {
        Packs::default()
    }

    /// The `cluster` row; written with `wanted` when there is none.
    ///
    /// # Errors
    /// Also when the row cannot be read or written.
    fn cluster(&self, wanted: Cluster) -> Answer<Cluster>;

    /// Writes rows durably; answered when all are. Order between rows of one call is not promised.
    fn write(&self, rows: Arc<[Row]>) -> Answer<()>;

    /// For each lookup its rows, newest version first, highest epoch first within a version.
    fn lookup(&self, lookups: Vec<Lookup>) -> Answer<Vec<Vec<EventRow>>>;

    /// All events of one task, newest first, at most `rows_max`. `listed`: as in [`Forgotten`].
    fn history(&self, key: TaskKey, rows_max: usize, listed: Option<Vec<Version>>) -> Answer<Vec<EventRow>>;

    /// What of a shard is on record, and found by its version alone, from each of these versions on, as far as it may be in no list
    /// ([`crate::model::limits::UNLISTED_VERSIONS_MAX`]).
    fn unlisted(&self, _shard: Shard, _ends: Vec<Version>) -> Answer<Vec<(TaskKey, Version)>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Rows of places `from <= place < to`, about `rows_max` of them but never part of a place; what a store lays down
    /// together may come on top.
    fn slice(&self, shard: Shard, from: Place, to: Place, rows_max: usize) -> Answer<Slice>;

    /// The same from the end: the newest place first, the rows of a place in their order. `next` is the place before which it
    /// goes on.
    fn slice_back(&self, shard: Shard, from: Place, to: Place, rows_max: usize) -> Answer<Slice>;

    /// All rows of one place.
    fn facts(&self, shard: Shard, place: Place) -> Answer<Vec<FactRow>>;

    /// The payload stored apart under a place.
    fn payload(&self, shard: Shard, place: Place) -> Answer<Option<Arc<[u8]>>>;

    /// All rows of a list of late queues, in any order.
    fn late_queues(&self, shard: Shard, segment: Segment) -> Answer<Vec<LateQueueRow>>;

    /// Pointers of a range, in order, at most `rows_max`. A page may hold fewer, or none, although more follow.
    fn pointers(&self, shard: Shard, range: PointerRange, rows_max: usize) -> Answer<PointerPage>;

    /// Dead letters of a shard that died at `from` or later and stand before `before`, newest first, at most `rows_max`. Fewer
    /// = there are no more.
    fn dead_letters(
        &self,
        shard: Shard,
        from: Wall,
        before: Died,
        rows_max: usize,
    ) -> Answer<Vec<DeadLetterRow>>;

    /// The newest progress row of the highest epoch.
    fn progress(&self, shard: Shard) -> Answer<Option<Progress>>;

    /// Writes a progress row; of two of one epoch the one with the higher `stamp` stays.
    fn write_progress(&self, shard: Shard, progress: Progress, stamp: u64) -> Answer<()>;

    /// All rows of `event_ids` of a shard from a chunk on, in any order.
    fn ids(&self, shard: Shard, from: u64) -> Answer<Vec<IdsRow>>;

    /// Writes rows of `event_ids`; of two of one chunk and epoch the one with the higher `stamp` stays. One without fingerprints
    /// takes the row away.
    fn write_ids(&self, rows: Arc<[IdsRow]>, stamp: u64) -> Answer<()>;

    /// The owner row, read linearizably; the default row when there is none.
    fn owner(&self, shard: Shard) -> Answer<OwnerRow>;

    /// The owner row as a quorum of replicas shows it, as it is or as it was before: columns that were decided, those of one change
    /// maybe beside those of another. Unlike [`Store::owner`] it is in no compare-and-set's way.
    fn look_at_owner(&self, shard: Shard) -> Answer<OwnerRow> {
        self.owner(shard)
    }

    /// Compare-and-set of the owner row: true = applied. After [`Error::Unavailable`] it may or may not have been.
    fn bump(&self, shard: Shard, bump: Bump) -> Answer<bool>;

    /// Sets `released_epoch` and `wait_ms`, if epoch and owner still are these: true = applied. As [`Store::bump`].
    fn release(&self, shard: Shard, release: Release) -> Answer<bool>;

    /// Writes this instance's heartbeat.
    fn beat(&self, instance: Instance) -> Answer<()>;

    /// All instances with a heartbeat row.
    fn instances(&self) -> Answer<Vec<Instance>>;

    /// The operations with a number above `after`, in order, at most `rows_max`.
    fn operations(&self, after: u64, rows_max: usize) -> Answer<Vec<Operation>>;

    /// Puts an operation on record unless another has its number: true = it is there. Linearizable; after
    /// [`Error::Unavailable`] it may or may not be there.
    fn add_operation(&self, operation: Operation) -> Answer<bool>;

    /// The buckets of `due` with rows that end at `before` or earlier, of all shards, the oldest first. Slow: the keys of all
    /// partitions may be read.
    fn stretches(&self, before: Wall) -> Answer<Vec<Stretch>>;

    /// Forgets events.
    fn forget(&self, tasks: Vec<Forgotten>) -> Answer<()>;

    /// Drops a whole bucket of `due`, and the payloads stored apart of these places in it.
    fn drop_stretch(&self, stretch: Stretch, payloads: Vec<Place>) -> Answer<()>;

    /// Drops dead letters of a shard from before a time; of the last week before it some may stay.
    fn drop_dead_letters(&self, shard: Shard, before: Wall) -> Answer<()>;

    /// How far the batch of this number got: what the highest epoch wrote last.
    fn batch_progress(&self, number: u64) -> Answer<Option<BatchProgress>>;

    /// Writes how far a batch got; of two of one epoch the one with the higher `stamp` stays.
    fn write_batch_progress(&self, number: u64, progress: BatchProgress, stamp: u64) -> Answer<()>;
}
