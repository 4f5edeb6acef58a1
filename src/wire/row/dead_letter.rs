//! The data column of a dead letter.
//!
//! Field names are the stored format: add, do not rename. Times are milliseconds since the Unix epoch.

use serde::{Deserialize, Serialize};

use super::field::{Text, arc, text, unknown_word};
use crate::model::{
    CloseReason, DeadLetterRow, Died, HandlerName, Place, QueueName, Shard, TaskId, TaskKey, Wall,
};

/// A row of `dead_letter`.
#[derive(Serialize, Deserialize)]
pub(super) struct DeadLetter<'a> {
    ready_at: i64,
    #[serde(borrow)]
    queue: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    handler: Text<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    collection: Option<Text<'a>>,
    #[serde(borrow)]
    reason: Text<'a>,
    attempts: u32,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    error: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    purged: Option<u64>,
}

impl<'a> DeadLetter<'a> {
    pub(super) fn of(row: &'a DeadLetterRow) -> Self {
        DeadLetter {
            ready_at: row.place.ready_at.0,
            queue: row.key.queue.as_str().into(),
            id: row.key.id.as_str().into(),
            handler: row.handler.as_str().into(),
            collection: row.collection.as_ref().map(text),
            reason: row.reason.word().into(),
            attempts: row.attempts,
            error: row.error.as_ref().map(text),
            purged: row.purged,
        }
    }

    pub(super) fn into_row(self, shard: Shard, died: Died) -> Result<DeadLetterRow, String> {
        let queue = QueueName::new(&self.queue.0).map_err(|why| format!("the queue {why}"))?;
        let id = TaskId::new(&self.id.0).map_err(|why| format!("the id {why}"))?;
        let reason = CloseReason::from_word(&self.reason.0);
        Ok(DeadLetterRow {
            shard,
            at: died.at,
            place: Place { ready_at: Wall(self.ready_at), version: died.version },
            key: TaskKey { queue, id },
            handler: HandlerName::new(&self.handler.0).map_err(|why| format!("the handler {why}"))?,
            collection: self.collection.map(arc),
            reason: reason.ok_or_else(|| unknown_word("close reason", &self.reason))?,
            attempts: self.attempts,
            error: self.error.map(arc),
            purged: self.purged,
        })
    }
}
