//! Facts about plans.

use clap::ValueEnum as _;

use super::*;
use crate::cluster::{self, BROKERS, DCS, NODES};

fn wanted(scenario: Scenario, seed: u64) -> Wanted {
    let (minutes, empty, nearest) = (None, false, Nearest::Whole);
    Wanted { scenario, seed, minutes, kills: 10, kills_done: 0, instances: 3, empty, nearest }
}

#[test]
fn the_same_seed_makes_the_same_plan_and_another_one_another() {
    for &scenario in Scenario::value_variants() {
        let plan = Plan::draw(&wanted(scenario, 7));
        assert_eq!(plan, Plan::draw(&wanted(scenario, 7)), "{scenario:?}");
        let others = (8..12).filter(|seed| Plan::draw(&wanted(scenario, *seed)) != plan).count();
        assert!(others >= 3, "{scenario:?}");
        assert!(!plan.steps.is_empty());
        assert!(!scenario.about().is_empty() && !scenario.word().is_empty(), "{scenario:?}");
    }
}

#[test]
fn kills_that_resume_are_those_left_of_the_same_plan() {
    let whole = Plan::draw(&wanted(Scenario::Kill, 3)).steps;
    let rest = Plan::draw(&Wanted { kills_done: 4, ..wanted(Scenario::Kill, 3) }).steps;
    assert_eq!((whole.len(), &whole[4..]), (10, &rest[..]));
    let done = Plan::draw(&Wanted { kills_done: 10, ..wanted(Scenario::Kill, 3) });
    assert_eq!(done.steps, []);
}

#[test]
fn owners_are_frozen_once_for_each_length() {
    for seed in 0..20 {
        let steps = Plan::draw(&wanted(Scenario::Sigstop, seed)).steps;
        let lengths: BTreeSet<i64> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Freeze { for_ms, .. } => Some(*for_ms),
                _ => None,
            })
            .collect();
        assert_eq!((steps.len(), lengths), (3, [5_000, 20_000, 60_000].into()));
    }
}

#[test]
fn cuts_are_silent_and_loud_and_from_one_server_only() {
    for seed in 0..20 {
        let steps = Plan::draw(&wanted(Scenario::CutKafka, seed)).steps;
        let count = |wanted: Cut| {
            let is =
                |step: &&Step| matches!(step, Step::Cut { how, from: Server::Kafka, .. } if *how == wanted);
            steps.iter().filter(is).count()
        };
        assert!(count(Cut::Silent) > 0 && count(Cut::Loud) > 0);
        assert_eq!(count(Cut::Silent) + count(Cut::Loud), steps.len());
    }
}

#[test]
fn in_a_storm_only_those_leave_who_are_there_and_two_to_six_stay() {
    for seed in 0..20 {
        let plan = Plan::draw(&wanted(Scenario::RebalanceStorm, seed));
        assert_eq!(plan.steps.len(), 30);
        let mut live: BTreeSet<&String> = plan.instances.iter().collect();
        let mut all_ms = 0;
        for step in &plan.steps {
            match step {
                Step::Join { name, after_ms } => {
                    assert!(live.insert(name));
                    all_ms += after_ms;
                }
                Step::Leave { name, after_ms } => {
                    assert!(live.remove(name));
                    all_ms += after_ms;
                }
                other => panic!("{other:?} in a storm"),
            }
            assert!((2..=6).contains(&live.len()));
        }
        assert!((140_000..220_000).contains(&all_ms), "{all_ms} ms");
    }
}

#[test]
fn all_are_lost_both_until_before_and_until_after_tasks_are_due() {
    for seed in 0..20 {
        let steps = Plan::draw(&wanted(Scenario::LostCancel, seed)).steps;
        let late = |step: &&Step| matches!(step, Step::LoseAll { due_ms, down_ms, .. } if down_ms >= due_ms);
        assert_eq!((steps.len(), steps.iter().filter(late).count()), (2, 1));
    }
}

#[test]
fn the_network_is_bad_in_each_way_between_two_data_centres() {
    for seed in 0..20 {
        let steps = Plan::draw(&wanted(Scenario::Wan, seed)).steps;
        let mut kinds = BTreeSet::new();
        for step in &steps {
            let Step::Wire { from, to, how, .. } = step else { panic!("{step:?} is none of the network") };
            assert!(from != to && DCS.contains(&from.as_str()) && DCS.contains(&to.as_str()));
            kinds.insert(match how {
                Wire::CutOneWay => "one way",
                Wire::Cut => "both ways",
                Wire::Slow(_) => "slow",
                Wire::Lossy(_) => "lossy",
            });
        }
        assert_eq!(kinds.len(), 4, "seed {seed}");
    }
}

#[test]
fn a_rolling_restart_takes_every_server_and_instance_once_a_layer_after_the_other() {
    for seed in 0..20 {
        let plan = Plan::draw(&wanted(Scenario::RollingRestart, seed));
        let name = |step: &Step| match step {
            Step::Restart { name, .. } => name.clone(),
            other => panic!("{other:?} is no restart"),
        };
        let names: Vec<String> = plan.steps.iter().map(name).collect();
        let all: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        assert_eq!((names.len(), all.len()), (BROKERS.len() + NODES.len() + 3, names.len()));
        let layer = |name: &String| name.split('-').next().map(str::to_owned);
        let mut layers: Vec<_> = names.iter().map(layer).collect();
        layers.dedup();
        assert_eq!(layers.len(), 3, "{names:?}");
    }
}

#[test]
fn ten_minutes_of_a_mix_have_many_faults_of_many_kinds() {
    for seed in 0..20 {
        let plan = Plan::draw(&wanted(Scenario::Mixed, seed));
        let kinds: BTreeSet<_> =
            plan.steps.iter().map(|step| format!("{step:?}").split(' ').next().map(str::to_owned)).collect();
        assert!((16..=30).contains(&plan.steps.len()) && kinds.len() >= 4, "{} {kinds:?}", plan.steps.len());
        assert!(plan.steps.iter().all(|step| step.rest_ms().is_some()));
    }
}

#[test]
fn a_mix_has_nearly_all_kinds_of_faults() {
    let plans = (0..40).flat_map(|seed| Plan::draw(&wanted(Scenario::Mixed, seed)).steps);
    let kinds: BTreeSet<_> = plans
        .map(|step| format!("{step:?}").split(' ').next().map(str::to_owned).unwrap_or_default())
        .collect();
    let wanted = [
        "Drain",
        "Evacuate",
        "FillDisk",
        "Freeze",
        "Handlers",
        "Kill",
        "LoseDc",
        "LoseServers",
        "MoveClock",
        "MoveOffsets",
        "Restart",
        "SlowDisk",
        "Wire",
    ];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
}

#[test]
fn with_what_is_lost_beside_a_data_centre_there_is_no_quorum() {
    let nodes = |dc: &str| NODES.iter().filter(|node| cluster::dc_of(node) == dc).count();
    for seed in 0..20 {
        for step in Plan::draw(&wanted(Scenario::QuorumLoss, seed)).steps {
            let Step::LoseDc { dc, further, .. } = step else { panic!("{step:?} is no loss") };
            let lost = nodes(&dc) + further.len();
            assert_eq!(NODES.len() - lost, cluster::QUORUM - 1, "{dc} and {further:?}");
            assert!(further.iter().all(|node| cluster::dc_of(node) != dc));
        }
    }
}

#[test]
fn those_that_join_a_growing_group_are_all_but_the_first_and_half_of_all_leave_again() {
    for seed in 0..20 {
        let plan = Plan::draw(&Wanted { instances: 6, minutes: Some(3), ..wanted(Scenario::Grow, seed) });
        assert_eq!(plan.instances, ["i-1"]);
        let joins = plan.steps.iter().take(5).map(|step| match step {
            Step::Join { name, .. } => name.as_str(),
            other => panic!("{other:?} is no join"),
        });
        assert_eq!(joins.collect::<Vec<_>>(), ["i-2", "i-3", "i-4", "i-5", "i-6"]);
        let left = plan.steps.iter().skip(5).map(|step| match step {
            Step::Shrink { names, .. } => names.iter().collect::<BTreeSet<_>>().len(),
            other => panic!("{other:?} is no shrinking"),
        });
        assert_eq!(left.collect::<Vec<_>>(), [3, 3, 3]);
    }
    let three = Plan::draw(&wanted(Scenario::Grow, 0)).steps;
    let several = |step: &Step| matches!(step, Step::Shrink { names, .. } if names.len() == 2);
    assert!(three.iter().any(several), "one alone hands nothing round: {three:?}");
    let alone = Plan::draw(&Wanted { instances: 1, ..wanted(Scenario::Grow, 0) });
    assert!(alone.steps.is_empty(), "who is alone does not leave");
}

#[test]
fn a_wiped_broker_is_needed_for_every_write_afterwards() {
    for seed in 0..20 {
        let steps = Plan::draw(&wanted(Scenario::BrokerWiped, seed)).steps;
        let [Step::WipeServer { name, .. }, Step::LoseServers { names, how: Down::Killed, .. }] = &steps[..]
        else {
            panic!("{steps:?}");
        };
        let place = cluster::dc_of;
        assert!(
            names.len() == 2 && place(&names[0]) == place(&names[1]) && place(name) != place(&names[0]),
            "{steps:?}"
        );
        // A controller has more to lose than records.
        assert!(!cluster::is_first(name), "{steps:?}");
    }
}

#[test]
fn a_wiped_node_is_needed_for_every_quorum_afterwards_and_nobody_else_has_what_was_taken_in_before() {
    for seed in 0..20 {
        let steps = Plan::draw(&wanted(Scenario::NodeWiped, seed)).steps;
        let [
            Step::ScheduleRare { by, down, .. },
            Step::WipeServer { name, empty: false, repaired: None, .. },
            Step::RunRare { down: lost, .. },
        ] = &steps[..]
        else {
            panic!("{steps:?}");
        };
        let without = |gone: &[String]| {
            let is_left = |node: &&str| !gone.iter().any(|one| one == node);
            NODES.into_iter().filter(is_left).collect::<BTreeSet<&str>>()
        };
        let by: BTreeSet<&str> = by.iter().map(String::as_str).collect();
        assert_eq!((by.len(), &by), (cluster::QUORUM, &without(down)), "{steps:?}");
        let left = without(lost);
        assert_eq!(left.len(), cluster::QUORUM, "{steps:?}");
        assert_eq!(left.intersection(&by).collect::<Vec<_>>(), [&name.as_str()], "{steps:?}");
        // It takes all its rows from the other node of its data centre. A seed would take none, and one is left to start by.
        let near = |node: &&str| *node != name && cluster::dc_of(node) == cluster::dc_of(name);
        assert!(by.iter().any(near) && !cluster::is_first(name), "{steps:?}");
        assert!(left.iter().any(|node| cluster::is_first(node)), "{steps:?}");
    }
}

#[test]
fn the_node_that_a_wiped_one_takes_its_rows_from_is_behind_and_repaired_where_that_is_wanted() {
    for seed in 0..20 {
        let steps = |nearest| Plan::draw(&Wanted { nearest, ..wanted(Scenario::NodeWiped, seed) }).steps;
        let behind = steps(Nearest::Behind);
        let [
            Step::ScheduleRare { by, down, .. },
            Step::WipeServer { name, repaired: None, .. },
            Step::RunRare { down: lost, .. },
        ] = &behind[..]
        else {
            panic!("{behind:?}");
        };
        let all = |names: &[String]| names.iter().cloned().collect::<BTreeSet<String>>();
        let left: BTreeSet<String> =
            NODES.iter().map(|node| (*node).to_owned()).filter(|node| !lost.contains(node)).collect();
        assert_eq!(left.len(), cluster::QUORUM, "{behind:?}");
        assert_eq!(left.intersection(&all(by)).collect::<Vec<_>>(), [name], "it loses them: {behind:?}");
        let near = down.iter().find(|node| cluster::dc_of(node) == cluster::dc_of(name)).cloned();
        assert!(near.is_some(), "it takes its rows from one that was down: {behind:?}");
        let mut mended = steps(Nearest::Repaired);
        let Step::WipeServer { repaired, .. } = &mut mended[1] else { panic!("{mended:?}") };
        assert_eq!(repaired.take(), near, "{mended:?}");
        assert_eq!(mended, behind, "nothing else differs");
    }
}

#[test]
fn a_wiped_node_is_started_with_nothing_where_that_is_wanted() {
    let steps = |empty| Plan::draw(&Wanted { empty, ..wanted(Scenario::NodeWiped, 3) }).steps;
    let is_empty = |step: &Step| matches!(step, Step::WipeServer { empty: true, .. });
    assert_eq!(steps(true).iter().filter(|step| is_empty(step)).count(), 1);
    assert_eq!(steps(false).iter().filter(|step| is_empty(step)).count(), 0);
}

#[test]
fn every_instance_is_drained_and_every_data_centre_evacuated_in_an_order_of_the_seed() {
    for seed in 0..20 {
        let plan = Plan::draw(&wanted(Scenario::Drain, seed));
        let victim = |step: &Step| match step {
            Step::Drain { victim, .. } => victim.clone(),
            other => panic!("{other:?} is no drain"),
        };
        let victims: Vec<String> = plan.steps.iter().map(victim).collect();
        assert!(victims.len() == 6 && victims.iter().collect::<BTreeSet<_>>().len() == 3, "{victims:?}");
        let steps = Plan::draw(&wanted(Scenario::Evacuate, seed)).steps;
        let dc = |step: &Step| match step {
            Step::Evacuate { dc, .. } => dc.clone(),
            other => panic!("{other:?} is no evacuation"),
        };
        let dcs: BTreeSet<String> = steps.iter().map(dc).collect();
        assert!(steps.len() == DCS.len() && dcs.len() == DCS.len(), "{dcs:?}");
    }
}

#[test]
fn an_upgrade_goes_half_way_and_back_before_it_is_done() {
    for seed in 0..20 {
        let plan = Plan::draw(&wanted(Scenario::Upgrade, seed));
        let mut next = BTreeSet::new();
        let mut sizes = Vec::new();
        for step in &plan.steps {
            match step {
                Step::Change { name, to: Build::Next, .. } => assert!(next.insert(name.clone()), "{plan}"),
                Step::Change { name, to: Build::First, .. } => assert!(next.remove(name), "{plan}"),
                other => panic!("{other:?} is no change"),
            }
            sizes.push(next.len());
        }
        assert_eq!(sizes, [1, 2, 1, 0, 1, 2, 3]);
    }
}

#[test]
fn a_topic_is_made_anew_with_instances_and_without() {
    for seed in 0..20 {
        let steps = Plan::draw(&wanted(Scenario::TopicRenewed, seed)).steps;
        let stopped = steps.iter().map(|step| matches!(step, Step::RenewTopic { stopped: true, .. }));
        assert_eq!(BTreeSet::from_iter(stopped), [false, true].into(), "{steps:?}");
    }
}

#[test]
fn every_server_and_instance_that_is_not_there_at_the_beginning_joins_once() {
    for seed in 0..20 {
        let plan = Plan::draw(&Wanted { instances: 6, ..wanted(Scenario::ServersGrow, seed) });
        assert_eq!(plan.instances, ["i-1"]);
        let mut joins: Vec<&str> = Vec::new();
        let mut dealt = None;
        for (number, step) in plan.steps.iter().enumerate() {
            match step {
                Step::AddServer { name, .. } | Step::Join { name, .. } => joins.push(name),
                Step::DealPartitions { .. } => dealt = Some(number),
                _ => panic!("{step}"),
            }
        }
        let last = plan
            .steps
            .iter()
            .rposition(|step| matches!(step, Step::AddServer { name, .. } if name.starts_with("kafka")));
        assert!(last < dealt, "brokers are there first");
        joins.sort_unstable();
        let servers = ["cassandra-2", "cassandra-4"];
        let others = ["i-2", "i-3", "i-4", "i-5", "i-6", "kafka-2", "kafka-4", "kafka-6"];
        assert_eq!(joins, [&servers[..], &others].concat());
    }
}

#[test]
fn a_disk_is_slow_for_a_while_on_brokers_and_nodes_in_turn() {
    let steps = Plan::draw(&wanted(Scenario::DiskSlow, 3)).steps;
    let kinds: Vec<bool> = steps
        .iter()
        .map(|step| match step {
            Step::SlowDisk { name, ms, for_ms, .. } if *ms > 0 && *for_ms >= 15_000 => {
                name.starts_with("kafka")
            }
            step => panic!("{step}"),
        })
        .collect();
    assert!(kinds.len() == 4 && kinds[0] != kinds[1] && kinds[0] == kinds[2], "{kinds:?}");
}

#[test]
fn a_machine_that_does_other_things_has_long_for_every_event() {
    for scenario in Scenario::value_variants() {
        let (timed, untimed) = (scenario.slack(false), scenario.slack(true));
        assert_eq!(timed.known_ms, 5_000, "{scenario:?}");
        assert_eq!(untimed.known_ms, untimed.known_near_ms, "{scenario:?}");
        assert_eq!(untimed.known_ms, timed.known_near_ms.max(30_000), "{scenario:?}");
        assert!(untimed.from_applied && !timed.from_applied, "{scenario:?}");
    }
}
