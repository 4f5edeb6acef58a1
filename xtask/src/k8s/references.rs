//! Names that the API server takes unseen: of ConfigMaps and their keys, ports of probes and services, labels that select
//! pods. A wrong one shows when a pod does not start, or never.

use super::apply::name;
use super::pods::workloads;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Names that refer to nothing within a namespace's objects.
pub(super) fn faults(objects: &[Value]) -> Vec<String> {
    let maps: BTreeMap<&str, &Value> =
        of_kind(objects, "ConfigMap").map(|one| (own_name(one), &one["data"])).collect();
    let accounts: BTreeSet<&str> = of_kind(objects, "ServiceAccount").map(own_name).collect();
    let mut faults = Vec::new();
    for workload in workloads(objects) {
        let spec = &workload["spec"]["template"]["spec"];
        let mut wrong = config_maps(spec, &maps);
        wrong.extend(probes(spec));
        if !spec["serviceAccountName"].as_str().is_some_and(|account| accounts.contains(account)) {
            wrong.push(format!("there is no service account {}", spec["serviceAccountName"]));
        }
        faults.extend(wrong.into_iter().map(|text| format!("{}: {text}", name(workload))));
    }
    faults.extend(selectors(objects));
    faults.extend(scaled(objects));
    faults
}

fn of_kind<'a>(objects: &'a [Value], kind: &'static str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |one| one["kind"] == kind)
}

fn own_name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn config_maps(spec: &Value, maps: &BTreeMap<&str, &Value>) -> Vec<String> {
    let mut asked: Vec<(&Value, Option<&Value>)> = Vec::new();
    for container in list(spec, "containers") {
        asked.extend(list(container, "envFrom").map(|from| (&from["configMapRef"]["name"], None)));
        let refs = list(container, "env").map(|env| &env["valueFrom"]["configMapKeyRef"]);
        asked.extend(refs.map(|of| (&of["name"], Some(&of["key"]))));
    }
    asked.extend(list(spec, "volumes").map(|volume| (&volume["configMap"]["name"], None)));
    let mut faults = Vec::new();
    for (map, key) in
        asked.into_iter().filter_map(|(map, key)| Some((map.as_str()?, key.and_then(Value::as_str))))
    {
        match maps.get(map) {
            None => faults.push(format!("there is no ConfigMap {map}")),
            Some(data) => {
                let absent = key.filter(|key| data[key].is_null());
                faults.extend(absent.map(|key| format!("ConfigMap {map} has no key {key}")));
            }
        }
    }
    faults
}

fn probes(spec: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for container in list(spec, "containers") {
        let ports: BTreeSet<&str> =
            list(container, "ports").filter_map(|port| port["name"].as_str()).collect();
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            let asked = container[probe]["httpGet"]["port"].as_str();
            let absent = asked.filter(|port| !ports.contains(port));
            faults.extend(absent.map(|port| format!("{probe} asks port {port}, which no container has")));
        }
    }
    faults
}

/// Services, budgets and policies that no pod is meant by, and ports that those pods do not have.
fn selectors(objects: &[Value]) -> Vec<String> {
    let templates: Vec<&Value> = workloads(objects).map(|one| &one["spec"]["template"]).collect();
    let meant = |selector: &Value| -> Vec<&Value> {
        let wanted = selector.as_object();
        let fits = |labels: &Value| {
            wanted.is_none_or(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
        };
        templates.iter().copied().filter(|template| fits(&template["metadata"]["labels"])).collect()
    };
    let mut faults = Vec::new();
    for object in objects {
        let spec = &object["spec"];
        let (selector, ports): (&Value, Vec<&Value>) = match object["kind"].as_str() {
            Some("Service") => {
                (&spec["selector"], list(spec, "ports").map(|port| &port["targetPort"]).collect())
            }
            Some("PodDisruptionBudget") => (&spec["selector"]["matchLabels"], Vec::new()),
            Some("PodMonitor") => {
                let ports = list(spec, "podMetricsEndpoints").map(|endpoint| &endpoint["port"]);
                (&spec["selector"]["matchLabels"], ports.collect())
            }
            Some("NetworkPolicy") => {
                let ports =
                    list(spec, "ingress").flat_map(|rule| list(rule, "ports")).map(|port| &port["port"]);
                (&spec["podSelector"]["matchLabels"], ports.collect())
            }
            _ => continue,
        };
        let pods = meant(selector);
        if pods.is_empty() && !let_in(objects).any(|one| one == selector) {
            faults.push(format!("{}: no pod is meant", name(object)));
        }
        let has = |pod: &Value, port: &str| {
            list(&pod["spec"], "containers").flat_map(|one| list(one, "ports")).any(|one| one["name"] == port)
        };
        let wanted = ports.into_iter().filter_map(Value::as_str);
        let absent = wanted.filter(|port| pods.iter().any(|pod| !has(pod, port)));
        faults.extend(absent.map(|port| format!("{}: a pod it means has no port {port}", name(object))));
    }
    faults
}

/// Pods of others, by their labels, that a policy lets in: policies may be about them, though they are not here.
fn let_in(objects: &[Value]) -> impl Iterator<Item = &Value> {
    let rules = of_kind(objects, "NetworkPolicy").flat_map(|policy| list(&policy["spec"], "ingress"));
    rules.flat_map(|rule| list(rule, "from")).map(|from| &from["podSelector"]["matchLabels"])
}

/// Scalers of nothing.
fn scaled(objects: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    for scaler in of_kind(objects, "ScaledObject") {
        let target = &scaler["spec"]["scaleTargetRef"];
        let same = |one: &&Value| one["kind"] == target["kind"] && one["metadata"]["name"] == target["name"];
        if !workloads(objects).any(|one| same(&one)) {
            faults.push(format!("{}: there is no {} {}", name(scaler), target["kind"], target["name"]));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(change: impl Fn(&mut Vec<Value>), fault: Option<&str>) {
        let mut objects = vec![
            json!({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}),
            json!({"kind": "ServiceAccount", "metadata": {"name": "a"}}),
            json!({"kind": "Service", "metadata": {"name": "s"},
                "spec": {"selector": {"l": "1"}, "ports": [{"targetPort": "http"}]}}),
            json!({"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": {
                "metadata": {"labels": {"l": "1", "x": "2"}},
                "spec": {"serviceAccountName": "a", "volumes": [{"configMap": {"name": "m"}}], "containers": [{
                    "ports": [{"name": "http"}], "livenessProbe": {"httpGet": {"port": "http"}},
                    "env": [{"valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}]}}}}),
        ];
        change(&mut objects);
        let found = faults(&objects);
        assert_eq!(found.first().map(String::as_str), fault, "{found:?}");
    }

    #[test]
    fn what_refers_to_nothing_is_found() {
        check(|_| {}, None);
        check(|all| all[0]["data"] = json!({}), Some("Deployment /d: ConfigMap m has no key k"));
        check(|all| all[0]["metadata"]["name"] = json!("n"), Some("Deployment /d: there is no ConfigMap m"));
        check(
            |all| all[1]["metadata"]["name"] = json!("b"),
            Some("Deployment /d: there is no service account \"a\""),
        );
        check(|all| all[2]["spec"]["selector"]["l"] = json!("2"), Some("Service /s: no pod is meant"));
        let policy = |labels: Value| {
            let from = json!([{"podSelector": {"matchLabels": {"client": "1"}}}]);
            json!({"kind": "NetworkPolicy", "metadata": {"name": "p"},
                "spec": {"podSelector": {"matchLabels": labels}, "ingress": [{"from": from}]}})
        };
        let own = json!({"l": "1"});
        check(|all| all.extend([policy(own.clone()), policy(json!({"client": "1"}))]), None);
        let nobody = Some("NetworkPolicy /p: no pod is meant");
        check(|all| all.extend([policy(own.clone()), policy(json!({"client": "2"}))]), nobody);
        let port = Some("Service /s: a pod it means has no port web");
        check(|all| all[2]["spec"]["ports"][0]["targetPort"] = json!("web"), port);
        let probe = Some("Deployment /d: livenessProbe asks port web, which no container has");
        let of = "/spec/template/spec/containers/0/livenessProbe/httpGet/port";
        check(|all| *all[3].pointer_mut(of).unwrap() = json!("web"), probe);
    }
}
