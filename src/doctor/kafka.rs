//! What Kafka's answers mean: brokers, racks, topics, rights, and what a lost rack would take.

use std::collections::BTreeSet;

use super::placement::{self, Counted, Short};
use super::{Check, Finding, Level, Wanted, listed, of_loss};
use crate::log::kafka::facts::{Facts, Right};
use crate::log::kafka::topics::{self, Aspect, Plan};
use crate::log::{Error, Topic};

/// Racks without which no topic can have a majority outside of each.
const RACKS_MIN: usize = 3;
/// Where the rights are listed.
const RIGHTS: &str = "the rights are in deploy/k8s/kafka/users.yaml";
const SPREAD: &str = "spread replicas over three racks: kafka-reassign-partitions.sh";

/// All findings about brokers and topics.
pub fn findings(wanted: &Wanted, plan: &Plan, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![brokers(facts)];
    findings.extend(too_few(wanted, facts));
    findings.push(racks(wanted, facts));
    findings.extend(topics::compare(plan, facts).iter().map(Finding::from));
    findings.push(min_isr(wanted));
    let unseen = unseen(plan, facts);
    findings.extend(losses(wanted, facts, &unseen));
    findings.extend(rights(wanted, facts, &unseen));
    findings
}

impl From<&topics::Finding> for Finding {
    fn from(found: &topics::Finding) -> Finding {
        let level = match found.level {
            topics::Level::Ok => Level::Ok,
            topics::Level::Warn => Level::Warn,
            topics::Level::Fail => Level::Fail,
        };
        let check = match found.about {
            Aspect::Topic => Check::KafkaTopics,
            Aspect::Partitions => Check::KafkaPartitions,
            Aspect::Replicas => Check::KafkaReplicas,
            Aspect::Settings => Check::KafkaSettings,
        };
        Finding { level, check, what: found.what.clone(), todo: found.todo.clone() }
    }
}

fn brokers(facts: &Facts) -> Finding {
    let each = facts.brokers.iter().map(|broker| {
        let rack = broker.rack.as_deref().map(|rack| format!(" in {rack}")).unwrap_or_default();
        format!("{}@{}{rack}", broker.id, broker.address)
    });
    let all = each.collect::<Vec<_>>().join(", ");
    Finding::ok(Check::KafkaAnswers, format!("Kafka answers: {} broker(s), {all}", facts.brokers.len()))
}

fn too_few(wanted: &Wanted, facts: &Facts) -> Option<Finding> {
    let (brokers, copies) = (facts.brokers.len(), wanted.replication_factor);
    (brokers < copies).then(|| {
        let what = format!("topics.replication_factor is {copies}, there are {brokers} broker(s)");
        Finding::fail(Check::KafkaBrokers, what, "start more brokers, or lower topics.replication_factor")
    })
}

fn racks(wanted: &Wanted, facts: &Facts) -> Finding {
    let check = Check::KafkaRacks;
    let without: Vec<i32> =
        facts.brokers.iter().filter(|broker| broker.rack.is_none()).map(|broker| broker.id).collect();
    if !without.is_empty() {
        let what = format!("broker(s) without a rack: {}", listed(without));
        let todo = "set broker.rack to the data centre or zone and restart them: without it replicas are placed blindly";
        return of_loss(wanted.dc_loss, check, what, todo);
    }
    let racks = placement::racks(facts);
    let (count, names) = (racks.len(), listed(racks));
    if count < RACKS_MIN {
        let what = format!("{count} rack(s) with brokers that are up: {names}");
        let todo = "brokers in three racks (data centres, zones): with fewer one of them has what is needed";
        return of_loss(wanted.dc_loss, check, what, todo);
    }
    // A data centre with several racks loses them together, and no answer of Kafka says which those are.
    if (2..count).contains(&wanted.dcs) {
        let what = format!("{count} racks, {names}, and copies of rows in {} data centres", wanted.dcs);
        let todo = "if racks are zones within data centres, set broker.rack to the data centre: what is said of the loss of a data centre is of single racks";
        return Finding::warn(check, what, todo);
    }
    Finding::ok(check, format!("{count} racks: {names}"))
}

fn min_isr(wanted: &Wanted) -> Finding {
    let (min, copies) = (wanted.min_insync_replicas, wanted.replication_factor);
    let what = format!("topics.min_insync_replicas is {min} of {copies}");
    if min < 2 {
        let todo = "an accepted event may be lost with one broker: 2 or more, on 3 brokers or more";
        return Finding::warn(Check::KafkaMinIsr, what, todo);
    }
    if min >= copies {
        let todo = "nothing is written while one broker is down: fewer than topics.replication_factor";
        return Finding::warn(Check::KafkaMinIsr, what, todo);
    }
    Finding::ok(Check::KafkaMinIsr, what)
}

fn losses(wanted: &Wanted, facts: &Facts, unseen: &[&str]) -> Vec<Finding> {
    let check = Check::KafkaDcLoss;
    if placement::racks(facts).len() < 2 {
        let what = "no rack can be lost: brokers that are up are in fewer than two";
        return vec![of_loss(wanted.dc_loss, check, what.to_owned(), SPREAD)];
    }
    let placed = placement::shorts(facts, Counted::Placed, wanted.min_insync_replicas);
    if !placed.is_empty() {
        return placed.iter().map(|one| of_loss(wanted.dc_loss, check, by_placement(one), SPREAD)).collect();
    }
    let now = placement::shorts(facts, Counted::InSync, wanted.min_insync_replicas);
    if !now.is_empty() {
        let todo = "bring back the brokers that are down or behind: kafka-topics.sh --describe --under-replicated-partitions";
        return now.iter().map(|one| Finding::fail(check, by_now(one), todo)).collect();
    }
    if !unseen.is_empty() {
        let what = format!("whether a rack can be lost is not known for {}", unseen.join(", "));
        return vec![Finding::warn(check, what, "see the lines about topics and rights")];
    }
    vec![Finding::ok(check, "every partition takes records whichever rack is lost")]
}

/// Topics that nothing was told of.
fn unseen<'a>(plan: &'a Plan, facts: &Facts) -> Vec<&'a str> {
    let names = plan.topics.iter().map(|planned| planned.name.as_str());
    names.filter(|name| !matches!(facts.topics.get(*name), Some(Ok(_)))).collect()
}

fn by_placement(one: &Short) -> String {
    let Short { rack, topic, partitions, first, left, needed } = one;
    format!(
        "with rack {rack} lost, {partitions} partition(s) of {topic} (the first is {first}) have {left} replica(s) left, \
         {needed} are needed"
    )
}

fn by_now(one: &Short) -> String {
    let Short { rack, topic, partitions, first, left, needed } = one;
    format!(
        "with rack {rack} lost now, {partitions} partition(s) of {topic} (the first is {first}) would have {left} \
         replica(s) in sync left, {needed} are needed"
    )
}

/// The rights that an instance needs on a topic.
fn needs(wanted: &Wanted, topic: Topic) -> Vec<Right> {
    use Right::{Describe, DescribeConfigs, Read, Write};
    match topic {
        Topic::Schedule => vec![Read, Write, Describe, DescribeConfigs],
        Topic::Events if !wanted.task_events => vec![Describe, DescribeConfigs],
        Topic::Dead if !wanted.dead_letters => vec![Describe, DescribeConfigs],
        Topic::Events | Topic::Rejected | Topic::Dead => vec![Write, Describe, DescribeConfigs],
    }
}

fn rights(wanted: &Wanted, facts: &Facts, unseen: &[&str]) -> Vec<Finding> {
    let check = Check::KafkaRights;
    let mut findings = Vec::new();
    for topic in Topic::ALL {
        let name = topic.name(&wanted.prefix);
        let Some(Ok(found)) = facts.topics.get(&name) else { continue };
        match &found.rights {
            None => findings.push(not_told(&format!("topic {name}"))),
            Some(held) => findings.extend(missing(&format!("topic {name}"), held, &needs(wanted, topic))),
        }
    }
    if !unseen.is_empty() {
        let what = format!("rights on {} are not known: nothing is told of them", unseen.join(", "));
        findings.push(Finding::warn(check, what, "see the lines about topics"));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(check, "all rights that are needed on topics are held"));
    }
    findings
}

/// What the question for the rights on the group came to.
pub fn group_rights(wanted: &Wanted, found: &Result<Option<BTreeSet<Right>>, Error>) -> Finding {
    let (check, name) = (Check::KafkaRights, format!("group {}", wanted.group));
    match found {
        Ok(Some(held)) => missing(&name, held, &[Right::Read, Right::Describe])
            .unwrap_or_else(|| Finding::ok(check, format!("all rights that are needed on {name} are held"))),
        Ok(None) => not_told(&name),
        Err(Error::Refused(_)) => {
            let what = format!("missing on {name}: Read or Describe");
            Finding::fail(check, what, format!("grant Read and Describe on it: {RIGHTS}"))
        }
        Err(error) => {
            let what = format!("the coordinator of {name} does not answer: {error}");
            let todo =
                "without it no shard changes hands: kafka-topics.sh --describe --topic __consumer_offsets";
            Finding::fail(check, what, todo)
        }
    }
}

fn missing(on: &str, held: &BTreeSet<Right>, needed: &[Right]) -> Option<Finding> {
    let missing: Vec<&str> =
        needed.iter().filter(|right| !held.contains(right)).map(|right| right.word()).collect();
    (!missing.is_empty()).then(|| {
        let (what, all) = (format!("missing on {on}: {}", missing.join(", ")), missing.join(" and "));
        Finding::fail(Check::KafkaRights, what, format!("grant {all} on it (kafka-acls.sh --add): {RIGHTS}"))
    })
}

fn not_told(on: &str) -> Finding {
    let what = format!("rights on {on} are not known: the broker does not tell them");
    Finding::warn(Check::KafkaRights, what, "compare them by hand: kafka-acls.sh --list")
}

#[cfg(test)]
pub(super) mod tests;
