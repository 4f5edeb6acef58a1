//! The whole service on the embedded log and store, in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dueline::dispatch::in_process::{Context, Done, Failure, InProcess};
use dueline::dispatch::registry::{Kind, Resources, Route};
use dueline::dispatch::{Dispatch, Policy, Registry};
use dueline::log::embedded::EmbeddedLog;
use dueline::log::{Message, Producer, Target, Topic};
use dueline::metrics::Metrics;
use dueline::model::{HandlerName, limits};
use dueline::runtime::{Options, Parts, Service};
use dueline::store::embedded::{Database, EmbeddedStore};
use dueline::store::{Cluster, Store};
use dueline::wire::event::{Handlers, Rules};

const SHARDS: u32 = 4;

type Ran = Arc<Mutex<Vec<(String, String)>>>;

struct Running {
    service: Service,
    producer: Arc<dyn Producer>,
    ran: Ran,
}

async fn start(dir: &std::path::Path) -> Running {
    let db = Database::open(&dueline::store::embedded::Options::at(dir)).expect("opens");
    let log =
        EmbeddedLog::open(&db, dueline::log::embedded::Options::new("dueline", SHARDS)).await.expect("opens");
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new(&db));
    let cluster = Cluster {
        shards: SHARDS,
        bucket_ms: limits::BUCKET_MS,
        subs: 1,
        hash: "murmur2".into(),
        signing_key: [7; 32],
    };
    let cluster = store.cluster(cluster).await.expect("cluster row");
    let ran: Ran = Arc::default();
    let name = HandlerName::new("note").expect("a name");
    let noted = ran.clone();
    let handler = InProcess::new(move |context: Context| {
        let noted = noted.clone();
        async move {
            let call = &context.call;
            noted.lock().expect("lock").push((call.key.queue.to_string(), call.key.id.to_string()));
            if call.attempt == 1 && call.key.id.as_str().ends_with("-7") {
                return Err(Failure::Retryable("the seventh fails once".into()));
            }
            Ok(Done::Succeeded)
        }
    });
    let code: BTreeMap<HandlerName, Arc<dyn Dispatch>> =
        BTreeMap::from([(name.clone(), Arc::new(handler) as _)]);
    let routes = vec![Route { name, policy: Policy::default(), kind: Kind::InProcess }];
    let producer = log.producer();
    let resources = Resources { producer: producer.clone(), code, loopback_urls: None };
    let registry = Registry::build(routes, resources).expect("registry");
    let parts = Parts {
        store,
        consumer: log.consumer().expect("one consumer"),
        producer: producer.clone(),
        registry: Arc::new(registry),
        metrics: Arc::new(Metrics::new(dueline::metrics::Options::default())),
        rules: Rules {
            payload_bytes_max: limits::PAYLOAD_BYTES_MAX,
            handlers: Arc::new(Handlers { names: ["note".to_owned()].into(), loopback_urls: false }),
            signing_key: cluster.signing_key,
        },
        cluster,
        options: Options {
            instance: "test".into(),
            dc: "dc1".into(),
            advertise: String::new(),
            timing: dueline::engine::Timing::default(),
            tasks_in_memory: limits::TASKS_IN_MEMORY,
            intake_bytes: limits::INTAKE_BYTES,
            look_ahead_ms: limits::LOOK_AHEAD_MS,
            repeat_window_ms: limits::REPEAT_WINDOW_MS,
            prefix: "dueline".into(),
        },
    };
    Running { service: Service::start(parts), producer, ran }
}

async fn schedule(producer: &Arc<dyn Producer>, queue: &str, id: &str, extra: &str) {
    let event = format!(r#"{{"queue":"{queue}","id":"{id}","handler":"note"{extra}}}"#);
    let message = Message {
        target: Target::Topic(Topic::Schedule),
        partition: None,
        key: Some(Bytes::copy_from_slice(queue.as_bytes())),
        headers: Vec::new(),
        value: Some(Bytes::from(event)),
    };
    producer.produce(message).await.expect("produced");
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not within 20 s: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_run_in_order_and_a_retry_keeps_its_place() {
    let dir = tempfile::tempdir().expect("dir");
    let running = start(dir.path()).await;
    for task in 0..20 {
        for queue in 0..5 {
            schedule(&running.producer, &format!("q{queue}"), &format!("t-{task}"), "").await;
        }
    }
    let ran = running.ran.clone();
    until("105 calls", || ran.lock().expect("lock").len() >= 105).await;
    let calls = ran.lock().expect("lock").clone();
    for queue in 0..5 {
        let mine: Vec<_> =
            calls.iter().filter(|(q, _)| *q == format!("q{queue}")).map(|(_, id)| id.clone()).collect();
        let mut expected: Vec<String> = (0..20).map(|task| format!("t-{task}")).collect();
        expected.insert(8, "t-7".into());
        assert_eq!(mine, expected);
    }
    running.service.stop(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_before_a_stop_runs_after_it() {
    let dir = tempfile::tempdir().expect("dir");
    let first = start(dir.path()).await;
    schedule(&first.producer, "later", "a", r#","delay":"2s""#).await;
    schedule(&first.producer, "now", "b", "").await;
    let ran = first.ran.clone();
    until("b", || ran.lock().expect("lock").len() == 1).await;
    first.service.stop(Duration::from_secs(5)).await;
    drop(first);
    let second = start(dir.path()).await;
    let ran = second.ran.clone();
    until("a", || ran.lock().expect("lock").len() == 1).await;
    assert_eq!(ran.lock().expect("lock")[0], ("later".to_owned(), "a".to_owned()));
    second.service.stop(Duration::from_secs(5)).await;
}
