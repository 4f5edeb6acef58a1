//! One run, from the plan to the verdict.
//!
//! ```text
//!  plan -> servers -> site -> instances share all shards -> load -> steps of the plan -> load ends
//!       -> shards come to rest -> what is wanted has run -> ledgers -> checker -> verdict
//! ```
//!
//! What cannot go on in between is a violation of its own, and what was taken down until then is judged all the same.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;

use crate::act;
use crate::clock::{self, sleep_ms, wall_ms};
use crate::cluster::Cluster;
use crate::course::Course;
use crate::ending::Ending;
use crate::machine;
use crate::network;
use crate::plan::{Nearest, Plan, Scenario, Wanted};
use crate::report::{self, Ran, Report};
use crate::say;
use crate::servers::Servers;
use crate::site::{self, Site, is_loopback};
use crate::skew;
use crate::stage::{self, Ground, Stage};
use crate::takeover;

/// The load alone, before the first fault, until lateness is below a second: at least and at most so long, in
/// milliseconds. Servers that were started just now take a minute to become as fast as they are.
pub(crate) const CALM_MS: (i64, i64) = (10_000, 120_000);
/// The same at least with eleven servers: faults are to come to what runs, not to tables that were made ten seconds ago.
const CALM_CLUSTER_MS: i64 = 30_000;
/// After the last fault every shard has come to rest within this.
const REST_SECONDS_MAX: u64 = 120;
/// Everything wanted has run within this after that.
const DONE_SECONDS_MAX: u64 = 180;
/// What runs again although it is done does so within this: an attempt's timeout and a wait, in milliseconds.
const AFTERWARDS_MS: i64 = 12_000;

/// Which servers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topology {
    /// One Kafka and one Cassandra
    Single,
    /// Three data centres: six brokers, five nodes (Linux, root)
    Cluster,
}

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What is done to the instances; `chaos list` tells of each
    pub(crate) scenario: Scenario,
    /// Decides about faults and load
    #[arg(long)]
    pub(crate) seed: u64,
    /// Which servers
    #[arg(long, value_enum, default_value = "single")]
    pub(crate) servers: Topology,
    /// How long faults go on, about [default: each scenario's own length]
    #[arg(long)]
    pub(crate) minutes: Option<u32>,
    /// Kills in all (kill)
    #[arg(long, default_value_t = 10)]
    pub(crate) kills: u32,
    /// A ledger of takeovers to go on with, until it has --kills kills (kill)
    #[arg(long)]
    pub(crate) resume: Option<PathBuf>,
    /// A Kafka that runs, host:port; without it and --cassandra, those of `cargo xtask servers up`
    #[arg(long, requires = "cassandra")]
    pub(crate) kafka: Option<String>,
    /// A Cassandra that runs, host:port
    #[arg(long, requires = "kafka")]
    pub(crate) cassandra: Option<String>,
    /// Folder for ledgers, logs and the result [default: target/chaos/SCENARIO-SEED]
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Another build of the product, to change to (upgrade)
    #[arg(long)]
    pub(crate) next: Option<PathBuf>,
    /// Start the wiped node with nothing, as nobody should (node-wiped): tasks are lost, and the run fails
    #[arg(long)]
    pub(crate) empty: bool,
    /// The node that a wiped one takes its rows from (node-wiped)
    #[arg(long, value_enum, default_value = "whole")]
    pub(crate) nearest: Nearest,
    /// Instances at the beginning, 2 to 6 [default: 3, or two in each data centre]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=6))]
    pub(crate) instances: Option<u32>,
    #[command(flatten)]
    pub(crate) setting: Setting,
}

/// What a run and a soak have in common.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Setting {
    /// The program of the product [default: this checkout's, built beside this one]
    #[arg(long)]
    pub(crate) dueline: Option<PathBuf>,
    /// Events a second [default: 50, or 20 in a cluster]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub(crate) rate: Option<u32>,
    /// A mistake that instances make, from src/engine/plant.rs: the run has to find it, and fails. A program that is named with
    /// --dueline has to be built with the feature `testing`
    #[arg(long)]
    pub(crate) plant: Option<String>,
    /// Filter of the instances' logs
    #[arg(long, default_value = "info,dueline::takeover=debug")]
    pub(crate) log: String,
    /// Tell of figures that are missed, and judge the promises alone, with half a minute for a start after its owner has applied an
    /// event; for a machine that does other things meanwhile
    #[arg(long)]
    pub(crate) untimed: bool,
}

impl Args {
    fn fits(&self) -> Result<()> {
        let is_cluster = self.servers == Topology::Cluster;
        let word = self.scenario.word();
        ensure!(
            is_cluster || !self.scenario.needs_cluster(),
            "{word} needs several servers: --servers cluster"
        );
        let upgrades = self.scenario.upgrades();
        ensure!(
            upgrades == self.next.is_some(),
            "{}",
            if upgrades { "upgrade needs another build: --next PATH" } else { "--next is for upgrade" }
        );
        let alone = !self.empty && self.nearest == Nearest::Whole;
        ensure!(alone || self.scenario == Scenario::NodeWiped, "--empty and --nearest are for node-wiped");
        ensure!(
            !self.empty || self.nearest == Nearest::Whole,
            "with --empty it takes rows from none: leave out --nearest"
        );
        ensure!(!is_cluster || !self.scenario.cuts(), "{word} is for --servers single: it cuts at loopback");
        ensure!(!is_cluster || self.kafka.is_none(), "--servers cluster makes its own Kafka and Cassandra");
        Ok(())
    }
}

/// Runs a scenario; true when everything that is checked holds. A cluster is one whose outer network this thread is in.
pub(crate) async fn run(args: Args, cluster: Option<Arc<Cluster>>, ending: Ending) -> Result<bool> {
    ending.check()?;
    args.fits()?;
    if args.scenario.cuts()
        && let Err(why) = network::possible()
    {
        let others: Vec<_> =
            Scenario::value_variants().iter().filter(|other| !other.cuts()).map(|one| one.word()).collect();
        bail!(
            "{} needs a network for each instance, and {why}; without: {}",
            args.scenario.word(),
            others.join(", ")
        );
    }
    let dir = args.out.clone().unwrap_or_else(|| {
        PathBuf::from("target/chaos").join(format!("{}-{}", args.scenario.word(), args.seed))
    });
    std::fs::create_dir_all(&dir).with_context(|| format!("{}", dir.display()))?;
    let ledger = args.resume.clone().unwrap_or_else(|| dir.join("takeovers.jsonl"));
    if args.resume.is_none() && ledger.exists() {
        std::fs::remove_file(&ledger)?;
    }
    let done = takeover::kills(&takeover::read(&ledger)?);
    let plan = Plan::draw(&Wanted {
        scenario: args.scenario,
        seed: args.seed,
        minutes: args.minutes,
        kills: args.kills,
        kills_done: done,
        instances: args.instances.unwrap_or(if cluster.is_some() { 6 } else { 3 }) as usize,
        empty: args.empty,
        nearest: args.nearest,
    });
    say::data(&plan)?;
    if plan.steps.is_empty() {
        let all = takeover::Distribution::of(&takeover::read(&ledger)?).context("no kills")?;
        say::data(all.text())?;
        return Ok(all.over_bound == 0 && all.never == 0);
    }
    let program = site::program(args.setting.dueline.as_deref(), args.setting.plant.is_some())?;
    let next = args.next.as_deref().map(|next| site::program(Some(next), false)).transpose()?;
    if let Some(next) = &next {
        let is_same = std::fs::read(next)? == std::fs::read(&program)?;
        ensure!(!is_same, "--next is the very program that instances begin with: name another build");
    }
    let moves_clocks = matches!(args.scenario, Scenario::ClockStep | Scenario::Mixed);
    let clocks = moves_clocks.then(skew::library).transpose()?;
    let servers = match (&cluster, args.kafka, args.cassandra) {
        (Some(cluster), ..) => Servers::given(cluster.kafka.clone(), cluster.cassandra.clone()),
        (None, Some(kafka), Some(cassandra)) => Servers::given(kafka, cassandra),
        _ => tokio::task::spawn_blocking(Servers::up).await??,
    };
    let (kafka, cassandra) = (servers.kafka.clone(), servers.cassandra.clone());
    if args.scenario.cuts() {
        ensure!(is_loopback(&kafka) && is_loopback(&cassandra), "only servers at 127.0.0.1 can be cut from");
    }
    let (ground, handlers) = ground(cluster.as_deref(), args.scenario.cuts()).await?;
    let spread = cluster.is_some();
    let rate = args.setting.rate.unwrap_or(if spread { 20 } else { 50 });
    let copies = match (spread, args.scenario.grows_servers()) {
        (false, _) => "dc1 = 1",
        (true, false) => "dc1 = 2\ndc2 = 2\ndc3 = 1",
        // One node in each data centre to begin with.
        (true, true) => "dc1 = 1\ndc2 = 1\ndc3 = 1",
    };
    let log = args.setting.log;
    let site = Site::make(site::Options { kafka, cassandra, dir, spread, copies, log }).await?;
    let slack = args.scenario.slack(args.setting.untimed);
    let (seed, plant) = (args.seed, args.setting.plant);
    let behind = (args.nearest == Nearest::Behind).then_some("a-node-behind");
    let mistakes = plant.as_deref().into_iter().chain(args.empty.then_some("an-empty-node")).chain(behind);
    let commit = commit(mistakes);
    let digest = machine::digest(&program)?;
    let options = stage::Options { program, digest, next, seed, commit, rate, slack, clocks, plant };
    report::begin(&site.options.dir, args.scenario, &options)?;
    let calm_ms = if args.servers == Topology::Cluster { CALM_CLUSTER_MS } else { CALM_MS.0 };
    let play = Play { scenario: args.scenario, plan, ledger, done, timed: !args.setting.untimed, calm_ms };
    let reported = ending.unless(play.perform(Stage::new(&site, options, ground, handlers)?)).await;
    site.clear().await;
    tokio::task::spawn_blocking(move || drop(servers)).await?;
    reported?.tell()
}

/// Where instances run, and what their handlers listen on.
async fn ground(
    cluster: Option<&Cluster>,
    networks: bool,
) -> Result<(Ground, BTreeMap<String, TcpListener>)> {
    if let Some(cluster) = cluster {
        let (insides, handlers) = cluster.enter().await?;
        return Ok((Ground::DataCentres(insides), handlers));
    }
    let listener = TcpListener::bind("127.0.0.1:0").context("a port for the handlers")?;
    let ground = if networks { Ground::Networks } else { Ground::Machine };
    Ok((ground, [(site::ALONE.to_owned(), listener)].into()))
}

/// A plan and the ledger of its takeovers.
struct Play {
    scenario: Scenario,
    plan: Plan,
    ledger: PathBuf,
    /// Kills in the ledger before this run.
    done: u32,
    timed: bool,
    /// The load alone at least, before the first fault.
    calm_ms: i64,
}

impl Play {
    async fn perform(&self, mut stage: Stage<'_>) -> Result<Report> {
        let started = wall_ms();
        for name in &self.plan.instances {
            stage.start(name).await?;
        }
        stage.until_all_run().await.context("the instances at the beginning")?;
        stage.expect_planted()?;
        stage.start_load();
        stage.calm_ms = calm(&stage, self.calm_ms).await;
        stage.settled = stage.watch.hand_overs().len();
        let begun = wall_ms();
        let done = act::all(&mut stage, &self.plan, &self.ledger, self.done).await;
        let is_broken = done.is_err();
        let cancelled = act::cancel_rare(&mut stage).await;
        for error in [done, cancelled].into_iter().filter_map(Result::err) {
            stage.wrong(format!("the run could not go on: {error:#}"));
        }
        let stopped = stage.stop_load().await;
        let load_ended = wall_ms();
        // Then nobody knows what was asked for: the ledgers are written all the same, for people.
        for error in [stopped, stage.producer.settled().await].into_iter().filter_map(Result::err) {
            stage.wrong(format!("the load did not end well: {error:#}"));
        }
        if is_broken {
            // What it was doing is noted nowhere: a fault is when it is over. All asked for since then is near it.
            stage.broken_off(begun);
        }
        finish(&mut stage).await;
        let Play { scenario, plan, ledger, timed, .. } = self;
        let (scenario, timed) = (*scenario, *timed);
        Report::make(&stage, &Ran { scenario, plan, ledger, started, load_ended, timed })
    }
}

/// Lets the load run alone, until tasks are on time: how long that took, in milliseconds. What a machine shows on which they never
/// are says little of faults.
async fn calm(stage: &Stage<'_>, least_ms: i64) -> Option<i64> {
    let from = wall_ms();
    sleep_ms(least_ms).await;
    let is_calm = || Course::of(&stage.history(), 0, Vec::new(), wall_ms()).is_calm();
    while !is_calm() {
        if wall_ms() > from + CALM_MS.1 {
            say::line(format_args!(
                "tasks are more than a second late, or none runs, before anything is done: this machine does not carry {} events a second beside what else it does",
                stage.options.rate
            ));
            return None;
        }
        sleep_ms(1_000).await;
    }
    Some(wall_ms() - from)
}

/// Gives everything time to end. What does not is the checker's to judge.
async fn finish(stage: &mut Stage<'_>) {
    say::line("the faults have ended");
    stage.until_all_left().await;
    stage.watch.healed(&stage.producer.sent.last_offsets());
    let rested = clock::until("every shard comes to rest", REST_SECONDS_MAX, || stage.watch.at_rest()).await;
    let wanted = stage.producer.sent.wanted();
    let all_ran = clock::until("everything wanted has run", DONE_SECONDS_MAX, || {
        stage.sink.calls.missing(&wanted) == 0
    });
    for error in [rested, all_ran.await].into_iter().filter_map(Result::err) {
        say::line(error);
    }
    sleep_ms(AFTERWARDS_MS).await;
    if let Err(error) = stage.until_all_run().await {
        stage.wrong(format!("at the end: {error}"));
    }
}

/// The commit of this checkout, with a mark for each mistake that is made on purpose.
pub(crate) fn commit<'a>(mistakes: impl IntoIterator<Item = &'a str>) -> String {
    // What is changed while a soak goes on is in none of its parts.
    static AT_FIRST: OnceLock<String> = OnceLock::new();
    let at_first = AT_FIRST.get_or_init(checked_out).clone();
    mistakes.into_iter().fold(at_first, |commit, mistake| format!("{commit}-with-{mistake}"))
}

/// The commit that is checked out, with a mark when files differ from it.
fn checked_out() -> String {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = std::process::Command::new("git")
            .current_dir(crate::servers::workspace())
            .args(arguments)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|said| !said.is_empty());
    if changed { format!("{commit}-changed") } else { commit }
}
