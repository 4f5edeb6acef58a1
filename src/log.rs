//! The log port: the topics, on Kafka or embedded.
//!
//! An adapter moves records and decides nothing. It never commits by itself, never skips, and buffers no more than
//! its bounds; the engine says from where a shard is read. Assignment changes arrive as a stream of
//! [`Assignment`]; the group may have given a shard to another before [`Assignment::Revoked`] is said, and nobody is waited for.

pub mod embedded;
#[cfg(feature = "kafka")]
pub mod kafka;
mod record;

use futures::future::BoxFuture;

pub use record::{Header, Message, Record, Target, Topic};

use crate::model::{Shard, Wall};

/// What a log call returns.
pub type Answer<T> = BoxFuture<'static, Result<T, Error>>;

/// Why a log call failed, by what the caller can do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Not reachable or not answered in time. Try again.
    #[error("the log is not answering: {0}")]
    Unavailable(String),
    /// A record that was sent, and of which nothing was heard: it may be written, now or later.
    #[error("the log did not say whether it has the record: {0}")]
    Unknown(String),
    /// The shard is not assigned to this instance (any more).
    #[error("shard {} is not assigned here", .0.0)]
    NotAssigned(Shard),
    /// The log no longer has (or never had) the offset asked for: nothing may be skipped silently.
    #[error("shard {} has no offset {wanted}: it holds {first}..{next}", shard.0)]
    OffsetGone {
        /// The shard.
        shard: Shard,
        /// The offset asked for.
        wanted: u64,
        /// The first offset held.
        first: u64,
        /// The next offset to be written.
        next: u64,
    },
    /// This record is larger than its topic takes.
    #[error("the record is too large: {0}")]
    TooLarge(String),
    /// This record can never be written (topic unknown, not authorized).
    #[error("log refuses the record: {0}")]
    Refused(String),
    /// The client is beyond repair and must be made anew.
    #[error("log client failed: {0}")]
    Fatal(String),
}

/// Where a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The partition.
    pub partition: u32,
    /// The offset; `None` when a broker had the record from an earlier try and does not say any more where.
    pub offset: Option<u64>,
    /// When it was appended, by the log's clock; `None` when that is not told either.
    pub appended: Option<Wall>,
}

/// What a shard's partition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The first offset still held.
    pub first: u64,
    /// The offset after the last stable record.
    pub next: u64,
    /// The epoch of the leader that says so; `None` = it has none, or does not tell. One of a lower epoch than a record that was read
    /// is not the leader any more.
    pub leader_epoch: Option<u32>,
    /// Identity of the topic: another one means it was created anew.
    pub topic_id: String,
}

/// A change of what this instance is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// These shards are added.
    Assigned(Vec<Shard>),
    /// These are taken in order: what is read of them is read on until [`Consumer::stop`], or until they are assigned again.
    Revoked(Vec<Shard>),
    /// These may already be another's.
    Lost(Vec<Shard>),
}

/// The reading side: one member of the consumer group, or none while it is away.
pub trait Consumer: Send + Sync + 'static {
    /// Waits for the next change of assignment; `None` after [`Consumer::close`].
    fn assignment(&self) -> BoxFuture<'_, Option<Assignment>>;

    /// Reads the shard from `offset` on, dropping what was buffered.
    fn seek(&self, shard: Shard, offset: u64) -> Answer<()>;

    /// The next records, at least one: waits for it. At most `records_max` and, past the first, `bytes_max`. Dropped
    /// before it is answered, it takes nothing: the next fetch brings what it would have brought.
    ///
    /// # Errors
    /// [`Error::OffsetGone`] when the log does not hold the offset sought; [`Error::NotAssigned`] of one that is not assigned,
    /// or was not read when it was taken.
    fn fetch(&self, shard: Shard, records_max: usize, bytes_max: usize) -> Answer<Vec<Record>>;

    /// Reads the shard no more, until it is sought: a fetch that waits may wait for ever.
    fn stop(&self, shard: Shard);

    /// What the partition holds now, asked of its leader.
    fn end(&self, shard: Shard) -> Answer<End>;

    /// Commits `next_offset` for the shard: a hint for lag tools, never waited for.
    fn commit(&self, shard: Shard, next_offset: u64);

    /// Leaves the group: everything assigned is taken in order. Nothing is assigned until [`Consumer::join`].
    fn leave(&self);

    /// Joins the group again after [`Consumer::leave`]; nothing for one that did not leave.
    fn join(&self);

    /// Milliseconds since the client was last polled: a large one means that it hangs.
    fn silent_ms(&self) -> u64;

    /// Leaves the group. Idempotent; bounded in time.
    fn close(&self) -> BoxFuture<'static, ()>;
}

/// The writing side: idempotent, all replicas in sync acknowledge.
pub trait Producer: Send + Sync + 'static {
    /// Writes one record; answered when it is durable. It is under way when the call returns, whether its answer is waited for or
    /// not. Records of one partition keep the order of the calls.
    fn produce(&self, message: Message) -> Answer<Written>;

    /// The same of several, in order, each with an answer of its own.
    fn produce_all(&self, messages: Vec<Message>) -> BoxFuture<'static, Vec<Result<Written, Error>>> {
        let written: Vec<_> = messages.into_iter().map(|message| self.produce(message)).collect();
        Box::pin(async move {
            let mut answers = Vec::with_capacity(written.len());
            for written in written {
                answers.push(written.await);
            }
            answers
        })
    }

    /// Gives up the records that were not sent yet: answered with [`Error::Unavailable`], they are never written.
    fn purge(&self) {}

    /// Waits until everything sent is answered, at most `wait_ms` milliseconds.
    fn flush(&self, wait_ms: u64) -> BoxFuture<'static, ()>;
}
