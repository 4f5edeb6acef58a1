//! A forwarded record is believed only as this cluster wrote it; a rejected one is the original and more.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::model::limits::DUE_AHEAD_MS_MAX;
use crate::model::{Due, Verb};
use crate::wire::event::{Handlers, Rules, decode};

const KEY: [u8; 32] = [7; 32];
const ORIGIN: Origin =
    Origin { shard: Shard(3), generation: Generation(1), offset: 41, appended: Wall(1_795_251_600_000) };

fn original() -> Record {
    let header =
        |name: &'static str, value: &'static str| (name.into(), Some(Bytes::from_static(value.as_bytes())));
    Record {
        offset: ORIGIN.offset,
        appended: ORIGIN.appended,
        leader_epoch: None,
        key: Some(Bytes::from_static(b"some key")),
        headers: vec![
            header("ce_specversion", "1.0"),
            header("ce_type", "dueline.task.reschedule.v1"),
            header("ce_source", "/s"),
            header("ce_id", "1"),
            ("other".into(), None),
        ],
        value: Some(Bytes::from_static(br#"{"id":"t","delay":"10s"}"#)),
    }
}

/// A message as it is read at home, an hour later.
fn at_home(message: Message) -> Record {
    Record {
        offset: 9,
        appended: ORIGIN.appended.plus_ms(3_600_000),
        leader_epoch: None,
        key: message.key,
        headers: message.headers,
        value: message.value,
    }
}

fn forwarded_record() -> Record {
    at_home(forwarded(&original(), &ORIGIN, Shard(5), &KEY))
}

fn reason_of(record: &Record) -> RejectReason {
    origin(record, &KEY).unwrap_err().reason
}

#[test]
fn a_forwarded_record_says_where_it_came_from() {
    let message = forwarded(&original(), &ORIGIN, Shard(5), &KEY);
    assert_eq!((&message.target, message.partition), (&Target::Topic(Topic::Schedule), Some(5)));
    assert_eq!((&message.key, &message.value), (&original().key, &original().value));
    assert_eq!(message.headers[..5], original().headers);
    assert_eq!(origin(&at_home(message), &KEY).unwrap(), Some(ORIGIN));
    assert_eq!(origin(&original(), &KEY).unwrap(), None);
}

#[test]
fn a_forwarded_event_counts_from_its_first_append_time() {
    let rules = Rules { payload_bytes_max: 100, handlers: Arc::new(Handlers::default()), signing_key: KEY };
    let decoded = decode(&forwarded_record(), &rules).unwrap();
    assert_eq!(decoded.origin, Some(ORIGIN));
    assert_eq!(decoded.event.verb, Verb::Reschedule(Due::After(10_000)));
    assert_eq!(decoded.event, decode(&original(), &rules).unwrap().event);
    let forged = Rules { signing_key: [8; 32], ..rules };
    assert_eq!(decode(&forwarded_record(), &forged).unwrap_err().reason, RejectReason::Misrouted);
}

#[test]
fn a_forwarded_event_gets_the_answer_of_its_first_append_time() {
    let rules = Rules { payload_bytes_max: 100, handlers: Arc::new(Handlers::default()), signing_key: KEY };
    let too_far = ORIGIN.appended.plus_ms(DUE_AHEAD_MS_MAX + 60_000);
    let value = format!(r#"{{"id":"t","due_at":"{}"}}"#, format_time(too_far));
    let record = Record { value: Some(Bytes::from(value)), ..original() };
    let home = at_home(forwarded(&record, &ORIGIN, Shard(5), &KEY));
    assert!(too_far < home.appended.plus_ms(DUE_AHEAD_MS_MAX), "within the bound, counted from home");
    assert_eq!(decode(&home, &rules).unwrap_err(), decode(&record, &rules).unwrap_err());
}

#[test]
fn a_change_of_anything_signed_is_found() {
    for index in 5..10 {
        let mut record = forwarded_record();
        record.headers[index].1 = Some(Bytes::from_static(b"2"));
        assert_eq!(reason_of(&record), RejectReason::Misrouted, "{}", record.headers[index].0);
        record.headers.remove(index);
        assert_eq!(reason_of(&record), RejectReason::Misrouted);
    }
    let changes: [fn(&mut Record); 7] = [
        |record| record.key = None,
        |record| record.key = Some(Bytes::new()),
        |record| record.value = None,
        |record| record.value = Some(Bytes::from_static(b"{}")),
        |record| record.headers[1].1 = Some(Bytes::from_static(b"dueline.task.cancel.v1")),
        |record| record.headers.swap(2, 3),
        |record| record.headers.push(("Content-Type".into(), None)),
    ];
    for change in changes {
        let mut record = forwarded_record();
        change(&mut record);
        assert_eq!(reason_of(&record), RejectReason::Misrouted);
    }
}

#[test]
fn origin_headers_that_we_would_not_write_are_refused() {
    for (name, value) in [
        (ORIGIN_GENERATION, "01"),
        (ORIGIN_PARTITION, "+3"),
        (ORIGIN_OFFSET, "-1"),
        (ORIGIN_APPENDED, "now"),
        (ORIGIN_SIGNATURE, "xyz"),
        (ORIGIN_SIGNATURE, "abc"),
        (ORIGIN_SIGNATURE, ""),
    ] {
        let mut record = forwarded_record();
        record.headers.retain(|header| header.0 != name);
        record.headers.push(text_header(name, value));
        let rejection = origin(&record, &KEY).unwrap_err();
        assert!(rejection.detail.contains("dueline-origin-"), "{}", rejection.detail);
        record.headers.push(text_header(name, value));
        assert_eq!(reason_of(&record), RejectReason::Misrouted, "{name} twice");
    }
    let mut record = original();
    record.headers.push(text_header("Dueline-Origin-Anything", "1"));
    assert_eq!(reason_of(&record), RejectReason::Misrouted);
}

#[test]
fn a_header_that_no_event_is_read_from_may_be_added_on_the_way() {
    let mut record = forwarded_record();
    record.headers.push(text_header("tracestate", "x"));
    assert_eq!(origin(&record, &KEY).unwrap(), Some(ORIGIN));
}

#[test]
fn a_rejected_record_is_the_original_and_why() {
    let rejection = Rejection { reason: RejectReason::InvalidField, detail: "é".repeat(2_000) };
    let message = rejected(&original(), "dueline.schedule", Shard(3), &rejection);
    assert_eq!(message.target, Target::Topic(Topic::Rejected));
    assert_eq!((&message.key, &message.value), (&original().key, &original().value));
    assert_eq!(message.headers[..5], original().headers);
    let added: Vec<_> = message.headers[5..]
        .iter()
        .map(|(name, value)| (&**name, std::str::from_utf8(value.as_ref().unwrap()).unwrap()))
        .collect();
    let detail = "é".repeat(512);
    let expected = [
        (REASON, "invalid_field"),
        (DETAIL, &detail),
        (TOPIC, "dueline.schedule"),
        (PARTITION, "3"),
        (OFFSET, "41"),
        (APPENDED, "2026-11-21T09:00:00.000Z"),
    ];
    assert_eq!(added, expected);
    let tombstone = Record { value: None, key: None, ..original() };
    assert_eq!(rejected(&tombstone, "t", Shard(0), &rejection).value, None);
}

proptest! {
    #[test]
    fn any_record_comes_home_with_its_origin(
        numbers in any::<(u32, u32, u64, i64)>(),
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..9)),
        value in prop::option::of(prop::collection::vec(any::<u8>(), 0..9)),
        header: String,
    ) {
        let (generation, shard, offset, appended) = numbers;
        let from = Origin {
            shard: Shard(shard), generation: Generation(generation), offset, appended: Wall(appended),
        };
        let (key, value) = (key.map(Bytes::from), value.map(Bytes::from));
        let record = Record { key, value, headers: vec![(header.into(), None)], ..original() };
        let home = at_home(forwarded(&record, &from, Shard(0), &KEY));
        prop_assert_eq!(origin(&home, &KEY).unwrap(), Some(from));
        prop_assert!(origin(&home, &[0; 32]).is_err());
    }
}
