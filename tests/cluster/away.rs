//! Servers that are away for a while: nothing is lost, nobody restarts anything.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::checker::{self, Order};
use crate::client::Client;
use crate::clock::{until, until_wall, wall_ms};
use crate::instance::Instance;
use crate::ledger::{Planned, Sent};
use crate::servers::{self, Turn};
use crate::site::{Site, Wanted, on_site};

const QUEUES: usize = 50;
/// A record every so often.
const EVERY_MS: i64 = 20;

/// How long a server is away.
fn away_ms() -> i64 {
    if std::env::var_os("DUELINE_LONG").is_some() { 60_000 } else { 20_000 }
}

/// A steady load: every task is due two seconds after it is sent, or later where its record had to wait.
fn load(from: i64, until: i64) -> Vec<Planned> {
    let tasks = (until - from) / EVERY_MS;
    let task = |n: i64| {
        let (at, queue) = (from + n * EVERY_MS, format!("q-{}", n as usize % QUEUES));
        Planned::schedule(at, &queue, &format!("t-{n}"), Some(at + 2_000), &format!(r#"{{"n":{n}}}"#))
    };
    (0..tasks).map(task).collect()
}

fn sending(site: &Arc<Site>, plan: Vec<Planned>) -> tokio::task::JoinHandle<Vec<Sent>> {
    let site = site.clone();
    tokio::spawn(async move { Client::ConfluentMurmur2.produce(&site, plan).await })
}

fn can_stop(name: &str) -> bool {
    if !servers::can_stop() {
        let said = "DUELINE_TEST_XTASK is not set; `cargo xtask test` sets it";
        writeln!(std::io::stderr(), "SKIPPED: {name}: {said}").expect("stderr");
    }
    servers::can_stop()
}

/// Why a task does not run, said by each instance while the store is away: by who has it in memory, and who does not.
async fn explained(instances: &[Instance], task: &str) -> Vec<serde_json::Value> {
    let http = reqwest::Client::builder().timeout(Duration::from_secs(15)).build().expect("a client");
    let mut said = Vec::new();
    for instance in instances {
        let answer = http.get(format!("{}/v1/tasks/{task}/explain", instance.url)).send().await;
        let answer = answer.expect("an answer while Cassandra is away");
        assert_eq!(answer.status(), 200);
        said.push(answer.json().await.expect("JSON"));
    }
    said.sort_by_key(|one: &serde_json::Value| one["state"].to_string());
    said
}

fn expect_running(instances: &mut [Instance]) {
    for instance in instances {
        assert!(instance.runs(), "{} ended", instance.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cassandra_away_for_a_while_loses_nothing() {
    if !can_stop("cassandra") {
        return;
    }
    on_site(Wanted::named("no_cassandra"), Turn::Alone, |site| async move {
        let mut instances = site.settled(&["first", "second"]).await;
        let start = wall_ms() + 1_000;
        // Due when all is over, and soon enough to be in memory.
        let due = start + away_ms() + 60_000;
        let kept = Planned::schedule(start, "kept", "t", Some(due), "{}");
        Client::ConfluentMurmur2.produce(&site, vec![kept]).await;
        let sent = sending(&site, load(start, start + away_ms() + 10_000));
        until("the load runs", 60, || site.sink.done() > 50).await;
        let away = servers::stop("cassandra").await;
        let (gone, ran) = (wall_ms(), site.sink.done());
        let said = explained(&instances, "kept/t").await;
        let codes = |n: usize| crate::walk::all(&said[n]["reasons"], "code");
        assert_eq!(
            (&said[0]["state"], &said[1]["state"]),
            (&"scheduled".into(), &"unknown".into()),
            "{said:?}"
        );
        assert!(codes(0)[0] == "store_unavailable" && codes(0).contains(&"not_due"), "{said:?}");
        assert!(codes(1)[0] == "store_unavailable" && codes(1).contains(&"not_known"), "{said:?}");
        until_wall(gone + away_ms()).await;
        expect_running(&mut instances);
        let during = site.sink.done() - ran;
        away.back().await;
        let sent = sent.await.expect("all is sent");
        assert!(sent.len() > ran + during, "records came in while Cassandra was away");
        until("everything has run", 120, || site.sink.done() >= sent.len()).await;
        expect_running(&mut instances);
        let calls: Vec<_> = site.sink.calls().into_iter().filter(|call| call.queue != "kept").collect();
        checker::check(&sent, &calls, Order::Kept).expect_clean();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_persisted_runs_while_kafka_is_away() {
    if !can_stop("kafka") {
        return;
    }
    on_site(Wanted::named("no_kafka"), Turn::Alone, |site| async move {
        let mut instances = site.settled(&["first", "second"]).await;
        // Persisted before, due while Kafka is away.
        let due = wall_ms() + 40_000;
        let persisted = (0..QUEUES * 4).map(|n| {
            let due = due + away_ms() * n as i64 / (QUEUES as i64 * 8);
            let queue = format!("kept-{}", n % QUEUES);
            Planned::schedule(0, &queue, &format!("t-{n}"), Some(due), &format!(r#"{{"n":{n}}}"#))
        });
        let now = (0..QUEUES).map(|n| Planned::schedule(0, &format!("kept-{n}"), "now", None, "{}"));
        let mut sent = Client::ConfluentMurmur2.produce(&site, persisted.chain(now).collect()).await;
        until("all was taken in", 40, || site.sink.done() == QUEUES).await;
        let load = sending(&site, load(wall_ms(), due + away_ms()));
        until("the load runs", 40, || site.sink.done_in("q-") > 0).await;
        let away = servers::stop("kafka").await;
        let gone = wall_ms();
        assert!(gone < due, "the machine is too slow for this test: tasks came due before Kafka was gone");
        until_wall(due + away_ms()).await;
        until("persisted tasks run while Kafka is away", 60, || site.sink.done_in("kept-") == QUEUES * 5)
            .await;
        expect_running(&mut instances);
        away.back().await;
        sent.extend(load.await.expect("all is sent"));
        until("everything has run", 120, || site.sink.done() >= sent.len()).await;
        expect_running(&mut instances);
        checker::check(&sent, &site.sink.calls(), Order::Kept).expect_clean();
    })
    .await;
}
