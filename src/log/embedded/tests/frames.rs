//! Frames: records written together are read, dropped and found again as if each had a row of its own.

use std::sync::mpsc;

use bytes::Bytes;
use fjall::AbstractTree as _;
use futures::future::join_all;
use proptest::prelude::*;

use super::{database, directory, log, schedule, values};
use crate::log::embedded::partition::last_frame;
use crate::log::embedded::{EmbeddedLog, PartitionReader, frame};
use crate::log::{Error, Message, Record};
use crate::model::Shard;
use crate::store::embedded::{Batch, Database, Table};

const SHARDS_USED: u32 = 2;

/// Keeps the writer staging until it is dropped: what comes meanwhile is in one batch, the next.
async fn hold_up(db: &Database) -> mpsc::Sender<()> {
    let (go_on, held) = mpsc::channel::<()>();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let stage = move |_: &mut Batch<'_>| {
        begun.send(()).expect("somebody waits");
        held.recv().ok();
    };
    drop(db.ask_now(0, stage, |()| ()).expect("there is room"));
    begins.await.expect("it is staged");
    go_on
}

/// Writes all of it in one batch of the writer's.
async fn write_together(db: &Database, log: &EmbeddedLog, records: Vec<(u32, Bytes)>) {
    let go_on = hold_up(db).await;
    let producer = log.producer();
    let written = records
        .into_iter()
        .map(|(shard, value)| producer.produce(Message { value: Some(value), ..schedule(shard, "") }));
    let written: Vec<_> = written.collect();
    drop(go_on);
    for written in join_all(written).await {
        written.expect("it is written");
    }
}

fn reader(log: &EmbeddedLog, shard: u32) -> PartitionReader {
    let topics = log.topics();
    let topic = topics.iter().find(|topic| topic.name() == "dueline.schedule").expect("it is ours");
    topic.partition(shard).expect("it has so many")
}

/// The first offsets of the frames of a shard and how many records each has.
fn frames(db: &Database, log: &EmbeddedLog, shard: u32) -> Vec<(u64, usize)> {
    let topic = log.shared.known(&schedule(shard, "").target).expect("it is ours");
    let frames = topic.partitions[shard as usize].frames(db.tables(), 0, u64::MAX);
    let frames = frames.map(|frame| frame.expect("it can be read"));
    frames.map(|(first, data)| (first, frame::split(&data).expect("it is a frame").len())).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// Bytes of each record, and its shard.
    Write(Vec<(u32, usize)>),
    /// Drops this part in a hundred of what a shard holds.
    Forget(u32, u64),
    /// Reads at this part in a hundred of what a shard holds, so many records and bytes at most.
    Read(u32, u64, usize, usize),
    /// Writes what is in memory into files.
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let shard = || 0..SHARDS_USED;
    let bytes = prop_oneof![8 => 0..40usize, 1 => 1_000..70_000usize];
    let few = prop::collection::vec((shard(), bytes), 1..6);
    let many = (shard(), 200..600usize).prop_map(|(shard, records)| vec![(shard, 9); records]);
    prop_oneof![
        4 => few.prop_map(Step::Write),
        1 => many.prop_map(Step::Write),
        3 => (shard(), 0..=100u64).prop_map(|(shard, part)| Step::Forget(shard, part)),
        4 => (shard(), 0..=100u64, 1..500usize, 1..100_000usize)
            .prop_map(|(shard, part, records, bytes)| Step::Read(shard, part, records, bytes)),
        2 => Just(Step::Flush),
        2 => Just(Step::Reopen),
    ]
}

/// What a shard is to hold: every value that it ever got, and the first offset that is left.
#[derive(Default)]
struct Held {
    first: usize,
    values: Vec<Bytes>,
}

impl Held {
    fn at(&self, part: u64) -> usize {
        self.first + (self.values.len() - self.first) * part as usize / 100
    }

    fn read(&self, from: usize, records_max: usize, bytes_max: usize) -> Vec<&[u8]> {
        let mut bytes = 0;
        let fits = |value: &&Bytes| {
            let is_first = bytes == 0 && value.len() > bytes_max;
            bytes += value.len();
            is_first || bytes <= bytes_max
        };
        let left = self.values[from..].iter().take(records_max);
        left.take_while(fits).map(|value| &value[..]).collect()
    }
}

async fn check(db: &Database, log: &EmbeddedLog, shard: u32, held: &Held) {
    let span = reader(log, shard).span();
    assert_eq!((span.first, span.next), (held.first as u64, held.values.len() as u64), "shard {shard}");
    let mut next = None;
    for (first, records) in frames(db, log, shard) {
        let end = first + records as u64;
        assert!(next.is_none_or(|next| next == first), "frames of shard {shard} follow each other");
        assert!(records <= frame::RECORDS_MAX && end > span.first, "of {first} to {end} nothing is held");
        next = Some(end);
    }
    assert!(next.unwrap_or(span.next) == span.next, "shard {shard} has frames up to its end");
    for (from, records_max, bytes_max) in [(held.first, 10_000, usize::MAX), (held.at(50), 3, 1_000)] {
        let read = reader(log, shard).read(from as u64, records_max, bytes_max).await.expect("it answers");
        assert_eq!(values(&read), held.read(from, records_max, bytes_max));
        let offsets = read.iter().map(|record| record.offset);
        assert!(offsets.eq(from as u64..(from + read.len()) as u64));
    }
}

async fn play(steps: Vec<Step>) {
    let dir = directory();
    let mut db = database(&dir);
    let mut log = log(&db).await;
    let mut held: [Held; SHARDS_USED as usize] = Default::default();
    for step in steps {
        match step {
            Step::Write(records) => {
                let mut written = Vec::new();
                for (shard, bytes) in records {
                    let values = &mut held[shard as usize].values;
                    let value = Bytes::from(format!("{}{}", values.len(), "x".repeat(bytes)));
                    values.push(value.clone());
                    written.push((shard, value));
                }
                write_together(&db, &log, written).await;
            }
            Step::Forget(shard, part) => {
                let held = &mut held[shard as usize];
                held.first = held.at(part);
                log.forget_below(Shard(shard), held.first as u64).await.expect("it answers");
            }
            Step::Read(shard, part, records_max, bytes_max) => {
                let held = &held[shard as usize];
                let from = held.at(part);
                let read = reader(&log, shard).read(from as u64, records_max, bytes_max).await;
                let read = read.expect("it answers");
                assert_eq!(values(&read), held.read(from, records_max, bytes_max));
            }
            Step::Flush => db.tables().log.rotate_memtable_and_wait().expect("it is written"),
            Step::Reopen => {
                drop((log, db));
                db = database(&dir);
                log = super::log(&db).await;
            }
        }
        for (shard, held) in (0..).zip(&held) {
            check(&db, &log, shard, held).await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_writes_and_drops_leave_what_a_row_for_each_record_would(steps in prop::collection::vec(step(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("it starts").block_on(play(steps));
    }
}

#[tokio::test]
async fn records_of_a_shard_that_are_written_together_are_few_rows() {
    let dir = directory();
    let db = database(&dir);
    let log = log(&db).await;
    let record = |number: usize| ((number % 2) as u32, Bytes::from(number.to_string()));
    write_together(&db, &log, (0..1_000).map(record).collect()).await;
    for shard in 0..2 {
        assert_eq!(frames(&db, &log, shard), [(0, 256), (256, 244)]);
    }
    write_together(&db, &log, vec![record(0)]).await;
    assert_eq!(frames(&db, &log, 0)[2..], [(500, 1)], "what is written later is another");
    log.forget_below(Shard(0), 300).await.expect("it answers");
    assert_eq!(frames(&db, &log, 0), [(256, 244), (500, 1)], "300 to 499 are held");
    log.forget_below(Shard(0), 501).await.expect("it answers");
    assert_eq!(frames(&db, &log, 0), []);
    log.forget_below(Shard(1), 400).await.expect("it answers");
    drop((log, db));
    let db = database(&dir);
    let log = super::log(&db).await;
    let spans = [0, 1].map(|shard| reader(&log, shard).span());
    assert_eq!(spans.map(|span| (span.first, span.next)), [(501, 501), (400, 500)]);
    assert_eq!(reader(&log, 1).read(400, 1_000, 100_000).await.expect("it answers").len(), 100);
}

/// So that compaction writes their keys anew and not what is soon dropped.
#[tokio::test]
async fn frames_lie_apart_from_their_keys_and_what_comes_alone_does_not() {
    let dir = directory();
    let db = database(&dir);
    let log = log(&db).await;
    let table = &db.tables().log;
    write_together(&db, &log, vec![(0, Bytes::from_static(b"alone"))]).await;
    table.rotate_memtable_and_wait().expect("it is written");
    assert_eq!((table.tree.table_count(), table.tree.blob_file_count()), (1, 0));
    write_together(&db, &log, vec![(1, Bytes::from(vec![b'x'; 100])); 200]).await;
    table.rotate_memtable_and_wait().expect("it is written");
    assert_eq!((table.tree.table_count(), table.tree.blob_file_count()), (2, 1));
    assert_eq!(reader(&log, 0).read(0, 10, 1_000).await.expect("it answers").len(), 1);
    assert_eq!(reader(&log, 1).read(50, 1_000, 100_000).await.expect("it answers").len(), 150);
}

/// What is dropped goes from the files of values, and what stays is found where it was moved to, after a restart too; and in a
/// directory whose log was laid down without such files.
#[tokio::test]
async fn frames_are_found_after_their_files_are_compacted() {
    for is_old in [false, true] {
        let dir = directory();
        if is_old {
            made_before(&dir);
        }
        let mut held: [Held; 2] = Default::default();
        for restart in 0..3 {
            let db = database(&dir);
            let log = log(&db).await;
            let table = &db.tables().log;
            assert_eq!(table.is_kv_separated(), !is_old);
            for round in 0..12 {
                // A third of the files hold what stays, too.
                let shards = if round % 3 == 0 { 2 } else { 1 };
                let mut written = Vec::new();
                for number in 0..200 {
                    let value = Bytes::from(format!("{restart}-{round}-{number:0>99}"));
                    held[number % shards].values.push(value.clone());
                    written.push(((number % shards) as u32, value));
                }
                write_together(&db, &log, written).await;
                let dropped = &mut held[0];
                dropped.first = dropped.values.len().saturating_sub(250);
                log.forget_below(Shard(0), dropped.first as u64).await.expect("it answers");
                table.rotate_memtable_and_wait().expect("it is written");
            }
            let (files, mut stale) = (table.tree.blob_file_count(), Vec::new());
            // Each takes away what those before it have found dead.
            for _ in 0..4 {
                table.major_compact().expect("it is compacted");
                stale.push(table.tree.stale_blob_bytes());
            }
            if !is_old {
                let left = table.tree.blob_file_count();
                assert!(0 < left && left < files, "{left} of {files} files are left, restart {restart}");
                assert!(stale.is_sorted_by(|one, next| one >= next) && stale[0] > stale[3], "{stale:?}");
            }
            for (shard, held) in (0..).zip(&held) {
                check(&db, &log, shard, held).await;
            }
        }
    }
}

/// A directory whose frames lie beside their keys, as earlier builds laid them down.
fn made_before(dir: &tempfile::TempDir) {
    let made = fjall::Database::builder(dir.path().join("db")).open().expect("it is made");
    made.keyspace("log", fjall::KeyspaceCreateOptions::default).expect("it is made");
}

/// Where shard 0 begins after each drop of what lies below an offset.
async fn firsts(db: &Database, log: &EmbeddedLog, below: u64) -> Vec<u64> {
    let topic = log.shared.known(&schedule(0, "").target).expect("it is ours");
    let mut firsts = Vec::new();
    let first = || reader(log, 0).span().first;
    while first() < below {
        let (topic, first_now) = (topic.clone(), first());
        let drop = db.ask(0, move |batch| topic.partitions[0].drop_below(batch, first_now, below));
        drop.await.expect("it answers").expect("they can be read");
        firsts.push(first());
    }
    firsts
}

/// They are read there: how large they are matters. Where they lie apart, as a new directory has them, it does not.
#[tokio::test]
async fn large_records_are_dropped_a_few_at_a_time_where_they_lie_beside_their_keys() {
    for (is_old, steps) in [(true, &[5, 10, 11][..]), (false, &[11])] {
        let dir = directory();
        if is_old {
            made_before(&dir);
        }
        let db = database(&dir);
        let log = log(&db).await;
        let large = Bytes::from(vec![b'x'; 1_000_000]);
        write_together(&db, &log, vec![(0, large); 12]).await;
        assert_eq!(firsts(&db, &log, 11).await, steps);
        assert_eq!(frames(&db, &log, 0), [(11, 1)]);
    }
}

#[tokio::test]
async fn of_many_frames_some_are_dropped_at_a_time() {
    let dir = directory();
    let db = database(&dir);
    let log = log(&db).await;
    for number in 0..300 {
        let pair = (2 * number..).take(2).map(|record: usize| (0, Bytes::from(record.to_string())));
        write_together(&db, &log, pair.collect()).await;
    }
    assert_eq!(firsts(&db, &log, 579).await, [512, 579]);
    assert_eq!(frames(&db, &log, 0)[..2], [(578, 2), (580, 2)], "578 is gone, 579 is not");
    assert_eq!(firsts(&db, &log, 600).await, [600]);
    assert_eq!(frames(&db, &log, 0), []);
}

#[tokio::test]
async fn of_a_frame_only_what_is_published_is_read() {
    let dir = directory();
    let db = database(&dir);
    let log = log(&db).await;
    let go_on = hold_up(&db).await;
    let first = log.producer().produce(schedule(0, "first"));
    let (publish, held) = mpsc::channel::<()>();
    let (reached, reaches) = tokio::sync::oneshot::channel();
    let wait = move |(): &()| {
        reached.send(()).expect("somebody waits");
        held.recv().ok();
    };
    let between = db.ask_now(0, |_| (), wait).expect("there is room");
    let second = log.producer().produce(schedule(0, "second"));
    drop(go_on);
    reaches.await.expect("the batch is written");
    assert_eq!(frames(&db, &log, 0), [(0, 2)], "both are in the table");
    let reader = reader(&log, 0);
    assert_eq!(values(&reader.read(0, 10, 1_000).await.expect("it answers")), [b"first"]);
    drop(publish);
    for answered in [first.await.is_ok(), between.await.is_ok(), second.await.is_ok()] {
        assert!(answered);
    }
    assert_eq!(values(&reader.read(0, 10, 1_000).await.expect("it answers")), [&b"first"[..], b"second"]);
}

#[tokio::test]
async fn what_lies_before_an_unreadable_record_is_read_and_it_goes_with_its_frame() {
    let dir = directory();
    let db = database(&dir);
    let log = log(&db).await;
    let three = (0..3).map(|number| (0, Bytes::from(number.to_string()))).collect();
    write_together(&db, &log, three).await;
    let topic = log.shared.known(&schedule(0, "").target).expect("it is ours");
    let (_, data) = last_frame(db.tables(), topic.number, 0, 0, 2).expect("it answers").expect("it is there");
    let mut data = data.to_vec();
    let first = frame::split(&data).expect("it is a frame")[0].len();
    data[1 + 4 + first + 4] = 9; // the version of the second
    let key = frame::key(topic.number, 0, 0);
    db.ask(1, move |batch| batch.put(Table::Log, key, data)).await.expect("it is written");
    let read =
        async |from: u64| -> Result<Vec<Record>, Error> { reader(&log, 0).read(from, 10, 1_000).await };
    assert_eq!(values(&read(0).await.expect("the first is good")), [b"0"]);
    let unreadable = read(1).await.expect_err("the second is not");
    assert!(matches!(&unreadable, Error::Fatal(text) if text.contains("offset 1")), "{unreadable}");
    assert_eq!(values(&read(2).await.expect("the third is good")), [b"2"]);
    log.forget_below(Shard(0), 2).await.expect("it answers");
    assert_eq!(frames(&db, &log, 0), [(0, 3)]);
    log.forget_below(Shard(0), 3).await.expect("it answers");
    assert_eq!(frames(&db, &log, 0), []);
}
