//! Ranges of `due` whose rows are alone and in packs, and what is taken away of them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::model::{Fact, FactRow};
use crate::store::embedded::retention::{Part, STEPS, due_keys};
use crate::store::embedded::{Table, slice};
use crate::store::{Cluster, Stretch};
use crate::testing::store_conformance::{key_of, started, task};

const SHARD: Shard = Shard(1);
/// Of both ends of two seconds, and a herd.
const TIMES: [i64; 7] = [-1, 0, 1, 500, 999, 1_000, 1_500];

fn at(time: usize, version: u64) -> Place {
    Place { ready_at: Wall(TIMES[time]), version: Version(version) }
}

fn row(time: usize, version: u64, kind: u64) -> FactRow {
    match kind {
        0 => task(SHARD, at(time, version), &key_of("q", "t")),
        seq => started(SHARD, at(time, version), 1, seq),
    }
}

/// Rows of one request.
fn call() -> impl Strategy<Value = Vec<FactRow>> {
    let herd = (0..TIMES.len(), 0..600u64, 0..3u64, 1..90u64)
        .prop_map(|(time, first, kind, all)| (first..first + all).map(|n| row(time, n, kind)).collect());
    let spread = proptest::collection::vec((0..TIMES.len(), 0..600u64, 0..3u64), 1..40);
    let spread = spread.prop_map(|rows| rows.into_iter().map(|(time, n, kind)| row(time, n, kind)).collect());
    prop_oneof![herd, spread]
}

/// Every page of a range, forth or back.
fn pages(store: &EmbeddedStore, range: (Place, Place), rows_max: usize, back: bool) -> Vec<Vec<FactRow>> {
    let (mut from, mut to) = range;
    let mut pages = Vec::new();
    loop {
        let read = if back { slice::slice_back } else { slice::slice };
        let page = read(store.db.tables(), SHARD, from, to, rows_max).expect("it is read");
        pages.push(page.rows);
        let Some(next) = page.next else { return pages };
        assert!(from < next && next < to, "a page brings on: {next:?} of {from:?} to {to:?}");
        if back { to = next } else { from = next }
    }
}

fn write(store: &EmbeddedStore, rows: Vec<FactRow>) {
    let written = store.write(rows.into_iter().map(Row::Fact).collect());
    futures::executor::block_on(written).expect("it is written");
}

type Model = BTreeMap<(Place, (u8, u64, u64)), FactRow>;

fn model_of(calls: &[Vec<FactRow>]) -> Model {
    let key = |row: &FactRow| (row.place, row::fact_columns(&row.fact));
    calls.iter().flatten().map(|row| (key(row), row.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_range_is_read_forth_and_back_in_pages_of_any_size(
        calls in proptest::collection::vec(call(), 1..12),
        ends in proptest::collection::vec(((0..TIMES.len(), 0..620u64), (0..TIMES.len(), 0..620u64)), 1..6),
        rows_max in 1..120usize,
    ) {
        let dir = directory();
        let store = open(&dir);
        let model = model_of(&calls);
        calls.into_iter().for_each(|rows| write(&store, rows));
        let all = (Place::start_of(Wall::MIN), Place::start_of(Wall::MAX));
        let ends = ends.into_iter().map(|(one, other)| (at(one.0, one.1), at(other.0, other.1)));
        for (from, to) in ends.chain([all]) {
            let is_in = |row: &&FactRow| from <= row.place && row.place < to;
            let wanted: Vec<&FactRow> = model.values().filter(is_in).collect();
            let forth = pages(&store, (from, to), rows_max, false);
            prop_assert_eq!(forth.iter().flatten().collect::<Vec<_>>(), wanted.clone());
            let back = pages(&store, (from, to), rows_max, true);
            let places = back.iter().flatten().map(|row| row.place);
            prop_assert!(places.is_sorted_by(|one, next| one >= next));
            let mut back: Vec<&FactRow> = back.iter().flatten().collect();
            back.reverse();
            back.chunk_by_mut(|one, next| one.place == next.place).for_each(<[_]>::reverse);
            prop_assert_eq!(back, wanted);
        }
        for at in model.keys().map(|(place, _)| *place).step_by(17) {
            let found = slice::facts(store.db.tables(), SHARD, at).expect("it is read");
            let wanted: Vec<FactRow> = model.values().filter(|row| row.place == at).cloned().collect();
            prop_assert_eq!(found, wanted);
        }
    }
}

fn everything(store: &EmbeddedStore) -> Vec<FactRow> {
    let all = (Place::start_of(Wall::MIN), Place::start_of(Wall::MAX));
    pages(store, all, 10_000, false).concat()
}

fn take_away(store: &EmbeddedStore, stretch: Stretch, step: (Part, Table)) {
    let keys = due_keys(store.db.tables(), stretch, step, None).expect("they are read");
    let table = store.db.tables().of(step.1);
    keys.into_iter().for_each(|key| table.remove(key).expect("it is removed"));
}

async fn with_cluster(store: &EmbeddedStore) {
    let (hash, signing_key) = ("h".to_owned(), [0; 32]);
    let cluster = Cluster { shards: 8, bucket_ms: 300_000, subs: 1, hash, signing_key };
    store.cluster(cluster).await.expect("it is made");
}

const STRETCH: Stretch = Stretch { shard: SHARD, from: Wall(0), to: Wall(300_000) };

/// A drop may be broken off after any of its steps.
#[tokio::test]
async fn of_a_stretch_tasks_go_before_their_ends_and_what_is_left_is_found_again() {
    for steps in 0..=STEPS.len() {
        let dir = directory();
        let store = open(&dir);
        with_cluster(&store).await;
        write(&store, (0..100).map(|n| row(1 + n % 4, n as u64, 0)).collect());
        write(&store, (0..100).map(|n| row(1 + n % 4, n as u64, 1)).collect());
        // Of what is alone too.
        write(&store, vec![row(1, 700, 0)]);
        write(&store, vec![row(1, 700, 1)]);
        assert!(store.db.tables().due.len().expect("it is read") < 20, "most are packed");
        STEPS.into_iter().take(steps).for_each(|step| take_away(&store, STRETCH, step));
        let left = everything(&store);
        for task in left.iter().filter(|row| matches!(row.fact, Fact::Task { .. })) {
            let has_start = left.iter().any(|row| row.place == task.place && row.fact != task.fact);
            assert!(has_start, "after {steps} steps {:?} looks as if it still waited", task.place);
        }
        let found = store.stretches(STRETCH.to).await.expect("they are read");
        assert_eq!(found.is_empty(), steps == STEPS.len(), "after {steps} steps");
        store.drop_stretch(STRETCH, Vec::new()).await.expect("it is dropped");
        assert_eq!(everything(&store), []);
        assert_eq!(store.stretches(STRETCH.to).await.expect("they are read"), []);
    }
}

/// Large packs lie in files of their own then.
#[tokio::test]
async fn packs_are_found_after_their_files_are_compacted_and_after_a_restart() {
    let dir = directory();
    let mut store = open(&dir);
    with_cluster(&store).await;
    let mut calls = Vec::new();
    for round in 0..3 {
        for kind in 0..2 {
            let rows: Vec<FactRow> =
                (0..200).map(|n| row(1 + n % 4, 1_000 * round + n as u64, kind)).collect();
            write(&store, rows.clone());
            calls.push(rows);
        }
        let packs = &store.db.tables().due_pack;
        packs.rotate_memtable_and_wait().expect("it is written");
        if round > 0 {
            packs.major_compact().expect("it is compacted");
        }
        assert!(packs.tree.blob_file_count() > 0, "values lie apart");
        let wanted: Vec<FactRow> = model_of(&calls).into_values().collect();
        assert_eq!(everything(&store), wanted, "round {round}");
        drop(store);
        store = open(&dir);
        assert_eq!(everything(&store), wanted, "round {round}, opened again");
    }
    store.drop_stretch(STRETCH, Vec::new()).await.expect("it is dropped");
    assert_eq!(everything(&store), []);
}
