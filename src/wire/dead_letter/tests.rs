//! Dead letters as other tools read them.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::model::{
    Ended, Epoch, HandlerName, Outcome, Place, QueueName, Shard, TaskEventKind, TaskId, TaskKey, Version,
    Wall,
};

const AT: Wall = Wall(1_795_251_600_250);

fn dead(cause: Cause) -> TaskEvent {
    TaskEvent {
        kind: TaskEventKind::Dead,
        key: TaskKey { queue: QueueName::new("incident-42").unwrap(), id: TaskId::new("notify 1").unwrap() },
        shard: Shard(7),
        place: Place { ready_at: AT, version: Version(41) },
        due_at: AT,
        at: AT,
        handler: Some(HandlerName::new("notify").unwrap()),
        collection: Some(Arc::from("tenant-7")),
        cause,
        payload: None,
    }
}

fn header(message: &Message, name: &str) -> Bytes {
    let mut found = message.headers.iter().filter(|header| header.0 == name);
    let value = found.next().unwrap_or_else(|| panic!("no {name}")).1.clone().unwrap();
    assert!(found.next().is_none(), "{name} twice");
    value
}

#[test]
fn connect_and_spring_find_their_headers() {
    let ended = Ended {
        epoch: Epoch(3),
        seq: 90,
        at: AT,
        outcome: Outcome::Retryable,
        failures: 5,
        next_at: None,
        closed: Some(CloseReason::Exhausted),
        result: None,
        result_cut: false,
        error: Some(Arc::from("503 Service Unavailable")),
    };
    let payload = Bytes::from_static(br#"{"n": 1.50}"#);
    let found = message(&dead(Cause::Ended(ended)), payload.clone(), "dueline", "dueline-workers");
    assert_eq!((&found.value, &found.target), (&Some(payload), &Target::Topic(Topic::Dead)));
    assert_eq!(found.key, Some(Bytes::from_static(b"incident-42")));
    for (name, value) in [
        ("__connect.errors.topic", "dueline.schedule"),
        ("__connect.errors.partition", "7"),
        ("__connect.errors.offset", "41"),
        ("__connect.errors.exception.message", "503 Service Unavailable"),
        ("kafka_dlt-original-topic", "dueline.schedule"),
        ("kafka_dlt-original-consumer-group", "dueline-workers"),
        ("kafka_dlt-exception-message", "503 Service Unavailable"),
        ("dueline-reason", "exhausted"),
        ("dueline-failures", "5"),
        ("dueline-handler", "notify"),
        ("dueline-collection", "tenant-7"),
        ("dueline-event-id", "7/41-3-90-ended"),
    ] {
        assert_eq!(header(&found, name), value, "{name}");
    }
    assert_eq!(header(&found, "kafka_dlt-original-partition"), [0, 0, 0, 7][..]);
    assert_eq!(header(&found, "kafka_dlt-original-offset"), [0, 0, 0, 0, 0, 0, 0, 41][..]);
}

#[test]
fn one_whose_owners_were_lost_says_so() {
    let cause = Cause::Closed { epoch: Epoch(3), seq: 90, reason: CloseReason::Interrupted };
    let found = message(&dead(cause), Bytes::from_static(b"null"), "dueline", "g");
    assert_eq!(header(&found, "dueline-reason"), "interrupted");
    assert_eq!(header(&found, "kafka_dlt-exception-message"), "its owner was lost too often");
}
