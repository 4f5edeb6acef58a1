//! `cargo xtask servers`: one real Kafka and one real Cassandra on loopback, from their published
//! jars, without containers.
//!
//! Every command is idempotent and works on the run folder of this checkout (or `--dir`). Servers
//! outlive the command that started them; only `down`, `stop` and `kill` end them, and only
//! processes that this run recorded. With `--secured` it is another pair, in a run folder of its own, that asks for TLS,
//! passwords and rights.
//!
//! ```text
//!   (none) --up--> running --stop|kill--> ended, data kept --start|up--> running --down--> (none)
//! ```

pub(crate) mod cassandra;
pub(crate) mod jars;
pub(crate) mod kafka;
mod pair;
pub(crate) mod ports;
pub(crate) mod process;
mod secured;
pub(crate) mod state;

use crate::{packages, say};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
pub(crate) use pair::{Kind, Pair, Up};
use ports::Ports;
use process::Site;
use secured::{Certificate, Secured};
use state::{Cache, Run, Server, State};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const KAFKA_PORT_DEFAULT: u16 = 19_092;
const CASSANDRA_PORT_DEFAULT: u16 = 19_042;
const READY_WAIT_MAX: Duration = Duration::from_secs(180);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(100);
const STOP_GRACE: Duration = Duration::from_secs(30);
const LOG_TAIL_LINES: usize = 20;

/// What to do with the servers.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
    /// Run folder with data, logs and state [default: one for this checkout in the cache,
    /// `.servers/` or DUELINE_SERVERS_DIR]
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
    /// The other pair of this checkout: TLS, users with passwords, rights
    #[arg(long, global = true, conflicts_with = "dir")]
    secured: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Fetch and start both; print KAFKA=host:port and CASSANDRA=host:port once they answer, and with --secured TLS=folder
    Up(Wanted),
    /// End both and remove their data
    Down,
    /// Print the addresses of those that answer; exit 1 unless both do
    Status,
    /// Start one again, on its port and with its data
    Start { server: Kind },
    /// End one in good order, keeping its data
    Stop { server: Kind },
    /// SIGKILL one, keeping its data
    Kill { server: Kind },
    /// Start both again with another certificate; of a secured pair only
    Certify { certificate: Certificate },
    /// Fetch the jars anew and write their checksums to xtask/servers.sha256
    Pin,
}

/// Ports asked for.
#[derive(Debug, Default, Args)]
pub(crate) struct Wanted {
    /// Kafka's port; its controller takes the next [default: 19092, or another if taken]
    #[arg(long)]
    kafka_port: Option<u16>,
    /// Cassandra's port; its storage port is the next [default: 19042, or another if taken]
    #[arg(long)]
    cassandra_port: Option<u16>,
}

/// Runs `cargo xtask servers`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let cache = Cache::open()?;
    if matches!(options.action, Action::Pin) {
        let _held = cache.lock()?;
        jars::pin(&cache)?;
        return Ok(ExitCode::SUCCESS);
    }
    let run = match options.secured {
        true => Pair::Secured.run(&cache)?,
        false => Run::open(&cache, options.dir.as_deref())?,
    };
    match options.action {
        Action::Up(wanted) => {
            let pair = if options.secured { Pair::Secured } else { Pair::Plain };
            let up = bring_up(&cache, pair, run, &wanted)?;
            say::data(format_args!("KAFKA={}\nCASSANDRA={}", up.kafka, up.cassandra))?;
            if let Some(tls) = up.tls {
                say::data(format_args!("TLS={}", tls.display()))?;
            }
        }
        Action::Down => take_down(&run)?,
        Action::Status => return status(&run),
        Action::Start { server } => start(&cache, &run, server)?,
        Action::Stop { server } => end(&run, server, End::InGoodOrder)?,
        Action::Kill { server } => end(&run, server, End::AtOnce)?,
        Action::Certify { certificate } => certify(&cache, &run, certificate)?,
        Action::Pin => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts what does not run of a pair of this checkout and waits until both answer.
pub(crate) fn up(pair: Pair) -> Result<Up> {
    let cache = Cache::open()?;
    let run = pair.run(&cache)?;
    bring_up(&cache, pair, run, &Wanted::default())
}

/// Ends what `up` started; with it the data, unless one of the servers ran before.
pub(crate) fn end_started(up: &Up) -> Result<()> {
    if up.started.len() == Kind::ALL.len() {
        return take_down(&up.run);
    }
    up.started.iter().try_for_each(|kind| end(&up.run, *kind, End::InGoodOrder))
}

fn bring_up(cache: &Cache, pair: Pair, run: Run, wanted: &Wanted) -> Result<Up> {
    // The cache is held until the ports are bound, so that no other run settles on them.
    let held = (run.lock()?, cache.lock()?);
    if pair == Pair::Secured {
        Secured::make(&run)?;
    }
    let mut state = reserve(cache, &run, wanted)?;
    let started = launch_both(cache, &run, &mut state)?;
    drop(held);
    let (kafka, cassandra) = (address(state.kafka.ports), address(state.cassandra.ports));
    Ok(Up { kafka, cassandra, tls: Secured::of(&run).map(|secured| secured.dir().to_owned()), started, run })
}

/// Starts what does not run and waits for both; those that were started. The caller holds run and cache.
fn launch_both(cache: &Cache, run: &Run, state: &mut State) -> Result<Vec<Kind>> {
    let mut sites = Vec::new();
    for kind in Kind::ALL {
        sites.push((kind, site(cache, run, kind)?));
    }
    let started: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| state.server(*kind).running().is_none()).collect();
    let mut launch_all = || {
        sites.iter().try_for_each(|(kind, site)| launch(run, state, *kind, site))?;
        sites.iter().try_for_each(|(kind, site)| wait_ready(run, state, *kind, site))
    };
    if let Err(error) = launch_all() {
        // Half a pair is of no use; its logs stay.
        for kind in started.into_iter().filter(|kind| state.server(*kind).running().is_some()) {
            end_process(state, kind, End::AtOnce)?;
        }
        return Err(error);
    }
    Ok(started)
}

/// Has both show another certificate.
fn certify(cache: &Cache, run: &Run, certificate: Certificate) -> Result<()> {
    let _held = (run.lock()?, cache.lock()?);
    let secured = Secured::of(run).context("this pair has no certificates: use `servers --secured up`")?;
    let mut state: State = run.load()?.context("nothing runs here: use `servers --secured up`")?;
    secured.show(certificate)?;
    end_both(&state)?;
    launch_both(cache, run, &mut state).map(drop)
}

/// The state with ports settled and written. They stay this run's while its servers are stopped.
fn reserve(cache: &Cache, run: &Run, wanted: &Wanted) -> Result<State> {
    let old: Option<State> = run.load()?;
    let kept = ports::kept(cache.other_states(run).iter());
    let settle = |kind, wanted: Option<u16>, default| -> Result<Server> {
        match (old.as_ref().map(|state| state.server(kind)), wanted) {
            (Some(server), wanted) if server.running().is_some() => match wanted {
                Some(port) if port != server.ports.client => {
                    bail!(
                        "{} already runs on port {}: end it with `down` first",
                        kind.name(),
                        server.ports.client
                    )
                }
                _ => Ok(server.clone()),
            },
            (_, Some(port)) => Ports::at(port).map(Server::new),
            (Some(server), None) if server.ports.taken().is_none() => Ok(server.clone()),
            (_, None) => Ports::pick(default, &kept).map(Server::new),
        }
    };
    let state = State {
        kafka: settle(Kind::Kafka, wanted.kafka_port, KAFKA_PORT_DEFAULT)?,
        cassandra: settle(Kind::Cassandra, wanted.cassandra_port, CASSANDRA_PORT_DEFAULT)?,
    };
    run.save(&state)?;
    Ok(state)
}

/// Where a server lives. The caller holds the cache.
fn site(cache: &Cache, run: &Run, kind: Kind) -> Result<Site> {
    let java = packages::java()?;
    let jars = jars::ensure(cache, kind.bundle())?;
    let dir = run.join(kind.name());
    state::make_dir(&dir)?;
    Ok(Site { java, jars, dir })
}

/// Starts one server unless it runs, and records its process at once.
fn launch(run: &Run, state: &mut State, kind: Kind, site: &Site) -> Result<()> {
    let server = state.server_mut(kind);
    if server.running().is_some() {
        return Ok(());
    }
    if let Some(port) = server.ports.taken() {
        bail!("{} cannot start: something else listens on 127.0.0.1:{port}", kind.name());
    }
    if !site.dir.join("data").exists() {
        state::remove_file(&site.log())?;
    }
    let secured = Secured::of(run);
    let launch = match kind {
        Kind::Kafka => {
            let access = secured.map_or(kafka::Access::Open, kafka::Access::Only);
            kafka::prepare(site, &kafka::Node { access, ..kafka::Node::alone(server.ports) })?
        }
        Kind::Cassandra => {
            let alone = cassandra::Node::alone(server.ports);
            let jvm = if secured.is_some() { &cassandra::SMALL } else { alone.jvm };
            let access = secured.map_or(cassandra::Access::Open, cassandra::Access::Secured);
            cassandra::prepare(site, &cassandra::Node { access, jvm, ..alone })?
        }
    };
    let marker = format!("-Ddueline.servers.run={}", site.dir.display());
    let process = launch.start(&marker)?;
    say::line(format_args!(
        "{} starts as process {}, log {}",
        kind.name(),
        process.pid,
        site.log().display()
    ));
    server.process = Some(process);
    run.save(state)
}

fn wait_ready(run: &Run, state: &State, kind: Kind, site: &Site) -> Result<()> {
    let server = state.server(kind);
    let begun = Instant::now();
    while !kind.answers(run, server.ports.client) {
        if server.running().is_none() {
            bail!("{} ended while starting; its log ends with:\n{}", kind.name(), log_tail(site));
        }
        if begun.elapsed() > READY_WAIT_MAX {
            bail!(
                "{} does not answer after {READY_WAIT_MAX:?}; its log ends with:\n{}",
                kind.name(),
                log_tail(site)
            );
        }
        std::thread::sleep(READY_POLL_INTERVAL);
    }
    say::line(format_args!("{} answers on {}", kind.name(), address(server.ports)));
    Ok(())
}

fn take_down(run: &Run) -> Result<()> {
    let _held = run.lock()?;
    if let Some(state) = run.load::<State>()? {
        end_both(&state)?;
    }
    run.clear()
}

/// Both at once: each may take seconds.
fn end_both(state: &State) -> Result<()> {
    let (kafka, cassandra) = std::thread::scope(|scope| {
        let kafka = scope.spawn(|| end_process(state, Kind::Kafka, End::InGoodOrder));
        let cassandra = end_process(state, Kind::Cassandra, End::InGoodOrder);
        (kafka.join(), cassandra)
    });
    kafka.unwrap_or_else(|_| bail!("the thread that ends Kafka panicked"))?;
    cassandra
}

fn start(cache: &Cache, run: &Run, kind: Kind) -> Result<()> {
    let _held = run.lock()?;
    let mut state: State = run.load()?.context("nothing to start again: use `cargo xtask servers up`")?;
    let site = {
        let _held = cache.lock()?;
        site(cache, run, kind)?
    };
    launch(run, &mut state, kind, &site)?;
    wait_ready(run, &state, kind, &site)
}

#[derive(Clone, Copy)]
enum End {
    /// SIGTERM, and SIGKILL for one that does not obey.
    InGoodOrder,
    /// SIGKILL.
    AtOnce,
}

fn end(run: &Run, kind: Kind, how: End) -> Result<()> {
    let _held = run.lock()?;
    let state: State = run.load()?.context("nothing was started here: use `cargo xtask servers up`")?;
    end_process(&state, kind, how)
}

fn end_process(state: &State, kind: Kind, how: End) -> Result<()> {
    let Some(process) = state.server(kind).running() else {
        say::line(format_args!("{} does not run", kind.name()));
        return Ok(());
    };
    match how {
        End::InGoodOrder => process.end(STOP_GRACE)?,
        End::AtOnce => process.kill()?,
    }
    say::line(format_args!("{} ended", kind.name()));
    Ok(())
}

fn status(run: &Run) -> Result<ExitCode> {
    let Some(state) = run.load::<State>()? else {
        say::line("no servers");
        return Ok(ExitCode::FAILURE);
    };
    let mut all_answer = true;
    for kind in Kind::ALL {
        let server = state.server(kind);
        let answers = server.running().is_some() && kind.answers(run, server.ports.client);
        let address = address(server.ports);
        match server.running() {
            Some(process) if answers => {
                say::line(format_args!("{} runs as process {}", kind.name(), process.pid))
            }
            Some(process) => {
                say::line(format_args!("{} (process {}) does not answer", kind.name(), process.pid))
            }
            None => say::line(format_args!("{} does not run; its port is {address}", kind.name())),
        }
        if answers {
            say::data(format_args!("{}={address}", kind.name().to_uppercase()))?;
        }
        all_answer &= answers;
    }
    Ok(if all_answer { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn address(ports: Ports) -> String {
    format!("127.0.0.1:{}", ports.client)
}

fn log_tail(site: &Site) -> String {
    process::tail(&site.log(), LOG_TAIL_LINES)
}
