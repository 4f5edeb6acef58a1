//! An OCI image layout: the folder that registries' tools copy from.
//!
//! ```text
//! oci-layout  index.json  blobs/sha256/…
//! index.json ──► manifest (tag: version) ──► config, layer of the system, layer of the program
//!            └─► manifest of the bill of materials, whose subject is the first one
//! ```
//!
//! Documents are written with sorted keys and without a time, so that the same content has the same digest.

use super::tree::Tree;
use super::{GROUP, PORT, PROGRAM, USER, sbom};
use crate::servers::state;
use anyhow::{Context, Result, bail, ensure};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const MARKER: &str = "oci-layout";
const DESCRIPTION: &str = "An event-driven task scheduler on Kafka and Cassandra";

/// What the image is made of.
#[derive(Debug)]
pub(super) struct Image<'a> {
    pub(super) version: &'a str,
    /// Each with a word on what it is, the lowest first.
    pub(super) layers: [(&'a str, &'a Tree); 2],
    pub(super) sbom: &'a [u8],
}

/// Writes the layout, in place of one that is there; the digest of its manifest.
pub(super) fn write(dir: &Path, image: &Image) -> Result<String> {
    clear(dir)?;
    let blobs = Blobs(dir.join("blobs/sha256"));
    state::make_dir(&blobs.0)?;
    let (mut layers, mut plain, mut history) = (Vec::new(), Vec::new(), Vec::new());
    for (what, tree) in image.layers {
        let tar = tree.tar()?;
        plain.push(digest(&tar));
        layers.push(blobs.put(LAYER, &gzip(&tar)?)?);
        history.push(json!({"created_by": what}));
    }
    let config = blobs.put_json(CONFIG, config(image.version, &plain, &history)?)?;
    let mut manifest = blobs.put_json(
        MANIFEST,
        json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
            "annotations": labels(image.version),
        }),
    )?;
    let sbom = blobs.put(sbom::MEDIA_TYPE, image.sbom)?;
    let mut about = blobs.put_json(
        MANIFEST,
        json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": sbom::MEDIA_TYPE,
            "config": blobs.put(EMPTY, b"{}")?, "layers": [sbom], "subject": manifest,
        }),
    )?;
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": image.version});
    manifest["platform"] = json!({"architecture": architecture()?, "os": "linux"});
    about["artifactType"] = sbom::MEDIA_TYPE.into();
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest, about],
    });
    put_file(&dir.join("index.json"), &bytes(index)?)?;
    put_file(&dir.join(MARKER), &bytes(json!({"imageLayoutVersion": "1.0.0"}))?)?;
    Ok(digest)
}

/// Empties the folder of an earlier layout; another folder with something in it is left alone.
fn clear(dir: &Path) -> Result<()> {
    let is_empty = fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty && !dir.join(MARKER).is_file() {
        bail!("{} has other things in it: name a folder that is empty, or has an image", dir.display());
    }
    state::remove_dir(dir)
}

/// What a runtime is told.
fn config(version: &str, plain: &[String], history: &[Value]) -> Result<Value> {
    Ok(json!({
        "architecture": architecture()?,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{GROUP}"),
            "ExposedPorts": {format!("{PORT}/tcp"): {}},
            "Env": ["PATH=/usr/local/bin"],
            "Entrypoint": [PROGRAM],
            "Cmd": ["serve"],
            "WorkingDir": "/",
            "Labels": labels(version),
            "StopSignal": "SIGTERM",
        },
        "rootfs": {"type": "layers", "diff_ids": plain},
        "history": history,
    }))
}

fn labels(version: &str) -> Value {
    json!({
        "org.opencontainers.image.title": "dueline",
        "org.opencontainers.image.description": DESCRIPTION,
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
    })
}

/// This machine's, in the words of the specification.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("images are made on x86_64 and aarch64, not on {other}"),
    }
}

/// The folder of blobs.
struct Blobs(PathBuf);

impl Blobs {
    /// Keeps bytes; their descriptor.
    fn put(&self, media_type: &str, bytes: &[u8]) -> Result<Value> {
        let digest = digest(bytes);
        let name = digest.strip_prefix("sha256:").context("a digest without its kind")?;
        put_file(&self.0.join(name), bytes)?;
        Ok(json!({"mediaType": media_type, "digest": digest, "size": bytes.len()}))
    }

    fn put_json(&self, media_type: &str, document: Value) -> Result<Value> {
        self.put(media_type, &bytes(document)?)
    }
}

fn put_file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

fn bytes(mut document: Value) -> Result<Vec<u8>> {
    document.sort_all_objects();
    serde_json::to_vec(&document).context("writing a document of the image")
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).context("compressing a layer")
}

/// `sha256:…`.
pub(super) fn digest(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Faults of a layout by its own word: each blob has the digest that it is named by, and each name that is referred to is there.
pub(super) fn faults(dir: &Path) -> Result<(usize, Vec<String>)> {
    let (mut checked, mut faults) = (0, Vec::new());
    let mut open = vec![dir.join("index.json")];
    while let Some(path) = open.pop() {
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let document: Value =
            serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display()))?;
        for one in ["manifests", "layers"]
            .iter()
            .flat_map(|list| document[list].as_array())
            .flatten()
            .chain([&document["config"]])
        {
            let Some(name) = one["digest"].as_str() else { continue };
            let blob = dir.join("blobs").join(name.replace(':', "/"));
            checked += 1;
            let bytes = fs::read(&blob).with_context(|| format!("reading {}", blob.display()))?;
            if digest(&bytes) != name || one["size"] != bytes.len() {
                faults.push(format!("{} is not what it is named by", blob.display()));
            }
            if one["mediaType"] == MANIFEST {
                open.push(blob);
            }
        }
    }
    ensure!(checked > 0, "{} refers to nothing", dir.display());
    Ok((checked, faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trees() -> (Tree, Tree) {
        let (mut system, mut program) = (Tree::default(), Tree::default());
        system.file("/etc/a", "a");
        program.program(PROGRAM, "program");
        (system, program)
    }

    fn write_sample(dir: &Path) -> String {
        let (system, program) = trees();
        let layers = [("system", &system), ("program", &program)];
        write(dir, &Image { version: "1.2.3", layers, sbom: b"{}\n" }).unwrap()
    }

    fn read(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    fn blob(dir: &Path, digest: &Value) -> PathBuf {
        dir.join("blobs").join(digest.as_str().unwrap().replace(':', "/"))
    }

    #[test]
    fn the_same_content_has_the_same_digest_wherever_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        assert_eq!(write_sample(&a), write_sample(&b));
        assert_eq!(fs::read(a.join("index.json")).unwrap(), fs::read(b.join("index.json")).unwrap());
        assert_eq!(write_sample(&a), write_sample(&b), "over an earlier one too");
    }

    #[test]
    fn every_blob_is_named_by_its_digest_and_a_changed_one_is_found() {
        let dir = tempfile::tempdir().unwrap();
        write_sample(dir.path());
        let (checked, found) = faults(dir.path()).unwrap();
        assert_eq!((checked, found), (7, Vec::new()));
        let index = read(&dir.path().join("index.json"));
        let manifest = read(&blob(dir.path(), &index["manifests"][0]["digest"]));
        fs::write(blob(dir.path(), &manifest["layers"][0]["digest"]), "other").unwrap();
        assert_eq!(faults(dir.path()).unwrap().1.len(), 1);
    }

    #[test]
    fn the_config_says_what_the_containerfile_says() {
        let config = config("1.2.3", &[], &[]).unwrap()["config"].clone();
        let text =
            fs::read_to_string(crate::workspace::root().unwrap().join("deploy/Containerfile")).unwrap();
        let (_, stage) = text.rsplit_once("\nFROM scratch\n").expect("a last stage from scratch");
        let says = |instruction: &str| {
            let mut lines =
                stage.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' '));
            lines.next().unwrap_or_else(|| panic!("no {instruction}")).to_owned()
        };
        assert_eq!(says("USER"), config["User"].as_str().unwrap());
        assert_eq!(config["ExposedPorts"], json!({format!("{}/tcp", says("EXPOSE")): {}}));
        assert_eq!(says("STOPSIGNAL"), config["StopSignal"].as_str().unwrap());
        assert_eq!(serde_json::from_str::<Value>(&says("ENTRYPOINT")).unwrap(), config["Entrypoint"]);
        assert_eq!(serde_json::from_str::<Value>(&says("CMD")).unwrap(), config["Cmd"]);
        assert_eq!(json!([says("ENV")]), config["Env"]);
    }

    #[test]
    fn a_folder_with_other_things_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine"), "mine").unwrap();
        let error = clear(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has other things in it"), "{error}");
        assert!(dir.path().join("mine").is_file());
    }
}
