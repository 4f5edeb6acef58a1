//! Task events as consumers read them.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::model::{
    CloseReason, Ended, Epoch, HandlerName, Outcome, Place, QueueName, Shard, Started, TaskEventKind, TaskId,
    TaskKey, Version, Wall,
};

const AT: Wall = Wall(1_795_251_600_250);

fn event(kind: TaskEventKind, cause: Cause) -> TaskEvent {
    TaskEvent {
        kind,
        key: TaskKey { queue: QueueName::new("incident-42").unwrap(), id: TaskId::new("notify 1").unwrap() },
        shard: Shard(7),
        place: Place { ready_at: AT, version: Version(41) },
        due_at: Wall(AT.0 - 250),
        at: AT,
        handler: Some(HandlerName::new("notify").unwrap()),
        collection: Some(Arc::from("tenant-7")),
        cause,
        payload: None,
    }
}

fn headers(message: &Message) -> Value {
    let texts = message.headers.iter().map(|(name, value)| {
        (name.to_string(), json!(String::from_utf8_lossy(value.as_deref().unwrap_or_default())))
    });
    Value::Object(texts.collect())
}

#[test]
fn a_start_is_a_cloud_event_in_binary_mode() {
    let started = Started {
        generation: crate::model::Generation(0),
        epoch: Epoch(3),
        seq: 90,
        at: AT,
        deadline: AT.plus_ms(30_000),
        attempt: 2,
        failures: 1,
        interruptions: 0,
        instance: Arc::from("a-1"),
    };
    let message = message(&event(TaskEventKind::Started, Cause::Started(started)), "pay");
    assert_eq!(message.key.as_deref(), Some(&b"incident-42"[..]));
    assert_eq!((&message.target, message.partition), (&Target::Topic(Topic::Events), None));
    let expected = json!({"ce_specversion": "1.0", "ce_type": "dueline.task.started.v1", "ce_source": "/dueline/pay/shards/7",
        "ce_id": "41-3-90-started", "ce_subject": "notify 1", "ce_time": "2026-11-21T09:00:00.250Z",
        "ce_partitionkey": "incident-42", "content-type": "application/json"});
    assert_eq!(headers(&message), expected);
    let data: Value = serde_json::from_slice(message.value.as_deref().unwrap()).unwrap();
    assert_eq!(
        data,
        json!({"queue": "incident-42", "id": "notify 1", "handler": "notify", "collection": "tenant-7", "shard": 7,
            "offset": 41, "due_at": "2026-11-21T09:00:00.000Z", "ready_at": "2026-11-21T09:00:00.250Z", "attempt": 2,
            "deadline": "2026-11-21T09:00:30.250Z", "instance": "a-1", "epoch": 3, "sequence": 90})
    );
}

#[test]
fn an_end_says_how_and_what_follows() {
    let ended = Ended {
        epoch: Epoch(3),
        seq: 90,
        at: AT,
        outcome: Outcome::Retryable,
        failures: 2,
        next_at: None,
        closed: Some(CloseReason::Exhausted),
        result: Some(Arc::from(&b"{\"n\": 1.50}"[..])),
        result_cut: false,
        error: Some(Arc::from("503")),
    };
    let message = message(&event(TaskEventKind::Dead, Cause::Ended(ended)), "dueline");
    assert_eq!(headers(&message)["ce_id"], "41-3-90-ended");
    let text = String::from_utf8(message.value.unwrap().to_vec()).unwrap();
    let end = r#""epoch":3,"sequence":90,"outcome":"retryable","failures":2,"reason":"exhausted","error":"503","result":{"n": 1.50}}"#;
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_result_that_was_cut_says_so_and_fits_the_schema() {
    let Cause::Ended(ended) = cause_of(TaskEventKind::Succeeded) else { unreachable!("an end") };
    for is_cut in [false, true] {
        let cause = Cause::Ended(Ended { result_cut: is_cut, ..ended.clone() });
        let message = message(&event(TaskEventKind::Succeeded, cause), "dueline");
        let value: Value = serde_json::from_slice(message.value.as_deref().unwrap()).unwrap();
        assert_eq!(value.get("result_cut"), is_cut.then_some(&json!(true)));
        assert!(validator().is_valid(&json!({"headers": headers(&message), "value": value})), "{value}");
    }
}

#[test]
fn a_decision_is_named_by_its_schedule_event() {
    let cause = Cause::Event(Version(55), Some(Arc::from("resolved")));
    let message = message(&event(TaskEventKind::Cancelled, cause), "dueline");
    let found = headers(&message);
    assert_eq!(
        (&found["ce_id"], &found["ce_type"]),
        (&json!("41-cancelled"), &json!("dueline.task.cancelled.v1"))
    );
    let data: Value = serde_json::from_slice(message.value.as_deref().unwrap()).unwrap();
    assert_eq!((&data["offset"], &data["reason"]), (&json!(41), &json!("resolved")));
}

fn cause_of(kind: TaskEventKind) -> Cause {
    use TaskEventKind::*;
    let ended = |outcome, next_at, closed| {
        let (result, error) = match outcome {
            Outcome::Succeeded => (Some(Arc::from(&b"{\"sent\":true}"[..])), None),
            _ => (None, Some(Arc::from("503 Service Unavailable"))),
        };
        let failures = u32::from(outcome != Outcome::Succeeded);
        Cause::Ended(Ended {
            epoch: Epoch(3),
            seq: 90,
            at: AT,
            outcome,
            failures,
            next_at,
            closed,
            result,
            result_cut: false,
            error,
        })
    };
    let closed = |reason| Cause::Closed { epoch: Epoch(3), seq: 90, reason };
    let again = Some(AT.plus_ms(1_000));
    match kind {
        Scheduled => Cause::Event(Version(41), None),
        Replaced | Rescheduled | Redriven | Cancelled => {
            Cause::Event(Version(41), Some(Arc::from("resolved")))
        }
        TaskEventKind::Started => Cause::Started(crate::model::Started {
            generation: crate::model::Generation(0),
            epoch: Epoch(3),
            seq: 90,
            at: AT,
            deadline: AT.plus_ms(30_000),
            attempt: 1,
            failures: 0,
            interruptions: 0,
            instance: Arc::from("a-1"),
        }),
        Failed => ended(Outcome::Retryable, again, None),
        Parked => ended(Outcome::TimedOut, again, None),
        Succeeded => ended(Outcome::Succeeded, None, None),
        Dead => ended(Outcome::Fatal, None, Some(CloseReason::Fatal)),
        Expired => closed(CloseReason::Expired),
        Skipped => closed(CloseReason::Skipped),
        Dropped => closed(CloseReason::Dropped),
    }
}

fn folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/events")
}

fn validator() -> jsonschema::Validator {
    let schema = std::fs::read_to_string(folder().join("task-event.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
}

#[test]
fn the_example_of_each_kind_is_what_is_published_and_fits_the_schema() {
    let (folder, validator) = (folder(), validator());
    for kind in TaskEventKind::ALL {
        let message = message(&event(kind, cause_of(kind)), "dueline");
        let value: Value = serde_json::from_slice(message.value.as_deref().unwrap()).unwrap();
        let example = json!({"headers": headers(&message), "value": value});
        let errors: Vec<String> = validator.iter_errors(&example).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{kind:?}: {errors:?}");
        let path = folder.join(format!("golden/told/{}.json", kind.word()));
        let text = serde_json::to_string_pretty(&example).unwrap() + "\n";
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, text, "{} is not up to date: run this test with UPDATE_DOCS=1", path.display());
    }
    let mut odd = json!({"headers": {}, "value": {}});
    assert!(!validator.is_valid(&odd));
    odd["value"] = json!({"queue": "q"});
    assert!(!validator.is_valid(&odd));
}
