//! What is dropped is gone, and nothing beside it.

use std::sync::Arc;

use super::{Case, CheckFn, event, ok, task};
use crate::model::{DeadLetterRow, Died, PayloadRow, Place, Row, Shard, TaskKey, Version, Wall};
use crate::store::{Forgotten, Lookup, Stretch};

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("a_bucket_that_is_dropped_is_gone_with_its_payloads_and_nothing_else", |case| Box::pin(buckets(case))),
    ("events_up_to_a_version_are_forgotten_and_newer_ones_stay", |case| Box::pin(events(case))),
    ("what_is_forgotten_may_be_written_anew", |case| Box::pin(anew(case))),
    ("old_dead_letters_go_and_those_of_the_last_weeks_stay", |case| Box::pin(letters(case))),
];

/// The start of the `n`-th bucket of this check.
fn bucket(case: &Case, n: i64) -> Wall {
    let width = case.cluster.bucket_ms;
    Wall((super::BASE.0.div_euclid(width) + n) * width)
}

async fn buckets(case: Case) {
    let (shard, other) = (case.shard(0), case.shard(1));
    let mut places = Vec::new();
    for n in [0, 2, 3] {
        for (ms, version) in [(0, 10), (5, 11), (case.cluster.bucket_ms - 1, 12)] {
            places.push(Place {
                ready_at: bucket(&case, n).plus_ms(ms),
                version: Version(version + 100 * n as u64),
            });
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    for place in &places {
        for shard in [shard, other] {
            rows.push(Row::Fact(task(shard, *place, &case.key(&place.version.0.to_string()))));
            let bytes = Arc::from(vec![b'x'; 20_000]);
            rows.push(Row::Payload(PayloadRow { shard, place: *place, bytes }));
        }
    }
    case.write(rows).await;
    let own = |before: Wall| {
        let case = case.clone();
        async move {
            let found = ok("stretches", case.store.stretches(before).await);
            assert!(found.is_sorted_by_key(|stretch| stretch.from), "the oldest first");
            found.into_iter().filter(|stretch| stretch.shard == shard).collect::<Vec<_>>()
        }
    };
    let stretch = |n| Stretch { shard, from: bucket(&case, n), to: bucket(&case, n + 1) };
    assert_eq!(own(bucket(&case, 3)).await, [stretch(0), stretch(2)]);
    assert_eq!(own(bucket(&case, 3).plus_ms(-1)).await, [stretch(0)], "only whole ones");
    ok("drop_stretch", case.store.drop_stretch(stretch(0), places[..3].to_vec()).await);
    // Sent again, as after a lost answer.
    ok("drop_stretch", case.store.drop_stretch(stretch(0), places[..3].to_vec()).await);
    assert_eq!(own(bucket(&case, 4)).await, [stretch(2), stretch(3)]);
    let end = Place::start_of(bucket(&case, 9));
    let (left, _) = case.pages(shard, places[0], end, 100).await;
    assert_eq!(left.iter().map(|row| row.place).collect::<Vec<_>>(), places[3..]);
    let (untouched, _) = case.pages(other, places[0], end, 100).await;
    assert_eq!(untouched.len(), places.len());
    for (n, place) in places.iter().enumerate() {
        let payload = ok("payload", case.store.payload(shard, *place).await);
        assert_eq!(payload.is_some(), n >= 3, "payload {n}");
        assert!(ok("payload", case.store.payload(other, *place).await).is_some());
    }
}

async fn versions(case: &Case, key: &TaskKey) -> Vec<u64> {
    let history = ok("history", case.store.history(key.clone(), 100, None).await);
    let lookup = Lookup { key: key.clone(), first: Version::MIN, last: Version::MAX, listed: Vec::new() };
    let found = ok("lookup", case.store.lookup(vec![lookup]).await);
    let of = |rows: &[crate::model::EventRow]| rows.iter().map(|row| row.version.0).collect::<Vec<_>>();
    assert_eq!(of(&history), of(&found[0]));
    of(&history)
}

/// All events of a task up to a version.
fn up_to(key: &TaskKey, version: u64) -> Forgotten {
    Forgotten { key: key.clone(), up_to: Version(version), listed: None }
}

async fn events(case: Case) {
    let keys = ["a", "b", "c"].map(|name| case.key(name));
    let rows = keys.iter().flat_map(|key| (1..=5).map(|version| Row::Event(event(key, 10 * version, 1))));
    case.write(rows.collect()).await;
    let gone = vec![up_to(&keys[0], 30), up_to(&keys[1], 50), up_to(&case.key("none"), 9)];
    ok("forget", case.store.forget(gone.clone()).await);
    ok("forget", case.store.forget(gone).await);
    assert_eq!(versions(&case, &keys[0]).await, [50, 40]);
    assert_eq!(versions(&case, &keys[1]).await, [0u64; 0]);
    assert_eq!(versions(&case, &keys[2]).await, [50, 40, 30, 20, 10]);
}

async fn anew(case: Case) {
    let key = case.key("a");
    case.write(vec![Row::Event(event(&key, 10, 1))]).await;
    for version in 2..30 {
        // At once: neither hides the other.
        let forget = case.store.forget(vec![up_to(&key, 10 * (version - 1))]);
        let write = case.store.write(Arc::from(vec![Row::Event(event(&key, 10 * version, 1))]));
        let (forgotten, written) = futures::join!(forget, write);
        ok("forget", forgotten);
        ok("write", written);
        assert_eq!(versions(&case, &key).await, [10 * version]);
    }
}

async fn letters(case: Case) {
    const WEEK_MS: i64 = 7 * 86_400_000;
    let (shard, other) = (case.shard(0), case.shard(1));
    let letter = |shard: Shard, n: i64| DeadLetterRow {
        shard,
        at: super::BASE.plus_ms(n * WEEK_MS),
        place: super::nth(n),
        key: case.key("dead"),
        handler: crate::model::HandlerName::new("h").expect("a name"),
        collection: None,
        reason: crate::model::CloseReason::Fatal,
        attempts: 1,
        error: None,
        purged: None,
    };
    let rows = (0..6).flat_map(|n| [Row::DeadLetter(letter(shard, n)), Row::DeadLetter(letter(other, n))]);
    case.write(rows.collect()).await;
    let before = super::BASE.plus_ms(3 * WEEK_MS + 5);
    ok("drop_dead_letters", case.store.drop_dead_letters(shard, before).await);
    ok("drop_dead_letters", case.store.drop_dead_letters(shard, before).await);
    let end = Died { at: super::BASE.plus_ms(9 * WEEK_MS), version: Version(0) };
    let left = |shard| case.store.dead_letters(shard, super::BASE, end, 100);
    let found = ok("dead_letters", left(shard).await);
    let last = found.last().map(|letter| letter.at);
    assert!((2..=4).contains(&found.len()), "{} are left", found.len());
    assert!(last >= Some(before.plus_ms(-WEEK_MS)), "all but those of the last week before it are gone");
    assert!(found.iter().filter(|letter| letter.at >= before).count() == 2, "no younger one is gone");
    assert_eq!(ok("dead_letters", left(other).await).len(), 6);
}
