//! Network namespaces: made, entered, removed.

use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The interface to everywhere else, made by the router.
pub(super) const DEVICE: &str = "wan";
/// All places.
const EVERYWHERE: &str = "10.77.0.0/16";
/// Fewer, larger packets: the router pays for each.
const MTU: &str = "9000";

/// A namespace, by its name in /run/netns.
#[derive(Debug, Clone)]
pub(super) struct Namespace(pub(super) String);

impl Namespace {
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.0)
    }

    /// Makes it anew, with addresses on a loopback of its own.
    pub(super) fn make(&self, hosts: &[Ipv4Addr]) -> Result<()> {
        self.remove()?;
        ip(&["netns", "add", &self.0])?;
        ip(&["-n", &self.0, "link", "set", "lo", "up"])?;
        for host in hosts {
            ip(&["-n", &self.0, "address", "add", &format!("{host}/32"), "dev", "lo"])?;
        }
        Ok(())
    }

    /// Sends everything for other places through the router's device.
    pub(super) fn route(&self, source: Ipv4Addr) -> Result<()> {
        ip(&["-n", &self.0, "link", "set", DEVICE, "mtu", MTU, "up"])?;
        ip(&["-n", &self.0, "route", "add", EVERYWHERE, "dev", DEVICE, "src", &source.to_string()])
    }

    pub(super) fn remove(&self) -> Result<()> {
        if self.path().exists() { ip(&["netns", "delete", &self.0]) } else { Ok(()) }
    }

    /// Does something on a thread that is in it. Sockets and devices made there stay there.
    pub(super) fn within<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = self.path();
        std::thread::scope(|scope| {
            let entered = scope.spawn(move || {
                let file = std::fs::File::open(&path).with_context(|| format!("{}", path.display()))?;
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .context("entering a network namespace")?;
                act()
            });
            entered.join().unwrap_or_else(|_| bail!("a thread in a network namespace panicked"))
        })
    }
}

/// Runs `ip`.
pub(crate) fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("running `ip`: is iproute2 installed?")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {}`: {}", arguments.join(" "), said.trim());
    Ok(())
}
