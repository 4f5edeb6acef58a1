//! Tasks over HTTP: schedule, show, list, explain, cancel, reschedule, and what a repeat gives.

use reqwest::Method;
use serde_json::{Value, json};

use super::dev::Dev;
use super::sink::Sink;
use super::until;

async fn started() -> (tempfile::TempDir, Sink, Dev) {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    (dir, sink, dev)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_task_runs_and_its_result_is_kept() {
    let (_dir, sink, dev) = started().await;
    let task = json!({"queue": "kept", "id": "one", "handler": sink.handler("result"), "payload": {"user": 7},
        "priority": 3, "collection": "tenant-7", "created_by": "billing"});
    let accepted = dev.send(Method::POST, "/v1/tasks", task.to_string(), &[]).await;
    assert_eq!((accepted.status.as_u16(), accepted.kind.as_str()), (202, "application/json"));
    assert_eq!((&accepted.json["queue"], &accepted.json["id"]), (&json!("kept"), &json!("one")));
    assert!(accepted.json["offset"].is_u64() && accepted.json["partition"].is_u64(), "{accepted:?}");

    let shown = dev.task_in("succeeded", "kept", "one").await;
    let attempt = &shown["attempts"][0];
    assert_eq!((&attempt["attempt"], &attempt["outcome"]), (&json!(1), &json!("succeeded")));
    assert_eq!(attempt["result"], "{\"sent\":17}");
    assert_eq!(shown["payload"], json!({"user": 7}));
    assert_eq!((&shown["priority"], &shown["collection"]), (&json!(3), &json!("tenant-7")));
    assert_eq!(
        (&shown["created_by"], &shown["events"][0]["decision"]),
        (&json!("billing"), &json!("scheduled"))
    );
    assert_eq!(sink.of("kept", "one")[0].body, "{\"user\":7}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_any_kind_are_found_again() {
    let (_dir, sink, dev) = started().await;
    for (queue, id, path) in [
        ("a/b c", "é%?#&", "a%2Fb%20c/%C3%A9%25%3F%23%26"),
        ("+", "...", "+/..."),
        ("{x}", "\"quoted\\", "%7Bx%7D/%22quoted%5C"),
    ] {
        let task = json!({"queue": queue, "id": id, "handler": sink.handler("ok"), "delay": "1h"});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201, "{queue} {id}");
        let shown = dev.get(&format!("/v1/tasks/{path}")).await;
        assert_eq!((&shown.json["queue"], &shown.json["id"]), (&json!(queue), &json!(id)));
        let shown = dev.cli(&["task", "show", queue, id, "-o", "json"]);
        let json: Value =
            serde_json::from_str(&shown.out).unwrap_or_else(|_| panic!("{queue} {id}: {shown:?}"));
        assert_eq!((&json["queue"], &json["id"]), (&json!(queue), &json!(id)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_and_reschedule_say_the_truth() {
    let (_dir, sink, dev) = started().await;
    let far = json!({"queue": "c", "id": "far", "delay": "1h", "handler": sink.handler("ok")});
    assert_eq!(dev.post("/v1/tasks", &far).await.decision(), (201, "scheduled"));
    let moved = dev.post("/v1/tasks/c/far/reschedule", &json!({"delay": "2h", "reason": "later"})).await;
    assert_eq!(moved.decision(), (200, "rescheduled"));
    assert_eq!(moved.json["decision"]["reason"], "later");
    let cancelled = dev.post("/v1/tasks/c/far/cancel", &json!({"reason": "resolved"})).await;
    assert_eq!(cancelled.decision(), (200, "cancelled"));
    let shown = dev.get("/v1/tasks/c/far").await.json;
    assert_eq!((&shown["state"], &shown["events"][0]["reason"]), (&json!("cancelled"), &json!("resolved")));

    let now = json!({"queue": "c", "id": "now", "handler": sink.handler("ok")});
    assert_eq!(dev.post("/v1/tasks", &now).await.status, 201);
    dev.task_in("succeeded", "c", "now").await;
    for verb in ["cancel", "reschedule"] {
        let body = if verb == "cancel" { json!({}) } else { json!({"delay": "1s"}) };
        let late = dev.post(&format!("/v1/tasks/c/now/{verb}"), &body).await;
        assert_eq!(late.problem(), (409, "too_late"), "{verb}");
        let unknown = dev.post(&format!("/v1/tasks/c/nobody-{verb}/{verb}"), &body).await;
        assert_eq!(unknown.problem(), (404, "unknown_task"), "{verb}");
    }
    assert_eq!(dev.get("/v1/tasks/c/nobody").await.problem(), (404, "unknown_task"));
    assert_eq!(dev.get("/v1/tasks/c/nobody/explain").await.problem(), (404, "unknown_task"));
    assert!(sink.of("c", "far").is_empty(), "a cancelled task does not run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_changes_nothing_and_an_idempotency_key_makes_one() {
    let (_dir, sink, dev) = started().await;
    let task = json!({"queue": "r", "id": "one", "delay": "1h", "handler": sink.handler("ok")});
    assert_eq!(dev.post("/v1/tasks", &task).await.decision(), (201, "scheduled"));
    assert_eq!(dev.post("/v1/tasks", &task).await.decision(), (200, "repeated"));
    let other = json!({"queue": "r", "id": "one", "delay": "2h", "handler": sink.handler("ok")});
    assert_eq!(dev.post("/v1/tasks", &other).await.decision(), (201, "replaced"));

    let body = json!({"queue": "r", "delay": "1h", "handler": sink.handler("ok")}).to_string();
    let keyed = |key| [("prefer", "wait=20"), ("idempotency-key", key)];
    let first = dev.send(Method::POST, "/v1/tasks", body.clone(), &keyed("k1")).await;
    let again = dev.send(Method::POST, "/v1/tasks", body.clone(), &keyed("k1")).await;
    let another = dev.send(Method::POST, "/v1/tasks", body, &keyed("k2")).await;
    assert_eq!((first.decision(), again.decision()), ((201, "scheduled"), (200, "repeated")));
    assert_eq!(first.json["id"], again.json["id"]);
    assert_eq!(another.decision(), (201, "scheduled"));
    assert_ne!(first.json["id"], another.json["id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_the_head_that_a_task_waits_behind() {
    let (_dir, sink, dev) = started().await;
    let retry = json!({"max_attempts": 3, "initial": "1h", "max": "1h", "jitter": 0});
    let head = json!({"queue": "e", "id": "head", "handler": sink.handler("fail"), "retry": retry});
    dev.post("/v1/tasks", &head).await;
    dev.post("/v1/tasks", &json!({"queue": "e", "id": "second", "handler": sink.handler("ok")})).await;
    let head = dev.task_in("retrying", "e", "head").await;
    let why = dev.get("/v1/tasks/e/second/explain").await.json;
    assert_eq!((&why["state"], &why["earliest_start"]), (&json!("scheduled"), &head["next_at"]));
    assert_eq!(why["reasons"][0]["code"], "behind_head");
    let detail = why["reasons"][0]["detail"].as_str().expect("a sentence");
    assert!(detail.contains("head") && detail.contains("retrying on attempt 2"), "{detail}");
    let own = dev.get("/v1/tasks/e/head/explain").await.json;
    assert_eq!((&own["reasons"][0]["code"], &own["earliest_start"]), (&json!("retrying"), &head["next_at"]));

    let queue = dev.get("/v1/queues/e").await.json;
    assert_eq!(
        (&queue["ready"], &queue["running"], &queue["next_try"]),
        (&json!(2), &json!(0), &head["next_at"])
    );
    let all = dev.get("/v1/queues").await.json;
    assert_eq!(all["queues"][0], queue);
    dev.post("/v1/tasks", &json!({"queue": "far", "id": "far", "delay": "1h", "handler": "log"})).await;
    let far = dev.get("/v1/tasks/far/far/explain").await.json;
    assert_eq!(far["reasons"][0]["code"], "not_due");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_list_hold_every_task_once() {
    let (_dir, _sink, dev) = started().await;
    let lines = (0..25).map(|n| {
        json!({"queue": format!("l{}", n % 3), "id": n.to_string(), "delay": "1h", "handler": "log"})
            .to_string()
    });
    let batch = lines.collect::<Vec<_>>().join("\n") + "\n\n{\"nonsense\n";
    let answer = dev.send(Method::POST, "/v1/tasks:batch", batch, &[]).await;
    assert_eq!((answer.status.as_u16(), answer.text.lines().count()), (200, 26));
    assert!(answer.text.lines().last().is_some_and(|line| line.contains("not_json")), "{}", answer.text);
    for n in 0..25 {
        dev.task_in("scheduled", &format!("l{}", n % 3), &n.to_string()).await;
    }
    for (filter, expected) in
        [("", 25), ("&queue=l1", 8), ("&state=running", 0), ("&handler=log&state=scheduled", 25)]
    {
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let page = dev.get(&format!("/v1/tasks?page_size=4{filter}{token}")).await.json;
            let tasks = page["tasks"].as_array().expect("tasks").clone();
            assert!(tasks.len() <= 4);
            found.extend(tasks.iter().map(|task| task["id"].as_str().expect("an id").to_owned()));
            let Some(next) = page["next_page_token"].as_str() else { break };
            token = format!("&page_token={next}");
        }
        let listed = found.len();
        found.sort();
        found.dedup();
        assert_eq!((listed, found.len()), (expected, expected), "{filter}");
    }
    let none = dev.get("/v1/tasks?to=2020-01-01T00:00:00Z&from=2019-12-01T00:00:00Z").await.json;
    assert_eq!(none["tasks"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_with_202_when_nothing_is_asked_for_and_shards_and_handlers_are_listed() {
    let (_dir, _sink, dev) = started().await;
    let task = json!({"queue": "w", "id": "w", "delay": "1h", "handler": "log"}).to_string();
    for (prefer, status) in [("return=minimal", 202), ("wait=20", 200)] {
        let answer = dev.send(Method::POST, "/v1/tasks", task.clone(), &[("prefer", prefer)]).await;
        assert_eq!(answer.status, status, "{prefer}");
    }
    until("all shards to run", || async {
        let shards = dev.get("/v1/shards").await.json;
        let shards = shards["shards"].as_array().expect("a list");
        (!shards.is_empty() && shards.iter().all(|shard| shard["phase"] == "running")).then_some(())
    })
    .await;
    let instances = dev.get("/v1/instances").await.json;
    assert_eq!(
        (instances["instances"].as_array().map(Vec::len), &instances["instances"][0]["alive"]),
        (Some(1), &json!(true))
    );
    assert_eq!(dev.get("/v1/handlers").await.json["handlers"][0]["name"], "log");
    assert_eq!(dev.get("/v1/rejected").await.json, json!({"rejected": []}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deep_payload_is_only_bytes() {
    let (_dir, sink, dev) = started().await;
    let payload = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let task = format!(
        "{{\"queue\":\"d\",\"id\":\"d\",\"handler\":\"{}\",\"payload\":{payload}}}",
        sink.handler("ok")
    );
    assert_eq!(dev.send(Method::POST, "/v1/tasks", task, &[("prefer", "wait=20")]).await.status, 201);
    let call = until("the call", || async { sink.of("d", "d").pop() }).await;
    assert_eq!(call.body, payload);
    let shown = dev.get("/v1/tasks/d/d").await;
    assert!(shown.status == 200 && shown.text.contains(&payload));
    let shown = dev.cli(&["task", "show", "d", "d"]);
    assert!(shown.code == 0 && shown.out.contains(&payload), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_makes_a_repeat_of_any_content_and_a_refusal_stays_one() {
    let (_dir, sink, dev) = started().await;
    let keyed = |key| [("prefer", "wait=20"), ("idempotency-key", key)];
    let far = |by: &str| {
        let task = json!({"type": "schedule", "queue": "k", "id": "far", "delay": "1h", "handler": "log",
            "created_by": by});
        task.to_string()
    };
    let first = dev.send(Method::POST, "/v1/tasks", far("one"), &keyed("k1")).await;
    let again = dev.send(Method::POST, "/v1/tasks", far("two"), &keyed("k1")).await;
    let other = dev.send(Method::POST, "/v1/tasks", far("three"), &keyed("k2")).await;
    assert_eq!((first.decision(), again.decision()), ((201, "scheduled"), (200, "repeated")));
    assert_eq!(other.decision(), (201, "replaced"));

    let now = json!({"queue": "k", "id": "now", "handler": sink.handler("ok")});
    assert_eq!(dev.post("/v1/tasks", &now).await.status, 201);
    dev.task_in("succeeded", "k", "now").await;
    for _ in 0..2 {
        let late = dev.send(Method::POST, "/v1/tasks/k/now/cancel", "", &keyed("k3")).await;
        assert_eq!(late.problem(), (409, "too_late"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_known_of_a_task_is_shown() {
    let (_dir, sink, dev) = started().await;
    let large = "x".repeat(200 * 1024);
    let task = json!({"queue": "all", "id": "large", "handler": sink.handler("result"), "payload": large,
        "labels": {"team": "sre"}, "expires_at": "2099-01-01T00:00:00Z"});
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    let shown = dev.task_in("succeeded", "all", "large").await;
    assert!(shown["payload"] == json!(large), "a payload that is stored apart");
    assert_eq!((&shown["result"], &shown["labels"]), (&json!({"sent": 17}), &json!({"team": "sre"})));
    assert_eq!(shown["expires_at"], "2099-01-01T00:00:00.000Z");
    let token = sink.of("all", "large")[0].header("dueline-fencing-token").to_owned();
    assert_eq!(shown["attempts"][0]["fencing_token"], token);
    let why = dev.get("/v1/tasks/all/large/explain").await.json;
    assert_eq!(why["reasons"][0]["code"], "finished");

    let far = json!({"queue": "all", "id": "far", "handler": "log", "delay": "1h"});
    assert_eq!(dev.post("/v1/tasks", &far).await.status, 201);
    dev.post("/v1/tasks/all/far/cancel", &json!({"reason": "resolved"})).await;
    let shown = dev.get("/v1/tasks/all/far").await.json;
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("cancelled"), &json!("resolved")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_of_an_event_has_its_flag() {
    let (dir, _sink, dev) = started().await;
    let file = dir.path().join("payload.json");
    std::fs::write(&file, "{\"n\": 12345678901234567890}\n").expect("written");
    let file = file.to_str().expect("text");
    let ran = dev.cli(&[
        "task",
        "schedule",
        "--queue",
        "f",
        "--id",
        "f",
        "--handler",
        "log",
        "--delay",
        "1h",
        "--payload-file",
        file,
        "--priority",
        "9",
        "--collection",
        "c",
        "--timeout",
        "5s",
        "--expires-at",
        "2099-01-01T00:00:00Z",
        "--misfire",
        "skip",
        "--misfire-grace",
        "1m",
        "--on-conflict",
        "keep",
        "--label",
        "a=b=c",
        "--label",
        "d=",
        "--created-by",
        "me",
        "--retry",
        "{\"max_attempts\":3}",
        "--reason",
        "why",
        "--idempotency-key",
        "k",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let shown = dev.get("/v1/tasks/f/f").await;
    assert!(shown.text.contains("\"payload\":{\"n\": 12345678901234567890}"), "{}", shown.text);
    assert_eq!(shown.json["labels"], json!({"a": "b=c", "d": ""}));
    assert_eq!((&shown.json["priority"], &shown.json["created_by"]), (&json!(9), &json!("me")));
    let told = dev.cli(&["task", "show", "f", "f", "-o", "json"]);
    assert_eq!(told.out.trim_end(), shown.text, "a program is given what the server sent");
    let kept = dev.cli(&[
        "task",
        "schedule",
        "--queue",
        "f",
        "--id",
        "f",
        "--handler",
        "log",
        "--on-conflict",
        "keep",
    ]);
    assert!(kept.code == 0 && kept.out.starts_with("kept: "), "{kept:?}");
    let twice = ["task", "schedule", "--handler", "log", "--label", "a=1", "--label", "a=2"];
    assert_eq!(dev.cli(&twice).code, 2);
    for wrong in [
        ["--label", "a"],
        ["--priority", "10"],
        ["--misfire", "later"],
        ["--retry", "{\"attempts\":3}"],
        ["--payload-file", "/nowhere/payload"],
        ["--wait", "31"],
    ] {
        let ran = dev.cli(&[&["task", "schedule", "--handler", "log"], &wrong[..]].concat());
        assert_eq!(ran.code, 2, "{wrong:?}: {ran:?}");
    }
}
