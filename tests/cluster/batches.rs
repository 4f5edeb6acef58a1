//! Batches on real servers: carried out by whoever owns their home shard, over the loss of that one.

use serde_json::{Value, json};

use crate::client::Client;
use crate::clock::{until, until_async, wall_ms};
use crate::instance::Instance;
use crate::ledger::Planned;
use crate::servers::Turn;
use crate::site::{Wanted, on_site};

const TASKS: usize = 240;
const HOUR_MS: i64 = 3_600_000;

async fn get(instance: &Instance, path: &str) -> Value {
    let answer = reqwest::get(format!("{}{path}", instance.url)).await.expect("an answer");
    answer.json().await.expect("JSON")
}

async fn post(instance: &Instance, path: &str, body: &Value) -> Value {
    let request = reqwest::Client::new().post(format!("{}{path}", instance.url)).json(body);
    request.send().await.expect("an answer").json().await.expect("JSON")
}

/// Begins a batch and waits until it is done.
pub(crate) async fn done(instance: &Instance, body: &Value) -> Value {
    let begun = post(instance, "/v1/batches", body).await;
    let path = format!("/v1/batches/{}", begun["id"].as_u64().expect("a number"));
    until_async("the batch is done", 60, || async { get(instance, &path).await["state"] == "done" }).await;
    get(instance, &path).await
}

/// Tasks of tomorrow are due today: each moves once, although the instance that moves them is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_goes_on_when_its_owner_is_killed_and_moves_each_task_once() {
    on_site(Wanted::named("batch"), Turn::Shared, |site| async move {
        let mut instances = site.settled(&["first", "second"]).await;
        let due = wall_ms() + HOUR_MS;
        let name = |n: usize| (format!("q-{}", n % 24), format!("t-{n}"));
        let tasks = (0..TASKS).map(|n| {
            let (queue, id) = name(n);
            Planned::schedule(0, &queue, &id, Some(due), r#"{"fail":0}"#)
        });
        Client::ConfluentMurmur2.produce(&site, tasks.collect()).await;
        let dry = json!({"verb": "cancel", "handler": "sink", "dry_run": true});
        until_async("all are stored", 30, || async { done(&instances[0], &dry).await["found"] == TASKS })
            .await;

        let shift = json!({"verb": "reschedule", "handler": "sink", "shift": "-1h", "rate": 30});
        let begun = post(&instances[0], "/v1/batches", &shift).await;
        let path = format!("/v1/batches/{}", begun["id"].as_u64().expect("a number"));
        let asked = |seen: &Value| seen["asked"].as_u64().expect("a count");
        until_async("some are asked", 30, || async { asked(&get(&instances[0], &path).await) >= 40 }).await;
        let before = get(&instances[0], &path).await;
        let runs_it = before["instance"].as_str().expect("a name").to_owned();
        let at = instances.iter().position(|instance| instance.name == runs_it).expect("one of the two");
        instances.remove(at).kill();
        let left = &instances[0];
        until_async("it is done", 90, || async { get(left, &path).await["state"] == "done" }).await;
        let seen = get(left, &path).await;
        assert_eq!((&seen["instance"], &seen["failed"]), (&json!(left.name), &json!(0)), "{seen}");
        // What was asked after the last word of the lost owner has moved, and is found by nobody any more.
        assert!(asked(&seen) > asked(&before), "{before} {seen}");

        until("all have run", 60, || site.sink.done() == TASKS).await;
        for n in 0..TASKS {
            let (queue, id) = name(n);
            let task = get(left, &format!("/v1/tasks/{queue}/{id}")).await;
            let moved = crate::clock::parse(task["due_at"].as_str().expect("a time"));
            assert_eq!(moved, due - HOUR_MS, "{id}: {task}");
        }
        let operations = get(left, "/v1/operations").await;
        assert_eq!(operations["operations"][0]["change"], "batch_begun");
    })
    .await;
}
