//! Clusters that are whole, and broken in one place.

use crate::log::kafka::facts::{Broker, Partition, Topic as Found};
use crate::log::kafka::topics::plan;

use super::*;

/// Two brokers in each of three racks, and one topic with the replicas of its partitions.
pub(in crate::doctor) fn cluster(placed: &[&[i32]]) -> Facts {
    let broker = |id: i32| Broker {
        id,
        address: format!("10.0.0.{id}:9092"),
        rack: Some(format!("dc{}", (id + 1) / 2)),
    };
    let partition = |(id, replicas): (usize, &&[i32])| Partition {
        id: i32::try_from(id).expect("few"),
        has_leader: true,
        replicas: replicas.to_vec(),
        in_sync: replicas.to_vec(),
    };
    let all = [Right::Read, Right::Write, Right::Describe, Right::DescribeConfigs];
    let topic =
        Found { partitions: placed.iter().enumerate().map(partition).collect(), rights: Some(all.into()) };
    Facts {
        id: Some("c".to_owned()),
        brokers: (1..=6).map(broker).collect(),
        topics: [("d.schedule".to_owned(), Ok(topic))].into(),
        settings: [("d.schedule".to_owned(), Ok(settings()))].into(),
    }
}

fn settings() -> std::collections::BTreeMap<String, String> {
    let planned = of_plan().topics.remove(0);
    planned.settings.iter().map(|one| (one.name.to_owned(), one.value.clone())).collect()
}

fn of_plan() -> Plan {
    let mut plan =
        plan(&topics::Wanted { prefix: "d".to_owned(), partitions: 2, ..topics::Wanted::default() });
    plan.topics.truncate(1);
    plan
}

/// The cluster once the controller has given a broker up.
pub(in crate::doctor) fn without_broker(mut facts: Facts, id: i32) -> Facts {
    facts.brokers.retain(|broker| broker.id != id);
    for topic in facts.topics.values_mut().flatten() {
        topic.partitions.iter_mut().for_each(|one| one.in_sync.retain(|other| *other != id));
    }
    facts
}

pub(in crate::doctor) fn wanted() -> Wanted {
    Wanted {
        shards: 2,
        replication_factor: 3,
        min_insync_replicas: 2,
        prefix: "d".to_owned(),
        group: "d".to_owned(),
        keyspace: "d".to_owned(),
        task_events: true,
        dead_letters: true,
        dcs: 3,
        dc_loss: true,
    }
}

fn whole() -> Facts {
    cluster(&[&[1, 3, 5], &[2, 4, 6]])
}

/// What is not ok, by level and check.
#[track_caller]
fn check(wanted: &Wanted, facts: &Facts, expected: &[(Level, Check)]) {
    let findings = findings(wanted, &of_plan(), facts);
    let bad: Vec<&Finding> = findings.iter().filter(|one| one.level != Level::Ok).collect();
    assert!(bad.iter().all(|one| !one.todo.is_empty()), "{bad:?}");
    let found: Vec<(Level, Check)> = bad.iter().map(|one| (one.level, one.check)).collect();
    assert_eq!(found, expected, "{bad:#?}");
}

#[test]
fn a_whole_cluster_has_no_fault() {
    check(&wanted(), &whole(), &[]);
}

#[test]
fn racks_that_are_missing_or_too_few_fail_where_a_loss_has_to_be_survived() {
    let mut facts = whole();
    facts.brokers[5].rack = None;
    let blind = [
        (Level::Fail, Check::KafkaRacks),
        (Level::Fail, Check::KafkaDcLoss),
        (Level::Fail, Check::KafkaDcLoss),
    ];
    check(&wanted(), &facts, &blind);
    let mut one = whole();
    one.brokers.iter_mut().for_each(|broker| broker.rack = Some("dc1".to_owned()));
    check(&wanted(), &one, &[(Level::Fail, Check::KafkaRacks), (Level::Fail, Check::KafkaDcLoss)]);
    let relaxed = Wanted { dc_loss: false, ..wanted() };
    check(&relaxed, &one, &[(Level::Warn, Check::KafkaRacks), (Level::Warn, Check::KafkaDcLoss)]);
}

#[test]
fn racks_within_data_centres_are_no_data_centres() {
    let of = |dcs: usize, found: &[(Level, Check)]| check(&Wanted { dcs, ..wanted() }, &whole(), found);
    // No more than a warning: Kafka may be in data centres where Cassandra has no copies.
    of(2, &[(Level::Warn, Check::KafkaRacks)]);
    // Cassandra in one data centre, or not told of yet: there is none to lose, and racks may well be zones.
    (0..=1).chain(3..=4).for_each(|dcs| of(dcs, &[]));
}

#[test]
fn replicas_placed_together_are_found_while_all_are_in_sync() {
    let facts = cluster(&[&[1, 2, 3], &[2, 4, 6]]);
    check(&wanted(), &facts, &[(Level::Fail, Check::KafkaDcLoss)]);
    check(&Wanted { dc_loss: false, ..wanted() }, &facts, &[(Level::Warn, Check::KafkaDcLoss)]);
}

#[test]
fn redundancy_that_is_lost_for_now_fails_whatever_is_required() {
    let facts = without_broker(whole(), 5);
    let found = [
        (Level::Warn, Check::KafkaReplicas),
        (Level::Fail, Check::KafkaDcLoss),
        (Level::Fail, Check::KafkaDcLoss),
    ];
    check(&Wanted { dc_loss: false, ..wanted() }, &facts, &found);
}

#[test]
fn too_few_brokers_and_a_careless_min_isr_are_found() {
    let few = [2, 4, 6].into_iter().fold(cluster(&[&[1, 3, 5], &[3, 5, 1]]), without_broker);
    check(&Wanted { replication_factor: 4, ..wanted() }, &few, &[(Level::Fail, Check::KafkaBrokers)]);
    check(&Wanted { min_insync_replicas: 1, ..wanted() }, &whole(), &[(Level::Warn, Check::KafkaMinIsr)]);
    check(&Wanted { min_insync_replicas: 3, ..wanted() }, &whole(), &[(Level::Warn, Check::KafkaMinIsr)]);
}

#[test]
fn a_right_that_is_missing_is_named() {
    let mut facts = whole();
    let held = |facts: &mut Facts, rights: Option<BTreeSet<Right>>| {
        facts.topics.values_mut().flatten().for_each(|topic| topic.rights = rights.clone());
    };
    held(&mut facts, Some([Right::Describe, Right::DescribeConfigs, Right::Read].into()));
    check(&wanted(), &facts, &[(Level::Fail, Check::KafkaRights)]);
    let finding = rights(&wanted(), &facts, &[]).remove(0);
    assert_eq!(finding.what, "missing on topic d.schedule: Write");
    held(&mut facts, None);
    check(&wanted(), &facts, &[(Level::Warn, Check::KafkaRights)]);
}

#[test]
fn of_a_topic_that_is_hidden_nothing_is_said_to_be_well() {
    let mut facts = whole();
    facts.topics.values_mut().for_each(|topic| *topic = Err("denied".to_owned()));
    let findings = findings(&wanted(), &of_plan(), &facts);
    let well = |check| findings.iter().any(|one| one.check == check && one.level == Level::Ok);
    assert!(!well(Check::KafkaRights) && !well(Check::KafkaDcLoss), "{findings:#?}");
}

#[test]
fn rights_on_the_group_are_judged_by_what_was_answered() {
    let level = |found| group_rights(&wanted(), &found).level;
    assert_eq!(level(Ok(Some([Right::Read, Right::Describe].into()))), Level::Ok);
    assert_eq!(level(Ok(Some([Right::Describe].into()))), Level::Fail);
    assert_eq!(level(Ok(None)), Level::Warn);
    assert_eq!(level(Err(Error::Refused("no".into()))), Level::Fail);
    assert_eq!(level(Err(Error::Unavailable("no".into()))), Level::Fail);
}
