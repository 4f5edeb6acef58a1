//! `overlays/three-zones` as an installation here would use it: a folder of its own upon a copy of deploy/k8s.
//!
//! What is different from the product's is here and nowhere else: addresses (`place.env`, as the README has one change
//! them), one copy of everything as there is one broker and one node, a handler and the way to it, one instance a zone
//! where there are two, and the processors they ask for, as all three nodes are the same two.

use super::backing::{CASSANDRA_DC, CASSANDRA_PORT, KAFKA_PORT};
use super::sink;
use crate::k8s::cluster::plan::{NODES, SHARED};
use crate::servers::state;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const NAMESPACE: &str = "dueline";
pub(super) const SHARDS: u32 = 12;
/// The handler's name.
pub(super) const HANDLER: &str = "sink";
const OVERLAY: &str = "overlays/three-zones";
/// What is told of the differences.
pub(super) const DIFFERENCES: &str =
    "addresses, dueline.toml (12 shards, one copy, the handler), 1 instance a zone, 100m CPU";

/// The base's configuration: what is replaced in it.
fn configuration() -> [(&'static str, String); 3] {
    [
        ("partitions = 64", format!("partitions = {SHARDS}")),
        ("replication_factor = 3", "replication_factor = 1".to_owned()),
        ("min_insync_replicas = 2", "min_insync_replicas = 1".to_owned()),
    ]
}

/// Values of `place.env` that are replaced where they are.
fn places() -> [(&'static str, String); 5] {
    [
        ("DUELINE_KAFKA_BROKERS", format!("{SHARED}:{KAFKA_PORT}")),
        ("DUELINE_CASSANDRA_LOCAL_DC", CASSANDRA_DC.to_owned()),
        ("DUELINE_CASSANDRA_NODES", format!("{SHARED}:{CASSANDRA_PORT}")),
        ("DUELINE_CASSANDRA_REPLICATION", format!("{CASSANDRA_DC}=1")),
        ("DUELINE_CASSANDRA_REQUIRE_DC_LOSS_SURVIVAL", "false".to_owned()),
    ]
}

/// Writes it; the folder to render, and the one with the namespace.
pub(super) fn write(dir: &Path) -> Result<PathBuf> {
    let (deploy, own) = (dir.join("deploy"), dir.join("installation"));
    state::remove_dir(dir)?;
    copy(&workspace::root()?.join("deploy/k8s"), &deploy)?;
    let setup = [deploy.join(OVERLAY).join("setup")];
    let zones = NODES.map(|node| deploy.join(OVERLAY).join(node.zone()));
    for place in setup.iter().chain(&zones).map(|dir| dir.join("place.env")) {
        let text = fs::read_to_string(&place).with_context(|| format!("reading {}", place.display()))?;
        write_file(&place, &placed(&text, &places()))?;
    }
    state::make_dir(&own)?;
    let base = deploy.join("base/common/dueline.toml");
    let text = fs::read_to_string(&base).with_context(|| format!("reading {}", base.display()))?;
    write_file(&own.join("dueline.toml"), &configured(&text)?)?;
    write_file(&own.join("handlers-egress.yaml"), &egress().to_string())?;
    write_file(&own.join("kustomization.yaml"), &kustomization().to_string())?;
    Ok(own)
}

/// The namespace alone, so that Secrets can be there before pods.
pub(super) fn namespace(dir: &Path) -> Result<String> {
    let path = dir.join("deploy/base/common/namespace.yaml");
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

fn kustomization() -> serde_json::Value {
    let replicas = NODES.map(|node| json!({"name": format!("dueline-{}", node.zone()), "count": 1}));
    let cpu = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "100m"}]);
    json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": NAMESPACE,
        "resources": [format!("../deploy/{OVERLAY}"), "handlers-egress.yaml"],
        "configMapGenerator": [{"name": "dueline-config", "behavior": "replace", "files": ["dueline.toml"]}],
        "replicas": replicas,
        "patches": [{"target": {"kind": "Deployment"}, "patch": cpu.to_string()}],
    })
}

/// The way to the handler, which no CNI here enforces.
fn egress() -> serde_json::Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "handlers"},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/component": "instance"}},
            "policyTypes": ["Egress"],
            "egress": [{
                "to": [{"ipBlock": {"cidr": format!("{SHARED}/32")}}],
                "ports": [{"port": sink::PORT, "protocol": "TCP"}],
            }],
        },
    })
}

/// The text with other values of keys that it has.
fn placed(text: &str, values: &[(&str, String)]) -> String {
    let line = |line: &str| match values
        .iter()
        .find(|(key, _)| line.split_once('=').is_some_and(|(of, _)| of == *key))
    {
        Some((key, value)) => format!("{key}={value}\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn configured(text: &str) -> Result<String> {
    let mut text = text.to_owned();
    for (old, new) in configuration() {
        ensure!(text.contains(old), "deploy/k8s/base/common/dueline.toml has no `{old}` any more");
        text = text.replace(old, &new);
    }
    let url = sink::url();
    Ok(format!("{text}\n[[handler]]\nname = \"{HANDLER}\"\nkind = \"http\"\nurl = \"{url}\"\n"))
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    state::make_dir(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy(&path, &to)?,
            false => fs::copy(&path, &to).map(drop).with_context(|| format!("copying {}", path.display()))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_of_known_keys_change() {
        let text = "# a\nDUELINE_KAFKA_BROKERS=x:1\nDUELINE_INSTANCE_DC=dc-a\n";
        let values = [("DUELINE_KAFKA_BROKERS", "y:2".to_owned())];
        assert_eq!(placed(text, &values), "# a\nDUELINE_KAFKA_BROKERS=y:2\nDUELINE_INSTANCE_DC=dc-a\n");
    }

    #[test]
    fn each_place_of_the_overlay_has_its_addresses_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let own = write(&dir.path().join("made")).unwrap();
        let overlay = own.join("../deploy").join(OVERLAY);
        for place in ["setup", "zone-a", "zone-b", "zone-c"] {
            let text = fs::read_to_string(overlay.join(place).join("place.env")).unwrap();
            assert!(!text.contains(".svc"), "{place}: {text}");
            assert!(
                text.contains(&format!("DUELINE_KAFKA_BROKERS={SHARED}:{KAFKA_PORT}\n")),
                "{place}: {text}"
            );
        }
        let toml = fs::read_to_string(own.join("dueline.toml")).unwrap();
        assert!(toml.contains("partitions = 12 "), "{toml}");
        assert!(toml.contains(&format!("name = \"{HANDLER}\"")), "{toml}");
    }
}
