//! What the manifests ask of whoever runs the image, read from them.

use crate::workspace;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs;

const DEPLOYMENT: &str = "deploy/k8s/base/instances/deployment.yaml";

#[derive(Debug, Deserialize)]
struct Deployment {
    spec: DeploymentSpec,
}

#[derive(Debug, Deserialize)]
struct DeploymentSpec {
    template: Template,
}

#[derive(Debug, Deserialize)]
struct Template {
    spec: Pod,
}

/// A pod of an instance.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pod {
    pub(super) security_context: PodSecurity,
    containers: Vec<Container>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSecurity {
    pub(super) run_as_user: u32,
    pub(super) run_as_group: u32,
    pub(super) fs_group: u32,
    seccomp_profile: SeccompProfile,
}

#[derive(Debug, Deserialize)]
struct SeccompProfile {
    r#type: String,
}

/// The container of an instance.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    pub(super) args: Vec<String>,
    pub(super) liveness_probe: Probe,
    pub(super) readiness_probe: Probe,
    ports: Vec<Port>,
    resources: Resources,
    pub(super) security_context: ContainerSecurity,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Probe {
    pub(super) http_get: HttpGet,
}

#[derive(Debug, Deserialize)]
pub(super) struct HttpGet {
    pub(super) path: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    container_port: u16,
}

#[derive(Debug, Deserialize)]
struct Resources {
    limits: Limits,
}

#[derive(Debug, Deserialize)]
struct Limits {
    memory: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerSecurity {
    pub(super) allow_privilege_escalation: bool,
    pub(super) read_only_root_filesystem: bool,
    capabilities: Capabilities,
}

#[derive(Debug, Deserialize)]
struct Capabilities {
    #[serde(default)]
    add: Vec<String>,
    drop: Vec<String>,
}

impl Pod {
    /// That of the base's Deployment.
    pub(super) fn read() -> Result<Pod> {
        let text = fs::read_to_string(workspace::root()?.join(DEPLOYMENT));
        let text = text.with_context(|| format!("reading {DEPLOYMENT}"))?;
        let deployment: Deployment =
            serde_saphyr::from_str(&text).with_context(|| format!("reading {DEPLOYMENT}"))?;
        Ok(deployment.spec.template.spec)
    }

    /// Its one container.
    pub(super) fn container(&self) -> Result<&Container> {
        self.containers.first().with_context(|| format!("{DEPLOYMENT} has no container"))
    }

    /// Whether it asks for the filter of system calls that runtimes have.
    pub(super) fn has_default_seccomp(&self) -> bool {
        self.security_context.seccomp_profile.r#type == "RuntimeDefault"
    }
}

impl Container {
    /// Whether no capability is left.
    pub(super) fn has_no_capability(&self) -> bool {
        let Capabilities { add, drop } = &self.security_context.capabilities;
        add.is_empty() && drop.iter().any(|one| one == "ALL")
    }

    /// The most memory it may have, in bytes.
    pub(super) fn memory_bytes(&self) -> Result<u64> {
        let memory = &self.resources.limits.memory;
        let units = [("Gi", 1 << 30), ("Mi", 1 << 20)];
        let found = units
            .iter()
            .find_map(|(unit, bytes)| Some(memory.strip_suffix(unit)?.parse::<u64>().ok()? * bytes));
        found.with_context(|| format!("{DEPLOYMENT}: a limit of memory in Gi or Mi, not {memory}"))
    }

    /// The ports that it names.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().map(|port| port.container_port)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GROUP, PORT, USER};
    use super::*;

    #[test]
    fn manifest_and_image_agree_on_user_port_and_command() {
        let pod = Pod::read().unwrap();
        let container = pod.container().unwrap();
        assert_eq!((pod.security_context.run_as_user, pod.security_context.run_as_group), (USER, GROUP));
        assert_eq!(container.ports().collect::<Vec<_>>(), [PORT]);
        assert_eq!(container.args, ["serve"]);
    }

    #[test]
    fn manifest_gives_no_rights() {
        let pod = Pod::read().unwrap();
        let container = pod.container().unwrap();
        assert!(pod.has_default_seccomp() && container.has_no_capability());
        assert!(container.security_context.read_only_root_filesystem);
        assert!(!container.security_context.allow_privilege_escalation);
        assert_eq!(container.memory_bytes().unwrap(), 2 << 30);
    }
}
