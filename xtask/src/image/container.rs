//! A container of runc: started, asked, signalled, and gone when this is dropped.

use super::bundle::{Bundle, Run};
use super::debian;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long anything here is waited for.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);

/// runc, with its own folder of what runs.
#[derive(Debug)]
pub(super) struct Runtime {
    state: PathBuf,
}

/// What runc says of a container.
#[derive(Debug, Deserialize)]
struct Said {
    pid: u32,
    status: String,
}

impl Runtime {
    /// Containers that an earlier check has left are removed.
    pub(super) fn open(state: PathBuf) -> Result<Runtime> {
        let runtime = Runtime { state };
        if runtime.state.is_dir() {
            for name in debian::output(runtime.runc().args(["list", "--quiet"]))?.lines() {
                runtime.remove(name)?;
            }
        }
        Ok(runtime)
    }

    fn runc(&self) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(&self.state);
        command
    }

    fn remove(&self, name: &str) -> Result<()> {
        debian::output(self.runc().args(["delete", "--force", name])).map(drop)
    }

    /// Runs the entry point.
    pub(super) fn start(&self, bundle: &Bundle, run: &Run) -> Result<Container<'_>> {
        bundle.prepare(run)?;
        let log = bundle.dir.join("container.log");
        let file = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let errors = file.try_clone().context("sharing the log between stdout and stderr")?;
        // Of this process, so that two checks on one machine do not meet in one control group.
        let name = format!("dueline-image-{}", std::process::id());
        let mut command = self.runc();
        command.arg("run").arg("--bundle").arg(&bundle.dir).arg(&name);
        let child =
            command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn().context("running runc")?;
        Ok(Container { runtime: self, name, child, log })
    }
}

/// One container.
#[derive(Debug)]
pub(super) struct Container<'a> {
    runtime: &'a Runtime,
    name: String,
    child: Child,
    log: PathBuf,
}

impl Container<'_> {
    fn said(&self) -> Result<Said> {
        let said = debian::output(self.runtime.runc().args(["state", &self.name]))?;
        serde_json::from_str(&said).context("reading what runc said")
    }

    /// The process outside.
    pub(super) fn pid(&self) -> Result<u32> {
        Ok(self.said()?.pid)
    }

    /// Whether it still runs.
    pub(super) fn runs(&self) -> bool {
        self.said().is_ok_and(|said| said.status == "running")
    }

    /// Asks it to end.
    pub(super) fn terminate(&self) -> Result<()> {
        debian::output(self.runtime.runc().args(["kill", &self.name, "TERM"])).map(drop)
    }

    /// How it ended, if it has: runc ends with the code of what it ran.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("waiting for runc")
    }

    /// Waits until it has ended.
    pub(super) fn wait(&mut self) -> Result<ExitStatus> {
        let mut ended = None;
        until("the container has ended", || {
            ended = self.ended()?;
            Ok(ended.is_some())
        })?;
        ended.context("runc has not ended")
    }

    /// What it wrote.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its files, from outside, as it sees them.
    pub(super) fn root(&self) -> Result<PathBuf> {
        Ok(Path::new("/proc").join(self.pid()?.to_string()).join("root"))
    }
}

impl Drop for Container<'_> {
    /// runc may say that there is none, when it has ended.
    fn drop(&mut self) {
        let _ = self.runtime.remove(&self.name);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !holds()? {
        if Instant::now() >= deadline {
            bail!("{what}: not within {WAIT_MAX:?}");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
