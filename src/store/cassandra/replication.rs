//! How the keyspace is replicated, for the check at start and for `doctor`. Reads what the driver knows, changes nothing.

use std::collections::BTreeMap;

use scylla::client::session::Session;
use scylla::cluster::metadata::Strategy;

use crate::store::Error;

/// Replication of the keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// The strategy's name.
    pub strategy: String,
    /// Replication factor of each data centre; empty for other strategies.
    pub factors: BTreeMap<String, u32>,
    /// Nodes of each data centre.
    pub nodes: BTreeMap<String, u32>,
}

impl Replication {
    /// Copies of a row that make a quorum.
    pub fn quorum(&self) -> usize {
        self.factors.values().map(|factor| *factor as usize).sum::<usize>() / 2 + 1
    }
}

/// The only strategy that is taken.
pub(super) const STRATEGY: &str = "NetworkTopologyStrategy";

/// Reads it from the driver's metadata.
///
/// # Errors
/// [`Error::Misconfigured`] when there is no such keyspace.
pub(super) fn read(session: &Session, keyspace: &str) -> Result<Replication, Error> {
    let state = session.get_cluster_state();
    let Some(found) = state.get_keyspace(keyspace) else {
        return Err(Error::Misconfigured(format!(
            "there is no keyspace {keyspace}: run `dueline migrate up`"
        )));
    };
    let mut nodes = BTreeMap::new();
    for node in state.get_nodes_info() {
        *nodes.entry(node.datacenter.clone().unwrap_or_default()).or_insert(0) += 1;
    }
    let (strategy, factors) = match &found.strategy {
        Strategy::NetworkTopologyStrategy { datacenter_repfactors } => {
            let factors = datacenter_repfactors.iter().map(|(dc, factor)| (dc.clone(), *factor as u32));
            (STRATEGY.to_owned(), factors.collect())
        }
        Strategy::SimpleStrategy { .. } => ("SimpleStrategy".to_owned(), BTreeMap::new()),
        Strategy::Other { name, .. } => (name.clone(), BTreeMap::new()),
        other => (format!("{other:?}"), BTreeMap::new()),
    };
    Ok(Replication { strategy, factors, nodes })
}

/// Refuses what cannot keep the promises.
///
/// # Errors
/// [`Error::Misconfigured`] for another strategy, or one that keeps no copy anywhere.
pub(crate) fn check(found: &Replication) -> Result<(), Error> {
    if found.strategy != STRATEGY {
        return Err(Error::Misconfigured(format!(
            "the keyspace is replicated by {}; {STRATEGY} is needed",
            found.strategy
        )));
    }
    if found.factors.values().all(|factor| *factor == 0) {
        return Err(Error::Misconfigured("the keyspace is replicated to no data centre".into()));
    }
    if let Some(dc) = found.factors.keys().find(|dc| !found.nodes.contains_key(*dc)) {
        tracing::warn!(dc = %dc, "the keyspace is replicated to a data centre without nodes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_strategy_is_refused() {
        let good = Replication {
            strategy: STRATEGY.to_owned(),
            factors: BTreeMap::from([("dc1".to_owned(), 3)]),
            nodes: BTreeMap::from([("dc1".to_owned(), 3)]),
        };
        assert!(check(&good).is_ok());
        let simple = Replication { strategy: "SimpleStrategy".into(), ..good.clone() };
        assert!(check(&simple).expect_err("refused").to_string().contains("SimpleStrategy"));
        assert!(check(&Replication { factors: BTreeMap::new(), ..good }).is_err());
    }
}
