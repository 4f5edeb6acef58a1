//! What the scenarios ask for: schedule events, and the content of a task.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::model::{HandlerName, Misfire, OnConflict, OnDead, OnFailure, Payload, TaskContent, Wall};

/// A schedule event as a producer would write it, about 200 bytes.
pub(super) fn event_text(task: u64, queue: u64, due_at_ms: i64, handler: &str, collections: u64) -> Bytes {
    let due_at = crate::wire::time::format_time(Wall(due_at_ms));
    let collection = queue.checked_rem(collections);
    let collection = collection.map(|n| format!(r#""collection":"c-{n}","#)).unwrap_or_default();
    Bytes::from(format!(
        r#"{{"type":"schedule","queue":"q-{queue}","id":"t-{task}","due_at":"{due_at}","handler":"{handler}",{collection}"payload":{{"task":{task},"user":"someone@example.org","note":"a payload of ordinary length"}}}}"#
    ))
}

pub(super) fn content(handler: HandlerName) -> TaskContent {
    TaskContent {
        handler,
        payload: Payload::Inline(Arc::from(&br#"{"task":1,"user":"someone@example.org"}"#[..])),
        priority: 5,
        collection: None,
        timeout_ms: None,
        expires_at: None,
        misfire: Misfire::Run,
        misfire_grace_ms: 0,
        on_conflict: OnConflict::Replace,
        on_dead: OnDead::Continue,
        on_failure: OnFailure::Block,
        retry: None,
        labels: BTreeMap::new(),
        created_by: None,
        traceparent: None,
    }
}
