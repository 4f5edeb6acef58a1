//! Cassandra's own tool, which asks a node of the cluster by JMX.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::plan;
use super::servers;
use super::state::{Cluster, State};
use crate::say;
use crate::servers::{cassandra, process};

const TOOL: &str = "org.apache.cassandra.tools.NodeTool";
/// The first port at which nodes answer it, less one.
const JMX_PORT: u32 = 7_199;
/// A node takes another for gone when that has said nothing for about twenty seconds; longer beside a load.
const KNOWN_WAIT_MAX: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Each table has its Paxos repaired before, which fails where that is in use right then.
const TRIES: u32 = 3;
const REPAIR_WAIT_MAX: Duration = Duration::from_secs(300);

/// The option of a node's Java machine that lets the tool in: at the loopback address of its data centre, which it shares with another.
pub(super) fn option(name: &str) -> String {
    format!("-Dcassandra.jmx.local.port={}", port(name))
}

fn port(name: &str) -> u32 {
    JMX_PORT + plan::number(name)
}

/// Has a node and all others that are up give each other what they lack of a keyspace, once it knows who is down.
pub(super) fn repair(cluster: &Cluster, state: &State, name: &str, keyspace: &str) -> Result<()> {
    let is_node = plan::place(name).is_some() && !plan::is_kafka(name);
    ensure!(is_node, "no Cassandra node is named {name:?}");
    ensure!(state.running(name).is_some(), "{name} does not run: `cargo xtask cluster start {name}` first");
    let runs: BTreeSet<IpAddr> = state
        .names()
        .iter()
        .filter(|one| !plan::is_kafka(one) && state.running(one).is_some())
        .map(|one| plan::address(one).ip())
        .collect();
    let begun = Instant::now();
    while up(&run(cluster, name, &["status"], KNOWN_WAIT_MAX)?) != runs {
        ensure!(
            begun.elapsed() < KNOWN_WAIT_MAX,
            "{name} does not know within {KNOWN_WAIT_MAX:?} who is down"
        );
        std::thread::sleep(LOOK_AGAIN);
    }
    let mut tries = 1;
    loop {
        match run(cluster, name, &["repair", "--full", "--force", keyspace], REPAIR_WAIT_MAX) {
            Ok(_) => break,
            Err(error) if tries < TRIES => say::line(format_args!("{error:#}\nonce more")),
            Err(error) => return Err(error),
        }
        tries += 1;
    }
    say::line(format_args!("{name} is repaired, try {tries} of {TRIES}"));
    Ok(())
}

/// The addresses of nodes that are up and part of the ring, in what the tool says of all.
fn up(status: &str) -> BTreeSet<IpAddr> {
    let address = |line: &str| line.strip_prefix("UN")?.split_whitespace().next()?.parse().ok();
    status.lines().filter_map(address).collect()
}

/// Runs the tool; what it printed.
fn run(cluster: &Cluster, name: &str, what: &[&str], longest: Duration) -> Result<String> {
    let site = {
        let _held = cluster.cache.lock()?;
        servers::site(cluster, name)?
    };
    let place = plan::place(name).context("a server of the plan")?;
    let port = port(name).to_string();
    // It keeps what was asked for in the home folder.
    let home = format!("-Duser.home={}", site.dir.display());
    let own = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", &home].map(str::to_owned);
    let jvm: Vec<String> = own.into_iter().chain(cassandra::opens()).collect();
    let jvm: Vec<&str> = jvm.iter().map(String::as_str).collect();
    let words = [&[TOOL, "--host", "127.0.0.1", "--port", &port], what].concat();
    let log: PathBuf = site.dir.join("node-tool.log");
    let out = File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let mut child = site
        .launch(&jvm, &words)
        .within(cluster.namespace(place).path())
        .command()
        .stdin(Stdio::null())
        .stderr(out.try_clone()?)
        .stdout(out)
        .spawn()
        .context("starting Cassandra's NodeTool")?;
    let (begun, what) = (Instant::now(), what.join(" "));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > longest {
            child.kill()?;
            child.wait()?;
            bail!("nodetool {what} at {name} took longer than {longest:?}, see {}", log.display());
        }
        std::thread::sleep(servers::READY_POLL);
    };
    if !status.success() {
        let tail = process::tail(&log, servers::LOG_TAIL_LINES);
        bail!(
            "nodetool {what} at {name} ended with {status}:\n{tail}\nA node that was started by an older build has no port for it: start it anew"
        );
    }
    fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_up_and_has_joined_is_read_from_the_table() {
        let status = "Datacenter: dc1\n=====\nStatus=Up/Down\n|/ State=Normal/Leaving/Joining/Moving\n\
            --  Address     Load      Tokens  Owns  Host ID  Rack\n\
            UN  10.77.1.11  1.2 MiB   4       100%  aaaa     r1\n\
            DN  10.77.1.12  1.2 MiB   4       100%  bbbb     r2\n\
            UJ  10.77.2.11  ?         4       100%  cccc     r3\n";
        assert_eq!(up(status), [IpAddr::from([10, 77, 1, 11])].into());
    }
}
