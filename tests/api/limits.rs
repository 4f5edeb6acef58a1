//! Rates and breakers of handlers: kept, seen in explain and in the list of handlers, and nothing to other handlers.

use std::time::Duration;

use serde_json::json;

use super::dev::Dev;
use super::sink::{Call, Sink};
use super::until;

async fn started(sink: &Sink, path: &str, limits: &str) -> (tempfile::TempDir, Dev) {
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("dueline.toml");
    let url = sink.handler(path);
    let text = format!("[[handler]]\nname = \"limited\"\nkind = \"http\"\nurl = \"{url}\"\n{limits}\n");
    std::fs::write(&config, text).expect("written");
    let dev = Dev::configured(&dir.path().join("data"), Some(&config)).await;
    (dir, dev)
}

async fn schedule(dev: &Dev, n: usize) {
    for n in 0..n {
        let task = json!({"queue": format!("q{n}"), "id": "t", "handler": "limited"});
        let sent = dev.send(reqwest::Method::POST, "/v1/tasks", task.to_string(), &[]).await;
        assert_eq!(sent.status, 202);
    }
}

async fn all_succeed(dev: &Dev, n: usize) {
    for n in 0..n {
        dev.task_in("succeeded", &format!("q{n}"), "t").await;
    }
}

/// Calls that begin within a second of each other, at most.
fn busiest_second(calls: &[Call]) -> usize {
    let within = |first: &Call| {
        let last = first.started + Duration::from_secs(1);
        calls.iter().filter(|call| call.started >= first.started && call.started < last).count()
    };
    calls.iter().map(within).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_kept_and_explained_and_others_run_at_once() {
    let sink = Sink::start().await;
    let (_dir, dev) = started(&sink, "ok", "rate = \"20/s\"").await;
    schedule(&dev, 70).await;
    let why = until("the rate as a reason", || async {
        let why = dev.get("/v1/tasks/q69/t/explain").await.json;
        (why["reasons"].to_string().contains("\"rate\"") && why["earliest_start"].is_string()).then_some(why)
    })
    .await;
    assert!(why["reasons"].to_string().contains("20/s over all instances"), "{why}");
    let other = json!({"queue": "other", "id": "t", "handler": sink.handler("work")});
    assert_eq!(dev.post("/v1/tasks", &other).await.status, 201);
    dev.task_in("succeeded", "other", "t").await;
    assert!(sink.count() < 70, "the other one did not wait for them");
    let listed = dev.cli(&["handler", "list"]);
    assert!(listed.out.contains("rate 20/s") && listed.out.contains("held up"), "{listed:?}");
    let metrics = dev.get("/metrics").await.text;
    assert!(metrics.contains("dueline_handlers_held_up{reason=\"rate\"}"), "{metrics}");
    all_succeed(&dev, 70).await;
    let calls: Vec<Call> = sink.calls().into_iter().filter(|call| call.queue() != "other").collect();
    assert_eq!(calls.len(), 70);
    // A burst of a tenth of a second; and calls take their time to arrive.
    assert!(busiest_second(&calls) <= 26, "{} in a second", busiest_second(&calls));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_leaves_a_failing_handler_alone_and_tries_it_with_one_call() {
    let sink = Sink::start().await;
    let limits = "concurrency = 1\nbreaker = { failures = 5, pause = \"1500ms\" }\nretry = { initial = \"10ms\", jitter = 0 }";
    let (_dir, dev) = started(&sink, "flaky", limits).await;
    schedule(&dev, 12).await;
    let why = until("the breaker as a reason", || async {
        let asked = (0..12).map(|n| format!("/v1/tasks/q{n}/t/explain"));
        for path in asked {
            let why = dev.get(&path).await.json;
            if why["reasons"].to_string().contains("\"breaker\"") {
                return Some(why);
            }
        }
        None
    })
    .await;
    assert!(why["reasons"].to_string().contains("left alone"), "{why}");
    assert_eq!(sink.count(), 5, "five failures in a row");
    all_succeed(&dev, 12).await;
    let calls = sink.calls();
    let gap = calls[5].started - calls[4].started;
    assert!(gap >= Duration::from_millis(1_400), "left alone for {gap:?} only");
    assert_eq!(calls.len(), 24, "each failed once: no attempt was used up by the pause");
}
