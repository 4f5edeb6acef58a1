//! The store port on a real Cassandra, named by `DUELINE_TEST_CASSANDRA=host:port` (`cargo xtask test` sets it).
//! Each test has a keyspace of its own and drops it afterwards.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use dueline::store::Error;
use dueline::store::cassandra::{Cassandra, Options, migrate};
use dueline::testing::store_conformance::{self, Run};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::Strategy;

/// A keyspace of its own on the server.
struct Keyspace {
    options: Options,
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

    async fn cql(&self, text: &str) {
        let text = text.replace("{ks}", &self.options.keyspace);
        let mut statement = scylla::statement::Statement::new(text.clone());
        statement.set_request_timeout(Some(std::time::Duration::from_secs(60)));
        self.session.query_unpaged(statement, ()).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    async fn migrate(&self) -> Vec<migrate::Step> {
        let mut steps = Vec::new();
        migrate::up(&self.options, "test", &mut |step| steps.push(step)).await.expect("migrations apply");
        steps
    }
}

/// Runs `test` in a keyspace that is dropped afterwards, also when it fails.
async fn in_keyspace<F: Future<Output = ()> + Send + 'static>(
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
