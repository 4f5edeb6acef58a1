//! What the nodes' settings mean: how soon a write is on disk, how a shard's owner is agreed on, what guard rails refuse.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Finding, listed};
use crate::model::limits;
use crate::store::cassandra::facts::Told;

type Nodes<'a> = BTreeMap<&'a str, &'a Told>;

/// Guard rails on consistency levels, and what is asked at here.
const LEVELS: [(&str, &[&str]); 2] = [
    ("read_consistency_levels_disallowed", &["QUORUM", "SERIAL"]),
    ("write_consistency_levels_disallowed", &["QUORUM", "SERIAL"]),
];
/// The longest page that is asked for, in rows.
const PAGE_ROWS_MAX: u64 = 5_000;

/// All findings; `spread` = copies are in so many places that one can be lost.
pub(super) fn findings(told: &Nodes<'_>, spread: bool) -> Vec<Finding> {
    if told.is_empty() {
        return Vec::new();
    }
    vec![commitlog(told, spread), paxos(told), guardrails(told)]
}

/// The values that a setting has on the nodes; the node that does not tell it, otherwise.
fn values<'a>(told: &Nodes<'a>, name: &str) -> Result<BTreeSet<&'a str>, String> {
    told.iter()
        .map(|(node, one)| {
            let settings = one.settings.as_ref().map_err(|why| format!("{node} does not tell: {why}"))?;
            let value = settings.get(name).map(String::as_str);
            value.ok_or_else(|| format!("{node} has no setting {name}"))
        })
        .collect()
}

fn unknown(check: Check, name: &str, why: &str) -> Finding {
    let todo = "look into cassandra.yaml of each node; SELECT on system_views.settings lets doctor do it";
    Finding::warn(check, format!("{name} is not known: {why}"), todo)
}

fn commitlog(told: &Nodes<'_>, spread: bool) -> Finding {
    let check = Check::CassandraCommitlog;
    let found = match values(told, "commitlog_sync") {
        Ok(found) => found,
        Err(why) => return unknown(check, "commitlog_sync", &why),
    };
    let names = listed(found.iter());
    if found.len() > 1 {
        let what = format!("commitlog_sync differs between nodes: {names}");
        return Finding::warn(check, what, "set one in cassandra.yaml of all nodes and restart them");
    }
    if !found.contains("periodic") {
        return Finding::ok(
            check,
            format!("commitlog_sync: {names}: a write is on disk before it is acknowledged"),
        );
    }
    // Before 4.1 the name ended with the unit.
    let period = values(told, "commitlog_sync_period")
        .or_else(|_| values(told, "commitlog_sync_period_in_ms"))
        .map(|periods| listed(periods.iter()))
        .unwrap_or_else(|_| "not known".to_owned());
    let what = format!(
        "commitlog_sync: periodic, {period}: a write is acknowledged before it is on disk and lost when a quorum of \
         its copies loses power within that time"
    );
    match spread {
        true => Finding::ok(check, format!("{what}; they are in different data centres")),
        false => Finding::warn(
            check,
            what,
            "commitlog_sync: group or batch (slower), or copies in three data centres",
        ),
    }
}

fn paxos(told: &Nodes<'_>) -> Finding {
    let check = Check::CassandraPaxos;
    match values(told, "paxos_variant") {
        Err(why) => unknown(check, "paxos_variant", &why),
        Ok(found) if found.iter().all(|one| one.starts_with("v2")) => {
            Finding::ok(check, format!("paxos_variant: {}", listed(found.iter())))
        }
        Ok(found) => {
            let what = format!(
                "paxos_variant is {} on some nodes",
                listed(found.iter().filter(|one| !one.starts_with("v2")))
            );
            Finding::warn(
                check,
                what,
                "paxos_variant: v2 in cassandra.yaml of all nodes, one restart after the other",
            )
        }
    }
}

fn guardrails(told: &Nodes<'_>) -> Finding {
    let check = Check::CassandraGuardrails;
    let mut refused = Vec::new();
    for (node, one) in told {
        match &one.settings {
            Ok(settings) => {
                refused.extend(refusals(settings).into_iter().map(|what| format!("{what} on {node}")));
            }
            Err(why) => {
                return unknown(check, "what guard rails refuse", &format!("{node} does not tell: {why}"));
            }
        }
    }
    if refused.is_empty() {
        return Finding::ok(check, "guard rails refuse nothing that is asked");
    }
    let todo = "change it in cassandra.yaml: QUORUM and SERIAL, writers' timestamps, pages and values of this size are needed";
    Finding::fail(check, format!("guard rails refuse what is asked: {}", listed(refused)), todo)
}

/// The settings that would refuse a request of ours.
fn refusals(settings: &BTreeMap<String, String>) -> Vec<String> {
    let value = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    let mut refused = Vec::new();
    for (name, needed) in LEVELS {
        let words: Vec<&str> = value(name).split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        if needed.iter().any(|level| words.contains(level)) {
            refused.push(format!("{name}={}", value(name)));
        }
    }
    if value("user_timestamps_enabled") == "false" {
        refused.push("user_timestamps_enabled=false".to_owned());
    }
    let sizes = [
        ("page_size_fail_threshold", PAGE_ROWS_MAX),
        ("column_value_size_fail_threshold", limits::EVENT_BYTES_MAX as u64),
    ];
    for (name, needed) in sizes {
        if bound(value(name)).is_some_and(|bound| bound < needed) {
            refused.push(format!("{name}={}", value(name)));
        }
    }
    refused
}

/// A bound as Cassandra writes it: a number, or a number with a unit of bytes. `None` = no bound.
fn bound(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}
