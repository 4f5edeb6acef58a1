//! The store port on a real Cassandra, named by `DUELINE_TEST_CASSANDRA=host:port` (`cargo xtask test` sets it).
//! Each test has a keyspace of its own and drops it afterwards.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use dueline::model::{
    CloseReason, Decision, Epoch, EventRow, Fact, FactRow, PayloadRow, Place, QueueName, Row, Shard, TaskId,
    TaskKey, Version, Wall,
};
use dueline::store::cassandra::{Cassandra, Options, facts, migrate};
use dueline::store::{Error, Store};
use dueline::testing::store_conformance::{self, Run};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::Strategy;

/// A keyspace of its own on the server.
pub(crate) struct Keyspace {
    pub(crate) options: Options,
    session: Session,
}

impl Keyspace {
    /// The options for a keyspace that does not exist yet; `None`, said loudly, when there is no server.
    async fn named(name: &str) -> Option<Keyspace> {
        let Ok(node) = std::env::var("DUELINE_TEST_CASSANDRA") else {
            eprintln!("SKIPPED: {name}: DUELINE_TEST_CASSANDRA is not set; `cargo xtask test` sets it");
            return None;
        };
        let session =
            SessionBuilder::new().known_node(&node).build().await.expect("the server named answers");
        let dc = session.get_cluster_state().get_nodes_info()[0]
            .datacenter
            .clone()
            .expect("a node has a data centre");
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let mut options = Options::new(vec![node], &format!("dlt_{name}_{}", &unique[..12]), &dc);
        options.replication = BTreeMap::from([(dc, 1)]);
        Some(Keyspace { options, session })
    }

    pub(crate) async fn cql(&self, text: &str) {
        let text = text.replace("{ks}", &self.options.keyspace);
        let mut statement = scylla::statement::Statement::new(text.clone());
        statement.set_request_timeout(Some(std::time::Duration::from_secs(60)));
        self.session.query_unpaged(statement, ()).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    /// Rows of a table.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        let text = format!("SELECT COUNT(*) FROM {}.{table}", self.options.keyspace);
        let answer = self.session.query_unpaged(text, ()).await.expect("it answers");
        let (count,) = answer.into_rows_result().expect("rows").single_row::<(i64,)>().expect("a number");
        count
    }

    pub(crate) async fn migrate(&self) -> Vec<migrate::Step> {
        let mut steps = Vec::new();
        migrate::up(&self.options, "test", &mut |step| steps.push(step)).await.expect("migrations apply");
        steps
    }
}

/// Runs `test` in a keyspace that is dropped afterwards, also when it fails.
pub(crate) async fn in_keyspace<F: Future<Output = ()> + Send + 'static>(
    name: &str,
    test: impl FnOnce(Arc<Keyspace>) -> F,
) {
    let Some(keyspace) = Keyspace::named(name).await else { return };
    let keyspace = Arc::new(keyspace);
    let result = tokio::spawn(test(keyspace.clone())).await;
    keyspace.cql("DROP KEYSPACE IF EXISTS {ks}").await;
    if let Err(failure) = result {
        std::panic::resume_unwind(failure.into_panic());
    }
}

async fn suite(name: &str, subs: u32) {
    in_keyspace(name, move |keyspace| async move {
        keyspace.migrate().await;
        let store: Arc<Cassandra> =
            Arc::new(Cassandra::connect(&keyspace.options).await.expect("it connects"));
        let started = std::time::Instant::now();
        // Twice: a store that already holds rows keeps its promises too.
        for number in [1, 2] {
            store_conformance::check(store.clone(), Run::new(number, subs), |name| {
                eprintln!("{:6.2} s  {name}", started.elapsed().as_secs_f64());
            })
            .await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cassandra_keeps_every_promise_of_the_store_port() {
    suite("one_sub", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cassandra_keeps_every_promise_with_four_partitions_per_bucket() {
    suite("four_subs", 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_runners_each_migration_is_applied_by_one() {
    in_keyspace("migrate", |keyspace| async move {
        let planned = migrate::plan(&keyspace.options).await.expect("a plan");
        assert!(planned[0].starts_with("CREATE KEYSPACE"), "{planned:?}");
        assert!(planned.iter().any(|text| text.contains("task_event")), "{planned:?}");
        assert!(matches!(Cassandra::connect(&keyspace.options).await, Err(Error::Misconfigured(_))));
        let runs = (0..3).map(|_| {
            let keyspace = keyspace.clone();
            tokio::spawn(async move { keyspace.migrate().await })
        });
        let steps = futures::future::join_all(runs).await;
        let applied: Vec<_> = steps
            .into_iter()
            .flat_map(|steps| steps.expect("no panic"))
            .filter(|step| matches!(step, migrate::Step::Applied { version: 1, .. }))
            .collect();
        assert_eq!(applied.len(), 1, "{applied:?}");
        let status = migrate::status(&keyspace.options).await.expect("a status");
        assert_eq!(status.pending().count(), 0);
        assert_eq!(migrate::plan(&keyspace.options).await.expect("a plan"), Vec::<String>::new());
        assert_eq!(keyspace.migrate().await, Vec::new());
        Cassandra::connect(&keyspace.options).await.expect("it connects");
        keyspace.cql("UPDATE {ks}.schema_migration SET checksum = 'other' WHERE version = 1").await;
        assert!(matches!(
            migrate::up(&keyspace.options, "t", &mut |_| ()).await,
            Err(Error::Misconfigured(_))
        ));
        assert!(matches!(Cassandra::connect(&keyspace.options).await, Err(Error::Misconfigured(_))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replication_is_told_and_never_changed() {
    in_keyspace("replication", |keyspace| async move {
        keyspace.migrate().await;
        let mut options = keyspace.options.clone();
        let dc = options.local_dc.clone();
        options.replication.insert(dc.clone(), 3);
        let mut steps = Vec::new();
        migrate::up(&options, "test", &mut |step| steps.push(step)).await.expect("nothing to do");
        assert!(matches!(&steps[..], [migrate::Step::ReplicationDiffers { .. }]), "{steps:?}");
        let replication =
            Cassandra::connect(&options).await.expect("it connects").replication().expect("known");
        assert_eq!(replication.strategy, "NetworkTopologyStrategy");
        assert_eq!(replication.factors, BTreeMap::from([(dc.clone(), 1)]));
        assert!(replication.nodes[&dc] >= 1, "{replication:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_tells_about_itself_and_who_has_copies_is_known() {
    in_keyspace("facts", |keyspace| async move {
        let fresh = facts::read(&keyspace.options).await.expect("it answers");
        assert!(fresh.replication.is_none() && fresh.copies.sets.is_empty(), "{fresh:?}");
        keyspace.migrate().await;
        let found = facts::read(&keyspace.options).await.expect("it answers");
        let told = found.told[0].as_ref().expect("the node answers");
        let settings = told.settings.as_ref().expect("told");
        for name in
            ["paxos_variant", "commitlog_sync", "commitlog_sync_period", "read_consistency_levels_disallowed"]
        {
            assert!(settings.contains_key(name), "{name}: {settings:?}");
        }
        assert!(
            !told.version.is_empty() && told.clock_offset_ms.abs() < 1_000,
            "one machine, one clock: {told:?}"
        );
        assert!(found.copies.nodes.iter().all(|node| node.is_up), "{:?}", found.copies);
        assert_eq!((found.copies.quorum, found.copies.sets), (1, [vec![0]].into()));
        let migrations = found.migrations.expect("read");
        assert!(
            migrations.iter().all(|one| matches!(one.state, migrate::State::Applied { .. })),
            "{migrations:?}"
        );
        assert_eq!((found.shards, found.instances), (Ok(None), Ok(Vec::new())), "nobody has started yet");
        let store = Cassandra::connect(&keyspace.options).await.expect("it connects");
        assert_eq!(store.copies().sets, [vec![0]].into(), "as the driver has it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simple_strategy_is_refused() {
    in_keyspace("simple", |keyspace| async move {
        keyspace
            .cql("CREATE KEYSPACE {ks} WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            .await;
        for error in [
            migrate::up(&keyspace.options, "t", &mut |_| ()).await.map(drop).expect_err("refused"),
            Cassandra::connect(&keyspace.options).await.map(drop).expect_err("refused"),
        ] {
            assert!(matches!(&error, Error::Misconfigured(why) if why.contains("SimpleStrategy")), "{error}");
        }
        let found = keyspace.session.get_cluster_state();
        let found = found.get_keyspace(&keyspace.options.keyspace).map(|found| found.strategy.clone());
        assert!(matches!(found, None | Some(Strategy::SimpleStrategy { .. })), "{found:?}");
    })
    .await;
}

/// A store in a fresh keyspace, with a row of each table that writes go to.
async fn store_of(keyspace: &Keyspace) -> (Cassandra, Vec<Row>) {
    keyspace.migrate().await;
    let store = Cassandra::connect(&keyspace.options).await.expect("it connects");
    store.cluster(Run::new(1, 1).cluster).await.expect("a cluster row");
    let key = TaskKey { queue: QueueName::new("q").expect("legal"), id: TaskId::new("t").expect("legal") };
    let place = Place { ready_at: Wall(1_900_000_000_000), version: Version(5) };
    let fact = |seq| Fact::Closed { epoch: Epoch(1), seq, at: place.ready_at, reason: CloseReason::Expired };
    let mut rows: Vec<Row> =
        (0..20).map(|seq| Row::Fact(FactRow { shard: Shard(1), place, fact: fact(seq) })).collect();
    rows.push(Row::Event(event_of(&key)));
    rows.push(Row::Payload(PayloadRow { shard: Shard(1), place, bytes: Arc::from(&b"{}"[..]) }));
    (store, rows)
}

pub(crate) fn event_of(key: &TaskKey) -> EventRow {
    EventRow {
        key: key.clone(),
        version: Version(5),
        epoch: Epoch(1),
        shard: Shard(1),
        verb: Arc::from("cancel"),
        content_hash: [1; 16],
        event_id_hash: None,
        appended: Wall(1_900_000_000_000),
        decision: Decision::Unknown,
        current: None,
        cancel_remembered: None,
        reason: None,
        is_first: false,
        is_listed: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_the_store_refuses_is_named_while_it_takes_others() {
    in_keyspace("refused", |keyspace| async move {
        let (store, mut rows) = store_of(&keyspace).await;
        store.write(Arc::from(rows.clone())).await.expect("ordinary rows are taken");
        // Nothing the product writes is so large; a reason of this size stands for whatever a store may refuse.
        let mut large = event_of(&TaskKey {
            queue: QueueName::new("q").expect("legal"),
            id: TaskId::new("large").expect("legal"),
        });
        large.reason = Some("x".repeat(REFUSED_BYTES));
        rows.insert(3, Row::Event(large));
        let answer = store.write(Arc::from(rows)).await;
        assert!(matches!(&answer, Err(Error::RowRefused { index: 3, .. })), "{answer:.300?}");
    })
    .await;
}

/// More than the server takes in one request, with the limits it has by default.
const REFUSED_BYTES: usize = 17 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_gone_is_misconfigured_and_no_row_is_blamed() {
    in_keyspace("gone", |keyspace| async move {
        let (store, rows) = store_of(&keyspace).await;
        keyspace.cql("DROP TABLE {ks}.task_event").await;
        let answer = store.write(Arc::from(rows)).await;
        assert!(matches!(&answer, Err(Error::Misconfigured(_))), "{answer:?}");
        let again = Cassandra::connect(&keyspace.options).await.map(drop);
        assert!(matches!(&again, Err(Error::Misconfigured(_))), "{again:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_unavailable() {
    let mut options = Options::new(vec!["127.0.0.1:1".into()], "dueline", "dc1");
    options.request_timeout = std::time::Duration::from_millis(500);
    let answer = Cassandra::connect(&options).await.map(drop);
    assert!(matches!(&answer, Err(Error::Unavailable(_))), "{answer:?}");
}
