//! Idempotency keys: one event for each verb and line, and truthful words for what came too late.

use reqwest::Method;
use serde_json::{Value, json};

use super::dev::Dev;

const KEYED: [(&str, &str); 2] = [("prefer", "wait=20"), ("idempotency-key", "k")];

async fn started() -> (tempfile::TempDir, Dev) {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    (dir, dev)
}

fn far(id: &str) -> Value {
    json!({"queue": "k", "id": id, "delay": "1h", "handler": "log"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_under_the_key_of_its_schedule_cancels() {
    let (_dir, dev) = started().await;
    let scheduled = dev.send(Method::POST, "/v1/tasks", far("a").to_string(), &KEYED).await;
    assert_eq!(scheduled.decision(), (201, "scheduled"));
    let moved = dev.send(Method::POST, "/v1/tasks/k/a/reschedule", "{\"delay\":\"2h\"}", &KEYED).await;
    assert_eq!(moved.decision(), (200, "rescheduled"));
    let again = dev.send(Method::POST, "/v1/tasks/k/a/reschedule", "{\"delay\":\"3h\"}", &KEYED).await;
    assert_eq!(again.decision(), (200, "repeated"));
    let cancelled = dev.send(Method::POST, "/v1/tasks/k/a/cancel", "", &KEYED).await;
    assert_eq!(cancelled.decision(), (200, "cancelled"));
    assert_eq!(dev.get("/v1/tasks/k/a").await.json["state"], "cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_comes_too_late_is_told_by_what_the_task_is() {
    let (_dir, dev) = started().await;
    assert_eq!(dev.post("/v1/tasks", &far("b")).await.status, 201);
    assert_eq!(dev.post("/v1/tasks/k/b/cancel", &json!({"reason": "one"})).await.status, 200);
    for (verb, body) in [("cancel", json!({"reason": "two"})), ("reschedule", json!({"delay": "2h"}))] {
        let late = dev.post(&format!("/v1/tasks/k/b/{verb}"), &body).await;
        assert_eq!(late.problem(), (409, "too_late"), "{verb}");
        let detail = late.json["detail"].as_str().expect("words");
        assert!(detail.contains("is cancelled") && !detail.contains("started"), "{verb}: {detail}");
    }
    let now = json!({"queue": "k", "id": "now", "handler": "log"});
    assert_eq!(dev.post("/v1/tasks", &now).await.status, 201);
    dev.task_in("succeeded", "k", "now").await;
    let late = dev.post("/v1/tasks/k/now/cancel", &json!({})).await;
    assert!(late.json["detail"].as_str().is_some_and(|words| words.contains("succeeded")), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_sent_twice_under_a_key_repeats_line_by_line_and_waits_when_asked() {
    let (_dir, dev) = started().await;
    let nameless = json!({"queue": "k", "delay": "1h", "handler": "log"});
    let lines = [nameless.clone(), far("c"), nameless, json!({"handler": "nobody"})];
    let body = lines.map(|line| line.to_string()).join("\n");
    let mut ids: Vec<Vec<String>> = Vec::new();
    for expected in ["scheduled", "repeated"] {
        let answer = dev.send(Method::POST, "/v1/tasks:batch", body.clone(), &KEYED).await;
        assert_eq!(answer.status, 200);
        let answers: Vec<Value> =
            answer.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for line in &answers[..3] {
            assert_eq!(line["decision"]["decision"], expected, "{line}");
        }
        assert_eq!(answers[3]["code"], "unknown_handler");
        ids.push(answers[..3].iter().map(|line| line["id"].to_string()).collect());
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0][0], ids[0][2], "two lines without an id are two tasks");
    let wrong = [("idempotency-key", "")];
    let refused = dev.send(Method::POST, "/v1/tasks:batch", body, &wrong).await;
    assert_eq!(refused.problem(), (400, "invalid_header"));
}
