//! The command line: exit codes that scripts rely on, output that programs read.

use std::process::Command;

use serde_json::{Value, json};

use super::dev::{DUELINE, Dev, dueline, run};
use super::sink::Sink;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_tell_what_happened() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    let ok = sink.handler("ok");
    let schedule = ["task", "schedule", "--queue", "x", "--handler", &ok, "--id"];
    let scheduled = dev.cli(&[&schedule[..], &["far", "--delay", "1h"]].concat());
    assert_eq!(scheduled.code, 0, "{scheduled:?}");
    assert!(scheduled.out.starts_with("scheduled: queue x, id far, due at "), "{scheduled:?}");
    let repeated = dev.cli(&[&schedule[..], &["far", "--delay", "1h"]].concat());
    assert_eq!((repeated.code, repeated.out.starts_with("repeated: ")), (0, true), "{repeated:?}");
    assert_eq!(dev.cli(&[&schedule[..], &["now"]].concat()).code, 0);
    dev.task_in("succeeded", "x", "now").await;
    let not_json = [&schedule[..], &["bad", "--payload", "{x"]].concat();
    let no_time = [&schedule[..], &["bad", "--due-at", "tomorrow"]].concat();
    let cases: [(&[&str], i32); 17] = [
        (&["task", "reschedule", "x", "far", "--delay", "2h", "--reason", "later"], 0),
        (&["task", "cancel", "x", "far", "--reason", "resolved"], 0),
        (&["task", "cancel", "x", "now"], 4),
        (&["task", "reschedule", "x", "now", "--delay", "1s"], 4),
        (&["task", "cancel", "x", "nobody"], 3),
        (&["task", "show", "x", "nobody"], 3),
        (&["task", "explain", "x", "nobody"], 3),
        (&["task", "list", "--state", "sleeping"], 2),
        (&["task", "reschedule", "x", "far"], 2),
        (&["task", "show", "x"], 2),
        (&["--server", "http://127.0.0.1:1", "task", "list"], 6),
        (&["--token-file", "/nowhere/token", "task", "list"], 2),
        (&["--server", "not a url", "task", "list"], 2),
        (&["task", "show", "..", "id"], 2),
        (&not_json, 2),
        (&no_time, 2),
        (&["task", "schedule", "--handler", "nobody"], 2),
    ];
    for (args, code) in cases {
        let ran = dev.cli(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(code == 0 || (ran.out.is_empty() && ran.err.contains("error")), "{args:?}: {ran:?}");
    }
    let told: [(&[&str], &[&str]); 8] = [
        (&no_time, &["--due-at is"]),
        (&[&schedule[..], &["bad", "--delay", "-5s"]].concat(), &["--delay is negative"]),
        (&["task", "reschedule", "x", "far", "--delay", "-5s"], &["--delay is negative"]),
        (&[&schedule[..], &["bad", "--retry", "3"]].concat(), &["--retry", r#"{"max_attempts":3"#]),
        (&["task", "reschedule", "x", "far"], &["--due-at <TIME>|--delay <DURATION>"]),
        (&["task", "reschedule", "x", "nobody", "--delay", "1h"], &["No task nobody of queue x is known."]),
        (&["task", "cancel", "x", "nobody"], &["is remembered for an hour"]),
        (&["dev", "--listen", "7421"], &["--listen", "7421", "127.0.0.1:7420"]),
    ];
    for (args, words) in told {
        let ran = dev.cli(args);
        assert!(ran.code != 0 && words.iter().all(|word| ran.err.contains(word)), "{args:?}: {ran:?}");
    }
    for (list, none) in [("gate", "no gates"), ("batch", "no batches"), ("rejected", "no rejected records")] {
        let ran = dev.cli(&[list, "list"]);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.trim()), (0, "", none), "{ran:?}");
    }
    let file = dir.path().join("no-folder");
    std::fs::write(&file, "a file").expect("written");
    let ran = dueline(&["dev", "--listen", "127.0.0.1:0", "--data", file.to_str().expect("text")]);
    assert_eq!(ran.code, 1, "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_as_json_is_read_by_programs() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    for n in 0..7 {
        let task = json!({"queue": "o", "id": n.to_string(), "delay": "1h", "handler": "log"});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    let fails = json!({"queue": "stuck", "id": "1", "handler": sink.handler("fail")});
    assert_eq!(dev.post("/v1/tasks", &fails).await.status, 201);
    dev.task_in("retrying", "stuck", "1").await;
    let verbs: [(&[&str], bool); 10] = [
        (&["task", "show", "o", "1"], false),
        (&["task", "explain", "o", "1"], false),
        (&["task", "list", "--queue", "o", "--all"], true),
        (&["queue", "list"], true),
        (&["queue", "show", "stuck"], false),
        (&["shard", "list"], true),
        (&["instance", "list"], true),
        (&["handler", "list"], true),
        (&["topics", "plan"], false),
        (&["config", "show"], false),
    ];
    for (args, many) in verbs {
        let document = dev.cli(&[args, &["-o", "json"]].concat());
        let value: Value =
            serde_json::from_str(&document.out).unwrap_or_else(|_| panic!("{args:?}: {document:?}"));
        let lines = dev.cli(&[args, &["-o", "jsonl"]].concat());
        let parsed: Vec<Value> =
            lines.out.lines().map(|line| serde_json::from_str(line).expect("JSON on every line")).collect();
        assert!(!parsed.is_empty() && document.code == 0 && lines.code == 0, "{args:?}: {lines:?}");
        if many {
            assert_eq!(value.as_array().map(Vec::len), Some(parsed.len()), "{args:?}");
        }
        let words = dev.cli(args);
        assert!(words.code == 0 && !words.out.is_empty(), "{args:?}: {words:?}");
    }
    let first = dev.cli(&["task", "list", "--queue", "o", "--page-size", "3"]);
    assert_eq!((first.out.lines().count(), first.err.contains("--all")), (3, true), "{first:?}");
    let all = dev.cli(&["task", "list", "--queue", "o", "--page-size", "3", "--all"]);
    assert_eq!(all.out.lines().count(), 7, "{all:?}");
}

#[test]
fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = dueline(&["completions", shell]);
        assert_eq!(ran.code, 0, "{shell}: {}", ran.err);
        assert!(ran.out.contains("reschedule"), "{shell}");
    }
    assert_eq!(dueline(&["completions", "tcl"]).code, 2);
}

#[test]
fn a_bad_config_is_told_with_the_nearest_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("dueline.toml");
    std::fs::write(&file, "[ownership]\nleese = \"6s\"\n[limits]\npayload_bytes = \"many\"\n")
        .expect("written");
    let path = file.to_str().expect("text");
    for verb in ["check", "show"] {
        let ran = dueline(&["config", verb, "--config", path]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.contains("leese") && ran.err.contains("did you mean ownership.lease?"), "{ran:?}");
        assert!(ran.err.contains("payload_bytes"), "every problem at once: {ran:?}");
    }
    assert_eq!(dueline(&["config", "check", "--config", "/nowhere/dueline.toml"]).code, 2);
    std::fs::write(&file, "[ownership]\nlease = \"9s\"\n").expect("written");
    assert_eq!(dueline(&["config", "check", "--config", path]).code, 0);
    let shown = dueline(&["config", "show", "--config", path]);
    let line = shown.out.lines().find(|line| line.starts_with("lease"));
    assert!(line.is_some_and(|line| line.contains("9s") && line.contains(path)), "{line:?}");
}

#[test]
fn a_variable_that_is_not_utf8_is_refused_and_others_are_none_of_our_business() {
    use std::os::unix::ffi::OsStrExt as _;
    let broken = std::ffi::OsStr::from_bytes(b"\xff");
    let checked = |name: &str| run(Command::new(DUELINE).args(["config", "check"]).env(name, broken));
    let ran = checked("DUELINE_LOG");
    assert!(ran.code == 2 && ran.err.contains("DUELINE_LOG: is not UTF-8"), "{ran:?}");
    assert_eq!(checked("OTHER").code, 0);
}

#[test]
fn dev_refuses_a_config_that_is_wrong() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = || {
        let mut command = Command::new(DUELINE);
        command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path().join("data"));
        command
    };
    let ran = run(dev().env("DUELINE_LOG", "dueline=loud"));
    assert!(ran.code == 2 && ran.err.contains("DUELINE_LOG"), "{ran:?}");
    let ran = run(dev().args(["--config", "/nowhere/dueline.toml"]));
    assert!(ran.code == 2 && ran.err.contains("/nowhere/dueline.toml"), "{ran:?}");
}

#[test]
fn lists_are_one_object_a_line_and_a_dry_run_needs_no_verb() {
    let lines = dueline(&["config", "show", "-o", "jsonl"]).out;
    let objects =
        lines.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok_and(|one| one.is_object()));
    assert!(lines.lines().count() > 10 && objects.count() == lines.lines().count(), "{lines}");
    let ran = dueline(&["migrate", "--dry-run"]);
    assert!(ran.code == 2 && ran.err.contains("cassandra.nodes is not set"), "{ran:?}");
    assert_eq!(dueline(&["migrate"]).code, 2);
}

#[test]
fn topics_are_planned_without_a_broker() {
    for (form, word) in
        [("table", "dueline.schedule"), ("commands", "kafka-topics"), ("strimzi", "kind: KafkaTopic")]
    {
        let ran = dueline(&["topics", "plan", "--as", form]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.out.contains(word), "{form}: {}", ran.out);
        for topic in ["schedule", "events", "rejected", "dead"] {
            assert!(ran.out.contains(&format!("dueline.{topic}")), "{form}: {topic}");
        }
    }
}

#[test]
fn what_is_not_there_is_refused_as_unknown() {
    for noun in ["worker", "console", "recurring"] {
        let ran = dueline(&[noun, "list"]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.contains("unrecognized subcommand"), "{ran:?}");
    }
    assert_eq!(dueline(&[]).code, 2);
    assert_eq!(dueline(&["--version"]).code, 0);
}
