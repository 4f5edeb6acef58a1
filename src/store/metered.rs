//! A store whose every call is timed and counted. Passes everything on unchanged, and writes when they may be made.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;

use super::{Answer, Bump, Cluster, Forgotten, Instance, Lookup, Packs, Slice, Store, Stretch};
use crate::metrics::{Metrics, StoreOp};
use crate::model::{
    BatchProgress, DeadLetterRow, Died, EventRow, FactRow, IdsRow, LateQueueRow, Operation, OwnerRow, Place,
    PointerPage, PointerRange, Progress, Release, Row, Segment, Shard, TaskKey, Version, Wall,
};

/// Is told the rows of every write before it is made; what it returns is waited for first.
pub type BeforeWrite = Arc<dyn Fn(&Arc<[Row]>) -> Option<BoxFuture<'static, ()>> + Send + Sync>;

/// The store given, and the metrics that are told of it.
pub struct Metered {
    inner: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    before_write: Option<BeforeWrite>,
}

impl Metered {
    /// Times every call of `inner`.
    pub fn new(inner: Arc<dyn Store>, metrics: Arc<Metrics>) -> Metered {
        Metered { inner, metrics, before_write: None }
    }

    /// Tells somebody the rows of every write, who may hold it up. The wait counts as the store's time.
    #[must_use]
    pub fn asking(self, before_write: Option<BeforeWrite>) -> Metered {
        Metered { before_write, ..self }
    }

    fn timed<T: Send + 'static>(&self, op: StoreOp, answer: Answer<T>) -> Answer<T> {
        let metrics = self.metrics.clone();
        Box::pin(async move {
            let start = Instant::now();
            let result = answer.await;
            metrics.store_request(op, start.elapsed().as_secs_f64(), result.as_ref().err());
            result
        })
    }
}

impl Store for Metered {
    fn requests(&self) -> Option<u64> {
        self.inner.requests()
    }

    fn packed(&self) -> Packs {
        self.inner.packed()
    }

    fn cluster(&self, wanted: Cluster) -> Answer<Cluster> {
        self.timed(StoreOp::Cluster, self.inner.cluster(wanted))
    }

    fn write(&self, rows: Arc<[Row]>) -> Answer<()> {
        let Some(wait) = self.before_write.as_ref().and_then(|before| before(&rows)) else {
            return self.timed(StoreOp::Write, self.inner.write(rows));
        };
        let inner = self.inner.clone();
        let write = async move {
            wait.await;
            inner.write(rows).await
        };
        self.timed(StoreOp::Write, Box::pin(write))
    }

    fn lookup(&self, lookups: Vec<Lookup>) -> Answer<Vec<Vec<EventRow>>> {
        self.timed(StoreOp::Lookup, self.inner.lookup(lookups))
    }

    fn history(&self, key: TaskKey, rows_max: usize, listed: Option<Vec<Version>>) -> Answer<Vec<EventRow>> {
        self.timed(StoreOp::History, self.inner.history(key, rows_max, listed))
    }

    fn unlisted(&self, shard: Shard, ends: Vec<Version>) -> Answer<Vec<(TaskKey, Version)>> {
        self.timed(StoreOp::Ids, self.inner.unlisted(shard, ends))
    }

    fn slice(&self, shard: Shard, from: Place, to: Place, rows_max: usize) -> Answer<Slice> {
        self.timed(StoreOp::Slice, self.inner.slice(shard, from, to, rows_max))
    }

    fn slice_back(&self, shard: Shard, from: Place, to: Place, rows_max: usize) -> Answer<Slice> {
        self.timed(StoreOp::Slice, self.inner.slice_back(shard, from, to, rows_max))
    }

    fn facts(&self, shard: Shard, place: Place) -> Answer<Vec<FactRow>> {
        self.timed(StoreOp::Facts, self.inner.facts(shard, place))
    }

    fn payload(&self, shard: Shard, place: Place) -> Answer<Option<Arc<[u8]>>> {
        self.timed(StoreOp::Payload, self.inner.payload(shard, place))
    }

    fn late_queues(&self, shard: Shard, segment: Segment) -> Answer<Vec<LateQueueRow>> {
        self.timed(StoreOp::LateQueues, self.inner.late_queues(shard, segment))
    }

    fn pointers(&self, shard: Shard, range: PointerRange, rows_max: usize) -> Answer<PointerPage> {
        self.timed(StoreOp::Pointers, self.inner.pointers(shard, range, rows_max))
    }

    fn dead_letters(
        &self,
        shard: Shard,
        from: Wall,
        before: Died,
        rows_max: usize,
    ) -> Answer<Vec<DeadLetterRow>> {
        self.timed(StoreOp::DeadLetters, self.inner.dead_letters(shard, from, before, rows_max))
    }

    fn progress(&self, shard: Shard) -> Answer<Option<Progress>> {
        self.timed(StoreOp::Progress, self.inner.progress(shard))
    }

    fn write_progress(&self, shard: Shard, progress: Progress, stamp: u64) -> Answer<()> {
        self.timed(StoreOp::WriteProgress, self.inner.write_progress(shard, progress, stamp))
    }

    fn ids(&self, shard: Shard, from: u64) -> Answer<Vec<IdsRow>> {
        self.timed(StoreOp::Ids, self.inner.ids(shard, from))
    }

    fn write_ids(&self, rows: Arc<[IdsRow]>, stamp: u64) -> Answer<()> {
        self.timed(StoreOp::WriteIds, self.inner.write_ids(rows, stamp))
    }

    fn owner(&self, shard: Shard) -> Answer<OwnerRow> {
        self.timed(StoreOp::Owner, self.inner.owner(shard))
    }

    fn look_at_owner(&self, shard: Shard) -> Answer<OwnerRow> {
        self.timed(StoreOp::OwnerLook, self.inner.look_at_owner(shard))
    }

    fn bump(&self, shard: Shard, bump: Bump) -> Answer<bool> {
        self.timed(StoreOp::Bump, self.inner.bump(shard, bump))
    }

    fn release(&self, shard: Shard, release: Release) -> Answer<bool> {
        self.timed(StoreOp::Release, self.inner.release(shard, release))
    }

    fn beat(&self, instance: Instance) -> Answer<()> {
        self.timed(StoreOp::Beat, self.inner.beat(instance))
    }

    fn instances(&self) -> Answer<Vec<Instance>> {
        self.timed(StoreOp::Instances, self.inner.instances())
    }

    fn operations(&self, after: u64, rows_max: usize) -> Answer<Vec<Operation>> {
        self.timed(StoreOp::Operations, self.inner.operations(after, rows_max))
    }

    fn add_operation(&self, operation: Operation) -> Answer<bool> {
        self.timed(StoreOp::AddOperation, self.inner.add_operation(operation))
    }

    fn stretches(&self, before: Wall) -> Answer<Vec<Stretch>> {
        self.timed(StoreOp::Stretches, self.inner.stretches(before))
    }

    fn forget(&self, tasks: Vec<Forgotten>) -> Answer<()> {
        self.timed(StoreOp::Forget, self.inner.forget(tasks))
    }

    fn drop_stretch(&self, stretch: Stretch, payloads: Vec<Place>) -> Answer<()> {
        self.timed(StoreOp::DropStretch, self.inner.drop_stretch(stretch, payloads))
    }

    fn drop_dead_letters(&self, shard: Shard, before: Wall) -> Answer<()> {
        self.timed(StoreOp::DropDeadLetters, self.inner.drop_dead_letters(shard, before))
    }

    fn batch_progress(&self, number: u64) -> Answer<Option<BatchProgress>> {
        self.timed(StoreOp::BatchProgress, self.inner.batch_progress(number))
    }

    fn write_batch_progress(&self, number: u64, progress: BatchProgress, stamp: u64) -> Answer<()> {
        self.timed(StoreOp::WriteBatchProgress, self.inner.write_batch_progress(number, progress, stamp))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;
    use crate::metrics;
    use crate::model::PayloadRow;
    use crate::store::embedded::{Database, EmbeddedStore, Options};

    #[tokio::test]
    async fn a_write_is_made_once_its_wait_is_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let inner = EmbeddedStore::new(&Database::open(&Options::at(dir.path())).expect("it opens"));
        let metrics = metrics::Options { handlers: Vec::new(), on_servers: false };
        let (go, wait) = oneshot::channel::<()>();
        let wait = wait.map(drop).shared();
        let before: BeforeWrite = Arc::new(move |_| Some(wait.clone().boxed()));
        let store = Metered::new(Arc::new(inner), Arc::new(Metrics::new(metrics))).asking(Some(before));
        let (shard, place) = (Shard(1), Place { ready_at: Wall(1_000), version: Version(1) });
        let mut write =
            store.write([Row::Payload(PayloadRow { shard, place, bytes: [7][..].into() })].into());
        assert!(futures::poll!(&mut write).is_pending());
        assert_eq!(
            store.payload(shard, place).await.expect("it answers"),
            None,
            "written before its wait was over"
        );
        go.send(()).expect("it is waited for");
        write.await.expect("it is written");
        assert!(store.payload(shard, place).await.expect("it answers").is_some());
    }
}
