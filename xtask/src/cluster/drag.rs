//! The disk of a server, slow: each write and each sync of it takes longer by what a file says, which a library reads that is loaded
//! before the C library (`chaos/preload`).

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::state::Cluster;
use crate::say;
use crate::servers::state as files;
use crate::workspace;

const LIBRARY: &str = "libpreload.so";

/// Whether a server is started so that its disk can be slow.
pub(super) fn may_be(cluster: &Cluster, name: &str) -> bool {
    file(cluster, name).exists()
}

/// Says how much longer a write of a server takes, in milliseconds; from its next start on its disk can be slow.
pub(super) fn set(cluster: &Cluster, name: &str, ms: u32) -> Result<()> {
    let path = file(cluster, name);
    let place = || format!("{}", path.display());
    let open = File::options().create(true).truncate(false).write(true).open(&path).with_context(place)?;
    // The whole text takes the place of the old: it is never empty in between.
    open.write_all_at(format!("{ms:020}").as_bytes(), 0).with_context(place)?;
    match ms {
        0 => say::line(format_args!("the disk of {name} is as fast as it is")),
        ms => say::line(format_args!("each write of {name} to its disk takes {ms} ms longer")),
    }
    Ok(())
}

/// The environment of a server that starts: one whose disk is as fast as it is by now starts as others.
pub(super) fn env(cluster: &Cluster, name: &str) -> Result<Vec<(&'static str, PathBuf)>> {
    let path = file(cluster, name);
    let said = fs::read_to_string(&path).unwrap_or_default();
    if said.trim().parse::<u32>().unwrap_or(0) == 0 {
        forget(cluster, name)?;
        return Ok(Vec::new());
    }
    let count = count(cluster, name);
    File::create(&count).with_context(|| format!("{}", count.display()))?;
    Ok(vec![("LD_PRELOAD", library()?), ("DRAG_FILE", path), ("DRAGGED_FILE", count)])
}

/// How many writes and syncs of a server took longer since it was started; what it says to its log is left out.
pub(super) fn dragged(cluster: &Cluster, name: &str) -> u64 {
    fs::metadata(count(cluster, name)).map_or(0, |metadata| metadata.len())
}

/// A server is started as others again.
pub(super) fn forget(cluster: &Cluster, name: &str) -> Result<()> {
    files::remove_file(&count(cluster, name))?;
    files::remove_file(&file(cluster, name))
}

fn file(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.join(name).join("drag")
}

/// The library adds a byte to it for each write that took longer.
fn count(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.join(name).join("dragged")
}

/// The library, built beside this program.
fn library() -> Result<PathBuf> {
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(workspace::root()?).args(["build", "--quiet", "--package", "preload"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let status = build.stdin(Stdio::null()).stdout(std::io::stderr()).status().context("running cargo")?;
    ensure!(status.success(), "chaos/preload cannot be built; its messages are above");
    let built = std::env::current_exe().context("the path of this program")?.with_file_name(LIBRARY);
    ensure!(built.exists(), "{LIBRARY} was not built where it is looked for: {}", built.display());
    Ok(built)
}
