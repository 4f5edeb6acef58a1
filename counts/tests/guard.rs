//! The engine, and the reading of its event, take as many instructions for a task as they did, within a tenth. They are counted by
//! valgrind, in `counted_decode`, `counted_input` and `counted_effect` alone, and are the same in every run.
//!
//! `UPDATE_COUNTS=1 cargo test --workspace --features testing --test guard` accepts what is counted now.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const SCENARIOS: [&str; 6] = ["decode", "intake", "run", "run-told", "run-limited", "run-blocked"];
/// Tasks of each.
const TASKS: u64 = 5_000;
/// How far a count may be from the one on record.
const TOLERANCE: f64 = 0.1;
/// What was counted, per task: on this architecture, with the profile and the compiler of the suite.
const RECORD: &str = "reference.json";

/// Without it, that is said loudly.
fn has_valgrind() -> bool {
    let is_there = Command::new("valgrind").arg("--version").output().is_ok_and(|ran| ran.status.success());
    let counts = is_there && cfg!(target_arch = "x86_64");
    if !counts {
        eprintln!(
            "SKIPPED: instructions are counted with valgrind on x86_64; on Debian: apt-get install valgrind"
        );
    }
    counts
}

/// Instructions of one run.
fn counted(scenario: &str, tasks: u64) -> u64 {
    let counts = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"];
    let toggles = ["*counted_decode*", "*counted_input*", "*counted_effect*"];
    let toggles = toggles.map(|name| format!("--toggle-collect={name}"));
    let program = [env!("CARGO_BIN_EXE_counts"), scenario, &tasks.to_string()];
    // Variables of the environment lie on the stack and move it.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut valgrind = Command::new("valgrind");
    let ran = valgrind.args(counts).args(toggles).args(program).env_clear().env("PATH", path).output();
    let ran = ran.expect("valgrind starts");
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{scenario}: {told}");
    let line = told.lines().find_map(|line| line.split_once("Collected :"));
    line.and_then(|(_, count)| count.trim().parse().ok()).unwrap_or_else(|| panic!("no count in {told}"))
}

#[test]
fn the_engine_takes_no_more_instructions_for_a_task_than_it_did() {
    if !has_valgrind() {
        return;
    }
    let count = |scenario: &'static str| (scenario, std::thread::spawn(move || counted(scenario, TASKS)));
    let runs: Vec<_> = SCENARIOS.into_iter().map(count).collect();
    let counts = runs.into_iter().map(|(scenario, run)| {
        let instructions = run.join().expect("it is counted");
        (scenario.to_owned(), instructions / TASKS)
    });
    let counts: BTreeMap<String, u64> = counts.collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORD);
    if std::env::var_os("UPDATE_COUNTS").is_some() {
        let text = serde_json::to_string_pretty(&counts).expect("JSON") + "\n";
        std::fs::write(&file, text).expect("the record is written");
    }
    let record: BTreeMap<String, u64> =
        serde_json::from_slice(&std::fs::read(&file).expect("a record")).expect("JSON");
    eprintln!("instructions a task, counted and on record:");
    let mut wrong = Vec::new();
    for (scenario, count) in &counts {
        let on_record = record.get(scenario).copied().unwrap_or_default();
        let change = *count as f64 / on_record.max(1) as f64 - 1.0;
        let line = format!("{scenario:<14} {count:>8} {on_record:>8} {:>+6.1} %", 100.0 * change);
        eprintln!("{line}");
        if change.abs() > TOLERANCE {
            wrong.push(line);
        }
    }
    assert!(
        wrong.is_empty(),
        "more than a tenth away from {RECORD}; where that is meant, accept it with UPDATE_COUNTS=1:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_run_takes_the_same_instructions() {
    if has_valgrind() {
        let count = || counted("run", 300);
        let (one, other) = (count(), count());
        assert!(one > 0);
        assert_eq!(one, other, "chance is in the engine, or in what is around it");
    }
}
