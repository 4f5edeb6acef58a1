//! What the pages say is so: every command of README.md's quick start runs, its example is the one in `examples/`,
//! the tests that docs/semantics.md names exist, the receivers of docs/handlers.md fence, and docs/dueline.example.toml holds the defaults.
//!
//! The commands are parsed from README.md itself, so that they cannot drift.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod example_config;
mod handlers;
mod page;
mod semantics;
mod shell;

use page::{README, block, blocks};
use shell::{Shell, poll};

/// Every block that the tests below run.
const RUN: [&str; 9] =
    ["dev", "first task", "look", "sink", "callback", "servers", "serve", "produce", "rejected"];

fn there(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {program} is not on PATH, README.md is NOT checked with it");
    }
    found
}

#[test]
fn every_shell_block_is_run_or_says_why_not() {
    let mut run = Vec::new();
    for block in blocks(README) {
        match block.mark.split_once(": ") {
            Some(("run", name)) => run.push(name.to_owned()),
            Some(("not run", reason)) => assert!(!reason.is_empty()),
            _ => panic!("no mark above this block of README.md:\n{}", block.text),
        }
    }
    assert_eq!(run, RUN);
}

#[test]
fn the_handler_of_the_page_is_the_one_that_compiles() {
    assert_eq!(page::fenced("rust"), include_str!("../../examples/handler.rs"));
}

#[test]
fn the_handler_of_the_page_runs_its_task() {
    let built =
        std::path::Path::new(env!("CARGO_BIN_EXE_dueline")).with_file_name("examples").join("handler");
    if !built.exists() {
        eprintln!(
            "SKIPPED: {} is not built, the example is NOT run: cargo build --examples",
            built.display()
        );
        return;
    }
    let shell = Shell::new();
    let mut example = shell.start("example", &built.display().to_string());
    example.says(&["hello Ada, attempt 1 of "]);
    example.stop();
}

#[test]
fn the_quick_start_works_as_written() {
    if !there("curl") {
        return;
    }
    let shell = Shell::new();
    let listen = format!(" --listen {}\n", shell.replacement("127.0.0.1:7420"));
    let dev_line = block("dev").trim_end().to_owned() + &listen;
    let mut dev = shell.start("dev", &dev_line);
    dev.says(&["listening on http://", shell.replacement("127.0.0.1:7420")]);

    let answer = shell.run(&block("first task"));
    assert!(answer.contains(r#""id":"hello""#), "{answer}");
    dev.says(&["dueline::handler", r#""handler":"log""#, r#""queue":"greetings""#, r#""id":"hello""#]);
    shell.run_until("dueline task show greetings hello", &["succeeded"]);
    let said = shell.run(&block("look"));
    for wanted in
        ["attempt 1", "scheduled: queue greetings, id later", "It is due at", "rescheduled:", "cancelled:"]
    {
        assert!(said.contains(wanted), "{wanted:?} is not in\n{said}");
    }

    if there("python3") {
        let mut sink = shell.start("sink", &block("sink"));
        let address = shell.replacement("127.0.0.1:9000");
        assert!(poll(|| std::net::TcpStream::connect(address).is_ok()).is_ok(), "the sink does not listen");
        shell.run(&block("callback"));
        sink.says(&["notify-1 attempt 1 ", r#"{"user":7}"#]);
    }
    dev.stop();

    let mut again = shell.start("again", &dev_line);
    again.says(&["listening on http://"]);
    shell.run_until("dueline task show greetings hello", &["succeeded"]);
    again.stop();
}

#[test]
fn the_quick_start_on_servers_works_as_written() {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(kafka), Some(cassandra)) = (variable("DUELINE_TEST_KAFKA"), variable("DUELINE_TEST_CASSANDRA"))
    else {
        eprintln!(
            "SKIPPED: DUELINE_TEST_KAFKA and DUELINE_TEST_CASSANDRA are not set, README.md's part on servers is NOT checked"
        );
        return;
    };
    let mut shell = Shell::new();
    match variable("DUELINE_TEST_KCAT") {
        Some(program) => shell.link("kcat", program.as_ref()),
        None if there("kcat") => {}
        None => return,
    }
    let own = format!("readme_{}", std::process::id());
    shell.replace("\"demo\"", format!("\"{own}\""));
    shell.replace("demo.", format!("{own}."));
    // Making tables may take longer where other tests load the same node.
    shell.set("DUELINE_CASSANDRA_REQUEST_TIMEOUT", "1m".to_owned());
    shell.set("KAFKA", kafka);
    shell.set("CASSANDRA", cassandra);

    let said = shell.run(&block("servers"));
    for wanted in [&format!("{own}.schedule"), "applied", "Kafka answers", "Cassandra answers"] {
        assert!(said.contains(wanted), "{wanted:?} is not in\n{said}");
    }
    let mut serve = shell.start("serve", &block("serve"));
    serve.says(&["serving"]);
    shell.run(&block("produce"));
    serve.says(&["dueline::handler", r#""queue":"greetings""#, r#""id":"from-kcat""#]);
    let said = shell.run_until(&block("rejected"), &["not an event"]);
    assert!(said.contains("not_json"), "{said}");
    serve.stop();
}
