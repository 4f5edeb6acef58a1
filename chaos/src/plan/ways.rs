//! Plans of one kind of fault each: slow servers, slow and full disks, lost data, moved offsets, lost topics, bad handlers, wrong clocks, growth.

use dueline::testing::rng::Rng;

use super::draw::{STEPS, one_of, rest};
use super::mix::length;
use super::{Build, Down, Mood, Nearest, Offsets, Step, Wanted};
use crate::cluster::{BROKERS, NODES};

/// Faults that go on by themselves once they have begun, from and to, in milliseconds.
const FAULT_MS: (i64, i64) = (15_000, 30_000);
/// What a write to a slow disk takes longer.
const DRAGS_MS: [u32; 3] = [20, 100, 300];
/// Brokers that can be wiped, and those of another data centre that are lost then. No controllers: those keep more than records.
const WIPED_BROKERS: [(&str, [&str; 2]); 3] = [
    ("kafka-2", ["kafka-3", "kafka-4"]),
    ("kafka-4", ["kafka-5", "kafka-6"]),
    ("kafka-6", ["kafka-1", "kafka-2"]),
];
/// Nodes that can be wiped, those that take tasks in with them and are lost afterwards, and those that are down while they do. No
/// seeds: one takes no data from others when it starts. The first that is lost is the other one of its data centre, which it takes all
/// its data from. Where that one is to be behind, the two pairs change places.
const WIPED_NODES: [(&str, [&str; 2], [&str; 2]); 2] = [
    ("cassandra-2", ["cassandra-1", "cassandra-3"], ["cassandra-4", "cassandra-5"]),
    ("cassandra-4", ["cassandra-3", "cassandra-1"], ["cassandra-2", "cassandra-5"]),
];
/// Tasks that are taken in before.
const RARE_TASKS: usize = 300;
/// What wiping takes in all, in minutes: a broker, a node.
const BROKER_MINUTES: u32 = 3;
const NODE_MINUTES: u32 = 10;
/// How far clocks jump: within the tolerance, beyond a lease, an hour.
const JUMPS_MS: [i64; 3] = [500, 20_000, 3_600_000];
/// Between two instances that join, from and to.
const JOIN_MS: (i64, i64) = (8_000, 15_000);
/// How often half of the instances leave again, and how long one after the other, from and to.
const SHRINKS: u32 = 4;
const APART_MS: (i64, i64) = (0, 400);
/// What handlers can be like when they are not willing.
pub(super) const MOODS: [Mood; 3] = [Mood::Failing, Mood::Slow, Mood::Silent];

/// A broker and a node in turn.
fn each_kind(wanted: &Wanted, mut step: impl FnMut(String, &mut Rng) -> Step) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut kinds: [&[&str]; 2] = [&BROKERS, &NODES];
    dice.shuffle(&mut kinds);
    let count = wanted.minutes.unwrap_or(4).max(2) as usize;
    (0..count).map(|number| step(one_of(kinds[number % kinds.len()], &mut dice), &mut dice)).collect()
}

pub(super) fn slow(wanted: &Wanted) -> Vec<Step> {
    each_kind(wanted, |name, dice| Step::LoseServers {
        names: vec![name],
        how: Down::Slow,
        for_ms: length(FAULT_MS, dice),
        rest_ms: rest(dice),
    })
}

pub(super) fn slow_disks(wanted: &Wanted) -> Vec<Step> {
    each_kind(wanted, disk_slow)
}

pub(super) fn disk_slow(name: String, dice: &mut Rng) -> Step {
    let ms = DRAGS_MS[dice.index(DRAGS_MS.len())];
    Step::SlowDisk { name, ms, for_ms: length(FAULT_MS, dice), rest_ms: rest(dice) }
}

pub(super) fn full_disks(wanted: &Wanted) -> Vec<Step> {
    each_kind(wanted, disk_full)
}

pub(super) fn disk_full(name: String, dice: &mut Rng) -> Step {
    Step::FillDisk { name, for_ms: length(FAULT_MS, dice), rest_ms: rest(dice) }
}

/// A broker comes back empty; then a data centre of others is lost, so that it is needed for every write.
pub(super) fn wiped_brokers(wanted: &Wanted) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut steps = Vec::new();
    for _ in 0..rounds(wanted, BROKER_MINUTES) {
        let (name, others) = WIPED_BROKERS[dice.index(WIPED_BROKERS.len())];
        steps.push(wipe(name, false, None, &mut dice));
        steps.push(Step::LoseServers {
            names: others.map(str::to_owned).to_vec(),
            how: Down::Killed,
            for_ms: length(FAULT_MS, &mut dice),
            rest_ms: rest(&mut dice),
        });
    }
    steps
}

/// Three nodes take tasks in, and one of them comes back empty; then the other two are lost, so that it is needed for every quorum and
/// nobody else has those tasks.
pub(super) fn wiped_nodes(wanted: &Wanted) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut steps = Vec::new();
    for _ in 0..rounds(wanted, NODE_MINUTES) {
        let (name, mut with, mut without) = WIPED_NODES[dice.index(WIPED_NODES.len())];
        let nearest = with[0].to_owned();
        if wanted.nearest != Nearest::Whole {
            std::mem::swap(&mut with, &mut without);
        }
        steps.push(Step::ScheduleRare {
            tasks: RARE_TASKS,
            // The one to be wiped restarts last: what the nearest, where it restarts, missed while that was down, it gets by hints.
            by: [with[0], with[1], name].map(str::to_owned).to_vec(),
            down: without.map(str::to_owned).to_vec(),
            rest_ms: rest(&mut dice),
        });
        let repaired = (wanted.nearest == Nearest::Repaired).then_some(nearest);
        steps.push(wipe(name, wanted.empty, repaired, &mut dice));
        steps.push(Step::RunRare {
            down: with.map(str::to_owned).to_vec(),
            for_ms: length(FAULT_MS, &mut dice),
            rest_ms: rest(&mut dice),
        });
    }
    steps
}

fn rounds(wanted: &Wanted, minutes_each: u32) -> u32 {
    wanted.minutes.map_or(1, |minutes| (minutes / minutes_each).max(1))
}

fn wipe(name: &str, empty: bool, repaired: Option<String>, dice: &mut Rng) -> Step {
    let (name, for_ms, rest_ms) = (name.to_owned(), length(FAULT_MS, dice), rest(dice));
    Step::WipeServer { name, empty, repaired, for_ms, rest_ms }
}

/// To the beginning and to the end, in an order of the seed.
pub(super) fn offsets(wanted: &Wanted) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut ends = [Offsets::Beginning, Offsets::End];
    dice.shuffle(&mut ends);
    let count = wanted.minutes.unwrap_or(2).max(1) as usize;
    (0..count).map(|number| Step::MoveOffsets { to: ends[number % 2], rest_ms: rest(&mut dice) }).collect()
}

/// With instances that run and with none, in an order of the seed.
pub(super) fn topics(wanted: &Wanted) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let first = dice.chance(500);
    let count = wanted.minutes.unwrap_or(2).max(1);
    (0..count)
        .map(|number| Step::RenewTopic {
            stopped: number.is_multiple_of(2) == first,
            rest_ms: rest(&mut dice),
        })
        .collect()
}

/// Each mood in turn.
pub(super) fn handlers(wanted: &Wanted) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut moods = MOODS;
    dice.shuffle(&mut moods);
    let count = wanted.minutes.unwrap_or(3).max(1) as usize;
    (0..count).map(|number| handlers_in(moods[number % moods.len()], FAULT_MS, &mut dice)).collect()
}

pub(super) fn handlers_in(mood: Mood, lengths: (i64, i64), dice: &mut Rng) -> Step {
    Step::Handlers { mood, for_ms: length(lengths, dice), rest_ms: rest(dice) }
}

/// Each jump once, ahead or back.
pub(super) fn clocks(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut jumps = JUMPS_MS;
    dice.shuffle(&mut jumps);
    let count = wanted.minutes.unwrap_or(3).max(1) as usize;
    (0..count)
        .map(|number| clock_moved_by(jumps[number % jumps.len()], instances, FAULT_MS, &mut dice))
        .collect()
}

pub(super) fn clock_moved(instances: &[String], lengths: (i64, i64), dice: &mut Rng) -> Step {
    clock_moved_by(JUMPS_MS[dice.index(JUMPS_MS.len())], instances, lengths, dice)
}

fn clock_moved_by(far_ms: i64, instances: &[String], lengths: (i64, i64), dice: &mut Rng) -> Step {
    let by_ms = if dice.chance(500) { far_ms } else { -far_ms };
    let victim = one_of(instances, dice);
    Step::MoveClock { victim, by_ms, for_ms: length(lengths, dice), rest_ms: rest(dice) }
}

/// All but the first join, one after the other; then half of all leave and come back, drawn anew each time. Somebody stays.
pub(super) fn grow(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let join = |name: &String| Step::Join { name: name.clone(), after_ms: length(JOIN_MS, &mut dice) };
    let mut steps: Vec<Step> = instances.iter().skip(1).map(join).collect();
    let leave = instances.len().div_ceil(2).min(instances.len().saturating_sub(1));
    let rounds = if leave > 0 { wanted.minutes.unwrap_or(SHRINKS).max(1) } else { 0 };
    for _ in 0..rounds {
        let mut names = instances.to_vec();
        dice.shuffle(&mut names);
        names.truncate(leave);
        let apart_ms = length(APART_MS, &mut dice);
        steps.push(Step::Shrink { names, apart_ms, rest_ms: rest(&mut dice) });
    }
    steps
}

/// All but the last to the next build, in an order of the seed; back, the last that changed first; then all of them.
pub(super) fn upgrade(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut order = instances.to_vec();
    dice.shuffle(&mut order);
    let tried = &order[..order.len() - 1];
    let there = tried.iter().map(|name| (name, Build::Next));
    let back = tried.iter().rev().map(|name| (name, Build::First));
    let all = order.iter().map(|name| (name, Build::Next));
    let changes = there.chain(back).chain(all);
    changes.map(|(name, to)| Step::Change { name: name.clone(), to, rest_ms: rest(&mut dice) }).collect()
}
