//! Ports on loopback: a wanted pair, or the next pair that is free.

use super::state::State;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

/// Distance between two candidates. All stay below 32,768, where Linux starts to hand out ports to
/// outgoing connections: a stopped server must find its port again.
const STEP: u16 = 100;
const CANDIDATES_MAX: u16 = 100;

/// The ports of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    /// Where clients connect.
    pub(crate) client: u16,
    /// Kafka's controller, Cassandra's storage port; always the one after `client`.
    pub(crate) inner: u16,
}

impl Ports {
    /// The pair that begins at a client port.
    pub(crate) fn at(client: u16) -> Result<Ports> {
        let inner = client.checked_add(1).context("port 65535 leaves no room for the second port")?;
        Ok(Ports { client, inner })
    }

    /// The first of this pair that something else listens on.
    pub(crate) fn taken(self) -> Option<u16> {
        [self.client, self.inner]
            .into_iter()
            .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_err())
    }

    /// The pair at `default`, or the next one that is neither in use nor kept by another run.
    pub(crate) fn pick(default: u16, kept: &BTreeSet<u16>) -> Result<Ports> {
        for candidate in 0..CANDIDATES_MAX {
            let ports = Ports::at(default + candidate * STEP)?;
            if ports.taken().is_none() && !kept.contains(&ports.client) {
                return Ok(ports);
            }
        }
        bail!(
            "no free port among {CANDIDATES_MAX} candidates from {default} on, every {STEP}: give one with --kafka-port or --cassandra-port"
        )
    }
}

/// The client ports that other runs keep, running or not.
pub(crate) fn kept<'a>(states: impl Iterator<Item = &'a State>) -> BTreeSet<u16> {
    states.flat_map(|state| [state.kafka.ports.client, state.cassandra.ports.client]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_or_kept_is_passed_over() {
        let first = Ports::pick(21_007, &BTreeSet::new()).unwrap();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, first.inner)).unwrap();
        assert_eq!(first.taken(), Some(first.inner));
        let second = Ports::pick(21_007, &BTreeSet::new()).unwrap();
        assert_ne!(first.client, second.client);
        let third = Ports::pick(21_007, &BTreeSet::from([second.client])).unwrap();
        assert!(third.client > second.client);
    }
}
