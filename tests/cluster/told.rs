//! Task events on a real broker: every change on record is there, in order, over the loss of an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::checker::{self, Order};
use crate::client::Client;
use crate::clock::{until, wall_ms};
use crate::ledger::{End, Planned};
use crate::servers::Turn;
use crate::site::{Site, Wanted, on_site};
use crate::topic::{self, Found};

const TASKS: usize = 400;
const QUEUES: usize = 20;

/// A task event as a consumer reads it.
pub(crate) struct Read {
    partition: i32,
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Read {
    /// A text of its data; empty when it is not there.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.data[name].as_str().unwrap_or_default()
    }
}

pub(crate) fn read(record: &Found) -> Read {
    let header = |name: &str| record.headers.get(name).cloned().unwrap_or_default();
    let data: Value = serde_json::from_slice(record.value.as_deref().expect("a value")).expect("JSON");
    let queue = data["queue"].as_str().expect("a queue").to_owned();
    let key = String::from_utf8_lossy(record.key.as_deref().expect("a key"));
    assert_eq!((&*key, &header("ce_partitionkey")), (&*queue, &queue));
    let kind = header("ce_type");
    let kind = kind.strip_prefix("dueline.task.").and_then(|kind| kind.strip_suffix(".v1"));
    let kind = kind.expect("a type of ours").to_owned();
    let id = format!("{} {}", header("ce_source"), header("ce_id"));
    Read { partition: record.partition, id, kind, data }
}

/// What is published, once there is an end for every task.
async fn published(site: &Site) -> Vec<Read> {
    let mut records = Vec::new();
    for _ in 0..20 {
        records = topic::read(site, "events").await.iter().map(read).collect();
        let over = |event: &&Read| matches!(event.kind.as_str(), "succeeded" | "cancelled");
        let over: BTreeSet<&str> = records.iter().filter(over).map(|event| event.id.as_str()).collect();
        if over.len() >= TASKS + QUEUES {
            break;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    records
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_is_published_in_order_over_the_loss_of_an_owner() {
    on_site(Wanted::named("told"), Turn::Shared, |site| async move {
        let mut instances = site.settled(&["first", "second"]).await;
        let due = wall_ms() + 2_000;
        let name = |n: usize| (format!("q-{}", n % QUEUES), format!("t-{n}"));
        let tasks = (0..TASKS).map(|n| {
            let (queue, id) = name(n);
            let payload = format!(r#"{{"n":{n},"fail":{}}}"#, usize::from(n % 10 == 0));
            Planned::schedule(0, &queue, &id, Some(due + 20 * n as i64), &payload)
        });
        let mut sent = Client::ConfluentMurmur2.produce(&site, tasks.collect()).await;
        let far =
            (0..QUEUES).map(|n| Planned::schedule(0, &format!("q-{n}"), "far", Some(due + 3_600_000), "{}"));
        sent.extend(Client::ConfluentMurmur2.produce(&site, far.collect()).await);
        let cancels = (0..QUEUES).map(|n| Planned::cancel(0, &format!("q-{n}"), "far"));
        sent.extend(Client::KcatMurmur2.produce(&site, cancels.collect()).await);
        until("half of them have run", 60, || site.sink.done() >= TASKS / 2).await;
        instances.remove(0).kill();
        until("all have run", 120, || site.sink.done() == TASKS).await;
        check(&published(&site).await, &site);
        checker::check(&sent, &site.sink.calls(), Order::Kept).expect_clean();
    })
    .await;
}

fn check(read: &[Read], site: &Site) {
    let mut partitions: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut of_task: BTreeMap<(String, String), Vec<&Read>> = BTreeMap::new();
    let mut again = 0;
    for event in read {
        let text = |name: &str| event.data[name].as_str().unwrap_or_default();
        partitions.entry(text("queue")).or_default().insert(event.partition);
        if seen.insert(&event.id) {
            of_task.entry((text("queue").into(), text("id").into())).or_default().push(event);
        } else {
            again += 1;
        }
    }
    eprintln!("{} task events, {again} of them again", read.len());
    assert!(partitions.values().all(|of| of.len() == 1), "a queue has one partition: {partitions:?}");
    assert_eq!(of_task.len(), TASKS + QUEUES, "every task is spoken of");
    let calls = site.sink.calls();
    for ((queue, id), events) in &of_task {
        let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds.first(), Some(&"scheduled"), "{queue}/{id}: {kinds:?}");
        if id == "far" {
            assert_eq!(kinds, ["scheduled", "cancelled"], "{queue}/{id}");
            continue;
        }
        assert_eq!(kinds.last(), Some(&"succeeded"), "{queue}/{id}: {kinds:?}");
        let failed = calls.iter().filter(|call| (&call.queue, &call.id) == (queue, id));
        let failed = failed.filter(|call| call.ended.is_some_and(|(_, end)| end == End::Failed)).count();
        let told = kinds.iter().filter(|kind| **kind == "failed").count();
        // One that was under way when its owner was killed ends without a word.
        assert!(told == failed || told + 1 == failed, "{queue}/{id}: {kinds:?} for {failed} failures");
        assert!(kinds.iter().filter(|kind| **kind == "started").count() > told, "{queue}/{id}: {kinds:?}");
    }
    // The starts of a queue come as its tasks ran.
    let mut last: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for event in read.iter().filter(|event| event.kind == "started" && seen.insert(&event.id)) {
        let number = |name: &str| event.data[name].as_u64().expect("a number");
        let (queue, at) =
            (event.data["queue"].as_str().unwrap_or_default(), (number("epoch"), number("sequence")));
        let before = last.insert(queue, at);
        assert!(before.is_none_or(|before| before < at), "{queue}: {at:?} behind {before:?}");
    }
}
