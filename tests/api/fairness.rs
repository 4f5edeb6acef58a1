//! Limits of collections, slots that are kept, and quotas of what is taken in.

use reqwest::Method;
use serde_json::{Value, json};

use super::dev::{Answer, Dev, dueline};
use super::sink::{Call, Sink};
use super::until;

/// Starts with a handler `work` at a path of the sink.
async fn started(sink: &Sink, path: &str, handler: &str, more: &str) -> (tempfile::TempDir, Dev) {
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("dueline.toml");
    let url = sink.handler(path);
    let text = format!("[[handler]]\nname = \"work\"\nkind = \"http\"\nurl = \"{url}\"\n{handler}\n{more}\n");
    std::fs::write(&config, text).expect("written");
    let dev = Dev::configured(&dir.path().join("data"), Some(&config)).await;
    (dir, dev)
}

async fn schedule(dev: &Dev, queue: &str, more: &Value) -> Answer {
    let mut task = json!({"queue": queue, "id": "t", "handler": "work"});
    task.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    dev.send(Method::POST, "/v1/tasks", task.to_string(), &[("prefer", "wait=10")]).await
}

async fn why(dev: &Dev, queue: &str, reason: &str) -> String {
    until(reason, || async {
        let why = dev.get(&format!("/v1/tasks/{queue}/t/explain")).await.json["reasons"].to_string();
        why.contains(&format!("\"{reason}\"")).then_some(why)
    })
    .await
}

/// Most calls at once, of those that are meant.
fn most_at_once(calls: &[Call], is_meant: impl Fn(&Call) -> bool) -> usize {
    let meant: Vec<&Call> = calls.iter().filter(|call| is_meant(call)).collect();
    let at = |one: &Call| {
        let is_open =
            |call: &&&Call| call.started <= one.started && call.ended.is_none_or(|at| at > one.started);
        meant.iter().filter(is_open).count()
    };
    meant.iter().map(|call| at(call)).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_takes_only_its_own_slots_and_explain_says_so() {
    let sink = Sink::start().await;
    let limits = "[[collection]]\nname = \"*\"\nconcurrency = 2";
    let (_dir, dev) = started(&sink, "hold", "concurrency = 8", limits).await;
    for n in 0..6 {
        assert_eq!(schedule(&dev, &format!("a{n}"), &json!({"collection": "big"})).await.status, 201);
    }
    until("two calls", || async { (sink.count() == 2).then_some(()) }).await;
    let waiting = (0..6).map(|n| format!("a{n}")).find(|queue| sink.of(queue, "t").is_empty());
    let said = why(&dev, &waiting.expect("four wait"), "collection").await;
    assert!(said.contains("collection \\\"big\\\""), "{said}");
    schedule(&dev, "b0", &json!({"collection": "small"})).await;
    schedule(&dev, "c0", &json!({})).await;
    until("other calls", || async { (sink.count() == 4).then_some(()) }).await;
    until("the metric", || async {
        let metrics = dev.get("/metrics").await.text;
        metrics.contains("dueline_handlers_held_up{reason=\"collection\"} 1").then_some(())
    })
    .await;
    sink.release();
    for queue in ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "c0"] {
        dev.task_in("succeeded", queue, "t").await;
    }
    assert!(most_at_once(&sink.calls(), |call| call.queue().starts_with('a')) <= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_for_high_priorities_is_free_for_them() {
    let sink = Sink::start().await;
    let (_dir, dev) =
        started(&sink, "hold", "concurrency = 4\nreserve = { priority = 8, slots = 1 }", "").await;
    for n in 0..6 {
        schedule(&dev, &format!("low{n}"), &json!({"priority": 7})).await;
    }
    until("three calls", || async { (sink.count() == 3).then_some(()) }).await;
    let waiting = (0..6).map(|n| format!("low{n}")).find(|queue| sink.of(queue, "t").is_empty());
    why(&dev, &waiting.expect("three wait"), "reserved").await;
    schedule(&dev, "high", &json!({"priority": 9})).await;
    until("the high one", || async { (sink.of("high", "t").len() == 1).then_some(()) }).await;
    assert_eq!(sink.count(), 4);
    let listed = dev.cli(&["handler", "list"]);
    assert!(listed.out.contains("1 kept for priority 8"), "{listed:?}");
    sink.release();
    for n in 0..6 {
        dev.task_in("succeeded", &format!("low{n}"), "t").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_a_quota_is_refused_with_429_and_visible_and_others_come_in() {
    let sink = Sink::start().await;
    let limits = "[[collection]]\nname = \"tenant\"\nintake = \"64/h\"";
    let (_dir, dev) = started(&sink, "ok", "", limits).await;
    let mut statuses = Vec::new();
    for n in 0..70 {
        let task = json!({"queue": "q", "id": format!("t{n}"), "handler": "work", "collection": "tenant"});
        let answer = dev.send(Method::POST, "/v1/tasks", task.to_string(), &[("prefer", "wait=10")]).await;
        if answer.status != 201 {
            assert_eq!(answer.problem(), (429, "over_quota"), "{}", answer.text);
        }
        statuses.push(answer.status.as_u16());
    }
    let accepted = statuses.iter().filter(|status| **status == 201).count();
    assert!((1..=64).contains(&accepted), "{accepted} of 70 came in: {statuses:?}");
    assert!(statuses.is_sorted(), "first all that may come in, then none: {statuses:?}");
    let other = json!({"queue": "q", "id": "other", "handler": "work", "collection": "another"});
    assert_eq!(dev.post("/v1/tasks", &other).await.status, 201);
    let listed = dev.cli(&["rejected", "list"]);
    assert!(listed.out.contains("over_quota") && listed.out.contains("64/h over all shards"), "{listed:?}");
    let metrics = dev.get("/metrics").await.text;
    let line = format!("dueline_events_rejected_total{{reason=\"over_quota\"}} {}", 70 - accepted);
    assert!(metrics.contains(&line), "{metrics}");
    until("what came in has run", || async { (sink.count() == accepted + 1).then_some(()) }).await;
}

#[test]
fn limits_that_make_no_sense_are_refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let check = |text: &str| {
        let file = dir.path().join("wrong.toml");
        std::fs::write(&file, text).expect("written");
        dueline(&["config", "check", "--config", file.to_str().expect("a path")])
    };
    let handler = "[[handler]]\nname = \"work\"\nkind = \"log\"\n";
    let wrong = [
        (format!("{handler}concurrency = 4\nreserve = {{ slots = 4 }}"), "handler.reserve.slots"),
        (format!("{handler}reserve = {{ priority = 10 }}"), "reserve.priority"),
        (format!("{handler}catch_up = \"0/s\""), "handler.catch_up"),
        (format!("{handler}intake = \"many\""), "handler.intake"),
        ("[[collection]]\nweight = 2".to_owned(), "collection.name"),
        ("[[collection]]\nname = \"a\"\nweight = 0".to_owned(), "weight"),
        ("[[collection]]\nname = \"a\"\nrate = \"1/d\"".to_owned(), "collection.rate"),
        ("[[collection]]\nname = \"a\"\n[[collection]]\nname = \"a\"".to_owned(), "is \"a\" again"),
        ("[[collection]]\nname = \"a\"\nconcurency = 2".to_owned(), "concurrency"),
        ("[[colection]]\nname = \"a\"".to_owned(), "collection"),
    ];
    for (text, named) in wrong {
        let ran = check(&text);
        assert!(ran.code != 0 && ran.err.contains(named), "{text}\n{ran:?}");
    }
}

#[test]
fn limits_that_are_hardly_meant_are_warned_of() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("doubtful.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).expect("written");
        dueline(&["config", "check", "--config", file.to_str().expect("a path")])
    };
    let handler = "[topics]\npartitions = 64\n[[handler]]\nname = \"work\"\nkind = \"log\"\n";
    for (text, warned) in [
        ("intake = \"63/m\"", "warning: handler \"work\": intake is 63/m over 64 shards"),
        (
            "rate = \"60/m\"\ncatch_up = \"1/s\"",
            "warning: handler \"work\": catch_up is 1/s and rate is 60/m",
        ),
        ("[[collection]]\nname = \"a\"\nintake = \"1/s\"", "warning: collection \"a\": intake is 1/s"),
        ("[[collection]]\nname = \"*\"\nintake = \"1/h\"", "warning: collection \"*\": intake is 1/h"),
    ] {
        let ran = check(&format!("{handler}{text}"));
        assert!(ran.code == 0 && ran.err.contains(warned), "{text}\n{ran:?}");
    }
    let ran = check(&format!("{handler}intake = \"64/m\"\nrate = \"2/s\"\ncatch_up = \"60/m\""));
    assert!(ran.code == 0 && !ran.err.contains("warning"), "{ran:?}");
}
