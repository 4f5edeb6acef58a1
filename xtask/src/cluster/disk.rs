//! The disk of a server: a small one of its own, with no room left on it, or without its data.
//!
//! A small disk is a file system in memory: it is as full as a real one, and faster.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::state::Cluster;
use crate::say;
use crate::servers::state as files;

/// Room on a small disk beside what is there.
const ROOM_MB: u64 = 96;
const MB: u64 = 1 << 20;
/// What takes the room.
const FILLER: &str = "filler";
/// It is written in pieces of these sizes, the small ones when a large one does not fit any more.
const PIECES: [usize; 2] = [1 << 20, 1 << 12];
/// A server may remove files meanwhile: their room is taken too, so often at most.
const FILLS_MAX: u32 = 10;

/// Whether a server's data lies on a disk of its own.
pub(super) fn is_small(cluster: &Cluster, name: &str) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
    let (data, server) = (data(cluster, name), cluster.join(name));
    matches!((device(&data), device(&server)), (Ok(own), Ok(around)) if own != around)
}

/// Gives a server that does not run a small disk, with its data on it.
pub(super) fn confine(cluster: &Cluster, name: &str) -> Result<()> {
    let (data, aside) = (data(cluster, name), aside(cluster, name));
    ensure!(!aside.exists(), "{} is left of an earlier try: `cargo xtask cluster down`", aside.display());
    let size_mb = used(&data)? / MB + 1 + ROOM_MB;
    let size = format!("size={size_mb}m");
    let move_to = |from: &Path, to: &Path| {
        fs::rename(from, to).with_context(|| format!("moving {} to {}", from.display(), to.display()))
    };
    move_to(&data, &aside)?;
    files::make_dir(&data)?;
    let copied =
        program(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "dueline-cluster"]).arg(&data))
            .and_then(|()| copy(&aside, &data));
    if let Err(error) = copied {
        // What was there stays until its copy is whole.
        if is_small(cluster, name) {
            unmount(&data)?;
        }
        files::remove_dir(&data)?;
        move_to(&aside, &data)?;
        return Err(error);
    }
    files::remove_dir(&aside)?;
    say::line(format_args!("{name} has a disk of {size_mb} MiB"));
    Ok(())
}

/// Takes all room that is left on a small disk, and prints how many bytes are left then.
pub(super) fn fill(cluster: &Cluster, name: &str) -> Result<()> {
    ensure!(is_small(cluster, name), "{name} has no small disk: `cargo xtask cluster confine {name}` first");
    let data = data(cluster, name);
    let path = data.join(FILLER);
    let mut file = File::create(&path).with_context(|| format!("{}", path.display()))?;
    let mut left = u64::MAX;
    for _ in 0..FILLS_MAX {
        take_room(&mut file).with_context(|| format!("filling {}", path.display()))?;
        left = free(&data)?;
        if left == 0 {
            break;
        }
    }
    say::line(format_args!("{left} bytes are left on the disk of {name}"));
    say::data(format_args!("{name} {left}"))
}

fn take_room(file: &mut File) -> std::io::Result<()> {
    for size in PIECES {
        let piece = vec![0; size];
        loop {
            match file.write_all(&piece) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Bytes that are free on the disk of a folder.
fn free(dir: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(dir).with_context(|| format!("the room on {}", dir.display()))?;
    Ok(found.f_bavail * found.f_frsize)
}

/// Puts the data of a server that does not run back on the disk that all share.
pub(super) fn empty(cluster: &Cluster, name: &str) -> Result<()> {
    let (data, aside) = (data(cluster, name), aside(cluster, name));
    files::remove_file(&data.join(FILLER))?;
    files::remove_dir(&aside)?;
    files::make_dir(&aside)?;
    copy(&data, &aside)?;
    unmount(&data)?;
    files::remove_dir(&data)?;
    fs::rename(&aside, &data).with_context(|| format!("moving {}", aside.display()))?;
    say::line(format_args!("{name} has room again"));
    Ok(())
}

/// Removes the data of a server that does not run.
pub(super) fn wipe(cluster: &Cluster, name: &str) -> Result<()> {
    remove(cluster, name)?;
    let mark = mark(cluster, name);
    fs::write(&mark, "").with_context(|| format!("{}", mark.display()))?;
    say::line(format_args!("the data of {name} is gone"));
    Ok(())
}

/// Whether a server's data was removed, and it was not started since.
pub(super) fn is_wiped(cluster: &Cluster, name: &str) -> bool {
    mark(cluster, name).exists()
}

/// Notes that a server that was wiped has started.
pub(super) fn started(cluster: &Cluster, name: &str) -> Result<()> {
    files::remove_file(&mark(cluster, name))
}

/// Removes a server's data, and its disk if it has one of its own.
pub(super) fn remove(cluster: &Cluster, name: &str) -> Result<()> {
    let data = data(cluster, name);
    if is_small(cluster, name) {
        unmount(&data)?;
    }
    files::remove_dir(&aside(cluster, name))?;
    files::remove_file(&mark(cluster, name))?;
    files::remove_dir(&data)
}

fn unmount(dir: &Path) -> Result<()> {
    program(Command::new("umount").arg("--lazy").arg(dir))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    program(Command::new("cp").args(["--archive", "--sparse=always"]).arg(from.join(".")).arg(to))
}

fn data(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.join(name).join("data")
}

/// Where data lies while it is moved from one disk to another.
fn aside(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.join(name).join("data-aside")
}

/// Says that a server was wiped.
fn mark(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.join(name).join("wiped")
}

/// Bytes that a folder takes.
fn used(dir: &Path) -> Result<u64> {
    const BLOCK: u64 = 512;
    let mut sum = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("{}", dir.display()))? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += metadata.blocks() * BLOCK;
        if metadata.is_dir() {
            sum += used(&entry.path())?;
        }
    }
    Ok(sum)
}

fn program(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    ensure!(status.success(), "{command:?} failed; its messages are above");
    Ok(())
}
