//! The rows an event leaves behind.

use std::sync::Arc;

use crate::model::{
    Epoch, EventRow, Fact, FactRow, MarkKind, Payload, PayloadRow, Place, Row, Shard, TaskContent, Version,
    limits,
};

use super::super::decide::Plan;
use super::item::{Item, ShownTask};

/// The version of the event a row belongs to.
pub(super) fn version_of(row: &Row) -> Version {
    match row {
        Row::Event(row) => row.version,
        Row::Fact(FactRow { fact: Fact::Superseded { by, .. }, .. }) => *by,
        Row::Fact(row) => row.place.version,
        Row::Payload(row) => row.place.version,
        Row::Pointer(row) => row.pointer.version,
        Row::LateQueue(row) => Version(row.seq),
        Row::DeadLetter(row) => row.place.version,
    }
}

/// Whether a row is the mark on a task that is cancelled, replaced or moved.
pub(super) fn is_mark(row: &Row) -> bool {
    matches!(row, Row::Fact(FactRow { fact: Fact::Superseded { .. }, .. }))
}

pub(super) fn event_row(item: &Item, version: Version, plan: &Plan, epoch: Epoch, shard: Shard) -> EventRow {
    let (event, key) = item.event_and_key();
    EventRow {
        key: key.clone(),
        version,
        epoch,
        shard,
        verb: Arc::from(event.verb.word()),
        content_hash: plan.repeated_hash.unwrap_or(event.content_hash),
        event_id_hash: event.event_id_hash,
        appended: item.record.appended,
        decision: plan.decision,
        current: plan.current,
        cancel_remembered: plan.cancel_remembered,
        reason: event.reason.clone(),
        is_first: false,
        is_listed: false,
    }
}

pub(super) fn mark_row(shard: Shard, place: Place, by: Version, epoch: Epoch, mark: MarkKind) -> Row {
    Row::Fact(FactRow { shard, place, fact: Fact::Superseded { by, epoch, mark } })
}

/// The task row, and the payload's own row when it is large.
pub(super) fn task_rows(shard: Shard, task: &ShownTask) -> Vec<Row> {
    let fact = Fact::Task {
        key: task.key.clone(),
        due_at: task.due_at,
        appended: task.appended,
        content: task.stored.clone(),
    };
    let mut rows = vec![Row::Fact(FactRow { shard, place: task.place, fact })];
    if let (Payload::Stored(_), Payload::Inline(bytes)) = (&task.stored.payload, &task.content.payload) {
        rows.push(Row::Payload(PayloadRow { shard, place: task.place, bytes: bytes.clone() }));
    }
    rows
}

/// The content as it is stored with the task: a large payload apart.
pub(super) fn stored_content(content: &Arc<TaskContent>) -> Arc<TaskContent> {
    let len = content.payload.len();
    if len <= limits::PAYLOAD_INLINE_BYTES_MAX {
        return content.clone();
    }
    let payload = Payload::Stored(u32::try_from(len).unwrap_or(u32::MAX));
    Arc::new(TaskContent { payload, ..(**content).clone() })
}
