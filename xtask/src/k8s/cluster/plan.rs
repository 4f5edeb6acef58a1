//! What the cluster is made of: nodes, each a zone, and addresses that nobody else here has.
//!
//! ```text
//! dueline-0  10.78.0.1        etcd, API server, and what is outside of Kubernetes: Kafka, Cassandra, handlers
//! dueline-a  10.78.1.1 /24    node-a in zone-a, the gateway of its pods
//! dueline-b  10.78.2.1 /24    …
//! ```

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The interface of what all nodes share.
pub(in crate::k8s) const SHARED_DEVICE: &str = "dueline-0";
/// Its address.
pub(in crate::k8s) const SHARED: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// Everything here; no proxy is asked for it.
pub(in crate::k8s) const EVERYWHERE: &str = "10.78.0.0/16";
/// Services, which nothing here routes.
pub(in crate::k8s) const SERVICES: &str = "10.96.0.0/16";
pub(in crate::k8s) const API_PORT: u16 = 6_443;
pub(in crate::k8s) const ETCD_PORTS: (u16, u16) = (2_379, 2_380);
pub(in crate::k8s) const KUBELET_PORT: u16 = 10_250;
pub(in crate::k8s) const KUBELET_HEALTH_PORT: u16 = 10_248;
/// The image that holds the namespaces of a pod.
pub(in crate::k8s) const PAUSE_IMAGE: &str = "docker.io/dueline/pause:1";

/// A node, the only one of its zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::k8s) struct Node {
    letter: char,
    number: u8,
}

/// All nodes.
pub(in crate::k8s) const NODES: [Node; 3] =
    [Node { letter: 'a', number: 1 }, Node { letter: 'b', number: 2 }, Node { letter: 'c', number: 3 }];

impl Node {
    /// Its name in Kubernetes.
    pub(in crate::k8s) fn name(self) -> String {
        format!("node-{}", self.letter)
    }

    /// Where it says that it is.
    pub(in crate::k8s) fn zone(self) -> String {
        format!("zone-{}", self.letter)
    }

    /// The bridge of its pods.
    pub(in crate::k8s) fn bridge(self) -> String {
        format!("dueline-{}", self.letter)
    }

    /// Its own address, by which its pods leave.
    pub(in crate::k8s) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, self.number, 1)
    }

    /// The addresses of its pods.
    pub(in crate::k8s) fn subnet(self) -> String {
        format!("10.78.{}.0/24", self.number)
    }

    /// Its folder in that of the cluster.
    pub(in crate::k8s) fn dir(self, cluster: &Path) -> PathBuf {
        cluster.join(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_address_in_its_subnet_and_names_that_fit() {
        for node in NODES {
            let subnet = node.subnet();
            let start = subnet.strip_suffix("0/24").unwrap();
            assert!(node.address().to_string().starts_with(start));
            // Linux takes no longer name of an interface.
            assert!(node.bridge().len() <= 15);
            assert_ne!(node.bridge(), SHARED_DEVICE);
        }
    }
}
