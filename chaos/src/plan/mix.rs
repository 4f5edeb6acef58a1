//! Plans of many kinds of faults on data centres, one after the other.

use dueline::testing::rng::Rng;

use super::draw::{MINUTE_MS, SETTLE_MS, STEPS, one_of, rest};
use super::{Down, Offsets, Step, Wanted, Wire, ways};
use crate::cluster::{self, BROKERS, DCS, NODES};

/// The ways in which the network can be bad.
const WIRES: usize = 4;
/// How long the network is bad, from and to, in milliseconds.
const WIRE_MS: (i64, i64) = (15_000, 30_000);
/// How long servers and instances are frozen or down among other faults, from and to.
const SHORT_MS: (i64, i64) = (3_000, 15_000);
/// How long a data centre is lost among other faults, from and to.
const DC_MS: (i64, i64) = (25_000, 35_000);
/// Between two instances that join, from and to.
const JOIN_MS: (i64, i64) = (5_000, 10_000);
/// How long all brokers or all nodes are gone among other faults, from and to.
const ALL_MS: (i64, i64) = (10_000, 20_000);

/// What the network between two data centres becomes, each kind in turn.
pub(super) fn wan(wanted: &Wanted) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut steps = Vec::new();
    let mut left_ms = i64::from(wanted.minutes.unwrap_or(4)) * MINUTE_MS;
    let mut kinds: [usize; WIRES] = std::array::from_fn(|kind| kind);
    while left_ms > 0 || steps.len() < kinds.len() {
        if steps.len() % kinds.len() == 0 {
            dice.shuffle(&mut kinds);
        }
        let step = wire(kinds[steps.len() % kinds.len()], WIRE_MS, &mut dice);
        left_ms -= length_ms(&step);
        steps.push(step);
    }
    steps
}

/// Every server and every instance once, a layer after the other, in an order of the seed.
pub(super) fn restarts(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut layers = [owned(&BROKERS), owned(&NODES), instances.to_vec()];
    dice.shuffle(&mut layers);
    let mut steps = Vec::new();
    for mut layer in layers {
        dice.shuffle(&mut layer);
        steps.extend(layer.into_iter().map(|name| Step::Restart { name, rest_ms: rest(&mut dice) }));
    }
    steps
}

/// Every server that is not the first of its data centre, and every instance but one, joins; a layer after the other, in an order of
/// the seed. Brokers that joined get their share of the partitions.
pub(super) fn growth(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut layers = [0, 1, 2];
    dice.shuffle(&mut layers);
    let mut steps = Vec::new();
    for layer in layers {
        let kind: &[&str] = if layer == 0 { &BROKERS } else { &NODES };
        match layer {
            0 | 1 => {
                let mut joins: Vec<&str> =
                    kind.iter().copied().filter(|name| !cluster::is_first(name)).collect();
                dice.shuffle(&mut joins);
                let step = |name: &str| Step::AddServer { name: name.to_owned(), rest_ms: rest(&mut dice) };
                steps.extend(joins.into_iter().map(step));
            }
            _ => steps.extend(
                instances
                    .iter()
                    .skip(1)
                    .map(|name| Step::Join { name: name.clone(), after_ms: length(JOIN_MS, &mut dice) }),
            ),
        }
        if layer == 0 {
            steps.push(Step::DealPartitions { rest_ms: rest(&mut dice) });
        }
    }
    steps
}

/// Faults of nearly all kinds until their time is over; small ones most often. Left out is what leaves another cluster behind, or takes
/// many minutes: wiped servers, growth, topics made anew, upgrades.
pub(super) fn mixed(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut left_ms = i64::from(wanted.minutes.unwrap_or(10)) * MINUTE_MS;
    let mut steps = Vec::new();
    while left_ms > 0 || steps.is_empty() {
        let step = any(instances, &mut dice);
        left_ms -= length_ms(&step);
        steps.push(step);
    }
    steps
}

fn any(instances: &[String], dice: &mut Rng) -> Step {
    let servers: &[&str] = if dice.chance(500) { &BROKERS } else { &NODES };
    match dice.range_ms(0, 100) {
        0..18 => Step::Kill {
            victim: one_of(instances, dice),
            down_ms: dice.range_ms(0, SHORT_MS.1),
            rest_ms: rest(dice),
        },
        18..32 => Step::Freeze {
            victim: one_of(instances, dice),
            for_ms: length(SHORT_MS, dice),
            rest_ms: rest(dice),
        },
        32..42 => Step::Restart { name: one_of(instances, dice), rest_ms: rest(dice) },
        42..48 => Step::Restart { name: one_of(servers, dice), rest_ms: rest(dice) },
        48..66 => lose(vec![one_of(servers, dice)], SHORT_MS, dice),
        66..72 => ways::handlers_in(ways::MOODS[dice.index(ways::MOODS.len())], SHORT_MS, dice),
        72..76 => Step::Drain {
            victim: one_of(instances, dice),
            for_ms: length(SHORT_MS, dice),
            rest_ms: rest(dice),
        },
        76..80 => ways::clock_moved(instances, SHORT_MS, dice),
        80..83 => ways::disk_slow(one_of(servers, dice), dice),
        83..85 => ways::disk_full(one_of(servers, dice), dice),
        85..86 => Step::MoveOffsets {
            to: if dice.chance(500) { Offsets::Beginning } else { Offsets::End },
            rest_ms: rest(dice),
        },
        86..93 => wire(dice.index(WIRES), SHORT_MS, dice),
        93..97 => Step::LoseDc {
            dc: one_of(&DCS, dice),
            whole: dice.chance(500),
            further: Vec::new(),
            for_ms: length(DC_MS, dice),
            rest_ms: rest(dice),
        },
        97..98 => {
            Step::Evacuate { dc: one_of(&DCS, dice), for_ms: length(SHORT_MS, dice), rest_ms: rest(dice) }
        }
        _ => {
            let names = servers.iter().map(|name| (*name).to_owned()).collect();
            lose(names, ALL_MS, dice)
        }
    }
}

fn lose(names: Vec<String>, lengths: (i64, i64), dice: &mut Rng) -> Step {
    // Frozen all at once, servers of a kind would only be late together.
    let how = match names.len() {
        1 => [Down::Killed, Down::Frozen, Down::Slow][dice.index(3)],
        _ => Down::Killed,
    };
    Step::LoseServers { names, how, for_ms: length(lengths, dice), rest_ms: rest(dice) }
}

/// The network between two data centres is bad in one of [`WIRES`] ways.
fn wire(kind: usize, lengths: (i64, i64), dice: &mut Rng) -> Step {
    let how = match kind {
        0 => Wire::CutOneWay,
        1 => Wire::Cut,
        2 => Wire::Slow(milliseconds(dice)),
        _ => Wire::Lossy(permille(dice)),
    };
    let mut dcs = DCS.map(str::to_owned);
    dice.shuffle(&mut dcs);
    let [from, to, _] = dcs;
    Step::Wire { from, to, how, for_ms: length(lengths, dice), rest_ms: rest(dice) }
}

pub(super) fn length((from, to): (i64, i64), dice: &mut Rng) -> i64 {
    dice.range_ms(from, to)
}

fn milliseconds(dice: &mut Rng) -> u32 {
    [100, 200, 400][dice.index(3)]
}

fn permille(dice: &mut Rng) -> u32 {
    [20, 50, 150][dice.index(3)]
}

/// What a step takes in all, about.
fn length_ms(step: &Step) -> i64 {
    let own_ms = match step {
        Step::Kill { down_ms, .. } => *down_ms,
        Step::Freeze { for_ms, .. }
        | Step::LoseDc { for_ms, .. }
        | Step::LoseServers { for_ms, .. }
        | Step::Handlers { for_ms, .. }
        | Step::MoveClock { for_ms, .. }
        | Step::SlowDisk { for_ms, .. }
        | Step::FillDisk { for_ms, .. }
        | Step::Drain { for_ms, .. }
        | Step::Evacuate { for_ms, .. }
        | Step::Wire { for_ms, .. } => *for_ms,
        _ => 0,
    };
    own_ms + step.rest_ms().unwrap_or(0) + SETTLE_MS
}
