//! Images that nodes take without a registry.

use super::node::Place;
use super::plan::{NODES, PAUSE_IMAGE};
use crate::k8s::programs::Programs;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

const PAUSE: &str = "pause";

/// Gives every node the image that holds the namespaces of pods: one program and nothing else.
pub(super) fn pause(cluster: &Path, programs: &Programs) -> Result<()> {
    let program = fs::read(programs.path(PAUSE)).context("reading the program that holds pods")?;
    let path = cluster.join("pause.tar");
    fs::write(&path, archive(&program)?).with_context(|| format!("writing {}", path.display()))?;
    NODES.into_iter().try_for_each(|node| Place::of(node, cluster).import(&path, None))
}

/// Gives every node the image of a layout, under this name and the layout's own tag.
pub(in crate::k8s) fn layout(cluster: &Path, layout: &Path, name: &str) -> Result<()> {
    let path = cluster.join("image.tar");
    let file = File::create(&path).with_context(|| format!("writing {}", path.display()))?;
    let mut tar = tar::Builder::new(file);
    tar.append_dir_all(".", layout).context("archiving an image")?;
    tar.into_inner().context("archiving an image")?;
    NODES.into_iter().try_for_each(|node| Place::of(node, cluster).import(&path, Some(name)))
}

/// An image of one program, as `docker save` writes it.
fn archive(program: &[u8]) -> Result<Vec<u8>> {
    let layer = tarred(&[(PAUSE, program, 0o755)])?;
    let id = hex(&layer);
    let config = json!({
        "architecture": architecture(), "os": "linux", "config": {"Entrypoint": [format!("/{PAUSE}")]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{id}")]},
    })
    .to_string();
    let manifest: Value =
        json!([{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]);
    tarred(&[
        ("config.json", config.as_bytes(), 0o644),
        ("layer.tar", &layer, 0o644),
        ("manifest.json", manifest.to_string().as_bytes(), 0o644),
    ])
}

/// This machine's, in Go's words.
fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn tarred(files: &[(&str, &[u8], u32)]) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(*mode);
        tar.append_data(&mut header, name, *bytes).with_context(|| format!("archiving {name}"))?;
    }
    tar.into_inner().context("writing an archive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_archive_names_its_layer_by_what_is_in_it() {
        let bytes = archive(b"program").unwrap();
        let mut found = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let (name, mut content) = (entry.path().unwrap().display().to_string(), Vec::new());
            entry.read_to_end(&mut content).unwrap();
            found.insert(name, content);
        }
        let config: Value = serde_json::from_slice(&found["config.json"]).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex(&found["layer.tar"])));
        let manifest: Value = serde_json::from_slice(&found["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], PAUSE_IMAGE);
    }
}
