//! What Cassandra's answers mean: the keyspace, its copies, the nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Finding, Wanted, listed, of_loss, quorum, rows, settings};
use crate::store::cassandra::facts::{Copies, Facts, Told};
use crate::store::cassandra::migrate::State;
use crate::store::cassandra::replication::{self, Replication};

/// Clock difference that is worth a warning, in milliseconds.
pub const CLOCK_WARN_MS: i64 = 50;
const SPREAD: &str =
    "replicate over three data centres, as in dc1 = 2, dc2 = 2, dc3 = 1: ALTER KEYSPACE, then a full repair";

/// All findings about nodes and keyspace.
pub fn findings(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let count = facts.copies.nodes.len();
    let mut findings =
        vec![Finding::ok(Check::CassandraAnswers, format!("Cassandra answers: {count} node(s)"))];
    findings.extend(migrations(wanted, facts));
    if let Some(replication) = &facts.replication {
        findings.extend(of_keyspace(wanted, replication, &facts.copies));
    }
    findings.push(nodes(facts));
    findings.extend(rows::finding(facts));
    let told: BTreeMap<&str, &Told> = facts
        .copies
        .nodes
        .iter()
        .zip(&facts.told)
        .filter_map(|(node, told)| Some((node.address.as_str(), told.as_ref().ok()?)))
        .collect();
    let factors = facts.replication.as_ref().map(|found| &found.factors);
    let spread = factors.is_some_and(crate::config::survives_dc_loss);
    findings.extend(one_of_all(&told));
    findings.extend(settings::findings(&told, spread));
    findings.extend(clocks(&told));
    findings
}

fn migrations(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let (check, keyspace) = (Check::CassandraMigrations, &wanted.keyspace);
    if facts.replication.is_none() {
        let what = format!("there is no keyspace {keyspace}");
        return vec![Finding::fail(check, what, "run `dueline migrate up`")];
    }
    let migrations = match &facts.migrations {
        Ok(migrations) => migrations,
        Err(why) => {
            let what = format!("the migrations of {keyspace} are not known: {why}");
            return vec![Finding::fail(
                check,
                what,
                "see which nodes are down, then `dueline migrate status`",
            )];
        }
    };
    let in_state = |state: State| {
        let found = migrations.iter().filter(move |one| one.state == state);
        found.map(|one| format!("{:04} {}", one.version, one.name)).collect::<Vec<_>>()
    };
    let mut findings = Vec::new();
    let (pending, changed, newer) =
        (in_state(State::Pending), in_state(State::Changed), in_state(State::Newer));
    if !pending.is_empty() {
        let what = format!("migrations are pending: {}", listed(pending));
        findings.push(Finding::fail(check, what, "run `dueline migrate up`"));
    }
    if !changed.is_empty() {
        let what = format!("migrations were changed after they were applied: {}", listed(changed));
        let todo = "this build and the store do not belong together: run the build that applied them";
        findings.push(Finding::fail(check, what, todo));
    }
    if !newer.is_empty() {
        let what = format!("migrations of a newer build are applied: {}", listed(newer));
        findings.push(Finding::warn(check, what, "bring this build up to date with the others"));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(check, format!("keyspace {keyspace}: all migrations are applied")));
    }
    findings
}

fn of_keyspace(wanted: &Wanted, replication: &Replication, copies: &Copies) -> Vec<Finding> {
    let (check, keyspace) = (Check::CassandraReplication, &wanted.keyspace);
    if let Err(why) = replication::check(replication) {
        return vec![Finding::fail(check, format!("keyspace {keyspace}: {why}"), SPREAD)];
    }
    let mut findings = Vec::new();
    for (dc, factor) in &replication.factors {
        let nodes = replication.nodes.get(dc).copied().unwrap_or(0);
        let what = format!("keyspace {keyspace}: {factor} copies in {dc}, which has {nodes} node(s)");
        findings.push(match nodes >= *factor {
            true => Finding::ok(check, what),
            false => {
                Finding::fail(check, what, "add nodes there, or lower its replication factor: ALTER KEYSPACE")
            }
        });
    }
    findings.push(quorum_now(copies));
    findings.extend(losses(wanted, replication, copies));
    findings
}

fn quorum_now(copies: &Copies) -> Finding {
    let (check, needed) = (Check::CassandraQuorum, copies.quorum);
    let Some(left) = quorum::fewest(copies, |node| node.is_up) else {
        let what = "who has copies is not known: the driver has no ring for this keyspace";
        return Finding::warn(check, what, "nodetool describering; keyspaces with tablets cannot be judged");
    };
    let what = format!("of each row {left} copies or more are up, QUORUM needs {needed}");
    match left.checked_sub(needed) {
        None => {
            Finding::fail(check, what, "bring nodes back: what has no quorum neither starts nor is stored")
        }
        Some(0) => Finding::warn(
            check,
            format!("{what}: no further node may be lost"),
            "bring nodes back, or add copies",
        ),
        Some(more) => Finding::ok(check, format!("{what}: {more} further node(s) may be lost")),
    }
}

fn losses(wanted: &Wanted, replication: &Replication, copies: &Copies) -> Vec<Finding> {
    let check = Check::CassandraDcLoss;
    let by_design = crate::config::survives_dc_loss(&replication.factors);
    let mut findings = Vec::new();
    for dc in quorum::dcs(copies) {
        let left = quorum::fewest(copies, |node| node.is_up && node.dc != dc).unwrap_or(0);
        if left >= copies.quorum {
            continue;
        }
        let what = format!(
            "with {dc} lost now, {left} copies of some rows are left, QUORUM needs {}",
            copies.quorum
        );
        let todo = if by_design { "bring back the nodes that are down: nodetool status" } else { SPREAD };
        findings.push(of_loss(by_design || wanted.dc_loss, check, what, todo));
    }
    if findings.is_empty() && !copies.sets.is_empty() {
        let further = quorum::dcs(copies)
            .into_iter()
            .filter_map(|dc| quorum::fewest(copies, |node| node.is_up && node.dc != dc))
            .min()
            .unwrap_or(0)
            .saturating_sub(copies.quorum);
        let what = format!(
            "QUORUM is left whichever data centre is lost, and then {further} further node(s) may be lost"
        );
        findings.push(Finding::ok(check, what));
    }
    findings
}

fn nodes(facts: &Facts) -> Finding {
    let check = Check::CassandraNodes;
    let down = facts.copies.nodes.iter().zip(&facts.told).filter_map(|(node, told)| {
        let why = told.as_ref().err()?;
        Some(format!("{} in {} ({why})", node.address, node.dc))
    });
    let down: Vec<String> = down.collect();
    if down.is_empty() {
        return Finding::ok(check, format!("all {} nodes answer", facts.told.len()));
    }
    let what = format!("{} of {} nodes do not answer: {}", down.len(), facts.told.len(), listed(down));
    Finding::warn(check, what, "start them, or mend the way there: nodetool status")
}

/// What all nodes are to have alike.
fn one_of_all(told: &BTreeMap<&str, &Told>) -> Vec<Finding> {
    let versions: BTreeSet<&str> = told.values().map(|one| one.version.as_str()).collect();
    let schemas: BTreeSet<_> = told.values().map(|one| one.schema).collect();
    let of_versions = match versions.len() {
        0 => None,
        1 => Some(Finding::ok(Check::CassandraVersions, format!("all nodes run {}", listed(versions)))),
        _ => {
            let what = format!("nodes run different versions: {}", listed(versions));
            Some(Finding::warn(
                Check::CassandraVersions,
                what,
                "end the upgrade: schema changes fail meanwhile",
            ))
        }
    };
    let of_schemas = match schemas.len() {
        0 => None,
        1 => Some(Finding::ok(Check::CassandraSchema, "all nodes have one schema")),
        count => {
            let what = format!("the nodes have {count} different schemas");
            let todo = "wait for a moment and look again; then nodetool describecluster, and restart who stays behind";
            Some(Finding::fail(Check::CassandraSchema, what, todo))
        }
    };
    of_versions.into_iter().chain(of_schemas).collect()
}

fn clocks(told: &BTreeMap<&str, &Told>) -> Option<Finding> {
    let check = Check::CassandraClock;
    let far = told.iter().filter(|(_, one)| one.clock_offset_ms.abs() > CLOCK_WARN_MS);
    let far: Vec<String> = far.map(|(node, one)| format!("{} ms from {node}", one.clock_offset_ms)).collect();
    if !far.is_empty() {
        let todo = "synchronise clocks (chrony, ntpd): tasks run by this machine's wall clock; when it is one node, that node's";
        return Some(Finding::warn(check, format!("clock is {}", listed(far)), todo));
    }
    let most = told.values().map(|one| one.clock_offset_ms.abs()).max()?;
    Some(Finding::ok(check, format!("clock within {} ms of every node's", most.max(1))))
}

#[cfg(test)]
mod tests;
