//! The facts of the reading side: positions, bounds, ends, and what is gone.

use futures::FutureExt;

use super::{BYTES_MAX, Bench, Installation, message, read_on, soon, texts, values};
use crate::log::{Answer, Error, Record};
use crate::model::Shard;

const SOUGHT: &str = "an assigned shard can be sought";

pub(super) async fn check(bench: &Bench) {
    a_shard_is_read_from_the_offset_sought(bench).await;
    a_seek_back_reads_the_same_again(bench).await;
    a_fetch_keeps_its_bounds(bench).await;
    a_fetch_at_the_end_waits_for_the_next_record(bench).await;
    a_fetch_that_is_dropped_takes_nothing(bench).await;
    the_end_is_the_offset_of_the_next_record(bench).await;
    what_is_not_assigned_is_refused(bench).await;
    a_commit_is_never_waited_for_and_moves_nothing(bench).await;
    shards_are_read_side_by_side(bench).await;
    a_reader_that_falls_behind_misses_nothing(bench).await;
    a_polled_client_is_not_silent(bench);
}

/// The facts of offsets that the log does not hold.
pub(super) async fn check_gone(bench: &Bench, installation: &dyn Installation) {
    an_offset_past_the_end_is_gone(bench).await;
    let shard = Shard(1);
    let next = bench.next(shard).await;
    let forgot = soon("the log forgets", installation.forget_below(shard, next - 1)).await.expect("it can");
    if forgot {
        a_forgotten_offset_is_gone(bench, shard, next).await;
    }
}

async fn a_shard_is_read_from_the_offset_sought(bench: &Bench) {
    let shard = Shard(2);
    let sent = values("sought", 300);
    let written = bench.write(shard, &sent).await;
    for start in [0, 1, 150, 299] {
        let read = bench.read(shard, written[start].offset, sent.len() - start).await;
        assert_eq!(read[0].offset, written[start].offset, "the first record read is the one sought");
        assert_eq!(texts(&read), sent[start..], "and the others follow");
    }
}

async fn a_seek_back_reads_the_same_again(bench: &Bench) {
    let shard = Shard(2);
    let sent = values("again", 200);
    let first = bench.write(shard, &sent).await[0].offset;
    let once = bench.read(shard, first, 200).await;
    let part = bench.read(shard, first, 7).await;
    let again = bench.read(shard, first, 200).await;
    assert_eq!(once, again, "a seek back reads the same records");
    assert_eq!(part, once[..7], "however little was taken in between");
}

async fn a_fetch_keeps_its_bounds(bench: &Bench) {
    let shard = Shard(3);
    let first = bench.next(shard).await;
    bench.write(shard, &vec!["x".repeat(1_000); 20]).await;
    bench.read(shard, first, 20).await;
    bench.consumer.seek(shard, first).await.expect(SOUGHT);
    for _ in 0..4 {
        let few =
            soon("records come", bench.consumer.fetch(shard, 2, BYTES_MAX)).await.expect("a shard is read");
        assert!((1..=2).contains(&few.len()), "at most the records asked for");
    }
    bench.consumer.seek(shard, first).await.expect(SOUGHT);
    for _ in 0..4 {
        let one = soon("a record comes", bench.consumer.fetch(shard, 10, 1)).await.expect("a shard is read");
        assert_eq!(one.len(), 1, "the first record comes whatever its size, and no other past the bytes");
        let some =
            soon("records come", bench.consumer.fetch(shard, 10, 2_500)).await.expect("a shard is read");
        assert!(some.len() <= 2, "past the first, no more bytes than asked for");
    }
}

/// A fetch at the end of the log, which waits.
async fn waiting_fetch(bench: &Bench, shard: Shard) -> Answer<Vec<Record>> {
    let next = bench.next(shard).await;
    bench.consumer.seek(shard, next).await.expect(SOUGHT);
    let mut fetch = bench.consumer.fetch(shard, 10, BYTES_MAX);
    assert!((&mut fetch).now_or_never().is_none(), "nothing is there to be read");
    fetch
}

async fn a_fetch_at_the_end_waits_for_the_next_record(bench: &Bench) {
    let shard = Shard(0);
    let fetch = waiting_fetch(bench, shard).await;
    let written = bench.write(shard, &values("late", 1)).await;
    let read = soon("the late record comes", fetch).await.expect("a shard is read");
    assert_eq!(read[0].offset, written[0].offset, "the waiting fetch brings the next record");
}

async fn a_fetch_that_is_dropped_takes_nothing(bench: &Bench) {
    let shard = Shard(0);
    let dropped = waiting_fetch(bench, shard).await;
    let sent = values("dropped", 3);
    bench.write(shard, &sent).await;
    drop(dropped);
    let read = read_on(bench.consumer.as_ref(), shard, 3).await;
    assert_eq!(texts(&read), sent, "the next fetch brings it all");
}

async fn the_end_is_the_offset_of_the_next_record(bench: &Bench) {
    for shard in (0..bench.shards).map(Shard) {
        let before = bench.end(shard).await;
        let written = bench.write(shard, &values("end", 3)).await;
        let after = bench.end(shard).await;
        assert_eq!(written[0].offset, before.next, "the next record is written at the end");
        assert_eq!(after.next, written[2].offset + 1, "the end moves with each record");
        assert!(after.first <= before.next, "the first offset lies before the end");
        assert_eq!(after.topic_id, before.topic_id, "the topic is the same one");
        assert!(!after.topic_id.is_empty(), "the topic has an identity");
        let read = bench.read(shard, before.next, 3).await;
        let is_led = |record: &Record| record.leader_epoch == after.leader_epoch;
        assert!(read.iter().all(is_led), "a record is of who says where the log ends: {after:?}, {read:?}");
    }
}

async fn what_is_not_assigned_is_refused(bench: &Bench) {
    let foreign = Shard(bench.shards + 7);
    let fetched = soon("the fetch is answered", bench.consumer.fetch(foreign, 1, 1)).await;
    assert!(matches!(fetched, Err(Error::NotAssigned(shard)) if shard == foreign), "{fetched:?}");
    let sought = soon("the seek is answered", bench.consumer.seek(foreign, 0)).await;
    assert!(matches!(sought, Err(Error::NotAssigned(shard)) if shard == foreign), "{sought:?}");
}

async fn a_commit_is_never_waited_for_and_moves_nothing(bench: &Bench) {
    let shard = Shard(1);
    let sent = values("commit", 10);
    let written = bench.write(shard, &sent).await;
    bench.read(shard, written[0].offset, 3).await;
    bench.consumer.commit(shard, written[9].offset + 1);
    bench.consumer.commit(Shard(bench.shards + 7), 5);
    let rest = read_on(bench.consumer.as_ref(), shard, 7).await;
    assert_eq!(texts(&rest), sent[3..], "a commit does not move the reader");
}

async fn shards_are_read_side_by_side(bench: &Bench) {
    let mut starts = Vec::new();
    for shard in bench.assigned.iter().copied() {
        starts.push((shard, bench.write(shard, &values("side", 50)).await[0].offset));
    }
    let reads = starts.iter().map(|(shard, offset)| bench.read(*shard, *offset, 50));
    for read in futures::future::join_all(reads).await {
        assert_eq!(texts(&read), values("side", 50), "each shard brings its own records");
    }
}

async fn a_reader_that_falls_behind_misses_nothing(bench: &Bench) {
    let (slow, quick) = (Shard(2), Shard(3));
    let padding = "p".repeat(2_000);
    let sent: Vec<String> =
        values("behind", 6_000).iter().map(|value| format!("{value}-{padding}")).collect();
    let first = bench.write(slow, &sent).await[0].offset;
    let mut read = bench.read(slow, first, 5).await;
    for _ in 0..3 {
        let other = bench.write(quick, &values("other", 500)).await[0].offset;
        bench.read(quick, other, 500).await;
    }
    read.extend(read_on(bench.consumer.as_ref(), slow, sent.len() - 5).await);
    assert!(texts(&read) == sent, "what the reader had no room for comes later, in order");
}

fn a_polled_client_is_not_silent(bench: &Bench) {
    assert!(bench.consumer.silent_ms() < 30_000, "the client is polled");
}

async fn an_offset_past_the_end_is_gone(bench: &Bench) {
    let shard = Shard(0);
    let next = bench.next(shard).await;
    bench.consumer.seek(shard, next + 1_000).await.expect(SOUGHT);
    let gone = soon("the fetch is answered", bench.consumer.fetch(shard, 10, BYTES_MAX)).await;
    match gone {
        Err(Error::OffsetGone { shard: of, wanted, first, next: end }) => {
            assert_eq!((of, wanted, end), (shard, next + 1_000, next), "the answer says what is held");
            assert!(first <= next, "and from where");
        }
        other => panic!("an offset past the end must not be read: {other:?}"),
    }
    let again = soon("the fetch is answered", bench.consumer.fetch(shard, 10, BYTES_MAX)).await;
    assert!(matches!(again, Err(Error::OffsetGone { .. })), "it stays gone until another offset is sought");
    let written = bench.write(shard, &values("back", 5)).await;
    let read = bench.read(shard, written[0].offset, 5).await;
    assert_eq!(texts(&read), values("back", 5), "a seek to what is held reads on");
}

async fn a_forgotten_offset_is_gone(bench: &Bench, shard: Shard, next: u64) {
    bench.consumer.seek(shard, next - 2).await.expect(SOUGHT);
    let gone = soon("the fetch is answered", bench.consumer.fetch(shard, 10, BYTES_MAX)).await;
    match gone {
        Err(Error::OffsetGone { wanted, first, next: end, .. }) => {
            assert_eq!((wanted, first, end), (next - 2, next - 1, next), "the answer says what is held");
        }
        other => panic!("a forgotten offset must not be read: {other:?}"),
    }
    let last = message(shard, None, Some(b"last"));
    soon("the record is durable", bench.producer.produce(last)).await.expect("it is written");
    let read = bench.read(shard, next - 1, 2).await;
    assert_eq!(read[0].offset, next - 1, "what is still held can be read");
    assert_eq!(read[1].value.as_deref(), Some(&b"last"[..]), "and what follows");
}
