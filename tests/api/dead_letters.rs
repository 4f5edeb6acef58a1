//! Dead letters: listed newest first, shown with every attempt, redriven one by one and many, and gone from the list then.

use reqwest::Method;
use serde_json::json;

use super::dev::Dev;
use super::sink::Sink;

async fn started() -> (tempfile::TempDir, Dev) {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    (dir, dev)
}

/// Nobody listens there.
const DOWN: &str = "http://127.0.0.1:9/";

fn doomed(queue: &str, id: &str, collection: &str) -> serde_json::Value {
    let retry = json!({"max_attempts": 1});
    json!({"queue": queue, "id": id, "handler": DOWN, "collection": collection, "payload": {"n": 1.50}, "retry": retry})
}

async fn dead(dev: &Dev, query: &str) -> Vec<String> {
    paged(dev, 3, query).await
}

async fn paged(dev: &Dev, size: usize, query: &str) -> Vec<String> {
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let page = dev.get(&format!("/v1/dead-letters?page_size={size}{query}{token}")).await.json;
        let ids = page["dead_letters"].as_array().expect("a list").iter();
        found.extend(ids.map(|letter| letter["id"].as_str().expect("an id").to_owned()));
        let Some(next) = page["next_page_token"].as_str() else { return found };
        assert!(found.len() < 1_000, "the list goes on and on: {found:?}");
        token = format!("&page_token={next}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_are_listed_newest_first_by_filter_and_page() {
    let (_dir, dev) = started().await;
    for n in 0..10 {
        let (queue, id) = (format!("q{}", n % 4), format!("t{n}"));
        let collection = if n % 2 == 0 { "even" } else { "odd" };
        assert_eq!(dev.post("/v1/tasks", &doomed(&queue, &id, collection)).await.status, 201);
        dev.task_in("dead", &queue, &id).await;
    }
    let all: Vec<String> = (0..10).rev().map(|n| format!("t{n}")).collect();
    assert_eq!(dead(&dev, "").await, all);
    assert_eq!(dead(&dev, "&collection=odd").await, ["t9", "t7", "t5", "t3", "t1"]);
    assert_eq!(dead(&dev, "&queue=q1").await, ["t9", "t5", "t1"]);
    assert_eq!(dead(&dev, "&reason=fatal").await, Vec::<String>::new());
    let letter = &dev.get("/v1/dead-letters?queue=q1").await.json["dead_letters"][0];
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("exhausted"), &json!(1)), "{letter}");
    assert!(letter["error"].as_str().is_some_and(|error| !error.is_empty()), "{letter}");
    for wrong in ["reason=sick", "page_token=1.2", "from=yesterday", "state=dead"] {
        assert_eq!(dev.get(&format!("/v1/dead-letters?{wrong}")).await.status, 400, "{wrong}");
    }
}

/// Many die in one millisecond, with the same versions in several shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_goes_on_exactly_where_the_one_before_ended() {
    let (_dir, dev) = started().await;
    let ids: Vec<String> = (0..150).map(|n| format!("t{n:03}")).collect();
    let due_at = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3)).to_string();
    for id in &ids {
        let mut task = doomed(&format!("q-{id}"), id, "c");
        task["due_at"] = json!(due_at);
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    for id in &ids {
        dev.task_in("dead", &format!("q-{id}"), id).await;
    }
    for size in [1, 7] {
        let mut listed = paged(&dev, size, "").await;
        listed.sort();
        assert_eq!(listed, ids, "in pages of {size}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_task_runs_again_with_its_payload_or_another_and_leaves_the_list() {
    let (_dir, dev) = started().await;
    let sink = Sink::start().await;
    let mut task = doomed("q", "a", "c");
    task["handler"] = json!(sink.handler("fatal"));
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    dev.task_in("dead", "q", "a").await;
    let redriven = dev.post("/v1/tasks/q/a/redrive", &json!({"reason": "again"})).await;
    assert_eq!(redriven.decision(), (200, "redriven"));
    dev.task_in("dead", "q", "a").await;
    let body = "{\"payload\":{\"n\": 2.0}}";
    let headers = [("prefer", "wait=20")];
    assert_eq!(
        dev.send(Method::POST, "/v1/tasks/q/a/redrive", body, &headers).await.decision(),
        (200, "redriven")
    );
    dev.task_in("dead", "q", "a").await;
    let bodies: Vec<String> = sink.calls().iter().map(|call| call.body.clone()).collect();
    assert_eq!(bodies, ["{\"n\":1.5}", "{\"n\":1.5}", "{\"n\": 2.0}"]);
    assert_eq!(dead(&dev, "").await, ["a"], "the last version alone");
    assert_eq!(dev.get("/v1/tasks/q/a").await.json["events"].as_array().map(Vec::len), Some(3));
    let far = json!({"queue": "q", "id": "far", "delay": "1h", "handler": "log"});
    dev.post("/v1/tasks", &far).await;
    assert_eq!(dev.post("/v1/tasks/q/far/redrive", &json!({})).await.problem(), (409, "not_dead"));
    assert_eq!(dev.post("/v1/tasks/q/none/redrive", &json!({})).await.problem(), (404, "unknown_task"));
    assert_eq!(dev.post("/v1/tasks/q/far/abort", &json!({})).await.problem(), (409, "not_running"));
    assert_eq!(dev.post("/v1/tasks/q/far/run", &json!({})).await.decision(), (200, "rescheduled"));
    dev.task_in("succeeded", "q", "far").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_redrives_what_a_filter_takes_and_says_first_what_that_is() {
    let (_dir, dev) = started().await;
    for n in 0..5 {
        dev.post("/v1/tasks", &doomed("q", &format!("t{n}"), if n < 3 { "mine" } else { "other" })).await;
    }
    dev.task_in("dead", "q", "t4").await;
    let none = dev.cli(&["dead-letter", "redrive"]);
    assert_eq!(none.code, 2, "{none:?}");
    let filter = ["dead-letter", "redrive", "--collection", "mine"];
    let dry = dev.cli(&[&filter[..], &["--dry-run"]].concat());
    assert!(dry.out.starts_with("3 would be redriven"), "{dry:?}");
    assert_eq!(dead(&dev, "").await.len(), 5);
    let done = dev.cli(&[&filter[..], &["--reason", "better"]].concat());
    assert!(done.code == 0 && done.out.starts_with("3 asked to be redriven"), "{done:?}");
    let listed = dev.cli(&["dead-letter", "list", "--queue", "q", "--all"]);
    assert!(listed.out.contains("t4") && listed.out.contains("exhausted after 1 attempt(s)"), "{listed:?}");
    let events = |task: serde_json::Value| task["events"].as_array().map(Vec::len);
    assert_eq!(events(dev.get("/v1/tasks/q/t0").await.json), Some(2));
    assert_eq!(events(dev.get("/v1/tasks/q/t4").await.json), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_a_death_has_stopped_says_so_and_goes_on_when_it_is_resumed() {
    let (dir, dev) = started().await;
    let mut task = doomed("q", "a", "c");
    task["on_dead"] = json!("stop");
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    dev.task_in("dead", "q", "a").await;
    let behind = json!({"queue": "q", "id": "b", "handler": "log"});
    assert_eq!(dev.post("/v1/tasks", &behind).await.status, 201);
    dev.kill();
    let dev = Dev::start(dir.path()).await;
    super::until("the reason", || async {
        let words = dev.get("/v1/tasks/q/b/explain").await.json["reasons"].to_string();
        words.contains("task a is dead (exhausted)").then_some(())
    })
    .await;
    let gates = dev.cli(&["gate", "list"]);
    assert!(gates.out.starts_with("queue q  pause") && gates.out.contains("by dueline"), "{gates:?}");
    assert_eq!(dev.get("/v1/tasks/q/b").await.json["state"], "scheduled");
    let resumed = dev.cli(&["queue", "resume", "q", "--reason", "seen"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    dev.task_in("succeeded", "q", "b").await;
    assert_eq!(dev.cli(&["queue", "resume", "q"]).code, 3);
}
