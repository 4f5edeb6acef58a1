//! The raw program on Cassandra: tables of its own in the keyspace of what is measured, made as Dueline's are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::try_join_all;
use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use crate::config::Config;
use crate::model::limits::BUCKET_MS;
use crate::node::cassandra_options;
use crate::store::cassandra::{self, Options};

use super::chunk::Chunk;
use super::paced::Step;
use super::rows::{Drawn, key};
use super::{Load, Way};

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

/// Rows of several partitions in one batch: servers warn of more.
const TOGETHER: usize = 10;

/// A session of the bench's own, reached as the node reaches Cassandra.
pub(in super::super) async fn session(config: &Config) -> anyhow::Result<Session> {
    let options = Options { request_timeout: Duration::from_secs(60), ..cassandra_options(config) };
    cassandra::session(&options).await.context("Cassandra")
}

/// Where it writes.
pub(super) struct Keyspace {
    session: Session,
    name: String,
}

/// Its tables and statements, for one run: none has the rows of another to flush and compact, nor has what is measured.
pub(super) struct Tables {
    keyspace: Arc<Keyspace>,
    by_id: PreparedStatement,
    due: PreparedStatement,
}

/// shard, bucket, sub, ready_at, version, kind, epoch, seq, data
type DueColumns<'a> = (i32, i64, i32, i64, i64, i8, i64, i64, &'a str);
/// key, version, epoch, data
type ByIdColumns<'a> = (String, i64, i64, &'a str);

/// With the options that the first migration gives to `task_event` and `due`.
const TABLES: [(&str, &str); 2] = [
    (
        "raw_by_id",
        "(key text, version bigint, epoch bigint, data text, PRIMARY KEY (key, version, epoch)) WITH CLUSTERING \
         ORDER BY (version DESC, epoch DESC) AND compaction = {'class': 'UnifiedCompactionStrategy'}",
    ),
    (
        "raw_due",
        "(shard int, bucket bigint, sub int, ready_at bigint, version bigint, kind tinyint, epoch bigint, seq \
         bigint, data text, PRIMARY KEY ((shard, bucket, sub), ready_at, version, kind, epoch, seq)) WITH \
         compaction = {'class': 'UnifiedCompactionStrategy'}",
    ),
];

impl Keyspace {
    pub(super) async fn open(config: &Config) -> anyhow::Result<Keyspace> {
        Ok(Keyspace { session: session(config).await?, name: config.cassandra.keyspace.clone() })
    }

    /// Drops the tables of a run, with all rows.
    pub(super) async fn drop_tables(&self) -> anyhow::Result<()> {
        for (table, _) in TABLES {
            self.change(format!("DROP TABLE {}.{table}", self.name)).await?;
        }
        Ok(())
    }

    /// The driver waits until all nodes agree.
    async fn change(&self, statement: String) -> anyhow::Result<()> {
        self.session.query_unpaged(statement, ()).await.context("the tables of the raw program")?;
        Ok(())
    }
}

impl Tables {
    pub(super) async fn make(keyspace: Arc<Keyspace>) -> anyhow::Result<Tables> {
        let name = &keyspace.name;
        for (table, columns) in TABLES {
            keyspace.change(format!("CREATE TABLE {name}.{table} {columns}")).await?;
        }
        let by_id = format!("INSERT INTO {name}.raw_by_id (key, version, epoch, data) VALUES (?, ?, ?, ?)");
        let due = format!(
            "INSERT INTO {name}.raw_due (shard, bucket, sub, ready_at, version, kind, epoch, seq, data) VALUES \
             (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        );
        let (by_id, due) = (keyspace.session.prepare(by_id).await?, keyspace.session.prepare(due).await?);
        Ok(Tables { keyspace, by_id, due })
    }

    pub(super) async fn write(
        &self,
        drawn: &Drawn,
        load: &Load,
        chunk: Chunk,
        way: &Way,
    ) -> anyhow::Result<()> {
        let mut by_bucket: BTreeMap<i64, Vec<DueColumns<'_>>> = BTreeMap::new();
        for task in chunk.tasks() {
            let (at, texts) = (load.due_at(task), drawn.of(task));
            let (shard, bucket, version) = (chunk.shard as i32, at.div_euclid(BUCKET_MS), task as i64);
            let rows = [(0, 0, &*texts.task), (2, 1, &*texts.started), (3, 1, &*texts.ended)];
            let rows = rows.map(|(kind, epoch, data)| {
                (shard, bucket, 0, at, version, kind, epoch, epoch * version, data)
            });
            by_bucket.entry(bucket).or_default().extend(rows);
        }
        let by_id: Vec<ByIdColumns<'_>> =
            chunk.tasks().map(|task| (key(task), task as i64, 1, &*drawn.of(task).event)).collect();
        // Three rows a task.
        let due_rows = way.due_rows.min(3 * chunk.count as usize);
        let due = by_bucket.values().flat_map(|rows| rows.chunks(due_rows));
        let due = due.map(|rows| self.send(&self.due, rows));
        let by_id = by_id.chunks(way.by_id_rows).map(|rows| self.send(&self.by_id, rows));
        tokio::try_join!(try_join_all(due), try_join_all(by_id)).map(|_| ())
    }

    /// Of these tasks, in whatever shards, the rows of one step: those of each table in tens.
    pub(super) async fn write_step(
        &self,
        drawn: &Drawn,
        load: &Load,
        tasks: Range<u64>,
        step: Step,
    ) -> anyhow::Result<()> {
        let shards = u64::from(load.plan.shards);
        let due_row = |task: u64| {
            let (at, texts) = (load.due_at(task), drawn.of(task));
            let (kind, epoch, data) = match step {
                Step::Come => (0, 0, &*texts.task),
                Step::Started => (2, 1, &*texts.started),
                Step::Ended => (3, 1, &*texts.ended),
            };
            let (shard, version) = ((task % shards) as i32, task as i64);
            (shard, at.div_euclid(BUCKET_MS), 0, at, version, kind, epoch, epoch * version, data)
        };
        let due: Vec<DueColumns<'_>> = tasks.clone().map(due_row).collect();
        let by_id: Vec<ByIdColumns<'_>> = tasks
            .filter(|_| step == Step::Come)
            .map(|task| (key(task), task as i64, 1, &*drawn.of(task).event))
            .collect();
        let due = due.chunks(TOGETHER).map(|rows| self.send(&self.due, rows));
        let by_id = by_id.chunks(TOGETHER).map(|rows| self.send(&self.by_id, rows));
        tokio::try_join!(try_join_all(due), try_join_all(by_id)).map(|_| ())
    }

    /// One row alone, or several as an unlogged batch.
    async fn send<V: SerializeRow>(&self, statement: &PreparedStatement, rows: &[V]) -> anyhow::Result<()> {
        let session = &self.keyspace.session;
        if let [row] = rows {
            session.execute_unpaged(statement, row).await.context("a row of the raw program")?;
            return Ok(());
        }
        let mut batch = Batch::new(BatchType::Unlogged);
        rows.iter().for_each(|_| batch.append_statement(statement.clone()));
        session.batch(&batch, rows).await.context("rows of the raw program")?;
        Ok(())
    }
}
