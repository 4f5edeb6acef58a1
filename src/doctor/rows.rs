//! Whether nodes with copies have the rows of before they began.

use super::{Check, Finding, listed};
use crate::store::cassandra::facts::{Facts, keyspace_made};
use crate::wire::time::format_time;

const TODO: &str = "stop it, empty it and start it as a replacement, not as a seed (docs/operations.md, \"A broker or a node \
                    is replaced\"); or there nodetool rebuild from another data centre, or nodetool repair --full of the keyspace";

const RESTORED: &str =
    "if the keyspace was restored from a backup: nodetool repair --full, and this is told no more";

/// What is found; nothing where no notes are kept, or there is no keyspace.
pub(super) fn finding(facts: &Facts) -> Option<Finding> {
    let check = Check::CassandraRows;
    let (replication, made) =
        (facts.replication.as_ref()?, keyspace_made(facts.migrations.as_deref().ok()?)?);
    let has_copies = |dc: &String| replication.factors.get(dc).is_some_and(|factor| *factor > 0);
    let holders = || facts.copies.nodes.iter().zip(&facts.told).filter(|(node, _)| has_copies(&node.dc));
    let told =
        holders().filter_map(|(node, told)| Some((node.address.as_str(), &told.as_ref().ok()?.origin)));
    let (mut known, mut empty, mut silent) = (0, Vec::new(), Vec::new());
    let repaired = facts.repaired.as_ref().ok().copied().flatten();
    for (address, origin) in told {
        match origin {
            Err(why) => silent.push(format!("{address} ({why})")),
            Ok(None) => {}
            Ok(Some(origin)) => {
                let was_repaired = repaired.is_some_and(|repaired| repaired >= origin.begun);
                match origin.has_rows_since(made) || was_repaired {
                    true => known += 1,
                    false => empty.push(format!("{address} at {}", format_time(origin.begun))),
                }
            }
        }
    }
    if !empty.is_empty() {
        let unread = facts.repaired.as_ref().err();
        let unread = unread.map(|why| format!("; whether it was repaired since is not known: {why}"));
        let what = format!(
            "began with nothing after the keyspace ({}), and took no rows from others: {}; what was written before is missing \
             there, and it counts for QUORUM{}",
            format_time(made),
            listed(&empty),
            unread.unwrap_or_default()
        );
        // Somebody brought all rows by hand, or there would be no keyspace.
        return Some(match empty.len() == holders().count() {
            true => Finding::warn(check, what, RESTORED),
            false => Finding::fail(check, what, TODO),
        });
    }
    if !silent.is_empty() {
        let todo = "GRANT SELECT ON TABLE system.available_ranges_v2 (and system_distributed.parent_repair_history) lets doctor \
                    see it";
        let what = format!("whether nodes took their rows from others is not known: {}", listed(silent));
        return Some(Finding::warn(check, what, todo));
    }
    let what =
        format!("{known} node(s) were there before the keyspace, or have taken their rows from others");
    (known > 0).then(|| Finding::ok(check, what))
}
