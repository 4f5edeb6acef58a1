//! The whole service on the embedded log and store, asked to leave the group.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::*;
use crate::dispatch::Registry;
use crate::dispatch::registry::Resources;
use crate::engine::Timing;
use crate::log::embedded::{EmbeddedLog, Options as LogOptions};
use crate::metrics::{Metrics, Options as MetricsOptions};
use crate::model::{Change, Epoch, limits};
use crate::runtime::{Options, Parts, gates};
use crate::store::embedded::{Database, EmbeddedStore, Options as StoreOptions};
use crate::store::{Bump, Cluster, Store};
use crate::wire::event::{Handlers, Rules};

const SHARD: Shard = Shard(0);
/// A test waits so long for what has to come.
const SOON: Duration = Duration::from_secs(30);

/// A service that runs its one shard.
async fn running(dir: &Path) -> Service {
    let timing = Timing { run_on_ms: 0, ..Timing::default() };
    let service = started(dir, timing, None).await;
    phase(&service, "running").await;
    service
}

/// A service that starts, maybe after another took its shard.
async fn started(dir: &Path, timing: Timing, before: Option<Bump>) -> Service {
    let db = Database::open(&StoreOptions::at(dir)).expect("opens");
    let log = EmbeddedLog::open(&db, LogOptions::new("dueline", 1)).await.expect("opens");
    let store = std::sync::Arc::new(EmbeddedStore::new(&db));
    let cluster = Cluster {
        shards: 1,
        bucket_ms: limits::BUCKET_MS,
        subs: 1,
        hash: "murmur2".into(),
        signing_key: [7; 32],
    };
    let cluster = store.cluster(cluster).await.expect("cluster row");
    if let Some(bump) = before {
        assert!(store.bump(SHARD, bump).await.expect("the store answers"), "nobody had it");
    }
    let producer = log.producer();
    let resources = Resources { producer: producer.clone(), code: Default::default(), loopback_urls: None };
    let handlers = Handlers::default();
    let options = Options {
        instance: "test".into(),
        dc: "dc1".into(),
        advertise: String::new(),
        timing,
        tasks_in_memory: limits::TASKS_IN_MEMORY,
        intake_bytes: limits::INTAKE_BYTES,
        events_bytes: limits::EVENTS_BYTES,
        ids_in_memory: limits::IDS_IN_MEMORY,
        task_events: false,
        dead_letters: false,
        history_ms: 86_400_000 * 30,
        collections: Default::default(),
        group: "dueline".into(),
        look_ahead_ms: limits::LOOK_AHEAD_MS,
        ends_wait_ms: limits::ENDS_WAIT_MS,
        repeat_window_ms: limits::REPEAT_WINDOW_MS,
        prefix: "dueline".into(),
        sole_owner: true,
        static_member: false,
    };
    Service::start(Parts {
        store,
        consumer: log.consumer().expect("one consumer"),
        producer: producer.clone(),
        events_producer: producer,
        registry: Registry::build(Vec::new(), resources).expect("registry").into(),
        metrics: Metrics::new(MetricsOptions::default()).into(),
        tracer: None,
        rules: Rules {
            payload_bytes_max: limits::PAYLOAD_BYTES_MAX,
            handlers: handlers.into(),
            signing_key: cluster.signing_key,
        },
        cluster,
        options,
    })
}

/// Waits until the shard is in a phase.
async fn phase(service: &Service, wanted: &str) {
    let comes = async {
        let now = service.clock().now().boot;
        while service.ask(SHARD, move |engine| engine.shard_view(now).phase).await.unwrap_or("") != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, comes).await.unwrap_or_else(|_| panic!("not {wanted}"));
}

async fn epoch(service: &Service) -> Epoch {
    service.shared.store.owner(SHARD).await.expect("its row").epoch
}

#[tokio::test]
async fn one_that_was_drained_while_it_could_not_hear_of_it_does_not_join_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let service = running(dir.path()).await;
    // Nothing is heard of operations any more.
    let gates = service.tasks.lock().expect("lock").remove(2);
    gates.abort();
    let _ = gates.await;
    let change = Change::Drained(DrainPlace::Dc("dc1".into()));
    let drain =
        Operation { number: 1, id: 1, at: service.clock().now().wall, by: None, reason: None, change };
    assert!(service.shared.store.add_operation(drain).await.expect("the store answers"), "on record");
    let before = epoch(&service).await;

    service.shared.ask_rejoin(LeaveCause::Fenced);
    phase(&service, "idle").await;
    let asked = service.shared.gates.changed.notified();
    tokio::time::timeout(SOON, asked).await.expect("the drains are asked for before it joins");
    tokio::spawn(gates::follow(service.clone()));
    let drained = async {
        while !service.shared.metrics.encode().contains("dueline_instance_drained 1") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, drained).await.expect("it knows that it is drained");
    phase(&service, "idle").await;
    assert_eq!(epoch(&service).await, before, "it has not joined meanwhile");
    service.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn what_another_shard_asks_is_not_forgotten_when_the_instance_stays() {
    let dir = tempfile::tempdir().expect("a folder");
    let service = running(dir.path()).await;
    let before = epoch(&service).await;
    let (ask, asked) = mpsc::channel(2);
    // The store answers, so the instance stays for the first.
    ask.try_send(LeaveCause::StoreSilent).expect("room");
    ask.try_send(LeaveCause::Fenced).expect("room");
    let membership = tokio::spawn(keep(service.clone(), asked));
    phase(&service, "idle").await;
    phase(&service, "running").await;
    assert!(epoch(&service).await > before, "it has left and joined again");
    membership.abort();
    service.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_shard_on_its_way_to_an_instance_that_stops_arrives_before_it_is_given_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let timing = Timing { lease_ms: 1_000, verify_ms: 200, margin_ms: 200, run_on_ms: 1_000 };
    let before = Bump {
        expected: Epoch(0),
        owner: 1,
        lease_ms: timing.lease_ms,
        wait_ms: 0,
        instance: "before".into(),
        advertise: String::new(),
    };
    let service = started(dir.path(), timing, Some(before)).await;
    phase(&service, "waiting").await;
    let stopping = service.clone();
    let stops = tokio::spawn(async move { stopping.let_go().await });
    phase(&service, "running").await;
    stops.await.expect("it stops");
    let row = service.shared.store.owner(SHARD).await.expect("its row");
    assert_eq!((row.epoch, row.released_epoch, row.wait_ms), (Epoch(2), Epoch(2), 0), "let go in order");
    service.finish(Duration::ZERO).await;
}

#[tokio::test]
async fn an_instance_that_stops_takes_no_shard() {
    let dir = tempfile::tempdir().expect("a folder");
    let service = started(dir.path(), Timing::default(), None).await;
    // Before it has joined: the group gives it the shard afterwards.
    service.shared.stopping.store(true, Ordering::SeqCst);
    service.leave_group(Duration::ZERO).await;
    service.shared.consumer.join();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((service.shards(), epoch(&service).await), (Vec::new(), Epoch(0)));
    service.stop(Duration::ZERO).await;
}
