//! The drawing of plans.

use dueline::testing::rng::Rng;

use crate::cluster::{self, BROKERS, DCS, NODES, QUORUM};

use super::{BTreeSet, Cut, Down, Plan, Scenario, Server, Step, Wanted, mix, ways};

/// Streams of a seed, so that one scenario's choices do not shift another's.
pub(super) const STEPS: u64 = 1;
/// Each kill has a stream of its own: a run that resumes goes on with the same plan.
const KILLS: u64 = 1_000;

/// Time for everything to run again after a fault, in milliseconds, from and to.
const REST_MS: (i64, i64) = (2_000, 6_000);
/// How long instances are frozen: within the session, beyond it, far beyond.
const FREEZES_MS: [i64; 3] = [5_000, 20_000, 60_000];
/// How long instances are cut off, from and to: within a session and a lease, beyond both, far beyond.
const CUTS_MS: [(i64, i64); 3] = [(1_000, 5_000), (8_000, 20_000), (25_000, 40_000)];
/// How long a data centre is lost, from and to: others have taken over long before it is back.
const DC_LOST_MS: (i64, i64) = (40_000, 60_000);
/// And then it is looked on for so long, from and to: 90 s after the loss lateness has to be what it was.
const DC_REST_MS: (i64, i64) = (45_000, 55_000);
/// How long an instance stays drained, from and to.
const DRAINED_MS: (i64, i64) = (4_000, 12_000);
/// How long an evacuated data centre is lost, from and to.
const EVACUATED_MS: (i64, i64) = (20_000, 40_000);
/// How long one server is killed or frozen, from and to.
const SERVER_DOWN_MS: (i64, i64) = (10_000, 40_000);
/// How long all brokers are gone, in minutes: what is persisted runs on time all the while.
const KAFKA_GONE_MINUTES: u32 = 10;
/// What a fault takes in all beyond its own length, about.
pub(super) const SETTLE_MS: i64 = 15_000;
pub(super) const MINUTE_MS: i64 = 60_000;

/// Joins and leaves a minute.
const CHANGES_PER_MINUTE: u32 = 10;
/// Instances in a storm.
const STORM_MIN: usize = 2;
const STORM_MAX: usize = 6;

pub(super) fn plan(wanted: &Wanted) -> Plan {
    let instances: Vec<String> = (1..=wanted.instances).map(name).collect();
    let steps = match wanted.scenario {
        Scenario::Kill => kills(wanted, &instances),
        Scenario::Sigstop => freezes(wanted, &instances),
        Scenario::LostCancel => losses(wanted),
        Scenario::CutKafka => cuts(wanted, &instances, Server::Kafka),
        Scenario::CutCassandra => cuts(wanted, &instances, Server::Cassandra),
        Scenario::RebalanceStorm => storm(wanted, &instances),
        Scenario::DcLoss => dc_losses(wanted, true, false),
        Scenario::DcCut => dc_losses(wanted, false, false),
        Scenario::QuorumLoss => dc_losses(wanted, true, true),
        Scenario::KafkaGone => gone(wanted, &BROKERS, KAFKA_GONE_MINUTES),
        Scenario::CassandraGone => gone(wanted, &NODES, 1),
        Scenario::ServersDown => servers_down(wanted),
        Scenario::Wan => mix::wan(wanted),
        Scenario::RollingRestart => mix::restarts(wanted, &instances),
        Scenario::ServersSlow => ways::slow(wanted),
        Scenario::DiskSlow => ways::slow_disks(wanted),
        Scenario::DiskFull => ways::full_disks(wanted),
        Scenario::BrokerWiped => ways::wiped_brokers(wanted),
        Scenario::NodeWiped => ways::wiped_nodes(wanted),
        Scenario::OffsetsReset => ways::offsets(wanted),
        Scenario::TopicRenewed => ways::topics(wanted),
        Scenario::Handlers => ways::handlers(wanted),
        Scenario::ClockStep => ways::clocks(wanted, &instances),
        Scenario::Grow => ways::grow(wanted, &instances),
        Scenario::ServersGrow => mix::growth(wanted, &instances),
        Scenario::Drain => drains(wanted, &instances),
        Scenario::Evacuate => evacuations(wanted),
        Scenario::Upgrade => ways::upgrade(wanted, &instances),
        Scenario::Mixed => mix::mixed(wanted, &instances),
    };
    // Those that join later are not there at the beginning.
    let joins = |name: &String| {
        steps.iter().any(|step| matches!(step, Step::Join { name: later, .. } if later == name))
    };
    let instances = instances.into_iter().filter(|name| !joins(name)).collect();
    Plan { instances, steps }
}

fn name(number: usize) -> String {
    format!("i-{number}")
}

pub(super) fn rest(dice: &mut Rng) -> i64 {
    dice.range_ms(REST_MS.0, REST_MS.1)
}

pub(super) fn one_of<T: ToString>(names: &[T], dice: &mut Rng) -> String {
    names[dice.index(names.len())].to_string()
}

fn kills(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let kill = |number: u32| {
        let mut dice = Rng::of_stream(wanted.seed, KILLS + u64::from(number));
        // Half of them are back at once, as under a supervisor; half when others have taken over.
        let down_ms = if dice.chance(500) { dice.range_ms(0, 1_000) } else { dice.range_ms(1_000, 15_000) };
        Step::Kill { victim: one_of(instances, &mut dice), down_ms, rest_ms: rest(&mut dice) }
    };
    (wanted.kills_done..wanted.kills).map(kill).collect()
}

fn freezes(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    // A round takes a little over two minutes.
    let rounds = wanted.minutes.map_or(1, |minutes| (minutes / 2).max(1));
    let mut steps = Vec::new();
    for _ in 0..rounds {
        let mut lengths = FREEZES_MS;
        dice.shuffle(&mut lengths);
        steps.extend(lengths.map(|for_ms| Step::Freeze {
            victim: one_of(instances, &mut dice),
            for_ms,
            rest_ms: rest(&mut dice),
        }));
    }
    steps
}

fn cuts(wanted: &Wanted, instances: &[String], from: Server) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut left_ms = i64::from(wanted.minutes.unwrap_or(3)) * MINUTE_MS;
    let mut steps = Vec::new();
    let mut lengths = CUTS_MS;
    let silent_first = dice.chance(500);
    while left_ms > 0 || steps.len() < 2 {
        let number = steps.len();
        if number % CUTS_MS.len() == 0 {
            dice.shuffle(&mut lengths);
        }
        let (shortest, longest) = lengths[number % CUTS_MS.len()];
        let how = if number.is_multiple_of(2) == silent_first { Cut::Silent } else { Cut::Loud };
        let (for_ms, rest_ms) = (dice.range_ms(shortest, longest), rest(&mut dice));
        steps.push(Step::Cut { victim: one_of(instances, &mut dice), from, how, for_ms, rest_ms });
        left_ms -= for_ms + rest_ms + SETTLE_MS;
    }
    steps
}

fn storm(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let changes = wanted.minutes.unwrap_or(3) * CHANGES_PER_MINUTE;
    let mean_ms = MINUTE_MS / i64::from(CHANGES_PER_MINUTE);
    let mut live: BTreeSet<String> = instances.iter().cloned().collect();
    let mut named = instances.len();
    let mut steps = Vec::new();
    for _ in 0..changes {
        let after_ms = dice.range_ms(mean_ms / 2, mean_ms * 3 / 2);
        let joins = live.len() <= STORM_MIN || live.len() < STORM_MAX && dice.chance(500);
        if joins {
            named += 1;
            live.insert(name(named));
            steps.push(Step::Join { name: name(named), after_ms });
        } else if let Some(leaving) = live.iter().nth(dice.index(live.len())).cloned() {
            live.remove(&leaving);
            steps.push(Step::Leave { name: leaving, after_ms });
        }
    }
    steps
}

/// Each data centre once a round, in an order of the seed. A loss takes a minute, with getting it back.
fn dc_losses(wanted: &Wanted, whole: bool, and_more: bool) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut dcs = DCS;
    let mut steps = Vec::new();
    for number in 0..wanted.minutes.map_or(DCS.len(), |minutes| minutes.max(1) as usize) {
        if number % dcs.len() == 0 {
            dice.shuffle(&mut dcs);
        }
        let (shortest, longest) = DC_LOST_MS;
        let dc = dcs[number % dcs.len()];
        let further = if and_more { without_quorum(dc, &mut dice) } else { Vec::new() };
        steps.push(Step::LoseDc {
            dc: dc.to_owned(),
            whole,
            further,
            for_ms: dice.range_ms(shortest, longest),
            rest_ms: dice.range_ms(DC_REST_MS.0, DC_REST_MS.1),
        });
    }
    steps
}

/// As many nodes of other data centres as have to go beside one's own until there is no quorum, no two of one data centre.
fn without_quorum(dc: &str, dice: &mut Rng) -> Vec<String> {
    let (own, mut others): (Vec<&str>, Vec<&str>) =
        NODES.into_iter().partition(|node| cluster::dc_of(node) == dc);
    dice.shuffle(&mut others);
    let mut further: Vec<&str> = Vec::new();
    for node in others {
        let is_there = further.iter().any(|one| cluster::dc_of(one) == cluster::dc_of(node));
        if own.len() + further.len() <= NODES.len() - QUORUM && !is_there {
            further.push(node);
        }
    }
    further.into_iter().map(str::to_owned).collect()
}

/// Each instance once a round, in an order of the seed.
fn drains(wanted: &Wanted, instances: &[String]) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut order = instances.to_vec();
    let mut steps = Vec::new();
    for _ in 0..wanted.minutes.unwrap_or(2).max(1) {
        dice.shuffle(&mut order);
        steps.extend(order.iter().cloned().map(|victim| {
            let for_ms = dice.range_ms(DRAINED_MS.0, DRAINED_MS.1);
            Step::Drain { victim, for_ms, rest_ms: rest(&mut dice) }
        }));
    }
    steps
}

/// Each data centre once a round, in an order of the seed.
fn evacuations(wanted: &Wanted) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let mut dcs = DCS;
    dice.shuffle(&mut dcs);
    let count = wanted.minutes.map_or(DCS.len(), |minutes| minutes.max(1) as usize);
    let evacuation = |dc: &str| {
        let for_ms = dice.range_ms(EVACUATED_MS.0, EVACUATED_MS.1);
        Step::Evacuate { dc: dc.to_owned(), for_ms, rest_ms: rest(&mut dice) }
    };
    dcs.into_iter().cycle().take(count).map(evacuation).collect()
}

/// All servers of a kind killed at once.
fn gone(wanted: &Wanted, names: &[&str], minutes: u32) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let minutes = i64::from(wanted.minutes.unwrap_or(minutes).max(1));
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let for_ms = minutes * MINUTE_MS + dice.range_ms(0, 20_000);
    vec![Step::LoseServers { names, how: Down::Killed, for_ms, rest_ms: rest(&mut dice) }]
}

/// One server after the other, of either kind in turn.
fn servers_down(wanted: &Wanted) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let down = |number: u32| {
        let kind: &[&str] = if number.is_multiple_of(2) { &BROKERS } else { &NODES };
        let names = vec![one_of(kind, &mut dice)];
        let (shortest, longest) = SERVER_DOWN_MS;
        let for_ms = dice.range_ms(shortest, longest);
        let how = if dice.chance(500) { Down::Frozen } else { Down::Killed };
        Step::LoseServers { names, how, for_ms, rest_ms: rest(&mut dice) }
    };
    (0..wanted.minutes.unwrap_or(4).max(1)).map(down).collect()
}

fn losses(wanted: &Wanted) -> Vec<Step> {
    let mut dice = Rng::of_stream(wanted.seed, STEPS);
    let rounds = wanted.minutes.unwrap_or(2).max(1);
    let back_late_first = dice.chance(500);
    let loss = |number: u32| {
        let due_ms = dice.range_ms(20_000, 25_000);
        // In turn: back before anything is due, and back when all of it is past due.
        let back_late = number.is_multiple_of(2) == back_late_first;
        let down_ms = if back_late { dice.range_ms(25_000, 35_000) } else { dice.range_ms(2_000, 6_000) };
        Step::LoseAll { tasks: dice.range_ms(300, 500) as usize, due_ms, down_ms, rest_ms: rest(&mut dice) }
    };
    (0..rounds).map(loss).collect()
}
