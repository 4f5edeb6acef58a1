//! The raw ceiling: what log and store take with no scheduler in between. A fixed reference, whatever Dueline writes:
//! per task one record, one by-id row and three rows in time-bucketed partitions, spread over the same shards and
//! due times, at QUORUM, batched per partition and by ten across partitions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::log::{Message, Producer, Target, Topic};
use crate::model::{
    Decision, Epoch, EventRow, Fact, FactRow, HandlerName, Outcome, Place, QueueName, Row, Shard, Started,
    TaskContent, TaskId, TaskKey, Version, Wall,
};
use crate::node::Node;

use super::event::{content, event_text};
use super::site::Site;

/// Tasks that are written together: 32 in each of their shard's partitions.
const CHUNK: u64 = 32;
/// By-id rows of one request: they lie in partitions of their own.
const BY_ID_ROWS: usize = 10;
/// Chunks under way at once.
const CHUNKS_AT_ONCE: usize = 32;

/// What the raw program is to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) tasks: u64,
    pub(super) shards: u32,
    /// First due time, and the time over which they are spread, in milliseconds.
    pub(super) from: Wall,
    pub(super) spread_ms: u64,
}

impl Load {
    fn due_at(&self, task: u64) -> i64 {
        self.from.0 + (task * self.spread_ms / self.tasks.max(1)) as i64
    }
}

/// Tasks per second of the raw program.
pub(super) async fn measure(site: &Site, node: &Node, load: Load) -> anyhow::Result<f64> {
    let producer = node.producer().clone();
    let start;
    if site.dir.is_some() {
        start = Instant::now();
        tokio::try_join!(produce(producer, load), write_embedded(node, load))?;
    } else {
        let raw = servers::Raw::open(site.config()).await?;
        start = Instant::now();
        tokio::try_join!(produce(producer, load), raw.write(load))?;
    }
    Ok(load.tasks as f64 / start.elapsed().as_secs_f64())
}

/// One record a task, to the events topic, which nobody reads.
async fn produce(producer: Arc<dyn Producer>, load: Load) -> anyhow::Result<()> {
    let sends = stream::iter(0..load.tasks).map(|task| {
        producer.produce(Message {
            target: Target::Topic(Topic::Events),
            partition: Some((task % u64::from(load.shards)) as u32),
            key: Some(Bytes::from(format!("q-{}", task % 10_000))),
            headers: Vec::new(),
            value: Some(event_text(task, task % 10_000, load.due_at(task), "noop", 0)),
        })
    });
    let mut sends = sends.buffer_unordered(4_096);
    while let Some(sent) = sends.next().await {
        sent.context("a record of the raw program")?;
    }
    Ok(())
}

/// On the embedded store: the same rows through its own port, in batches over all shards.
async fn write_embedded(node: &Node, load: Load) -> anyhow::Result<()> {
    let store = node.store();
    let chunks = stream::iter(0..load.tasks.div_ceil(CHUNK)).map(|chunk| {
        let tasks = chunk * CHUNK..((chunk + 1) * CHUNK).min(load.tasks);
        let rows: Vec<Row> = tasks.flat_map(|task| rows_of(task, load)).collect();
        store.write(rows.into())
    });
    let mut chunks = chunks.buffer_unordered(CHUNKS_AT_ONCE);
    while let Some(written) = chunks.next().await {
        written.context("rows of the raw program")?;
    }
    Ok(())
}

/// Rows as Dueline would write them, in shards that do not exist.
fn rows_of(task: u64, load: Load) -> Vec<Row> {
    let shard = Shard(1_000_000 + (task % u64::from(load.shards)) as u32);
    let version = Version(task);
    let place = Place { ready_at: Wall(load.due_at(task)), version };
    let queue = QueueName::new(&format!("raw-{}", task % 10_000)).expect("a name");
    let key = TaskKey { queue, id: TaskId::new(&format!("t-{task}")).expect("a name") };
    let content: Arc<TaskContent> = Arc::new(content(HandlerName::new("noop").expect("a name")));
    let event = EventRow {
        key: key.clone(),
        version,
        epoch: Epoch(1),
        shard,
        verb: "schedule".into(),
        content_hash: [0; 16],
        event_id_hash: None,
        appended: place.ready_at,
        decision: Decision::Scheduled,
        current: None,
        cancel_remembered: None,
        reason: None,
    };
    let started = Started {
        epoch: Epoch(1),
        seq: task,
        at: place.ready_at,
        deadline: place.ready_at,
        attempt: 1,
        failures: 0,
        interruptions: 0,
        instance: "bench".into(),
    };
    let ended = crate::model::Ended {
        epoch: Epoch(1),
        seq: task,
        at: place.ready_at,
        outcome: Outcome::Succeeded,
        failures: 0,
        next_at: None,
        closed: None,
        result: None,
        error: None,
    };
    let fact = |fact| Row::Fact(FactRow { shard, place, fact });
    vec![
        Row::Event(event),
        fact(Fact::Task { key, due_at: place.ready_at, appended: place.ready_at, content }),
        fact(Fact::Started(started)),
        fact(Fact::Ended(ended)),
    ]
}

#[cfg(feature = "cassandra")]
mod servers {
    use super::*;
    use crate::config::Config;
    use crate::node::cassandra_options;
    use crate::store::cassandra::{self, Options};
    use scylla::client::session::Session;
    use scylla::statement::batch::{Batch, BatchType};
    use scylla::statement::prepared::PreparedStatement;

    /// A session of the bench's own, reached as the node reaches Cassandra.
    pub(in super::super) async fn session(config: &Config) -> anyhow::Result<Session> {
        let options = Options { request_timeout: Duration::from_secs(60), ..cassandra_options(config) };
        cassandra::session(&options).await.context("Cassandra")
    }

    /// Its tables and statements, made before the time is taken.
    pub(super) struct Raw {
        session: Session,
        by_id: PreparedStatement,
        due: PreparedStatement,
    }

    /// shard, bucket, ready_at, task, kind, data
    type DueColumns = (i32, i64, i64, i64, i8, &'static str);

    const DATA: &str =
        "{\"bench\":\"about as long as the rows of one fact about a task are, in plain text\"}";

    impl Raw {
        pub(super) async fn open(config: &Config) -> anyhow::Result<Raw> {
            let session = session(config).await?;
            let keyspace = &config.cassandra.keyspace;
            let tables = [
                format!("CREATE TABLE IF NOT EXISTS {keyspace}.raw_by_id (key text PRIMARY KEY, data text)"),
                format!(
                    "CREATE TABLE IF NOT EXISTS {keyspace}.raw_due (shard int, bucket bigint, ready_at bigint, \
                     task bigint, kind tinyint, data text, PRIMARY KEY ((shard, bucket), ready_at, task, kind))"
                ),
            ];
            for table in tables {
                session.query_unpaged(table, ()).await?;
                session.await_schema_agreement().await?;
            }
            let by_id = format!("INSERT INTO {keyspace}.raw_by_id (key, data) VALUES (?, ?)");
            let due = format!(
                "INSERT INTO {keyspace}.raw_due (shard, bucket, ready_at, task, kind, data) VALUES (?, ?, ?, ?, ?, ?)"
            );
            Ok(Raw { by_id: session.prepare(by_id).await?, due: session.prepare(due).await?, session })
        }

        pub(super) async fn write(&self, load: Load) -> anyhow::Result<()> {
            let shards = u64::from(load.shards);
            let groups = load.tasks.div_ceil(CHUNK * shards);
            let chunks = (0..groups).flat_map(|group| (0..shards).map(move |shard| (group, shard)));
            let mut chunks = stream::iter(chunks)
                .map(|(group, shard)| chunk(self, load, group, shard))
                .buffer_unordered(CHUNKS_AT_ONCE);
            while let Some(written) = chunks.next().await {
                written?;
            }
            Ok(())
        }
    }

    /// The tasks of one shard in one stretch of time.
    async fn chunk(raw: &Raw, load: Load, group: u64, shard: u64) -> anyhow::Result<()> {
        let shards = u64::from(load.shards);
        let tasks: Vec<u64> = (0..CHUNK)
            .map(|index| group * CHUNK * shards + index * shards + shard)
            .filter(|task| *task < load.tasks)
            .collect();
        let mut by_bucket: std::collections::BTreeMap<i64, Vec<DueColumns>> =
            std::collections::BTreeMap::new();
        for task in &tasks {
            let at = load.due_at(*task);
            let bucket = at.div_euclid(crate::model::limits::BUCKET_MS);
            let rows = [0, 2, 3].map(|kind| (shard as i32, bucket, at, *task as i64, kind, DATA));
            by_bucket.entry(bucket).or_default().extend(rows);
        }
        let keys: Vec<(String, &str)> =
            tasks.iter().map(|task| (format!("raw-{task}/t-{task}"), DATA)).collect();
        let due = by_bucket.values().map(|rows| send(raw, &raw.due, rows));
        let by_id = keys.chunks(BY_ID_ROWS).map(|keys| send(raw, &raw.by_id, keys));
        let (due, by_id) = (futures::future::try_join_all(due), futures::future::try_join_all(by_id));
        tokio::try_join!(due, by_id).map(|_| ())
    }

    async fn send<V: scylla::serialize::row::SerializeRow>(
        raw: &Raw,
        statement: &PreparedStatement,
        rows: &[V],
    ) -> anyhow::Result<()> {
        let mut batch = Batch::new(BatchType::Unlogged);
        rows.iter().for_each(|_| batch.append_statement(statement.clone()));
        raw.session.batch(&batch, rows).await.context("rows of the raw program")?;
        Ok(())
    }
}

#[cfg(feature = "cassandra")]
pub(super) use servers::session;

#[cfg(not(feature = "cassandra"))]
mod servers {
    use super::*;
    use crate::config::Config;

    pub(super) struct Raw;

    impl Raw {
        pub(super) async fn open(_config: &Config) -> anyhow::Result<Raw> {
            anyhow::bail!("this binary was built without Cassandra")
        }

        pub(super) async fn write(&self, _load: Load) -> anyhow::Result<()> {
            Ok(())
        }
    }
}
