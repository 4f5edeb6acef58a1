//! Whether nodes with copies have the rows of before they began.

use super::{Check, Finding, listed};
use crate::model::Wall;
use crate::store::cassandra::facts::{Facts, Origin, keyspace_made};
use crate::wire::time::format_time;

/// What is found; nothing where no notes are kept, or there is no keyspace.
pub(super) fn finding(facts: &Facts) -> Option<Finding> {
    let check = Check::CassandraRows;
    let (replication, made) =
        (facts.replication.as_ref()?, keyspace_made(facts.migrations.as_deref().ok()?)?);
    let holders = facts.copies.nodes.iter().zip(&facts.told).filter_map(|(node, told)| {
        let has_copies = replication.factors.get(&node.dc).is_some_and(|factor| *factor > 0);
        Some((node.address.as_str(), &told.as_ref().ok()?.origin)).filter(|_| has_copies)
    });
    let (mut known, mut empty, mut silent) = (0, Vec::new(), Vec::new());
    let repaired = facts.repaired.as_ref().ok().copied().flatten();
    for (address, origin) in holders {
        match origin {
            Err(why) => silent.push(format!("{address} ({why})")),
            Ok(None) => {}
            Ok(Some(origin)) if has_rows(origin, made, repaired) => known += 1,
            Ok(Some(origin)) => empty.push(format!("{address} at {}", format_time(origin.begun))),
        }
    }
    if !empty.is_empty() {
        let what = format!(
            "began with nothing after the keyspace ({}), and took no rows from others: {}; what was written before is missing \
             there, and it counts for QUORUM",
            format_time(made),
            listed(empty)
        );
        let todo = "stop it, empty it and start it as a replacement, not as a seed (docs/operations.md, \
                    \"A broker or a node is replaced\"); or nodetool rebuild there, from another data centre";
        return Some(Finding::fail(check, what, todo));
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

fn has_rows(origin: &Origin, made: Wall, repaired: Option<Wall>) -> bool {
    origin.begun <= made || origin.was_given || repaired.is_some_and(|repaired| repaired >= origin.begun)
}
