//! Why a queue and a handler do not move.

use serde_json::json;

use super::dev::Dev;
use super::sink::Sink;
use super::until;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_and_a_handler_say_what_they_wait_for() {
    let sink = Sink::start().await;
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("dueline.toml");
    let url = sink.handler("hold");
    let text = format!("[[handler]]\nname = \"work\"\nkind = \"http\"\nurl = \"{url}\"\nconcurrency = 1\n");
    std::fs::write(&config, text).expect("written");
    let dev = Dev::configured(&dir.path().join("data"), Some(&config)).await;
    for (queue, id) in [("a", "1"), ("b", "1"), ("b", "2")] {
        let task = json!({"queue": queue, "id": id, "handler": "work"});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    let later = json!({"queue": "c", "id": "later", "handler": "work", "delay": "60s"});
    assert_eq!(dev.post("/v1/tasks", &later).await.status, 201);

    let found = until("one runs and one waits", || async {
        let found = dev.get("/v1/handlers/work/explain").await.json;
        let one = &found["instances"][0];
        (one["running"] == 1 && one["in_line"] == 1).then_some(found)
    })
    .await;
    assert_eq!(found["instances"][0]["slots_taken"], 1, "{found}");
    assert_eq!(found["instances"][0]["held_up"]["code"], "concurrency", "{found}");
    let words = dev.cli(&["handler", "explain", "work"]);
    assert!(words.out.contains("slots 1 of 1") && words.out.contains("in line 1"), "{words:?}");

    let runs = if sink.of("a", "1").is_empty() { "b" } else { "a" };
    let waits = if runs == "a" { "b" } else { "a" };
    let found = dev.get(&format!("/v1/queues/{waits}/explain")).await.json;
    assert_eq!((&found["head"]["id"], &found["running"]), (&json!("1"), &json!(0)), "{found}");
    assert!(found["head"]["reasons"].to_string().contains("\"concurrency\""), "{found}");
    let words = dev.cli(&["queue", "explain", runs]);
    assert!(words.out.contains("head 1") && words.out.contains("It is running"), "{words:?}");
    let words = dev.cli(&["queue", "explain", "c"]);
    assert!(
        words.out.contains("No task of it is ready") && words.out.contains("next: later at"),
        "{words:?}"
    );
    let words = dev.cli(&["queue", "explain", "nobody knows it"]);
    assert_eq!((words.code, words.out.as_str()), (0, "No task of it is ready.\n"), "{words:?}");

    dev.post("/v1/gates", &json!({"queue": waits, "reason": "incident 42"})).await;
    dev.post("/v1/gates", &json!({"handler": "work", "reason": "incident 43"})).await;
    let words = dev.cli(&["queue", "explain", waits]);
    assert!(words.out.contains("incident 42") && words.out.contains("incident 43"), "{words:?}");
    let words = dev.cli(&["handler", "explain", "work"]);
    assert!(words.out.contains("incident 43") && !words.out.contains("incident 42"), "{words:?}");
    let none = dev.get("/v1/handlers/wrok/explain").await;
    assert_eq!(none.problem(), (404, "unknown_handler"));
    assert!(none.text.contains("work"), "it names those there are: {}", none.text);
    sink.release();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_says_what_holds_up_some_of_its_tasks_alone() {
    let sink = Sink::start().await;
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("dueline.toml");
    let handler =
        format!("[[handler]]\nname = \"work\"\nkind = \"http\"\nurl = \"{}\"\n", sink.handler("hold"));
    let limits = "reserve = { priority = 8, slots = 99 }\nconcurrency = 100\n\
        [[collection]]\nname = \"tenant\"\nconcurrency = 1\n";
    std::fs::write(&config, handler + limits).expect("written");
    let dev = Dev::configured(&dir.path().join("data"), Some(&config)).await;
    for (queue, priority, collection) in
        [("a", 9, Some("tenant")), ("b", 9, Some("tenant")), ("c", 5, None), ("d", 5, None), ("e", 9, None)]
    {
        let mut task = json!({"queue": queue, "id": "1", "handler": "work", "priority": priority});
        if let Some(name) = collection {
            task["collection"] = json!(name);
        }
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    let found = until("two wait, each for its own reason", || async {
        let found = dev.get("/v1/handlers/work/explain").await.json;
        let one = &found["instances"][0];
        (one["running"] == 3 && one["in_line"] == 2).then_some(found)
    })
    .await;
    let one = &found["instances"][0];
    assert!(one.get("held_up").is_none(), "others would get a slot: {found}");
    let mut codes: Vec<&str> = one["held_up_apart"]
        .as_array()
        .expect("some are")
        .iter()
        .filter_map(|why| why["code"].as_str())
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, ["collection", "reserved"], "{found}");
    for verb in ["explain", "list"] {
        let args: &[&str] =
            if verb == "list" { &["handler", "list"] } else { &["handler", "explain", "work"] };
        let words = dev.cli(args);
        assert!(
            words.out.contains("collection \"tenant\"") && words.out.contains("kept for priority 8"),
            "{words:?}"
        );
    }
    sink.release();
}
