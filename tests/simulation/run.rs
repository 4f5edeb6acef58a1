//! One simulation from its seed to its verdict.

use crate::checker::{Verdict, check};
use crate::ledger::Ledger;
use crate::setup::Setup;
use crate::world::World;

/// How one seed went.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) verdict: Verdict,
    pub(crate) ledger: Ledger,
    pub(crate) trace: u64,
}

/// Longest time after the last fault until everything has ended, in milliseconds.
const REST_MS_MAX: u64 = 600_000;

/// Runs a seed with its own setup.
pub(crate) fn run(seed: u64) -> Report {
    run_with(seed, Setup::of(seed))
}

/// Runs a seed with another setup.
pub(crate) fn run_with(seed: u64, setup: Setup) -> Report {
    let chaos_ms = setup.chaos_ms;
    let mut world = World::new(setup, seed);
    world.begin();
    world.run_until(chaos_ms);
    world.heal_all();
    world.run_until(chaos_ms + 15_000);
    world.settle_group();
    let mut at_rest = false;
    while world.now < chaos_ms + REST_MS_MAX && world.ledger.wrongs.len() < 20 {
        let until = world.now + 5_000;
        world.run_until(until);
        at_rest = world.now > chaos_ms + 60_000 && world.ledger.unfinished(world.now).is_empty();
        if at_rest {
            break;
        }
    }
    let until = world.now + 3_000;
    world.run_until(until);
    if !at_rest {
        let left = world.ledger.unfinished(world.now);
        world.ledger.wrongs.push(format!("{} tasks never end: {:?}", left.len(), left.first()));
    }
    let verdict = check(&world.ledger, true);
    Report { verdict, ledger: world.ledger, trace: world.trace }
}
