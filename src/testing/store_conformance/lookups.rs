//! A lookup gives every row of its range and the newest one below, for many keys at once; history gives them all.

use futures::future::join_all;

use super::{Case, CheckFn, event, nth, ok, same, task};
use crate::model::{EventRow, FactRow, Row, TaskKey, Version};
use crate::store::Lookup;

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("no_lookups_give_no_answers", |case| Box::pin(no_lookups(case))),
    ("a_lookup_gives_its_range_and_the_newest_below", |case| Box::pin(range(case))),
    ("a_lookup_crosses_any_number_of_newer_rows", |case| Box::pin(many_newer(case))),
    ("many_lookups_are_answered_each_in_its_place", |case| Box::pin(many_keys(case))),
    ("many_callers_at_once_are_answered_each_its_own", |case| Box::pin(many_callers(case))),
    ("history_is_newest_first_and_bounded", |case| Box::pin(history(case))),
];

/// What the port promises of a lookup among `rows`.
pub(crate) fn wanted(rows: &[EventRow], lookup: &Lookup) -> Vec<EventRow> {
    let mut sorted: Vec<EventRow> =
        rows.iter().filter(|row| row.key == lookup.key && row.version <= lookup.last).cloned().collect();
    sorted.sort_by_key(|row| std::cmp::Reverse((row.version, row.epoch)));
    let in_range = sorted.iter().take_while(|row| row.version >= lookup.first).count();
    sorted.truncate(in_range + 1);
    sorted
}

async fn no_lookups(case: Case) {
    assert_eq!(ok("lookup", case.store.lookup(Vec::new()).await), Vec::<Vec<EventRow>>::new());
}

async fn check(case: &Case, rows: &[EventRow], lookups: Vec<Lookup>) {
    let found = ok("lookup", case.store.lookup(lookups.clone()).await);
    assert_eq!(found.len(), lookups.len(), "one answer for each lookup");
    for (found, lookup) in found.iter().zip(&lookups) {
        same(&format!("{lookup:?}"), found, &wanted(rows, lookup));
    }
}

fn of(key: &TaskKey, first: u64, last: u64) -> Lookup {
    Lookup { key: key.clone(), first: Version(first), last: Version(last), listed: Vec::new() }
}

async fn range(case: Case) {
    let key = case.key("range");
    // Version 30 was decided by three epochs, version 20 by two.
    let rows: Vec<EventRow> = [(10, 1), (20, 1), (20, 3), (30, 1), (30, 2), (30, 7), (40, 7), (1 << 50, 8)]
        .into_iter()
        .map(|(version, epoch)| event(&key, version, epoch))
        .collect();
    case.write(rows.iter().cloned().map(Row::Event).collect()).await;
    let top = Version::MAX.0;
    let ranges = [
        (30, 40),
        (25, 29),
        (30, 30),
        (20, 20),
        (10, 10),
        (0, 9),
        (0, top),
        (11, top),
        (5, 5),
        (41, 41),
        (top, top),
        (40, 30),
        (21, 35),
    ];
    for (first, last) in ranges {
        check(&case, &rows, vec![of(&key, first, last)]).await;
    }
    // Different ranges of one key in one request.
    check(&case, &rows, ranges.into_iter().map(|(first, last)| of(&key, first, last)).collect()).await;
}

async fn many_newer(case: Case) {
    let (busy, calm) = (case.key("busy"), case.key("calm"));
    let mut rows: Vec<EventRow> = (0..700).map(|n| event(&busy, 10 + n, 1 + n % 3)).collect();
    rows.push(event(&calm, 500, 2));
    case.write(rows.iter().cloned().map(Row::Event).collect()).await;
    let lookups = vec![
        of(&busy, 11, 700),
        of(&calm, 400, 700),
        of(&busy, 300, 305),
        of(&calm, 1, 499),
        of(&busy, 0, 9),
    ];
    check(&case, &rows, lookups).await;
}

async fn many_keys(case: Case) {
    let keys: Vec<TaskKey> = (0..600).map(|n| case.key(&format!("many-{n}"))).collect();
    let rows: Vec<EventRow> = keys
        .iter()
        .enumerate()
        .filter(|(n, _)| n % 3 != 0)
        .flat_map(|(n, key)| (0..(n as u64 % 7)).map(|v| event(key, 1_000 + 10 * v, 1)))
        .collect();
    case.write(rows.iter().cloned().map(Row::Event).collect()).await;
    let mut lookups: Vec<Lookup> = keys.iter().map(|key| of(key, 1_015, 1_045)).collect();
    lookups.push(of(&keys[1], 1_000, 1_000));
    lookups.push(of(&keys[1], 1_000, 1_000));
    check(&case, &rows, lookups).await;
}

/// Each with few rows and few keys, which a store may send together.
async fn many_callers(case: Case) {
    let (shared, busy) = (case.key("shared"), case.key("busy"));
    let mut rows = vec![event(&shared, 50, 1), event(&shared, 60, 1)];
    rows.extend((0..9).map(|n| event(&busy, 10 + n, 1)));
    case.write(rows.iter().cloned().map(Row::Event).collect()).await;
    let keys: Vec<TaskKey> = (0..80).map(|n| case.key(&format!("caller-{n}"))).collect();
    let of_caller = |n: usize| [event(&keys[n], n as u64, 1), event(&keys[n], 100 + n as u64, 2)];
    let fact = |n: usize| task(case.shard(n as u32 % 8), nth(n as i64), &keys[n]);
    let writes = (0..keys.len()).map(|n| {
        let facts = [Row::Fact(fact(n))];
        let events = of_caller(n).map(Row::Event);
        case.write(facts.into_iter().chain(events).collect())
    });
    join_all(writes).await;
    rows.extend((0..keys.len()).flat_map(of_caller));
    let lookups = (0..keys.len()).map(|n| {
        let own = of(&keys[n], n as u64, 99 + n as u64 % 3);
        match n % 4 {
            0 => vec![own],
            1 => vec![own, of(&shared, 0, 55)],
            2 => vec![of(&shared, 0, 70), own],
            _ => vec![own, of(&busy, 11, 12), of(&case.key("nobody"), 0, n as u64)],
        }
    });
    join_all(lookups.map(|lookups| check(&case, &rows, lookups))).await;
    for shard in 0..8 {
        let wanted: Vec<FactRow> = (0..keys.len()).filter(|n| n % 8 == shard).map(fact).collect();
        let (found, _) = case.pages(case.shard(shard as u32), nth(0), nth(1_000), 100).await;
        same(&format!("shard {shard}"), &found, &wanted);
    }
}

async fn history(case: Case) {
    let key = case.key("history");
    let mut rows: Vec<EventRow> = (0..300).flat_map(|n| [event(&key, n, 2), event(&key, n, 1)]).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.version, row.epoch)));
    case.write(rows.iter().cloned().map(Row::Event).collect()).await;
    for rows_max in [1, 3, 599, 600, 1_000] {
        let found = ok("history", case.store.history(key.clone(), rows_max, None).await);
        same(&format!("{rows_max} rows"), &found, &rows[..rows_max.min(600)]);
    }
    assert_eq!(ok("history", case.store.history(case.key("nobody"), 10, None).await), Vec::new());
}
