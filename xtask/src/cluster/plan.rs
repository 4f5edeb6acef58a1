//! What the cluster is made of: places, servers and addresses.

use std::net::{Ipv4Addr, SocketAddr};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Where something can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// Outside of all data centres.
    Home,
    Dc1,
    Dc2,
    Dc3,
}

/// What is in a data centre: brokers, nodes.
const KINDS: [&str; 2] = ["kafka", "cassandra"];
const BROKERS_PER_DC: u8 = 2;
/// One less in the third: five copies, two of which any data centre takes with it at most.
const NODES: [u8; 3] = [2, 2, 1];
/// The last byte of addresses begins after this.
const NODE_HOSTS: u8 = 10;
/// For instances of the product and for handlers.
const FREE_HOSTS: [u8; 4] = [21, 22, 23, 31];

pub(super) const KAFKA_PORT: u16 = 9_092;
pub(super) const CASSANDRA_PORT: u16 = 9_042;

impl Place {
    pub(crate) const ALL: [Place; 4] = [Place::Home, Place::Dc1, Place::Dc2, Place::Dc3];
    pub(super) const DCS: [Place; 3] = [Place::Dc1, Place::Dc2, Place::Dc3];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Place::Home => "home",
            Place::Dc1 => "dc1",
            Place::Dc2 => "dc2",
            Place::Dc3 => "dc3",
        }
    }

    /// The third byte of its addresses.
    pub(super) fn number(self) -> u8 {
        self as u8
    }

    /// The place that a packet goes to.
    pub(super) fn of_address(address: [u8; 4]) -> Option<Place> {
        let [10, 77, place, _] = address else { return None };
        Place::ALL.get(usize::from(place)).copied()
    }

    fn address(self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number(), host)
    }
}

/// Who is where: a server's kind, number, place, and the last byte of its address.
struct Server {
    kind: &'static str,
    number: u8,
    place: Place,
    host: u8,
}

fn servers() -> Vec<Server> {
    let mut all = Vec::new();
    for (kind, first_host) in KINDS.into_iter().zip([0, NODE_HOSTS]) {
        let mut number = 0;
        for (place, nodes) in Place::DCS.into_iter().zip(NODES) {
            let count = if kind == "kafka" { BROKERS_PER_DC } else { nodes };
            for host in 1..=count {
                number += 1;
                all.push(Server { kind, number, place, host: first_host + host });
            }
        }
    }
    all
}

fn server(name: &str) -> Option<Server> {
    servers().into_iter().find(|server| format!("{}-{}", server.kind, server.number) == name)
}

/// Names of all servers.
pub(super) fn names() -> Vec<String> {
    servers().iter().map(|server| format!("{}-{}", server.kind, server.number)).collect()
}

/// Where a server is.
pub(super) fn place(name: &str) -> Option<Place> {
    server(name).map(|server| server.place)
}

/// Where clients of a server come to.
pub(super) fn address(name: &str) -> SocketAddr {
    let port = if is_kafka(name) { KAFKA_PORT } else { CASSANDRA_PORT };
    let ip = server(name).map_or(Ipv4Addr::UNSPECIFIED, |server| server.place.address(server.host));
    (ip, port).into()
}

pub(super) fn is_kafka(name: &str) -> bool {
    name.starts_with("kafka")
}

/// The number in a server's name.
pub(super) fn number(name: &str) -> u32 {
    server(name).map_or(0, |server| u32::from(server.number))
}

/// Whether a server is the first of its kind in its data centre: a controller, a seed.
pub(super) fn is_first(name: &str) -> bool {
    server(name).is_some_and(|server| server.host % NODE_HOSTS == 1)
}

/// All addresses of a place.
pub(super) fn hosts(place: Place) -> Vec<Ipv4Addr> {
    if place == Place::Home {
        return vec![place.address(1)];
    }
    let of_servers = servers().into_iter().filter(|server| server.place == place).map(|server| server.host);
    of_servers.chain(FREE_HOSTS).map(|host| place.address(host)).collect()
}

/// Where clients begin: the first server of each data centre.
pub(super) struct Addresses {
    pub(super) kafka: String,
    pub(super) cassandra: String,
}

pub(super) fn addresses() -> Addresses {
    let of = |kind: &str| {
        let firsts = names().into_iter().filter(|name| name.starts_with(kind) && is_first(name));
        firsts.map(|name| address(&name).to_string()).collect::<Vec<_>>().join(",")
    };
    Addresses { kafka: of("kafka"), cassandra: of("cassandra") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_brokers_and_five_nodes_over_three_data_centres_with_addresses_of_their_own() {
        let names = names();
        assert_eq!(names.iter().filter(|name| is_kafka(name)).count(), 6);
        assert_eq!(names.len(), 11);
        let mut all: Vec<SocketAddr> = names.iter().map(|name| address(name)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 11);
        for place in Place::DCS {
            let firsts = names.iter().filter(|name| is_first(name) && super::place(name) == Some(place));
            assert_eq!(firsts.count(), 2, "a controller and a seed in {place:?}");
        }
    }

    #[test]
    fn no_data_centre_has_half_of_the_copies() {
        let nodes = NODES.iter().sum::<u8>();
        assert!(NODES.iter().all(|of| nodes - of > nodes / 2));
    }

    #[test]
    fn an_address_tells_its_place() {
        for place in Place::ALL {
            for host in hosts(place) {
                assert_eq!(Place::of_address(host.octets()), Some(place));
            }
        }
        assert_eq!(Place::of_address([10, 77, 4, 1]), None);
        assert_eq!(Place::of_address([127, 0, 0, 1]), None);
    }
}
