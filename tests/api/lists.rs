//! Lists: in order of time over all shards, whole over pages, without what was put aside.

use reqwest::Method;
use serde_json::{Value, json};

use super::dev::Dev;

/// Follows the pages of a list.
async fn listed(dev: &Dev, query: &str, page_size: usize) -> Vec<Value> {
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let page = dev.get(&format!("/v1/tasks?page_size={page_size}{query}{token}")).await.json;
        found.extend(page["tasks"].as_array().expect("tasks").iter().cloned());
        let Some(next) = page["next_page_token"].as_str() else { return found };
        token = format!("&page_token={next}");
    }
}

fn names(tasks: &[Value]) -> Vec<String> {
    let name = |task: &Value| {
        format!("{}/{}", task["queue"].as_str().unwrap_or("-"), task["id"].as_str().unwrap_or("-"))
    };
    tasks.iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_all_shards_are_listed_by_time_whatever_the_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    let hour = jiff::Timestamp::now().as_millisecond() + 3_600_000;
    // Ten queues on eight shards, twelve tasks each; every ten tasks are due in the same millisecond.
    let lines = (0..120).map(|n: i64| {
        let due = jiff::Timestamp::from_millisecond(hour + 1_000 * (n / 10 % 12)).expect("a time");
        json!({"queue": format!("q{}", n % 10), "id": n.to_string(), "due_at": due.to_string(), "handler": "log"}).to_string()
    });
    let body = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(dev.send(Method::POST, "/v1/tasks:batch", body, &[]).await.status, 200);
    for n in 0..120 {
        dev.task_in("scheduled", &format!("q{}", n % 10), &n.to_string()).await;
    }
    let all = listed(&dev, "", 1_000).await;
    let due: Vec<&str> = all.iter().map(|task| task["due_at"].as_str().expect("a time")).collect();
    assert!(due.len() == 120 && due.is_sorted(), "{due:?}");
    let last = all[119]["due_at"].as_str().expect("a time");
    let end = jiff::Timestamp::from_millisecond(hour + 3_600_000).expect("a time");
    let mut back = names(&all);
    back.reverse();
    for page_size in [1, 7, 50] {
        assert_eq!(names(&listed(&dev, "", page_size).await), names(&all), "{page_size}");
        let newest = listed(&dev, &format!("&order=newest&to={end}"), page_size).await;
        assert_eq!(names(&newest), back, "{page_size} from the end");
    }
    let before_last = listed(&dev, &format!("&order=newest&to={last}&queue=q3"), 4).await;
    assert!(before_last.len() == 11 && before_last[0]["due_at"].as_str() < Some(last), "{before_last:?}");
    assert_eq!(listed(&dev, "&order=newest", 7).await.len(), 0, "nothing was due until now");
    let (from, to) =
        (all[20]["due_at"].as_str().expect("a time"), all[60]["due_at"].as_str().expect("a time"));
    let part = listed(&dev, &format!("&from={from}&to={to}"), 9).await;
    assert_eq!(names(&part), names(&all[20..60]));
    assert_eq!(listed(&dev, "&queue=q3", 5).await.len(), 12);
    let page = dev.get("/v1/tasks?page_size=1").await.json;
    let token = page["next_page_token"].as_str().expect("more");
    for wrong in [
        format!("from={from}&page_token={token}"),
        format!("order=newest&page_token={token}"),
        "order=up".to_owned(),
    ] {
        let other = dev.get(&format!("/v1/tasks?{wrong}")).await;
        assert_eq!(other.problem(), (400, "invalid_parameter"), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_put_aside_is_listed_only_when_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    for delay in ["1h", "2h", "3h"] {
        let task = json!({"queue": "r", "id": "one", "delay": delay, "handler": "log"});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    assert_eq!(listed(&dev, "", 10).await.len(), 1);
    assert_eq!(listed(&dev, "&state=replaced", 10).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_names_its_head_and_shards_tell_how_far_they_are() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    let retry = json!({"max_attempts": 3, "initial": "1h", "max": "1h", "jitter": 0});
    let head = json!({"queue": "h", "id": "head", "handler": "http://127.0.0.1:1/", "retry": retry});
    assert_eq!(dev.post("/v1/tasks", &head).await.status, 201);
    let head = dev.task_in("retrying", "h", "head").await;
    let queue = dev.get("/v1/queues/h").await.json;
    assert_eq!((&queue["head"], &queue["next_try"]), (&json!("head"), &head["next_at"]));
    assert_eq!((&queue["head_ready_at"], &queue["shard"]), (&head["ready_at"], &head["shard"]));
    let shards = dev.get("/v1/shards").await.json;
    let own = &shards["shards"]
        [head["shard"].as_u64().and_then(|shard| usize::try_from(shard).ok()).expect("a number")];
    assert_eq!((&own["applied"], &own["lag"], &own["phase"]), (&json!(0), &json!(0), &json!("running")));
    let unasked = dev.get("/v1/shards?lag=false").await.json;
    let of = |page: &Value| page["shards"].as_array().cloned().expect("shards");
    assert_eq!(of(&unasked).len(), of(&shards).len());
    for (unasked, shard) in of(&unasked).iter().zip(&of(&shards)) {
        assert_eq!(
            (&unasked["shard"], &unasked["epoch"], &unasked["lag"]),
            (&shard["shard"], &shard["epoch"], &Value::Null)
        );
    }
    let nothing = dev.get("/v1/queues/nothing").await.json;
    assert_eq!((&nothing["ready"], &nothing["head"]), (&json!(0), &Value::Null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_says_when_it_looked_and_looks_further_for_one_queue() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    for (id, collection) in [("one", "red"), ("two", "blue")] {
        let task =
            json!({"queue": "w", "id": id, "delay": "72h", "handler": "log", "collection": collection});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    assert_eq!(listed(&dev, "", 10).await.len(), 0, "further than a day ahead");
    assert_eq!(listed(&dev, "&queue=w", 10).await.len(), 2);
    let none = dev.cli(&["task", "list"]);
    assert!(
        none.code == 0 && none.out.is_empty() && none.err.starts_with("no tasks ready from "),
        "{none:?}"
    );
    let red = dev.cli(&["task", "list", "--queue", "w", "--collection", "red"]);
    assert!(red.out.lines().count() == 1 && red.out.contains("one"), "{red:?}");
    assert!(red.err.starts_with("tasks ready from ") && red.err.contains("\nstate "), "{red:?}");
    let newest = dev.cli(&["task", "list", "--queue", "w", "--newest", "--to", "9999-01-01T00:00:00Z"]);
    let lines: Vec<&str> = newest.out.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("two") && lines[1].contains("one"), "{newest:?}");
    let first = dev.cli(&["task", "list", "--queue", "w", "--page-size", "1", "-o", "jsonl"]);
    let (_, rest) = first.err.split_once("--page-token ").expect("a token");
    let token = rest.split_whitespace().next().expect("a token");
    let second = dev.cli(&["task", "list", "--queue", "w", "--page-size", "1", "--page-token", token]);
    assert!(first.out.contains("\"one\"") && second.out.contains("two"), "{first:?} {second:?}");
}
