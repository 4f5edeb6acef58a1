//! `cargo xtask cluster`: three data centres on one machine, with six Kafka brokers and five Cassandra nodes, and a network
//! between them whose delay, loss and cuts can be changed while it runs.
//!
//! ```text
//!   home 10.77.0.1      producers, handlers, whoever looks on
//!     |
//!   router ---- dc1 10.77.1.x   kafka-1 (also controller), kafka-2, cassandra-1, cassandra-2
//!     |  \----- dc2 10.77.2.x   kafka-3 (also controller), kafka-4, cassandra-3, cassandra-4
//!     \-------- dc3 10.77.3.x   kafka-5 (also controller), kafka-6, cassandra-5
//! ```
//!
//! Each data centre is a network namespace. Every packet between two of them goes through the router, a process of this
//! program. All of it outlives the command that started it, until `down`. Linux and root only.

mod disk;
mod drag;
mod link;
pub(crate) mod network;
mod node_tool;
mod plan;
mod router;
mod servers;
mod setting;
mod shares;
mod state;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};

use crate::say;
use crate::servers::state::Cache;
use link::{Link, Wan};
use plan::Place;
use state::{Cluster, State};

/// What to do with the cluster.
#[derive(Debug, Args)]
#[command(after_help = "Example, a data centre lost and back again:\n  \
cargo xtask cluster up\n  cargo xtask cluster lose dc2\n  cargo xtask cluster status\n  \
cargo xtask cluster heal dc2\n  cargo xtask cluster down")]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the data centres and start all servers; print how they are reached
    Up {
        /// The network between data centres
        #[arg(long, value_enum, default_value = "wide")]
        wan: Wan,
        /// The first broker and the first node of each data centre alone; `start` has others join
        #[arg(long)]
        few: bool,
    },
    /// End everything and remove its data
    Down,
    /// Who answers, and the network; exit code 1 unless all answer
    Status,
    /// Change the network between two places (home, dc1, dc2, dc3), both ways
    Link(link::Wanted),
    /// Make the whole network as `up` made it
    Mend,
    /// No packet in or out of these data centres
    Cut { dcs: Vec<Place> },
    /// Packets in and out of these data centres again
    Open { dcs: Vec<Place> },
    /// Deal all partitions anew to all brokers that were started, as Kafka's own tool proposes it
    Spread,
    /// SIGKILL servers (kafka-1, cassandra-3, … or all of a data centre: dc2), keeping their data
    Kill { names: Vec<String> },
    /// End servers in good order, keeping their data
    Stop { names: Vec<String> },
    /// Start servers again, with their data; a wiped Cassandra node takes its own place and gets it from the others
    Start {
        names: Vec<String>,
        /// Another setting of server.properties or cassandra.yaml, until the next start; without a value it is left out
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<setting::Setting>,
        /// A wiped Cassandra node takes its own place and nothing from the others: rows are missing there, as `dueline doctor` has to see
        #[arg(long)]
        empty: bool,
    },
    /// SIGSTOP servers nine tenths of the time, for so long
    Slow {
        names: Vec<String>,
        /// Milliseconds
        #[arg(long, default_value_t = 10_000)]
        for_ms: u64,
    },
    /// Have each write of servers to their disk take so much longer, and each sync fifty times that; a server that was not started
    /// for it is ended and started first
    Drag {
        names: Vec<String>,
        /// Milliseconds; 0 = as fast as it is
        #[arg(long)]
        ms: u32,
    },
    /// Give servers a small disk each (in memory), with their data on it; they are ended and started for it
    Confine { names: Vec<String> },
    /// Take all room that is left on small disks; prints the bytes that are left then
    Fill { names: Vec<String> },
    /// Give servers with a small disk their large one back, with their data; they are killed for it
    Empty { names: Vec<String> },
    /// Print of servers whether they run, how many of their writes took longer, and where their log is
    Look { names: Vec<String> },
    /// Have a Cassandra node and all others that are up give each other what they lack of a keyspace: `nodetool repair --full --force`
    Repair {
        name: String,
        #[arg(long)]
        keyspace: String,
    },
    /// Remove the data of servers that do not run
    Wipe { names: Vec<String> },
    /// SIGSTOP servers
    Freeze { names: Vec<String> },
    /// SIGCONT servers; those that do not run are left out
    Thaw { names: Vec<String> },
    /// Lose data centres whole: cut them off and kill their servers
    Lose { dcs: Vec<Place> },
    /// Get lost data centres back: start their servers and open the network
    Heal { dcs: Vec<Place> },
    /// The process that carries packets
    #[command(hide = true)]
    Router(router::Options),
}

/// Runs `cargo xtask cluster`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    if let Action::Router(options) = options.action {
        return router::run(&options).map(|()| ExitCode::SUCCESS);
    }
    possible()?;
    let cluster = Cluster::open(&Cache::open()?)?;
    match options.action {
        Action::Up { wan, few } => up(&cluster, wan, few)?,
        Action::Spread => {
            let _held = cluster.lock()?;
            shares::deal(&cluster, &loaded(&cluster)?)?;
        }
        Action::Down => down(&cluster)?,
        Action::Status => return status(&cluster),
        Action::Link(wanted) => tell_links(&router::ask(&cluster.socket(), &wanted.changes(&cluster)?)?)?,
        Action::Mend => {
            let state = loaded(&cluster)?;
            tell_links(&router::ask(&cluster.socket(), &state.wan.changes())?)?;
        }
        Action::Cut { dcs } => reach(&cluster, &dcs, false)?,
        Action::Open { dcs } => reach(&cluster, &dcs, true)?,
        Action::Kill { names } => each(&cluster, &names, servers::kill)?,
        Action::Stop { names } => each(&cluster, &names, servers::stop)?,
        Action::Start { names, set, empty } => {
            start(&cluster, &named(&names)?, &servers::Otherwise { set: &set, empty })?;
        }
        Action::Slow { names, for_ms } => {
            each(&cluster, &names, |state, name| servers::slow(state, name, Duration::from_millis(for_ms)))?;
        }
        Action::Drag { names, ms } => drag(&cluster, &named(&names)?, ms)?,
        Action::Confine { names } => confine(&cluster, &named(&names)?)?,
        Action::Fill { names } => each(&cluster, &names, |_, name| disk::fill(&cluster, name))?,
        Action::Look { names } => each(&cluster, &names, |state, name| servers::look(&cluster, state, name))?,
        Action::Empty { names } => {
            each(&cluster, &names, |state, name| match disk::is_small(&cluster, name) {
                true => servers::kill(state, name).and_then(|()| disk::empty(&cluster, name)),
                false => Ok(()),
            })?
        }
        Action::Repair { name, keyspace } => {
            let _held = cluster.lock()?;
            node_tool::repair(&cluster, &loaded(&cluster)?, &name, &keyspace)?;
        }
        Action::Wipe { names } => each(&cluster, &names, |state, name| {
            ensure!(state.running(name).is_none(), "{name} runs: `cargo xtask cluster kill {name}` first");
            disk::wipe(&cluster, name)
        })?,
        Action::Freeze { names } => each(&cluster, &names, |state, name| servers::freeze(state, name, true))?,
        Action::Thaw { names } => each(&cluster, &names, |state, name| match state.running(name) {
            Some(_) => servers::freeze(state, name, false),
            None => Ok(()),
        })?,
        Action::Lose { dcs } => {
            reach(&cluster, &dcs, false)?;
            each(&cluster, &words(&dcs), servers::kill)?;
        }
        Action::Heal { dcs } => {
            reach(&cluster, &dcs, true)?;
            let state = loaded(&cluster)?;
            let here = named(&words(&dcs))?.into_iter().filter(|name| !state.joins(name));
            start(&cluster, &here.collect::<Vec<_>>(), &servers::AS_PLANNED)?;
        }
        Action::Router(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether data centres can be made here; why not, otherwise, and what to do instead.
pub(crate) fn possible() -> Result<()> {
    let instead = "`cargo xtask servers up` starts one Kafka and one Cassandra anywhere";
    if !cfg!(target_os = "linux") {
        bail!("data centres on one machine are network namespaces, which are Linux's; {instead}");
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "making network namespaces needs root: run it as root, or with sudo; {instead}"
    );
    ensure!(std::path::Path::new("/dev/net/tun").exists(), "there is no /dev/net/tun here; {instead}");
    Ok(())
}

fn up(cluster: &Cluster, wan: Wan, few: bool) -> Result<()> {
    let _held = cluster.lock()?;
    if let Some(state) = cluster.load()?
        && !state.router_runs()
    {
        say::line("what is left of an earlier cluster is removed");
        clear(cluster, &state)?;
    }
    let known = cluster.load()?;
    let is_whole = |state: &State| !state.few || state.names() == plan::names();
    ensure!(
        few || known.as_ref().is_none_or(is_whole),
        "the cluster that runs was made with few servers, and not all have joined: `cargo xtask cluster down` first"
    );
    let is_new = known.is_none();
    let mut state = match known {
        Some(state) => state,
        None => make(cluster, wan, few)?,
    };
    let names = state.names();
    if let Err(error) = servers::start(cluster, &mut state, &names, &servers::AS_PLANNED) {
        if is_new {
            say::line("it could not be started whole: what was started is ended");
            clear(cluster, &state)?;
        }
        return Err(error);
    }
    let addresses = plan::addresses();
    say::data(format_args!("KAFKA={}\nCASSANDRA={}", addresses.kafka, addresses.cassandra))?;
    for place in Place::ALL {
        let word = place.word().to_uppercase();
        say::data(format_args!("NET_{word}={}", cluster.namespace(place).path().display()))?;
    }
    Ok(())
}

/// The network, without servers yet. Nothing of it stays when it cannot be made whole.
fn make(cluster: &Cluster, wan: Wan, few: bool) -> Result<State> {
    let router = (|| {
        for place in Place::ALL {
            cluster.namespace(place).make(&plan::hosts(place))?;
        }
        router::start(cluster)
    })();
    let router = match router {
        Ok(router) => router,
        Err(error) => {
            for place in Place::ALL {
                cluster.namespace(place).remove()?;
            }
            return Err(error);
        }
    };
    let state = State { router, wan, few, servers: std::collections::BTreeMap::new() };
    let ready = cluster.save(&state).and_then(|()| router::ask(&cluster.socket(), &wan.changes()));
    if let Err(error) = ready {
        clear(cluster, &state)?;
        return Err(error);
    }
    Ok(state)
}

fn down(cluster: &Cluster) -> Result<()> {
    let _held = cluster.lock()?;
    match cluster.load()? {
        Some(state) => clear(cluster, &state),
        None => {
            say::line("no cluster");
            Ok(())
        }
    }
}

fn clear(cluster: &Cluster, state: &State) -> Result<()> {
    for name in state.servers.keys() {
        servers::kill(state, name)?;
    }
    state.router.kill()?;
    for place in Place::ALL {
        cluster.namespace(place).remove()?;
    }
    cluster.clear()
}

/// The servers that names stand for: their own, or all of a data centre.
fn named(names: &[String]) -> Result<Vec<String>> {
    ensure!(!names.is_empty(), "name servers (kafka-1, cassandra-1, …) or data centres (dc1, …)");
    let mut found = BTreeSet::new();
    for name in names {
        let of: Vec<String> = plan::names()
            .into_iter()
            .filter(|server| server == name || plan::place(server).is_some_and(|place| place.word() == name))
            .collect();
        ensure!(
            !of.is_empty(),
            "no server or data centre is named {name:?}; there are {}, dc1, dc2 and dc3",
            plan::names().join(", ")
        );
        found.extend(of);
    }
    Ok(found.into_iter().collect())
}

fn words(dcs: &[Place]) -> Vec<String> {
    dcs.iter().map(|dc| dc.word().to_owned()).collect()
}

fn loaded(cluster: &Cluster) -> Result<State> {
    let state = cluster.load()?.context("there is no cluster: `cargo xtask cluster up` makes one")?;
    ensure!(state.router_runs(), "the cluster's router has ended: `cargo xtask cluster up` makes it anew");
    Ok(state)
}

/// Does something to servers, all at once.
fn each(cluster: &Cluster, names: &[String], act: impl Fn(&State, &str) -> Result<()> + Sync) -> Result<()> {
    let _held = cluster.lock()?;
    let (state, names) = (loaded(cluster)?, named(names)?);
    std::thread::scope(|scope| {
        let (state, act) = (&state, &act);
        let acts: Vec<_> = names.iter().map(|name| scope.spawn(move || act(state, name))).collect();
        acts.into_iter().try_for_each(|act| act.join().unwrap_or_else(|_| bail!("a thread panicked")))
    })
}

fn start(cluster: &Cluster, names: &[String], otherwise: &servers::Otherwise<'_>) -> Result<()> {
    let _held = cluster.lock()?;
    let mut state = loaded(cluster)?;
    servers::start(cluster, &mut state, names, otherwise)
}

/// Those that have a small disk keep it.
fn confine(cluster: &Cluster, names: &[String]) -> Result<()> {
    let large: Vec<String> = names.iter().filter(|name| !disk::is_small(cluster, name)).cloned().collect();
    if large.is_empty() {
        return Ok(());
    }
    each(cluster, &large, servers::stop)?;
    each(cluster, &large, |_, name| disk::confine(cluster, name))?;
    start(cluster, &large, &servers::AS_PLANNED)
}

/// Those that may be slow already go on as they run. What is as fast as it is need not be started anew for it.
fn drag(cluster: &Cluster, names: &[String], ms: u32) -> Result<()> {
    let (slow, others): (Vec<String>, Vec<String>) =
        names.iter().cloned().partition(|name| drag::may_be(cluster, name));
    if ms > 0 && !others.is_empty() {
        each(cluster, &others, servers::stop)?;
        // It is slow from its start, or it would be started as others are.
        each(cluster, &others, |_, name| drag::set(cluster, name, 1))?;
        start(cluster, &others, &servers::AS_PLANNED)?;
    }
    let all = if ms > 0 { names } else { &slow[..] };
    all.iter().try_for_each(|name| drag::set(cluster, name, ms))
}

/// Cuts data centres off from all other places, or opens every way to them. What each way is like stays.
fn reach(cluster: &Cluster, dcs: &[Place], open: bool) -> Result<()> {
    ensure!(!dcs.is_empty(), "name data centres: dc1, dc2, dc3");
    loaded(cluster)?;
    let is_of = |link: &Link| dcs.contains(&link.from) || dcs.contains(&link.to);
    let links = router::ask(&cluster.socket(), &[])?;
    let changes: Vec<Link> =
        links.into_iter().filter(is_of).map(|link| Link { cut: !open, ..link }).collect();
    router::ask(&cluster.socket(), &changes)?;
    let now = if open { "can be reached" } else { "is cut off" };
    say::line(format_args!("{} {now}", words(dcs).join(", ")));
    Ok(())
}

fn status(cluster: &Cluster) -> Result<ExitCode> {
    let Some(state) = cluster.load()? else {
        say::line("no cluster");
        return Ok(ExitCode::FAILURE);
    };
    let mut all = state.router_runs();
    say::data(if all { "router runs" } else { "router has ended" })?;
    for name in state.names() {
        let answers = servers::answers(cluster, &state, &name);
        let runs = state.running(&name);
        all &= answers;
        let word = match (runs, answers) {
            (_, true) => "answers",
            (Some(_), false) => "runs and does not answer",
            (None, false) => "does not run",
        };
        say::data(format_args!("{name} {} {word}", plan::address(&name)))?;
    }
    if state.router_runs() {
        tell_links(&router::ask(&cluster.socket(), &[])?)?;
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell_links(links: &[Link]) -> Result<()> {
    links.iter().filter(|link| link.from != link.to).try_for_each(say::data)
}
