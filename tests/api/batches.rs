//! Batches: one verb for many tasks, over restarts; what came after one began is left alone.

use serde_json::{Value, json};

use super::dev::Dev;
use super::sink::Sink;
use super::until;

async fn started() -> (tempfile::TempDir, Dev) {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    (dir, dev)
}

async fn schedule(dev: &Dev, queue: &str, id: &str, collection: &str) {
    let task = json!({"queue": queue, "id": id, "handler": "log", "delay": "1h", "collection": collection});
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
}

async fn begun(dev: &Dev, body: &Value) -> u64 {
    let answer = dev.post("/v1/batches", body).await;
    assert_eq!(answer.status, 202, "{}", answer.json);
    answer.json["id"].as_u64().expect("a number")
}

async fn in_state(dev: &Dev, id: u64, state: &str) -> Value {
    let path = format!("/v1/batches/{id}");
    until(&format!("batch {id} {state}"), || async {
        let seen = dev.get(&path).await.json;
        (seen["state"] == state).then_some(seen)
    })
    .await
}

async fn state_of(dev: &Dev, queue: &str, id: &str) -> String {
    let task = dev.get(&format!("/v1/tasks/{queue}/{id}")).await.json;
    task["state"].as_str().unwrap_or_default().to_owned()
}

fn counts(batch: &Value) -> [u64; 3] {
    ["found", "asked", "failed"].map(|name| batch[name].as_u64().expect("a count"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_cancels_what_its_filter_takes_and_a_dry_run_nothing() {
    let (_dir, dev) = started().await;
    for n in 0..30 {
        let collection = if n < 20 { "mine" } else { "other" };
        schedule(&dev, &format!("q{}", n % 7), &format!("t{n}"), collection).await;
    }
    let wanted = json!({"verb": "cancel", "collection": "mine", "dry_run": true});
    let dry = in_state(&dev, begun(&dev, &wanted).await, "done").await;
    assert_eq!((counts(&dry), dry["sample"].as_array().map(Vec::len)), ([20, 0, 0], Some(5)), "{dry}");
    assert_eq!(state_of(&dev, "q0", "t0").await, "scheduled");
    let ran = dev.cli(&["batch", "cancel", "--collection", "mine", "--reason", "tenant left", "--by", "me"]);
    assert!(ran.code == 0 && ran.out.starts_with("20 asked to be cancelled, 0 failed"), "{ran:?}");
    for n in 0..30 {
        let (queue, id) = (format!("q{}", n % 7), format!("t{n}"));
        let state = if n < 20 { "cancelled" } else { "scheduled" };
        dev.task_in(state, &queue, &id).await;
    }
    let events = dev.get("/v1/tasks/q0/t0").await.json["events"].to_string();
    assert!(events.contains("tenant left"), "each task says why: {events}");
    let again =
        in_state(&dev, begun(&dev, &json!({"verb": "cancel", "collection": "mine"})).await, "done").await;
    assert_eq!(counts(&again), [0, 0, 0], "nothing is left");
    let operations = dev.get("/v1/operations").await.json;
    let first = &operations["operations"][1];
    assert_eq!(
        (&first["change"], &first["by"], &first["reason"]),
        (&json!("batch_begun"), &json!("me"), &json!("tenant left"))
    );
    let listed = dev.cli(&["batch", "list"]);
    assert!(listed.out.lines().count() == 3 && listed.out.contains("dry run, 20 found"), "{listed:?}");
}

/// A page is read at once and asked for long after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_before_its_turn_comes_is_left_alone() {
    let (_dir, dev) = started().await;
    for n in 0..40 {
        schedule(&dev, &format!("q{n}"), &format!("t{n}"), "slow").await;
    }
    let id = begun(&dev, &json!({"verb": "cancel", "collection": "slow", "rate": 10})).await;
    until("some to be asked", || async {
        let seen = dev.get(&format!("/v1/batches/{id}")).await.json;
        (counts(&seen)[1] >= 3).then_some(())
    })
    .await;
    let mut replaced = Vec::new();
    for n in 0..40 {
        let (queue, id) = (format!("q{n}"), format!("t{n}"));
        if state_of(&dev, &queue, &id).await == "scheduled" {
            let task = json!({"queue": queue, "id": id, "handler": "log", "delay": "1h", "collection": "slow", "payload": 2});
            if dev.post("/v1/tasks", &task).await.decision() == (201, "replaced") {
                replaced.push((queue, id));
            }
        }
    }
    assert!(replaced.len() > 10, "{replaced:?}");
    in_state(&dev, id, "done").await;
    let mut kept = 0;
    for (queue, id) in &replaced {
        kept += usize::from(state_of(&dev, queue, id).await == "scheduled");
    }
    // One whose cancel was on its way may have been replaced before that was decided.
    assert!(kept + 2 >= replaced.len(), "{kept} of {}", replaced.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_sent_twice_under_a_key_begins_once() {
    let (_dir, dev) = started().await;
    schedule(&dev, "q", "a", "c").await;
    let before = dev.get("/v1/tasks/q/a").await.json["due_at"].as_str().map(str::to_owned).expect("a time");
    let send = async |body: Value| {
        let headers = [("idempotency-key", "move-1")];
        dev.send(reqwest::Method::POST, "/v1/batches", body.to_string(), &headers).await
    };
    let wanted = json!({"verb": "reschedule", "queue": "q", "shift": "1h"});
    let first = send(wanted.clone()).await.json["id"].as_u64().expect("a number");
    in_state(&dev, first, "done").await;
    let again = send(wanted).await;
    assert_eq!((again.status.as_u16(), again.json["id"].as_u64()), (202, Some(first)), "{}", again.json);
    assert_eq!(send(json!({"verb": "cancel", "queue": "q"})).await.problem(), (409, "conflict"));
    let before: jiff::Timestamp = before.parse().expect("a time");
    let wanted = (before + jiff::SignedDuration::from_hours(1)).to_string();
    until("one hour later", || async {
        let now: jiff::Timestamp = dev.get("/v1/tasks/q/a").await.json["due_at"].as_str()?.parse().ok()?;
        (now.to_string() == wanted).then_some(())
    })
    .await;
}

/// Killed in the middle, and stopped and resumed after that: each due time moves once. What comes later is left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_goes_on_after_a_kill_and_moves_each_task_once() {
    let (dir, dev) = started().await;
    let mut due = std::collections::BTreeMap::new();
    for n in 0..60 {
        let (queue, id) = (format!("q{}", n % 9), format!("t{n}"));
        schedule(&dev, &queue, &id, "c").await;
        let task = dev.get(&format!("/v1/tasks/{queue}/{id}")).await.json;
        due.insert((queue, id), task["due_at"].as_str().expect("a time").to_owned());
    }
    let id = begun(&dev, &json!({"verb": "reschedule", "collection": "c", "shift": "2h", "rate": 20})).await;
    let some = |seen: &Value, least: u64| (counts(seen)[1] >= least).then_some(());
    let path = format!("/v1/batches/{id}");
    until("some to be asked", || async { some(&dev.get(&path).await.json, 10) }).await;
    schedule(&dev, "q0", "later", "c").await;
    let later = dev.get("/v1/tasks/q0/later").await.json["due_at"].clone();
    dev.kill();
    let dev = Dev::start(dir.path()).await;
    until("more to be asked", || async { some(&dev.get(&path).await.json, 30) }).await;
    assert_eq!(dev.post(&format!("{path}/stop"), &json!({"reason": "wait"})).await.status, 200);
    let stopped = in_state(&dev, id, "stopped").await;
    assert!(counts(&stopped)[1] < 60, "{stopped}");
    assert_eq!(dev.post(&format!("{path}/resume"), &json!({})).await.status, 200);
    let done = in_state(&dev, id, "done").await;
    assert!(counts(&done)[1] >= 60 && counts(&done)[2] == 0, "{done}");
    assert_eq!(dev.post(&format!("{path}/stop"), &json!({})).await.problem(), (409, "batch_done"));
    for ((queue, id), due_at) in due {
        let at: jiff::Timestamp = due_at.parse().expect("a time");
        let moved = (at + jiff::SignedDuration::from_hours(2)).to_string();
        let path = format!("/v1/tasks/{queue}/{id}");
        until("the new time", || async {
            let now = dev.get(&path).await.json["due_at"].as_str().map(str::parse::<jiff::Timestamp>);
            let now = now.and_then(Result::ok).expect("a time");
            assert!(now == at || now.to_string() == moved, "{id}: {now} after {at}");
            (now != at).then_some(())
        })
        .await;
    }
    assert_eq!(dev.get("/v1/tasks/q0/later").await.json["due_at"], later);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_redrives_the_oldest_first_and_a_purge_empties_the_list() {
    let (_dir, dev) = started().await;
    let sink = Sink::start().await;
    let ids: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
    for id in &ids {
        let task = json!({"queue": "q", "id": id, "handler": sink.handler("fatal"), "collection": "c"});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    dev.task_in("dead", "q", "t7").await;
    let before = sink.count();
    let redriven = dev.cli(&["dead-letter", "redrive", "q", "--rate", "1000"]);
    assert!(redriven.code == 0 && redriven.out.starts_with("8 asked to be redriven"), "{redriven:?}");
    until("eight calls", || async { (sink.count() >= before + 8).then_some(()) }).await;
    let again: Vec<String> = sink.calls()[before..].iter().map(|call| call.id().to_owned()).collect();
    assert_eq!(again, ids, "in the order of their deaths");
    until("the deaths", || async { (dead(&dev).await.len() == 8).then_some(()) }).await;

    let one = dev.cli(&["dead-letter", "purge", "q", "t3"]);
    assert!(one.code == 0 && one.out.starts_with("1 asked to be purged"), "{one:?}");
    assert_eq!(dead(&dev).await, ["t7", "t6", "t5", "t4", "t2", "t1", "t0"]);
    let dry = dev.cli(&["dead-letter", "purge", "--all", "--died", "fatal", "--dry-run"]);
    assert!(dry.out.starts_with("7 would be purged"), "{dry:?}");
    let all = dev.cli(&["dead-letter", "purge", "--all", "-o", "json"]);
    let all: Value = serde_json::from_str(&all.out).expect("a batch");
    assert_eq!((counts(&all), &all["state"]), ([7, 7, 0], &json!("done")));
    assert_eq!(dead(&dev).await, Vec::<String>::new());
    let gone = dev.cli(&["dead-letter", "purge", "q", "t3"]);
    assert_eq!(gone.code, 3, "{gone:?}");
    assert_eq!(state_of(&dev, "q", "t3").await, "dead", "what is known of it stays");
    assert_eq!(dev.post("/v1/tasks/q/t3/redrive", &json!({})).await.decision(), (200, "redriven"));
}

async fn dead(dev: &Dev) -> Vec<String> {
    let page = dev.get("/v1/dead-letters").await.json;
    let letters = page["dead_letters"].as_array().expect("a list").iter();
    letters.map(|letter| letter["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_wrong_or_means_everything_is_refused_and_begins_nothing() {
    let (_dir, dev) = started().await;
    for (body, status) in [
        (json!({}), 400),
        (json!({"verb": "cancel"}), 400),
        (json!({"verb": "cancel", "queue": "q", "rate": 0}), 400),
        (json!({"verb": "cancel", "queue": "q", "rate": -1}), 400),
        (json!({"verb": "reschedule", "queue": "q"}), 400),
        (json!({"verb": "reschedule", "queue": "q", "shift": "9999999999999h"}), 400),
        (json!({"verb": "redrive", "handler": ""}), 400),
        (json!({"verb": "purge", "all": true, "quietly": true}), 400),
        (json!({"verb": "cancel", "state": "scheduled"}), 400),
        (json!({"verb": "reschedule", "state": "scheduled", "shift": "1h"}), 400),
        (json!({"verb": "redrive", "died": "exhausted", "dry_run": true}), 400),
        (json!({"verb": "purge", "died": "exhausted"}), 400),
    ] {
        let answer = dev.post("/v1/batches", &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.json);
    }
    for path in ["/v1/batches/1", "/v1/batches/1/nothing", "/v1/batches/18446744073709551615"] {
        assert_eq!(dev.get(path).await.status, 404, "{path}");
    }
    assert_eq!(dev.get("/v1/batches/one").await.problem(), (400, "invalid_path"));
    assert_eq!(dev.post("/v1/batches/7/stop", &json!({})).await.problem(), (404, "unknown_batch"));
    assert_eq!(dev.get("/v1/batches").await.json["batches"], json!([]));
    for args in [&["batch", "cancel"][..], &["batch", "reschedule", "--all"], &["dead-letter", "purge"]] {
        let ran = dev.cli(args);
        assert_eq!(ran.code, 2, "{ran:?}");
    }
}
