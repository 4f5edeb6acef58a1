//! The help of every verb: it has an example, and the example works as written.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::dev::{DUELINE, Dev, Ran, dueline, run};
use super::sink::Sink;

/// Examples that need Kafka and Cassandra, or something broken, or run until they are stopped or for long: they are parsed and not run.
const NOT_RUN: [&str; 11] = [
    "dev",
    "serve",
    "doctor",
    "bench",
    "bench suite",
    "migrate status",
    "migrate up",
    "topics create",
    "instance drain",
    "instance undrain",
    "shard reset",
];

/// Every verb below `path`, with its help.
fn verbs(path: &[String]) -> Vec<(Vec<String>, String)> {
    let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
    args.push("--help");
    let help = dueline(&args);
    assert_eq!((help.code, help.err.as_str()), (0, ""), "{args:?}");
    let section =
        help.out.split_once("\nCommands:\n").map(|(_, rest)| rest.split("\n\n").next().unwrap_or(""));
    let Some(section) = section else { return vec![(path.to_vec(), help.out)] };
    let named = section.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    // `bench` runs by itself, and has a verb below it.
    let own = help.out.contains("[OPTIONS] [").then(|| (path.to_vec(), help.out.clone()));
    names
        .flat_map(|name| {
            let mut below = path.to_vec();
            below.push(name.to_owned());
            verbs(&below)
        })
        .chain(own)
        .collect()
}

fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Example"));
    lines.filter_map(|line| Some(line.split_once(": ")?.1.to_owned())).collect()
}

/// Runs a line as a shell would, with the binary under test in front of the path.
fn shell(line: &str, dir: &Path, server: &str) -> Ran {
    let own = Path::new(DUELINE).parent().expect("a folder").display().to_string();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    run(command.args(["-c", line]).current_dir(dir).env("PATH", path).env("DUELINE_SERVER", server))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_has_an_example_that_works_as_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(&dir.path().join("data")).await;
    let (server, sink) = (format!("http://{}", dev.address), Sink::start().await);
    std::fs::write(dir.path().join("dueline.toml"), "[topics]\npartitions = 8\n").expect("written");
    let hello = json!({"queue": "greetings", "id": "hello", "delay": "1h", "handler": "log"});
    assert_eq!(dev.post("/v1/tasks", &hello).await.status, 201);

    let verbs = verbs(&[]);
    assert!(verbs.len() > 20, "{verbs:?}");
    for (verb, help) in verbs {
        let (verb, examples) = (verb.join(" "), examples(&help));
        assert!(!examples.is_empty(), "{verb} has no example:\n{help}");
        for example in examples {
            assert!(example.starts_with(&format!("dueline {verb}")), "{verb}: {example}");
            let written = example.split(" > ").next().unwrap_or_default();
            let parsed = shell(&format!("{written} --help"), dir.path(), &server);
            assert_eq!(parsed.code, 0, "{example} is not understood: {}", parsed.err);
            if NOT_RUN.contains(&verb.as_str()) || verb == "topics check" {
                continue;
            }
            if verb == "task reschedule" {
                let again = json!({"queue": "greetings", "id": "hello", "delay": "3h", "handler": "log"});
                assert!(dev.post("/v1/tasks", &again).await.status.is_success());
            }
            if verb == "task abort" {
                let hangs = json!({"queue": "greetings", "id": "hello", "handler": sink.handler("hold")});
                assert!(dev.post("/v1/tasks", &hangs).await.status.is_success());
                dev.task_in("running", "greetings", "hello").await;
            }
            if verb == "batch show" {
                begin_until_the_twelfth(&dev).await;
            }
            let ran = shell(written, dir.path(), &server);
            assert_eq!(ran.code, 0, "{example}: {ran:?}");
        }
    }
}

/// The batch of the examples: one that is under way for long.
async fn begin_until_the_twelfth(dev: &Dev) {
    for n in 0..60 {
        let task =
            json!({"queue": format!("slow-{n}"), "delay": "1h", "handler": "log", "collection": "slow"});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    let wanted = json!({"verb": "cancel", "collection": "slow", "rate": 1});
    let idle = json!({"verb": "cancel", "collection": "none", "dry_run": true});
    loop {
        let last = dev.get("/v1/operations").await.json["operations"][0]["number"].as_u64();
        let begun = dev.post("/v1/batches", if last == Some(11) { &wanted } else { &idle }).await;
        assert!(begun.json["id"].as_u64().is_some_and(|id| id <= 12), "{}", begun.json);
        if begun.json["id"] == 12 {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_greeting_of_dev_schedules_a_task_as_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(&dir.path().join("data")).await;
    let said = dev.said();
    let line = said.lines().find(|line| line.trim_start().starts_with("dueline task schedule"));
    let ran = shell(line.expect("how to schedule the first task"), dir.path(), "http://127.0.0.1:1");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(said.contains(&format!("curl -sS http://{}/v1/tasks", dev.address)), "{said}");
    let body = said.split("-d '").nth(1).and_then(|rest| rest.split('\'').next()).expect("a body");
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(dev.post("/v1/tasks", &body).await.status, 201);
}
