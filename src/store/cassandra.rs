//! The store on Apache Cassandra: the tables of `schemas/cassandra` behind the port.
//!
//! Every statement is prepared, reads and writes run at QUORUM, the owner and cluster rows at SERIAL; nothing else
//! is possible. Rows are immutable, so all but the compare-and-set calls may be retried on another node.
//!
//! ```text
//! Store calls → write · lookup · event_packs · slice · places · late · dead_letter · owner · operation · singles → statements → session (profiles, retries) → driver
//!                                                              errors: what the caller can do
//! options → migrate (keyspace, numbered files, one runner at a time) · replication · facts (what doctor reads)
//! ```

mod columns;
mod dead_letter;
mod errors;
mod event_packs;
pub mod facts;
mod gather;
mod ids;
mod late;
mod lookup;
pub mod migrate;
mod operation;
mod options;
mod owner;
mod packs;
mod places;
mod refused;
pub mod replication;
mod retention;
mod session;
mod singles;
mod slice;
mod slice_back;
mod statements;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use scylla::client::session::Session;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::model::{
    BatchProgress, DeadLetterRow, Died, EventRow, FactRow, IdsRow, LateQueueRow, Operation, OwnerRow, Place,
    PointerPage, PointerRange, Progress, Release, Row, Segment, Shard, TaskKey, Version, Wall,
};
use crate::store::pack::Packer;
use crate::store::{Answer, Bump, Cluster, Error, Forgotten, Instance, Lookup, Packs, Slice, Store, Stretch};

use event_packs::EventPacker;
use gather::{Gather, SmallWrite};
use lookup::Newest;
pub use options::{Options, Tls};
use places::OnePlace;
use session::Profiles;
use statements::Statements;

/// Requests under way at once over all calls; further ones wait their turn.
const REQUESTS_IN_FLIGHT_MAX: usize = 1_024;

/// Lists of ids read at once for who has none at hand: each may have megabytes.
const LISTS_AT_ONCE: usize = 2;

/// The store on Cassandra. Cheap to clone.
#[derive(Clone)]
pub struct Cassandra {
    shared: Arc<Shared>,
}

struct Shared {
    session: Session,
    keyspace: String,
    statements: Statements,
    layout: OnceCell<Layout>,
    writes: Gather<SmallWrite>,
    lookups: Gather<Newest>,
    places: Gather<OnePlace>,
    packer: Packer,
    event_packer: EventPacker,
    /// Rows were taken that had been refused as packs: it was said.
    packs_refused: AtomicBool,
    requests: Semaphore,
    /// Lists of ids that are read at once for who has none at hand.
    lists: Semaphore,
    /// Requests made so far.
    asked: AtomicU64,
}

/// How rows are spread over partitions: part of the `cluster` row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    shards: u32,
    bucket_ms: i64,
    subs: u32,
}

impl Layout {
    fn bucket_of(self, place: Place) -> i64 {
        place.ready_at.0.div_euclid(self.bucket_ms)
    }

    /// The bucket of the places right before this one.
    fn bucket_before(self, place: Place) -> i64 {
        match place == Place::start_of(place.ready_at) {
            true => place.ready_at.0.saturating_sub(1).div_euclid(self.bucket_ms),
            false => self.bucket_of(place),
        }
    }

    fn sub_of(self, place: Place) -> i32 {
        (place.version.0 % u64::from(self.subs)) as i32
    }

    /// Bucket and sub.
    fn partition_of(self, place: Place) -> (i64, i32) {
        (self.bucket_of(place), self.sub_of(place))
    }
}

impl Cassandra {
    /// Connects, checks what must hold (consistency, replication, tables) and prepares every statement.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] for wrong options, a keyspace that is missing or not replicated by
    /// NetworkTopologyStrategy, migrations that are missing or were changed, refused credentials;
    /// [`Error::Unavailable`] when no node answers.
    pub async fn connect(options: &Options) -> Result<Cassandra, Error> {
        options.check()?;
        let profiles = Profiles::new(options);
        session::check_consistency(&profiles)?;
        let session = session::connect(options, &profiles, &[&options.keyspace]).await?;
        replication::check(&replication::read(&session, &options.keyspace)?)?;
        migrate::check(&session, &options.keyspace).await?;
        let statements = Statements::prepare(&session, &options.keyspace, &profiles).await?;
        let (writes, small_writes) = Gather::new();
        let (lookups, small_lookups) = Gather::new();
        let (places, small_places) = Gather::new();
        let shared = Arc::new(Shared {
            session,
            keyspace: options.keyspace.clone(),
            statements,
            layout: OnceCell::new(),
            writes,
            lookups,
            places,
            packer: Packer::of_lines(),
            event_packer: EventPacker::default(),
            packs_refused: AtomicBool::new(false),
            requests: Semaphore::new(REQUESTS_IN_FLIGHT_MAX),
            lists: Semaphore::new(LISTS_AT_ONCE),
            asked: AtomicU64::new(0),
        });
        tokio::spawn(small_writes.serve(Arc::downgrade(&shared)));
        tokio::spawn(small_lookups.serve(Arc::downgrade(&shared)));
        tokio::spawn(small_places.serve(Arc::downgrade(&shared)));
        Ok(Cassandra { shared })
    }

    /// How the keyspace is replicated and how many nodes each data centre has, as the driver last read it.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] when the keyspace is gone.
    pub fn replication(&self) -> Result<replication::Replication, Error> {
        replication::read(&self.shared.session, &self.shared.keyspace)
    }

    /// Who has copies of the keyspace's rows, and which nodes are connected, as the driver knows it: nobody is asked.
    pub fn copies(&self) -> facts::Copies {
        facts::copies(&self.shared.session, &self.shared.keyspace)
    }
}

/// A session of one's own on the nodes of the options: for work beside the store, as the bench has.
///
/// # Errors
/// [`Error::Misconfigured`] for wrong options or refused credentials; [`Error::Unavailable`] when no node answers.
pub(crate) async fn session(options: &Options) -> Result<Session, Error> {
    options.check()?;
    session::connect(options, &Profiles::new(options), &[&options.keyspace]).await
}

impl Shared {
    /// The layout, read from the `cluster` row once.
    async fn layout(&self) -> Result<Layout, Error> {
        self.layout.get_or_try_init(|| singles::layout(self)).await.copied()
    }

    /// The session, for one request.
    fn ask(&self) -> &Session {
        self.asked.fetch_add(1, Ordering::Relaxed);
        &self.session
    }

    /// The right to have one more request under way.
    async fn permit(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.requests.acquire().await.map_err(|_| Error::Unavailable("the store is closed".into()))
    }
}

macro_rules! answer {
    ($self:ident, $shared:ident => $call:expr) => {{
        let $shared = $self.shared.clone();
        Box::pin(async move { $call.await })
    }};
}

impl Store for Cassandra {
    fn requests(&self) -> Option<u64> {
        Some(self.shared.asked.load(Ordering::Relaxed))
    }

    fn packed(&self) -> Packs {
        let (Packs { packs, rows, .. }, events) =
            (self.shared.packer.made(), self.shared.event_packer.made());
        Packs { packs, rows, ..events }
    }

    fn cluster(&self, wanted: Cluster) -> Answer<Cluster> {
        answer!(self, shared => singles::cluster(&shared, wanted))
    }

    fn write(&self, rows: Arc<[Row]>) -> Answer<()> {
        answer!(self, shared => write::write(&shared, &rows))
    }

    fn lookup(&self, lookups: Vec<Lookup>) -> Answer<Vec<Vec<EventRow>>> {
        answer!(self, shared => lookup::lookup(&shared, &lookups))
    }

    fn history(&self, key: TaskKey, rows_max: usize, listed: Option<Vec<Version>>) -> Answer<Vec<EventRow>> {
        answer!(self, shared => lookup::history(&shared, &key, rows_max, listed.as_deref()))
    }

    fn unlisted(&self, shard: Shard, ends: Vec<Version>) -> Answer<Vec<(TaskKey, Version)>> {
        answer!(self, shared => event_packs::unlisted(&shared, shard, &ends))
    }

    fn slice(&self, shard: Shard, from: Place, to: Place, rows_max: usize) -> Answer<Slice> {
        answer!(self, shared => slice::slice(&shared, shard, from, to, rows_max))
    }

    fn slice_back(&self, shard: Shard, from: Place, to: Place, rows_max: usize) -> Answer<Slice> {
        answer!(self, shared => slice_back::slice_back(&shared, shard, from, to, rows_max))
    }

    fn facts(&self, shard: Shard, place: Place) -> Answer<Vec<FactRow>> {
        answer!(self, shared => places::facts(&shared, shard, place))
    }

    fn payload(&self, shard: Shard, place: Place) -> Answer<Option<Arc<[u8]>>> {
        answer!(self, shared => singles::payload(&shared, shard, place))
    }

    fn late_queues(&self, shard: Shard, segment: Segment) -> Answer<Vec<LateQueueRow>> {
        answer!(self, shared => late::late_queues(&shared, shard, segment))
    }

    fn pointers(&self, shard: Shard, range: PointerRange, rows_max: usize) -> Answer<PointerPage> {
        answer!(self, shared => late::pointers(&shared, shard, &range, rows_max))
    }

    fn dead_letters(
        &self,
        shard: Shard,
        from: Wall,
        before: Died,
        rows_max: usize,
    ) -> Answer<Vec<DeadLetterRow>> {
        answer!(self, shared => dead_letter::dead_letters(&shared, shard, from, before, rows_max))
    }

    fn progress(&self, shard: Shard) -> Answer<Option<Progress>> {
        answer!(self, shared => singles::progress(&shared, shard))
    }

    fn write_progress(&self, shard: Shard, progress: Progress, stamp: u64) -> Answer<()> {
        answer!(self, shared => singles::write_progress(&shared, shard, &progress, stamp))
    }

    fn ids(&self, shard: Shard, from: u64) -> Answer<Vec<IdsRow>> {
        answer!(self, shared => ids::ids(&shared, shard, from))
    }

    fn write_ids(&self, rows: Arc<[IdsRow]>, stamp: u64) -> Answer<()> {
        answer!(self, shared => ids::write_ids(&shared, &rows, stamp))
    }

    fn owner(&self, shard: Shard) -> Answer<OwnerRow> {
        answer!(self, shared => owner::owner(&shared, shard))
    }

    fn look_at_owner(&self, shard: Shard) -> Answer<OwnerRow> {
        answer!(self, shared => owner::look(&shared, shard))
    }

    fn bump(&self, shard: Shard, bump: Bump) -> Answer<bool> {
        answer!(self, shared => owner::bump(&shared, shard, &bump))
    }

    fn release(&self, shard: Shard, release: Release) -> Answer<bool> {
        answer!(self, shared => owner::release(&shared, shard, release))
    }

    fn beat(&self, instance: Instance) -> Answer<()> {
        answer!(self, shared => singles::beat(&shared, &instance))
    }

    fn instances(&self) -> Answer<Vec<Instance>> {
        answer!(self, shared => singles::instances(&shared))
    }

    fn operations(&self, after: u64, rows_max: usize) -> Answer<Vec<Operation>> {
        answer!(self, shared => operation::operations(&shared, after, rows_max))
    }

    fn add_operation(&self, operation: Operation) -> Answer<bool> {
        answer!(self, shared => operation::add(&shared, &operation))
    }

    fn stretches(&self, before: Wall) -> Answer<Vec<Stretch>> {
        answer!(self, shared => retention::stretches(&shared, before))
    }

    fn forget(&self, tasks: Vec<Forgotten>) -> Answer<()> {
        answer!(self, shared => retention::forget(&shared, tasks))
    }

    fn drop_stretch(&self, stretch: Stretch, payloads: Vec<Place>) -> Answer<()> {
        answer!(self, shared => retention::drop_stretch(&shared, stretch, payloads))
    }

    fn drop_dead_letters(&self, shard: Shard, before: Wall) -> Answer<()> {
        answer!(self, shared => retention::drop_dead_letters(&shared, shard, before))
    }

    fn batch_progress(&self, number: u64) -> Answer<Option<BatchProgress>> {
        answer!(self, shared => operation::batch_progress(&shared, number))
    }

    fn write_batch_progress(&self, number: u64, progress: BatchProgress, stamp: u64) -> Answer<()> {
        answer!(self, shared => operation::write_batch_progress(&shared, number, &progress, stamp))
    }
}
