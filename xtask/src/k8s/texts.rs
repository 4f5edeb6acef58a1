//! What the files of deploy/ say of the rest of the repository: topics as planned, metrics that exist, paths that exist,
//! Secrets that the README tells how to make.

use super::configuration::Dueline;
use super::pods::workloads;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TOPICS: &str = "deploy/k8s/kafka/topics.yaml";
const TOPICS_CONFIG: &str = "deploy/k8s/base/common/dueline.toml";
const SCALER: &str = "deploy/k8s/components/keda/scaled-object.yaml";
const METRICS: &str = "docs/metrics.md";
const CONTAINERFILE: &str = "deploy/Containerfile";
const README: &str = "deploy/k8s/README.md";

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))
}

/// The topics for Strimzi are what Dueline plans, but for the comment.
pub(super) fn topics(root: &Path, dueline: &Dueline) -> Result<Vec<String>> {
    let planned = dueline
        .output(&["topics", "plan", "--as", "strimzi", "--cluster", "dueline"], &root.join(TOPICS_CONFIG))?;
    let written = read(root, TOPICS)?;
    let written: Vec<&str> = written.lines().filter(|line| !line.starts_with('#')).collect();
    Ok(match written == planned.lines().collect::<Vec<_>>() {
        true => Vec::new(),
        false => vec![format!("{TOPICS} is not what `dueline topics plan --as strimzi` writes")],
    })
}

/// Metrics that are scaled by and that nothing documents.
pub(super) fn metrics(root: &Path) -> Result<(usize, Vec<String>)> {
    let (scaler, documented) = (read(root, SCALER)?, read(root, METRICS)?);
    let words = scaler.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named: BTreeSet<&str> = words.filter(|word| word.starts_with("dueline_")).collect();
    let exists = |metric: &str| {
        documented.lines().any(|line| {
            line.strip_prefix(&format!("| `{metric}")).is_some_and(|rest| rest.starts_with(['`', '{']))
        })
    };
    let absent = named.iter().filter(|metric| !exists(metric));
    Ok((named.len(), absent.map(|metric| format!("{SCALER}: no metric {metric} in {METRICS}")).collect()))
}

/// Paths that the image is built from and that are not there, and another Rust than everywhere else.
pub(super) fn image(root: &Path) -> Result<(usize, Vec<String>)> {
    let (text, toolchain) = (read(root, CONTAINERFILE)?, read(root, "rust-toolchain.toml")?);
    let paths: BTreeSet<&str> = copied(&text).collect();
    let absent = paths.iter().filter(|path| !root.join(path).exists());
    let mut faults: Vec<String> = absent.map(|path| format!("{CONTAINERFILE}: there is no {path}")).collect();
    let manifest: toml::Table = read(root, "Cargo.toml")?.parse().context("Cargo.toml")?;
    let members = manifest["workspace"]["members"].as_array().context("Cargo.toml has no members")?;
    let members = members.iter().filter_map(toml::Value::as_str).filter(|member| *member != ".");
    // Cargo reads the manifest of every member.
    let left_out = members.filter(|member| !paths.contains(member.split('/').next().unwrap_or(member)));
    faults.extend(
        left_out.map(|member| format!("{CONTAINERFILE} does not copy {member}, a member of the workspace")),
    );
    let channel = toolchain.split('"').nth(1).context("rust-toolchain.toml names no channel")?;
    if !text.contains(&format!("FROM rust:{channel}-")) {
        faults.push(format!("{CONTAINERFILE} does not build with Rust {channel}"));
    }
    Ok((paths.len() + 1, faults))
}

/// Sources of COPY, but those that come from another stage.
fn copied(containerfile: &str) -> impl Iterator<Item = &str> {
    let copies = containerfile.lines().filter_map(|line| line.strip_prefix("COPY "));
    copies.filter(|rest| !rest.starts_with("--from")).flat_map(|rest| {
        let words: Vec<&str> = rest.split_whitespace().filter(|word| !word.starts_with("--")).collect();
        let sources = words.len().saturating_sub(1);
        words.into_iter().take(sources)
    })
}

/// Secrets that pods mount and the README does not name.
pub(super) fn secrets(root: &Path, objects: &[Value]) -> Result<(usize, Vec<String>)> {
    let readme = read(root, README)?;
    let volumes = workloads(objects).flat_map(|one| one["spec"]["template"]["spec"]["volumes"].as_array());
    let named: BTreeSet<&str> =
        volumes.flatten().filter_map(|one| one["secret"]["secretName"].as_str()).collect();
    let absent = named.iter().filter(|name| !readme.contains(&format!("`{name}`")));
    Ok((
        named.len(),
        absent.map(|name| format!("{README} does not say how to make the Secret {name}")).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_what_is_copied_from_outside() {
        let text = "FROM a AS b\nCOPY Cargo.toml src ./\nCOPY --chown=1 x /y\nCOPY --from=b /z /z\n";
        assert_eq!(copied(text).collect::<Vec<_>>(), ["Cargo.toml", "src", "x"]);
    }
}
