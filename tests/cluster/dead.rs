//! Dead letters on real servers: listed by any instance, redriven by a record of any Kafka client, over a loss of the owner.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::batches;
use crate::checker::{self, Order};
use crate::client::Client;
use crate::clock::{until, until_async};
use crate::instance::Instance;
use crate::ledger::Planned;
use crate::servers::Turn;
use crate::site::{Site, Wanted, on_site};
use crate::topic::{self, Found};

const TASKS: usize = 60;

/// The ids of all dead letters, in their order, over pages of seven.
async fn dead(instance: &Instance) -> Vec<String> {
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let url = format!("{}/v1/dead-letters?page_size=7{token}", instance.url);
        let Ok(answer) = reqwest::get(url).await else { return found };
        let page: Value = answer.json().await.expect("JSON");
        let letters = page["dead_letters"].as_array().cloned().unwrap_or_default();
        found.extend(letters.iter().map(|letter| letter["id"].as_str().expect("an id").to_owned()));
        let Some(next) = page["next_page_token"].as_str() else { return found };
        token = format!("&page_token={next}");
    }
}

/// Every tenth is stored apart from its task.
fn payload(n: usize) -> String {
    let pad = if n.is_multiple_of(10) { "x".repeat(20_000) } else { String::new() };
    format!(r#"{{"fail":1,"pad":"{pad}"}}"#)
}

/// The records of the dead topic by the id of their event.
async fn records(site: &Site) -> BTreeMap<String, Found> {
    let records = topic::read(site, "dead").await;
    records.into_iter().map(|record| (record.headers["dueline-event-id"].clone(), record)).collect()
}

fn check(records: &BTreeMap<String, Found>) {
    for record in records.values() {
        let header = |name: &str| record.headers[name].as_str();
        let n: usize = header("dueline-task-id")["t-".len()..].parse().expect("a number");
        assert_eq!(record.value.as_deref(), Some(payload(n).as_bytes()), "t-{n}: as it was sent");
        assert_eq!(record.key.as_deref(), Some(header("dueline-queue").as_bytes()));
        assert_eq!((header("dueline-reason"), header("dueline-failures")), ("exhausted", "1"));
        assert!(header("__connect.errors.exception.message").contains("503"));
        assert!(header("__connect.errors.topic").ends_with(".schedule"));
        assert_eq!(header("kafka_dlt-original-topic"), header("__connect.errors.topic"));
        let offset: u64 = header("__connect.errors.offset").parse().expect("a number");
        assert!(offset < 1_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_are_listed_by_any_instance_and_run_again_after_their_owner_is_lost() {
    on_site(Wanted::named("dead"), Turn::Shared, |site| async move {
        let mut instances = site.settled(&["first", "second"]).await;
        let name = |n: usize| (format!("q-{}", n % 12), format!("t-{n}"));
        let tasks = (0..TASKS).map(|n| {
            let (queue, id) = name(n);
            Planned::fragile(0, &queue, &id, &payload(n))
        });
        let mut sent = Client::ConfluentMurmur2.produce(&site, tasks.collect()).await;
        until_async("all are dead", 60, || async { dead(&instances[1]).await.len() == TASKS }).await;
        let listed = dead(&instances[0]).await;
        assert_eq!(listed, dead(&instances[1]).await, "whoever is asked");
        assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), TASKS);
        until_async("each has a record", 30, || async { records(&site).await.len() == TASKS }).await;
        check(&records(&site).await);
        instances.remove(0).kill();
        let half = (0..TASKS).filter(|n| n.is_multiple_of(2)).map(|n| {
            let (queue, id) = name(n);
            Planned::redrive(0, &queue, &id, r#"{"fail":0}"#)
        });
        sent.extend(Client::KcatMurmur2.produce(&site, half.collect()).await);
        until("half of them have run again", 90, || site.sink.done() == TASKS / 2).await;
        until_async("and are dead no more", 30, || async { dead(&instances[0]).await.len() == TASKS / 2 })
            .await;
        let odd = |id: &String| id["t-".len()..].parse::<usize>().is_ok_and(|n| n % 2 == 1);
        assert!(dead(&instances[0]).await.iter().all(odd));
        let purged = batches::done(&instances[0], &json!({"verb": "purge", "handler": "sink"})).await;
        assert_eq!((purged["found"].as_u64(), &purged["failed"]), (Some(TASKS as u64 / 2), &json!(0)));
        assert_eq!(dead(&instances[0]).await, Vec::<String>::new());
        let calls = site.sink.calls();
        assert_eq!(
            calls.iter().filter(|call| call.attempt == 1).count(),
            calls.len(),
            "each had one attempt"
        );
        checker::check(&sent, &calls, Order::Kept).expect_clean();
    })
    .await;
}
