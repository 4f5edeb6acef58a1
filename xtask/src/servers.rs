//! `cargo xtask servers`: one real Kafka and one real Cassandra on loopback, from their published
//! jars, without containers.
//!
//! Every command is idempotent and works on the run folder of this checkout (or `--dir`). Servers
//! outlive the command that started them; only `down`, `stop` and `kill` end them, and only
//! processes that this run recorded.
//!
//! ```text
//!   (none) --up--> running --stop|kill--> ended, data kept --start|up--> running --down--> (none)
//! ```

mod cassandra;
pub(crate) mod jars;
mod kafka;
mod ports;
pub(crate) mod process;
pub(crate) mod state;

use crate::{packages, say};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use ports::Ports;
use process::Site;
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
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Fetch and start both; print KAFKA=host:port and CASSANDRA=host:port once they answer
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

/// One of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Kafka,
    Cassandra,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Kafka, Kind::Cassandra];

    fn name(self) -> &'static str {
        match self {
            Kind::Kafka => "kafka",
            Kind::Cassandra => "cassandra",
        }
    }

    fn bundle(self) -> &'static jars::Bundle {
        match self {
            Kind::Kafka => &jars::KAFKA,
            Kind::Cassandra => &jars::CASSANDRA,
        }
    }

    fn answers(self, port: u16) -> bool {
        let answer = match self {
            Kind::Kafka => kafka::answers(port),
            Kind::Cassandra => cassandra::answers(port),
        };
        answer.unwrap_or(false)
    }
}

/// Servers that answer.
#[derive(Debug)]
pub(crate) struct Up {
    /// Kafka's bootstrap address, host:port.
    pub(crate) kafka: String,
    /// Cassandra's contact point, host:port.
    pub(crate) cassandra: String,
    /// Those that did not run before.
    pub(crate) started: Vec<Kind>,
}

/// Runs `cargo xtask servers`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let cache = Cache::open()?;
    if matches!(options.action, Action::Pin) {
        let _held = cache.lock()?;
        jars::pin(&cache)?;
        return Ok(ExitCode::SUCCESS);
    }
    let run = Run::open(&cache, options.dir.as_deref())?;
    match options.action {
        Action::Up(wanted) => {
            let up = bring_up(&cache, &run, &wanted)?;
            say::data(format_args!("KAFKA={}\nCASSANDRA={}", up.kafka, up.cassandra))?;
        }
        Action::Down => take_down(&run)?,
        Action::Status => return status(&run),
        Action::Start { server } => start(&cache, &run, server)?,
        Action::Stop { server } => end(&run, server, End::InGoodOrder)?,
        Action::Kill { server } => end(&run, server, End::AtOnce)?,
        Action::Pin => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts what does not run in this checkout's run folder and waits until both answer.
pub(crate) fn up() -> Result<Up> {
    let cache = Cache::open()?;
    let run = Run::open(&cache, None)?;
    bring_up(&cache, &run, &Wanted::default())
}

/// Ends what `up` started; with it the data, unless one of the servers ran before.
pub(crate) fn end_started(up: &Up) -> Result<()> {
    let run = Run::open(&Cache::open()?, None)?;
    if up.started.len() == Kind::ALL.len() {
        return take_down(&run);
    }
    up.started.iter().try_for_each(|kind| end(&run, *kind, End::InGoodOrder))
}

fn bring_up(cache: &Cache, run: &Run, wanted: &Wanted) -> Result<Up> {
    // The cache is held until the ports are bound, so that no other run settles on them.
    let _held = (run.lock()?, cache.lock()?);
    let mut sites = Vec::new();
    for kind in Kind::ALL {
        sites.push((kind, site(cache, run, kind)?));
    }
    let mut state = reserve(cache, run, wanted)?;
    let started: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| state.server(*kind).running().is_none()).collect();
    let mut launch_all = || {
        sites.iter().try_for_each(|(kind, site)| launch(run, &mut state, *kind, site))?;
        sites.iter().try_for_each(|(kind, site)| wait_ready(&state, *kind, site))
    };
    if let Err(error) = launch_all() {
        // Half a pair is of no use; its logs stay.
        for kind in started.into_iter().filter(|kind| state.server(*kind).running().is_some()) {
            end_process(&state, kind, End::AtOnce)?;
        }
        return Err(error);
    }
    Ok(Up { kafka: address(state.kafka.ports), cassandra: address(state.cassandra.ports), started })
}

/// The state with ports settled and written. They stay this run's while its servers are stopped.
fn reserve(cache: &Cache, run: &Run, wanted: &Wanted) -> Result<State> {
    let old = run.load()?;
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
    let launch = match kind {
        Kind::Kafka => kafka::prepare(site, server.ports)?,
        Kind::Cassandra => cassandra::prepare(site, server.ports)?,
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

fn wait_ready(state: &State, kind: Kind, site: &Site) -> Result<()> {
    let server = state.server(kind);
    let begun = Instant::now();
    while !kind.answers(server.ports.client) {
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
    if let Some(state) = run.load()? {
        // Both at once: each may take seconds.
        let (kafka, cassandra) = std::thread::scope(|scope| {
            let kafka = scope.spawn(|| end_process(&state, Kind::Kafka, End::InGoodOrder));
            let cassandra = end_process(&state, Kind::Cassandra, End::InGoodOrder);
            (kafka.join(), cassandra)
        });
        kafka.unwrap_or_else(|_| bail!("the thread that ends Kafka panicked"))?;
        cassandra?;
    }
    run.clear()
}

fn start(cache: &Cache, run: &Run, kind: Kind) -> Result<()> {
    let _held = run.lock()?;
    let mut state = run.load()?.context("nothing to start again: use `cargo xtask servers up`")?;
    let site = {
        let _held = cache.lock()?;
        site(cache, run, kind)?
    };
    launch(run, &mut state, kind, &site)?;
    wait_ready(&state, kind, &site)
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
    let state = run.load()?.context("nothing was started here: use `cargo xtask servers up`")?;
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
    let Some(state) = run.load()? else {
        say::line("no servers");
        return Ok(ExitCode::FAILURE);
    };
    let mut all_answer = true;
    for kind in Kind::ALL {
        let server = state.server(kind);
        let answers = server.running().is_some() && kind.answers(server.ports.client);
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
