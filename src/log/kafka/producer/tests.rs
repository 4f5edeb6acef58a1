//! The producer on the mock cluster of the client library.

use bytes::Bytes;
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::*;
use crate::log::Producer as _;

/// A cluster inside the process with the topic of schedule events.
fn cluster() -> MockCluster<'static, rdkafka::producer::DefaultProducerContext> {
    let cluster = MockCluster::new(1).expect("a cluster inside the process");
    cluster.create_topic("dueline.schedule", 2, 1).expect("a topic");
    cluster
}

/// Far longer than a record takes on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

fn producer(brokers: String, message_timeout: Duration) -> Producer {
    let mut options = Options::new(brokers, "group", "instance");
    options.message_timeout = message_timeout;
    Producer::start(options).expect("good options")
}

fn record(number: usize) -> Message {
    let value = Some(Bytes::from(number.to_string()));
    let target = Target::Topic(Topic::Schedule);
    Message { target, partition: Some(0), key: None, headers: Vec::new(), value }
}

/// Writes records in one go.
async fn write(producer: &Producer, count: usize) -> Vec<Result<Written, Error>> {
    producer.produce_all((0..count).map(record).collect()).await
}

/// Writes records in one go, again until the first is written: then all have to be. Gives their offsets.
async fn until_written(producer: &Producer) -> Vec<u64> {
    let mut answers = write(producer, 10).await;
    while answers[0].is_err() {
        // Writing may be taken up again in the midst of them; what failed stands before what is written.
        assert!(answers.is_sorted_by_key(Result::is_ok), "{answers:?}");
        tokio::time::sleep(Duration::from_millis(QUIET_MS)).await;
        answers = write(producer, 10).await;
    }
    let offset =
        |answer: Result<Written, Error>| answer.expect("all are written").offset.expect("at the first try");
    answers.into_iter().map(offset).collect()
}

#[tokio::test]
async fn none_is_written_behind_a_record_that_failed_and_writing_goes_on_afterwards() {
    let cluster = cluster();
    let producer = producer(cluster.bootstrap_servers(), Duration::from_secs(1));
    until_written(&producer).await;
    cluster.broker_down(1).expect("a broker");
    for answer in write(&producer, 10).await {
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    }
    cluster.broker_up(1).expect("a broker");
    let offsets = until_written(&producer).await;
    assert!(offsets.is_sorted(), "{offsets:?}");
}

#[tokio::test]
async fn a_record_that_the_broker_refuses_is_refused_and_the_producer_stays() {
    let cluster = cluster();
    let producer = producer(cluster.bootstrap_servers(), PATIENT);
    assert!(write(&producer, 1).await[0].is_ok());
    let errors = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD];
    cluster.request_errors(RDKafkaApiKey::Produce, &errors);
    let refused = write(&producer, 1).await;
    assert!(matches!(refused[0], Err(Error::Refused(_))), "{refused:?}");
    let next = write(&producer, 1).await;
    assert!(next[0].is_ok(), "at once, nothing is made anew: {next:?}");
}

#[tokio::test]
async fn a_flush_waits_for_every_answer() {
    let cluster = cluster();
    let producer = producer(cluster.bootstrap_servers(), PATIENT);
    let mut answers: Vec<_> = (0..100).map(|number| producer.produce(record(number))).collect();
    producer.flush(30_000).await;
    for answer in &mut answers {
        assert!(matches!(futures::poll!(answer), std::task::Poll::Ready(Ok(_))));
    }
}

#[tokio::test]
async fn what_was_not_sent_is_given_up_and_never_written() {
    let cluster = cluster();
    let mut options = Options::new(cluster.bootstrap_servers(), "group", "instance");
    options.message_timeout = PATIENT;
    let producer = Producer::for_handlers(options, PATIENT).expect("good options");
    let before = until_written(&producer).await;
    cluster.broker_down(1).expect("a broker");
    let waiting = producer.produce(record(99));
    producer.purge();
    assert!(matches!(waiting.await, Err(Error::Unavailable(_))));
    cluster.broker_up(1).expect("a broker");
    let after = until_written(&producer).await;
    assert!(after[0] > before[9]);
}
