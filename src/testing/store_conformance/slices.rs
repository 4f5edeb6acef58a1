//! Slices come in order, in whole places, over any number of pages, partitions and empty buckets.

use futures::future::join_all;

use super::{BASE, Case, CheckFn, nth, ok, place, same, started, task};
use crate::model::{FactRow, Place, Row, Version, Wall};

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("a_slice_of_nothing_ends_at_once", |case| Box::pin(nothing(case))),
    ("a_slice_takes_its_first_place_and_leaves_its_last", |case| Box::pin(bounds(case))),
    ("rows_come_in_order_over_pages_and_buckets", |case| Box::pin(order(case))),
    ("a_place_is_never_cut", |case| Box::pin(whole_places(case))),
    ("one_place_with_more_rows_than_many_pages_is_whole", |case| Box::pin(one_large_place(case))),
    ("a_month_of_empty_buckets_is_crossed", |case| Box::pin(empty_month(case))),
    ("a_range_without_ends_is_read", |case| Box::pin(no_ends(case))),
    ("concurrent_writes_and_reads_of_shards_stay_apart", |case| Box::pin(apart(case))),
];

async fn write_facts(case: &Case, rows: &[FactRow]) {
    for chunk in rows.chunks(crate::model::limits::WRITE_ROWS_MAX) {
        case.write(chunk.iter().cloned().map(Row::Fact).collect()).await;
    }
}

async fn nothing(case: Case) {
    let shard = case.shard(0);
    for (from, to) in [(nth(0), nth(10)), (nth(5), nth(5)), (nth(9), nth(3))] {
        let slice = ok("slice", case.store.slice(shard, from, to, 10).await);
        assert!(slice.rows.is_empty() && slice.next.is_none(), "{from:?} .. {to:?}: {slice:?}");
    }
}

async fn bounds(case: Case) {
    let shard = case.shard(0);
    let key = case.key("bounds");
    let places: Vec<Place> =
        (0..5).flat_map(|at| (0..5).map(move |v| place(BASE.plus_ms(at), 10 * v))).collect();
    let rows: Vec<FactRow> = places.iter().map(|at| task(shard, *at, &key)).collect();
    write_facts(&case, &rows).await;
    for (from, to) in [
        (places[0], places[24]),
        (places[7], places[8]),
        (places[3], places[17]),
        (place(BASE.plus_ms(1), 11), place(BASE.plus_ms(3), 39)),
        (Place::start_of(BASE.plus_ms(2)), Place::start_of(BASE.plus_ms(3))),
        (place(BASE.plus_ms(1), Version::MAX.0), place(BASE.plus_ms(2), 1)),
        (places[7], places[7]),
        (places[8], places[7]),
    ] {
        let wanted: Vec<FactRow> =
            rows.iter().filter(|row| row.place >= from && row.place < to).cloned().collect();
        same(&format!("{from:?} .. {to:?}"), &case.pages(shard, from, to, 4).await.0, &wanted);
    }
}

async fn order(case: Case) {
    let shard = case.shard(0);
    let key = case.key("order");
    let step = case.cluster.bucket_ms / 300;
    // Versions fall while times rise, and every version lies in another partition of its bucket than the one before.
    let at = |n: i64| place(BASE.plus_ms(n / 3 * step), 10_000 - 7 * (n / 3) as u64 + (n % 3) as u64);
    let rows: Vec<FactRow> = (0..2_500).map(|n| task(shard, at(n), &key)).collect();
    let mut shuffled = rows.clone();
    shuffled.sort_by_key(|row| row.place.version.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    write_facts(&case, &shuffled).await;
    let (from, to) = (rows[0].place, place(BASE.plus_ms(1_000 * step), 0));
    for page in [7, 100, 2_499, 2_500, 10_000] {
        let (found, pages) = case.pages(shard, from, to, page).await;
        same(&format!("pages of {page}"), &found, &rows);
        // "About" so many rows: neither all at once nor hardly any.
        assert!(
            pages >= 2_500 / (page * 4 + 10) && pages <= 8 * (2_500 / page + 2),
            "{pages} pages of {page} rows"
        );
    }
}

async fn whole_places(case: Case) {
    let shard = case.shard(0);
    let key = case.key("whole");
    let mut rows = Vec::new();
    for n in 0..60 {
        rows.push(task(shard, nth(n), &key));
        rows.extend((0..(n as u64 * 7) % 23).map(|seq| started(shard, nth(n), 1, seq)));
    }
    write_facts(&case, &rows).await;
    for page in [1, 2, 10, 24, 200] {
        same(&format!("pages of {page}"), &case.pages(shard, nth(0), nth(60), page).await.0, &rows);
    }
}

async fn one_large_place(case: Case) {
    let shard = case.shard(0);
    let key = case.key("large");
    let mut rows = vec![task(shard, nth(0), &key), task(shard, nth(1), &key)];
    rows.extend((0..2_600).map(|seq| started(shard, nth(1), 1 + seq / 2_000, seq)));
    rows.push(task(shard, nth(2), &key));
    write_facts(&case, &rows).await;
    for page in [1, 500] {
        same(&format!("pages of {page}"), &case.pages(shard, nth(0), nth(3), page).await.0, &rows);
    }
    same("facts", &ok("facts", case.store.facts(shard, nth(1)).await), &rows[1..2_602]);
}

async fn empty_month(case: Case) {
    let shard = case.shard(0);
    let key = case.key("month");
    let day_ms = 86_400_000;
    let rows: Vec<FactRow> =
        [0, 11, 29].into_iter().map(|day| task(shard, place(BASE.plus_ms(day * day_ms), 9), &key)).collect();
    write_facts(&case, &rows).await;
    let to = place(BASE.plus_ms(30 * day_ms), 0);
    let (found, pages) = case.pages(shard, Place::start_of(BASE), to, 2_000).await;
    same("a month", &found, &rows);
    assert!(pages <= 4, "a month of nothing takes {pages} pages");
}

async fn no_ends(case: Case) {
    let shard = case.shard(0);
    let key = case.key("ends");
    let rows: Vec<FactRow> = [0, 1_000, 400_000_000_000]
        .into_iter()
        .map(|ms| task(shard, place(BASE.plus_ms(ms), 9), &key))
        .collect();
    write_facts(&case, &rows).await;
    let (found, pages) = case.pages(shard, Place::start_of(Wall::MIN), Place::start_of(Wall::MAX), 1).await;
    same("everything", &found, &rows);
    assert!(pages <= 8, "three rows take {pages} pages");
}

async fn apart(case: Case) {
    let written = (0..8).map(|n| {
        let (case, shard) = (case.clone(), case.shard(n));
        async move {
            let key = case.key(&format!("apart-{}", shard.0));
            let rows: Vec<FactRow> = (0..300).map(|n| task(shard, nth(n), &key)).collect();
            write_facts(&case, &rows).await;
            same("read after write", &case.pages(shard, nth(0), nth(300), 64).await.0, &rows);
        }
    });
    join_all(written).await;
}
