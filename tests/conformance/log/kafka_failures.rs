//! A member whose client fails for good or hangs, on a real broker, with both group protocols.

use std::sync::Arc;

use dueline::log::kafka::{Consumer, Protocol};
use dueline::log::{Assignment, Consumer as _, Error};
use dueline::model::Shard;
use dueline::testing::log_conformance::group::{self, Member};
use dueline::testing::log_conformance::{Installation, soon};

use super::kafka::{Kafka, SHARDS, brokers};
use super::kafka_process::until;

const ALL: usize = SHARDS as usize;
const HALF: usize = ALL / 2;
/// A member whose thread is held up is at least so silent before it is let go, in milliseconds.
const SILENT_MS: u64 = 1_000;

/// A member that holds every shard and has read one record of each.
async fn reading(kafka: &Kafka) -> (Arc<Consumer>, Member) {
    // librdkafka raises fatal errors for static members and in the new protocol; another client that is made to fail
    // never ends.
    let id = (kafka.options.protocol == Protocol::Classic).then(|| "first".to_owned());
    let consumer = kafka.start(|options| options.group_instance = id);
    let mut member = Member::of(consumer.clone());
    group::settle(&mut [&mut member], &[ALL], SHARDS).await;
    group::write_one_each(&*kafka.producer(), SHARDS).await;
    read_all_from(&member, 0).await;
    (consumer, member)
}

async fn read_all_from(member: &Member, offset: u64) {
    for shard in &member.held {
        member.consumer.seek(*shard, offset).await.expect("a held shard is sought");
    }
    group::read_one_each(member).await;
}

/// Waits until the member is told that it lost some of its shards.
async fn loses(member: &mut Member) -> usize {
    let change = soon("it is told", member.consumer.assignment()).await;
    match change {
        Some(Assignment::Lost(shards)) => {
            for shard in &shards {
                assert!(member.held.remove(shard), "{shard:?} is lost by who has it");
            }
            shards.len()
        }
        other => panic!("lost, not {other:?}"),
    }
}

async fn fails(brokers: String, test: &str, protocol: Protocol) {
    // A client that failed does not leave: in the new protocol it is given up when its session ends.
    let kafka = Kafka::new(brokers, test).await.with_short_sessions(protocol).await;
    let (consumer, mut member) = reading(&kafka).await;
    let fetching = tokio::spawn(consumer.fetch(Shard(0), 1, 1));
    let begun = std::time::Instant::now();
    consumer.fail();
    assert_eq!(loses(&mut member).await, ALL, "everything is lost");
    let fetched = soon("a fetch ends", fetching).await.expect("no panic");
    assert!(matches!(fetched, Err(Error::NotAssigned(Shard(0)))), "{fetched:?}");
    group::settle(&mut [&mut member], &[ALL], SHARDS).await;
    eprintln!("{protocol:?}: assigned again {:?} after a fatal error", begun.elapsed());
    group::write_one_each(&*kafka.producer(), SHARDS).await;
    read_all_from(&member, 1).await;
    member.consumer.close().await;
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_fatal_error_reading_goes_on_where_it_was() {
    let Some(brokers) = brokers("after_a_fatal_error_reading_goes_on_where_it_was") else { return };
    fails(brokers, "fatal", Protocol::Classic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_fatal_error_in_the_new_protocol_reading_goes_on_where_it_was() {
    let Some(brokers) = brokers("after_a_fatal_error_in_the_new_protocol") else { return };
    fails(brokers, "fatal848", Protocol::Consumer).await;
}

/// The first fails just when it gives up what moves to the second.
async fn fails_in_a_rebalance(brokers: String, test: &str, protocol: Protocol) {
    // A client that failed does not leave: in the new protocol it is given up when its session ends.
    let kafka = Kafka::new(brokers, test).await.with_short_sessions(protocol).await;
    let (consumer, mut first) = reading(&kafka).await;
    consumer.fail_when_taken();
    let mut second = Member::join(&kafka, "second");
    while first.taken < ALL {
        soon("the first loses all shards", first.change()).await;
    }
    group::settle(&mut [&mut first, &mut second], &[HALF, HALF], SHARDS).await;
    group::write_one_each(&*kafka.producer(), SHARDS).await;
    for member in [&first, &second] {
        read_all_from(member, 1).await;
    }
    first.consumer.close().await;
    second.consumer.close().await;
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fatal_error_within_a_rebalance_leaves_no_shard_without_a_member() {
    let Some(brokers) = brokers("a_fatal_error_within_a_rebalance_leaves_no_shard_without_a_member") else {
        return;
    };
    fails_in_a_rebalance(brokers, "within", Protocol::Classic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fatal_error_within_a_rebalance_of_the_new_protocol_leaves_no_shard_without_a_member() {
    let Some(brokers) = brokers("a_fatal_error_within_a_rebalance_of_the_new_protocol") else { return };
    fails_in_a_rebalance(brokers, "within848", Protocol::Consumer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_thread_is_held_up_is_silent_until_it_goes_on() {
    let Some(brokers) = brokers("a_member_whose_thread_is_held_up_is_silent_until_it_goes_on") else {
        return;
    };
    let kafka = Kafka::new(brokers, "held").await;
    let (consumer, member) = reading(&kafka).await;
    let holding = consumer.hold();
    until("it falls silent", || consumer.silent_ms() >= SILENT_MS).await;
    drop(holding);
    until("it speaks again", || consumer.silent_ms() < SILENT_MS).await;
    group::write_one_each(&*kafka.producer(), SHARDS).await;
    group::read_one_each(&member).await;
    member.consumer.close().await;
    kafka.delete().await;
}
