//! Static membership on a real broker: who comes back under its id, who stops, and two with one id.

use std::io::Write;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use dueline::log::kafka::{Consumer, Options, Protocol};
use dueline::log::{Assignment, Consumer as _, Topic};
use dueline::testing::log_conformance::group::{self, Member};
use dueline::testing::log_conformance::{PATIENCE, soon};
use futures::FutureExt as _;

use super::kafka::{Kafka, SHARDS, brokers};
use super::kafka_process::{Process, until};

const ALL: usize = SHARDS as usize;
const HALF: usize = ALL / 2;
/// Far longer than a test waits for anything that must not take a session.
const LONG_SESSION: Duration = Duration::from_secs(300);
/// Far longer than what is polled all the time may be silent, on a busy machine.
const SILENT_MS_MAX: u64 = 10_000;
/// The waits before a client is made anew, until it has failed three times.
const GROWING: Duration = Duration::from_millis(500 + 1_000);

/// Warnings of this process.
static SAID: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Said;

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        SAID.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false);
        subscriber.with_writer(|| Said).init();
    });
}

/// Whether a warning about this installation has these words.
fn was_said(kafka: &Kafka, words: &[&str]) -> bool {
    let topic = Topic::Schedule.name(&kafka.options.prefix);
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&said)
        .lines()
        .any(|line| line.contains(&topic) && words.iter().all(|word| line.contains(word)))
}

fn with_id(kafka: &Kafka, id: &str) -> Arc<Consumer> {
    kafka.start(|options: &mut Options| {
        options.instance = id.to_owned();
        options.group_instance = Some(id.to_owned());
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_static_member_comes_back_to_its_shards_and_nobody_else_is_told() {
    let Some(brokers) = brokers("a_killed_static_member_comes_back_to_its_shards") else { return };
    let mut kafka = Kafka::new(brokers, "back").await;
    kafka.options.session_timeout = LONG_SESSION;
    let mut first = Member::of(with_id(&kafka, "first"));
    group::settle(&mut [&mut first], &[ALL], SHARDS).await;
    let other = Process::halving(&kafka, Some("other"), &mut first).await;
    let theirs = other.given();
    drop(other);
    let begun = Instant::now();
    let back = Process::start(&kafka, Some("other"));
    until("it has its shards again", || back.given().len() == HALF).await;
    eprintln!("a killed static member had its shards again after {:?}", begun.elapsed());
    assert_eq!(back.given(), theirs, "the same ones");
    assert_eq!(first.consumer.assignment().now_or_never(), None, "nobody else is told anything");
    first.consumer.close().await;
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_member_that_stops_gives_its_shards_away_at_once() {
    let Some(brokers) = brokers("a_static_member_that_stops_gives_its_shards_away_at_once") else { return };
    let mut kafka = Kafka::new(brokers, "stops").await;
    kafka.options.session_timeout = LONG_SESSION;
    let mut first = Member::of(with_id(&kafka, "first"));
    let mut second = Member::of(with_id(&kafka, "second"));
    group::settle(&mut [&mut first, &mut second], &[HALF, HALF], SHARDS).await;
    let begun = Instant::now();
    second.consumer.close().await;
    eprintln!("a static member stopped within {:?}", begun.elapsed());
    group::settle(&mut [&mut first], &[ALL], SHARDS).await;
    eprintln!("its shards were another's {:?} after it was asked to stop", begun.elapsed());
    let again = with_id(&kafka, "second");
    let mut again = Member::of(again);
    group::settle(&mut [&mut first, &mut again], &[HALF, HALF], SHARDS).await;
    first.consumer.close().await;
    again.consumer.close().await;
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_members_with_one_id_each_fences_the_other_ever_more_seldom() {
    let Some(brokers) = brokers("of_two_members_with_one_id_each_fences_the_other") else { return };
    listen();
    let kafka = Kafka::new(brokers, "fenced").await;
    let (first, second) = (with_id(&kafka, "one"), with_id(&kafka, "one"));
    let begun = Instant::now();
    let (mut lost, mut silent_ms_max) = (0, 0);
    while lost < 3 {
        let change = tokio::time::timeout(Duration::from_millis(100), first.assignment()).await;
        match change {
            Ok(Some(Assignment::Lost(_))) => lost += 1,
            Ok(Some(Assignment::Assigned(_))) | Err(_) => {}
            Ok(other) => panic!("who is fenced has lost its shards: {other:?}"),
        }
        silent_ms_max = silent_ms_max.max(first.silent_ms()).max(second.silent_ms());
        assert!(begun.elapsed() < PATIENCE, "fenced {lost} times only");
    }
    assert!(begun.elapsed() >= GROWING, "fenced three times within {:?}", begun.elapsed());
    assert!(silent_ms_max < SILENT_MS_MAX, "silent for {silent_ms_max} ms");
    eprintln!("fenced three times within {:?}, silent for {silent_ms_max} ms at most", begun.elapsed());
    assert!(was_said(&kafka, &["made anew", "kafka.group_instance", "give each instance its own"]));
    second.close().await;
    let mut first = Member::of(first);
    settle_from_anything(&mut first).await;
    first.consumer.close().await;
    kafka.delete().await;
}

/// Whoever is left has everything in the end, whatever it was told before.
async fn settle_from_anything(member: &mut Member) {
    let settled = async {
        while member.held.len() != ALL {
            match member.consumer.assignment().await {
                Some(Assignment::Assigned(shards)) => member.held.extend(shards),
                Some(Assignment::Revoked(shards) | Assignment::Lost(shards)) => {
                    member.held.retain(|shard| !shards.contains(shard));
                }
                None => panic!("the member was closed"),
            }
        }
    };
    soon("who is left has everything", settled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_new_protocol_the_second_with_an_id_waits_until_the_first_has_left() {
    let Some(brokers) = brokers("in_the_new_protocol_the_second_with_an_id_waits") else { return };
    listen();
    let mut kafka = Kafka::new(brokers, "taken").await;
    kafka.options.protocol = Protocol::Consumer;
    let mut first = Member::of(with_id(&kafka, "one"));
    group::settle(&mut [&mut first], &[ALL], SHARDS).await;
    let second = with_id(&kafka, "one");
    let words = ["made anew", "kafka.group_instance", "this passes by itself"];
    until("the cause is said", || was_said(&kafka, &words)).await;
    assert_eq!(first.consumer.assignment().now_or_never(), None, "who was there first is told nothing");
    assert!(second.silent_ms() < SILENT_MS_MAX);
    first.consumer.close().await;
    let mut second = Member::of(second);
    group::settle(&mut [&mut second], &[ALL], SHARDS).await;
    second.consumer.close().await;
    kafka.delete().await;
}
