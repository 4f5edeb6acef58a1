//! Many seeds on all cores: sums, progress, and a ledger file that a long run goes on from.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::io::Write;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use dueline::testing::checker::Rule;

use crate::rare::RARE;
use crate::run::run;

/// What a run of many seeds came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) seeds: u64,
    pub(crate) calls: u64,
    pub(crate) virtual_ms: u64,
    /// Time that cores worked, in milliseconds.
    pub(crate) worked_ms: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) checked: BTreeMap<Rule, u64>,
    pub(crate) duplicates: BTreeMap<&'static str, u64>,
    pub(crate) failed: Vec<u64>,
}

impl Sum {
    fn add(&mut self, seed: u64) {
        let begun = Instant::now();
        self.seeds += 1;
        let Ok(run) = std::panic::catch_unwind(|| run(seed)) else {
            eprintln!("seed {seed} panicked\ncargo xtask sim --replay {seed}");
            return self.failed.push(seed);
        };
        self.worked_ms += begun.elapsed().as_millis() as u64;
        self.calls += run.report.calls;
        self.virtual_ms += run.virtual_ms;
        add_all(&mut self.counts, &run.ledger.counts);
        add_all(&mut self.checked, &run.report.checked);
        add_all(&mut self.duplicates, &run.report.duplicates);
        if !run.report.is_clean() {
            eprintln!("{}", crate::fail(seed, &run));
            self.failed.push(seed);
        }
    }

    fn join(&mut self, other: Sum) {
        self.seeds += other.seeds;
        self.calls += other.calls;
        self.virtual_ms += other.virtual_ms;
        self.worked_ms += other.worked_ms;
        add_all(&mut self.counts, &other.counts);
        add_all(&mut self.checked, &other.checked);
        add_all(&mut self.duplicates, &other.duplicates);
        self.failed.extend(other.failed);
    }

    /// The rare events that did not happen.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let happened =
            |event: &&str| self.counts.contains_key(*event) || self.duplicates.contains_key(*event);
        RARE.iter().filter(|event| !happened(event)).copied().collect()
    }
}

fn add_all<K: Ord + Copy>(sum: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    for (key, count) in more {
        *sum.entry(*key).or_insert(0) += count;
    }
}

impl Display for Sum {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for (event, count) in &self.counts {
            writeln!(f, "{count:>9} {event}")?;
        }
        for (cause, count) in &self.duplicates {
            writeln!(f, "{count:>9} further runs: {cause}")?;
        }
        for (rule, count) in &self.checked {
            writeln!(f, "{count:>9} checked: {}", rule.word())?;
        }
        let ratio = self.virtual_ms as f64 / self.worked_ms.max(1) as f64;
        let hours = self.virtual_ms as f64 / 3_600_000.0;
        write!(
            f,
            "{} seeds, {} calls, {hours:.1} simulated hours, {ratio:.0} times real time on a core, {} failed",
            self.seeds,
            self.calls,
            self.failed.len()
        )
    }
}

/// Runs seeds on all cores. `progress` is told after each.
pub(crate) fn run_all(seeds: Vec<u64>, progress: &(dyn Fn(usize, &Sum) + Sync)) -> Sum {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let next = AtomicUsize::new(0);
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut one = Sum::default();
                    one.add(*seed);
                    let mut sum = sum.lock().expect("a panic of a seed is caught");
                    sum.join(one);
                    progress(seeds.len(), &sum);
                }
            });
        }
    });
    sum.into_inner().expect("a panic of a seed is caught")
}

/// Seeds between two lines of the ledger file.
const CHUNK: u64 = 100;

fn range_of(text: &str) -> Range<u64> {
    let (from, to) = text.split_once("..").expect("a range is A..B");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Runs `A..B`. With DUELINE_SIM_LEDGER, what that file says is done is left out and what is done is added to it.
pub(crate) fn long_run(seeds: &str) -> Sum {
    let seeds = range_of(seeds);
    let path = std::env::var_os("DUELINE_SIM_LEDGER");
    let before = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let done: Vec<Range<u64>> = before
        .lines()
        .filter_map(|line| line.strip_prefix("clean ")?.split(' ').next().map(range_of))
        .collect();
    let mut total = Sum::default();
    let begun = Instant::now();
    let mut from = seeds.start;
    while from < seeds.end {
        let to = (from + CHUNK).min(seeds.end);
        let chunk: Vec<u64> =
            (from..to).filter(|seed| !done.iter().any(|range| range.contains(seed))).collect();
        if !chunk.is_empty() {
            let sum = run_all(chunk, &|_, _| {});
            let line = ledger_line(from..to, &sum);
            total.join(sum);
            eprintln!(
                "{} of {} seeds, {} s: {line}",
                to - seeds.start,
                seeds.end - seeds.start,
                begun.elapsed().as_secs()
            );
            if let Some(path) = &path {
                let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
                writeln!(file.expect("the ledger file opens"), "{line}")
                    .expect("the ledger file takes a line");
            }
        }
        from = to;
    }
    eprintln!("{total}");
    total
}

fn ledger_line(seeds: Range<u64>, sum: &Sum) -> String {
    let commit = std::env::var("DUELINE_SIM_COMMIT").unwrap_or_else(|_| "unknown".into());
    let (from, to, calls, hours) = (seeds.start, seeds.end, sum.calls, sum.virtual_ms / 3_600_000);
    if sum.failed.is_empty() {
        format!("clean {from}..{to} at {commit}: {calls} calls, {hours} simulated hours")
    } else {
        format!("failed {:?} of {from}..{to} at {commit}", sum.failed)
    }
}
