//! The raw program on Cassandra: tables of its own in the keyspace of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt, stream};
use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use crate::config::Config;
use crate::model::limits::BUCKET_MS;
use crate::node::cassandra_options;
use crate::store::cassandra::{self, Options};

use super::{Load, QUEUES, Way};

/// What each of them is good at depends on the machine: batches of one partition save requests, batches over partitions
/// load the coordinator, single rows can be spread best.
pub(super) const WAYS: [Way; 4] = [
    Way {
        name: "batches of 96 rows of a partition, by-id rows in tens",
        tasks: 32,
        due_rows: 96,
        by_id_rows: 10,
        at_once: 32,
    },
    Way {
        name: "batches of 96 rows of a partition, by-id rows alone",
        tasks: 32,
        due_rows: 96,
        by_id_rows: 1,
        at_once: 32,
    },
    Way {
        name: "batches of 384 rows of a partition, by-id rows alone",
        tasks: 128,
        due_rows: 384,
        by_id_rows: 1,
        at_once: 16,
    },
    Way { name: "every row alone", tasks: 32, due_rows: 1, by_id_rows: 1, at_once: 16 },
];

/// A session of the bench's own, reached as the node reaches Cassandra.
pub(in super::super) async fn session(config: &Config) -> anyhow::Result<Session> {
    let options = Options { request_timeout: Duration::from_secs(60), ..cassandra_options(config) };
    cassandra::session(&options).await.context("Cassandra")
}

/// Its tables and statements.
pub(super) struct Tables {
    session: Session,
    by_id: PreparedStatement,
    due: PreparedStatement,
}

/// shard, bucket, ready_at, task, kind, data
type DueColumns<'a> = (i32, i64, i64, i64, i8, &'a str);

const DATA: &str = "{\"bench\":\"about as long as the rows of one fact about a task are, in plain text\"}";

impl Tables {
    pub(super) async fn open(config: &Config) -> anyhow::Result<Tables> {
        let session = session(config).await?;
        let keyspace = &config.cassandra.keyspace;
        let tables = [
            format!("CREATE TABLE IF NOT EXISTS {keyspace}.raw_by_id (key text PRIMARY KEY, data text)"),
            format!(
                "CREATE TABLE IF NOT EXISTS {keyspace}.raw_due (shard int, bucket bigint, ready_at bigint, task \
                 bigint, kind tinyint, data text, PRIMARY KEY ((shard, bucket), ready_at, task, kind))"
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
        Ok(Tables { by_id: session.prepare(by_id).await?, due: session.prepare(due).await?, session })
    }

    pub(super) async fn write(&self, load: &Load, way: &Way) -> anyhow::Result<()> {
        let shards = u64::from(load.shards);
        let groups = load.tasks.div_ceil(way.tasks * shards);
        let chunks = (0..groups).flat_map(|group| (0..shards).map(move |shard| (group, shard)));
        let mut chunks = stream::iter(chunks)
            .map(|(group, shard)| self.chunk(load, way, group, shard))
            .buffer_unordered(way.at_once);
        while let Some(written) = chunks.next().await {
            written?;
        }
        Ok(())
    }

    /// The tasks of one shard in one stretch of time.
    async fn chunk(&self, load: &Load, way: &Way, group: u64, shard: u64) -> anyhow::Result<()> {
        let shards = u64::from(load.shards);
        let from = load.first + group * way.tasks * shards + shard;
        let tasks: Vec<u64> = (0..way.tasks)
            .map(|index| from + index * shards)
            .filter(|task| load.numbers().contains(task))
            .collect();
        // The payload lies in the row of the task; a start and an end have none.
        let payload = if load.payload.len() > DATA.len() { &*load.payload } else { DATA };
        let mut by_bucket: BTreeMap<i64, Vec<DueColumns<'_>>> = BTreeMap::new();
        for task in &tasks {
            let at = load.due_at(*task);
            let bucket = at.div_euclid(BUCKET_MS);
            let rows = [(0, payload), (2, DATA), (3, DATA)];
            let rows = rows.map(|(kind, data)| (shard as i32, bucket, at, *task as i64, kind, data));
            by_bucket.entry(bucket).or_default().extend(rows);
        }
        let keys: Vec<(String, &str)> =
            tasks.iter().map(|task| (format!("raw-{}/t-{task}", task % QUEUES), DATA)).collect();
        // Three rows a task.
        let due_rows = way.due_rows.min(3 * load.tasks_of_a_request(way.tasks) as usize);
        let due = by_bucket.values().flat_map(|rows| rows.chunks(due_rows));
        let due = due.map(|rows| self.send(&self.due, rows));
        let by_id = keys.chunks(way.by_id_rows).map(|keys| self.send(&self.by_id, keys));
        let (due, by_id) = (futures::future::try_join_all(due), futures::future::try_join_all(by_id));
        tokio::try_join!(due, by_id).map(|_| ())
    }

    /// One row alone, or several as an unlogged batch.
    async fn send<V: SerializeRow>(&self, statement: &PreparedStatement, rows: &[V]) -> anyhow::Result<()> {
        if let [row] = rows {
            self.session.execute_unpaged(statement, row).await.context("a row of the raw program")?;
            return Ok(());
        }
        let mut batch = Batch::new(BatchType::Unlogged);
        rows.iter().for_each(|_| batch.append_statement(statement.clone()));
        self.session.batch(&batch, rows).await.context("rows of the raw program")?;
        Ok(())
    }
}
