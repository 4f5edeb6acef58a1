//! The raw program on the embedded store: its rows through the store's own port, in batches over all shards.

use std::sync::Arc;

use anyhow::Context as _;
use futures::{StreamExt, stream};

use crate::model::{
    Decision, Ended, Epoch, EventRow, Fact, FactRow, HandlerName, Outcome, Place, QueueName, Row, Shard,
    Started, TaskContent, TaskId, TaskKey, Version, Wall,
};
use crate::node::Node;

use super::super::event::{NOOP, content};
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

pub(super) async fn write(node: &Node, load: &Load, way: &Way) -> anyhow::Result<()> {
    let store = node.store();
    let content: Arc<TaskContent> = Arc::new(content(HandlerName::new(NOOP)?, &load.payload));
    let (end, together) = (load.numbers().end, load.tasks_of_a_request(way.tasks));
    let chunks = stream::iter(load.numbers().step_by(together as usize)).map(|from| {
        let tasks = from..(from + together).min(end);
        let rows: anyhow::Result<Vec<[Row; 4]>> =
            tasks.map(|task| rows_of(task, load, content.clone())).collect();
        async move { store.write(rows?.concat().into()).await.context("rows of the raw program") }
    });
    let mut chunks = chunks.buffer_unordered(way.at_once);
    while let Some(written) = chunks.next().await {
        written?;
    }
    Ok(())
}

/// One by-id row and three in a bucket: the task, its start and its end.
fn rows_of(task: u64, load: &Load, content: Arc<TaskContent>) -> anyhow::Result<[Row; 4]> {
    let shard = Shard(SHARD + (task % u64::from(load.shards)) as u32);
    let (version, at) = (Version(task), Wall(load.due_at(task)));
    let place = Place { ready_at: at, version };
    let queue = QueueName::new(&format!("raw-{}", task % QUEUES))?;
    let key = TaskKey { queue, id: TaskId::new(&format!("t-{task}"))? };
    let event = EventRow {
        key: key.clone(),
        version,
        epoch: Epoch(1),
        shard,
        verb: "schedule".into(),
        content_hash: [0; 16],
        event_id_hash: None,
        appended: at,
        decision: Decision::Scheduled,
        current: None,
        cancel_remembered: None,
        reason: None,
    };
    let started = Started {
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
