//! The pods that controllers would make. None runs here, so each is made from its template and shown to the API server's
//! admission: a Deployment that no pod comes of is taken without a word.

use super::apply::name;
use serde_json::{Value, json};

/// Objects that make pods.
pub(super) fn workloads(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects.iter().filter(|one| matches!(one["kind"].as_str(), Some("Deployment" | "StatefulSet" | "Job")))
}

/// A pod of each object that makes some.
pub(super) fn bare(objects: &[Value]) -> Vec<Value> {
    workloads(objects).map(of).collect()
}

/// A pod of this object.
pub(super) fn of(workload: &Value) -> Value {
    let template = &workload["spec"]["template"];
    let name = format!("{}-pod", workload["metadata"]["name"].as_str().unwrap_or_default());
    let mut spec = template["spec"].clone();
    let claimed = claimed(workload, &name);
    if !claimed.is_empty() {
        let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        volumes.extend(claimed);
        spec["volumes"] = Value::Array(volumes);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {
            "name": name, "namespace": workload["metadata"]["namespace"], "labels": template["metadata"]["labels"],
        },
    })
}

/// The volumes that a StatefulSet gives each of its pods.
fn claimed(workload: &Value, pod: &str) -> Vec<Value> {
    let templates = workload["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
    let names = templates.filter_map(|template| template["metadata"]["name"].as_str());
    let volume =
        |name| json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-{pod}")}});
    names.map(volume).collect()
}

/// What the restricted level does not ask for and these manifests do.
pub(super) fn faults(objects: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    for workload in workloads(objects) {
        let spec = &workload["spec"]["template"]["spec"];
        let mut fault = |text: &str| faults.push(format!("{}: {text}", name(workload)));
        if spec["automountServiceAccountToken"] != false {
            fault("mounts a token of its service account");
        }
        for container in spec["containers"].as_array().into_iter().flatten() {
            if container["securityContext"]["readOnlyRootFilesystem"] != true {
                fault("has a root file system that can be written");
            }
            if container["resources"]["requests"]["memory"].is_null()
                || container["resources"]["limits"]["memory"].is_null()
            {
                fault("has no request or limit of memory");
            }
            let probes = ["startupProbe", "readinessProbe", "livenessProbe"];
            if workload["kind"] != "Job" && probes.iter().any(|probe| container[probe].is_null()) {
                fault("lacks a probe");
            }
        }
    }
    let enforced = "pod-security.kubernetes.io/enforce";
    for namespace in objects.iter().filter(|one| one["kind"] == "Namespace") {
        if namespace["metadata"]["labels"][enforced] != "restricted" {
            faults.push(format!("{}: does not enforce the restricted level", name(namespace)));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_what_its_template_says() {
        let job = json!({"kind": "Job", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"template": {"metadata": {"labels": {"l": "1"}}, "spec": {"containers": []}}}});
        let pod = of(&job);
        assert_eq!(pod["metadata"], json!({"name": "a-pod", "namespace": "n", "labels": {"l": "1"}}));
        assert_eq!(pod["spec"], json!({"containers": []}));
    }

    #[test]
    fn a_pod_of_a_stateful_set_has_the_volumes_that_it_claims() {
        let set = json!({"kind": "StatefulSet", "metadata": {"name": "a"}, "spec": {
            "template": {"spec": {"volumes": [{"name": "config"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}});
        let claimed = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-a-pod"}});
        assert_eq!(of(&set)["spec"]["volumes"], json!([{"name": "config"}, claimed]));
    }
}
