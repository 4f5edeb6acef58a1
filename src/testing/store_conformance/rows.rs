//! Writes are durable and idempotent, every kind of row comes back as it was, and no text breaks anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BASE, Case, CheckFn, event, key_of, nth, ok, place, same, started, task};
use crate::model::{
    CloseReason, Current, Decision, Ended, Epoch, Fact, FactRow, Generation, HandlerName, MarkKind, Misfire,
    OnConflict, OnDead, OnFailure, Outcome, Payload, PayloadRow, RetryPolicy, Row, Started, TaskContent,
    Version, Wall, limits,
};

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("an_empty_write_is_answered", |case| Box::pin(an_empty_write_is_answered(case))),
    ("every_kind_of_fact_comes_back_as_it_was", |case| Box::pin(every_kind_of_fact(case))),
    ("an_event_row_comes_back_as_it_was", |case| Box::pin(an_event_row(case))),
    ("sending_rows_again_changes_nothing", |case| Box::pin(sending_again(case))),
    ("a_full_request_of_all_tables_is_stored", |case| Box::pin(a_full_request(case))),
    ("payloads_of_every_size_come_back", |case| Box::pin(payloads(case))),
    ("names_are_data_whatever_they_hold", |case| Box::pin(names(case))),
];

async fn an_empty_write_is_answered(case: Case) {
    case.write(Vec::new()).await;
}

async fn every_kind_of_fact(case: Case) {
    let shard = case.shard(0);
    let at = place(BASE, 77);
    let rows = all_facts(&case);
    let mut shuffled: Vec<Row> = rows.iter().cloned().map(Row::Fact).collect();
    shuffled.reverse();
    case.write(shuffled).await;
    same("facts", &ok("facts", case.store.facts(shard, at).await), &rows);
    assert_eq!(ok("facts", case.store.facts(shard, place(BASE, 78)).await), Vec::new());
    assert_eq!(ok("facts", case.store.facts(case.shard(1), at).await), Vec::new());
}

fn all_facts(case: &Case) -> Vec<FactRow> {
    let (shard, at) = (case.shard(0), place(BASE, 77));
    let fact = |fact| FactRow { shard, place: at, fact };
    let attempt = Started {
        generation: Generation(2),
        epoch: Epoch(3),
        seq: 41,
        at: BASE,
        deadline: BASE.plus_ms(1),
        attempt: 7,
        failures: 5,
        interruptions: 1,
        instance: Arc::from("dl 'ä\" 1"),
    };
    let closed = Ended {
        epoch: Epoch(3),
        seq: 41,
        at: BASE.plus_ms(9),
        outcome: Outcome::Fatal,
        failures: 6,
        next_at: None,
        closed: Some(CloseReason::Fatal),
        result: Some(Arc::from(&[0xff, 0x00, 0x27][..])),
        result_cut: true,
        error: Some(Arc::from("'; DROP TABLE due; --")),
    };
    let retried = Ended {
        seq: u64::from(u32::MAX) + 9,
        outcome: Outcome::TimedOut,
        next_at: Some(BASE.plus_ms(60_000)),
        closed: None,
        result: None,
        result_cut: false,
        error: None,
        ..closed.clone()
    };
    vec![
        fact(Fact::Task {
            key: case.key("full"),
            due_at: BASE.plus_ms(-10),
            appended: BASE,
            content: Arc::new(full_content()),
        }),
        fact(Fact::Superseded { by: Version(78), epoch: Epoch(3), mark: MarkKind::Rescheduled }),
        fact(Fact::Superseded { by: Version(78), epoch: Epoch(4), mark: MarkKind::Cancelled }),
        fact(Fact::Superseded { by: Version(1 << 50), epoch: Epoch(4), mark: MarkKind::Cancelled }),
        fact(Fact::Started(attempt)),
        fact(Fact::Ended(closed)),
        fact(Fact::Ended(retried)),
        fact(Fact::Closed { epoch: Epoch(4), seq: 1, at: BASE, reason: CloseReason::Expired }),
    ]
}

fn full_content() -> TaskContent {
    let labels = [("team", "sre"), ("ü", ""), ("quote'\"", "\\")];
    TaskContent {
        handler: HandlerName::new("https://127.0.0.1:1/x?y='z'").expect("legal"),
        payload: Payload::Stored(256 * 1024),
        priority: 9,
        collection: Some(Arc::from("tenant-7")),
        timeout_ms: Some(1),
        expires_at: Some(BASE.plus_ms(limits::DUE_AHEAD_MS_MAX)),
        misfire: Misfire::Skip,
        misfire_grace_ms: 5,
        on_conflict: OnConflict::Keep,
        on_dead: OnDead::Stop,
        on_failure: OnFailure::Park,
        retry: Some(RetryPolicy::default()),
        labels: BTreeMap::from(labels.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        created_by: Some(Arc::from("billing")),
        traceparent: Some(Arc::from("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
    }
}

async fn an_event_row(case: Case) {
    let key = case.key("event");
    let mut row = event(&key, 1 << 45, 12);
    row.decision = Decision::Rescheduled;
    row.current = Some(Current {
        place: place(BASE, 5),
        due_at: BASE.plus_ms(-1),
        content_hash: [9; 16],
        appended: Wall(1),
        cancelled: true,
    });
    row.event_id_hash = None;
    row.cancel_remembered = None;
    row.reason = Some("because of 'x' \u{1F980}".to_owned());
    case.write(vec![Row::Event(row.clone())]).await;
    same("history", &ok("history", case.store.history(key, 10, None).await), &[row]);
}

async fn sending_again(case: Case) {
    let shard = case.shard(0);
    let key = case.key("again");
    let facts: Vec<FactRow> =
        (0..20).flat_map(|n| [task(shard, nth(n), &key), started(shard, nth(n), 1, n as u64)]).collect();
    let mut rows: Vec<Row> = facts.iter().cloned().map(Row::Fact).collect();
    rows.push(Row::Event(event(&key, 100, 1)));
    rows.extend(rows.clone());
    for _ in 0..3 {
        case.write(rows.clone()).await;
    }
    same("slice", &case.pages(shard, nth(0), nth(20), 1_000).await.0, &facts);
    same("history", &ok("history", case.store.history(key.clone(), 10, None).await), &[event(&key, 100, 1)]);
}

async fn a_full_request(case: Case) {
    let shard = case.shard(0);
    let bucket_ms = case.cluster.bucket_ms;
    let (mut facts, mut events, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..limits::WRITE_ROWS_MAX as i64 / 2 {
        let key = case.key(&format!("full-{n}"));
        let at = place(BASE.plus_ms(n * bucket_ms / 40), 1_000 + n as u64);
        facts.push(task(shard, at, &key));
        events.push(event(&key, 1_000 + n as u64, 1));
        rows.push(Row::Fact(task(shard, at, &key)));
        rows.push(Row::Event(event(&key, 1_000 + n as u64, 1)));
    }
    case.write(rows).await;
    let (from, to) = (place(BASE, 0), place(BASE.plus_ms(bucket_ms * 20), 0));
    same("slice", &case.pages(shard, from, to, 100).await.0, &facts);
    for event in events {
        same("history", &ok("history", case.store.history(event.key.clone(), 2, None).await), &[event]);
    }
}

async fn payloads(case: Case) {
    let shard = case.shard(0);
    for (n, size) in
        [0, 1, limits::PAYLOAD_INLINE_BYTES_MAX + 1, limits::PAYLOAD_BYTES_MAX].into_iter().enumerate()
    {
        let bytes: Arc<[u8]> = (0..size).map(|n| (n * 31 % 251) as u8).collect();
        let row = PayloadRow { shard, place: nth(n as i64), bytes: bytes.clone() };
        case.write(vec![Row::Payload(row.clone()), Row::Payload(row)]).await;
        let found = ok("payload", case.store.payload(shard, nth(n as i64)).await);
        assert!(
            found.as_ref() == Some(&bytes),
            "payload of {size} bytes: {:?}",
            found.map(|found| found.len())
        );
    }
    assert_eq!(ok("payload", case.store.payload(shard, nth(99)).await), None);
    assert_eq!(ok("payload", case.store.payload(case.shard(1), nth(1)).await), None);
}

async fn names(case: Case) {
    let run = format!("{}-{}", case.number, case.index);
    let long = "x".repeat(limits::NAME_BYTES_MAX);
    let wide = "\u{1F980}".repeat(limits::NAME_BYTES_MAX / 4);
    let names = [
        "a/b",
        "a",
        "b/c",
        "%2F",
        "%",
        "'; DROP KEYSPACE dueline; --",
        "\"",
        "\\",
        "$$",
        "?",
        ":",
        " ",
        ".",
        "..",
        "ÄÖ ẞ",
        "A",
        "ä",
        "a\u{308}",
        "\u{1F469}\u{200D}\u{1F680}",
        "\u{202E}right",
        "NULL",
        "{}",
        "\u{FEFF}",
        &long,
        &wide,
    ];
    let mut keys = Vec::new();
    for name in names {
        // The queue of one is the id of the other, so that a key that joins them carelessly is found out.
        keys.push(key_of(name, &run));
        keys.push(key_of(&run, name));
    }
    keys.push(key_of(&format!("{run}/x"), "y"));
    keys.push(key_of(&run, "x/y"));
    keys.push(key_of(&long, &wide));
    let version = |n: usize| case.number.wrapping_mul(1_000) % (1 << 40) + n as u64;
    let shard = case.shard(0);
    let mut rows = Vec::new();
    for (n, key) in keys.iter().enumerate() {
        rows.push(Row::Event(event(key, version(n), 1)));
        rows.push(Row::Fact(task(shard, nth(n as i64), key)));
    }
    case.write(rows).await;
    for (n, key) in keys.iter().enumerate() {
        let found = ok("history", case.store.history(key.clone(), 10_000, None).await);
        let mine: Vec<_> = found
            .into_iter()
            .filter(|row| (version(0)..version(keys.len())).contains(&row.version.0))
            .collect();
        same(&format!("history of {key:?}"), &mine, &[event(key, version(n), 1)]);
        let facts = ok("facts", case.store.facts(shard, nth(n as i64)).await);
        same(&format!("facts of {key:?}"), &facts, &[task(shard, nth(n as i64), key)]);
    }
}
