//! Points 1 to 7: outcomes, heads, dead letters, gates, limits, what is past.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Place, all, outcomes};

/// Point 1. Every outcome and what follows: attempts, waits, results and errors are on record, a snooze and an abort use up
/// no attempt.
pub(crate) async fn outcomes_and_retries_are_on_record(place: &Place) {
    for handler in ["flaky", "later", "snooze", "fatal", "result", "large"] {
        place.schedule("outcomes", handler, handler, json!({"on_failure": "park"})).await;
    }
    let two = json!({"retry": {"max_attempts": 2, "initial": "100ms", "jitter": 0}, "timeout": "1s"});
    place.schedule("outcomes-hang", "hang", "hang", two).await;
    let task = place.task_in("succeeded", "outcomes", "flaky").await;
    assert_eq!(outcomes(&task), ["retryable", "succeeded"], "{task}");
    let task = place.task_in("succeeded", "outcomes", "later").await;
    assert_eq!(outcomes(&task), ["retryable", "succeeded"], "{task}");
    apart(&task, 1_900);
    let task = place.task_in("succeeded", "outcomes", "snooze").await;
    assert_eq!((outcomes(&task), &task["attempts"][1]["attempt"]), (vec!["snoozed", "succeeded"], &json!(2)));
    apart(&task, 900);
    let task = place.task_in("dead", "outcomes", "fatal").await;
    assert_eq!((outcomes(&task), &task["reason"]), (vec!["fatal"], &json!("fatal")), "{task}");
    assert!(
        task["attempts"][0]["error"].as_str().is_some_and(|error| error.contains("no such user")),
        "{task}"
    );
    let task = place.task_in("succeeded", "outcomes", "result").await;
    assert_eq!((&task["result"], task.get("result_cut")), (&json!({"sent": 17}), None), "{task}");
    let task = place.task_in("succeeded", "outcomes", "large").await;
    let kept = task["result"].as_str().map(str::len);
    let is_cut = (&task["result_cut"], &task["attempts"][0]["result_cut"]);
    assert_eq!((kept, is_cut), (Some(16 * 1024), (&json!(true), &json!(true))), "{task}");
    let task = place.task_in("dead", "outcomes-hang", "hang").await;
    assert_eq!((outcomes(&task), &task["reason"]), (vec!["timed_out"; 2], &json!("exhausted")), "{task}");

    let once = json!({"retry": {"max_attempts": 1}, "timeout": "3s"});
    place.schedule("outcomes-abort", "one", "hang", once).await;
    place.calls("outcomes-abort", 1).await;
    place.done("/v1/tasks/outcomes-abort/one/abort", json!({"reason": "hangs"})).await;
    let task = place.task_in("dead", "outcomes-abort", "one").await;
    // Broken off, then its only attempt.
    assert_eq!(outcomes(&task), ["aborted", "timed_out"], "{task}");
}

/// The second attempt came so many milliseconds after the end of the first.
fn apart(task: &Value, least_ms: i64) {
    let time = |n: usize, name: &str| -> jiff::Timestamp {
        task["attempts"][n][name].as_str().expect("a time").parse().expect("a time")
    };
    let apart = time(1, "started_at").as_millisecond() - time(0, "ended_at").as_millisecond();
    assert!(apart >= least_ms, "{apart} ms: {task}");
}

/// Point 2. A head that fails holds its queue, is put aside, or stops its queue when it dies; blocked queues are listed.
pub(crate) async fn a_head_blocks_is_parked_or_stops_its_queue(place: &Place) {
    let slow = json!({"retry": {"max_attempts": 5, "initial": "1h", "max": "1h", "jitter": 0}});
    place.schedule("heads-block", "head", "heads", slow.clone()).await;
    place.schedule("heads-block", "next", "plain", json!({})).await;
    let mut aside = slow;
    aside["on_failure"] = json!("park");
    place.schedule("heads-park", "head", "heads", aside).await;
    place.schedule("heads-park", "next", "plain", json!({})).await;
    let once = json!({"retry": {"max_attempts": 1}, "on_dead": "stop"});
    place.schedule("heads-stop", "head", "heads", once).await;
    place.schedule("heads-stop", "next", "plain", json!({})).await;

    place.task_in("retrying", "heads-block", "head").await;
    let blocked = place
        .until("/v1/queues?blocked=true", |page| all(&page["queues"], "queue").contains(&"heads-block"))
        .await;
    let queues = blocked["queues"].as_array().expect("queues");
    let mine = queues.iter().find(|queue| queue["queue"] == "heads-block").expect("it is there");
    assert_eq!((&mine["head"], &mine["blocked"]), (&json!("head"), &json!("retrying")), "{mine}");
    assert!(mine["next_try"].is_string() && mine["head_ready_at"].is_string(), "{mine}");
    assert_eq!(place.get("/v1/tasks/heads-block/next").await["state"], "scheduled");

    place.task_in("succeeded", "heads-park", "next").await;
    place.task_in("parked", "heads-park", "head").await;

    place.task_in("dead", "heads-stop", "head").await;
    let explained = place.get("/v1/tasks/heads-stop/next/explain").await;
    assert_eq!(explained["reasons"][0]["code"], "gate", "{explained}");
    place.done("/v1/queues/heads-stop/resume", json!({"by": "alice"})).await;
    place.task_in("succeeded", "heads-stop", "next").await;
    a_handler_and_a_queue_say_it_for_their_tasks(place).await;
}

/// The handler says `park` and `stop`, one queue says `block`, a task what it likes.
async fn a_handler_and_a_queue_say_it_for_their_tasks(place: &Place) {
    let slow = json!({"retry": {"max_attempts": 5, "initial": "1h", "max": "1h", "jitter": 0}});
    let mut holds = slow.clone();
    holds["on_failure"] = json!("block");
    for (queue, head) in [("heads-of-handler", &slow), ("heads-of-queue", &slow), ("heads-of-task", &holds)] {
        place.schedule(queue, "head", "aside", head.clone()).await;
        place.schedule(queue, "next", "plain", json!({})).await;
    }
    place.task_in("parked", "heads-of-handler", "head").await;
    place.task_in("succeeded", "heads-of-handler", "next").await;
    for queue in ["heads-of-queue", "heads-of-task"] {
        place.task_in("retrying", queue, "head").await;
        assert_eq!(place.get(&format!("/v1/tasks/{queue}/next")).await["state"], "scheduled", "{queue}");
    }
    place.schedule("heads-of-dead", "head", "aside", json!({"retry": {"max_attempts": 1}})).await;
    place.schedule("heads-of-dead", "next", "plain", json!({})).await;
    place.task_in("dead", "heads-of-dead", "head").await;
    let explained = place.get("/v1/tasks/heads-of-dead/next/explain").await;
    assert_eq!(explained["reasons"][0]["code"], "gate", "{explained}");
}

/// Point 3. The dead are listed with their attempts, run again mended, by filter after a dry run, and are purged.
pub(crate) async fn the_dead_are_listed_mended_redriven_and_purged(place: &Place) {
    for n in 0..6 {
        let queue = format!("letters-{n}");
        place.schedule(&queue, "t", "letters", json!({"payload": {"mended": false}})).await;
        place.task_in("dead", &queue, "t").await;
    }
    let listed = place
        .until("/v1/dead-letters?handler=letters", |page| all(&page["dead_letters"], "id").len() == 6)
        .await;
    assert_eq!(all(&listed["dead_letters"], "queue")[0], "letters-5", "newest first");
    assert_eq!(all(&listed["dead_letters"], "reason"), ["fatal"; 6]);
    let shown = place.get("/v1/tasks/letters-0/t").await;
    assert_eq!(outcomes(&shown), ["fatal"], "{shown}");
    place.done("/v1/tasks/letters-0/t/redrive", json!({"payload": {"mended": true}, "reason": "typo"})).await;
    let mended = place.task_in("succeeded", "letters-0", "t").await;
    let died = &mended["earlier"][0];
    assert_eq!((outcomes(&mended), outcomes(died)), (vec!["succeeded"], vec!["fatal"]), "{mended}");
    assert_eq!((&died["state"], &died["reason"]), (&json!("dead"), &json!("fatal")), "{mended}");

    let dry = batch(place, json!({"verb": "redrive", "handler": "letters", "dry_run": true})).await;
    assert_eq!((&dry["found"], &dry["asked"]), (&json!(5), &json!(0)), "{dry}");
    let one = batch(place, json!({"verb": "redrive", "queue": "letters-1", "reason": "again"})).await;
    assert_eq!((&one["found"], &one["asked"], &one["failed"]), (&json!(1), &json!(1), &json!(0)), "{one}");
    place
        .until("/v1/tasks/letters-1/t", |task| {
            all(&task["events"], "verb").len() == 2 && task["state"] == "dead"
        })
        .await;
    let purged = batch(place, json!({"verb": "purge", "handler": "letters"})).await;
    assert_eq!((&purged["found"], &purged["failed"]), (&json!(5), &json!(0)), "{purged}");
    let left = place.get("/v1/dead-letters?handler=letters").await;
    assert_eq!(left["dead_letters"], json!([]), "{left}");
}

/// Begins a batch and waits until it is done.
pub(super) async fn batch(place: &Place, wanted: Value) -> Value {
    let begun = place.done("/v1/batches", wanted).await;
    let path = format!("/v1/batches/{}", begun["id"]);
    place.until(&path, |batch| batch["state"] == "done").await
}

/// Point 4. A gate pauses, drops or follows the clock, says who closed it and why, and ends by itself.
pub(crate) async fn gates_pause_drop_and_end_and_are_on_record(place: &Place) {
    let paused = json!({"queue": "gated-1", "reason": "incident 42", "by": "alice"});
    place.done("/v1/gates", paused).await;
    place.done("/v1/gates", json!({"queue": "gated-2", "for": "4s"})).await;
    place.done("/v1/gates", json!({"collection": "unwanted", "action": "drop", "by": "bob"})).await;
    // At any time of the day: two halves of it.
    for (name, rule) in [("am", "daily 00:00-12:00 UTC"), ("pm", "daily 12:00-00:00 UTC")] {
        place.done("/v1/gates", json!({"queue": "gated-3", "name": name, "blackout": rule})).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (queue, collection) in
        [("gated-1", ""), ("gated-2", ""), ("gated-3", ""), ("gated-4", "unwanted"), ("gated-5", "")]
    {
        let more = if collection.is_empty() { json!({}) } else { json!({"collection": collection}) };
        place.schedule(queue, "t", "gated", more).await;
    }
    place.task_in("dropped", "gated-4", "t").await;
    place.task_in("succeeded", "gated-5", "t").await;
    for queue in ["gated-1", "gated-3"] {
        let explained = place.get(&format!("/v1/tasks/{queue}/t/explain")).await;
        assert_eq!(all(&explained["reasons"], "code"), ["gate"], "{explained}");
    }
    // `gated-2` ends by itself.
    place.task_in("succeeded", "gated-2", "t").await;
    assert_eq!(place.get("/v1/tasks/gated-1/t").await["state"], "scheduled");
    place.done("/v1/queues/gated-1/resume", json!({"by": "carol"})).await;
    place.task_in("succeeded", "gated-1", "t").await;
    for name in ["am", "pm"] {
        place.done("/v1/gates:clear", json!({"queue": "gated-3", "name": name})).await;
    }
    place.task_in("succeeded", "gated-3", "t").await;
    // What runs already goes on, or is broken off.
    for (queue, abort) in [("gated-6", true), ("gated-7", false)] {
        place.schedule(queue, "t", "hang", json!({"timeout": "8s"})).await;
        place.calls(queue, 1).await;
        place.done("/v1/gates", json!({"queue": queue, "abort_running": abort})).await;
    }
    let is_aborted = |task: &Value| task["attempts"][0]["outcome"] == "aborted";
    let broken_off = place.until("/v1/tasks/gated-6/t", is_aborted).await;
    assert_eq!(broken_off["attempts"].as_array().map(Vec::len), Some(1), "{broken_off}");
    let goes_on = place.until("/v1/tasks/gated-7/t", |task| task["attempts"][0]["outcome"].is_string()).await;
    assert_eq!(goes_on["attempts"][0]["outcome"], "timed_out", "{goes_on}");
    let operations = place.get("/v1/operations?page_size=1000").await;
    let by = all(&operations["operations"], "by");
    assert!(["alice", "bob", "carol"].iter().all(|name| by.contains(name)), "{operations}");
}

/// Point 5. Slots go by priority, some are kept, a handler that fails is left alone, a quota refuses visibly, and nothing of
/// it holds up other handlers.
pub(crate) async fn slots_go_by_priority_and_limits_hold_up_their_own_only(place: &Place) {
    let queues = place.together("narrow", 4).await;
    place.schedule(&queues[0], "t", "narrow", json!({"timeout": "60s"})).await;
    place.calls("narrow", 1).await;
    for (queue, priority) in [(&queues[1], 1), (&queues[2], 9), (&queues[3], 5)] {
        place.schedule(queue, "t", "narrow", json!({"priority": priority, "timeout": "60s"})).await;
    }
    let path = format!("/v1/tasks/{}/t/explain", queues[1]);
    let explained = place.until(&path, |found| all(&found["reasons"], "code").contains(&"no_slot")).await;
    let said = explained["reasons"].to_string();
    assert!(said.contains("number 3 of 3") && said.contains("concurrency"), "{said}");

    let left = 2 / place.instances();
    let queues_kept = place.together("kept", left + 2).await;
    for queue in &queues_kept[..=left] {
        place.schedule(queue, "t", "kept", json!({"priority": 5, "timeout": "60s"})).await;
    }
    place.calls("kept", left).await;
    place.schedule(&queues_kept[left + 1], "t", "kept", json!({"priority": 9, "timeout": "60s"})).await;
    let called = place.calls("kept", left + 1).await.into_iter().map(|call| call.queue);
    let called: Vec<String> = called.collect();
    assert!(called.contains(&queues_kept[left + 1]), "a slot is kept for it: {called:?}");

    let broken = place.together("broken", 6).await;
    for queue in &broken {
        place.schedule(queue, "t", "broken", json!({"retry": {"max_attempts": 1}})).await;
    }
    place.until("/v1/handlers/broken/explain", |found| found.to_string().contains("\"breaker\"")).await;
    assert!(place.sink.of("broken").len() < 6, "it is left alone after three failures in a row");

    let mut refused = 0;
    for n in 0..12 {
        let task =
            json!({"queue": "quota", "id": format!("t{n}"), "handler": "plain", "collection": "small"});
        let (status, answer) = place.post("/v1/tasks", task).await;
        assert!(status == 201 || (status == 429 && answer["code"] == "over_quota"), "{status} {answer}");
        refused += usize::from(status == 429);
    }
    assert!(refused > 0, "8 in an hour over all shards");
    place.schedule("quota", "other", "plain", json!({})).await;
    place.task_in("succeeded", "quota", "other").await;

    place.sink.release();
    let called: Vec<String> = place.calls("narrow", 4).await.into_iter().map(|call| call.queue).collect();
    assert_eq!(called, [&queues[0], &queues[2], &queues[3], &queues[1]].map(String::clone), "9, 5, 1");
}

/// Point 5. What is late after an outage begins at its handler's own rate over all instances, and what is live at once.
pub(crate) async fn what_is_late_after_a_gate_begins_at_its_own_rate_and_live_tasks_at_once(place: &Place) {
    let late = 80;
    place.done("/v1/gates", json!({"handler": "late", "reason": "outage"})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for n in 0..late {
        place.schedule(&format!("late-{n}"), "t", "late", json!({"due_at": "2020-01-01T00:00:00Z"})).await;
    }
    // Late is what could first run more than a minute ago.
    tokio::time::sleep(Duration::from_secs(62)).await;
    assert_eq!(place.sink.of("late").len(), 0);
    let opened = Instant::now();
    place.done("/v1/gates:clear", json!({"handler": "late", "reason": "over"})).await;
    let last = format!("/v1/tasks/late-{}/t/explain", late - 1);
    let is_held_up = |found: &Value| all(&found["reasons"], "code").contains(&"catch_up");
    let explained = place.until(&last, is_held_up).await;
    assert!(explained.to_string().contains("5/s"), "{explained}");
    // On as many queues as reach both of two instances.
    for n in 0..8 {
        place.schedule(&format!("live-{n}"), "t", "late", json!({})).await;
    }
    place.calls("live", 8).await;
    let before = place.sink.of("late").len();
    assert!(before < late, "they did not wait for what is late");
    // Each instance has a burst, one call when it begins and a quarter of a second besides. A slow machine makes calls
    // later, never earlier.
    for (n, call) in place.calls("late", late).await.iter().enumerate() {
        let most = 5.0 * (call.at - opened).as_secs_f64() + 6.0;
        assert!(
            ((n + 1) as f64) <= most,
            "call {} of what is late, {:?} after the gate",
            n + 1,
            call.at - opened
        );
    }
}

/// Points 6 and 7. What is past is skipped or expires, after an outage as live, and each is a record that lists and metrics
/// find.
pub(crate) async fn what_is_past_is_closed_on_record(place: &Place) {
    place.done("/v1/gates", json!({"handler": "past", "reason": "down"})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let soon = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1)).to_string();
    place.schedule("past-1", "expires", "past", json!({"expires_at": soon})).await;
    place.schedule("past-2", "skipped", "past", json!({"misfire": "skip", "misfire_grace": "1s"})).await;
    place.schedule("past-3", "late", "past", json!({})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    place.done("/v1/gates:clear", json!({"handler": "past"})).await;
    place.task_in("expired", "past-1", "expires").await;
    place.task_in("skipped", "past-2", "skipped").await;
    place.task_in("succeeded", "past-3", "late").await;
    // Live: what waits behind a head until its time is over.
    let twice = json!({"retry": {"max_attempts": 2, "initial": "3s", "max": "3s", "jitter": 0}});
    place.schedule("past-5", "head", "heads", twice).await;
    let soon = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1)).to_string();
    place.schedule("past-5", "expires", "past", json!({"expires_at": soon})).await;
    place.schedule("past-5", "skipped", "past", json!({"misfire": "skip", "misfire_grace": "1s"})).await;
    place.schedule("past-5", "late", "past", json!({})).await;
    place.task_in("dead", "past-5", "head").await;
    let expired = place.task_in("expired", "past-5", "expires").await;
    let skipped = place.task_in("skipped", "past-5", "skipped").await;
    for task in [expired, skipped] {
        assert!(task["closed"]["at"].is_string() && task["closed"]["epoch"].is_u64(), "{task}");
        assert_eq!(task["attempts"], json!([]), "{task}");
    }
    place.task_in("succeeded", "past-5", "late").await;
    place.schedule("past-4", "expired", "past", json!({"delay": "1h"})).await;
    place.done("/v1/tasks/past-4/expired/cancel", json!({"reason": "not needed"})).await;
    for (state, queues) in [
        ("expired", &["past-1", "past-5"][..]),
        ("skipped", &["past-2", "past-5"]),
        ("cancelled", &["past-4"]),
    ] {
        let listed = place.get(&format!("/v1/tasks?state={state}&handler=past")).await;
        assert_eq!(all(&listed["tasks"], "queue"), queues, "{listed}");
    }
    assert_eq!(place.sink.of("past").len(), 4, "two that were late, and a head twice");
    for reason in ["expired", "skipped"] {
        assert!(place.closed(reason).await >= 2, "{reason}");
    }
}
