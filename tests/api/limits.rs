//! Rates and breakers of handlers: kept, seen in explain and in the list of handlers, and nothing to other handlers.

use std::time::Duration;

use serde_json::json;

use super::dev::Dev;
use super::sink::{Call, Sink};
use super::until;

/// Ten seconds' worth.
const TASKS: usize = 100;

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

/// Calls that begin within five seconds of each other, at most.
fn busiest(calls: &[Call]) -> usize {
    let within = |first: &Call| {
        let last = first.started + Duration::from_secs(5);
        calls.iter().filter(|call| call.started >= first.started && call.started < last).count()
    };
    calls.iter().map(within).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_kept_and_explained_and_others_run_at_once() {
    let sink = Sink::start().await;
    let (_dir, dev) = started(&sink, "ok", "rate = \"10/s\"\nconcurrency = 4").await;
    schedule(&dev, TASKS).await;
    let why = until("the rate as a reason", || async {
        let why = dev.get("/v1/tasks/q99/t/explain").await.json;
        (why["reasons"].to_string().contains("\"rate\"") && why["earliest_start"].is_string()).then_some(why)
    })
    .await;
    assert!(why["reasons"].to_string().contains("10/s over all instances"), "{why}");
    let other = json!({"queue": "other", "id": "t", "handler": sink.handler("work")});
    assert_eq!(dev.post("/v1/tasks", &other).await.status, 201);
    dev.task_in("succeeded", "other", "t").await;
    assert!(sink.count() < TASKS, "the other one did not wait for them");
    until("what holds it up", || async {
        let listed = dev.cli(&["handler", "list"]);
        (listed.out.contains("rate 10/s") && listed.out.contains("held up")).then_some(())
    })
    .await;
    until("the metric", || async {
        let metrics = dev.get("/metrics").await.text;
        metrics.contains("dueline_handlers_held_up{reason=\"rate\"} 1").then_some(())
    })
    .await;
    all_succeed(&dev, TASKS).await;
    let calls: Vec<Call> = sink.calls().into_iter().filter(|call| call.queue() != "other").collect();
    assert_eq!(calls.len(), TASKS);
    // A burst, and what the slots hold while the store is slow.
    assert!(busiest(&calls) <= 50 + 1 + 4, "{} in five seconds", busiest(&calls));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_leaves_a_failing_handler_alone_and_tries_it_with_one_call() {
    let sink = Sink::start().await;
    let limits = "concurrency = 1\nbreaker = { failures = 5, pause = \"5s\" }\nretry = { initial = \"1s\", jitter = 0 }";
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
    let blocked = until("a blocked queue", || async {
        let ran = dev.cli(&["queue", "blocked"]);
        ran.out.contains("waits for a slot").then_some(ran)
    })
    .await;
    assert!(blocked.out.contains("left alone for a while (breaker)"), "{blocked:?}");
    all_succeed(&dev, 12).await;
    let calls = sink.calls();
    let gap = calls[5].started - calls[4].started;
    assert!(gap >= Duration::from_millis(4_900), "left alone for {gap:?} only");
    assert_eq!(calls.len(), 24, "each failed once: no attempt was used up by the pause");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_hears_of_calls_that_hang() {
    let sink = Sink::start().await;
    let limits = "concurrency = 1\ntimeout = \"300ms\"\nbreaker = { failures = 3, pause = \"1h\" }";
    let (_dir, dev) = started(&sink, "hold", limits).await;
    schedule(&dev, 6).await;
    until("the breaker", || async {
        dev.cli(&["handler", "list"]).out.contains("left alone for a while").then_some(())
    })
    .await;
    assert_eq!(sink.count(), 3, "three hung, and the others wait");
}
