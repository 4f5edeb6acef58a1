//! A process of `dueline serve`: started, frozen, stopped, killed. Its output goes to a file. It ends with this value,
//! and on Linux with this program, however that ends.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::network::Network;
use crate::plan::Server;

/// How often a process is looked at that was asked to end.
const POLL: Duration = Duration::from_millis(100);

/// An instance.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: String,
    /// Where its HTTP interface is reached from here.
    pub(crate) port: u16,
    /// Its own network, where it has one.
    network: Option<Network>,
    child: Child,
}

/// What a process is started with.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    pub(crate) port: u16,
    pub(crate) program: &'a Path,
    pub(crate) config: &'a Path,
    pub(crate) log: &'a Path,
    pub(crate) network: Option<Network>,
    /// Variables of its environment beside this program's own.
    pub(crate) env: &'a [(&'static str, OsString)],
}

impl Instance {
    /// To be called from a thread that lives as long as the instance: on Linux it ends with that thread.
    pub(crate) fn start(start: Start<'_>) -> Result<Instance> {
        let output = File::options().create(true).append(true).open(start.log).context("a log file")?;
        let child = command(&start)
            .env("DUELINE_CONFIG", start.config)
            .envs(start.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("{} cannot be started", start.program.display()))?;
        Ok(Instance { name: start.name.to_owned(), port: start.port, network: start.network, child })
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("a process id")?;
        kill_process(pid, signal).with_context(|| format!("{} cannot be sent a signal", self.name))
    }

    /// Ends it at once, as a power cut does.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("{} cannot be killed", self.name))?;
        self.child.wait().with_context(|| format!("{} does not end", self.name))?;
        Ok(())
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end; `None` when it does not end in time.
    pub(crate) async fn until_ended(&mut self, seconds: u64) -> Option<ExitStatus> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds);
        loop {
            let ended = self.ended();
            if ended.is_some() || tokio::time::Instant::now() > deadline {
                return ended;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Changes its way to a server.
    pub(crate) fn set_way(&self, server: Server, way: crate::network::Way) -> Result<()> {
        let network =
            self.network.as_ref().context("only an instance with its own network can be cut off")?;
        network.set(server, way);
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended before; there is nobody to tell.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// By way of `chaos enter`, in a process group of its own, so that Ctrl-C reaches this program alone.
#[cfg(target_os = "linux")]
fn command(start: &Start<'_>) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut arguments: Vec<OsString> = vec!["enter".into(), "--parent".into()];
    arguments.push(std::process::id().to_string().into());
    if let Some(network) = &start.network {
        arguments.extend(["--network".into(), network.path.clone().into_os_string()]);
    }
    arguments.extend(["--".into(), start.program.into(), "serve".into()]);
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).process_group(0);
    command
}

#[cfg(not(target_os = "linux"))]
fn command(start: &Start<'_>) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(start.program);
    command.arg(OsString::from("serve")).process_group(0);
    command
}
