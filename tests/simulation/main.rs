//! A whole cluster in one thread with virtual time, from one seed: real engines, a fake log with its group, a fake
//! store, handlers and producers, and faults. The checker reads what producers and handlers wrote down.
//!
//! `DUELINE_SIM_SEEDS=A..B cargo test --test simulation` runs those seeds;
//! `DUELINE_SIM_SEED=N cargo test --test simulation replay -- --nocapture` prints one (add `DUELINE_SIM_SHARD=S`).

mod checker;
mod group;
mod handlers;
mod ledger;
mod log;
mod nemesis;
mod operation;
mod perform;
mod plant;
mod rng;
mod run;
mod setup;
mod store;
mod words;
mod workload;
mod world;

use std::collections::BTreeMap;

use run::{Report, run, run_with};
use setup::Setup;

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("DUELINE_SIM_SEEDS").unwrap_or_else(|_| "0..150".into());
    let (from, to) = text.split_once("..").expect("DUELINE_SIM_SEEDS is A..B");
    from.parse().expect("a number")..to.parse().expect("a number")
}

fn fail(seed: u64, report: &Report) -> String {
    let wrongs: Vec<&String> = report.verdict.wrongs.iter().take(3).collect();
    format!(
        "seed {seed}: {} wrong, first {wrongs:#?}\n\
         DUELINE_SIM_SEED={seed} cargo test --test simulation replay -- --nocapture",
        report.verdict.wrongs.len()
    )
}

#[test]
fn every_seed_keeps_the_promises() {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut failed, mut calls) = (Vec::new(), 0);
    for seed in seeds() {
        let Ok(report) = std::panic::catch_unwind(|| run(seed)) else {
            failed.push(seed);
            continue;
        };
        calls += report.verdict.checked;
        for (path, count) in report.ledger.counts.iter().chain(&report.verdict.duplicates) {
            *counts.entry(path).or_insert(0) += count;
        }
        if !report.verdict.wrongs.is_empty() {
            let text = fail(seed, &report);
            eprintln!("{text}");
            failed.push(seed);
        }
    }
    eprintln!("{calls} calls; {counts:#?}");
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

#[test]
fn same_seed_gives_the_same_trace() {
    for seed in [3, 11] {
        assert_eq!(run(seed).trace, run(seed).trace, "seed {seed}");
    }
}

#[test]
fn replay() {
    let Ok(seed) = std::env::var("DUELINE_SIM_SEED") else { return };
    let seed = seed.parse().expect("DUELINE_SIM_SEED is a number");
    let show = std::env::var("DUELINE_SIM_SHARD").ok().map(|shard| shard.parse().expect("a number"));
    let report = run_with(seed, Setup { show, ..Setup::of(seed) });
    eprintln!("{:#?}", report.ledger.counts);
    assert!(report.verdict.wrongs.is_empty(), "{}", fail(seed, &report));
}
