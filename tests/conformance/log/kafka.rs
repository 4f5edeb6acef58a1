//! An installation on a real broker: topics and group of its own for each test, deleted afterwards.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dueline::log::kafka::topics::{self, Plan};
use dueline::log::kafka::{Consumer, Options, Producer, Protocol};
use dueline::log::{self, Answer, Error};
use dueline::model::Shard;
use dueline::testing::log_conformance::{self as conformance, Installation};
use futures::FutureExt;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

pub(super) const SHARDS: u32 = 8;
/// Short enough for a test, long enough for a busy machine. Brokers allow 6 s and 45 s, unless told otherwise.
pub(super) const SESSION: Duration = Duration::from_secs(3);

/// The broker of the tests, or the news that there is none.
pub(super) fn brokers(test: &str) -> Option<String> {
    let brokers = std::env::var("DUELINE_TEST_KAFKA").ok().filter(|brokers| !brokers.is_empty());
    if brokers.is_none() {
        // Written past the test harness, which would keep it to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: DUELINE_TEST_KAFKA names no broker");
    }
    brokers
}

pub(super) struct Kafka {
    pub(super) options: Options,
    pub(super) admin: AdminClient<DefaultClientContext>,
}

impl Kafka {
    pub(super) async fn new(brokers: String, test: &str) -> Kafka {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_nanos();
        let prefix = format!("conformance-{test}-{}-{now}", std::process::id());
        let mut options = Options::new(brokers.clone(), prefix.clone(), test);
        options.prefix = prefix;
        let plan = Kafka::plan(&options);
        topics::create(&options, &plan).await.expect("the topics are created");
        let admin = ClientConfig::new().set("bootstrap.servers", brokers).create().expect("an admin client");
        Kafka { options, admin }
    }

    pub(super) fn plan(options: &Options) -> Plan {
        topics::plan(&topics::Wanted {
            prefix: options.prefix.clone(),
            partitions: SHARDS,
            replication_factor: 1,
            min_insync_replicas: 1,
            ..topics::Wanted::default()
        })
    }

    pub(super) async fn delete(self) {
        let topics: Vec<String> =
            log::Topic::ALL.iter().map(|topic| topic.name(&self.options.prefix)).collect();
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let deleted = self.admin.delete_topics(&names, &AdminOptions::new()).await;
        assert!(deleted.is_ok(), "{deleted:?}");
    }

    /// Sessions of [`SESSION`]: the classic protocol's are the client's, the new one's are the group's at the brokers.
    pub(super) async fn with_short_sessions(mut self, protocol: Protocol) -> Kafka {
        self.options.protocol = protocol;
        self.options.session_timeout = SESSION;
        if protocol == Protocol::Consumer {
            let session_ms = SESSION.as_millis().to_string();
            let change = AlterConfig::new(ResourceSpecifier::Group(&self.options.group))
                .set("consumer.session.timeout.ms", &session_ms)
                .set("consumer.heartbeat.interval.ms", "500");
            let changed = self.admin.alter_configs([&change], &AdminOptions::new()).await;
            let changed = changed.expect("the cluster answers");
            assert!(changed.iter().all(Result::is_ok), "{changed:?}");
        }
        self
    }

    pub(super) fn start(&self, change: impl FnOnce(&mut Options)) -> Arc<Consumer> {
        let mut options = self.options.clone();
        change(&mut options);
        Arc::new(Consumer::start(options).expect("good options"))
    }

    pub(super) fn consumer(&self, change: impl FnOnce(&mut Options)) -> Arc<dyn log::Consumer> {
        self.start(change)
    }
}

impl Installation for Kafka {
    fn shards(&self) -> u32 {
        SHARDS
    }

    fn member(&self, name: &str) -> Arc<dyn log::Consumer> {
        self.consumer(|options| options.instance = name.to_owned())
    }

    fn producer(&self) -> Arc<dyn log::Producer> {
        Arc::new(Producer::start(self.options.clone()).expect("good options"))
    }

    fn forget_below(&self, shard: Shard, offset: u64) -> Answer<bool> {
        let topic = log::Topic::Schedule.name(&self.options.prefix);
        let mut list = TopicPartitionList::new();
        let below = Offset::Offset(i64::try_from(offset).expect("small"));
        list.add_partition_offset(&topic, i32::try_from(shard.0).expect("small"), below).expect("an offset");
        let deleted = self.admin.delete_records(&list, &AdminOptions::new());
        async move {
            deleted.await.map_err(|error| Error::Unavailable(error.to_string()))?;
            Ok(true)
        }
        .boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_keeps_the_facts_of_one_member() {
    let Some(brokers) = brokers("kafka_keeps_the_facts_of_one_member") else { return };
    let kafka = Kafka::new(brokers, "one").await;
    conformance::check(&kafka).await;
    let member = Consumer::start_away(kafka.options.clone()).expect("a member");
    let end = log::Consumer::end(&member, Shard(0)).await.expect("the leader answers");
    assert!(end.leader_epoch.is_some(), "it says in which epoch it leads: {end:?}");
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_keeps_the_facts_of_a_group() {
    let Some(brokers) = brokers("kafka_keeps_the_facts_of_a_group") else { return };
    let kafka = Kafka::new(brokers, "group").await;
    conformance::group::check(&kafka).await;
    kafka.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_stopped_or_lost_is_fetched_no_more() {
    let Some(brokers) = brokers("a_shard_that_is_stopped_or_lost") else { return };
    let kafka = Kafka::new(brokers, "stops").await;
    let consumer = Arc::new(Consumer::start(kafka.options.clone()).expect("good options"));
    let mut member = conformance::group::Member::of(consumer.clone());
    let shards = kafka.shards() as usize;
    for ends_by_leaving in [true, false] {
        member.holds(shards).await;
        for shard in member.held.clone() {
            log::Consumer::seek(&*consumer, shard, 0).await.expect("a held shard is sought");
        }
        reads(&consumer, shards).await;
        let held = member.held.clone();
        match ends_by_leaving {
            true => {
                log::Consumer::leave(&*consumer);
                member.holds(0).await;
                assert_eq!(consumer.reads(), shards, "all are read on");
                held.iter().for_each(|shard| log::Consumer::stop(&*consumer, *shard));
                reads(&consumer, 0).await;
                log::Consumer::join(&*consumer);
            }
            false => {
                consumer.fail();
                member.holds(0).await;
                reads(&consumer, 0).await;
            }
        }
    }
    log::Consumer::close(&*consumer).await;
    kafka.delete().await;
}

/// Waits until the reading client has so many partitions.
async fn reads(consumer: &Consumer, count: usize) {
    let comes = async {
        while consumer.reads() != count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(conformance::PATIENCE, comes).await.expect("the reading client has them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_group_protocol_keeps_the_facts_of_one_member_and_of_a_group() {
    let Some(brokers) = brokers("the_new_group_protocol") else { return };
    let mut kafka = Kafka::new(brokers, "kip848").await;
    kafka.options.protocol = Protocol::Consumer;
    conformance::check(&kafka).await;
    conformance::group::check(&kafka).await;
    kafka.delete().await;
}
