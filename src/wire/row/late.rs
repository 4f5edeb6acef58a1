//! The data column of the list of late queues.
//!
//! Field names are the stored format: add, do not rename. Times are milliseconds since the Unix epoch.

use serde::{Deserialize, Serialize};

use super::field::Text;
use crate::model::{LateEntry, LateQueueRow, Pointer, QueueName, Segment, Shard, Standing, Version, Wall};

/// A row of `late_queue`; without `entry` the queue is late no more.
#[derive(Serialize, Deserialize)]
pub(super) struct LateQueue<'a> {
    #[serde(borrow)]
    queue: Text<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entry: Option<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    opened: i64,
    due_at: i64,
    version: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    under_way: Vec<(i64, u64, i64)>,
}

/// A pointer: when it is due, its version, its ready time.
fn of_pointer(pointer: &Pointer) -> (i64, u64, i64) {
    (pointer.due_at.0, pointer.version.0, pointer.ready_at.0)
}

fn into_pointer((due_at, version, ready_at): (i64, u64, i64)) -> Pointer {
    Pointer { due_at: Wall(due_at), version: Version(version), ready_at: Wall(ready_at) }
}

impl<'a> LateQueue<'a> {
    pub(super) fn of(row: &'a LateQueueRow) -> Self {
        let entry = row.entry.as_ref().map(|entry| Entry {
            opened: entry.opened.0,
            due_at: entry.from.due_at.0,
            version: entry.from.version.0,
            under_way: entry.under_way.iter().map(of_pointer).collect(),
        });
        LateQueue { queue: row.queue.as_str().into(), entry }
    }

    pub(super) fn into_row(self, shard: Shard, segment: Segment, seq: u64) -> Result<LateQueueRow, String> {
        let queue = QueueName::new(&self.queue.0).map_err(|why| format!("the queue {why}"))?;
        let entry = self.entry.map(|entry| LateEntry {
            opened: Wall(entry.opened),
            from: Standing { due_at: Wall(entry.due_at), version: Version(entry.version) },
            under_way: entry.under_way.into_iter().map(into_pointer).collect(),
        });
        Ok(LateQueueRow { shard, segment, seq, queue, entry })
    }
}
