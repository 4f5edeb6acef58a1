//! Callbacks: the headers a handler is given, and what its answers mean.

use serde_json::{Value, json};

use super::dev::Dev;
use super::sink::{Call, Sink};

/// Schedules a task with fast retries and waits for its end.
async fn ended(dev: &Dev, sink: &Sink, path: &str, state: &str) -> (Value, Vec<Call>) {
    let retry = json!({"max_attempts": 3, "initial": "100ms", "max": "1s", "jitter": 0});
    let task =
        json!({"queue": "a/b", "id": path, "handler": sink.handler(path), "retry": retry, "timeout": "9s"});
    let answer = dev.post("/v1/tasks", &task).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let shown = dev.task_in(state, "a%2Fb", path).await;
    (shown, sink.of("a%2Fb", path))
}

/// How the attempts ended. One that was not called is left out: on a starved machine a lease may lapse before the call.
fn outcomes(task: &Value) -> Vec<&str> {
    let attempts = task["attempts"].as_array().expect("attempts");
    let outcomes = attempts.iter().map(|attempt| attempt["outcome"].as_str().unwrap_or("open"));
    outcomes.filter(|outcome| *outcome != "not_called").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_a_handler_decide_what_follows() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;

    let (task, calls) = ended(&dev, &sink, "flaky", "succeeded").await;
    assert_eq!(outcomes(&task), ["retryable", "succeeded"]);
    headers_are_there(&calls);

    let (task, calls) = ended(&dev, &sink, "snooze", "succeeded").await;
    assert_eq!(outcomes(&task), ["snoozed", "succeeded"]);
    let apart = calls[1].started - calls[0].started;
    assert!(apart.as_millis() >= 1_000, "snoozed for a second, called again after {apart:?}");

    let (task, calls) = ended(&dev, &sink, "fatal", "dead").await;
    assert_eq!((outcomes(&task), &task["reason"]), (vec!["fatal"], &json!("fatal")));
    assert!(task["attempts"][0]["error"].as_str().is_some_and(|why| why.contains("422")), "{task}");
    assert_eq!(calls.len(), 1);

    let (task, calls) = ended(&dev, &sink, "fail", "dead").await;
    assert_eq!((outcomes(&task), &task["reason"]), (vec!["retryable"; 3], &json!("exhausted")));
    assert_eq!(calls.len(), 3);

    let tokens: Vec<_> = sink.calls().iter().map(Call::token).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "the fencing token of a queue rises: {tokens:?}");
}

/// A failed call and its repeat.
fn headers_are_there(calls: &[Call]) {
    let [first, second] = calls else { panic!("two calls: {calls:?}") };
    assert!(first.attempt() < second.attempt());
    for call in [first, second] {
        for (name, value) in [
            ("dueline-queue", "a%2Fb"),
            ("dueline-task-id", "flaky"),
            ("dueline-max-attempts", "3"),
            ("content-type", "application/json"),
            ("idempotency-key", call.header("webhook-id")),
        ] {
            assert_eq!(call.header(name), value, "{name}");
        }
        let time = |name| call.header(name).parse::<jiff::Timestamp>().expect("a time");
        assert!(time("dueline-due-at") < time("dueline-deadline"));
        assert!(call.header("webhook-timestamp").parse::<i64>().is_ok());
        assert!(call.header("dueline-shard").parse::<u32>().is_ok());
        assert_eq!(call.token().len(), 3);
        assert_eq!(call.body, "{}");
    }
    assert!(!first.header("webhook-id").is_empty());
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    if second.attempt() == 2 {
        assert_eq!(first.header("dueline-previous-outcome"), "");
        assert_eq!(second.header("dueline-previous-outcome"), "retryable");
    }
}
