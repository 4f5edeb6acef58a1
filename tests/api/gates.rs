//! Gates over HTTP and the command line: set, seen, explained, cleared, kept over a restart.

use reqwest::Method;
use serde_json::json;

use super::dev::Dev;

async fn started() -> (tempfile::TempDir, Dev) {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    (dir, dev)
}

fn task(queue: &str, id: &str) -> serde_json::Value {
    json!({"queue": queue, "id": id, "handler": "log", "collection": "tenant-7"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_stops_what_it_names_says_so_and_outlives_a_kill() {
    let (dir, dev) = started().await;
    let set = json!({"handler": "log", "reason": "incident 42", "by": "alice", "for": "1h"});
    let gate = dev.post("/v1/gates", &set).await;
    assert_eq!(gate.status, 200);
    assert_eq!((&gate.json["in_force"], &gate.json["action"]), (&json!(true), &json!("pause")));
    dev.post("/v1/tasks", &task("q", "a")).await;
    dev.post("/v1/tasks", &task("q", "b")).await;
    let blocked = dev.get("/v1/queues?blocked=true").await.json;
    assert_eq!(blocked["queues"][0]["blocked"], "gate", "{blocked}");
    assert_eq!(blocked["queues"][0]["gate"], "handler log");
    let words = dev.get("/v1/tasks/q/a/explain").await.json;
    assert_eq!(words["reasons"][0]["code"], "gate");
    assert!(
        words["reasons"][0]["detail"].as_str().is_some_and(|words| words.contains("incident 42")),
        "{words}"
    );
    assert_eq!(words["earliest_start"], gate.json["until"]);
    let behind = dev.get("/v1/tasks/q/b/explain").await.json.to_string();
    assert!(behind.contains("waits behind task a") && behind.contains("gate on handler log"), "{behind}");

    dev.kill();
    let dev = Dev::start(dir.path()).await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(dev.get("/v1/tasks/q/a").await.json["state"], "scheduled");
    let cleared = dev.post("/v1/gates:clear", &json!({"handler": "log", "by": "bob"})).await;
    assert_eq!(cleared.status, 200);
    assert_eq!(cleared.json["in_force"], json!(false));
    dev.task_in("succeeded", "q", "b").await;
    let operations = dev.get("/v1/operations").await.json;
    let told: Vec<_> = operations["operations"]
        .as_array()
        .expect("operations")
        .iter()
        .map(|one| (&one["change"], &one["by"]))
        .collect();
    assert_eq!(told, [(&json!("gate_cleared"), &json!("bob")), (&json!("gate_set"), &json!("alice"))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_drops_leaves_a_record_that_lists_find() {
    let (_dir, dev) = started().await;
    dev.post("/v1/gates", &json!({"collection": "tenant-7", "action": "drop"})).await;
    dev.post("/v1/tasks", &task("q", "a")).await;
    dev.task_in("dropped", "q", "a").await;
    let list = dev.get("/v1/tasks?state=dropped").await.json;
    assert_eq!(list["tasks"][0]["reason"], "dropped", "{list}");
    let metrics = dev.get("/metrics").await.text;
    assert!(metrics.contains("dueline_closed_total{reason=\"dropped\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_on_everything_stops_every_queue_until_it_is_cleared() {
    let (_dir, dev) = started().await;
    let gate = dev.post("/v1/gates", &json!({"all": true, "reason": "moving", "by": "alice"})).await;
    assert_eq!((gate.status.as_u16(), &gate.json["in_force"]), (200, &json!(true)));
    for queue in ["q", "r"] {
        dev.post("/v1/tasks", &task(queue, "a")).await;
        let explained = dev.get(&format!("/v1/tasks/{queue}/a/explain")).await.json;
        assert_eq!(explained["reasons"][0]["code"], "gate", "{explained}");
        assert!(explained.to_string().contains("moving"), "{explained}");
    }
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(dev.get("/v1/tasks/r/a").await.json["state"], "scheduled");
    assert_eq!(dev.post("/v1/gates:clear", &json!({"all": true})).await.status, 200);
    dev.task_in("succeeded", "q", "a").await;
    dev.task_in("succeeded", "r", "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_come_to_a_gate_is_counted_and_nothing_is_set() {
    let (_dir, dev) = started().await;
    for id in ["a", "b"] {
        let mut later = task("q", id);
        later["delay"] = json!("1h");
        dev.post("/v1/tasks", &later).await;
    }
    dev.post("/v1/tasks", &json!({"queue": "r", "id": "c", "handler": "log", "delay": "1h"})).await;
    let counted = dev.cli(&["gate", "set", "collection", "tenant-7", "--dry-run"]);
    assert_eq!(
        (counted.code, &*counted.out),
        (0, "2 would come to the gate; the first:\nq  a\nq  b\n"),
        "{counted:?}"
    );
    let counted = dev.cli(&["gate", "set", "all", "--dry-run", "--name", "night", "-o", "json"]);
    assert!(counted.code == 0 && counted.out.contains("\"found\": 3"), "{counted:?}");
    let unknown = dev.cli(&["gate", "set", "handler", "lgo", "--dry-run"]);
    assert!(unknown.code != 0 && unknown.err.contains("lgo"), "{unknown:?}");
    assert_eq!(dev.get("/v1/gates").await.json["gates"], json!([]));
    dev.task_in("scheduled", "q", "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_paused_and_resumed() {
    let (_dir, dev) = started().await;
    assert_eq!(dev.post("/v1/queues/q%2F1/pause", &json!({"reason": "look"})).await.status, 200);
    dev.post("/v1/tasks", &task("q/1", "a")).await;
    dev.post("/v1/tasks", &task("r", "a")).await;
    dev.task_in("succeeded", "r", "a").await;
    assert_eq!(dev.get("/v1/tasks/q%2F1/a").await.json["state"], "scheduled");
    assert_eq!(dev.send(Method::POST, "/v1/queues/q%2F1/resume", "", &[]).await.status, 200);
    dev.task_in("succeeded", "q%2F1", "a").await;
    assert_eq!(dev.post("/v1/queues/q%2F1/resume", &json!({})).await.problem(), (404, "unknown_gate"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_means_nothing_is_refused_by_name_and_changes_nothing() {
    let (_dir, dev) = started().await;
    for (body, code, pointer) in [
        (json!({}), "invalid_body", ""),
        (json!({"handler": "log", "queue": "q"}), "invalid_body", ""),
        (json!({"handler": "lg"}), "unknown_handler", "/handler"),
        (json!({"queue": ""}), "invalid_field", "/queue"),
        (json!({"all": true, "action": "stop"}), "invalid_field", "/action"),
        (json!({"all": true, "for": "-1s"}), "invalid_field", "/for"),
        (json!({"all": true, "until": "2020-01-01T00:00:00Z"}), "invalid_field", "/until"),
        (json!({"all": true, "blackout": "daily 22:00 UTC"}), "invalid_field", "/blackout"),
        (json!({"all": true, "blackout": "daily 22:00-06:00 Mars/Base"}), "invalid_field", "/blackout"),
        (json!({"all": true, "reason": "x".repeat(2_000)}), "invalid_field", "/reason"),
        (json!({"all": true, "untill": "x"}), "invalid_body", ""),
    ] {
        let answer = dev.post("/v1/gates", &body).await;
        assert_eq!(answer.problem(), (400, code), "{body}: {answer:?}");
        assert_eq!(answer.json["errors"][0]["pointer"], pointer, "{body}: {answer:?}");
    }
    assert_eq!(dev.get("/v1/gates").await.json["gates"], json!([]));
    assert_eq!(dev.post("/v1/gates:clear", &json!({"queue": "q"})).await.problem(), (404, "unknown_gate"));
}
