//! The real servers of a run: those that are named, or those of `cargo xtask servers`. What this program started it
//! ends; what ran before is left running.

use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::say;

/// A Kafka and a Cassandra that answer.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) kafka: String,
    pub(crate) cassandra: String,
    /// Names of those that did not run before.
    started: Vec<&'static str>,
}

impl Servers {
    /// Those that are named.
    pub(crate) fn given(kafka: String, cassandra: String) -> Servers {
        Servers { kafka, cassandra, started: Vec::new() }
    }

    /// Those of this checkout, started where they do not run. Takes a while.
    pub(crate) fn up() -> Result<Servers> {
        let before = String::from_utf8_lossy(&xtask(&["status"])?.stdout).into_owned();
        let up = xtask(&["up"])?;
        ensure!(up.status.success(), "`cargo xtask servers up` failed; its messages are above");
        let said = String::from_utf8_lossy(&up.stdout).into_owned();
        let address = |name: &str| -> Result<String> {
            let found = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            Ok(found.with_context(|| format!("`cargo xtask servers up` did not say {name}"))?.to_owned())
        };
        let absent = |name: &&str| !before.contains(&name.to_uppercase());
        let started = ["kafka", "cassandra"].into_iter().filter(absent).collect();
        Ok(Servers { kafka: address("KAFKA")?, cassandra: address("CASSANDRA")?, started })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let ended = match self.started[..] {
            [] => return,
            [one] => xtask(&["stop", one]),
            _ => xtask(&["down"]),
        };
        if !ended.is_ok_and(|output| output.status.success()) {
            say::line("the servers that were started may still run: `cargo xtask servers status`");
        }
    }
}

fn xtask(arguments: &[&str]) -> Result<Output> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Command::new(cargo)
        .current_dir(workspace())
        .args(["run", "--quiet", "--package", "xtask", "--", "servers"])
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo")
}

/// The root of the workspace: of the checkout that runs this, where cargo says so.
pub(crate) fn workspace() -> std::path::PathBuf {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = std::path::PathBuf::from(manifest);
    manifest.parent().map(std::path::Path::to_owned).unwrap_or(manifest)
}
