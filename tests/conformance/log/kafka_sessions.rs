//! Members whose session ends at a real broker, with both group protocols: killed, and frozen until they are given up.

use std::time::Duration;

use dueline::log;
use dueline::log::kafka::Protocol;
use dueline::model::Shard;
use dueline::testing::log_conformance::group::{self, Member};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use rustix::process::Signal;

use super::kafka::{Kafka, SESSION, SHARDS, brokers};
use super::kafka_process::{COMMITTED, Process, until};

const ALL: usize = SHARDS as usize;
const HALF: usize = ALL / 2;
/// What who stays commits: more than the other did.
const FURTHER: u64 = 7;
/// How often a member is frozen before the test gives up seeing one of its commits refused.
const FREEZES: usize = 5;

/// A member that holds everything and another, in a process, that then takes half of it.
async fn halved(kafka: &Kafka) -> (Member, Process) {
    let mut first = Member::of(kafka.consumer(|options| options.instance = "first".into()));
    group::settle(&mut [&mut first], &[ALL], SHARDS).await;
    let other = Process::halving(kafka, None, &mut first).await;
    (first, other)
}

async fn killed(brokers: String, test: &str, protocol: Protocol) {
    let kafka = Kafka::new(brokers, test).await.with_short_sessions(protocol).await;
    let (mut first, other) = halved(&kafka).await;
    let begun = std::time::Instant::now();
    drop(other);
    group::settle(&mut [&mut first], &[ALL], SHARDS).await;
    eprintln!("{protocol:?}: all shards {:?} after a kill, session {SESSION:?}", begun.elapsed());
    assert_eq!(first.taken, HALF, "nothing more is taken from who stays");
    first.consumer.close().await;
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shards_of_a_killed_member_are_given_to_who_stays() {
    let Some(brokers) = brokers("the_shards_of_a_killed_member_are_given_to_who_stays") else { return };
    killed(brokers, "kill", Protocol::Classic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shards_of_a_member_killed_in_the_new_protocol_are_given_to_who_stays() {
    let Some(brokers) = brokers("the_shards_of_a_member_killed_in_the_new_protocol") else { return };
    killed(brokers, "kill848", Protocol::Consumer).await;
}

/// Asks a group what was committed.
struct Committed {
    client: BaseConsumer,
    topic: String,
}

impl Committed {
    fn of(kafka: &Kafka) -> Committed {
        let client = ClientConfig::new()
            .set("bootstrap.servers", &kafka.options.brokers)
            .set("group.id", &kafka.options.group)
            .create()
            .expect("a client");
        Committed { client, topic: log::Topic::Schedule.name(&kafka.options.prefix) }
    }

    /// The least that was committed for any of these shards; zero when there is none.
    fn least(&self, shards: &[Shard]) -> u64 {
        let mut list = TopicPartitionList::new();
        for shard in shards {
            list.add_partition(&self.topic, i32::try_from(shard.0).expect("small"));
        }
        let found =
            self.client.committed_offsets(list, Duration::from_secs(30)).expect("the cluster answers");
        let offsets = found.elements().into_iter().map(|element| match element.offset() {
            Offset::Offset(offset) => u64::try_from(offset).expect("a position"),
            _ => 0,
        });
        offsets.min().expect("some shard")
    }
}

/// Takes what a frozen member had, and commits further than that one did.
async fn take_over(first: &mut Member, committed: &Committed, theirs: &[Shard]) {
    group::settle(&mut [first], &[ALL], SHARDS).await;
    for shard in theirs {
        first.consumer.seek(*shard, 0).await.expect("a held shard is sought");
        first.consumer.commit(*shard, FURTHER);
    }
    until("who stays has committed", || committed.least(theirs) == FURTHER).await;
}

/// Whether a broker refused a commit of this process for being of an old generation.
fn was_refused(other: &Process) -> bool {
    ["Unknown member", "generation id is not valid", "member epoch is stale", "member epoch is fenced"]
        .iter()
        .any(|why| other.count(&["Offset commit (manual) failed", why]) > 0)
}

async fn frozen(brokers: String, test: &str, protocol: Protocol) {
    let kafka = Kafka::new(brokers, test).await.with_short_sessions(protocol).await;
    let committed = Committed::of(&kafka);
    for _ in 0..FREEZES {
        let (mut first, other) = halved(&kafka).await;
        let theirs: Vec<Shard> = other.given().into_iter().collect();
        until("the other has committed", || committed.least(&theirs) >= COMMITTED).await;
        other.signal(Signal::STOP);
        take_over(&mut first, &committed, &theirs).await;
        other.signal(Signal::CONT);
        until("the sleeper is told", || other.count(&["taken"]) > 0).await;
        first.holds(HALF).await;
        assert_eq!(committed.least(&theirs), FURTHER, "what was committed never goes back");
        let refused = was_refused(&other);
        first.consumer.close().await;
        if refused {
            kafka.delete().await;
            return;
        }
    }
    panic!("{FREEZES} frozen members woke without a commit under way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_an_old_generation_changes_nothing() {
    let Some(brokers) = brokers("a_commit_of_an_old_generation_changes_nothing") else { return };
    frozen(brokers, "frozen", Protocol::Classic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_an_old_epoch_of_the_new_protocol_changes_nothing() {
    let Some(brokers) = brokers("a_commit_of_an_old_epoch_of_the_new_protocol_changes_nothing") else {
        return;
    };
    frozen(brokers, "frozen848", Protocol::Consumer).await;
}
