//! What a task takes of the engine, alone, and of the reading of its event: the engine's inputs are given and its effects answered
//! at once by a log and a store in memory, which do not count.
//!
//! ```text
//! counts                   microseconds of every scenario, on this machine: cargo run --release -p counts
//! counts SCENARIO TASKS    runs one, for valgrind to count its instructions: tests/guard.rs
//! ```

mod decode;
/// The store of users' tests.
#[path = "../../src/testing/scheduler/memory.rs"]
#[allow(dead_code, reason = "what only those tests ask")]
mod memory;
mod scenario;
mod shard;

use std::io::Write as _;
use std::time::Duration;

use alone::{engine, model};
use anyhow::Context as _;

use scenario::Scenario;

/// The only shard.
const SHARD: model::Shard = model::Shard(0);

/// Tasks of a scenario where time is taken.
const TIMED_TASKS: u64 = 50_000;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout();
    match args.as_slice() {
        [] => {
            for scenario in Scenario::ALL {
                let per_task = scenario.run(TIMED_TASKS)? / TIMED_TASKS as u32;
                writeln!(out, "{:<14} {:>6.2} µs a task", scenario.word(), micros(per_task))?;
            }
            Ok(())
        }
        [word, tasks] => {
            let scenario = Scenario::ALL.into_iter().find(|scenario| scenario.word() == word);
            let scenario = scenario.with_context(|| format!("{word:?} is no scenario"))?;
            scenario.run(tasks.parse().with_context(|| format!("{tasks:?} is no number of tasks"))?)?;
            Ok(())
        }
        _ => anyhow::bail!("expected nothing, or a scenario and a number of tasks"),
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
