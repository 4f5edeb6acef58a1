//! Points 9 to 11, and what is refused: explain, history and lists, bulk.

use serde_json::json;

use super::policies::batch;
use super::{Place, all, outcomes};

/// Point 9. A task, its queue and its handler say why nothing happens, and until when.
pub(crate) async fn a_task_a_queue_and_a_handler_say_why(place: &Place) {
    let slow = json!({"retry": {"max_attempts": 5, "initial": "1h", "max": "1h", "jitter": 0}});
    place.schedule("why", "head", "heads", slow).await;
    place.schedule("why", "second", "plain", json!({})).await;
    place.schedule("why", "far", "plain", json!({"delay": "2h"})).await;
    let head = place.task_in("retrying", "why", "head").await;

    let explained = place.get("/v1/tasks/why/head/explain").await;
    assert_eq!(all(&explained["reasons"], "code"), ["retrying"], "{explained}");
    assert_eq!(explained["earliest_start"], head["next_at"], "{explained}");
    let explained = place.get("/v1/tasks/why/second/explain").await;
    assert_eq!(all(&explained["reasons"], "code"), ["behind_head"], "{explained}");
    let said = explained["reasons"][0]["detail"].as_str().expect("words");
    assert!(said.contains("task head") && said.contains("attempt 2"), "{said}");
    assert_eq!(explained["earliest_start"], head["next_at"], "{explained}");
    let explained = place.get("/v1/tasks/why/far/explain").await;
    assert!(all(&explained["reasons"], "code").contains(&"not_due"), "{explained}");
    let queue = place.get("/v1/queues/why/explain").await;
    assert_eq!((&queue["head"]["id"], &queue["ready"]), (&json!("head"), &json!(2)), "{queue}");
    let handler = place.get("/v1/handlers/heads/explain").await;
    let retrying: u64 = handler["instances"]
        .as_array()
        .expect("instances")
        .iter()
        .filter_map(|one| one["retrying"].as_u64())
        .sum();
    assert!(retrying >= 1, "{handler}");
    place.done("/v1/tasks/why/head/cancel", json!({})).await;
    place.task_in("succeeded", "why", "second").await;
    let explained = place.get("/v1/tasks/why/second/explain").await;
    assert_eq!(all(&explained["reasons"], "code"), ["finished"], "{explained}");
}

/// Point 10. Every change of a task with time, owner and reason; lists by queue, handler, collection, state and time, oldest
/// or newest first, in pages.
pub(crate) async fn history_and_lists_tell_everything(place: &Place) {
    let at = |minutes: i64| (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes)).to_string();
    let (first, end) = (at(60), at(120));
    for n in 0..12 {
        let more = json!({"due_at": at(61 + n), "collection": if n % 2 == 0 { "even" } else { "odd" }});
        place.schedule(&format!("listed-{}", n % 3), &format!("t{n}"), "listed", more).await;
    }
    let range = format!("from={first}&to={end}&handler=listed");
    let oldest: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    let newest: Vec<String> = oldest.iter().rev().cloned().collect();
    assert_eq!(pages(place, &range).await, oldest);
    assert_eq!(pages(place, &format!("{range}&order=newest")).await, newest);
    assert_eq!(
        pages(place, &format!("{range}&queue=listed-1&order=newest")).await,
        ["t10", "t7", "t4", "t1"]
    );
    assert_eq!(pages(place, &format!("{range}&collection=odd&queue=listed-1")).await, ["t1", "t7"]);
    assert_eq!(pages(place, &format!("{range}&state=succeeded")).await, Vec::<String>::new());

    place.done("/v1/tasks/listed-0/t0/reschedule", json!({"delay": "90m", "reason": "later"})).await;
    place.done("/v1/tasks/listed-0/t0/run", json!({"reason": "now after all"})).await;
    let task = place.task_in("succeeded", "listed-0", "t0").await;
    let mut verbs = all(&task["events"], "verb");
    verbs.sort_unstable();
    assert_eq!(verbs, ["reschedule", "reschedule", "schedule"], "{task}");
    let reasons = all(&task["events"], "reason");
    assert!(reasons.contains(&"later") && reasons.contains(&"now after all"), "{task}");
    let attempt = &task["attempts"][0];
    assert_eq!(outcomes(&task), ["succeeded"]);
    assert!(
        attempt["instance"].is_string() && attempt["epoch"].is_u64() && attempt["started_at"].is_string(),
        "{task}"
    );
    let events = task["events"].as_array().expect("events");
    assert!(events.iter().all(|event| event["epoch"].is_u64() && event["appended_at"].is_string()), "{task}");
    let times = all(&task["earlier"], "due_at");
    assert!(times.len() == 2 && all(&task["earlier"], "state") == ["replaced", "replaced"], "{task}");
}

/// The ids of all pages of a list, in pages of five.
async fn pages(place: &Place, query: &str) -> Vec<String> {
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let page = place.get(&format!("/v1/tasks?page_size=5&{query}{token}")).await;
        found.extend(all(&page["tasks"], "id").into_iter().map(str::to_owned));
        let Some(next) = page["next_page_token"].as_str() else { return found };
        token = format!("&page_token={next}");
    }
}

/// Point 11. Many at once by filter: a dry run first, then cancelled or shifted, on record with who asked and why.
pub(crate) async fn many_are_cancelled_and_shifted_by_filter(place: &Place) {
    for n in 0..10 {
        let collection = if n < 6 { "bulk-a" } else { "bulk-b" };
        place
            .schedule(&format!("bulk-{n}"), "t", "bulk", json!({"delay": "1h", "collection": collection}))
            .await;
    }
    let dry = batch(place, json!({"verb": "cancel", "collection": "bulk-a", "dry_run": true})).await;
    assert_eq!((&dry["found"], &dry["asked"]), (&json!(6), &json!(0)), "{dry}");
    assert_eq!(dry["sample"].as_array().map(Vec::len), Some(5), "{dry}");
    let wanted = json!({"verb": "cancel", "collection": "bulk-a", "by": "dave", "reason": "tenant left"});
    let done = batch(place, wanted).await;
    assert_eq!((&done["asked"], &done["failed"]), (&json!(6), &json!(0)), "{done}");
    let task = place.task_in("cancelled", "bulk-0", "t").await;
    assert!(
        all(&task["events"], "reason").contains(&format!("batch {}: tenant left", done["id"]).as_str()),
        "{task}"
    );
    let before = place.get("/v1/tasks/bulk-9/t").await["due_at"].clone();
    let done = batch(place, json!({"verb": "reschedule", "collection": "bulk-b", "shift": "30m"})).await;
    assert_eq!((&done["asked"], &done["failed"]), (&json!(4), &json!(0)), "{done}");
    let moved = place.until("/v1/tasks/bulk-9/t", |task| task["due_at"] != before).await;
    assert!(moved["due_at"].as_str() > before.as_str(), "{moved}");
    let operations = place.get("/v1/operations?page_size=1000").await;
    assert!(all(&operations["operations"], "by").contains(&"dave"), "{operations}");
}

/// What makes no sense is refused by name and changes nothing.
pub(crate) async fn what_makes_no_sense_is_refused_by_name(place: &Place) {
    let task = |more: serde_json::Value| {
        let mut task = json!({"queue": "refused", "id": "t", "handler": "plain", "delay": "1h"});
        task.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        task
    };
    for wrong in [
        json!({"retry": {"max_attempts": 0}}),
        json!({"retry": {"initial": "-1s"}}),
        json!({"retry": {"factor": 0.5}}),
        json!({"timeout": "99999999999h"}),
        json!({"misfire": "sometimes"}),
        json!({"priority": 10}),
    ] {
        let (status, answer) = place.post("/v1/tasks", task(wrong.clone())).await;
        assert!(status == 400 && answer["errors"][0]["pointer"].is_string(), "{wrong}: {status} {answer}");
    }
    assert_eq!(place.get("/v1/tasks/refused/t").await["code"], "unknown_task");
    place.refused("/v1/gates", json!({"handler": "nobody"}), "unknown_handler").await;
    place.refused("/v1/batches", json!({"verb": "cancel"}), "invalid_body").await;
    place
        .refused("/v1/batches", json!({"verb": "cancel", "handler": "bulk", "rate": 0}), "invalid_field")
        .await;
    place.schedule("refused-run", "t", "hang", json!({"retry": {"max_attempts": 1}})).await;
    place.calls("refused-run", 1).await;
    place.refused("/v1/tasks/refused-run/t/redrive", json!({}), "not_dead").await;
}
