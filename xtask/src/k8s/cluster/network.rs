//! Bridges with the addresses of nodes, and forwarding between them.

use super::plan::{NODES, SHARED, SHARED_DEVICE};
use crate::cluster::network::ip;
use anyhow::{Context, Result};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// Whether the machine forwards packets, in the kernel's word for it.
pub(super) fn forwarding() -> Result<String> {
    let word = fs::read_to_string(FORWARDING).with_context(|| format!("reading {FORWARDING}"))?;
    Ok(word.trim().to_owned())
}

/// Sets what `forwarding` says.
pub(super) fn set_forwarding(word: &str) -> Result<()> {
    fs::write(FORWARDING, word).with_context(|| format!("writing {FORWARDING}"))
}

/// All devices with their addresses.
fn devices() -> impl Iterator<Item = (String, Ipv4Addr)> {
    let of_nodes = NODES.into_iter().map(|node| (node.bridge(), node.address()));
    std::iter::once((SHARED_DEVICE.to_owned(), SHARED)).chain(of_nodes)
}

/// The first device that is there.
pub(super) fn taken() -> Option<String> {
    devices().map(|(name, _)| name).find(|name| Path::new("/sys/class/net").join(name).exists())
}

/// Makes all bridges.
pub(super) fn make() -> Result<()> {
    for (name, address) in devices() {
        ip(&["link", "add", &name, "type", "bridge"])?;
        ip(&["address", "add", &format!("{address}/24"), "dev", &name])?;
        ip(&["link", "set", &name, "up"])?;
    }
    set_forwarding("1")
}

/// Removes those that are there, and with them what pods had in them.
pub(super) fn remove() -> Result<()> {
    for (name, _) in devices().filter(|(name, _)| Path::new("/sys/class/net").join(name).exists()) {
        ip(&["link", "delete", &name])?;
    }
    Ok(())
}
