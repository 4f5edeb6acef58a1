//! Programs of Kubernetes, built from their published Go modules. `xtask/k8s` pins every module by its checksum.

use crate::servers::state::{self, Cache};
use crate::{packages, say, workspace};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MODULE: &str = "xtask/k8s";
/// What judges manifests.
const FOR_MANIFESTS: [&str; 2] = ["kube-apiserver", "kubectl"];
/// What a cluster that runs pods needs besides.
const FOR_PODS: [&str; 4] = ["kube-controller-manager", "kube-scheduler", "kubelet", "pause"];
/// The version the modules are of; without it the programs say that they have none.
pub(super) const VERSION: &str = "v1.34.1";
const VERSION_VARIABLE: &str = "k8s.io/component-base/version";

/// The folder of programs.
#[derive(Debug, Clone)]
pub(super) struct Programs(PathBuf);

impl Programs {
    /// Where one of them is.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Those that judge manifests, from the cache, built when absent. The caller holds the cache of k8s.
pub(super) fn for_manifests(cache: &Cache) -> Result<Programs> {
    ensure(cache, &FOR_MANIFESTS)
}

/// Those of a whole cluster.
pub(super) fn for_pods(cache: &Cache) -> Result<Programs> {
    ensure(cache, &[&FOR_MANIFESTS[..], &FOR_PODS[..]].concat())
}

fn ensure(cache: &Cache, names: &[&str]) -> Result<Programs> {
    let module = workspace::root()?.join(MODULE);
    let dir = cache.join(format!("k8s/bin-{}", fingerprint(&module)?));
    let absent: Vec<&str> = names.iter().copied().filter(|name| !dir.join(name).exists()).collect();
    if !absent.is_empty() {
        build(&module, &dir, &absent)?;
    }
    Ok(Programs(dir))
}

/// The `go` program.
pub(super) fn go() -> Result<PathBuf> {
    let usual = PathBuf::from("/usr/local/go/bin/go");
    packages::program("go")
        .or_else(|| usual.is_file().then_some(usual))
        .context("go is not on PATH: install Go 1.24 or newer (the package golang-go of Debian 12 is older)")
}

fn build(module: &Path, dir: &Path, names: &[&str]) -> Result<()> {
    say::line(format_args!("building {} {VERSION} with Go: minutes, once", names.join(", ")));
    let scratch = dir.with_extension("build");
    state::remove_dir(&scratch)?;
    state::make_dir(&scratch)?;
    let (major, minor) = version_numbers(VERSION)?;
    let flags = format!(
        "-s -w -X {VERSION_VARIABLE}.gitVersion={VERSION} -X {VERSION_VARIABLE}.gitMajor={major} \
         -X {VERSION_VARIABLE}.gitMinor={minor}"
    );
    let status = Command::new(go()?)
        .args(["build", "-mod=readonly", "-trimpath", "-ldflags", &flags, "-o"])
        .arg(&scratch)
        .args(names.iter().map(|name| format!("./{name}")))
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .context("running go")?;
    if !status.success() {
        bail!("go build ended with {status}: see its messages above; Go 1.24 or newer is needed");
    }
    state::make_dir(dir)?;
    for name in names {
        let to = dir.join(name);
        fs::rename(scratch.join(name), &to).with_context(|| format!("moving {name} to {}", to.display()))?;
    }
    state::remove_dir(&scratch)
}

fn version_numbers(version: &str) -> Result<(&str, &str)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    numbers.next().zip(numbers.next()).with_context(|| format!("{version} is no version"))
}

/// Of what the build is made of: a change of any source makes a new folder.
fn fingerprint(module: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let programs = FOR_MANIFESTS.iter().chain(&FOR_PODS).map(|name| format!("{name}/main.go"));
    for source in ["go.mod".to_owned(), "go.sum".to_owned()].into_iter().chain(programs) {
        let path = module.join(source);
        hash.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    hash.update(VERSION);
    Ok(short(&hash.finalize()))
}

/// The first bytes of a hash, as part of a folder's name.
pub(super) fn short(hash: &[u8]) -> String {
    hash.iter().take(6).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_split_into_its_numbers() {
        assert_eq!(version_numbers(VERSION).unwrap(), ("1", "34"));
        assert!(version_numbers("v1").is_err());
    }

    #[test]
    fn every_program_has_a_source() {
        let module = workspace::root().unwrap().join(MODULE);
        for name in FOR_MANIFESTS.iter().chain(&FOR_PODS) {
            assert!(module.join(name).join("main.go").is_file(), "{name}");
        }
    }
}
