//! Metrics, probes and the published document.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::dev::Dev;
use super::sink::Sink;
use super::until;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_count_lateness_and_outcomes_and_name_no_queue_or_task() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    for (id, path) in [("needle-id-1", "ok"), ("needle-id-2", "fatal")] {
        let task = json!({"queue": "needle-queue", "id": id, "handler": sink.handler(path)});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    dev.task_in("dead", "needle-queue", "needle-id-2").await;
    let answer = dev.get("/metrics").await;
    assert!(answer.kind.starts_with("text/plain"), "{}", answer.kind);
    let text = &answer.text;
    for family in [
        "dueline_task_lateness_seconds_bucket",
        "dueline_task_run_seconds_count",
        "dueline_shards_owned",
        "dueline_tasks_in_memory",
        "dueline_persist_seconds",
        "dueline_store_request_seconds",
        "dueline_build_info",
    ] {
        assert!(text.contains(family), "{family} is missing:\n{text}");
    }
    for (outcome, count) in [("succeeded", "1"), ("fatal", "1")] {
        let label = format!("outcome=\"{outcome}\"");
        let mut lines =
            text.lines().filter(|line| line.starts_with("dueline_tasks_total") && line.contains(&label));
        assert!(lines.any(|line| line.ends_with(&format!(" {count}"))), "{outcome}:\n{text}");
    }
    assert!(!text.contains("needle"), "a queue or a task is a label:\n{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_due_soon_is_counted_by_how_soon() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    let delays = ["55s", "55s", "30m", "30m", "5h", "20h", "25h"];
    for (number, delay) in delays.into_iter().enumerate() {
        let task = json!({"queue": "soon", "id": format!("t-{number}"), "delay": delay, "handler": "log"});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    assert_eq!(dev.post("/v1/tasks/soon/t-1/cancel", &json!({})).await.status, 200);
    assert_eq!(dev.post("/v1/tasks/soon/t-3/reschedule", &json!({"delay": "6h"})).await.status, 200);
    let lines = [("minute", 1), ("hour", 2), ("day", 5)]
        .map(|(horizon, tasks)| format!("dueline_tasks_due_soon{{horizon=\"{horizon}\"}} {tasks}"));
    until("all three counts", || async {
        let text = dev.get("/metrics").await.text;
        lines.iter().all(|line| text.lines().any(|found| found == line)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_answer_and_the_document_has_every_route() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    for probe in ["/livez", "/readyz"] {
        let answer = dev.get(probe).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, "ok\n"), "{probe}");
    }
    let document = dev.get("/openapi.json").await.json;
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")));
    // The page is made from the table of routes, which the router is made from.
    let page = include_str!("../../docs/roles.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()?.split_once(' '));
    let rows = rows.map(|(method, path)| (path, method.to_lowercase()));
    let routed: BTreeSet<(&str, String)> = rows.filter(|(path, _)| *path != "/openapi.json").collect();
    assert!(!include_str!("../../src/server.rs").contains(".route("), "every route is in the table");
    let paths = document["paths"].as_object().expect("paths");
    let is_method = |name: &str| ["get", "post", "put", "delete"].contains(&name);
    let published: BTreeSet<(&str, String)> = paths
        .iter()
        .flat_map(|(path, item)| {
            let names = item.as_object().map(|item| item.keys().map(String::as_str).collect::<Vec<_>>());
            names
                .unwrap_or_default()
                .into_iter()
                .filter(|name| is_method(name))
                .map(move |name| (path.as_str(), name.to_owned()))
        })
        .collect();
    assert!(routed.len() > 15, "{routed:?}");
    assert_eq!(routed, published);
    assert_eq!(references(&document).into_iter().find(|pointer| document.pointer(pointer).is_none()), None);
}

/// Every `$ref` of a document, as a JSON pointer.
fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let own = fields
                .get("$ref")
                .and_then(Value::as_str)
                .map(|text| text.trim_start_matches('#').to_owned());
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}
