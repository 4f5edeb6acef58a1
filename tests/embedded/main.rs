//! The whole service on the embedded log and store, in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dueline::dispatch::in_process::{Context, Done, Failure, InProcess};
use dueline::dispatch::registry::{Kind, Resources, Route};
use dueline::dispatch::{Dispatch, Policy, Registry};
use dueline::log::embedded::EmbeddedLog;
use dueline::log::{Answer, Assignment, Consumer, End, Message, Producer, Record, Target, Topic};
use dueline::metrics::Metrics;
use dueline::model::{HandlerName, Shard, limits};
use dueline::runtime::{Options, Parts, Service};
use dueline::store::embedded::{Database, EmbeddedStore};
use dueline::store::{Cluster, Store};
use dueline::wire::event::{Handlers, Rules};
use futures::future::BoxFuture;
use tokio::sync::{Mutex as Turn, mpsc};

const SHARDS: u32 = 4;

type Ran = Arc<Mutex<Vec<(String, String)>>>;

struct Running {
    service: Service,
    producer: Arc<dyn Producer>,
    ran: Ran,
}

async fn start(dir: &std::path::Path) -> Running {
    start_with(dir, |consumer| consumer).await
}

async fn start_with(
    dir: &std::path::Path,
    wrap: impl FnOnce(Arc<dyn Consumer>) -> Arc<dyn Consumer>,
) -> Running {
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
        consumer: wrap(log.consumer().expect("one consumer")),
        producer: producer.clone(),
        events_producer: producer.clone(),
        registry: Arc::new(registry),
        metrics: Arc::new(Metrics::new(dueline::metrics::Options::default())),
        tracer: None,
        rules: Rules {
            payload_bytes_max: limits::PAYLOAD_BYTES_MAX,
            handlers: Arc::new(Handlers { names: ["note".to_owned()].into(), ..Handlers::default() }),
            signing_key: cluster.signing_key,
        },
        cluster,
        options: Options {
            instance: "test".into(),
            dc: "dc1".into(),
            advertise: String::new(),
            timing: dueline::engine::Timing { run_on_ms: 0, ..dueline::engine::Timing::default() },
            tasks_in_memory: limits::TASKS_IN_MEMORY,
            intake_bytes: limits::INTAKE_BYTES,
            events_bytes: limits::EVENTS_BYTES,
            ids_in_memory: limits::IDS_IN_MEMORY,
            task_events: false,
            dead_letters: false,
            history_ms: 86_400_000 * 30,
            collections: Arc::default(),
            group: "dueline".into(),
            look_ahead_ms: limits::LOOK_AHEAD_MS,
            ends_wait_ms: limits::ENDS_WAIT_MS,
            repeat_window_ms: limits::REPEAT_WINDOW_MS,
            prefix: "dueline".into(),
            sole_owner: true,
            static_member: false,
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

/// A group that takes shards and gives them back so fast that the reading side has done it before anyone is told.
struct Quick {
    inner: Arc<dyn Consumer>,
    changes: Turn<mpsc::UnboundedReceiver<Assignment>>,
}

impl Consumer for Quick {
    fn assignment(&self) -> BoxFuture<'_, Option<Assignment>> {
        Box::pin(async {
            let mut changes = self.changes.lock().await;
            tokio::select! {
                change = self.inner.assignment() => change,
                Some(change) = changes.recv() => Some(change),
            }
        })
    }

    fn seek(&self, shard: Shard, offset: u64) -> Answer<()> {
        self.inner.seek(shard, offset)
    }

    fn fetch(&self, shard: Shard, records_max: usize, bytes_max: usize) -> Answer<Vec<Record>> {
        self.inner.fetch(shard, records_max, bytes_max)
    }

    fn stop(&self, shard: Shard) {
        self.inner.stop(shard);
    }

    fn end(&self, shard: Shard) -> Answer<End> {
        self.inner.end(shard)
    }

    fn commit(&self, shard: Shard, next_offset: u64) {
        self.inner.commit(shard, next_offset);
    }

    fn leave(&self) {
        self.inner.leave();
    }

    fn join(&self) {
        self.inner.join();
    }

    fn silent_ms(&self) -> u64 {
        self.inner.silent_ms()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.inner.close()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_record_goes_to_a_fetch_from_before_a_shard_was_taken_and_given_back() {
    let dir = tempfile::tempdir().expect("dir");
    let (change, changes) = mpsc::unbounded_channel();
    let running =
        start_with(dir.path(), |inner| Arc::new(Quick { inner, changes: Turn::new(changes) })).await;
    let ran = running.ran.clone();
    schedule(&running.producer, "q", "before", "").await;
    until("the first task", || ran.lock().expect("lock").len() == 1).await;
    let all = || (0..SHARDS).map(Shard).collect::<Vec<Shard>>();
    change.send(Assignment::Revoked(all())).expect("the service listens");
    change.send(Assignment::Assigned(all())).expect("the service listens");
    let epochs = |engine: &dueline::engine::Engine| engine.shard_view(dueline::model::Boot(0));
    for shard in all() {
        let back = async || running.service.ask(shard, epochs).await.expect("an actor");
        while (back().await.epoch.0, back().await.phase) != (2, "running") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for task in 0..5 {
        schedule(&running.producer, "q", &format!("after-{task}"), "").await;
        until("the next task", || ran.lock().expect("lock").len() == 2 + task).await;
    }
    running.service.stop(Duration::from_secs(5)).await;
}
