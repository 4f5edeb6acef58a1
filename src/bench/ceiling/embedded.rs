//! The raw program on the embedded store: its rows through the store's own port, as they are and not packed.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::log::Producer;
use crate::log::embedded::EmbeddedLog;
use crate::model::{
    Current, Decision, Ended, Epoch, EventRow, Fact, FactRow, Outcome, Place, QueueName, Row, Shard, Started,
    TaskContent, TaskId, TaskKey, Version, Wall,
};
use crate::store::Store as _;
use crate::store::embedded::{Database, EmbeddedStore, Options};
use anyhow::Context as _;

use super::super::event::mixed;
use super::chunk::Chunk;
use super::paced::Step;
use super::rows::Drawn;
use super::{Load, QUEUES, Way};

/// A request is one write of the journal, whatever is in it.
pub(super) const WAYS: [Way; 3] = [
    Way { name: "requests of 32 tasks, 32 at once", tasks: 32, due_rows: 96, by_id_rows: 32, at_once: 32 },
    Way {
        name: "requests of 128 tasks, 16 at once",
        tasks: 128,
        due_rows: 384,
        by_id_rows: 128,
        at_once: 16,
    },
    Way {
        name: "requests of 256 tasks, 64 at once",
        tasks: 256,
        due_rows: 768,
        by_id_rows: 256,
        at_once: 64,
    },
];

/// Shards that do not exist: nothing reads what is written.
const SHARD: u32 = 1_000_000;

/// A log and a store on a new database in this folder.
pub(super) async fn open(dir: &Path, shards: u32) -> anyhow::Result<(Arc<dyn Producer>, EmbeddedStore)> {
    let db = Database::open(&Options::at(dir)).context("the database of the raw program")?;
    let options = crate::log::embedded::Options::new("raw", shards);
    let log = EmbeddedLog::open(&db, options).await.context("the log of the raw program")?;
    Ok((log.producer(), EmbeddedStore::without_packs(&db)))
}

pub(super) async fn write(
    store: &EmbeddedStore,
    drawn: &Drawn,
    load: &Load,
    chunk: Chunk,
) -> anyhow::Result<()> {
    let shard = Shard(SHARD + chunk.shard);
    let mut rows = Vec::with_capacity(4 * chunk.count as usize);
    for task in chunk.tasks() {
        rows.extend(rows_of(task, load, drawn.of(task).content.clone(), shard, "raw-")?);
    }
    store.write(rows.into()).await.context("rows of the raw program")
}

/// Of these tasks, in whatever shards, the rows of one step.
pub(super) async fn write_step(
    store: &EmbeddedStore,
    drawn: &Drawn,
    load: &Load,
    tasks: Range<u64>,
    step: Step,
) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for task in tasks {
        let shard = Shard(SHARD + (task % u64::from(load.plan.shards)) as u32);
        let [event, content, started, ended] =
            rows_of(task, load, drawn.of(task).content.clone(), shard, "raw-")?;
        match step {
            Step::Come => rows.extend([event, content]),
            Step::Started => rows.push(started),
            Step::Ended => rows.push(ended),
        }
    }
    store.write(rows.into()).await.context("rows of the raw program")
}

/// One by-id row and three in a bucket: the task, its start and its end; its queue begins with `prefix`.
pub(super) fn rows_of(
    task: u64,
    load: &Load,
    content: Arc<TaskContent>,
    shard: Shard,
    prefix: &str,
) -> anyhow::Result<[Row; 4]> {
    let (version, at) = (Version(task), Wall(load.due_at(task)));
    let place = Place { ready_at: at, version };
    let queue = QueueName::new(&format!("{prefix}{}", task % QUEUES))?;
    let key = TaskKey { queue, id: TaskId::new(&format!("t-{task}"))? };
    let content_hash = hash(load.plan.seed, task);
    let event = EventRow {
        key: key.clone(),
        version,
        epoch: Epoch(1),
        shard,
        verb: "schedule".into(),
        content_hash,
        event_id_hash: None,
        appended: at,
        decision: Decision::Scheduled,
        current: Some(Current { place, due_at: at, content_hash, appended: at, cancelled: false }),
        cancel_remembered: None,
        reason: None,
        is_first: true,
        is_listed: false,
    };
    let started = Started {
        generation: crate::model::Generation(0),
        epoch: Epoch(1),
        seq: task,
        at,
        deadline: at,
        attempt: 1,
        failures: 0,
        interruptions: 0,
        instance: "bench".into(),
    };
    let ended = Ended {
        epoch: Epoch(1),
        seq: task,
        at,
        outcome: Outcome::Succeeded,
        failures: 0,
        next_at: None,
        closed: None,
        result: None,
        result_cut: false,
        error: None,
    };
    let fact = |fact| Row::Fact(FactRow { shard, place, fact });
    Ok([
        Row::Event(event),
        fact(Fact::Task { key, due_at: at, appended: at, content }),
        fact(Fact::Started(started)),
        fact(Fact::Ended(ended)),
    ])
}

/// Looks like one.
fn hash(seed: u64, task: u64) -> [u8; 16] {
    (u128::from(mixed(seed, task)) << 64 | u128::from(mixed(seed, !task))).to_be_bytes()
}
