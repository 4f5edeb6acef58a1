//! Events of tasks against a set of all that was put and not forgotten; the rows of an earlier build among them.

use std::collections::BTreeSet;

use futures::future::join_all;
use proptest::prelude::*;

use super::{Database, Options, directory, open};
use crate::model::{EventRow, Row, TaskKey, Version};
use crate::store::embedded::meta::Staged;
use crate::store::embedded::{Batch, EmbeddedStore, Encoded, encode, events, keys, tag};
use crate::store::{Forgotten, Lookup, Packs, Store};
use crate::testing::store_conformance::{self, lookups::wanted};
use crate::wire::row;

const TASKS: usize = 5;

fn key(task: usize) -> TaskKey {
    store_conformance::key_of("q", &format!("t{task}"))
}

fn event(task: usize, version: u64, epoch: u64) -> EventRow {
    store_conformance::event(&key(task), version, epoch)
}

/// What happens at once.
#[derive(Clone, Debug)]
struct Round {
    /// What is put of tasks without events says so, as far as it is alone.
    says_first: bool,
    /// Looked up while it is put.
    meanwhile: Vec<usize>,
    /// Task, version, epoch.
    put: Vec<(usize, u64, u64)>,
    /// Task and version; of that task only newer ones are put.
    forget: Option<(usize, u64)>,
    reopen: bool,
}

fn round() -> impl Strategy<Value = Round> {
    let tasks = prop::collection::vec(0..TASKS, 0..6);
    let put = prop::collection::vec((0..TASKS, 1..7u64, 1..3u64), 0..7);
    let forget = prop::option::weighted(0.4, (0..TASKS, 1..7u64));
    (any::<bool>(), tasks, put, forget, prop::bool::weighted(0.1)).prop_map(
        |(says_first, meanwhile, mut put, forget, reopen)| {
            put.retain(|(task, version, _)| forget.is_none_or(|(of, to)| *task != of || *version > to));
            Round { says_first, meanwhile, put, forget, reopen }
        },
    )
}

fn lookup(task: usize, first: u64, last: u64) -> Lookup {
    Lookup { key: key(task), first: Version(first), last: Version(last), listed: Vec::new() }
}

async fn look_up(store: &EmbeddedStore, tasks: &[usize], first: u64, last: u64) -> Vec<Vec<EventRow>> {
    let lookups = tasks.iter().map(|task| lookup(*task, first, last));
    store.lookup(lookups.collect()).await.expect("it answers")
}

async fn play(store: &EmbeddedStore, model: &BTreeSet<(usize, u64, u64)>, round: &Round) {
    let is_first = |task: usize| {
        let is_alone = round.put.iter().filter(|put| put.0 == task).count() == 1;
        let is_forgotten = round.forget.is_some_and(|(of, _)| of == task);
        round.says_first && is_alone && !is_forgotten && model.iter().all(|put| put.0 != task)
    };
    let puts = round.put.iter().map(|(task, version, epoch)| {
        let row = EventRow { is_first: is_first(*task), ..event(*task, *version, *epoch) };
        store.write([Row::Event(row)].into())
    });
    let forgets =
        round.forget.iter().map(|(task, version)| store.forget(forgets(*task..*task + 1, *version)));
    let looked_up = round.meanwhile.iter().map(|task| look_up(store, std::slice::from_ref(task), 0, 9));
    let (put, forgotten, _) = futures::join!(join_all(puts), join_all(forgets), join_all(looked_up));
    assert!(put.into_iter().chain(forgotten).all(|answer| answer.is_ok()));
}

async fn check(store: &EmbeddedStore, model: &BTreeSet<(usize, u64, u64)>) {
    let rows: Vec<EventRow> = model.iter().map(|(task, v, e)| event(*task, *v, *e)).collect();
    for task in 0..TASKS {
        let all = wanted(&rows, &lookup(task, 0, 9));
        for rows_max in [0, 1, 2, 100] {
            let found = store.history(key(task), rows_max, None).await.expect("it answers");
            assert_eq!(found, all[..rows_max.min(all.len())], "history of {task}");
        }
        for (first, last) in [(0, 9), (3, 4), (2, 6), (5, 3)] {
            let found = look_up(store, &[task], first, last).await;
            assert_eq!(found, [wanted(&rows, &lookup(task, first, last))], "{task}, {first} to {last}");
        }
    }
}

/// What lies of events: by id, in packs, and of packed ones their places.
fn rows(store: &EmbeddedStore) -> [usize; 3] {
    let tables = store.db.tables();
    [&tables.task_event, &tables.event_pack, &tables.event_at].map(|table| table.iter().count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn events_are_what_was_put_and_not_forgotten(rounds in prop::collection::vec(round(), 1..16)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let dir = directory();
            let mut store = open(&dir);
            let mut model = BTreeSet::new();
            for round in rounds {
                play(&store, &model, &round).await;
                model.retain(|(task, version, _)| round.forget.is_none_or(|(of, to)| *task != of || *version > to));
                model.extend(round.put);
                if round.reopen {
                    drop(store);
                    store = open(&dir);
                }
                check(&store, &model).await;
            }
            store.forget(forgets(0..TASKS, 9)).await.expect("they are forgotten");
            check(&store, &BTreeSet::new()).await;
            drop(store);
            assert_eq!(rows(&open(&dir)), [0, 0, 0]);
        });
    }
}

fn put(batch: &mut Batch<'_>, version: u64) {
    let Encoded { key, data, .. } = encode(&Row::Event(event(0, version, 1)));
    batch.prepare([&key].into_iter()).expect("it is read");
    batch.event(key, data);
}

/// The parts of changes and look-ups that overlap, one by one.
struct Overlap {
    _dir: tempfile::TempDir,
    store: EmbeddedStore,
}

impl Overlap {
    fn new() -> Overlap {
        let dir = directory();
        Overlap { store: open(&dir), _dir: dir }
    }

    /// A batch that is not committed yet.
    fn batch<'a>(&'a self, staged: &'a mut Staged, versions: &[u64]) -> Batch<'a> {
        let mut batch = Batch::new(self.store.db.tables(), staged);
        versions.iter().for_each(|version| put(&mut batch, *version));
        batch
    }

    fn put(&self, versions: &[u64]) {
        self.batch(&mut Staged::default(), versions).commit().expect("it is written");
    }

    async fn versions(&self) -> Vec<u64> {
        let found = look_up(&self.store, &[0], 0, 9).await.remove(0);
        found.iter().map(|row| row.version.0).collect()
    }
}

#[tokio::test]
async fn what_is_put_and_forgotten_in_one_batch_leaves_the_newer_events() {
    for forgets_first in [false, true] {
        let (overlap, mut staged) = (Overlap::new(), Staged::default());
        overlap.put(&[1]);
        let mut batch = overlap.batch(&mut staged, if forgets_first { &[] } else { &[5] });
        batch
            .forget(
                &key(0),
                Version(1),
                events::old(overlap.store.db.tables(), &key(0), Version(1)).expect("it is read"),
            )
            .expect("it is staged");
        if forgets_first {
            put(&mut batch, 5);
        }
        batch.commit().expect("it is written");
        assert_eq!(overlap.versions().await, [5], "forgets first: {forgets_first}");
    }
}

#[tokio::test]
async fn of_a_task_that_is_said_to_be_new_nothing_is_read() {
    let overlap = Overlap::new();
    let unreadable = |task| overlap.store.db.tables().task_event.insert(keys::task(&key(task)), [7, 7, 7]);
    unreadable(0).expect("it is written");
    let first = EventRow { is_first: true, ..event(0, 1, 1) };
    overlap.store.write([Row::Event(first.clone())].into()).await.expect("it is not read");
    assert_eq!(overlap.versions().await, [1]);
    // Once more, as after a lost answer, and the next one in the same batch.
    let (mut staged, tables) = (Staged::default(), overlap.store.db.tables());
    let mut batch = Batch::new(tables, &mut staged);
    let Encoded { key, data, .. } = encode(&Row::Event(first));
    batch.first(key, data);
    put(&mut batch, 2);
    batch.commit().expect("it is written");
    assert_eq!(overlap.versions().await, [2, 1]);
}

#[tokio::test]
async fn of_a_change_with_a_task_that_cannot_be_read_nothing_is_written() {
    let overlap = Overlap::new();
    overlap.store.db.tables().task_event.insert(keys::task(&key(1)), [7, 7, 7]).expect("it is written");
    let rows = [Row::Event(event(0, 1, 1)), Row::Event(event(1, 1, 1))];
    let refused = overlap.store.write(rows.into()).await.expect_err("it cannot be read");
    assert!(refused.to_string().contains("task_event"), "{refused}");
    assert_eq!(overlap.versions().await, [0u64; 0]);
    overlap.store.write([Row::Event(event(0, 2, 1))].into()).await.expect("it is written");
    assert_eq!(overlap.versions().await, [2]);
}

/// The format of before: each first event has a row of its own, and one without data says that there are some.
#[tokio::test]
async fn events_of_an_earlier_build_are_read_and_forgotten() {
    let dir = directory();
    let store = open(&dir);
    let tables = store.db.tables();
    for version in [2, 4] {
        let row = event(0, version, 1);
        let own = [&keys::task(&row.key)[..], &keys::event_columns_of(&row)].concat();
        tables.task_event.insert(own, row::encode_event(&row)).expect("it is written");
    }
    tables.task_event.insert(keys::task(&key(0)), []).expect("it is written");
    tables.meta.insert([tag::FORMAT], [3]).expect("it is written");
    drop(store);
    let store = open(&dir);
    let mut model = BTreeSet::from([(0, 2, 1), (0, 4, 1)]);
    check(&store, &model).await;
    store.write([Row::Event(event(0, 5, 1))].into()).await.expect("it is written");
    store.forget(forgets(0..1, 2)).await.expect("they are forgotten");
    model = BTreeSet::from([(0, 4, 1), (0, 5, 1)]);
    check(&store, &model).await;
    store.forget(forgets(0..1, 9)).await.expect("they are forgotten");
    check(&store, &BTreeSet::new()).await;
    store.write([Row::Event(event(0, 6, 1))].into()).await.expect("it is written");
    check(&store, &BTreeSet::from([(0, 6, 1)])).await;
}

fn firsts(tasks: std::ops::Range<usize>) -> std::sync::Arc<[Row]> {
    tasks.map(|task| Row::Event(EventRow { is_first: true, ..event(task, 1, 1) })).collect()
}

/// A store with packed events that was opened anew.
async fn with_firsts() -> (tempfile::TempDir, EmbeddedStore) {
    let dir = directory();
    let store = open(&dir);
    store.write(firsts(0..TASKS)).await.expect("they are written");
    drop(store);
    let store = open(&dir);
    (dir, store)
}

#[tokio::test]
async fn first_events_of_one_batch_are_packed_and_one_alone_is_a_row_by_id() {
    let dir = directory();
    let store = open(&dir);
    store.write(firsts(0..1)).await.expect("it is written");
    assert_eq!((rows(&store), store.packed()), ([1, 0, 0], Packs::default()));
    store.write(firsts(1..101)).await.expect("they are written");
    assert_eq!(
        (rows(&store)[..2].to_vec(), store.packed()),
        (vec![1, 2], Packs { event_packs: 2, events: 100, ..Packs::default() })
    );
    drop(store);
    // What the index had in memory is read again.
    let store = open(&dir);
    check(&store, &(0..TASKS).map(|task| (task, 1, 1)).collect()).await;
    let unpacked = EmbeddedStore::without_packs(&store.db);
    unpacked.write(firsts(200..203)).await.expect("they are written");
    assert_eq!(rows(&store)[..2], [4, 2]);
}

#[tokio::test]
async fn of_a_pack_what_is_forgotten_is_gone_and_the_rest_stays() {
    let dir = directory();
    let mut store = open(&dir);
    store.write(firsts(0..TASKS)).await.expect("they are written");
    let mut model: BTreeSet<_> = (0..TASKS).map(|task| (task, 1, 1)).collect();
    // By two in one call, one that is newer than what is forgotten, one twice, and so on until none is left.
    for (forgotten, version, left) in
        [(0..2, 1, 2), (2..3, 0, 2), (1..2, 1, 2), (2..TASKS - 1, 5, 2), (0..TASKS, 1, 0)]
    {
        store.forget(forgets(forgotten.clone(), version)).await.expect("forgotten");
        model.retain(|(task, v, _)| !forgotten.contains(task) || *v > version);
        assert_eq!(rows(&store)[1], left, "after {forgotten:?}");
        check(&store, &model).await;
        drop(store);
        store = open(&dir);
        check(&store, &model).await;
    }
    assert_eq!(rows(&store), [0, 0, 0]);
}

#[tokio::test]
async fn an_event_comes_anew_after_its_first_one_was_forgotten() {
    let dir = directory();
    let mut store = open(&dir);
    for version in 1..6 {
        let first = |task| Row::Event(EventRow { is_first: true, ..event(task, version, 1) });
        store.write((0..TASKS).map(first).collect()).await.expect("they are written");
        check(&store, &(0..TASKS).map(|task| (task, version, 1)).collect()).await;
        if version == 3 {
            drop(store);
            store = open(&dir);
        }
        store.forget(forgets(0..TASKS, version)).await.expect("they are forgotten");
        check(&store, &BTreeSet::new()).await;
    }
}

/// A crash after events were written into the table and before that was on record.
#[tokio::test]
async fn what_the_index_has_already_is_read_again() {
    let (dir, store) = with_firsts().await;
    assert_eq!(rows(&store), [0, 1, TASKS]);
    store.db.tables().meta.remove([tag::EVENTS_INDEXED]).expect("it is written");
    drop(store);
    let store = open(&dir);
    check(&store, &(0..TASKS).map(|task| (task, 1, 1)).collect()).await;
    // What is forgotten is left out when it is read once more, and is not written into the table again.
    store.forget(forgets(0..2, 1)).await.expect("they are forgotten");
    drop(store);
    let store = open(&dir);
    store.db.tables().meta.remove([tag::EVENTS_INDEXED]).expect("it is written");
    drop(store);
    let store = open(&dir);
    store.write([Row::Event(event(0, 2, 1))].into()).await.expect("it is written");
    store.forget(forgets(0..1, 2)).await.expect("it is forgotten");
    drop(store);
    let store = open(&dir);
    assert_eq!(rows(&store), [0, 2, TASKS - 2]);
    store.forget(forgets(0..TASKS, 1)).await.expect("they are forgotten");
    check(&store, &BTreeSet::new()).await;
    drop(store);
    assert_eq!(rows(&open(&dir)), [0, 0, 0]);
}

#[tokio::test]
async fn a_pack_that_cannot_be_read_is_named() {
    let (dir, store) = with_firsts().await;
    store.db.tables().event_pack.insert(keys::event_pack(0, keys::EVENTS), [7, 7]).expect("it is written");
    let unreadable = store.lookup(vec![lookup(0, 0, 9)]).await.expect_err("it cannot be read");
    assert!(unreadable.to_string().contains("pack 0 in the packed events"), "{unreadable}");
    // By a start too, which reads what the index does not have.
    store.db.tables().meta.remove([tag::EVENTS_INDEXED]).expect("it is written");
    drop(store);
    let refused = Database::open(&Options::at(dir.path())).err().expect("it is refused").to_string();
    assert!(
        refused.contains("pack 0 in the packed events") && refused.contains("data directory"),
        "{refused}"
    );
}

fn forgets(tasks: std::ops::Range<usize>, version: u64) -> Vec<Forgotten> {
    tasks.map(|task| Forgotten { key: key(task), up_to: Version(version), listed: None }).collect()
}

#[tokio::test]
async fn numbers_of_packs_that_are_gone_come_again_after_a_start() {
    let dir = directory();
    for version in 1..4 {
        let store = open(&dir);
        let first = |task| Row::Event(EventRow { is_first: true, ..event(task, version, 1) });
        // In another order each time, so that an entry that stayed would name another task.
        store
            .write((0..TASKS).map(|n| first((n + version as usize) % TASKS)).collect())
            .await
            .expect("written");
        check(&store, &(0..TASKS).map(|task| (task, version, 1)).collect()).await;
        store.forget(forgets(0..TASKS, version)).await.expect("they are forgotten");
        drop(store);
        let store = open(&dir);
        check(&store, &BTreeSet::new()).await;
        assert_eq!(rows(&store), [0, 0, 0]);
    }
}

#[tokio::test]
async fn the_next_event_of_a_packed_one_may_be_in_its_batch_and_the_first_forgotten_beside_a_third() {
    let overlap = Overlap::new();
    let (mut staged, tables) = (Staged::default(), overlap.store.db.tables());
    let mut batch = Batch::new(tables, &mut staged);
    for task in [1, 0] {
        let Encoded { key, data, .. } = encode(&Row::Event(event(task, 1, 1)));
        batch.first(key, data);
    }
    put(&mut batch, 2);
    batch.commit().expect("it is written");
    assert_eq!(overlap.versions().await, [2, 1]);
    let mut batch = Batch::new(tables, &mut staged);
    put(&mut batch, 3);
    let old = events::old(tables, &key(0), Version(1)).expect("it is read");
    batch.forget(&key(0), Version(1), old).expect("it is staged");
    batch.commit().expect("it is written");
    assert_eq!(overlap.versions().await, [3, 2]);
    assert_eq!(look_up(&overlap.store, &[1], 0, 9).await[0].len(), 1);
}
