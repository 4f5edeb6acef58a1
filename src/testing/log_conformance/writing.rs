//! The facts of the writing side: order, places, and bytes kept as they were.

use bytes::Bytes;

use super::{Bench, message, soon, texts, values};
use crate::log::{Header, Message, Target, Topic};
use crate::model::{Shard, partition_of};

pub(super) async fn check(bench: &Bench) {
    records_of_a_partition_keep_the_order_of_the_calls(bench).await;
    a_record_is_kept_byte_by_byte(bench).await;
    append_times_are_present_and_never_fall(bench).await;
    a_key_chooses_its_partition_as_java_does(bench).await;
    every_topic_of_ours_takes_records(bench).await;
    records_of_one_call_are_answered_each(bench).await;
    flush_waits_for_what_was_sent(bench).await;
}

async fn records_of_a_partition_keep_the_order_of_the_calls(bench: &Bench) {
    let shard = Shard(0);
    let first = bench.next(shard).await;
    let sent = values("order", 2_000);
    let written = bench.write(shard, &sent).await;
    for (index, place) in written.iter().enumerate() {
        assert_eq!(place.partition, shard.0, "an explicit partition is kept");
        assert_eq!(place.offset, first + index as u64, "offsets follow the order of the calls");
    }
    let read = bench.read(shard, first, sent.len()).await;
    assert_eq!(texts(&read), sent, "records are read in the order of the calls");
    let offsets: Vec<u64> = read.iter().map(|record| record.offset).collect();
    let places: Vec<u64> = written.iter().map(|place| place.offset).collect();
    assert_eq!(offsets, places, "a record is read at the offset it was written to");
}

async fn a_record_is_kept_byte_by_byte(bench: &Bench) {
    let shard = Shard(1);
    let binary: Vec<u8> = (0..=255).collect();
    let headers: Vec<Header> = vec![
        ("twice".into(), Some(Bytes::from_static(b"1"))),
        ("none".into(), None),
        ("empty".into(), Some(Bytes::new())),
        ("twice".into(), Some(Bytes::from(binary.clone()))),
        ("grüße".into(), Some(Bytes::from_static(b"utf-8 name"))),
    ];
    let plain = message(shard, Some("k"), Some(b"v"));
    let sent = vec![
        Message { headers, ..plain.clone() },
        Message { value: None, ..plain.clone() },
        Message { value: Some(Bytes::new()), ..plain.clone() },
        Message { key: None, ..plain.clone() },
        Message { key: Some(Bytes::new()), ..plain.clone() },
        Message { key: Some(Bytes::from(binary.clone())), value: Some(Bytes::from(binary)), ..plain.clone() },
        Message { value: Some(Bytes::from(vec![7_u8; 300_000])), ..plain },
    ];
    let first = bench.next(shard).await;
    for message in &sent {
        soon("the record is durable", bench.producer.produce(message.clone())).await.expect("it is written");
    }
    let read = bench.read(shard, first, sent.len()).await;
    for (sent, read) in sent.iter().zip(&read) {
        assert_eq!(read.key, sent.key, "the key is kept, none and empty apart");
        assert_eq!(read.headers, sent.headers, "headers are kept in order, none and empty apart");
        assert_eq!(read.value, sent.value, "the value is kept, none and empty apart");
    }
}

async fn append_times_are_present_and_never_fall(bench: &Bench) {
    let shard = Shard(2);
    let first = bench.next(shard).await;
    bench.write(shard, &values("time", 20)).await;
    let read = bench.read(shard, first, 20).await;
    assert!(read.iter().all(|record| record.appended.0 > 0), "each record has its append time");
    assert!(read.is_sorted_by_key(|record| record.appended), "append times of a partition never fall");
}

async fn a_key_chooses_its_partition_as_java_does(bench: &Bench) {
    for number in 0..64 {
        let key = format!("queue-{number}");
        let mut message = message(Shard(0), Some(&key), Some(b"by key"));
        message.partition = None;
        let written =
            soon("the record is durable", bench.producer.produce(message)).await.expect("it is written");
        assert_eq!(
            written.partition,
            partition_of(key.as_bytes(), bench.shards),
            "{key} goes home by murmur2"
        );
    }
}

async fn every_topic_of_ours_takes_records(bench: &Bench) {
    for topic in Topic::ALL {
        let message =
            Message { target: Target::Topic(topic), partition: None, ..message(Shard(0), Some("q"), None) };
        let written = soon("the record is durable", bench.producer.produce(message)).await;
        assert!(written.is_ok(), "{topic:?} takes a record: {written:?}");
    }
}

async fn records_of_one_call_are_answered_each(bench: &Bench) {
    assert!(soon("nothing is answered", bench.producer.produce_all(Vec::new())).await.is_empty());
    let shard = Shard(3);
    let first = bench.next(shard).await;
    let sent = values("together", 200);
    let mut records: Vec<Message> =
        sent.iter().map(|value| message(shard, None, Some(value.as_bytes()))).collect();
    // In the midst of them one that can never be written.
    records.insert(100, message(Shard(u32::MAX), None, Some(b"nowhere")));
    let mut written = soon("all are answered", bench.producer.produce_all(records)).await;
    assert_eq!(written.len(), 201);
    assert!(written.remove(100).is_err(), "there is no such partition");
    for (index, place) in written.into_iter().enumerate() {
        let place = place.expect("it is written");
        assert_eq!((place.partition, place.offset), (shard.0, Some(first + index as u64)));
    }
    assert_eq!(texts(&bench.read(shard, first, 200).await), sent);
}

async fn flush_waits_for_what_was_sent(bench: &Bench) {
    let shard = Shard(3);
    let answers: Vec<_> = values("flush", 100)
        .iter()
        .map(|value| bench.producer.produce(message(shard, None, Some(value.as_bytes()))))
        .collect();
    soon("the flush ends", bench.producer.flush(30_000)).await;
    for mut answer in answers {
        let answer = futures::poll!(&mut answer);
        assert!(answer.is_ready(), "what was sent before the flush is answered after it");
    }
}
