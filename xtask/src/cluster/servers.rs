//! The servers of the cluster: started in their data centre, asked whether they answer, ended.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::disk;
use super::drag;
use super::node_tool;
use super::plan::{self, CASSANDRA_PORT, KAFKA_PORT};
use super::setting::{self, Setting};
use super::state::{Cluster, State};
use crate::servers::ports::Ports;
use crate::servers::process::{self, Launch, Site};
use crate::servers::{cassandra, jars, kafka, state as files};
use crate::{packages, say};

/// Eleven Java machines on two cores take their time.
const READY_WAIT_MAX: Duration = Duration::from_secs(300);
/// One that takes its rows from others, beside a load: Cassandra repairs Paxos first, and begins again when that fails.
const TAKEN_WAIT_MAX: Duration = Duration::from_secs(900);
pub(super) const READY_POLL: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const STORAGE_PORT: u16 = 7_000;
const STOP_GRACE: Duration = Duration::from_secs(60);
pub(super) const LOG_TAIL_LINES: usize = 20;
/// A node with this starts as the replacement of the one at that address, which may be its own.
const REPLACE: &str = "-Dcassandra.replace_address_first_boot";
/// With this it may do so although it takes no rows from others.
const UNSAFELY: &str = "-Dcassandra.allow_unsafe_replace=true";
/// A node that joins others waits so long for what they say; a ring that is made at once is ready sooner. One that does not wait
/// may hear of the keyspaces after it has taken all rows of none. It gives up when no seed has answered by then, and on a busy machine
/// the first answer took longer than ten seconds; 30 is the default.
const HEAR_OTHERS: &str = "-Dcassandra.ring_delay_ms=20000";
/// Copies of a topic: one in each data centre, as brokers are placed by rack. Two of them must have a record.
const COPIES: (u32, u32) = (3, 2);
/// A lost broker's partitions get other leaders after this.
const SESSION_MS: u32 = 6_000;

/// How a slow server spends its time, in milliseconds: it stands still, then runs.
const SLOW_MS: (u64, u64) = (450, 50);

/// How servers start, where that is not as planned.
#[derive(Debug)]
pub(super) struct Otherwise<'a> {
    /// Settings until the next start.
    pub(super) set: &'a [Setting],
    /// Whether a node that was wiped takes nothing from the others.
    pub(super) empty: bool,
}

/// As planned.
pub(super) const AS_PLANNED: Otherwise<'static> = Otherwise { set: &[], empty: false };

/// Starts those that do not run, and waits until all of them answer.
pub(super) fn start(
    cluster: &Cluster,
    state: &mut State,
    names: &[String],
    otherwise: &Otherwise<'_>,
) -> Result<()> {
    if let Some(name) = names.iter().find(|name| otherwise.empty && !is_replaced(cluster, name)) {
        bail!(
            "--empty is for Cassandra nodes whose data was removed, which {name} is not: `cargo xtask cluster wipe` first"
        );
    }
    let mut absent: Vec<&String> = names.iter().filter(|name| state.running(name).is_none()).collect();
    // Those that others ask first come first.
    absent.sort_by_key(|name| needs_seed(name));
    let sites = {
        let _held = cluster.cache.lock()?;
        absent.iter().map(|name| site(cluster, name)).collect::<Result<Vec<Site>>>()?
    };
    let launches = prepare(cluster, &absent, &sites)?;
    for (name, site) in absent.iter().zip(&sites) {
        let (file, between) =
            if plan::is_kafka(name) { ("server.properties", "=") } else { ("cassandra.yaml", ": ") };
        setting::change(&site.dir.join("conf").join(file), between, otherwise.set)?;
        if takes_rows(cluster, state, name) && !otherwise.empty {
            // It takes its data from the others; those that start together with nothing have nobody to take it from.
            let joins: Setting = "auto_bootstrap=true".parse().map_err(anyhow::Error::msg)?;
            setting::change(&site.dir.join("conf").join(file), between, &[joins])?;
        }
    }
    for ((name, site), mut launch) in absent.iter().zip(&sites).zip(launches) {
        if needs_seed(name) {
            wait_for("a seed of Cassandra listens", READY_WAIT_MAX, || {
                firsts("cassandra").any(|seed| listens(cluster, &seed))
            })?;
        }
        let marker = format!("-Ddueline.cluster.run={}", site.dir.display());
        if takes_rows(cluster, state, name) {
            launch = launch.option(HEAR_OTHERS.to_owned());
        }
        if !plan::is_kafka(name) {
            launch = launch.option(node_tool::option(name));
        }
        if is_replaced(cluster, name) {
            launch = launch.option(format!("{REPLACE}={}", plan::address(name).ip()));
        }
        // Only a replacement may be.
        if otherwise.empty {
            launch = launch.option(UNSAFELY.to_owned());
        }
        let process = launch.env(drag::env(cluster, name)?).start(&marker)?;
        say::line(format_args!("{name} starts as process {}, log {}", process.pid, site.log().display()));
        state.servers.insert((*name).clone(), process);
        cluster.save(state)?;
    }
    let mut left: Vec<&String> = names.iter().collect();
    let takes = absent.iter().any(|name| takes_rows(cluster, state, name));
    let waited = wait_for("all servers answer", if takes { TAKEN_WAIT_MAX } else { READY_WAIT_MAX }, || {
        left.retain(|name| {
            let is_there = answers(cluster, state, name);
            if is_there {
                say::line(format_args!("{name} answers on {}", plan::address(name)));
            }
            !is_there
        });
        left.is_empty() || left.iter().any(|name| state.running(name).is_none())
    });
    waited.with_context(|| {
        let left: Vec<&str> = left.iter().map(|name| name.as_str()).collect();
        format!("no answer of {}; see {}", left.join(", "), cluster.join("NAME/server.log").display())
    })?;
    match left.first() {
        None => names.iter().try_for_each(|name| disk::started(cluster, name)),
        Some(name) => {
            let log = cluster.join(name).join("server.log");
            bail!("{name} ended while starting; its log ends with:\n{}", process::tail(&log, LOG_TAIL_LINES))
        }
    }
}

/// Whether a server is a node that takes rows from others before it answers.
fn takes_rows(cluster: &Cluster, state: &State, name: &str) -> bool {
    is_replaced(cluster, name) || state.joins(name) && !plan::is_kafka(name)
}

/// Whether a node starts as the replacement of itself.
fn is_replaced(cluster: &Cluster, name: &str) -> bool {
    disk::is_wiped(cluster, name) && !plan::is_kafka(name)
}

/// A node that is no seed ends when none of its seeds is there.
fn needs_seed(name: &str) -> bool {
    !plan::is_kafka(name) && !plan::is_first(name)
}

fn wait_for(what: &str, max: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !holds() {
        ensure!(begun.elapsed() < max, "not within {max:?}: {what}");
        std::thread::sleep(READY_POLL);
    }
    Ok(())
}

/// Whether a node takes connections from other nodes.
fn listens(cluster: &Cluster, name: &str) -> bool {
    let Some(place) = plan::place(name) else { return false };
    let at = (plan::address(name).ip(), STORAGE_PORT).into();
    let connect = || Ok(std::net::TcpStream::connect_timeout(&at, CONNECT_TIMEOUT).map(drop)?);
    cluster.namespace(place).within(connect).is_ok()
}

/// Formatting takes a Java machine each: two at a time.
fn prepare(cluster: &Cluster, names: &[&String], sites: &[Site]) -> Result<Vec<Launch>> {
    let mut launches = Vec::new();
    for (names, sites) in names.chunks(2).zip(sites.chunks(2)) {
        let both: Result<Vec<Launch>> = std::thread::scope(|scope| {
            let threads: Vec<_> = names
                .iter()
                .zip(sites)
                .map(|(name, site)| scope.spawn(move || prepared(cluster, name, site)))
                .collect();
            threads.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("a thread panicked"))).collect()
        });
        launches.extend(both?);
    }
    Ok(launches)
}

pub(super) fn site(cluster: &Cluster, name: &str) -> Result<Site> {
    let bundle = if plan::is_kafka(name) { &jars::KAFKA } else { &jars::CASSANDRA };
    let (java, jars) = (packages::java()?, jars::ensure(&cluster.cache, bundle)?);
    let dir = cluster.join(name);
    files::make_dir(&dir)?;
    Ok(Site { java, jars, dir })
}

fn prepared(cluster: &Cluster, name: &str, site: &Site) -> Result<Launch> {
    let place = plan::place(name).context("a server of the plan")?;
    let std::net::IpAddr::V4(address) = plan::address(name).ip() else { bail!("addresses are IPv4") };
    let launch = if plan::is_kafka(name) {
        kafka::prepare(site, &broker(name, address, place.word()))?
    } else {
        cassandra::prepare(site, &node(name, address, place.word()))?
    };
    Ok(launch.within(cluster.namespace(place).path()))
}

fn firsts(kind: &str) -> impl Iterator<Item = String> {
    plan::names().into_iter().filter(move |name| name.starts_with(kind) && plan::is_first(name))
}

fn broker(name: &str, address: std::net::Ipv4Addr, dc: &str) -> kafka::Node {
    let ports = Ports { client: KAFKA_PORT, inner: KAFKA_PORT + 1 };
    let voter =
        |name: String| format!("{}@{}:{}", plan::number(&name), plan::address(&name).ip(), ports.inner);
    kafka::Node {
        id: plan::number(name),
        address,
        ports,
        voters: firsts("kafka").map(voter).collect::<Vec<_>>().join(","),
        is_controller: plan::is_first(name),
        rack: Some(dc.to_owned()),
        copies: COPIES.0,
        copies_min: COPIES.1,
        session_ms: SESSION_MS,
        heap_mb: 300,
        access: kafka::Access::Open,
    }
}

fn node(name: &str, address: std::net::Ipv4Addr, dc: &str) -> cassandra::Node {
    let ports = Ports { client: CASSANDRA_PORT, inner: STORAGE_PORT };
    let seed = |name: String| format!("{}:{}", plan::address(&name).ip(), ports.inner);
    cassandra::Node {
        cluster: "dueline-cluster",
        address,
        ports,
        seeds: firsts("cassandra").map(seed).collect::<Vec<_>>().join(","),
        dc: dc.to_owned(),
        rack: format!("r{}", plan::number(name)),
        jvm: &cassandra::SMALL,
        access: cassandra::Access::Open,
        // Chaos kills a quorum at once: what was acknowledged has to be there after that.
        commit_log: cassandra::CommitLog::Batch,
        memtables: cassandra::Memtables::OnHeap,
        // A node that joins has Paxos repaired before, range by range and table by table: with 80 ranges that took minutes here.
        tokens: 4,
    }
}

/// Whether a server answers in its data centre. A node also has to know of all others.
pub(super) fn answers(cluster: &Cluster, state: &State, name: &str) -> bool {
    let Some(place) = plan::place(name) else { return false };
    let at = plan::address(name);
    let others = state.names().iter().filter(|other| !plan::is_kafka(other) && *other != name).count() as u64;
    let answer = cluster.namespace(place).within(|| match plan::is_kafka(name) {
        true => kafka::answers(at),
        false => Ok(cassandra::answers(at)? && cassandra::peers(at)? >= others),
    });
    answer.unwrap_or(false)
}

/// Prints whether a server runs, how many of its writes took longer, and where its log is.
pub(super) fn look(cluster: &Cluster, state: &State, name: &str) -> Result<()> {
    let word = if state.running(name).is_some() { "runs" } else { "ended" };
    let (dragged, log) = (drag::dragged(cluster, name), cluster.join(name).join("server.log"));
    say::data(format_args!("{name} {word} {dragged} {}", log.display()))
}

/// Kills a server, if it runs.
pub(super) fn kill(state: &State, name: &str) -> Result<()> {
    match state.running(name) {
        Some(process) => process.kill().map(|()| say::line(format_args!("{name} killed"))),
        None => Ok(()),
    }
}

/// Ends a server in good order, if it runs.
pub(super) fn stop(state: &State, name: &str) -> Result<()> {
    match state.running(name) {
        Some(process) => process.end(STOP_GRACE).map(|()| say::line(format_args!("{name} ended"))),
        None => Ok(()),
    }
}

/// Stops a server where it stands, or lets it go on.
pub(super) fn freeze(state: &State, name: &str, still: bool) -> Result<()> {
    let process = state.running(name).with_context(|| format!("{name} does not run"))?;
    process.freeze(still)?;
    say::line(format_args!("{name} {}", if still { "stands still" } else { "goes on" }));
    Ok(())
}

/// Has a server stand still nine tenths of the time, and lets it go on.
pub(super) fn slow(state: &State, name: &str, length: Duration) -> Result<()> {
    let process = state.running(name).with_context(|| format!("{name} does not run"))?;
    say::line(format_args!("{name} is slow"));
    let (still, runs) = (Duration::from_millis(SLOW_MS.0), Duration::from_millis(SLOW_MS.1));
    let begun = Instant::now();
    while begun.elapsed() < length {
        process.freeze(true)?;
        std::thread::sleep(still);
        process.freeze(false)?;
        std::thread::sleep(runs);
    }
    say::line(format_args!("{name} goes on"));
    Ok(())
}
