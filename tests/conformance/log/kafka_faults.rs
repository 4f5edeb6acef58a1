//! What a real broker shows beyond the suite: refused records, full queues, transactions of others, no broker at all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dueline::log::kafka::{Options, Producer};
use dueline::log::{Consumer as _, Error, Message, Producer as _, Target, Topic};
use dueline::model::Shard;
use dueline::testing::log_conformance::{Installation, PATIENCE};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::kafka::{Kafka, SHARDS, brokers};

fn record(target: Target, value: &[u8]) -> Message {
    let value = Some(Bytes::copy_from_slice(value));
    Message { target, partition: Some(0), key: None, headers: Vec::new(), value }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_can_never_be_written_is_refused_and_stops_no_other() {
    let Some(brokers) = brokers("a_record_that_can_never_be_written_is_refused_and_stops_no_other") else {
        return;
    };
    let kafka = Kafka::new(brokers, "refused").await;
    let producer = kafka.producer();
    let good = || record(Target::Topic(Topic::Schedule), b"good");
    producer.produce(good()).await.expect("it is written");
    // Not to be compressed: what counts for a broker is the size on the wire.
    let mut state = 0x5eed_u64;
    let huge: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(2 << 20)
    .collect();
    let mut nowhere = good();
    nowhere.partition = Some(SHARDS + 100);
    for (bad, is_too_large) in [
        (record(Target::Topic(Topic::Schedule), &huge), true),
        (nowhere, false),
        (record(Target::Named("no-such-topic".into()), b"x"), false),
    ] {
        let answers = tokio::join!(producer.produce(good()), producer.produce(bad), producer.produce(good()));
        assert!(answers.0.is_ok(), "{:?}", answers.0);
        match answers.1 {
            Err(Error::TooLarge(_)) => assert!(is_too_large),
            Err(Error::Refused(_)) => assert!(!is_too_large),
            other => panic!("{other:?}"),
        }
        assert!(answers.2.is_ok(), "{:?}", answers.2);
    }
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_answered_and_leaves_no_gap() {
    let Some(brokers) = brokers("a_full_queue_is_answered_and_leaves_no_gap") else { return };
    let kafka = Kafka::new(brokers, "full").await;
    let mut options = kafka.options.clone();
    options.producer.insert("queue.buffering.max.messages".into(), "100".into());
    options.producer.insert("linger.ms".into(), "50".into());
    let producer = Producer::start(options).expect("good options");
    let good = || record(Target::Topic(Topic::Schedule), b"good");
    let answers: Vec<_> = (0..300).map(|_| producer.produce(good())).collect();
    let answers = futures::future::join_all(answers).await;
    let written = answers.iter().take_while(|answer| answer.is_ok()).count();
    assert!((100..300).contains(&written), "{written} were written before the queue was full");
    for refused in &answers[written..] {
        assert!(
            matches!(refused, Err(Error::Unavailable(_))),
            "nothing is written after a refusal: {refused:?}"
        );
    }
    // Each refused call puts it off: records are taken again after a pause, however slow the calls above were.
    tokio::time::sleep(Duration::from_millis(200)).await;
    producer.produce(good()).await.expect("after a pause, once all are answered, records are taken again");
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_open_and_aborted_transactions_are_not_read() {
    let Some(brokers) = brokers("records_of_open_and_aborted_transactions_are_not_read") else { return };
    let kafka = Kafka::new(brokers.clone(), "transactions").await;
    let topic = Topic::Schedule.name(&kafka.options.prefix);
    let consumer = kafka.member("reader");
    let shard = Shard(0);
    while consumer.seek(shard, 0).await.is_err() {
        consumer.assignment().await;
    }
    let written = tokio::task::spawn_blocking(move || {
        let id = topic.clone();
        let other: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("transactional.id", id)
            .create()
            .expect("a producer");
        let wait = Duration::from_secs(30);
        let send = |value: &str| {
            other.send(BaseRecord::<(), str>::to(&topic).partition(0).payload(value)).expect("enqueued");
            other.flush(wait).expect("written");
        };
        other.init_transactions(wait).expect("transactions");
        other.begin_transaction().expect("begun");
        send("aborted");
        other.abort_transaction(wait).expect("aborted");
        other.begin_transaction().expect("begun");
        send("committed");
        other.commit_transaction(wait).expect("committed");
        other.begin_transaction().expect("begun");
        send("open");
        other
    });
    let other = tokio::time::timeout(PATIENCE, written).await.expect("in time").expect("no panic");
    let read = tokio::time::timeout(PATIENCE, consumer.fetch(shard, 10, 1_000)).await.expect("in time");
    let values: Vec<_> = read.expect("a shard is read").into_iter().map(|r| (r.offset, r.value)).collect();
    assert_eq!(values, [(2, Some(Bytes::from_static(b"committed")))]);
    let end = consumer.end(shard).await.expect("the leader answers");
    assert_eq!(end.next, 4, "the end lies before the open transaction");
    consumer.close().await;
    tokio::task::spawn_blocking(move || drop(other)).await.expect("no panic");
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_brokers_everything_is_answered_in_bounded_time() {
    let mut options = Options::new("127.0.0.1:9", "nobody", "nobody");
    options.message_timeout = Duration::from_secs(1);
    let consumer = Arc::new(dueline::log::kafka::Consumer::start(options.clone()).expect("good options"));
    let producer = Producer::start(options).expect("good options");
    let good = || record(Target::Topic(Topic::Schedule), b"good");
    let (written, end, sought) =
        tokio::join!(producer.produce(good()), consumer.end(Shard(0)), consumer.seek(Shard(0), 0));
    assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
    assert!(matches!(end, Err(Error::Unavailable(_))), "{end:?}");
    assert!(matches!(sought, Err(Error::NotAssigned(_))), "{sought:?}");
    assert!(consumer.silent_ms() < 30_000);
    tokio::time::timeout(PATIENCE, consumer.close()).await.expect("closing is bounded");
    assert_eq!(consumer.assignment().await, None);
}
