//! The resource definitions of the operators whose objects deploy/k8s has, out of their published packages. Nothing of them is
//! in this repository; checksums are.
//!
//! What cannot be had (no way to it, no program for it) is said loudly, and its objects are left out and counted.

use super::api::Api;
use super::kubectl::Run;
use super::programs::{go, short};
use crate::servers::jars;
use crate::servers::state::{self, Cache};
use crate::{packages, say};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An operator.
#[derive(Debug)]
struct Operator {
    name: &'static str,
    /// The kinds that deploy/k8s uses, and the names of their definitions.
    kinds: &'static [(&'static str, &'static str)],
    from: From,
}

#[derive(Debug)]
enum From {
    Module(Module),
    /// Made from the classes of Strimzi, by a program that needs this Java at least.
    Strimzi {
        java_major_min: u32,
    },
    Nowhere {
        why: &'static str,
    },
}

/// A published Go module.
#[derive(Debug)]
struct Module {
    path: &'static str,
    version: &'static str,
    /// As `go mod download` tells it.
    sum: &'static str,
    /// A folder inside, with a kustomization or with a file for each definition.
    dir: &'static str,
    kustomized: bool,
}

const OPERATORS: [Operator; 6] = [
    Operator {
        name: "strimzi",
        kinds: &[
            ("Kafka", "kafkas.kafka.strimzi.io"),
            ("KafkaNodePool", "kafkanodepools.kafka.strimzi.io"),
            ("KafkaTopic", "kafkatopics.kafka.strimzi.io"),
            ("KafkaUser", "kafkausers.kafka.strimzi.io"),
        ],
        from: From::Strimzi { java_major_min: 21 },
    },
    Operator {
        name: "cass-operator",
        kinds: &[("CassandraDatacenter", "cassandradatacenters.cassandra.datastax.com")],
        from: From::Module(Module {
            path: "github.com/k8ssandra/cass-operator",
            version: "v1.22.4",
            sum: "h1:kcVVSvm6H50j+ZyOCBlYEfwaoxd755NjSQSBt3SfIpg=",
            dir: "config/crd",
            kustomized: true,
        }),
    },
    Operator {
        name: "k8ssandra-operator",
        kinds: &[("K8ssandraCluster", "k8ssandraclusters.k8ssandra.io")],
        from: From::Module(Module {
            path: "github.com/k8ssandra/k8ssandra-operator",
            version: "v1.20.0",
            sum: "h1:Czi3Xe8K5ZdJantkYnf3PJJc7ul30ANMFy10wdglzCY=",
            dir: "config/crd",
            kustomized: true,
        }),
    },
    Operator {
        name: "keda",
        kinds: &[("ScaledObject", "scaledobjects.keda.sh")],
        from: From::Module(Module {
            path: "github.com/kedacore/keda/v2",
            version: "v2.21.0",
            sum: "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
            dir: "config/crd",
            kustomized: true,
        }),
    },
    Operator {
        name: "prometheus-operator",
        kinds: &[
            ("PodMonitor", "podmonitors.monitoring.coreos.com"),
            ("PrometheusRule", "prometheusrules.monitoring.coreos.com"),
        ],
        from: From::Module(Module {
            path: "github.com/prometheus-operator/prometheus-operator",
            version: "v0.85.0",
            sum: "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
            dir: "example/prometheus-operator-crd",
            kustomized: false,
        }),
    },
    Operator {
        name: "scylla-operator",
        kinds: &[("ScyllaCluster", "scyllaclusters.scylla.scylladb.com")],
        from: From::Nowhere { why: "no published package of its definitions is pinned" },
    },
];

/// The classes of Strimzi that its definitions are made from.
const STRIMZI_CLASSES: [&str; 4] = [
    "io.strimzi.api.kafka.model.kafka.Kafka",
    "io.strimzi.api.kafka.model.nodepool.KafkaNodePool",
    "io.strimzi.api.kafka.model.topic.KafkaTopic",
    "io.strimzi.api.kafka.model.user.KafkaUser",
];

/// What the API server was taught.
#[derive(Debug, Default)]
pub(super) struct Taught {
    /// Definitions it took.
    pub(super) definitions: usize,
    /// Definitions it did not take as they are.
    pub(super) faults: Vec<String>,
    /// Kinds that could not be had.
    pub(super) missing: BTreeSet<String>,
    /// Why, a line an operator.
    pub(super) skipped: Vec<String>,
}

/// Teaches the API server all kinds that can be had. The caller holds the cache of k8s.
pub(super) fn teach(cache: &Cache, api: &Api) -> Result<Taught> {
    let mut taught = Taught::default();
    let dir = cache.join(format!("k8s/crds-{}", short(&Sha256::digest(format!("{OPERATORS:?}")))));
    state::make_dir(&dir)?;
    for operator in &OPERATORS {
        let definitions = match definitions(cache, api, operator, &dir) {
            Ok(definitions) => definitions,
            Err(error) => {
                say::line(format_args!("SKIPPED: objects of {}: {error:#}", operator.name));
                taught.missing.extend(operator.kinds.iter().map(|(kind, _)| (*kind).to_owned()));
                taught.skipped.push(format!("objects of {}: {error:#}", operator.name));
                continue;
            }
        };
        let said = api.kubectl.apply(&definitions, Run::Real)?;
        taught.faults.extend(said.complaints);
        taught.definitions += said.objects.len();
        wait_served(api, &said.objects)?;
    }
    Ok(taught)
}

fn wait_served(api: &Api, definitions: &[Value]) -> Result<()> {
    let names: Vec<String> = definitions
        .iter()
        .filter_map(|one| Some(format!("crd/{}", one["metadata"]["name"].as_str()?)))
        .collect();
    api.kubectl.wait("condition=Established", &names)
}

/// The definitions of an operator as YAML, from the cache or fetched.
fn definitions(cache: &Cache, api: &Api, operator: &Operator, dir: &Path) -> Result<String> {
    let path = dir.join(format!("{}.yaml", operator.name));
    if let Ok(text) = fs::read_to_string(&path) {
        return Ok(text);
    }
    let all = match &operator.from {
        From::Nowhere { why } => bail!("{why}"),
        From::Module(module) => of_module(api, module)?,
        From::Strimzi { java_major_min } => of_strimzi(cache, *java_major_min)?,
    };
    let mut wanted = Vec::new();
    for (kind, name) in operator.kinds {
        let of_name = |document: &&str| document.lines().any(|line| line == format!("  name: {name}"));
        let found =
            documents(&all).find(of_name).with_context(|| format!("no definition of {kind} in it"))?;
        wanted.push(found.to_owned());
    }
    let text = wanted.join("\n---\n");
    fs::write(&path, &text).with_context(|| format!("writing {}", path.display()))?;
    Ok(text)
}

/// The documents of a YAML text.
pub(super) fn documents(yaml: &str) -> impl Iterator<Item = &str> {
    yaml.split("\n---")
        .map(|document| document.trim_start_matches("---").trim())
        .filter(|one| !one.is_empty())
}

fn of_module(api: &Api, module: &Module) -> Result<String> {
    let dir = download(module)?.join(module.dir);
    if module.kustomized {
        return api.kubectl.kustomize(&dir);
    }
    let mut texts = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))? {
        let path = entry.with_context(|| format!("listing {}", dir.display()))?.path();
        texts.push(fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    Ok(texts.join("\n---\n"))
}

/// The folder of a module, which is what its checksum says.
fn download(module: &Module) -> Result<PathBuf> {
    let wanted = format!("{}@{}", module.path, module.version);
    let output = Command::new(go()?)
        .args(["mod", "download", "-json", &wanted])
        .current_dir(std::env::temp_dir())
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .output()
        .context("running go")?;
    let told: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("go says: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    if let Some(error) = told["Error"].as_str() {
        bail!("{wanted} cannot be had: {}", error.lines().next().unwrap_or_default());
    }
    if told["Sum"] != module.sum {
        bail!("{wanted} has the checksum {}, not {}", told["Sum"], module.sum);
    }
    told["Dir"].as_str().map(PathBuf::from).context("go names no folder")
}

fn of_strimzi(cache: &Cache, java_major_min: u32) -> Result<String> {
    let java = packages::java_from(java_major_min)
        .with_context(|| format!("its program needs Java {java_major_min} or newer, and there is none"))?;
    packages::require(packages::MAVEN)?;
    let jars = {
        let _held = cache.lock()?;
        jars::ensure(cache, &jars::STRIMZI)?
    };
    let scratch = cache.join("k8s/run/strimzi");
    state::make_dir(&scratch)?;
    let files: Vec<PathBuf> = (0..STRIMZI_CLASSES.len()).map(|n| scratch.join(format!("{n}.yaml"))).collect();
    let output = Command::new(java)
        .arg("-cp")
        .arg(format!("{}/*", jars.display()))
        .args(["io.strimzi.crdgenerator.CrdGenerator", "--yaml"])
        .args(STRIMZI_CLASSES.iter().zip(&files).map(|(class, file)| format!("{class}={}", file.display())))
        .stdin(Stdio::null())
        .output()
        .context("running java")?;
    if !output.status.success() {
        bail!(
            "the generator ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let mut texts = Vec::new();
    for file in &files {
        texts.push(fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?);
    }
    Ok(texts.join("\n---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_cut_at_their_marks_only() {
        let text = "---\na: 1\n---\nb: |\n  ---\n  2\n";
        assert_eq!(documents(text).collect::<Vec<_>>(), ["a: 1", "b: |\n  ---\n  2"]);
    }
}
