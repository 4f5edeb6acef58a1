//! Topics besides the schedule topic: what they keep, and reading them from anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;

use super::{database, directory, log, message, values};
use crate::log::embedded::retention::round;
use crate::log::embedded::{EmbeddedLog, Options, Retention, Span};
use crate::log::{Error, Target, Topic};
use crate::model::Wall;
use crate::store::embedded::Database;

const PARTITIONS: u32 = 2;

/// A log whose clock stands where it is put.
async fn timed(db: &Database, clock: &Arc<AtomicI64>) -> EmbeddedLog {
    let wall = Arc::clone(clock);
    let clock = Arc::new(move || Wall(wall.load(Ordering::Relaxed)));
    let options = Options { clock, ..Options::new("dueline", PARTITIONS) };
    EmbeddedLog::open(db, options).await.expect("it opens")
}

fn span(log: &EmbeddedLog, topic: &str, partition: usize) -> (u64, u64) {
    let found = log.topics().into_iter().find(|known| known.name() == topic).expect("it is there");
    let Span { first, next } = found.spans()[partition];
    (first, next)
}

#[tokio::test]
async fn topics_but_the_schedule_topic_drop_what_is_old_or_too_much() {
    let (dir, clock) = (directory(), Arc::new(AtomicI64::new(0)));
    let db = database(&dir);
    let before = timed(&db, &clock).await;
    let targets =
        [Target::Topic(Topic::Schedule), Target::Topic(Topic::Events), Target::Named("orders".to_owned())];
    for second in 0..10 {
        clock.store(second * 1_000, Ordering::Relaxed);
        for target in &targets {
            before.producer().produce(message(target.clone(), 0, "x")).await.expect("it is written");
        }
    }
    clock.store(10_000, Ordering::Relaxed);
    for (age_ms, records_max, first) in [
        (100_000, 100, 0),
        (10_001, 10, 0),
        (5_500, 100, 5),
        (7_000, 100, 5),
        (100_000, 3, 7),
        (2_500, 3, 8),
        (1_000, 100, 9),
        (999, 100, 10),
        (100_000, 100, 10),
    ] {
        let retention = Retention { age: Duration::from_millis(age_ms), records_max };
        round(&before.shared, retention).await.expect("it can drop");
        for topic in ["dueline.events", "orders"] {
            assert_eq!(span(&before, topic, 0), (first, 10), "{topic} after {age_ms} ms, {records_max}");
        }
        assert_eq!(span(&before, "dueline.schedule", 0), (0, 10), "it is another's business");
        assert_eq!(span(&before, "dueline.events", 1), (0, 0), "nothing was written to it");
    }
    drop((before, db));
    let after = timed(&database(&dir), &clock).await;
    assert_eq!(span(&after, "orders", 0), (10, 10));
    let written = after.producer().produce(message(targets[1].clone(), 0, "y")).await.expect("it is written");
    assert_eq!((written.offset, span(&after, "dueline.events", 0)), (Some(10), (10, 11)));
}

#[tokio::test]
async fn many_records_go_in_steps_and_the_newest_are_read_on() {
    let (dir, clock) = (directory(), Arc::new(AtomicI64::new(0)));
    let log = timed(&database(&dir), &clock).await;
    let producer = log.producer();
    let target = Target::Topic(Topic::Dead);
    let written = (0..2_600).map(|n: u32| producer.produce(message(target.clone(), 1, &n.to_string())));
    for written in futures::future::join_all(written).await {
        written.expect("it is written");
    }
    let retention = Retention { records_max: 2, ..Retention::default() };
    round(&log.shared, retention).await.expect("it can drop");
    assert_eq!(span(&log, "dueline.dead", 1), (2_598, 2_600));
    let records = log.tail(&target, 1, 0, 10).await.expect("they are there");
    assert_eq!(values(&records), [b"2598", b"2599"]);
}

#[tokio::test]
async fn what_is_old_goes_by_itself() {
    let dir = directory();
    let retention = Retention { age: Duration::from_millis(1), ..Retention::default() };
    let options = Options { retention, ..Options::new("dueline", PARTITIONS) };
    let log = EmbeddedLog::open(&database(&dir), options).await.expect("it opens");
    log.producer().produce(message(Target::Topic(Topic::Events), 0, "x")).await.expect("it is written");
    let begun = Instant::now();
    while span(&log, "dueline.events", 0) != (1, 1) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_partition_is_read_from_any_offset_it_holds_and_waited_for_at_its_end() {
    let dir = directory();
    let log = log(&database(&dir)).await;
    let names: Vec<String> = log.topics().iter().map(|topic| topic.name().to_owned()).collect();
    assert_eq!(names, ["dueline.dead", "dueline.events", "dueline.rejected", "dueline.schedule"]);
    let target = Target::Named("a.first".to_owned());
    for value in ["one", "two", "three"] {
        log.producer().produce(message(target.clone(), 0, value)).await.expect("it is written");
    }
    let topics = log.topics();
    assert_eq!(topics[0].name(), "a.first");
    assert!(topics[0].partition(1).is_none() && topics[1].partition(3).is_some());
    let reader = topics[0].partition(0).expect("it has one");
    let read = async |from, records_max, bytes_max| {
        let records = reader.read(from, records_max, bytes_max).await.expect("it can be read");
        values(&records).iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(read(0, 10, 1_000).await, ["one", "two", "three"]);
    assert_eq!(read(0, 10, 1_000).await, ["one", "two", "three"], "nobody takes them away");
    assert_eq!(read(1, 1, 1_000).await, ["two"]);
    assert_eq!(read(0, 10, 6).await, ["one", "two"]);
    assert_eq!(read(2, 10, 1).await, ["three"], "the first one always");
    assert_eq!(read(3, 10, 1_000).await, Vec::<String>::new());
    assert!(reader.reaches(2).now_or_never().is_some());
    let mut waiting = Box::pin(reader.reaches(3));
    assert!((&mut waiting).now_or_never().is_none());
    log.producer().produce(message(target, 0, "four")).await.expect("it is written");
    waiting.await;
    assert_eq!(read(3, 10, 1_000).await, ["four"]);
}

#[tokio::test]
async fn a_record_that_cannot_be_read_stops_retention_of_its_own_topic_only() {
    let (dir, clock) = (directory(), Arc::new(AtomicI64::new(0)));
    let db = database(&dir);
    let log = timed(&db, &clock).await;
    for target in [Target::Named("broken".to_owned()), Target::Named("whole".to_owned())] {
        for _ in 0..2 {
            log.producer().produce(message(target.clone(), 0, "x")).await.expect("it is written");
        }
    }
    let broken = log.shared.known(&Target::Named("broken".to_owned())).expect("it is there");
    let key = crate::log::embedded::frame::key(broken.number, 0, 0);
    db.ask(1, move |batch| batch.put(crate::store::embedded::Table::Log, key, *b"no record"))
        .await
        .expect("it is written");
    clock.store(1_000_000, Ordering::Relaxed);
    let retention = Retention { age: Duration::from_secs(1), ..Retention::default() };
    let failed = round(&log.shared, retention).await.expect_err("one cannot be read");
    assert!(matches!(&failed, Error::Fatal(text) if text.contains("offset 0")), "{failed}");
    assert_eq!((span(&log, "broken", 0), span(&log, "whole", 0)), ((0, 2), (2, 2)));
}
