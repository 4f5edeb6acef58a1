//! Slices come in order, in whole places, over any number of pages, partitions and empty buckets.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::{BASE, Case, CheckFn, nth, ok, place, same, started, task};
use crate::model::{FactRow, Place, Row, Version, Wall};
use crate::store::Stretch;

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("a_slice_of_nothing_ends_at_once", |case| Box::pin(nothing(case))),
    ("a_slice_takes_its_first_place_and_leaves_its_last", |case| Box::pin(bounds(case))),
    ("rows_come_in_order_over_pages_and_buckets", |case| Box::pin(order(case))),
    ("a_place_is_never_cut", |case| Box::pin(whole_places(case))),
    ("one_place_with_more_rows_than_many_pages_is_whole", |case| Box::pin(one_large_place(case))),
    ("a_month_of_empty_buckets_is_crossed", |case| Box::pin(empty_month(case))),
    ("a_range_without_ends_is_read", |case| Box::pin(no_ends(case))),
    ("starts_and_ends_of_neighbours_come_back_at_their_tasks", |case| Box::pin(neighbours(case))),
    ("any_mixture_of_packed_and_single_rows_is_read", |case| Box::pin(mixtures(case))),
    ("what_is_packed_is_found_without_the_row_beside_it", |case| Box::pin(beside(case))),
    ("a_page_of_a_herd_has_about_as_many_rows_as_were_asked_for", |case| Box::pin(herd(case))),
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

/// Tasks spread over seconds and a bucket's end, and a herd at one millisecond; they start and end in calls of many.
async fn neighbours(case: Case) {
    let shard = case.shard(0);
    let key = case.key("neighbours");
    let bucket_ms = case.cluster.bucket_ms;
    let end = Wall((BASE.0.div_euclid(bucket_ms) + 1) * bucket_ms);
    let spread = (0..300i64).map(|n| place(end.plus_ms((n - 150) * 13), 9_000 - n as u64));
    let herd = (0..700).map(|n| place(end.plus_ms(700), 20_000 + n));
    let places: Vec<Place> = spread.chain(herd).collect();
    let tasks: Vec<FactRow> = places.iter().map(|at| task(shard, *at, &key)).collect();
    let starts = places.iter().zip(0..).map(|(at, seq)| started(shard, *at, 1, seq));
    // A second attempt of every third one.
    let again = places.iter().zip(2_000..).step_by(3).map(|(at, seq)| started(shard, *at, 2, seq));
    let starts: Vec<FactRow> = starts.chain(again).collect();
    write_facts(&case, &tasks).await;
    for some in starts.chunks(61) {
        write_facts(&case, some).await;
    }
    // Sent again, in other company.
    for some in starts.chunks(171) {
        write_facts(&case, some).await;
    }
    let mut rows: Vec<FactRow> = tasks.into_iter().chain(starts).collect();
    rows.sort_by_key(|row| (row.place, crate::wire::row::fact_columns(&row.fact)));
    let (from, to) = (rows[0].place, Place::start_of(end.plus_ms(9_000)));
    for page in [1, 40, 1_000, 10_000] {
        same(&format!("pages of {page}"), &case.pages(shard, from, to, page).await.0, &rows);
        same(&format!("pages of {page} back"), &case.pages_back(shard, from, to, page).await.0, &rows);
    }
    for part in [(17, 290), (0, 1), (149, 151), (301, 302), (310, 999), (999, 1_000)] {
        let mut ends = [part.0, part.1].map(|at| places.get(at).copied().unwrap_or(to));
        ends.sort();
        let wanted: Vec<FactRow> =
            rows.iter().filter(|row| row.place >= ends[0] && row.place < ends[1]).cloned().collect();
        same(&format!("{part:?}"), &case.pages(shard, ends[0], ends[1], 50).await.0, &wanted);
        same(&format!("{part:?} back"), &case.pages_back(shard, ends[0], ends[1], 50).await.0, &wanted);
    }
    for at in places.iter().step_by(37) {
        let wanted: Vec<FactRow> = rows.iter().filter(|row| row.place == *at).cloned().collect();
        same(&format!("{at:?}"), &ok("facts", case.store.facts(shard, *at).await), &wanted);
    }
    // All at once, some of them twice, and of a shard without rows.
    let again = places.iter().step_by(50).map(|at| (shard, *at));
    let other = places.iter().take(60).map(|at| (case.shard(1), *at));
    let asked: Vec<_> = places.iter().map(|at| (shard, *at)).chain(again).chain(other).collect();
    let found = join_all(asked.iter().map(|(of, at)| case.store.facts(*of, *at))).await;
    for ((of, at), found) in asked.into_iter().zip(found) {
        let wanted = rows.iter().filter(|row| row.place == at && of == shard).cloned();
        let wanted: Vec<FactRow> = wanted.collect();
        same(&format!("{of:?} {at:?} at once"), &ok("facts", found), &wanted);
    }
    let stretch = Stretch { shard, from: end, to: end.plus_ms(bucket_ms) };
    ok("drop_stretch", case.store.drop_stretch(stretch, Vec::new()).await);
    rows.retain(|row| row.place.ready_at < end);
    same("before what was dropped", &case.pages(shard, from, to, 1_000).await.0, &rows);
    let late = *places.last().expect("places");
    case.write(vec![Row::Fact(task(shard, late, &key))]).await;
    same("made anew", &ok("facts", case.store.facts(shard, late).await), &[task(shard, late, &key)]);
}

/// Numbers that look drawn, the same in every run.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Around the end of a bucket: in a herd, near others, or alone.
    fn place(&mut self, end: Wall) -> Place {
        let (ms, version) = match self.below(10) {
            0..4 => (self.below(2) as i64 * 400, self.below(700)),
            4..8 => (self.below(4_000) as i64 - 1_500, 1_000 + self.below(5_000)),
            _ => (self.below(60_000) as i64 - 30_000, self.below(9_000)),
        };
        place(end.plus_ms(ms), version)
    }
}

/// Tasks, starts and second attempts in calls of any size, read in ranges and pages of any size.
async fn mixtures(case: Case) {
    let key = case.key("mixtures");
    let bucket_ms = case.cluster.bucket_ms;
    let end = Wall((BASE.0.div_euclid(bucket_ms) + 1) * bucket_ms);
    for seed in 0..6 {
        let (shard, mut drawn) = (case.shard(seed), Drawn(u64::from(seed)));
        let places: BTreeSet<Place> = (0..400).map(|_| drawn.place(end)).collect();
        let mut rows: Vec<FactRow> = places.iter().map(|at| task(shard, *at, &key)).collect();
        for (at, seq) in places.iter().zip(0..) {
            let attempts = drawn.below(3) as u32;
            rows.extend((1..=attempts).map(|attempt| started(shard, *at, attempt.into(), seq)));
        }
        let mut rest = &rows[..];
        while !rest.is_empty() {
            let (call, behind) = rest.split_at(rest.len().min(1 + drawn.below(120) as usize));
            write_facts(&case, call).await;
            rest = behind;
        }
        rows.sort_by_key(|row| (row.place, crate::wire::row::fact_columns(&row.fact)));
        for round in 0..12 {
            let mut ends = [drawn.place(end), drawn.place(end)];
            if round == 0 {
                ends = [rows[0].place, Place::start_of(Wall::MAX)];
            }
            ends.sort();
            let page = [7, 50, 200, 1_000][round % 4];
            let is_in = |row: &&FactRow| ends[0] <= row.place && row.place < ends[1];
            let wanted: Vec<FactRow> = rows.iter().filter(is_in).cloned().collect();
            let found = case.pages(shard, ends[0], ends[1], page).await.0;
            same(&format!("seed {seed}, {ends:?}, pages of {page}"), &found, &wanted);
            let found = case.pages_back(shard, ends[0], ends[1], page).await.0;
            same(&format!("seed {seed}, {ends:?}, pages of {page} back"), &found, &wanted);
        }
    }
}

/// Tasks of one call in ranges that begin or end between them, with empty buckets before and behind.
async fn beside(case: Case) {
    let (shard, key) = (case.shard(0), case.key("beside"));
    let rows: Vec<FactRow> = (0..9).map(|n| task(shard, nth(n), &key)).collect();
    write_facts(&case, &rows).await;
    let far = 20 * case.cluster.bucket_ms;
    let (before, behind) = (place(BASE.plus_ms(-far), 0), place(BASE.plus_ms(far), 0));
    for cut in 0..=rows.len() {
        let at = nth(cut as i64);
        same("up to it", &case.pages(shard, before, at, 50).await.0, &rows[..cut]);
        same("from it on", &case.pages(shard, at, behind, 50).await.0, &rows[cut..]);
    }
}

/// What a store lays down together may come on top, of each of a bucket's partitions, and no more.
async fn herd(case: Case) {
    let (shard, key) = (case.shard(0), case.key("herd"));
    let rows: Vec<FactRow> = (0..20_000).map(|n| task(shard, place(BASE, n), &key)).collect();
    for some in rows.chunks(500) {
        write_facts(&case, some).await;
    }
    let (from, to) = (Place::start_of(BASE), Place::start_of(BASE.plus_ms(1)));
    same("in pages", &case.pages(shard, from, to, 200).await.0, &rows);
    let forth = ok("slice", case.store.slice(shard, from, to, 200).await).rows.len();
    same("in pages back", &case.pages_back(shard, from, to, 200).await.0, &rows);
    let back = ok("slice back", case.store.slice_back(shard, from, to, 200).await).rows.len();
    assert!(forth.max(back) <= 6_000, "pages of 200 have {forth} and {back} rows");
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
