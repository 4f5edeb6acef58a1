//! Topics of an embedded instance: task events, copies of dead letters and what topic handlers write, read back over HTTP
//! and on the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};

use super::dev::{DUELINE, Dev, Ran};
use super::sink::Sink;
use super::until;

const EVENTS: &str = "dueline.events";
const DEAD: &str = "dueline.dead";
const PARTITIONS: u64 = 8;

fn configured(dir: &Path, text: &str) -> PathBuf {
    let file = dir.join("dueline.toml");
    std::fs::write(&file, text).expect("written");
    file
}

const ON: &str = "[topics]\ntask_events = true\ndead_letters = true\n";

/// Records of a topic as the command line has them, a JSON object a line.
fn read(dev: &Dev, topic: &str, more: &[&str]) -> Vec<Value> {
    let ran = dev.cli(&[&["topics", "read", topic, "-o", "jsonl"][..], more].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.out.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

fn header<'a>(record: &'a Value, name: &str) -> &'a str {
    let headers = record["headers"].as_array().expect("headers");
    let found = headers.iter().find(|header| header["name"] == name);
    found.and_then(|header| header["value"].as_str()).unwrap_or("-")
}

/// What became of the tasks of each queue, in the order of the topic. An attempt that was never called, as may happen on a
/// starved machine, is left out with its start.
fn told(records: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut told = BTreeMap::<String, Vec<String>>::new();
    for record in records {
        let words = told.entry(record["key"].as_str().expect("a queue").to_owned()).or_default();
        if record["value"]["outcome"] == "not_called" {
            words.pop();
            continue;
        }
        let kind = header(record, "ce_type").strip_prefix("dueline.task.").expect("a type of ours");
        words.push(kind.strip_suffix(".v1").expect("the first version").to_owned());
    }
    told
}

/// Schedules tasks that meet every fate, and gives what is to be told of each queue.
async fn every_fate(dev: &Dev, sink: &Sink) -> BTreeMap<String, Vec<String>> {
    let task = async |queue: &str, path: &str, more: Value| {
        let retry = json!({"max_attempts": 3, "initial": "50ms", "max": "1s", "jitter": 0});
        let mut task = json!({"queue": queue, "id": "t", "handler": sink.handler(path), "retry": retry});
        task.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let answer = dev.post("/v1/tasks", &task).await;
        assert!(answer.status.is_success(), "{task}: {answer:?}");
    };
    let done = async |path: &str, body: Value| {
        let answer = dev.post(path, &body).await;
        assert!(answer.status.is_success(), "{path}: {answer:?}");
    };
    done("/v1/gates", json!({"queue": "past"})).await;
    done("/v1/gates", json!({"queue": "missed"})).await;
    done("/v1/gates", json!({"collection": "unwanted", "action": "drop"})).await;
    task("works", "flaky", json!({})).await;
    task("aside", "flaky", json!({"on_failure": "park"})).await;
    task("lost", "fatal", json!({"payload": {"n": 1.5, "name": "öre"}})).await;
    task("off", "ok", json!({"delay": "1h"})).await;
    task("off", "ok", json!({"delay": "1h", "payload": {"n": 2}})).await;
    let soon = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1)).to_string();
    task("past", "ok", json!({"expires_at": soon})).await;
    task("missed", "ok", json!({"misfire": "skip", "misfire_grace": "1s"})).await;
    task("dropped", "ok", json!({"collection": "unwanted"})).await;
    done("/v1/tasks/off/t/reschedule", json!({"delay": "2h"})).await;
    done("/v1/tasks/off/t/cancel", json!({"reason": "not needed"})).await;
    dev.task_in("dead", "lost", "t").await;
    done("/v1/tasks/lost/t/redrive", json!({"reason": "again"})).await;
    let over = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1_200);
    until("their time to pass", || async { (jiff::Timestamp::now() > over).then_some(()) }).await;
    for queue in ["past", "missed"] {
        done("/v1/gates:clear", json!({"queue": queue})).await;
    }
    let wanted: [(&str, &str, &[&str]); 7] = [
        ("works", "succeeded", &["scheduled", "started", "failed", "started", "succeeded"]),
        ("aside", "succeeded", &["scheduled", "started", "parked", "started", "succeeded"]),
        ("lost", "dead", &["scheduled", "started", "dead", "redriven", "started", "dead"]),
        ("off", "cancelled", &["scheduled", "replaced", "rescheduled", "cancelled"]),
        ("past", "expired", &["scheduled", "expired"]),
        ("missed", "skipped", &["scheduled", "skipped"]),
        ("dropped", "dropped", &["scheduled", "dropped"]),
    ];
    for (queue, state, _) in wanted {
        dev.task_in(state, queue, "t").await;
    }
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    wanted.map(|(queue, _, told)| (queue.to_owned(), words(told))).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_of_tasks_is_read_back_in_order_and_stays_over_a_restart() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let (data, config) = (dir.path().join("data"), configured(dir.path(), ON));
    let dev = Dev::configured(&data, Some(&config)).await;
    let wanted = every_fate(&dev, &sink).await;
    let records = until("all task events", || async {
        let records = read(&dev, EVENTS, &[]);
        (told(&records) == wanted).then_some(records)
    })
    .await;
    are_cloud_events(&records);
    pages_are_the_same(&dev, &records).await;
    let letters = until("two dead letters", || async {
        Some(read(&dev, DEAD, &[])).filter(|letters| letters.len() == 2)
    })
    .await;
    for letter in &letters {
        assert_eq!(letter["value"], json!({"n": 1.5, "name": "öre"}), "{letter}");
        assert_eq!((letter["key"].as_str(), header(letter, "dueline-reason")), (Some("lost"), "fatal"));
    }
    // As it was sent, not as somebody would write it.
    let path = format!("/v1/topics/{DEAD}/{}", letters[0]["partition"]);
    let text = dev.get(&path).await.text;
    assert!(text.contains("{\"n\":1.5,\"name\":\"öre\"}"), "{text}");

    dev.kill();
    let again = Dev::configured(&data, Some(&config)).await;
    // What may not have been told is told again, with the same ids.
    let after = read(&again, EVENTS, &[]);
    let kept = |record: &&Value| records.contains(record);
    assert_eq!(after.iter().filter(kept).cloned().collect::<Vec<_>>(), records);
    let ids = |records: &[Value]| -> BTreeSet<(String, String)> {
        let id =
            |record: &Value| (header(record, "ce_source").to_owned(), header(record, "ce_id").to_owned());
        records.iter().map(id).collect()
    };
    assert_eq!(ids(&after), ids(&records));
    let task = json!({"queue": "works", "id": "next", "handler": sink.handler("ok")});
    assert_eq!(again.post("/v1/tasks", &task).await.status, 201);
    until("its events", || async {
        let is_last = |record: &Value| {
            header(record, "ce_subject") == "next" && header(record, "ce_type").contains("succeeded")
        };
        read(&again, EVENTS, &[]).iter().any(is_last).then_some(())
    })
    .await;
}

/// Every header is there, ids are all different, and records come by time.
fn are_cloud_events(records: &[Value]) {
    for record in records {
        for (name, wanted) in [("ce_specversion", "1.0"), ("content-type", "application/json")] {
            assert_eq!(header(record, name), wanted, "{record}");
        }
        let queue = record["key"].as_str().expect("a queue");
        assert_eq!((header(record, "ce_partitionkey"), header(record, "ce_subject")), (queue, "t"));
        let source = format!("/dueline/dueline/shards/{}", record["value"]["shard"]);
        assert_eq!(header(record, "ce_source"), source, "{record}");
        assert!(header(record, "ce_time").parse::<jiff::Timestamp>().is_ok(), "{record}");
        assert_eq!((&record["value"]["queue"], &record["value"]["id"]), (&json!(queue), &json!("t")));
    }
    let ids: BTreeSet<(&str, &str)> =
        records.iter().map(|record| (header(record, "ce_source"), header(record, "ce_id"))).collect();
    assert_eq!(ids.len(), records.len());
    let time = |record: &Value| -> jiff::Timestamp {
        record["time"].as_str().expect("a time").parse().expect("a time")
    };
    assert!(records.is_sorted_by_key(time), "of all partitions together");
    let reason = |queue: &str, kind: &str| {
        let of = |record: &&Value| record["key"] == queue && header(record, "ce_type").contains(kind);
        records.iter().find(of).expect("it is told")["value"]["reason"].clone()
    };
    assert_eq!((reason("off", "cancelled"), reason("lost", "dead")), (json!("not needed"), json!("fatal")));
}

/// Over HTTP, page by page, every partition has what the command line has of it, without a gap.
async fn pages_are_the_same(dev: &Dev, records: &[Value]) {
    let listed = dev.get("/v1/topics").await.json;
    let topics = listed["topics"].as_array().expect("topics");
    let names: Vec<&str> = topics.iter().filter_map(|topic| topic["topic"].as_str()).collect();
    assert_eq!(names, [DEAD, EVENTS, "dueline.rejected", "dueline.schedule"]);
    let partitions = topics[1]["partitions"].as_array().expect("partitions");
    assert_eq!(partitions.len(), PARTITIONS as usize);
    for partition in partitions {
        let number = &partition["partition"];
        let (mut found, mut from) = (Vec::new(), 0);
        loop {
            let page = dev.get(&format!("/v1/topics/{EVENTS}/{number}?from={from}&limit=2")).await.json;
            let records = page["records"].as_array().expect("records");
            assert!(records.len() <= 2, "{page}");
            assert_eq!((&page["first"], &page["next"]), (&partition["first"], &partition["next"]));
            if records.is_empty() {
                assert_eq!(page["next_from"], page["next"]);
                break;
            }
            found.extend(records.clone());
            from = page["next_from"].as_u64().expect("an offset");
        }
        let offsets: Vec<u64> = found.iter().filter_map(|record| record["offset"].as_u64()).collect();
        assert_eq!(offsets, (0..found.len() as u64).collect::<Vec<_>>());
        let of = |record: &&Value| record["partition"] == *number;
        assert_eq!(found, records.iter().filter(of).cloned().collect::<Vec<_>>());
        if found.len() > 1 {
            let only = ["--partition", &number.to_string(), "--from", "1"];
            assert_eq!(read(dev, EVENTS, &only), found[1..]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_published_embedded_unless_it_is_asked_for() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let (data, config) = (dir.path().join("data"), configured(dir.path(), ON));
    let mut dev = Dev::start(&data).await;
    let task = |id: &str| json!({"queue": "q", "id": id, "handler": sink.handler("fatal")});
    assert_eq!(dev.post("/v1/tasks", &task("before")).await.status, 201);
    dev.task_in("dead", "q", "before").await;
    dev.terminate();
    assert_eq!(dev.ended().await.code(), Some(0));
    let dev = Dev::configured(&data, Some(&config)).await;
    assert_eq!(dev.post("/v1/tasks", &task("after")).await.status, 201);
    dev.task_in("dead", "q", "after").await;
    let records = until("its events", || async {
        let records = read(&dev, EVENTS, &[]);
        records.iter().any(|record| header(record, "ce_type").contains("dead")).then_some(records)
    })
    .await;
    assert!(records.iter().all(|record| header(record, "ce_subject") == "after"), "{records:?}");
    let letters = read(&dev, DEAD, &[]);
    assert!(letters.iter().all(|letter| header(letter, "dueline-task-id") == "after"), "{letters:?}");
    let metrics = dev.get("/metrics").await.text;
    assert!(metrics.contains("dueline_task_events_total{event=\"dead\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_topic_handler_writes_is_waited_for_and_followed() {
    let dir = tempfile::tempdir().expect("a folder");
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = port.local_addr().expect("an address").to_string();
    drop(port);
    let text = format!(
        "[http]\nlisten = \"{address}\"\n[[handler]]\nname = \"to-orders\"\nkind = \"topic\"\ntopic = \"orders\"\n"
    );
    let serve = Dev::serving(&dir.path().join("data"), &configured(dir.path(), &text), &address).await;
    let order = async |id: &str| {
        let task = json!({"queue": "q", "id": id, "handler": "to-orders", "payload": {"order": id}});
        assert_eq!(serve.post("/v1/tasks", &task).await.status, 201);
    };
    assert_eq!(serve.get("/v1/topics/orders/0").await.problem(), (404, "unknown_topic"));
    order("first").await;
    serve.task_in("succeeded", "q", "first").await;
    let mut following = Command::new(DUELINE)
        .args(["topics", "read", "orders", "--follow", "-o", "jsonl"])
        .args(["--server", &format!("http://{address}")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(following.stdout.take().expect("piped")).lines();
    let mut followed = || {
        let line = lines.next().expect("it goes on").expect("text");
        serde_json::from_str::<Value>(&line).expect("JSON")["value"].clone()
    };
    assert_eq!(followed(), json!({"order": "first"}));

    let wait = [("prefer", "wait=30")];
    let waiting = serve.send(Method::GET, "/v1/topics/orders/0?from=1", String::new(), &wait);
    let (page, ()) = tokio::join!(waiting, order("second"));
    assert_eq!((&page.json["records"][0]["offset"], &page.json["next_from"]), (&json!(1), &json!(2)));
    let record = &page.json["records"][0];
    assert_eq!(header(record, "Dueline-Task-Id"), "second", "{record}");
    assert_eq!(followed(), json!({"order": "second"}));
    following.kill().expect("killed");
    following.wait().expect("ended");
    let shown = serve.cli(&["topics", "read", "orders"]);
    let lines: Vec<&str> = shown.out.lines().collect();
    assert!(lines.len() == 2 && lines[1].ends_with("0/1  q  -  {\"order\":\"second\"}"), "{shown:?}");
    let listed = serve.cli(&["topics", "list"]);
    assert!(listed.out.lines().any(|line| line.starts_with("orders ") && line.contains("offsets 0 to 2")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_drops_records_and_what_is_gone_is_said_to_be() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let text = format!("{ON}[retention]\ntopics = \"1s\"\n");
    let dev = Dev::configured(&dir.path().join("data"), Some(&configured(dir.path(), &text))).await;
    let task = json!({"queue": "q", "id": "t", "handler": sink.handler("ok")});
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    dev.task_in("succeeded", "q", "t").await;
    let (number, next) = until("what is old to go", || async {
        let listed = dev.get("/v1/topics").await.json;
        let events = listed["topics"].as_array()?.iter().find(|topic| topic["topic"] == EVENTS)?;
        let of = |one: &&Value| one["next"].as_u64() >= Some(3) && one["first"] == one["next"];
        let partition = events["partitions"].as_array()?.iter().find(of)?;
        Some((partition["partition"].as_u64()?, partition["next"].as_u64()?))
    })
    .await;
    let gone = dev.get(&format!("/v1/topics/{EVENTS}/{number}?from=0")).await;
    assert_eq!(gone.problem(), (409, "offset_not_held"));
    assert!(gone.json["detail"].as_str().is_some_and(|why| why.contains(&format!("{next} and on"))));
    assert_eq!(read(&dev, EVENTS, &[]), Vec::<Value>::new());
    dev.task_in("succeeded", "q", "t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_of_a_topic_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(&dir.path().join("data")).await;
    for (rest, status, code) in [
        ("dueline.event/0", 404, "unknown_topic"),
        ("dueline.events/8", 404, "unknown_partition"),
        ("dueline.events/x", 400, "invalid_path"),
        ("dueline.events/-1", 400, "invalid_path"),
        ("dueline.events/4294967296", 400, "invalid_path"),
        ("dueline.events/0?from=-1", 400, "invalid_parameter"),
        ("dueline.events/0?from=1e3", 400, "invalid_parameter"),
        ("dueline.events/0?from=1", 409, "offset_not_held"),
        ("dueline.events/0?from=18446744073709551615", 409, "offset_not_held"),
        ("dueline.events/0?limit=0", 400, "invalid_parameter"),
        ("dueline.events/0?limit=1001", 400, "invalid_parameter"),
        ("dueline.events/0?offset=1", 400, "unknown_parameter"),
        ("%zz/0", 400, "invalid_path"),
    ] {
        assert_eq!(dev.get(&format!("/v1/topics/{rest}")).await.problem(), (status, code), "{rest}");
    }
    assert_eq!(dev.get("/v1/topics?limit=1").await.problem(), (400, "unknown_parameter"));
    for (more, code, words) in [
        (&["dueline.event"][..], 3, "there are dueline.dead, dueline.events"),
        (&[EVENTS, "--partition", "8"], 3, "are 0 to 7"),
        (&[EVENTS, "--from", "3"], 2, "--partition"),
        (&[EVENTS, "--from", "last"], 2, "first, end or an offset"),
        (&[EVENTS, "--from", "3", "--partition", "0"], 4, "holds no offset 3"),
        (&[EVENTS, "--follow", "-o", "json"], 2, "-o jsonl"),
    ] {
        let Ran { code: found, err, .. } = dev.cli(&[&["topics", "read"][..], more].concat());
        assert!(found == code && err.contains(words), "{more:?}: {found} {err}");
    }
    let nothing = dev.cli(&["topics", "read", EVENTS]);
    assert_eq!((nothing.code, nothing.out.as_str(), nothing.err.trim()), (0, "", "no records"));
    let nothing = dev.cli(&["topics", "read", EVENTS, "-o", "json"]);
    assert_eq!((nothing.code, nothing.out.trim()), (0, "[]"));
}
