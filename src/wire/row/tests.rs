//! Every kind of row comes back as it was sent, and anything else is an error.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::model::{
    CloseReason, Current, Decision, Ended, Generation, HandlerName, LateEntry, MarkKind, Misfire, OnConflict,
    OnDead, OnFailure, OriginMark, Outcome, Payload, Place, Pointer, RetryPolicy, Shard, Standing, Started,
    TaskContent, Told, Wall,
};

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9-]{1,20}", "[^\\p{Cc}]{1,40}", "[%/ .~_é\u{1F600}]{1,10}"]
}

fn key() -> impl Strategy<Value = TaskKey> {
    (name(), name()).prop_map(|(queue, id)| TaskKey {
        queue: QueueName::new(&queue).unwrap(),
        id: TaskId::new(&id).unwrap(),
    })
}

fn text() -> impl Strategy<Value = Arc<str>> {
    any::<String>().prop_map(Arc::from)
}

fn wall() -> impl Strategy<Value = Wall> {
    any::<i64>().prop_map(Wall)
}

fn payload() -> impl Strategy<Value = Payload> {
    let json =
        ["{}", "null", "1e999", "{\"b\": 1,\n \"a\":\"\\u00e9\"}", "[1, 2.50]", "\"\\ud800\"", " {}", "{"];
    prop_oneof![
        select(json.to_vec()).prop_map(|text| Payload::Inline(text.as_bytes().into())),
        vec(any::<u8>(), 0..40).prop_map(|bytes| Payload::Inline(bytes.into())),
        any::<u32>().prop_map(Payload::Stored),
    ]
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    (1u32..=1_000, any::<u64>(), 1.0..=100.0f64, any::<u64>(), 0.0..=1.0f64, of(any::<u64>())).prop_map(
        |(max_attempts, initial_ms, factor, max_ms, jitter, max_age_ms)| RetryPolicy {
            max_attempts,
            initial_ms,
            factor,
            max_ms,
            jitter,
            max_age_ms,
        },
    )
}

fn content() -> impl Strategy<Value = TaskContent> {
    let times = (of(any::<u64>()), of(wall()), any::<u64>());
    let words = (
        select(vec![Misfire::Run, Misfire::Skip]),
        select(vec![OnConflict::Replace, OnConflict::Keep, OnConflict::Reject]),
        select(vec![OnDead::Continue, OnDead::Stop]),
        select(vec![OnFailure::Block, OnFailure::Park]),
    );
    let texts = (of(text()), of(text()), of(text()), btree_map(any::<String>(), any::<String>(), 0..4));
    (name(), payload(), 0u8..=9, times, words, of(retry()), texts).prop_map(
        |(handler, payload, priority, times, words, retry, texts)| TaskContent {
            handler: HandlerName::new(&handler).unwrap(),
            payload,
            priority,
            collection: texts.0,
            timeout_ms: times.0,
            expires_at: times.1,
            misfire: words.0,
            misfire_grace_ms: times.2,
            on_conflict: words.1,
            on_dead: words.2,
            on_failure: words.3,
            retry,
            labels: texts.3,
            created_by: texts.1,
            traceparent: texts.2,
        },
    )
}

fn close_reason() -> impl Strategy<Value = CloseReason> {
    use CloseReason::*;
    select(vec![Exhausted, Fatal, Interrupted, Expired, Skipped])
}

fn outcome() -> impl Strategy<Value = Outcome> {
    use Outcome::*;
    select(vec![Succeeded, Retryable, Fatal, TimedOut, Aborted, Interrupted, Snoozed, NotCalled])
}

fn started() -> impl Strategy<Value = Started> {
    (any::<(u32, u64, u64)>(), wall(), wall(), any::<(u32, u32, u32)>(), text()).prop_map(
        |((generation, epoch, seq), at, deadline, (attempt, failures, interruptions), instance)| Started {
            generation: Generation(generation),
            epoch: Epoch(epoch),
            seq,
            at,
            deadline,
            attempt,
            failures,
            interruptions,
            instance,
        },
    )
}

fn ended() -> impl Strategy<Value = Ended> {
    let result = prop_oneof![vec(any::<u8>(), 0..20), any::<String>().prop_map(String::into_bytes)];
    let rest = (of(wall()), of(close_reason()), (of(result.prop_map(Arc::from)), any::<bool>()), of(text()));
    (any::<(u64, u64)>(), wall(), outcome(), any::<u32>(), rest).prop_map(
        |((epoch, seq), at, outcome, failures, (next_at, closed, (result, result_cut), error))| Ended {
            epoch: Epoch(epoch),
            seq,
            at,
            outcome,
            failures,
            next_at,
            closed,
            result,
            result_cut,
            error,
        },
    )
}

fn fact() -> impl Strategy<Value = Fact> {
    let mark = select(vec![MarkKind::Cancelled, MarkKind::Replaced, MarkKind::Rescheduled]);
    prop_oneof![
        (key(), wall(), wall(), content()).prop_map(|(key, due_at, appended, content)| Fact::Task {
            key,
            due_at,
            appended,
            content: Arc::new(content)
        }),
        (any::<u64>(), 1..u64::MAX, mark).prop_map(|(by, epoch, mark)| Fact::Superseded {
            by: Version(by),
            epoch: Epoch(epoch),
            mark
        }),
        started().prop_map(Fact::Started),
        ended().prop_map(Fact::Ended),
        (any::<(u64, u64)>(), wall(), close_reason()).prop_map(|((epoch, seq), at, reason)| Fact::Closed {
            epoch: Epoch(epoch),
            seq,
            at,
            reason
        }),
    ]
}

fn current() -> impl Strategy<Value = Current> {
    (wall(), any::<u64>(), wall(), any::<[u8; 16]>(), wall(), any::<bool>()).prop_map(
        |(ready_at, version, due_at, content_hash, appended, cancelled)| Current {
            place: Place { ready_at, version: Version(version) },
            due_at,
            content_hash,
            appended,
            cancelled,
        },
    )
}

fn event_row() -> impl Strategy<Value = EventRow> {
    use Decision::*;
    let decisions = vec![
        Scheduled,
        Replaced,
        Rescheduled,
        Cancelled,
        TooLate,
        Repeated,
        Kept,
        Conflict,
        OverQuota,
        Unknown,
        CancelledBefore,
    ];
    let numbers = any::<(u64, u64, u32, [u8; 16], Option<[u8; 16]>)>();
    let rest = (wall(), of(current()), of(wall()), of(any::<String>()));
    (key(), numbers, select(vec!["schedule", "cancel", "reschedule"]), select(decisions), rest).prop_map(
        |(key, numbers, verb, decision, (appended, current, cancel_remembered, reason))| EventRow {
            key,
            version: Version(numbers.0),
            epoch: Epoch(numbers.1),
            shard: Shard(numbers.2),
            verb: verb.into(),
            content_hash: numbers.3,
            event_id_hash: numbers.4,
            appended,
            decision,
            current,
            cancel_remembered,
            reason,
            is_first: false,
            is_listed: false,
        },
    )
}

fn segment() -> impl Strategy<Value = Segment> {
    any::<(u64, u64)>().prop_map(|(epoch, number)| Segment { epoch: Epoch(epoch), number })
}

fn late_queue() -> impl Strategy<Value = LateQueueRow> {
    let pointer = (wall(), any::<u64>(), wall());
    let pointer = pointer.prop_map(|(due_at, version, ready_at)| Pointer {
        due_at,
        version: Version(version),
        ready_at,
    });
    let entry = (wall(), wall(), any::<u64>(), proptest::collection::vec(pointer, 0..3));
    let entry = entry.prop_map(|(opened, due_at, version, under_way)| LateEntry {
        opened,
        from: Standing { due_at, version: Version(version) },
        under_way,
    });
    (any::<u32>(), segment(), any::<u64>(), key(), of(entry)).prop_map(|(shard, segment, seq, key, entry)| {
        LateQueueRow { shard: Shard(shard), segment, seq, queue: key.queue, entry }
    })
}

fn progress() -> impl Strategy<Value = Progress> {
    let mark = any::<(u32, u64, u64)>().prop_map(|(generation, origin_offset, home_offset)| OriginMark {
        generation: Generation(generation),
        origin_offset,
        home_offset,
    });
    let marks = btree_map(any::<u32>().prop_map(Shard), mark, 0..5);
    let late = of(segment());
    let told = (any::<u64>(), wall(), of(wall()));
    let told = of(told.prop_map(|(next_offset, own, before)| Told { next_offset, own, before }));
    (any::<(u64, u32, String, u64, Option<u32>, Option<u64>, Option<u64>)>(), wall(), late, marks, told)
        .prop_map(|(columns, watermark, late, marks, told)| {
            let (epoch, generation, topic_id, next_offset, leader_epoch, ids_from, end) = columns;
            Progress {
                epoch: Epoch(epoch),
                generation: Generation(generation),
                topic_id,
                next_offset,
                leader_epoch,
                watermark,
                late,
                marks,
                told,
                ids_from,
                ids_are_all: end.is_some_and(|end| end % 2 == 0),
                ends: end.map(Version).into_iter().collect(),
            }
        })
}

proptest! {
    #[test]
    fn ids_come_back_as_they_were_written(
        prints in proptest::collection::vec(any::<u32>(), 0..=limits::IDS_OF_CHUNK as usize),
        (shard, chunk, epoch) in any::<(u32, u64, u64)>(),
    ) {
        let row = IdsRow { shard: Shard(shard), chunk, epoch: Epoch(epoch), prints };
        let decoded = decode_ids(row.shard, row.chunk, row.epoch, &encode_ids(&row)).unwrap();
        prop_assert_eq!(decoded, row);
    }

    #[test]
    fn a_fact_comes_back_as_it_was_written(fact in fact()) {
        let (kind, epoch, seq) = fact_columns(&fact);
        prop_assert_eq!(decode_fact(kind, epoch, seq, &encode_fact(&fact)).unwrap(), fact);
    }

    #[test]
    fn an_event_row_comes_back_as_it_was_written(row in event_row()) {
        let decoded = decode_event(row.key.clone(), row.version, row.epoch, &encode_event(&row));
        prop_assert_eq!(decoded.unwrap(), row);
    }

    #[test]
    fn a_row_of_a_list_of_late_queues_comes_back_as_it_was_written(row in late_queue()) {
        let decoded = decode_late_queue(row.shard, row.segment, row.seq, &encode_late_queue(&row));
        prop_assert_eq!(decoded.unwrap(), row);
    }

    #[test]
    fn a_progress_row_comes_back_as_it_was_written(progress in progress()) {
        prop_assert_eq!(decode_progress(progress.epoch, &encode_progress(&progress)).unwrap(), progress);
    }

    #[test]
    fn a_key_comes_back_from_its_text(key in key()) {
        let text = key_text(&key);
        prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%/".contains(&b)));
        prop_assert_eq!(key_from_text(&text).unwrap(), key);
    }

    #[test]
    fn any_bytes_are_a_row_or_an_error(kind: u8, data in vec(any::<u8>(), 0..60), key in key(), text: String) {
        let _ = decode_fact(kind, 1, 1, &data);
        prop_assert!(decode_fact(kind % 5, 1, 1, &data).is_err());
        prop_assert!(decode_event(key, Version(1), Epoch(1), &data).is_err());
        prop_assert!(decode_progress(Epoch(1), &data).is_err());
        let _ = key_from_text(&text);
    }

    #[test]
    fn a_broken_row_is_a_row_or_an_error(fact in fact(), at: prop::sample::Index, byte: u8) {
        let (kind, epoch, seq) = fact_columns(&fact);
        let mut data = encode_fact(&fact);
        let index = at.index(data.len());
        data[index] = byte;
        let _ = decode_fact(kind, epoch, seq, &data);
        prop_assert!(decode_fact(kind, epoch, seq, &data[..index]).is_err());
    }
}

fn task_with(payload: &str) -> Fact {
    let content =
        TaskContent::new(HandlerName::new("notify").unwrap(), Payload::Inline(payload.as_bytes().into()));
    let key = TaskKey { queue: QueueName::new("q").unwrap(), id: TaskId::new("t").unwrap() };
    Fact::Task { key, due_at: Wall(2), appended: Wall(1), content: Arc::new(content) }
}

#[test]
fn a_plain_task_is_a_short_readable_row() {
    let row = String::from_utf8(encode_fact(&task_with("{\"user\": 7}"))).unwrap();
    let expected = "{\"queue\":\"q\",\"id\":\"t\",\"due_at\":2,\"appended\":1,\"handler\":\"notify\",\
                    \"payload\":{\"user\": 7},\"priority\":5}";
    assert_eq!(row, expected);
}

#[test]
fn a_deep_payload_comes_back_without_recursion() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let fact = task_with(&deep);
    let row = encode_fact(&fact);
    assert!(row.starts_with(b"{\"queue\"") && row.len() < 201_000, "embedded as JSON");
    assert_eq!(decode_fact(0, 0, 0, &row).unwrap(), fact);
}

#[test]
fn a_field_of_a_later_version_is_passed_over() {
    let row = br#"{"mark":"cancelled","added_later":{"deep":[1,2,{"x":null}]}}"#;
    let fact = Fact::Superseded { by: Version(9), epoch: Epoch(2), mark: MarkKind::Cancelled };
    assert_eq!(decode_fact(1, 2, 9, row).unwrap(), fact);
}

#[test]
fn a_mark_without_an_epoch_counts_whatever_was_started() {
    let fact = Fact::Superseded { by: Version(9), epoch: Epoch(u64::MAX), mark: MarkKind::Cancelled };
    assert_eq!(decode_fact(1, 0, 9, br#"{"mark":"cancelled"}"#).unwrap(), fact);
}

#[test]
fn an_unknown_word_or_kind_is_an_error_that_names_it() {
    let message = |kind, row: &str| decode_fact(kind, 3, 4, row.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        message(1, r#"{"mark":"lost"}"#),
        "fact of kind 1, epoch 3, seq 4: no mark is called \"lost\""
    );
    assert!(message(3, r#"{"at":1,"outcome":"maybe"}"#).contains("no outcome is called \"maybe\""));
    assert!(message(4, r#"{"at":1,"reason":"why"}"#).contains("no close reason is called \"why\""));
    assert!(message(5, "{}").contains("no fact has this kind"));
}

#[test]
fn ids_that_are_cut_off_or_more_than_a_chunk_are_an_error_that_names_them() {
    let chunk = 4 * limits::IDS_OF_CHUNK as usize;
    for len in [1, 3, 5, chunk - 1, chunk + 1, chunk + 4, 1 << 20] {
        let message = decode_ids(Shard(3), 7, Epoch(2), &vec![1; len]).unwrap_err().to_string();
        assert_eq!(message, format!("ids of shard 3, chunk 7 of epoch 2: {len} bytes"));
    }
}

#[test]
fn a_key_that_is_encoded_otherwise_is_refused() {
    for text in ["a", "a/", "/b", "a/b/c", "a/%zz", "%61/b", "a b/c", "a/%ff", "a/%2f", "a/%00"] {
        assert!(key_from_text(text).is_err(), "{text}");
    }
    assert_eq!(key_text(&key_from_text("caf%C3%A9%2F1/50%25%20off").unwrap()), "caf%C3%A9%2F1/50%25%20off");
}

#[test]
fn a_progress_row_of_a_newer_build_is_read_unless_it_forbids_that() {
    let row = |more: &str| format!(r#"{{{more}"topic_id":"t","next_offset":7,"watermark":9}}"#);
    let plain = decode_progress(Epoch(3), row("").as_bytes()).unwrap();
    let newer = row(r#""a_field_of_later":{"x":[1]},"#);
    assert_eq!(decode_progress(Epoch(3), newer.as_bytes()).unwrap(), plain);
    let refused = decode_progress(Epoch(3), row(r#""reader":4,"#).as_bytes()).unwrap_err().to_string();
    assert!(refused.contains("progress of epoch 3") && refused.contains("run the newer build"), "{refused}");
}
