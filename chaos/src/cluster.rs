//! The data centres of `cargo xtask cluster`: made for a run unless they are there, and told what to lose. What this program
//! made ends with its value.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::network::Inside;
use crate::say;

/// Their names. The third byte of an address is a data centre's number.
pub(crate) const DCS: [&str; 3] = ["dc1", "dc2", "dc3"];
/// Its servers.
pub(crate) const BROKERS: [&str; 6] = ["kafka-1", "kafka-2", "kafka-3", "kafka-4", "kafka-5", "kafka-6"];
pub(crate) const NODES: [&str; 5] =
    ["cassandra-1", "cassandra-2", "cassandra-3", "cassandra-4", "cassandra-5"];
/// Of those that have a row so many have to answer.
pub(crate) const QUORUM: usize = 3;
/// The last byte of an instance's address begins here; there are this many for instances.
const INSTANCE_HOST: u8 = 21;
pub(crate) const INSTANCES_MAX: usize = 9;
const HANDLER_HOST: u8 = 31;
/// Where instances listen.
const HTTP_PORT: u16 = 7_421;

/// A cluster that answers.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) kafka: String,
    pub(crate) cassandra: String,
    /// The network outside of all data centres.
    pub(crate) home: PathBuf,
    networks: BTreeMap<String, PathBuf>,
    /// It was not there before, or had ended.
    started: bool,
}

/// The data centres from within.
#[derive(Debug, Default)]
pub(crate) struct Insides(BTreeMap<String, Inside>);

impl Cluster {
    /// Makes it where it is not there, and has one that is there be whole. Takes a minute. With `few` it is made with the first servers
    /// of each data centre alone, and may not be there.
    pub(crate) fn up(few: bool) -> Result<Cluster> {
        let found = Found::look()?;
        ensure!(!few || !found.runs, "there is a cluster that has grown: `cargo xtask cluster down` first");
        if found.runs {
            // First: what is frozen or cut off would be waited for in vain.
            found.mend()?;
        }
        let up = run(if few { &["up", "--few"] } else { &["up"] }, Stdio::inherit())?;
        let made = Cluster::made(&up, !found.runs);
        // What says why it failed has left nothing; what was broken off has.
        let is_left = !found.runs && (up.status.success() || up.status.code().is_none());
        if made.is_err() && is_left {
            end();
        }
        made
    }

    fn made(up: &Output, started: bool) -> Result<Cluster> {
        ensure!(up.status.success(), "`cargo xtask cluster up` failed; its messages are above");
        let said = String::from_utf8_lossy(&up.stdout).into_owned();
        let value = |name: &str| -> Result<String> {
            let found = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            Ok(found.with_context(|| format!("`cargo xtask cluster up` did not say {name}"))?.to_owned())
        };
        let network = |place: &str| value(&format!("NET_{}", place.to_uppercase())).map(PathBuf::from);
        let (kafka, cassandra, home) = (value("KAFKA")?, value("CASSANDRA")?, network("home")?);
        let networks: Result<BTreeMap<String, PathBuf>> =
            DCS.iter().map(|dc| Ok(((*dc).to_owned(), network(dc)?))).collect();
        let networks = networks?;
        Ok(Cluster { kafka, cassandra, home, networks, started })
    }

    /// Goes into each data centre, and listens there for handlers.
    pub(crate) async fn enter(&self) -> Result<(Insides, BTreeMap<String, TcpListener>)> {
        let (mut insides, mut listeners) = (Insides::default(), BTreeMap::new());
        for (dc, path) in &self.networks {
            let handlers = SocketAddr::from((address(dc, HANDLER_HOST)?, 0));
            let (inside, listener) = Inside::enter(path.clone(), handlers).await?;
            insides.0.insert(dc.clone(), inside);
            listeners.insert(dc.clone(), listener);
        }
        Ok((insides, listeners))
    }
}

impl Drop for Cluster {
    /// Ends it when this program made it; else mends what a run that was broken off may have left: frozen servers, dead ones,
    /// cuts.
    fn drop(&mut self) {
        if self.started {
            end();
        } else if !made_whole() {
            say::line(format_args!("the cluster may not be whole: {STATUS}"));
        }
    }
}

fn end() {
    if !done(&["down"]) {
        say::line(format_args!("the cluster that was started may still run: {STATUS}"));
    }
}

/// What there is before a run.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// What carries the packets runs. Without it nothing is left of a cluster but its data, and `up` makes it anew.
    runs: bool,
    /// Servers that do not answer.
    silent: Vec<String>,
}

impl Found {
    fn look() -> Result<Found> {
        let status = run(&["status"], Stdio::null())?;
        // Without its answer a cluster of somebody else's would be taken for one that this program made, and ended.
        ensure!(status.status.code().is_some(), "{STATUS} was broken off");
        Ok(Found::read(&String::from_utf8_lossy(&status.stdout)))
    }

    fn read(said: &str) -> Found {
        let is_silent = |name: &str| of(said, name).is_some_and(|rest| !rest.ends_with(" answers"));
        let silent = BROKERS.iter().chain(&NODES).filter(|name| is_silent(name));
        let silent = silent.map(|name| (*name).to_owned()).collect();
        Found { runs: of(said, "router") == Some("runs"), silent }
    }

    /// Has a cluster that runs be whole.
    fn mend(&self) -> Result<()> {
        if !self.silent.is_empty() {
            let silent = self.silent.join(", ");
            say::line(format_args!("the cluster runs without an answer of {silent}: brought back first"));
        }
        if !made_whole() {
            let silent = match &Found::look()?.silent[..] {
                [] => "though all servers answer".to_owned(),
                silent => format!("without an answer of {}", silent.join(", ")),
            };
            bail!(
                "the cluster that runs could not be made whole, {silent}; the messages above say why. \
                 `cargo xtask cluster down` removes it with its data, and the next run makes it anew"
            );
        }
        Ok(())
    }
}

const STATUS: &str = "`cargo xtask cluster status`";

/// Undoes whatever faults were left: frozen servers, slow and small disks, a network that is not what it was made as, servers that
/// are down.
pub(crate) fn made_whole() -> bool {
    let dcs = |verb| [&[verb], &DCS[..]].concat();
    let fast = [dcs("drag"), vec!["--ms", "0"]].concat();
    let all = [dcs("thaw"), fast, vec!["mend"], dcs("empty"), dcs("heal")];
    // Each is tried, whatever became of the one before.
    all.map(|arguments| done(&arguments)).into_iter().all(|done| done)
}

fn done(arguments: &[&str]) -> bool {
    run(arguments, Stdio::inherit()).is_ok_and(|output| output.status.success())
}

impl Insides {
    pub(crate) fn of(&self, dc: &str) -> Result<&Inside> {
        self.0.get(dc).with_context(|| format!("there is no data centre {dc}"))
    }
}

/// Whether a server is the first of its kind in its data centre.
pub(crate) fn is_first(server: &str) -> bool {
    let index = |all: &[&str]| all.iter().position(|one| *one == server);
    index(&BROKERS).or_else(|| index(&NODES)).is_some_and(|index| index % 2 == 0)
}

/// The data centre of a server: two of a kind in each, in the order of their numbers.
pub(crate) fn dc_of(server: &str) -> &'static str {
    let index = |all: &[&str]| all.iter().position(|one| *one == server);
    index(&BROKERS).or_else(|| index(&NODES)).and_then(|index| DCS.get(index / 2)).copied().unwrap_or("")
}

/// The data centre of an instance, in turn by the number in its name, and where it listens.
pub(crate) fn spot(instance: &str) -> Result<(&'static str, SocketAddr)> {
    let number: Option<usize> = instance.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
    let index =
        number.and_then(|number| number.checked_sub(1)).with_context(|| format!("a number in {instance}"))?;
    ensure!(index < INSTANCES_MAX, "there is room for {INSTANCES_MAX} instances only");
    let dc = DCS[index % DCS.len()];
    let host = INSTANCE_HOST + u8::try_from(index / DCS.len())?;
    Ok((dc, (address(dc, host)?, HTTP_PORT).into()))
}

fn address(dc: &str, host: u8) -> Result<Ipv4Addr> {
    let number = DCS.iter().position(|one| *one == dc).with_context(|| format!("there is no {dc}"))?;
    Ok(Ipv4Addr::new(10, 77, u8::try_from(number)? + 1, host))
}

/// A server, as its machine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) runs: bool,
    /// Writes and syncs of its data that took longer since it was started.
    pub(crate) dragged: u64,
    pub(crate) log: PathBuf,
}

impl Look {
    fn read(said: &str, name: &str) -> Option<Look> {
        let mut words = of(said, name)?.splitn(3, ' ');
        let runs = words.next()? == "runs";
        Some(Look { runs, dragged: words.next()?.parse().ok()?, log: words.next()?.into() })
    }
}

/// Looks at a server.
pub(crate) async fn look(name: &str) -> Result<Look> {
    let said = ask(&["look", name]).await?;
    Look::read(&said, name).with_context(|| format!("`cargo xtask cluster look {name}` said {said:?}"))
}

/// Takes all room on the small disk of a server; how many bytes were left then.
pub(crate) async fn fill(name: &str) -> Result<u64> {
    let said = ask(&["fill", name]).await?;
    let left: Option<u64> = of(&said, name).and_then(|left| left.parse().ok());
    left.with_context(|| format!("`cargo xtask cluster fill {name}` said {said:?}"))
}

/// What is said of a server: the rest of its line.
fn of<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

/// Does something to the cluster, as `cargo xtask cluster` would.
pub(crate) async fn act(arguments: &[&str]) -> Result<()> {
    ask(arguments).await.map(drop)
}

/// The same; what it printed.
async fn ask(arguments: &[&str]) -> Result<String> {
    let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
    let what = arguments.join(" ");
    let done = tokio::task::spawn_blocking(move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run(&arguments, Stdio::inherit())
    });
    let output = done.await??;
    ensure!(output.status.success(), "`cargo xtask cluster {what}` failed; its messages are above");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run(arguments: &[&str], errors: Stdio) -> Result<Output> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // What carries the packets is as fast as this program.
    let release: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
    Command::new(cargo)
        .current_dir(crate::servers::workspace())
        .args(["run", "--quiet", "--package", "xtask"])
        .args(release)
        .args(["--", "cluster"])
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(errors)
        .output()
        .context("running cargo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_spread_over_data_centres_with_addresses_of_their_own() {
        let spots: Vec<_> = (1..=6).map(|n| spot(&format!("i-{n}")).expect("a spot")).collect();
        assert_eq!(
            spots.iter().map(|(dc, _)| *dc).collect::<Vec<_>>(),
            ["dc1", "dc2", "dc3", "dc1", "dc2", "dc3"]
        );
        assert_eq!(spots[4].1.to_string(), "10.77.2.22:7421");
        assert_eq!(
            ["kafka-1", "kafka-4", "cassandra-4", "cassandra-5"].map(dc_of),
            ["dc1", "dc2", "dc2", "dc3"]
        );
        assert!(spot("i-10").is_err() && spot("i-0").is_err() && spot("i").is_err());
    }

    #[test]
    fn a_cluster_that_died_does_not_run_and_one_that_runs_names_who_is_silent() {
        let found = |runs: bool, silent: &[&str]| {
            let silent = silent.iter().map(|name| (*name).to_owned()).collect();
            Found { runs, silent }
        };
        let whole = "router runs\nkafka-1 10.77.1.1:9092 answers\ndc1 -> dc2: 7.5 ms, up to 0.375 ms more\n";
        assert_eq!(Found::read(whole), found(true, &[]));
        let frozen = "cassandra-5 10.77.3.11:9042 runs and does not answer\n";
        let dead = "kafka-2 10.77.1.2:9092 does not run\n";
        let said = format!("{whole}{frozen}{dead}");
        assert_eq!(Found::read(&said), found(true, &["kafka-2", "cassandra-5"]));
        let died = "router has ended\nkafka-2 10.77.1.2:9092 does not run\n";
        assert_eq!(Found::read(died), found(false, &["kafka-2"]));
        assert_eq!(Found::read(""), found(false, &[]));
    }

    #[test]
    fn a_look_at_a_server_is_read_from_its_own_line() {
        let said = "kafka-1 ended 0 /a/kafka-1/server.log\nkafka-2 runs 7 /a folder/server.log\n";
        let look = |name: &str| Look::read(said, name).map(|look| (look.runs, look.dragged, look.log));
        assert_eq!(look("kafka-2"), Some((true, 7, "/a folder/server.log".into())));
        assert_eq!(look("kafka-1"), Some((false, 0, "/a/kafka-1/server.log".into())));
        assert_eq!((look("kafka-3"), look("kafka")), (None, None));
    }
}
