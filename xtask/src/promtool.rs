//! promtool, which reads Prometheus rules and runs their unit tests.
//!
//! Debian's package has it beside a server that an install would start. So the package is fetched and unpacked into
//! the cache, which needs no root and starts nothing.

use crate::servers::state::{self, Cache};
use crate::{packages, say};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGE: &str = "prometheus";

/// The one on PATH, or the one in the cache, which is fetched when absent.
pub(crate) fn ensure() -> Result<PathBuf> {
    if let Some(program) = packages::program("promtool") {
        return Ok(program);
    }
    let cache = Cache::open()?;
    let _held = cache.lock()?;
    let dir = cache.join("promtool");
    let program = dir.join("usr/bin/promtool");
    if !answers(&program) {
        state::remove_dir(&dir)?;
        std::fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        unpack(&dir)?;
    }
    if !answers(&program) {
        bail!("{} does not run: remove {} and try again", program.display(), dir.display());
    }
    Ok(program)
}

/// apt checks the signature of what it fetches.
fn unpack(dir: &Path) -> Result<()> {
    say::line(format_args!("unpacking promtool of the Debian package {PACKAGE} in {}", dir.display()));
    let fetch = || run(Command::new("apt-get").args(["download", "--quiet", PACKAGE]).current_dir(dir));
    if fetch().is_err() {
        // The list of packages may be absent, or name a version that is gone.
        run(Command::new("apt-get").args(["update", "--quiet"]))?;
        fetch()?;
    }
    let mut files = std::fs::read_dir(dir).context("reading the cache")?.flatten().map(|entry| entry.path());
    let package = files.find(|path| path.extension().is_some_and(|ending| ending == "deb"));
    let package = package.with_context(|| format!("apt-get left no package in {}", dir.display()))?;
    run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(dir))
}

fn run(command: &mut Command) -> Result<()> {
    let what =
        format!("promtool is not on PATH and cannot be had from the Debian package {PACKAGE}: {command:?}");
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status().context(what.clone())?;
    if !status.success() {
        bail!("{what} ended with {status}");
    }
    Ok(())
}

fn answers(program: &Path) -> bool {
    let status = Command::new(program).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
