//! `chaos enter`: what this program becomes on the way to a process of the product. It goes into the network it is told,
//! asks the kernel to be killed when the program that started it ends, however that comes, and becomes the other program.
//! The process id stays the same throughout.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// What to become.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A network namespace, as /proc/PID/task/TID/ns/net
    #[arg(long)]
    network: Option<PathBuf>,
    /// The process that started this one
    #[arg(long)]
    parent: i32,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the other program; returns only when that fails.
#[cfg(target_os = "linux")]
pub(crate) fn run(args: Args) -> Result<()> {
    use std::os::unix::process::CommandExt as _;

    use rustix::process::{Signal, getppid, set_parent_process_death_signal};

    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the parent")?;
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    anyhow::ensure!(parent == Some(args.parent), "the process that started this one has ended");
    if let Some(path) = args.network {
        crate::network::entered(path)?;
    }
    let (program, arguments) = args.command.split_first().context("no program to become")?;
    let error = std::process::Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("becoming {}", program.display()))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run(args: Args) -> Result<()> {
    anyhow::bail!("{args:?}: only on Linux")
}
