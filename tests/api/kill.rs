//! SIGKILL: nothing is lost, order stays, what runs twice says so, backoff goes on where it was.

use std::collections::BTreeMap;
use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};

use super::dev::Dev;
use super::sink::{Call, Sink};
use super::until;

const QUEUES: usize = 200;
const EACH: usize = 50;
const BATCH: usize = 2_000;

/// `EACH` tasks for every queue, the earlier first, all due within some seconds.
async fn produce(dev: &Dev, handler: &str) {
    let base = jiff::Timestamp::now().as_millisecond() + 2_000;
    let tasks: Vec<(usize, usize)> = (0..EACH).flat_map(|n| (0..QUEUES).map(move |q| (q, n))).collect();
    for batch in tasks.chunks(BATCH) {
        let line = |(queue, number): &(usize, usize)| {
            let due = base + 40 * i64::try_from(*number).expect("small");
            let due = jiff::Timestamp::from_millisecond(due).expect("a time");
            json!({"queue": format!("q{queue}"), "id": format!("{number}"), "due_at": due.to_string(),
                "handler": handler, "timeout": "6s"})
            .to_string()
        };
        let body = batch.iter().map(line).collect::<Vec<_>>().join("\n");
        let answer = dev.send(Method::POST, "/v1/tasks:batch", body, &[]).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let accepted = answer.text.lines().filter(|line| line.contains("\"offset\"")).count();
        assert_eq!(accepted, batch.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dev_killed_in_the_middle_of_ten_thousand_tasks_runs_each_in_order() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    produce(&dev, &sink.handler("work")).await;
    let half = QUEUES * EACH / 2;
    until("half of the tasks", || async { (sink.count() >= half).then_some(()) }).await;
    let lapsed = dev.said().contains("lease lost");
    dev.kill();
    let killed = Instant::now();
    assert!(sink.count() < QUEUES * EACH, "killed in the middle");

    let dev = Dev::start(dir.path()).await;
    let last = |queue: usize| format!("/v1/tasks/q{queue}/{}", EACH - 1);
    for queue in 0..QUEUES {
        until("the last task of every queue", || async {
            (dev.get(&last(queue)).await.json["state"] == "succeeded").then_some(())
        })
        .await;
    }
    let again =
        sink.calls().into_iter().find(|call| call.header("dueline-previous-outcome") == "interrupted");
    if let Some(call) = again {
        let task = dev.get(&format!("/v1/tasks/{}/{}", call.queue(), call.id())).await.json;
        let outcomes: Vec<_> =
            task["attempts"].as_array().expect("attempts").iter().map(|one| &one["outcome"]).collect();
        assert!(
            outcomes.iter().any(|one| **one == "interrupted") && !outcomes.contains(&&Value::Null),
            "{task}"
        );
    }
    let mut by_queue: BTreeMap<String, Vec<Call>> = BTreeMap::new();
    for call in sink.calls() {
        by_queue.entry(call.queue().to_owned()).or_default().push(call);
    }
    assert_eq!(by_queue.len(), QUEUES);
    // A lease that lapsed on a starved machine ends its attempts as a kill does: then both may have been the cause.
    let alone = !lapsed && !dev.said().contains("lease lost");
    let repeats: usize = by_queue.values().map(|calls| checked(calls, alone.then_some(killed))).sum();
    assert!(!alone || repeats <= QUEUES, "at most one open attempt a queue: {repeats} ran again");
}

/// Checks one queue's calls, and gives how many ran again. With a kill as the only cause, only over it.
fn checked(calls: &[Call], killed: Option<Instant>) -> usize {
    let mut expected = 0;
    for (index, call) in calls.iter().enumerate() {
        let number: usize = call.id().parse().expect("a number");
        let before = index.checked_sub(1).map(|before| &calls[before]);
        if let Some(before) = before {
            let ended = before.ended.expect("every call ended");
            assert!(ended <= call.started, "two calls of {} at once", call.queue());
            assert!(before.token() < call.token(), "the token rises");
        }
        if call.attempt() > 1 {
            assert!(killed.is_none_or(|killed| killed <= call.started), "run again without a kill: {call:?}");
            let outcome = call.header("dueline-previous-outcome");
            let cut_off = ["interrupted", "not_called", "timed_out"].contains(&outcome);
            assert!(outcome == "interrupted" || (killed.is_none() && cut_off), "{call:?}");
        }
        if number == expected {
            expected += 1;
            continue;
        }
        assert_eq!(number + 1, expected, "out of order or lost: {call:?}");
        let before = before.expect("something ran before");
        assert!(killed.is_none_or(|killed| before.started <= killed), "{call:?}");
        assert!(call.attempt() > 1, "run twice without a word: {call:?}");
        assert_eq!(call.header("webhook-id"), before.header("webhook-id"));
    }
    assert_eq!(expected, EACH, "tasks of {} were lost", calls[0].queue());
    calls.len() - EACH
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retrying_head_blocks_its_queue_and_keeps_its_backoff_over_a_kill() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    let far = json!({"max_attempts": 5, "initial": "1h", "max": "1h", "jitter": 0});
    let near = json!({"max_attempts": 5, "initial": "3s", "max": "3s", "jitter": 0});
    for (queue, handler, retry) in [("far", "fail", far), ("near", "flaky", near)] {
        let handler = sink.handler(handler);
        let head = json!({"queue": queue, "id": "head", "handler": handler, "retry": retry});
        assert_eq!(dev.post("/v1/tasks", &head).await.status, 201);
        let second = json!({"queue": queue, "id": "second", "handler": sink.handler("ok")});
        assert_eq!(dev.post("/v1/tasks", &second).await.status, 201);
    }
    let mut promised = Vec::new();
    for queue in ["far", "near"] {
        let head = dev.task_in("retrying", queue, "head").await;
        promised.push(head["next_at"].as_str().expect("a time").to_owned());
    }
    dev.kill();

    let dev = Dev::start(dir.path()).await;
    dev.task_in("succeeded", "near", "second").await;
    let near = dev.get("/v1/tasks/near/head").await.json;
    assert_eq!(near["attempts"].as_array().map(Vec::len), Some(2));
    let (started, due) = (&near["attempts"][1]["started_at"], &promised[1]);
    assert!(time(started.as_str().expect("a time")) >= time(due), "{started} is before {due}");
    let order: Vec<_> = sink.calls().iter().filter(|call| call.queue() == "near").map(named).collect();
    assert_eq!(order, ["head 1", "head 2", "second 1"]);

    assert_eq!(dev.get("/v1/tasks/far/head").await.json["next_at"], promised[0].as_str());
    let why = dev.get("/v1/tasks/far/second/explain").await.json;
    assert_eq!(
        (&why["reasons"][0]["code"], &why["earliest_start"]),
        (&json!("behind_head"), &json!(promised[0]))
    );
    assert_eq!(sink.of("far", "head").len(), 1);
    assert!(sink.of("far", "second").is_empty());
}

fn named(call: &Call) -> String {
    format!("{} {}", call.id(), call.attempt())
}

fn time(text: &str) -> jiff::Timestamp {
    text.parse().expect("a time of RFC 3339")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_over_after_an_outage_is_closed_on_record_and_the_rest_runs() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    let at = |seconds: i64| (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string();
    for (id, more) in [
        ("expires", json!({"expires_at": at(9)})),
        ("skipped", json!({"misfire": "skip", "misfire_grace": "1s"})),
        ("late", json!({})),
    ] {
        let mut task = json!({"queue": "q", "id": id, "due_at": at(8), "handler": sink.handler("ok")});
        task.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        assert_eq!(dev.post("/v1/tasks", &task).await.decision(), (201, "scheduled"));
    }
    dev.kill();
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    let dev = Dev::start(dir.path()).await;
    dev.task_in("succeeded", "q", "late").await;
    for (state, id) in [("expired", "expires"), ("skipped", "skipped")] {
        let task = dev.task_in(state, "q", id).await;
        assert!(task["closed"]["at"].is_string() && task["attempts"] == json!([]), "{task}");
        let listed = dev.get(&format!("/v1/tasks?state={state}")).await.json;
        assert_eq!(listed["tasks"][0]["id"], id, "{listed}");
        let series = format!("dueline_closed_total{{reason=\"{state}\"}} 1");
        assert!(dev.get("/metrics").await.text.contains(&series), "{series}");
    }
    assert_eq!(sink.calls().iter().map(Call::id).collect::<Vec<_>>(), ["late"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_owner_uses_up_no_attempt() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    let task = json!({"queue": "q", "id": "held", "timeout": "8s", "handler": sink.handler("hold"),
        "retry": {"max_attempts": 1}});
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    until("the call", || async { (sink.count() == 1).then_some(()) }).await;
    dev.kill();
    let dev = Dev::start(dir.path()).await;
    until("the second call", || async { (sink.count() == 2).then_some(()) }).await;
    sink.release();
    let done = dev.task_in("succeeded", "q", "held").await;
    let outcomes: Vec<_> =
        done["attempts"].as_array().expect("attempts").iter().map(|one| &one["outcome"]).collect();
    assert_eq!(outcomes, ["interrupted", "succeeded"], "{done}");
}
