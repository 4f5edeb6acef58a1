//! The engine, and the reading of its event, take as many instructions and allocations for a task as they did, within a tenth. They
//! are counted by valgrind, in `counted_decode`, `counted_input` and `counted_effect` alone, and are the same in every run.
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
            "SKIPPED: instructions and allocations are counted with valgrind on x86_64; on Debian: apt-get install valgrind"
        );
    }
    counts
}

/// Of a run, or of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Counted {
    instructions: f64,
    allocations: f64,
}

/// What one run takes.
fn counted(scenario: &str, tasks: u64) -> Counted {
    let profile = tempfile::NamedTempFile::new().expect("a file can be made");
    let file = format!("--callgrind-out-file={}", profile.path().display());
    let counts = [
        "--tool=callgrind",
        "--collect-atstart=no",
        "--compress-strings=no",
        "--compress-pos=no",
        "--dump-instr=yes",
    ];
    let counts = counts.into_iter().chain([file.as_str()]);
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
    let instructions = line.and_then(|(_, count)| count.trim().parse().ok());
    let instructions = instructions.unwrap_or_else(|| panic!("no count in {told}"));
    let profile = std::fs::read_to_string(profile.path()).expect("a profile");
    Counted { instructions, allocations: allocations(&profile) as f64 }
}

/// Calls of the allocator that ask for memory, while instructions were counted: how often the first instruction of each was run.
/// (Calls themselves are also counted by callgrind where instructions are not.)
fn allocations(profile: &str) -> u64 {
    const ASKS: [&str; 4] = ["malloc", "calloc", "realloc", "posix_memalign"];
    let mut by_instruction: BTreeMap<&str, BTreeMap<u64, u64>> = BTreeMap::new();
    let (mut function, mut is_of_a_call) = (None, false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = ASKS.into_iter().find(|asks| *asks == name);
        }
        // The line after it is what the call cost.
        let is_called = std::mem::replace(&mut is_of_a_call, line.starts_with("calls="));
        let (Some(function), Some(cost), false) = (function, line.strip_prefix("0x"), is_called) else {
            continue;
        };
        let mut columns = cost.split(' ');
        let address = columns.next().and_then(|address| u64::from_str_radix(address, 16).ok());
        let count = columns.next_back().and_then(|count| count.parse::<u64>().ok());
        if let Some((address, count)) = address.zip(count) {
            *by_instruction.entry(function).or_default().entry(address).or_default() += count;
        }
    }
    by_instruction.values().filter_map(|counts| counts.first_key_value()).map(|(_, count)| count).sum()
}

#[test]
fn the_engine_takes_no_more_for_a_task_than_it_did() {
    if !has_valgrind() {
        return;
    }
    let count = |scenario: &'static str| (scenario, std::thread::spawn(move || counted(scenario, TASKS)));
    let runs: Vec<_> = SCENARIOS.into_iter().map(count).collect();
    let counts = runs.into_iter().map(|(scenario, run)| {
        let of_run = run.join().expect("it is counted");
        let a_task = |count: f64| (count / TASKS as f64 * 10.0).round() / 10.0;
        let (instructions, allocations) = (a_task(of_run.instructions), a_task(of_run.allocations));
        (scenario.to_owned(), Counted { instructions: instructions.round(), allocations })
    });
    let counts: BTreeMap<String, Counted> = counts.collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORD);
    if std::env::var_os("UPDATE_COUNTS").is_some() {
        let text = serde_json::to_string_pretty(&counts).expect("JSON") + "\n";
        std::fs::write(&file, text).expect("the record is written");
    }
    let record: BTreeMap<String, Counted> =
        serde_json::from_slice(&std::fs::read(&file).expect("a record")).expect("JSON");
    eprintln!("a task takes, as counted and on record:");
    let mut wrong = Vec::new();
    for (scenario, count) in &counts {
        let on_record = record.get(scenario).copied().unwrap_or_default();
        let pairs = [
            ("instructions", count.instructions, on_record.instructions),
            ("allocations", count.allocations, on_record.allocations),
        ];
        for (what, count, on_record) in pairs {
            let change = count / on_record.max(0.1) - 1.0;
            let line =
                format!("{scenario:<14} {what:<12} {count:>8} {on_record:>8} {:>+6.1} %", 100.0 * change);
            eprintln!("{line}");
            if change.abs() > TOLERANCE {
                wrong.push(line);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "more than a tenth away from {RECORD}; where that is meant, accept it with UPDATE_COUNTS=1:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_run_takes_the_same() {
    if has_valgrind() {
        let count = || counted("run", 300);
        let (one, other) = (count(), count());
        assert!(one.instructions > 0.0 && one.allocations > 0.0);
        assert_eq!(one, other, "chance is in the engine, or in what is around it");
    }
}

#[test]
fn an_allocation_is_the_first_instruction_of_a_function_that_asks_for_memory() {
    let profile = "fn=a\n0x10 7 3\ncfn=malloc\ncalls=99 0x20 0\n0x14 7 90\n\nfn=malloc\n0x24 0 30\n0x20 0 4\ncfn=other\n\
                   calls=4 0x1 0\n0x1c 0 70\n\nfn=free\n0x30 0 9\n\nfn=realloc\n0x40 0 2\n\nfn=malloc\n0x20 0 1\n";
    assert_eq!(allocations(profile), 7);
}
