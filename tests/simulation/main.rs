//! A whole cluster in one thread with virtual time, from one seed: real engines, a fake log with its group, a fake store
//! of five replicas, handlers and producers, and faults. The checker reads what producers and handlers wrote down.
//!
//! `cargo xtask sim` runs many seeds, one seed, or the planted mistakes; docs/simulation.md says what it is made of.
#![cfg(feature = "testing")]

mod group;
mod handlers;
mod history;
mod ledger;
mod limits;
mod log;
mod many;
mod nemesis;
mod operation;
mod people;
mod perform;
mod planted;
mod policies;
mod quorum;
mod rare;
mod records;
mod requests;
mod retries;
mod run;
mod setup;
mod store;
mod told;
mod trap;
mod turns;
mod watch;
mod words;
mod workload;
mod world;

use std::time::Instant;

use dueline::testing::checker::story;

use many::{Sum, run_all};
use run::{Run, run, run_with};
use setup::Setup;

/// Seeds of the default test: a minute and a half on two quiet cores. Long runs take others (`cargo xtask sim --seeds A..B`).
const SEEDS: std::ops::Range<u64> = 0..160;

/// How a failed seed is shown: what is wrong, what happened to the queue concerned, and how to see it again.
pub(crate) fn fail(seed: u64, run: &Run) -> String {
    let wrongs = &run.report.wrongs;
    let mut text = format!("seed {seed}: {} wrong", wrongs.len());
    for wrong in wrongs.iter().take(3) {
        text += &format!("\n  {}: {}", wrong.rule.word(), wrong.what);
    }
    if let Some(queue) = wrongs.iter().find_map(|wrong| wrong.queue.as_ref()) {
        let lines = story(&run.history, queue);
        text += &format!("\nwhat happened to queue {queue}:\n  {}", lines.join("\n  "));
    }
    text + &format!("\ncargo xtask sim --replay {seed}")
}

#[test]
fn every_seed_keeps_the_promises_and_rare_events_happen() {
    let sum = run_all(SEEDS.collect(), &|_, _| {});
    eprintln!("{sum}");
    assert!(sum.failed.is_empty(), "seeds that failed: {:?}", sum.failed);
    let missed = sum.missed();
    assert!(missed.is_empty(), "never happened: {missed:?}");
}

/// `cargo xtask sim --seeds A..B`: as the test before, over other seeds, with progress and a file to resume from.
#[test]
fn seeds_of_a_long_run_keep_the_promises() {
    let Ok(seeds) = std::env::var("DUELINE_SIM_SEEDS") else { return };
    let sum: Sum = many::long_run(&seeds);
    assert!(sum.failed.is_empty(), "seeds that failed: {:?}", sum.failed);
}

#[test]
fn same_seed_gives_the_same_trace() {
    for seed in [3, 11] {
        assert_eq!(run(seed).trace, run(seed).trace, "seed {seed}");
    }
}

#[test]
fn another_seed_gives_another_trace() {
    assert_ne!(run(3).trace, run(4).trace);
}

/// `cargo xtask sim --replay SEED`: one seed, shown.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("DUELINE_SIM_SEED") else { return };
    let seed = seed.parse().expect("DUELINE_SIM_SEED is a number");
    let show = std::env::var("DUELINE_SIM_SHARD").ok().map(|shard| shard.parse().expect("a number"));
    let mistake = std::env::var("DUELINE_SIM_PLANT").ok().map(|name| planted::named(&name));
    let begun = Instant::now();
    let run = run_with(seed, Setup { show, ..Setup::of(seed) }, mistake);
    let ratio = run.virtual_ms as f64 / 1e3 / begun.elapsed().as_secs_f64();
    if let Ok(path) = std::env::var("DUELINE_SIM_HISTORY") {
        let file = std::fs::File::create(&path).expect("the file of the history can be made");
        run.history.clone().write(std::io::BufWriter::new(file)).expect("the history is written");
    }
    eprintln!(
        "{:#?}\n{}\ntrace {:016x}, {ratio:.0} times real time",
        run.ledger.counts, run.report, run.trace
    );
    assert!(run.report.is_clean(), "{}", fail(seed, &run));
}
