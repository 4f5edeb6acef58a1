//! The raw ceiling: what log and store take with no scheduler in between. A fixed reference, whatever Dueline writes:
//! per task one record, one by-id row and three rows in time-bucketed partitions, spread over the same shards and
//! due times, at QUORUM, as long as those of Dueline and with payloads that differ as its do. It is batched in several
//! ways, each for a while; the best of them runs once more after what it is compared with, and the ceiling is the mean
//! of those two: neither side has the warmer servers.

mod chunk;
mod embedded;
mod paced;
mod rows;
#[cfg(feature = "cassandra")]
mod servers;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::try_join_all;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::log::{Answer, Producer, Target, Topic, Written};
use crate::model::Wall;
use crate::store::embedded::EmbeddedStore;

use self::chunk::{Chunk, Chunks};
use self::rows::Drawn;
use super::args::Plan;
use super::report::{Raw, Report};
use super::rig::{Bench, sends_at_once};
use super::site::Site;

#[cfg(feature = "cassandra")]
pub(super) use servers::session;

/// Bytes of payloads that one run of a way writes, at most: with large ones it ends before its time.
const PAYLOADS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes of payloads in one request to the store, at most: a request has bounds, whatever the way.
const REQUEST_PAYLOADS_BYTES: u64 = 2 * 1024 * 1024;
/// Queues that the records name.
const QUEUES: u64 = 10_000;

/// A way of batching.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    /// Tasks of one shard that are written together.
    tasks: u64,
    /// Rows of one partition in one request.
    due_rows: usize,
    /// By-id rows in one request: they lie in partitions of their own.
    by_id_rows: usize,
    /// Of those under way at once, each on a task of the runtime.
    at_once: usize,
}

/// What the raw program is to write.
#[derive(Clone, Debug)]
pub(super) struct Load {
    plan: Plan,
    /// First due time, and the time over which they are spread, in milliseconds.
    pub(super) from: Wall,
    pub(super) spread_ms: u64,
    payload_bytes: u64,
}

impl Load {
    /// Tasks due as those of a plan are.
    pub(super) fn new(plan: &Plan, from: Wall, spread_ms: u64) -> Load {
        let payload_bytes = plan.payload_of(plan.tasks).len() as u64;
        Load { plan: plan.clone(), from, spread_ms, payload_bytes }
    }

    /// Tasks of one request, if a way wants so many.
    fn tasks_of_a_request(&self, wanted: u64) -> u64 {
        wanted.min((REQUEST_PAYLOADS_BYTES / self.payload_bytes).max(1))
    }

    /// As close to one another as those of the plan; who writes more than the plan has begins anew.
    fn due_at(&self, task: u64) -> i64 {
        self.from.0 + (task % self.plan.tasks * self.spread_ms / self.plan.tasks) as i64
    }
}

/// The raw program on one site.
pub(super) struct Program {
    load: Load,
    drawn: Arc<Drawn>,
    place: Place,
    /// The number of the first task that was not written yet: no row is written twice.
    next: AtomicU64,
}

/// Where it writes.
enum Place {
    /// Each run in a database of its own, made in this folder and removed after it: what is measured has none of it to compact,
    /// and no run has that of the one before.
    Embedded(PathBuf),
    /// Each run in tables of its own, which are dropped after it.
    #[cfg(feature = "cassandra")]
    Servers { producer: Arc<dyn Producer>, keyspace: Arc<servers::Keyspace> },
}

/// What the tasks of a run share, with all they need before the time is taken.
struct Shared {
    load: Load,
    drawn: Arc<Drawn>,
    producer: Arc<dyn Producer>,
    /// For each record that may be sent and not acknowledged.
    sends: Arc<Semaphore>,
    writer: Writer,
}

enum Writer {
    Embedded(EmbeddedStore),
    #[cfg(feature = "cassandra")]
    Servers(Box<servers::Tables>),
}

impl Place {
    async fn open(site: &Site, producer: &Arc<dyn Producer>) -> anyhow::Result<Place> {
        if let Some(dir) = &site.dir {
            return Ok(Place::Embedded(dir.join("raw")));
        }
        #[cfg(feature = "cassandra")]
        return Ok(Place::Servers {
            producer: producer.clone(),
            keyspace: Arc::new(servers::Keyspace::open(site.config()).await?),
        });
        #[cfg(not(feature = "cassandra"))]
        {
            let _ = producer;
            anyhow::bail!("this binary was built without Cassandra");
        }
    }
}

impl Program {
    pub(super) async fn open(
        site: &Site,
        producer: &Arc<dyn Producer>,
        load: Load,
    ) -> anyhow::Result<Program> {
        let (drawn, place) = (Arc::new(Drawn::new(&load)?), Place::open(site, producer).await?);
        Ok(Program { load, drawn, place, next: AtomicU64::new(0) })
    }

    fn ways(&self) -> &'static [Way] {
        match self.place {
            Place::Embedded(_) => &embedded::WAYS,
            #[cfg(feature = "cassandra")]
            Place::Servers { .. } => &servers::WAYS,
        }
    }

    /// All that a run needs.
    async fn begin(&self) -> anyhow::Result<Arc<Shared>> {
        let (producer, writer) = match &self.place {
            Place::Embedded(dir) => {
                let (producer, store) = embedded::open(dir, self.load.plan.shards).await?;
                (producer, Writer::Embedded(store))
            }
            #[cfg(feature = "cassandra")]
            Place::Servers { producer, keyspace } => {
                (producer.clone(), Writer::Servers(Box::new(servers::Tables::make(keyspace.clone()).await?)))
            }
        };
        let (load, drawn) = (self.load.clone(), self.drawn.clone());
        let sends = Arc::new(Semaphore::new(sends_at_once(load.payload_bytes)));
        Ok(Arc::new(Shared { load, drawn, producer, sends, writer }))
    }

    /// A run has ended well. What one that failed leaves goes with its site.
    async fn end(&self, shared: Arc<Shared>) -> anyhow::Result<()> {
        drop(shared);
        match &self.place {
            Place::Embedded(dir) => {
                tokio::fs::remove_dir_all(dir).await.context("the folder of the raw program")
            }
            #[cfg(feature = "cassandra")]
            Place::Servers { keyspace, .. } => keyspace.drop_tables().await,
        }
    }

    /// Writes for a while what is not measured, in each way in turn.
    pub(super) async fn warm_up(&self, time: Duration) -> anyhow::Result<()> {
        let each = time / self.ways().len() as u32;
        for way in self.ways().iter().filter(|_| !time.is_zero()) {
            self.run(way, self.load.spread_ms, each).await?;
        }
        Ok(())
    }

    /// Each way of batching, one after the other.
    pub(super) async fn all_ways(&self) -> anyhow::Result<Vec<Raw>> {
        self.all_ways_over(self.load.spread_ms).await
    }

    async fn all_ways_over(&self, spread_ms: u64) -> anyhow::Result<Vec<Raw>> {
        let mut all = Vec::new();
        for way in self.ways() {
            all.push(self.run(way, spread_ms, self.load.plan.raw).await?);
        }
        Ok(all)
    }

    /// The best of these once more.
    pub(super) async fn again(&self, of: &[Raw]) -> anyhow::Result<Raw> {
        let best = Raw::best(of).context("a raw program that ran")?;
        let way = self.ways().iter().find(|way| way.name == best.way).context("its way of batching")?;
        let ran = self.run(way, best.spread_s * 1_000, self.load.plan.raw).await?;
        Ok(Raw { is_again: true, ..ran })
    }

    /// Tasks in one way for so long.
    async fn run(&self, way: &'static Way, spread_ms: u64, time: Duration) -> anyhow::Result<Raw> {
        let (load, shared) = (&self.load, self.begin().await?);
        let together = load.tasks_of_a_request(way.tasks);
        let first = self.next.load(Ordering::Relaxed);
        let most = PAYLOADS_BYTES_MAX / load.payload_bytes;
        let chunks = Arc::new(Chunks::new(first, together, u64::from(load.plan.shards), most, time));
        let (start, mut workers) = (Instant::now(), JoinSet::new());
        for _ in 0..way.at_once {
            workers.spawn(shared.clone().work(chunks.clone(), way, spread_ms));
        }
        let ended = all_of(&mut workers).await;
        let (tasks, seconds) = (chunks.tasks(), start.elapsed().as_secs_f64());
        self.next.store(chunks.end(), Ordering::Relaxed);
        workers.shutdown().await;
        ended?;
        self.end(shared).await?;
        Ok(Raw {
            way: way.name.to_owned(),
            spread_s: spread_ms / 1_000,
            is_again: false,
            tasks,
            seconds,
            tasks_per_second: tasks as f64 / seconds,
            bytes_per_task: self.drawn.bytes_per_task(),
        })
    }
}

impl Shared {
    /// One chunk after the other: its rows, and its records beside them and those of the next ones.
    async fn work(self: Arc<Shared>, chunks: Arc<Chunks>, way: &Way, spread_ms: u64) -> anyhow::Result<()> {
        let mut sends = JoinSet::new();
        let load = Arc::new(Load { spread_ms, ..self.load.clone() });
        while let Some(chunk) = chunks.next() {
            let room = self.sends.clone().acquire_many_owned(chunk.count as u32).await?;
            let (shared, load_of_sends) = (self.clone(), load.clone());
            sends.spawn(async move {
                let sent = shared.produce(chunk, &load_of_sends).await;
                drop(room);
                sent
            });
            match &self.writer {
                Writer::Embedded(store) => embedded::write(store, &self.drawn, &load, chunk).await?,
                #[cfg(feature = "cassandra")]
                Writer::Servers(tables) => tables.write(&self.drawn, &load, chunk, way).await?,
            }
            while let Some(sent) = sends.try_join_next() {
                sent.context("a producer of the raw program")??;
            }
        }
        while let Some(sent) = sends.join_next().await {
            sent.context("a producer of the raw program")??;
        }
        Ok(())
    }

    /// The record of a task, as a scheduler is sent it, to the events topic, which nobody reads.
    fn send(&self, load: &Load, task: u64, shard: u32) -> Answer<Written> {
        let mut message = load.plan.message_of(task % QUEUES, task, load.due_at(task));
        message.target = Target::Topic(Topic::Events);
        message.partition = Some(shard);
        self.producer.produce(message)
    }

    /// One record a task.
    async fn produce(&self, chunk: Chunk, load: &Load) -> anyhow::Result<()> {
        let sends = chunk.tasks().map(|task| self.send(load, task, chunk.shard));
        try_join_all(sends).await.context("a record of the raw program")?;
        Ok(())
    }
}

/// Until all parts have ended, or one has failed.
async fn all_of(parts: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = parts.join_next().await {
        ended.context("a part of the raw program")??;
    }
    Ok(())
}

/// The raw program alone: due over an hour, and all in one bucket; the best of each once more.
pub(super) async fn alone(bench: &Bench<'_>, program: &Program) -> anyhow::Result<Report> {
    program.warm_up(bench.plan.warm).await?;
    let span = bench.begin()?;
    let mut raw = Vec::new();
    for spread_ms in [program.load.spread_ms, 0] {
        let ways = program.all_ways_over(spread_ms).await?;
        let again = program.again(&ways).await?;
        raw.extend(ways);
        raw.push(again);
    }
    let spread: Vec<Raw> = raw.iter().filter(|one| one.spread_s > 0).cloned().collect();
    let tasks_per_second = Raw::ceiling(&spread).unwrap_or_default();
    let report = Report {
        tasks: raw.iter().map(|one| one.tasks).sum(),
        tasks_per_second,
        ceiling_tasks_per_second: Some(tasks_per_second),
        ratio_to_ceiling: Some(1.0),
        raw,
        ..Report::default()
    };
    Ok(bench.end(span, report))
}
