//! The bill of materials of the program, as CycloneDX 1.5: crates that are linked, C libraries that crates bring, and
//! packages of Debian that the program links. The same bytes for the same input: no time, no random serial number.
//!
//! Which crates are linked is asked of `cargo tree`, which knows the features of this one program: the workspace as a whole
//! has more of them. Build scripts, macros and what tests use are not linked.

use super::debian::{self, Package};
use crate::workspace;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crate the program is of.
const PRODUCT: &str = "dueline";
pub(super) const MEDIA_TYPE: &str = "application/vnd.cyclonedx+json";

/// Name and version, as written in Cargo.lock.
type Key = (String, String);

#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Described>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Described {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// What cargo knows of the program.
#[derive(Debug)]
pub(super) struct Crates {
    linked: BTreeSet<Key>,
    described: BTreeMap<String, Described>,
    needs: BTreeMap<String, Vec<String>>,
    checksums: BTreeMap<Key, String>,
}

impl Crates {
    /// Asks cargo.
    pub(super) fn read() -> Result<Crates> {
        let root = workspace::root()?;
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let cargo = |args: &[&str]| {
            let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            debian::output(command.current_dir(&root).args(args).arg("--locked"))
        };
        let edges = ["--edges", "normal,no-proc-macro", "--prefix", "none"];
        let tree = cargo(&[&["tree", "--package", PRODUCT, "--target", &target], &edges[..]].concat())?;
        let metadata = cargo(&["metadata", "--format-version", "1", "--filter-platform", &target])?;
        let lock = fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
        let metadata: Metadata =
            serde_json::from_str(&metadata).context("reading what cargo metadata said")?;
        let lock: Lock = toml::from_str(&lock).context("reading Cargo.lock")?;
        let checksums =
            lock.package.into_iter().filter_map(|one| Some(((one.name, one.version), one.checksum?)));
        Ok(Crates {
            linked: tree.lines().filter_map(key).collect(),
            described: metadata.packages.into_iter().map(|one| (one.id.clone(), one)).collect(),
            needs: metadata.resolve.nodes.into_iter().map(|node| (node.id, node.dependencies)).collect(),
            checksums: checksums.collect(),
        })
    }

    /// Version of the product.
    pub(super) fn version(&self) -> Result<&str> {
        let own = self.described.values().find(|one| one.name == PRODUCT);
        Ok(&own.with_context(|| format!("cargo knows no {PRODUCT}"))?.version)
    }

    /// Whether a crate of this name and version, as `name-version`, is linked.
    pub(super) fn has(&self, folder: &str) -> bool {
        self.linked.iter().any(|(name, version)| folder == format!("{name}-{version}"))
    }

    fn linked(&self) -> impl Iterator<Item = &Described> {
        let is_linked = |one: &&Described| self.linked.contains(&(one.name.clone(), one.version.clone()));
        self.described.values().filter(is_linked)
    }

    fn component(&self, one: &Described) -> Result<Value> {
        let purl = purl(one);
        let license = one.license.as_deref();
        let license = license.with_context(|| format!("{} {} names no licence", one.name, one.version))?;
        let mut component = json!({
            "type": "library",
            "bom-ref": purl,
            "name": one.name,
            "version": one.version,
            "licenses": [{"expression": license.replace('/', " OR ")}],
            "purl": purl,
        });
        if one.name == PRODUCT {
            component["type"] = "application".into();
        } else {
            let checksum = self.checksums.get(&(one.name.clone(), one.version.clone()));
            let checksum = checksum.with_context(|| format!("Cargo.lock has no checksum of {purl}"))?;
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        if let Some(text) = &one.description {
            component["description"] = text.split_whitespace().collect::<Vec<_>>().join(" ").into();
        }
        if let Some(url) = &one.repository {
            component["externalReferences"] = json!([{"type": "vcs", "url": url}]);
        }
        Ok(component)
    }

    /// The document.
    pub(super) fn document(&self, packages: &[Package], release: &str) -> Result<Vec<u8>> {
        let (mut components, mut needs) = (Vec::new(), Vec::new());
        let mut product = Value::Null;
        for one in self.linked() {
            let mut wanted: BTreeSet<String> = self
                .needs
                .get(&one.id)
                .into_iter()
                .flatten()
                .filter_map(|id| {
                    self.described
                        .get(id)
                        .filter(|need| self.linked.contains(&(need.name.clone(), need.version.clone())))
                })
                .map(purl)
                .collect();
            match one.name == PRODUCT {
                true => {
                    product = self.component(one)?;
                    wanted.extend(packages.iter().map(|package| package.purl(release)));
                }
                false => components.push(self.component(one)?),
            }
            if let Some(library) = bundled(one)? {
                wanted.insert(library["purl"].as_str().unwrap_or_default().to_owned());
                components.push(library);
            }
            needs.push(json!({"ref": purl(one), "dependsOn": wanted}));
        }
        ensure!(!product.is_null(), "cargo tree does not name {PRODUCT}");
        components.extend(packages.iter().map(|package| package.component(release)));
        let mut document = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": product},
            "components": components,
            "dependencies": needs,
        });
        document.sort_all_objects();
        let mut bytes = serde_json::to_vec_pretty(&document).context("writing the bill of materials")?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

impl Package {
    fn purl(&self, release: &str) -> String {
        let Package { name, version, architecture, .. } = self;
        // A colon stands in versions with an epoch, a plus in those of uploads.
        let version = version.replace(':', "%3A").replace('+', "%2B");
        format!("pkg:deb/debian/{}@{version}?arch={architecture}&distro={release}", name.replace('+', "%2B"))
    }

    fn component(&self, release: &str) -> Value {
        let purl = self.purl(release);
        let files: Vec<Value> =
            self.files.iter().map(|file| json!({"name": "dueline:file", "value": file})).collect();
        json!({
            "type": "library", "bom-ref": purl, "name": self.name, "version": self.version, "purl": purl,
            "properties": files,
        })
    }
}

fn purl(one: &Described) -> String {
    format!("pkg:cargo/{}@{}", one.name, one.version.replace('+', "%2B"))
}

/// Reads `name v1.2.3 (*)`.
fn key(line: &str) -> Option<Key> {
    let (name, rest) = line.split_once(" v")?;
    Some((name.to_owned(), rest.split(' ').next()?.to_owned()))
}

/// The C library whose source a crate brings and links.
fn bundled(one: &Described) -> Result<Option<Value>> {
    let behind = |mark: &str| {
        let (_, version) = one.version.split_once(mark)?;
        Some(version.split('-').next().unwrap_or(version).to_owned())
    };
    let (name, license, version) = match one.name.as_str() {
        "rdkafka-sys" => ("librdkafka", "BSD-2-Clause", behind("+")),
        "zstd-sys" => ("zstd", "BSD-3-Clause", behind("+zstd.")),
        "tikv-jemalloc-sys" => ("jemalloc", "BSD-2-Clause", behind("+")),
        "aws-lc-sys" => ("aws-lc", "ISC AND Apache-2.0", aws_lc(&one.manifest_path)?),
        _ => return Ok(None),
    };
    let version =
        version.with_context(|| format!("{} {} does not say of which {name}", one.name, one.version))?;
    let purl = format!("pkg:generic/{name}@{version}");
    Ok(Some(json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "licenses": [{"expression": license}],
        "description": format!("C library, compiled from the source in the crate {}", one.name),
    })))
}

/// Its crate has a version of its own.
fn aws_lc(manifest: &Path) -> Result<Option<String>> {
    let header = manifest.with_file_name("aws-lc/include/openssl/base.h");
    let text = fs::read_to_string(&header).with_context(|| format!("reading {}", header.display()))?;
    let line = text.lines().find(|line| line.starts_with("#define AWSLC_VERSION_NUMBER_STRING"));
    Ok(line.and_then(|line| line.split('"').nth(1)).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> Package {
        Package::sample("zlib1g", "1:1.2.13.dfsg-1", "amd64", "/usr/lib/libz.so.1")
    }

    fn document() -> (Crates, Value) {
        let crates = Crates::read().unwrap();
        let bytes = crates.document(&[package()], "debian-12").unwrap();
        assert_eq!(bytes, crates.document(&[package()], "debian-12").unwrap(), "it is the same each time");
        (crates, serde_json::from_slice(&bytes).unwrap())
    }

    fn names(document: &Value) -> BTreeSet<&str> {
        document["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn every_component_has_what_a_reader_needs() {
        let (crates, document) = document();
        assert_eq!(document["bomFormat"], "CycloneDX");
        assert_eq!(document["metadata"]["component"]["version"], crates.version().unwrap());
        let components = document["components"].as_array().unwrap();
        let mut refs = BTreeSet::new();
        for one in components {
            for field in ["bom-ref", "name", "purl", "type", "version"] {
                assert!(one[field].as_str().is_some_and(|value| !value.is_empty()), "{field} of {one}");
            }
            assert!(refs.insert(one["bom-ref"].as_str().unwrap()), "twice: {one}");
            let purl = one["purl"].as_str().unwrap();
            let is_crate = purl.starts_with("pkg:cargo/");
            assert_eq!(one["hashes"][0]["content"].as_str().map(str::len), is_crate.then_some(64), "{one}");
            let license = one["licenses"][0]["expression"].as_str();
            assert!(license.is_some() || purl.starts_with("pkg:deb/"), "{one}");
        }
        refs.insert(document["metadata"]["component"]["bom-ref"].as_str().unwrap());
        for one in document["dependencies"].as_array().unwrap() {
            let needs = one["dependsOn"].as_array().unwrap();
            assert!(refs.contains(one["ref"].as_str().unwrap()), "{one}");
            assert!(needs.iter().all(|need| refs.contains(need.as_str().unwrap())), "{one}");
        }
    }

    #[test]
    fn what_is_linked_is_there_and_what_only_builds_or_tests_is_not() {
        let (_, document) = document();
        let names = names(&document);
        for linked in [
            "rdkafka",
            "scylla",
            "fjall",
            "axum",
            "tokio",
            "librdkafka",
            "jemalloc",
            "zstd",
            "aws-lc",
            "zlib1g",
        ] {
            assert!(names.contains(linked), "{linked}");
        }
        for other in ["stateright", "proptest", "serde_derive", "cc", "tiny_http", "tar"] {
            assert!(!names.contains(other), "{other}");
        }
    }

    #[test]
    fn every_dependency_of_the_manifest_is_there() {
        let (_, document) = document();
        let manifest = fs::read_to_string(workspace::root().unwrap().join("Cargo.toml")).unwrap();
        let manifest: toml::Table = toml::from_str(&manifest).unwrap();
        let names = names(&document);
        let wanted = manifest["dependencies"].as_table().unwrap();
        let absent: Vec<_> = wanted.keys().filter(|name| !names.contains(name.as_str())).collect();
        assert!(!wanted.is_empty() && absent.is_empty(), "{absent:?}");
    }

    #[test]
    fn a_package_with_an_epoch_is_named_without_its_colon() {
        assert_eq!(
            package().purl("debian-12"),
            "pkg:deb/debian/zlib1g@1%3A1.2.13.dfsg-1?arch=amd64&distro=debian-12"
        );
    }
}
