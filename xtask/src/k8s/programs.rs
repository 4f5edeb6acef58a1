//! kube-apiserver and kubectl, built from their published Go modules. `xtask/k8s` pins every module by its checksum.

use crate::servers::state::{self, Cache};
use crate::{packages, say, workspace};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MODULE: &str = "xtask/k8s";
/// What the build is made of: a change of any makes a new folder.
const SOURCES: [&str; 4] = ["go.mod", "go.sum", "kube-apiserver/main.go", "kubectl/main.go"];
/// The version the modules are of; without it the programs say that they have none.
pub(super) const VERSION: &str = "v1.34.1";
const VERSION_VARIABLE: &str = "k8s.io/component-base/version";

/// Programs of Kubernetes.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) apiserver: PathBuf,
    pub(super) kubectl: PathBuf,
}

/// Finds the programs in the cache, building them when absent. The caller holds the cache of k8s.
pub(super) fn ensure(cache: &Cache) -> Result<Programs> {
    let module = workspace::root()?.join(MODULE);
    let dir = cache.join(format!("k8s/bin-{}", fingerprint(&module)?));
    if !dir.exists() {
        build(&module, &dir)?;
    }
    Ok(Programs { apiserver: dir.join("kube-apiserver"), kubectl: dir.join("kubectl") })
}

/// The `go` program.
pub(super) fn go() -> Result<PathBuf> {
    let usual = PathBuf::from("/usr/local/go/bin/go");
    packages::program("go")
        .or_else(|| usual.is_file().then_some(usual))
        .context("go is not on PATH: install Go 1.24 or newer (the package golang-go of Debian 12 is older)")
}

fn build(module: &Path, dir: &Path) -> Result<()> {
    say::line(format_args!("building kube-apiserver and kubectl {VERSION} with Go: minutes, once"));
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
        .args(["./kube-apiserver", "./kubectl"])
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .context("running go")?;
    if !status.success() {
        bail!("go build ended with {status}: see its messages above; Go 1.24 or newer is needed");
    }
    fs::rename(&scratch, dir).with_context(|| format!("moving the programs to {}", dir.display()))
}

fn version_numbers(version: &str) -> Result<(&str, &str)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    numbers.next().zip(numbers.next()).with_context(|| format!("{version} is no version"))
}

fn fingerprint(module: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    for source in SOURCES {
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
}
