//! The raw ceiling: what log and store take with no scheduler in between. A fixed reference, whatever Dueline writes:
//! per task one record, one by-id row and three rows in time-bucketed partitions, spread over the same shards and
//! due times, at QUORUM. It is batched in several ways, one after the other; the best of them is the ceiling.

mod embedded;
#[cfg(feature = "cassandra")]
mod servers;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::log::{Message, Producer, Target, Topic};
use crate::model::Wall;
use crate::node::Node;

use super::args::Plan;
use super::report::{Raw, Report};
use super::rig::sends_at_once;
use super::site::Site;

#[cfg(feature = "cassandra")]
pub(super) use servers::session;

/// Tasks that each way of batching writes, at most.
const TASKS_MAX: u64 = 200_000;
/// Bytes of payloads that each way writes, at most.
const PAYLOADS_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of payloads in one request to the store, at most: a request has bounds, whatever the way.
const REQUEST_PAYLOADS_BYTES: u64 = 2 * 1024 * 1024;
/// Queues that the records name.
const QUEUES: u64 = 10_000;

/// A way of batching.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    /// Tasks that are written together: on servers all of one shard.
    tasks: u64,
    /// Rows of one partition in one request.
    due_rows: usize,
    /// By-id rows in one request: they lie in partitions of their own.
    by_id_rows: usize,
    /// Of those under way at once.
    at_once: usize,
}

/// What the raw program is to write.
#[derive(Clone, Debug)]
pub(super) struct Load {
    tasks: u64,
    shards: u32,
    /// First due time, and the time over which they are spread, in milliseconds.
    pub(super) from: Wall,
    pub(super) spread_ms: u64,
    /// The number of the first task: no row is written twice.
    first: u64,
    payload: Arc<str>,
}

impl Load {
    /// As much as a plan, at most what a raw program writes.
    pub(super) fn new(plan: &Plan, from: Wall, spread_ms: u64) -> Load {
        let payload: Arc<str> = plan.payload_of(1).into();
        let tasks = plan.tasks.min(TASKS_MAX).min((PAYLOADS_BYTES_MAX / payload.len() as u64).max(1));
        Load { tasks, shards: plan.shards, from, spread_ms, first: 0, payload }
    }

    /// Tasks of one request, if a way wants so many.
    fn tasks_of_a_request(&self, wanted: u64) -> u64 {
        wanted.min((REQUEST_PAYLOADS_BYTES / self.payload.len() as u64).max(1))
    }

    /// Numbers of its tasks.
    fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.tasks
    }

    fn due_at(&self, task: u64) -> i64 {
        self.from.0 + ((task - self.first) * self.spread_ms / self.tasks.max(1)) as i64
    }
}

/// What the raw program reaches, batched in each way.
pub(super) async fn measure(site: &Site, node: &Node, load: Load) -> anyhow::Result<Vec<Raw>> {
    let program = Program::open(site).await?;
    program.all_ways(node, load).await
}

/// The raw program alone: due over an hour, and all in one bucket.
pub(super) async fn alone(site: &Site, node: &Node, load: Load) -> anyhow::Result<Report> {
    let program = Program::open(site).await?;
    let spread = program.all_ways(node, load.clone()).await?;
    let first = load.first + spread.len() as u64 * load.tasks;
    let at_once = program.all_ways(node, Load { spread_ms: 0, first, ..load.clone() }).await?;
    let best = |of: &[Raw]| of.iter().map(|raw| raw.tasks_per_second).fold(0.0, f64::max);
    let tasks_per_second = best(&spread);
    let tasks = load.tasks * (spread.len() + at_once.len()) as u64;
    Ok(Report {
        tasks,
        tasks_per_second,
        ceiling_tasks_per_second: Some(tasks_per_second),
        ratio_to_ceiling: Some(1.0),
        raw: spread.into_iter().chain(at_once).collect(),
        ..Report::default()
    })
}

/// What it is on this site.
enum Program {
    Embedded,
    #[cfg(feature = "cassandra")]
    Servers(Box<servers::Tables>),
}

impl Program {
    /// Its tables are made before the time is taken.
    async fn open(site: &Site) -> anyhow::Result<Program> {
        if site.dir.is_some() {
            return Ok(Program::Embedded);
        }
        #[cfg(feature = "cassandra")]
        return Ok(Program::Servers(Box::new(servers::Tables::open(site.config()).await?)));
        #[cfg(not(feature = "cassandra"))]
        anyhow::bail!("this binary was built without Cassandra");
    }

    fn ways(&self) -> &'static [Way] {
        match self {
            Program::Embedded => &embedded::WAYS,
            #[cfg(feature = "cassandra")]
            Program::Servers(_) => &servers::WAYS,
        }
    }

    async fn all_ways(&self, node: &Node, load: Load) -> anyhow::Result<Vec<Raw>> {
        let mut all = Vec::new();
        let mut first = load.first;
        for way in self.ways() {
            let load = Load { first, ..load.clone() };
            first += load.tasks;
            let start = Instant::now();
            tokio::try_join!(produce(node.producer().clone(), &load), self.write(node, &load, way))?;
            all.push(Raw {
                way: way.name.to_owned(),
                spread_s: load.spread_ms / 1_000,
                tasks: load.tasks,
                tasks_per_second: load.tasks as f64 / start.elapsed().as_secs_f64(),
            });
        }
        Ok(all)
    }

    async fn write(&self, node: &Node, load: &Load, way: &Way) -> anyhow::Result<()> {
        match self {
            Program::Embedded => embedded::write(node, load, way).await,
            #[cfg(feature = "cassandra")]
            Program::Servers(tables) => tables.write(load, way).await,
        }
    }
}

/// One record a task, to the events topic, which nobody reads.
async fn produce(producer: Arc<dyn Producer>, load: &Load) -> anyhow::Result<()> {
    let sends = stream::iter(load.numbers()).map(|task| {
        let (queue, due_at) = (task % QUEUES, load.due_at(task));
        let value = format!(
            r#"{{"type":"schedule","queue":"q-{queue}","id":"t-{task}","due_at":{due_at},"handler":"noop","payload":{}}}"#,
            load.payload
        );
        producer.produce(Message {
            target: Target::Topic(Topic::Events),
            partition: Some((task % u64::from(load.shards)) as u32),
            key: Some(Bytes::from(format!("q-{queue}"))),
            headers: Vec::new(),
            value: Some(Bytes::from(value)),
        })
    });
    let mut sends = sends.buffer_unordered(sends_at_once(load.payload.len() as u64));
    while let Some(sent) = sends.next().await {
        sent.context("a record of the raw program")?;
    }
    Ok(())
}
