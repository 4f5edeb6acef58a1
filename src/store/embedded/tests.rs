//! What the embedded store promises beyond the port: one process a directory, nothing answered is lost, and refusals
//! that say what to do.

mod events;
mod slices;

use std::sync::Arc;

use fjall::AbstractTree as _;
use futures::future::join_all;

use super::db::MEMTABLE_BYTES_MAX;
use super::{Database, EmbeddedStore, OpenError, Options, keys};
use crate::model::{Epoch, Generation, PayloadRow, Place, Progress, Row, Shard, Version, Wall};
use crate::store::{Bump, Error, Store};
use crate::testing::store_conformance;
use crate::wire::row;

fn open(dir: &tempfile::TempDir) -> EmbeddedStore {
    EmbeddedStore::new(&Database::open(&Options::at(dir.path())).expect("it opens"))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory can be made")
}

fn place(n: u64) -> Place {
    Place { ready_at: Wall(1_000), version: Version(n) }
}

fn payload(n: u64, bytes: usize) -> Row {
    Row::Payload(PayloadRow { shard: Shard(1), place: place(n), bytes: vec![7; bytes].into() })
}

fn bump(expected: u64, owner: u128) -> Bump {
    Bump {
        expected: Epoch(expected),
        owner,
        lease_ms: 6_000,
        wait_ms: 0,
        instance: "dl-1".to_owned(),
        advertise: String::new(),
    }
}

fn progress(epoch: u64, next_offset: u64) -> Progress {
    Progress {
        epoch: Epoch(epoch),
        generation: Generation(0),
        topic_id: "t".to_owned(),
        next_offset,
        leader_epoch: None,
        watermark: Wall(5),
        late: None,
        marks: Default::default(),
        told: None,
        ids_from: None,
        ids_are_all: false,
        ends: Vec::new(),
    }
}

#[test]
fn a_directory_in_use_is_refused_and_its_holder_named() {
    let dir = directory();
    let held = Database::open(&Options::at(dir.path())).expect("it opens");
    let refused = Database::open(&Options::at(dir.path())).err().expect("it is in use");
    assert!(matches!(refused, OpenError::InUse { .. }));
    let text = refused.to_string();
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    drop(held);
    Database::open(&Options::at(dir.path())).expect("it is free again");
}

#[test]
fn a_path_that_is_no_directory_is_refused_by_name() {
    let dir = directory();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("a file can be made");
    let refused = Database::open(&Options::at(&file)).err().expect("a file is no directory");
    assert!(refused.to_string().contains("file"), "{refused}");
}

#[test]
fn a_directory_with_something_else_in_its_place_is_refused() {
    let dir = directory();
    std::fs::create_dir(dir.path().join("db")).expect("a directory can be made");
    std::fs::write(dir.path().join("db").join("version"), "nonsense").expect("a file can be made");
    let refused = Database::open(&Options::at(dir.path())).err().expect("it cannot be read");
    assert!(matches!(refused, OpenError::Database { .. }), "{refused}");
}

#[tokio::test]
async fn a_restart_finds_every_shard_released_and_all_rows() {
    let dir = directory();
    let store = open(&dir);
    assert!(store.bump(Shard(3), Bump { wait_ms: 6_000, ..bump(0, 9) }).await.expect("it answers"));
    store.write_progress(Shard(3), progress(1, 7), 20).await.expect("it answers");
    store.write([payload(1, 40_000)].into()).await.expect("it answers");
    drop(store);
    let store = open(&dir);
    let owner = store.owner(Shard(3)).await.expect("it answers");
    assert_eq!((owner.epoch, owner.released_epoch, owner.owner), (Epoch(1), Epoch(1), 9));
    assert_eq!(owner.wait_ms, 0, "nobody is left who could act");
    assert_eq!(store.progress(Shard(3)).await.expect("it answers"), Some(progress(1, 7)));
    let bytes = store.payload(Shard(1), place(1)).await.expect("it answers");
    assert_eq!(bytes.map(|bytes| bytes.len()), Some(40_000));
    store.write_progress(Shard(3), progress(1, 6), 19).await.expect("it answers");
    assert_eq!(store.progress(Shard(3)).await.expect("it answers"), Some(progress(1, 7)));
    assert!(
        !store.bump(Shard(3), bump(0, 9)).await.expect("it answers"),
        "epochs go on from where they were"
    );
}

#[tokio::test]
async fn of_changes_to_one_row_in_one_batch_the_last_that_applies_stays() {
    let dir = directory();
    let store = open(&dir);
    let writes = (0..200).map(|n| store.write_progress(Shard(0), progress(1, n), n));
    assert!(
        join_all(writes).await.into_iter().all(|answer| answer.map_err(|error| panic!("{error}")).is_ok())
    );
    // Each wants the one before: a task that used up its share of a turn would be polled again in another order.
    let bumps = join_all((0..50).map(|n| store.bump(Shard(0), bump(n, u128::from(n)))));
    assert!(tokio::task::unconstrained(bumps).await.into_iter().all(|answer| answer.expect("it answers")));
    assert_last(&store).await;
    drop(store);
    assert_last(&open(&dir)).await;
}

#[tokio::test]
async fn a_directory_of_another_format_is_refused() {
    let dir = directory();
    let store = open(&dir);
    store.db.tables().meta.insert([super::tag::FORMAT], [255]).expect("it is written");
    drop(store);
    let refused = Database::open(&Options::at(dir.path())).err().expect("no build reads it");
    assert!(refused.to_string().contains("have format 255, this build reads format"), "{refused}");
}

/// Rows of earlier formats are read, and the builds of then refuse the directory from now on.
#[tokio::test]
async fn a_directory_of_an_earlier_format_is_taken_over() {
    for before in 2..=7 {
        let dir = directory();
        let store = open(&dir);
        store.write([payload(1, 10)].into()).await.expect("it is written");
        store.db.tables().meta.insert([super::tag::FORMAT], [before]).expect("it is written");
        let task = store_conformance::task(Shard(1), place(1), &store_conformance::key_of("q", "t"));
        let text = row::encode_fact(&task.fact);
        store.db.tables().due.insert(keys::fact(&task), text).expect("it is written");
        drop(store);
        for _ in 0..2 {
            let store = open(&dir);
            assert_eq!(store.facts(Shard(1), place(1)).await.expect("it answers"), vec![task.clone()]);
            assert!(store.payload(Shard(1), place(1)).await.expect("it answers").is_some());
            let format = store.db.tables().meta.get([super::tag::FORMAT]).expect("it answers");
            assert_eq!(format.as_deref(), Some([8].as_slice()));
        }
    }
}

async fn assert_last(store: &EmbeddedStore) {
    assert_eq!(store.progress(Shard(0)).await.expect("it answers"), Some(progress(1, 199)));
    assert_eq!(store.owner(Shard(0)).await.expect("it answers").epoch, Epoch(50));
}

#[tokio::test]
async fn a_row_too_large_is_refused_by_its_index_and_nothing_is_written() {
    let dir = directory();
    let store = open(&dir);
    let rows: Arc<[Row]> = [payload(1, 10), payload(2, super::ROW_BYTES_MAX + 1)].into();
    let refused = store.write(rows).await.expect_err("it is too large");
    assert!(matches!(refused, Error::RowRefused { index: 1, .. }), "{refused}");
    assert_eq!(store.payload(Shard(1), place(1)).await.expect("it answers"), None);
}

/// While one stays full, every batch adds a request to a bounded queue of fjall's worker, which writes to that queue itself: seen to
/// stand still for ever during a long compaction.
#[tokio::test]
async fn a_full_memtable_is_rotated_before_its_batch_is_answered() {
    const BATCHES: u64 = 10;
    const ROWS: u64 = 24_000;
    let dir = directory();
    let database = Database::open(&Options::at(dir.path())).expect("it opens");
    let store = EmbeddedStore::new(&database);
    for batch in 0..BATCHES {
        let rows: Vec<Row> = (0..ROWS).map(|n| payload(batch * ROWS + n, 300)).collect();
        store.write(rows.into()).await.expect("they are written");
        let size = database.tables().payload.tree.active_memtable().size();
        assert!(size <= MEMTABLE_BYTES_MAX, "batch {batch}: {size} bytes");
    }
}

#[tokio::test]
async fn without_free_disk_space_writes_are_unavailable_and_reads_go_on() {
    let dir = directory();
    let options = Options { disk_reserve_bytes: u64::MAX, ..Options::at(dir.path()) };
    let store = EmbeddedStore::new(&Database::open(&options).expect("it opens"));
    let refused = store.write([payload(1, 10)].into()).await.expect_err("there is no room");
    assert!(matches!(&refused, Error::Unavailable(text) if text.contains("disk nearly full")), "{refused}");
    let refused = store.bump(Shard(0), bump(0, 1)).await.expect_err("there is no room");
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    assert_eq!(store.owner(Shard(0)).await.expect("it answers").epoch, Epoch(0));
    assert_eq!(store.payload(Shard(1), place(1)).await.expect("it answers"), None);
}
