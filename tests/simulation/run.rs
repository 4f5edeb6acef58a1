//! One simulation from its seed to its verdict.

use dueline::engine::plant::{self, Plant};
use dueline::testing::checker::{Report, check};
use dueline::testing::history::History;

use crate::history;
use crate::ledger::Ledger;
use crate::setup::Setup;
use crate::world::World;

/// How one seed went.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) report: Report,
    pub(crate) history: History,
    pub(crate) ledger: Ledger,
    pub(crate) trace: u64,
    /// Simulated milliseconds.
    pub(crate) virtual_ms: u64,
}

/// Every run lasts at least so long, in simulated milliseconds.
const RUN_MS_MIN: u64 = 600_000;
/// Longest time after the last fault until everything has ended, in milliseconds.
const REST_MS_MAX: u64 = 900_000;
/// How long a coordinator that gives a shard to two members does not notice.
const SETTLE_MS: u64 = 15_000;

/// Runs a seed.
pub(crate) fn run(seed: u64) -> Run {
    run_with(seed, Setup::of(seed), None)
}

/// Runs a seed with another setup, or with a mistake in it.
pub(crate) fn run_with(seed: u64, setup: Setup, planted: Option<Plant>) -> Run {
    plant::set(planted);
    let (chaos_ms, slack) = (setup.chaos_ms, history::slack(&setup));
    let mut world = World::new(setup, seed);
    world.begin();
    world.run_until(chaos_ms);
    world.heal_all();
    world.run_until(chaos_ms + SETTLE_MS);
    world.settle_group();
    world.begin_rest();
    while world.now < chaos_ms + REST_MS_MAX && world.ledger.wrongs.is_empty() {
        let until = world.now + 5_000;
        world.run_until(until);
        let rested = world.ledger.rested.values().all(|rested| rested.caught_up.is_some());
        if world.now >= RUN_MS_MIN && rested && world.unfinished() == 0 {
            break;
        }
    }
    let until = world.now + 8_000;
    world.run_until(until);
    world.judge_letters();
    world.judge_told();
    world.judge_intake();
    plant::set(None);
    let history = history::of(&world.ledger);
    let report = check(&history, &slack);
    Run { report, history, trace: world.trace, virtual_ms: world.now, ledger: world.ledger }
}
