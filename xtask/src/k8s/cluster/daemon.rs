//! Processes of the cluster: started so that they outlive this task, and found again by where they live.
//!
//! Every one of them has a path of the cluster's folder among its arguments, the shims that containerd starts too. So they
//! are found without a list, which a task that was killed would not have written.

use crate::say;
use crate::servers::process::{Identity, tail};
use anyhow::{Context, Result};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LOG_TAIL_LINES: usize = 15;
/// Programs that are ended when a path of the cluster is among their arguments; anybody may `tail` a log there.
const PROGRAMS: [&str; 9] = [
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    // Before what it would tidy up after.
    "containerd",
    "containerd-shim-runc-v2",
    "kube-apiserver",
    "etcd",
    "kubectl",
    "java",
];
const SHIM: &str = "containerd-shim-runc-v2";

/// A program to start.
#[derive(Debug)]
pub(super) struct Daemon<'a> {
    pub(super) name: &'a str,
    pub(super) program: &'a Path,
    pub(super) args: Vec<String>,
    /// Where its log is.
    pub(super) dir: &'a Path,
}

impl Daemon<'_> {
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    /// Starts it in a session of its own.
    pub(super) fn start(&self) -> Result<Identity> {
        let path = self.log();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("opening the log {}", path.display()))?;
        let child = Command::new("setsid")
            .arg(self.program)
            .args(&self.args)
            .current_dir(self.dir)
            .env("NO_PROXY", super::plan::EVERYWHERE)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing the log between stdout and stderr")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting `setsid {}`: is util-linux installed?", self.name))?;
        let pid = i32::try_from(child.id()).context("a process id beyond 31 bits")?;
        let marker = self.args.first().cloned().unwrap_or_default();
        Identity::of(pid, marker).with_context(|| format!("{}: {}", self.name, self.tail()))
    }

    /// The end of its log.
    pub(super) fn tail(&self) -> String {
        tail(&self.log(), LOG_TAIL_LINES)
    }
}

/// A process that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) program: String,
    pub(super) process: Identity,
}

/// Processes that have a path in this folder among their arguments.
pub(super) fn of(dir: &Path) -> Vec<Found> {
    let folder = dir.display().to_string();
    pids().filter_map(|pid| found(pid, &folder)).collect()
}

/// Kills them all, those that would start others first.
pub(super) fn kill_all(dir: &Path) -> Result<()> {
    let mut all = of(dir);
    all.sort_by_key(|one| PROGRAMS.iter().position(|name| *name == one.program));
    for one in &all {
        if one.program == SHIM {
            kill_children(&one.process)?;
        }
        one.process.kill()?;
    }
    Ok(())
}

/// Kills what a shim has started: the first process of a container, and with it all others there.
fn kill_children(shim: &Identity) -> Result<()> {
    for pid in pids().filter(|pid| parent(*pid) == Some(shim.pid)) {
        // Its own arguments are its mark; one that is gone meanwhile needs no signal.
        let Some(marker) = arguments(pid).into_iter().next() else { continue };
        if let Ok(process) = Identity::of(pid, marker) {
            process.kill()?;
        }
    }
    Ok(())
}

fn found(pid: i32, folder: &str) -> Option<Found> {
    let arguments = arguments(pid);
    let program = Path::new(arguments.first()?).file_name()?.to_str()?.to_owned();
    if !PROGRAMS.contains(&program.as_str()) {
        return None;
    }
    let marker = arguments.iter().skip(1).find(|argument| names(argument, folder))?.clone();
    Some(Found { program, process: Identity::of(pid, marker).ok()? })
}

/// Whether an argument has a path in the folder.
fn names(argument: &str, folder: &str) -> bool {
    argument
        .find(folder)
        .is_some_and(|at| matches!(argument.as_bytes().get(at + folder.len()), None | Some(b'/')))
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn arguments(pid: i32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let parts = line.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(1)?.parse().ok()
}

/// Says what starts, with its log.
pub(super) fn told(daemon: &Daemon, process: &Identity) {
    say::line(format_args!(
        "{} starts as process {}, log {}",
        daemon.name,
        process.pid,
        daemon.log().display()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_by_itself_and_by_what_is_in_it_alone() {
        for (argument, wanted) in [
            ("/x/cluster", true),
            ("--config=/x/cluster/node-a/config", true),
            ("/x/cluster-of-others/config", false),
            ("/x", false),
        ] {
            assert_eq!(names(argument, "/x/cluster"), wanted, "{argument}");
        }
    }

    #[test]
    fn a_program_that_is_not_of_the_cluster_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "").unwrap();
        let mut reader = Command::new("tail").arg("-f").arg(&path).stdout(Stdio::null()).spawn().unwrap();
        assert!(of(dir.path()).is_empty());
        reader.kill().unwrap();
        reader.wait().unwrap();
    }

    #[test]
    fn a_process_is_found_by_its_parent() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(parent(pid), i32::try_from(std::process::id()).ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
