//! What decoding promises beyond the examples: exact bytes, one hash per content, no panic, no early time.

#![allow(clippy::unwrap_used)]

mod head;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::request::{CancelRequest, Request, RescheduleRequest, Retry, ScheduleRequest, encode, message};
use super::*;
use crate::model::limits::{DUE_AHEAD_MS_MAX, EVENT_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::model::{Due, Misfire, OnConflict, OnDead, OnFailure, Payload, RetryPolicy, TaskContent, Verb};

/// 2026-11-21T09:00:00Z
const APPENDED: Wall = Wall(1_795_251_600_000);
const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub(super) fn rules() -> Rules {
    Rules {
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        handlers: Arc::new(Handlers {
            names: ["h", "notify"].map(str::to_owned).into(),
            ..Handlers::default()
        }),
        signing_key: [7; 32],
    }
}

pub(super) fn record(headers: &[(&str, &str)], value: &[u8]) -> Record {
    let header = |(name, value): &(&str, &str)| {
        ((*name).to_owned().into(), Some(Bytes::copy_from_slice(value.as_bytes())))
    };
    Record {
        offset: 5,
        appended: APPENDED,
        leader_epoch: None,
        key: None,
        headers: headers.iter().map(header).collect(),
        value: Some(Bytes::copy_from_slice(value)),
    }
}

pub(super) fn event_of(value: &str) -> Event {
    decode(&record(&[], value.as_bytes()), &rules()).unwrap().event
}

fn rejection_of(value: &[u8]) -> Rejection {
    decode(&record(&[], value), &rules()).unwrap_err()
}

fn content_of(value: &str) -> TaskContent {
    match event_of(value).verb {
        Verb::Schedule(_, content) => *content,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_event_is_read_field_by_field() {
    let value = r#"{"queue":"q","id":"t","delay":"10m","handler":"notify","payload":[ 1.50, "é" ],"priority":3,
        "collection":"tenant-7","timeout":"30s","expires_at":"2026-11-21T11:00:00.0009Z","misfire":"skip",
        "misfire_grace":"1m","on_conflict":"keep","on_failure":"park","on_dead":"stop","labels":{"team":"sre"},"created_by":"billing","reason":"why",
        "retry":{"max_attempts":3,"initial":"2s","factor":1.5,"max":"1h","jitter":0.1,"max_age":"1d"}}"#;
    let headers = [("traceparent", TRACEPARENT)];
    let event = decode(&record(&headers, value.as_bytes()), &rules()).unwrap().event;
    let content = TaskContent {
        handler: crate::model::HandlerName::new("notify").unwrap(),
        payload: Payload::Inline("[ 1.50, \"é\" ]".as_bytes().into()),
        priority: 3,
        collection: Some("tenant-7".into()),
        timeout_ms: Some(30_000),
        expires_at: Some(Wall(1_795_258_800_000)),
        misfire: Misfire::Skip,
        misfire_grace_ms: 60_000,
        on_conflict: OnConflict::Keep,
        on_failure: OnFailure::Park,
        on_dead: OnDead::Stop,
        retry: Some(RetryPolicy {
            max_attempts: 3,
            initial_ms: 2_000,
            factor: 1.5,
            max_ms: 3_600_000,
            jitter: 0.1,
            max_age_ms: Some(86_400_000),
        }),
        labels: [("team".to_owned(), "sre".to_owned())].into(),
        created_by: Some("billing".into()),
        traceparent: Some(TRACEPARENT.into()),
    };
    assert_eq!(event.verb, Verb::Schedule(Due::After(600_000), Box::new(content)));
    assert_eq!((event.queue.unwrap().as_str(), event.id.unwrap().as_str()), ("q", "t"));
    assert_eq!((event.reason.as_deref(), event.event_id_hash), (Some("why"), None));
}

#[test]
fn a_least_event_has_the_defaults_of_the_interface() {
    let event = event_of(r#"{"handler":"notify"}"#);
    assert_eq!((event.queue, event.id), (None, None));
    let Verb::Schedule(Due::Now, content) = event.verb else { panic!("not due now") };
    assert_eq!(content.payload, Payload::Inline(b"{}".as_slice().into()));
    assert_eq!((content.priority, content.misfire, content.misfire_grace_ms), (5, Misfire::Run, 0));
    assert_eq!((content.on_conflict, content.retry, content.timeout_ms), (OnConflict::Replace, None, None));
    let part = content_of(r#"{"handler":"notify","retry":{"max_attempts":3}}"#).retry.unwrap();
    assert_eq!(part, RetryPolicy { max_attempts: 3, ..RetryPolicy::default() });
}

#[test]
fn a_due_time_is_never_early() {
    let due = |text: &str| event_of(&format!(r#"{{"handler":"notify","due_at":"{text}"}}"#)).verb;
    let Verb::Schedule(Due::At(at), _) = due("2026-11-21T10:00:00.0000001Z") else { panic!("not a time") };
    assert_eq!(at, Wall(1_795_255_200_001));
}

#[test]
fn the_last_moment_of_ten_years_is_taken_and_the_next_is_not() {
    let decode_at = |at: i64| {
        let text = crate::wire::time::format_time(Wall(at));
        let value = format!(r#"{{"type":"reschedule","id":"t","due_at":"{text}"}}"#);
        decode(&record(&[], value.as_bytes()), &rules())
    };
    assert!(decode_at(APPENDED.0 + DUE_AHEAD_MS_MAX).is_ok());
    let rejection = decode_at(APPENDED.0 + DUE_AHEAD_MS_MAX + 1).unwrap_err();
    assert_eq!(rejection.reason, RejectReason::InvalidField);
    assert!(rejection.detail.starts_with("/due_at "), "{}", rejection.detail);
}

#[test]
fn a_record_without_a_readable_value_says_why() {
    let tombstone = decode(&Record { value: None, ..record(&[], b"") }, &rules()).unwrap_err();
    assert_eq!(tombstone.reason, RejectReason::Tombstone);
    assert_eq!(rejection_of(b"").reason, RejectReason::Empty);
    let not_utf8 = rejection_of(b"{\"id\":\"\xff\"}");
    assert_eq!(not_utf8.reason, RejectReason::NotUtf8);
    assert_eq!(not_utf8.detail, "The event is not UTF-8: the byte at offset 7 is not valid.");
    let not_json = rejection_of(b"{\"id\":\n  tru}");
    assert_eq!(not_json.reason, RejectReason::NotJson);
    assert!(not_json.detail.contains("line 2 column"), "{}", not_json.detail);
}

#[test]
fn an_event_and_a_payload_have_their_largest_sizes() {
    let with_payload = |len: usize| format!(r#"{{"handler":"notify","payload":"{}"}}"#, "x".repeat(len - 2));
    assert!(content_of(&with_payload(PAYLOAD_BYTES_MAX)).payload.len() == PAYLOAD_BYTES_MAX);
    let rejection = rejection_of(with_payload(PAYLOAD_BYTES_MAX + 1).as_bytes());
    assert_eq!(rejection.reason, RejectReason::TooLarge);
    assert_eq!(rejection.detail, "/payload is 262145 bytes long; at most 262144 are allowed.");

    let padded = |len: usize| format!(r#"{{"handler":"notify"{}}}"#, " ".repeat(len - 20));
    event_of(&padded(EVENT_BYTES_MAX));
    let rejection = rejection_of(padded(EVENT_BYTES_MAX + 1).as_bytes());
    assert_eq!(rejection.reason, RejectReason::TooLarge);
    assert_eq!(rejection.detail, "The event has 327681 bytes; at most 327680 are allowed.");
}

#[test]
fn deep_nesting_needs_no_stack() {
    let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(decode_deep_nesting);
    thread.unwrap().join().unwrap();
}

fn decode_deep_nesting() {
    let deep = format!("{}0{}", "[{\"a\":".repeat(40_000), "}]".repeat(40_000));
    let larger = Rules { payload_bytes_max: 1 << 20, ..rules() };
    let decode = |value: String| decode(&record(&[], value.as_bytes()), &larger);
    let with = |field: &str| decode(format!(r#"{{"handler":"notify","{field}":{deep}}}"#));
    let event = with("payload").unwrap().event;
    assert!(matches!(event.verb, Verb::Schedule(_, content) if content.payload.len() == deep.len()));
    for field in ["queue", "retry", "labels", "priority", "unknown", "type"] {
        assert!(with(field).is_err(), "{field}");
    }
    assert_eq!(decode("[".repeat(300_000)).unwrap_err().reason, RejectReason::InvalidField);
    assert_eq!(decode("{\"a\":".repeat(60_000)).unwrap_err().reason, RejectReason::NotJson);
}

#[test]
fn a_detail_is_short_and_holds_no_control_character() {
    let name = "\\u0000\\n/~é".repeat(2_000);
    let rejection = rejection_of(format!(r#"{{"{name}":1}}"#).as_bytes());
    assert_eq!(rejection.reason, RejectReason::UnknownField);
    assert!(rejection.detail.len() <= 1_024 && !rejection.detail.contains(char::is_control));
    let text = format!(r#"{{"handler":"notify","delay":"{name}"}}"#);
    assert!(rejection_of(text.as_bytes()).detail.len() < 300);
}

#[test]
fn a_url_is_a_handler_only_where_the_rules_say_so() {
    let value = br#"{"handler":"http://127.0.0.1:9000/notify"}"#;
    assert_eq!(rejection_of(value).reason, RejectReason::UnknownHandler);
    let dev =
        Rules { handlers: Arc::new(Handlers { loopback_urls: true, ..Handlers::default() }), ..rules() };
    assert!(decode(&record(&[], value), &dev).is_ok());
    let rejection = decode(&record(&[], br#"{"handler":"http://10.0.0.1/"}"#), &dev).unwrap_err();
    assert_eq!(rejection.reason, RejectReason::UnknownHandler);
}

#[test]
fn a_trace_context_that_is_not_valid_costs_no_task() {
    let trace = |headers: &[(&str, &str)]| {
        let event = decode(&record(headers, br#"{"handler":"notify"}"#), &rules()).unwrap().event;
        match event.verb {
            Verb::Schedule(_, content) => content.traceparent,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(trace(&[("ce_traceparent", TRACEPARENT)]).as_deref(), Some(TRACEPARENT));
    for text in ["", "00", &TRACEPARENT.to_uppercase(), &TRACEPARENT.replace('3', "0").replace("00-", "01-")]
    {
        assert_eq!(trace(&[("traceparent", text)]), None, "{text}");
    }
    assert_eq!(trace(&[("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT)]), None);
}

#[test]
fn a_header_that_decides_the_encoding_is_given_once() {
    let twice = [("ce_type", "dueline.task.cancel.v1"), ("ce_type", "dueline.task.schedule.v1")];
    let all = [&twice[..], &[("ce_specversion", "1.0"), ("ce_id", "1"), ("ce_source", "/s")]].concat();
    let rejection = decode(&record(&all, br#"{"id":"t"}"#), &rules()).unwrap_err();
    assert_eq!(rejection.detail, "The header ce_type is given more than once.");
    let mut none = record(&[], b"{}");
    none.headers.push(("ce_type".into(), Some(Bytes::from_static(b"\xff"))));
    assert_eq!(decode(&none, &rules()).unwrap_err().reason, RejectReason::InvalidField);
    none.headers = vec![("content-type".into(), None)];
    assert_eq!(decode(&none, &rules()).unwrap_err().detail, "The header content-type has no value.");
}

#[test]
fn two_cloud_events_are_the_same_when_source_and_id_are() {
    let id_hash = |source: &str, id: &str| {
        let headers = [
            ("ce_specversion", "1.0"),
            ("ce_type", "dueline.task.cancel.v1"),
            ("ce_source", source),
            ("ce_id", id),
        ];
        decode(&record(&headers, br#"{"id":"t"}"#), &rules()).unwrap().event.event_id_hash.unwrap()
    };
    assert_eq!(id_hash("/a", "b"), id_hash("/a", "b"));
    assert_ne!(id_hash("/a", "bc"), id_hash("/ab", "c"));
    let structured =
        r#"{"specversion":"1.0","type":"dueline.task.cancel.v1","source":"/a","id":"b","data":{"id":"t"}}"#;
    let headers = [("content-type", "application/cloudevents+json")];
    let event = decode(&record(&headers, structured.as_bytes()), &rules()).unwrap().event;
    assert_eq!(event.event_id_hash, Some(id_hash("/a", "b")));
}

pub(super) fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn schedule_request() -> impl Strategy<Value = ScheduleRequest> {
    use super::request::{Misfire, OnConflict};
    use prop::option::of;
    let name = || of("[^\\p{Cc}]{1,30}");
    let due = prop_oneof![
        Just((None, None)),
        (0..1_900_000_000_000i64).prop_map(|ms| (Some(crate::wire::time::format_time(Wall(ms))), None)),
        (0..3_000u32).prop_map(|days| (None, Some(format!("{days}d1h")))),
    ];
    let words = (
        of(prop_oneof![Just(Misfire::Run), Just(Misfire::Skip)]),
        of(prop_oneof![Just(OnConflict::Replace), Just(OnConflict::Keep), Just(OnConflict::Reject)]),
    );
    let retry =
        (of(1..=1000u32), of(1.0..=100.0f64), of(0.0..=1.0f64)).prop_map(|(max_attempts, factor, jitter)| {
            Retry { max_attempts, factor, jitter, initial: None, max: None, max_age: None }
        });
    let labels = of(prop::collection::btree_map("[^\\p{Cc}]{1,9}", any::<String>(), 0..4));
    (name(), name(), due, of(json_value()), of(0..=9u8), words, (labels, of(retry), name())).prop_map(
        |(
            queue,
            id,
            (due_at, delay),
            payload,
            priority,
            (misfire, on_conflict),
            (labels, retry, created_by),
        )| {
            ScheduleRequest {
                queue,
                id,
                due_at,
                delay,
                handler: "notify".into(),
                payload: payload.map(|value| serde_json::value::to_raw_value(&value).unwrap()),
                priority,
                misfire,
                on_conflict,
                labels,
                retry,
                created_by,
                ..ScheduleRequest::default()
            }
        },
    )
}

#[test]
fn a_request_of_each_verb_is_an_event() {
    let decoded = |request: Request| decode_plain(&encode(&request), APPENDED, &rules()).unwrap();
    let cancel = CancelRequest { id: "t".into(), reason: Some("why".into()), ..CancelRequest::default() };
    let event = decoded(Request::Cancel(cancel));
    assert_eq!((event.verb, event.reason.as_deref()), (Verb::Cancel, Some("why")));
    let reschedule =
        RescheduleRequest { id: "t".into(), delay: Some("1s".into()), ..RescheduleRequest::default() };
    let event = decoded(Request::Reschedule(reschedule));
    assert_eq!(event.verb, Verb::Reschedule(Due::After(1_000)));
    let message = message(&event, Bytes::from_static(b"{}"), Some(TRACEPARENT));
    assert_eq!(message.key.as_deref(), Some(b"t".as_slice()));
    assert_eq!(message.headers, record(&[("traceparent", TRACEPARENT)], b"").headers);
}

proptest! {
    #[test]
    fn any_bytes_are_an_event_or_refused(value in prop::collection::vec(any::<u8>(), 0..80), encoding in 0..3usize) {
        let structured = [("content-type", "application/cloudevents+json")];
        let binary = [
            ("ce_specversion", "1.0"), ("ce_type", "dueline.task.schedule.v1"), ("ce_source", "/s"), ("ce_id", "1"),
        ];
        let headers: [&[_]; 3] = [&[], &structured, &binary];
        let _ = decode(&record(headers[encoding], &value), &rules());
    }

    #[test]
    fn any_header_is_read_or_refused(name: String, value in prop::option::of(prop::collection::vec(any::<u8>(), 0..20))) {
        let mut record = record(&[], br#"{"handler":"notify"}"#);
        for prefix in ["", "ce_", "dueline-origin-"] {
            record.headers = vec![(format!("{prefix}{name}").into(), value.clone().map(Bytes::from))];
            let _ = decode(&record, &rules());
        }
    }

    #[test]
    fn any_value_of_any_field_is_read_or_refused_by_its_pointer(field in 0..verb::SCHEDULE_FIELDS.len(), value in json_value()) {
        let field = verb::SCHEDULE_FIELDS[field];
        let event = json!({ "handler": "notify", field: value });
        if let Err(rejection) = decode(&record(&[], event.to_string().as_bytes()), &rules()) {
            let found = rejection.detail.starts_with(&format!("/{field}")) || field == "type";
            prop_assert!(found, "{}", rejection.detail);
        }
    }

    #[test]
    fn a_broken_event_is_an_event_or_refused(request in schedule_request(), at: prop::sample::Index, byte: u8) {
        let mut value = encode(&Request::Schedule(Box::new(request))).to_vec();
        let index = at.index(value.len());
        value[index] = byte;
        let _ = decode(&record(&[], &value), &rules());
        prop_assert!(decode(&record(&[], &value[..index]), &rules()).is_err());
    }

    #[test]
    fn a_request_comes_back_as_it_was_asked(request in schedule_request()) {
        let event = decode_plain(&encode(&Request::Schedule(Box::new(request.clone()))), APPENDED, &rules()).unwrap();
        prop_assert_eq!(event.queue.as_ref().map(|name| name.as_str()), request.queue.as_deref());
        prop_assert_eq!(event.id.as_ref().map(|name| name.as_str()), request.id.as_deref());
        let Verb::Schedule(due, content) = event.verb else { panic!("another verb") };
        let payload = request.payload.as_ref().map_or("{}", |raw| raw.get());
        prop_assert_eq!(&content.payload, &Payload::Inline(payload.as_bytes().into()));
        prop_assert_eq!(content.priority, request.priority.unwrap_or(5));
        prop_assert_eq!(content.labels, request.labels.clone().unwrap_or_default());
        prop_assert_eq!(content.created_by.as_deref(), request.created_by.as_deref());
        let factor = request.retry.as_ref().map(|retry| retry.factor.unwrap_or(2.0));
        prop_assert_eq!(content.retry.map(|retry| retry.factor), factor);
        let due_at = match due {
            Due::At(at) => Some(crate::wire::time::format_time(at)),
            Due::Now | Due::After(_) => None,
        };
        prop_assert_eq!(due_at, request.due_at.clone());
        let text = serde_json::to_string(&request).unwrap();
        let again: ScheduleRequest = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
