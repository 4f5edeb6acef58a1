//! Pods as the API server tells of them.

use crate::k8s::cluster::plan::NODES;
use serde_json::Value;
use std::collections::BTreeMap;

/// A pod of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    /// Of its Deployment.
    pub(super) zone: String,
    /// Where it is, once it has a place.
    pub(super) node: String,
    pub(super) ip: String,
    pub(super) ready: bool,
    pub(super) started: bool,
    pub(super) leaves: bool,
    pub(super) restarts: u64,
}

impl Pod {
    /// Whether it may be asked, and stays.
    pub(super) fn serves(&self) -> bool {
        self.ready && !self.leaves
    }
}

/// Those of instances, of a list.
pub(super) fn instances(list: &Value) -> Vec<Pod> {
    let of_instance = |pod: &&Value| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "instance";
    list["items"].as_array().into_iter().flatten().filter(of_instance).map(pod).collect()
}

fn pod(pod: &Value) -> Pod {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = &pod["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    let container = &status["containerStatuses"][0];
    Pod {
        name: text(&pod["metadata"]["name"]),
        zone: text(&pod["metadata"]["labels"]["dueline-group"]),
        node: text(&pod["spec"]["nodeName"]),
        ip: text(&status["podIP"]),
        ready: conditions.into_iter().any(is_ready),
        started: container["started"] == true,
        leaves: !pod["metadata"]["deletionTimestamp"].is_null(),
        restarts: container["restartCount"].as_u64().unwrap_or_default(),
    }
}

/// What is wrong with where pods are: each node has so many, of the Deployment of its zone.
pub(super) fn misplaced(pods: &[Pod], each: usize) -> Vec<String> {
    let mut faults = Vec::new();
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.leaves) {
        *count.entry(&pod.node).or_default() += 1;
        let fits = NODES.into_iter().any(|node| node.name() == pod.node && node.zone() == pod.zone);
        if !fits {
            faults.push(format!("{} of {} is on {:?}", pod.name, pod.zone, pod.node));
        }
    }
    for node in NODES {
        let found = count.get(node.name().as_str()).copied().unwrap_or_default();
        if found != each {
            faults.push(format!("{} has {found} pods, not {each}", node.name()));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn listed(node: &str, zone: &str) -> Value {
        json!({
            "metadata": {"name": "p", "labels": {"app.kubernetes.io/component": "instance", "dueline-group": zone}},
            "spec": {"nodeName": node},
            "status": {
                "podIP": "10.78.1.2", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"started": true, "restartCount": 2}],
            },
        })
    }

    #[test]
    fn a_pod_is_read_and_others_are_left_out() {
        let job = json!({"metadata": {"labels": {"app.kubernetes.io/component": "setup"}}});
        let found = instances(&json!({"items": [listed("node-a", "zone-a"), job]}));
        assert_eq!(found.len(), 1);
        assert!(found[0].serves() && found[0].started);
        assert_eq!((found[0].restarts, found[0].ip.as_str()), (2, "10.78.1.2"));
        let mut leaving = listed("node-a", "zone-a");
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(!instances(&json!({"items": [leaving]}))[0].serves());
    }

    #[test]
    fn pods_of_each_zone_are_on_its_node() {
        let of = |places: &[(&str, &str)]| -> Vec<Pod> {
            places.iter().map(|(node, zone)| pod(&listed(node, zone))).collect()
        };
        let good = of(&[("node-a", "zone-a"), ("node-b", "zone-b"), ("node-c", "zone-c")]);
        assert!(misplaced(&good, 1).is_empty());
        assert_eq!(misplaced(&good[..2], 1), ["node-c has 0 pods, not 1"]);
        let bad = of(&[("node-a", "zone-a"), ("node-a", "zone-b"), ("node-c", "zone-c")]);
        assert_eq!(misplaced(&bad, 1).len(), 3, "a wrong place, one too many, one too few");
    }
}
