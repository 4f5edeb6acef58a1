//! What the embedded log promises beyond the port: restarts, retention, topics of any name, times that never fall.

mod frames;
mod recovery;
mod topics;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;

use super::{EmbeddedLog, Options};
use crate::log::{Assignment, Consumer, Error, Message, Producer, Record, Target, Topic};
use crate::model::{Shard, Wall};
use crate::store::embedded::{Database, Options as DatabaseOptions};

const SHARDS: u32 = 4;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory can be made")
}

fn database(dir: &tempfile::TempDir) -> Database {
    Database::open(&DatabaseOptions::at(dir.path())).expect("it opens")
}

async fn log(db: &Database) -> EmbeddedLog {
    EmbeddedLog::open(db, Options::new("dueline", SHARDS)).await.expect("it opens")
}

fn message(target: Target, partition: u32, value: &str) -> Message {
    Message {
        target,
        partition: Some(partition),
        key: None,
        headers: Vec::new(),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
    }
}

fn schedule(shard: u32, value: &str) -> Message {
    message(Target::Topic(Topic::Schedule), shard, value)
}

async fn write(producer: &dyn Producer, shard: u32, numbers: std::ops::Range<u64>) {
    let written = numbers.map(|number| producer.produce(schedule(shard, &number.to_string())));
    for written in join_all(written).await {
        written.expect("it is written");
    }
}

fn values(records: &[Record]) -> Vec<&[u8]> {
    records.iter().map(|record| record.value.as_deref().unwrap_or_default()).collect()
}

async fn assigned(log: &EmbeddedLog) -> Arc<dyn Consumer> {
    let consumer = log.consumer().expect("it is the first");
    let all = (0..SHARDS).map(Shard).collect();
    assert_eq!(consumer.assignment().await, Some(Assignment::Assigned(all)));
    consumer
}

#[tokio::test]
async fn a_restart_goes_on_at_the_next_offset_of_the_same_topic() {
    let dir = directory();
    let db = database(&dir);
    let before = log(&db).await;
    write(before.producer().as_ref(), 1, 0..5).await;
    let end = assigned(&before).await.end(Shard(1)).await.expect("it answers");
    drop((before, db));
    let db = database(&dir);
    let after = log(&db).await;
    let consumer = assigned(&after).await;
    assert_eq!(consumer.end(Shard(1)).await.expect("it answers"), end);
    write(after.producer().as_ref(), 1, 5..6).await;
    consumer.seek(Shard(1), 3).await.expect("it is assigned");
    let records = consumer.fetch(Shard(1), 10, 1_000).await.expect("they are there");
    assert_eq!(values(&records), [b"3", b"4", b"5"]);
}

#[tokio::test]
async fn commits_drop_what_is_applied_but_for_the_newest_records() {
    let dir = directory();
    let db = database(&dir);
    let before = log(&db).await;
    let (producer, consumer) = (before.producer(), assigned(&before).await);
    write(producer.as_ref(), 0, 0..3_500).await;
    for next_offset in [900, 1_999, 3_500, 3_500, 3_500] {
        consumer.commit(Shard(0), next_offset);
        producer.flush(60_000).await;
    }
    let end = consumer.end(Shard(0)).await.expect("it answers");
    assert_eq!((end.first, end.next), (1_999, 3_500), "fewer than a thousand more could go");
    let gone = consumer.fetch(Shard(0), 1, 1).await.expect_err("offset 0 is dropped");
    assert!(matches!(gone, Error::OffsetGone { wanted: 0, first: 1_999, next: 3_500, .. }), "{gone}");
    drop((before, producer, consumer, db));
    let after = log(&database(&dir)).await;
    let consumer = assigned(&after).await;
    assert_eq!(consumer.end(Shard(0)).await.expect("it answers"), end);
    let first = consumer.fetch(Shard(0), 1, 1).await.expect("it is held");
    assert_eq!(values(&first), [b"1999"]);
}

#[tokio::test]
async fn a_log_that_forgot_everything_goes_on_at_its_next_offset() {
    let dir = directory();
    let db = database(&dir);
    let before = log(&db).await;
    write(before.producer().as_ref(), 0, 0..2_500).await;
    assert!(before.forget_below(Shard(0), 9_999).await.expect("it answers"));
    drop((before, db));
    let after = log(&database(&dir)).await;
    let end = assigned(&after).await.end(Shard(0)).await.expect("it answers");
    assert_eq!((end.first, end.next), (2_500, 2_500));
}

#[tokio::test]
async fn append_times_never_fall_though_the_clock_does_nor_over_a_restart() {
    let dir = directory();
    let clock = Arc::new(AtomicI64::new(1_000));
    let wall = Arc::clone(&clock);
    let options =
        Options { clock: Arc::new(move || Wall(wall.load(Ordering::Relaxed))), ..Options::new("p", 1) };
    let db = database(&dir);
    let before = EmbeddedLog::open(&db, options.clone()).await.expect("it opens");
    write(before.producer().as_ref(), 0, 0..1).await;
    clock.store(400, Ordering::Relaxed);
    write(before.producer().as_ref(), 0, 1..2).await;
    drop((before, db));
    let db = database(&dir);
    let after = EmbeddedLog::open(&db, options).await.expect("it opens");
    write(after.producer().as_ref(), 0, 2..3).await;
    clock.store(1_001, Ordering::Relaxed);
    write(after.producer().as_ref(), 0, 3..4).await;
    let records = after.tail(&Target::Topic(Topic::Schedule), 0, 0, 10).await.expect("they are there");
    let times: Vec<i64> = records.iter().map(|record| record.appended.0).collect();
    assert_eq!(times, [1_000, 1_000, 1_000, 1_001]);
}

#[tokio::test]
async fn a_topic_of_any_name_is_made_when_it_is_written_to_and_stays() {
    let dir = directory();
    let db = database(&dir);
    let before = log(&db).await;
    let target = Target::Named("orders.v1".to_owned());
    assert!(matches!(before.tail(&target, 0, 0, 10).await, Err(Error::Refused(_))));
    let written = before.producer().produce(message(target.clone(), 0, "a")).await.expect("it is written");
    assert_eq!((written.partition, written.offset), (0, Some(0)));
    drop((before, db));
    let after = log(&database(&dir)).await;
    after.producer().produce(message(target.clone(), 0, "b")).await.expect("it is written");
    let records = after.tail(&target, 0, 1, 10).await.expect("it is there");
    assert_eq!(values(&records), [b"b"]);
    let ours = Target::Named("dueline.events".to_owned());
    after.producer().produce(message(ours, 3, "e")).await.expect("our own topic has four partitions");
    let records = after.tail(&Target::Topic(Topic::Events), 3, 0, 10).await.expect("it is there");
    assert_eq!(values(&records), [b"e"]);
}

#[tokio::test]
async fn what_can_never_be_written_is_refused_with_the_reason() {
    let dir = directory();
    let log = log(&database(&dir)).await;
    let producer = log.producer();
    let large = "x".repeat(super::RECORD_BYTES_MAX);
    let headers = vec![("h".into(), None); super::frame::HEADERS_MAX + 1];
    for (message, reason) in [
        (schedule(SHARDS, "x"), "partitions"),
        (schedule(0, &large), "bytes"),
        (Message { headers, ..schedule(0, "x") }, "headers"),
        (message(Target::Named("a b".to_owned()), 0, "x"), "name"),
        (message(Target::Named("..".to_owned()), 0, "x"), "name"),
        (message(Target::Named("a".repeat(250)), 0, "x"), "name"),
    ] {
        let refused = producer.produce(message).await.expect_err("it can never be written");
        let (Error::Refused(text) | Error::TooLarge(text)) = &refused else { panic!("{refused}") };
        assert!(text.contains(reason), "{refused}");
    }
    let rejected = message(Target::Topic(Topic::Rejected), 0, &large);
    producer.produce(rejected).await.expect("the rejected topic takes what the schedule topic just refuses");
}

#[tokio::test]
async fn a_log_is_opened_once_with_its_number_of_shards_and_read_by_one() {
    let dir = directory();
    let db = database(&dir);
    let first = log(&db).await;
    first.consumer().expect("it is the first");
    assert!(matches!(first.consumer(), Err(Error::Refused(_))));
    assert!(matches!(EmbeddedLog::open(&db, Options::new("dueline", SHARDS)).await, Err(Error::Refused(_))));
    drop((first, db));
    let refused = EmbeddedLog::open(&database(&dir), Options::new("dueline", 5)).await.err();
    assert!(matches!(&refused, Some(Error::Refused(text)) if text.contains("4 partitions")), "{refused:?}");
}

#[tokio::test]
async fn who_leaves_is_taken_everything_and_given_it_again_when_it_joins() {
    let dir = directory();
    let log = log(&database(&dir)).await;
    let consumer = assigned(&log).await;
    let mut waiting = consumer.fetch(Shard(2), 1, 1);
    consumer.leave();
    consumer.leave();
    let all: Vec<Shard> = (0..SHARDS).map(Shard).collect();
    assert_eq!(consumer.assignment().await, Some(Assignment::Revoked(all.clone())));
    assert!((&mut waiting).now_or_never().is_none(), "it is read on");
    consumer.stop(Shard(2));
    assert!(matches!(waiting.await, Err(Error::NotAssigned(Shard(2)))));
    assert!(matches!(consumer.seek(Shard(2), 0).await, Err(Error::NotAssigned(_))));
    assert!(consumer.assignment().now_or_never().is_none(), "it is away");
    consumer.join();
    consumer.leave();
    consumer.join();
    consumer.join();
    assert_eq!(consumer.assignment().await, Some(Assignment::Assigned(all)));
    assert!(consumer.assignment().now_or_never().is_none(), "nothing more happens");
    consumer.seek(Shard(2), 0).await.expect("it is assigned");
}

#[tokio::test]
async fn a_waiting_fetch_ends_when_the_consumer_closes() {
    let dir = directory();
    let log = log(&database(&dir)).await;
    let consumer = assigned(&log).await;
    let mut waiting = consumer.fetch(Shard(0), 1, 1);
    assert!((&mut waiting).now_or_never().is_none());
    consumer.close().await;
    assert!(matches!(waiting.await, Err(Error::NotAssigned(Shard(0)))));
    assert_eq!(consumer.assignment().await, None);
}

#[tokio::test]
async fn without_free_disk_space_appends_are_unavailable() {
    let dir = directory();
    let full = DatabaseOptions { disk_reserve_bytes: u64::MAX, ..DatabaseOptions::at(dir.path()) };
    let db = Database::open(&full).expect("it opens");
    let refused = EmbeddedLog::open(&db, Options::new("dueline", SHARDS)).await.err();
    assert!(matches!(refused, Some(Error::Unavailable(_))), "{refused:?}");
    drop(db);
    let db = database(&dir);
    drop((log(&db).await, db));
    let log = log(&Database::open(&full).expect("it opens")).await;
    let refused = log.producer().produce(schedule(0, "x")).await.expect_err("there is no room");
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    assert_eq!(assigned(&log).await.end(Shard(0)).await.expect("it answers").next, 0);
}
