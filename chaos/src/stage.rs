//! A run under way: the site, the handlers, the load, the instances that live, and what was done to them.
//!
//! Everything it started ends with it. Instances are started from the thread that polls it, which has to be the main one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline::testing::checker::Slack;
use dueline::testing::history::Fault;
use rustix::process::Signal;

use crate::clock::{self, wall_ms};
use crate::cluster::{self, Insides};
use crate::course::{Answers, HandOver, Recovery};
use crate::instance::{Instance, Start};
use crate::journal::{ASKED, CALLED, FAULTS, Journal};
use crate::ledger::{Calls, Key, Sent};
use crate::load::Load;
use crate::network::{Network, Ports, Way};
use crate::plan::{Build, Server};
use crate::producer::Producer;
use crate::say;
use crate::sink::Sink;
use crate::site::{self, Site, Spot, port_of};
use crate::takeover::{Gaps, Takeover};
use crate::watch::Watch;

mod env;
mod notes;

/// Everything runs again within this after a fault has ended, or the run has failed.
const RUN_AGAIN_SECONDS_MAX: u64 = 120;
/// An instance that is asked to stop waits up to 25 s for its calls.
const STOP_SECONDS_MAX: u64 = 60;
/// Time for an answer of an instance, and between two questions, in milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK_MS: i64 = 200;

/// What a run is made with.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) program: PathBuf,
    /// The beginning of its SHA-256.
    pub(crate) digest: String,
    /// The build that instances change to, where they do.
    pub(crate) next: Option<PathBuf>,
    pub(crate) seed: u64,
    pub(crate) commit: String,
    /// Events a second.
    pub(crate) rate: u32,
    /// What the judge lets pass.
    pub(crate) slack: Slack,
    /// What moves the clocks of instances, where they are moved.
    pub(crate) clocks: Option<PathBuf>,
    /// A mistake planted in instances.
    pub(crate) plant: Option<String>,
}

/// Where instances run, and with them the handlers.
#[derive(Debug)]
pub(crate) enum Ground {
    /// On this machine.
    Machine,
    /// Each in a network of its own.
    Networks,
    /// Spread over the data centres of a cluster.
    DataCentres(Insides),
}

/// A run under way.
pub(crate) struct Stage<'a> {
    pub(crate) options: Options,
    pub(crate) site: &'a Site,
    pub(crate) sink: Sink,
    pub(crate) producer: Producer,
    pub(crate) watch: Watch,
    /// Takeovers that were measured in this run.
    pub(crate) takeovers: Vec<Takeover>,
    /// How long it took after a data centre was lost until others ran all shards.
    pub(crate) recoveries: Vec<Recovery>,
    /// How shards changed hands when they were asked to.
    pub(crate) hand_overs: Vec<HandOver>,
    /// Servers that were killed or frozen, since when, and until when.
    pub(crate) gone: Vec<(Vec<String>, i64, i64)>,
    /// Tasks that wait for a later step, and that few nodes have.
    pub(crate) rare: Vec<Key>,
    /// What instances answered by HTTP without a quorum of nodes, or a broker.
    pub(crate) answers: Answers,
    ground: Ground,
    /// Those that run the next build.
    changed: BTreeSet<String>,
    load: Option<Load>,
    live: Vec<Instance>,
    /// Those asked to stop that have not ended yet.
    leaving: Vec<Instance>,
    /// Processes started so far.
    started: u32,
    faults: Vec<Fault>,
    /// Who came and went, and when.
    pub(crate) marks: Vec<(String, i64)>,
    /// How long it took until the load alone was on time, in milliseconds; `None` = it never was.
    pub(crate) calm_ms: Option<i64>,
    /// Changes of hands before the first step.
    pub(crate) settled: usize,
    /// Who could not hear how calls ended, and when.
    halts: Vec<(String, i64, i64)>,
    wrongs: Vec<String>,
    /// Tasks that may never be called.
    forbidden: BTreeSet<Key>,
    /// The ledgers on disk, that of faults the last.
    journals: [Journal; 3],
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        site: &'a Site,
        options: Options,
        ground: Ground,
        handlers: BTreeMap<String, TcpListener>,
    ) -> Result<Stage<'a>> {
        let journal = |name| Journal::begin(&site.file(name));
        let (asked, called, faults) = (journal(ASKED)?, journal(CALLED)?, journal(FAULTS)?);
        let sent = Sent::kept(asked.clone());
        Ok(Stage {
            sink: Sink::start(handlers, Calls::kept(called.clone()))?,
            producer: Producer::start(&site.options.kafka, site.schedule_topic(), sent)?,
            watch: Watch::new(crate::site::SHARDS)?,
            options,
            site,
            takeovers: Vec::new(),
            recoveries: Vec::new(),
            hand_overs: Vec::new(),
            gone: Vec::new(),
            rare: Vec::new(),
            answers: Answers::default(),
            ground,
            changed: BTreeSet::new(),
            load: None,
            live: Vec::new(),
            leaving: Vec::new(),
            started: 0,
            faults: Vec::new(),
            marks: Vec::new(),
            calm_ms: None,
            settled: 0,
            halts: Vec::new(),
            wrongs: Vec::new(),
            forbidden: BTreeSet::new(),
            journals: [asked, called, faults],
        })
    }

    /// What an instance is from its next start on.
    pub(crate) fn set_build(&mut self, name: &str, build: Build) {
        match build {
            Build::First => self.changed.remove(name),
            Build::Next => self.changed.insert(name.to_owned()),
        };
    }

    /// Starts a process of an instance and does not wait for it.
    pub(crate) async fn start(&mut self, name: &str) -> Result<()> {
        // The port of one that has ended may be given out again.
        for gone in self.leaving.iter_mut().filter_map(|one| one.ended().is_some().then_some(&one.name)) {
            self.watch.forget(gone);
        }
        let port = free_port()?;
        let (spot, network) = match &self.ground {
            Ground::Machine => (Spot::alone(port), None),
            Ground::Networks => (Spot::alone(port), Some(Network::open(self.ports(port)?).await?)),
            Ground::DataCentres(insides) => {
                let (dc, listen) = cluster::spot(name)?;
                (Spot { dc, listen }, Some(Network::within(insides.of(dc)?, listen, port)?))
            }
        };
        let config = self.site.config_file(name, &spot, &self.sink)?;
        let log = self.site.file(&format!("{name}.log"));
        let (program, config, log) = (self.program(name)?, config.as_path(), log.as_path());
        let env = self.env(name)?;
        let instance = Instance::start(Start { name, port, program, config, log, network, env: &env })?;
        self.started += 1;
        self.watch.follow(name, format!("{name}#{}", self.started), port);
        self.live.push(instance);
        Ok(())
    }

    fn ports(&self, http: u16) -> Result<Ports> {
        let options = &self.site.options;
        let (kafka, cassandra) = (port_of(&options.kafka)?, port_of(&options.cassandra)?);
        Ok(Ports { kafka, cassandra, sink: self.sink.address(site::ALONE)?.port(), http })
    }

    pub(crate) fn start_load(&mut self) {
        let Options { seed, rate, slack, .. } = self.options;
        self.load = Some(Load::start(self.producer.clone(), seed, rate, slack.known_near_ms));
    }

    /// Has the load send nothing for a while, or go on.
    pub(crate) fn pause_load(&self, paused: bool) {
        if let Some(load) = &self.load {
            load.pause(paused);
        }
    }

    pub(crate) async fn stop_load(&mut self) -> Result<()> {
        match self.load.take() {
            Some(load) => load.stop().await,
            None => Ok(()),
        }
    }

    /// Names of the instances that were started and not ended.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.live.iter().map(|instance| instance.name.clone()).collect()
    }

    fn instance(&self, name: &str) -> Result<&Instance> {
        let mut all = self.live.iter();
        all.find(|instance| instance.name == name).with_context(|| format!("{name} does not run"))
    }

    fn take(&mut self, name: &str) -> Result<Instance> {
        let mut all = self.live.iter();
        let at =
            all.position(|instance| instance.name == name).with_context(|| format!("{name} does not run"))?;
        Ok(self.live.swap_remove(at))
    }

    /// Waits until every shard has a running owner and every instance is one. An instance that ended by itself is a
    /// violation, told once.
    pub(crate) async fn until_all_run(&mut self) -> Result<()> {
        loop {
            self.expect_alive();
            let names = self.names();
            ensure!(!names.is_empty(), "no instance lives: {}", self.wrongs.join("; "));
            let what = format!("every shard runs, shared by {}", Vec::from_iter(names.clone()).join(", "));
            let Stage { live, watch, .. } = self;
            let ended = |live: &mut Vec<Instance>| live.iter_mut().any(|one| one.ended().is_some());
            let all_run = clock::until(&what, RUN_AGAIN_SECONDS_MAX, || ended(live) || watch.all_run(&names));
            all_run.await.map_err(|error| anyhow::anyhow!("{error}{}", watch.unanswered()))?;
            if !ended(live) {
                return Ok(());
            }
        }
    }

    fn expect_alive(&mut self) {
        let mut wrongs = Vec::new();
        self.live.retain_mut(|instance| match instance.ended() {
            None => true,
            Some(status) => {
                wrongs.push(format!("{} ended by itself: {status}", instance.name));
                false
            }
        });
        for wrong in wrongs {
            self.wrong(wrong);
        }
    }

    /// Kills an instance as a power cut does, and watches the shards it ran.
    pub(crate) fn kill(&mut self, name: &str, number: u32) -> Result<()> {
        self.kill_together(&[name.to_owned()], number)
    }

    /// Kills instances at once.
    pub(crate) fn kill_together(&mut self, names: &[String], number: u32) -> Result<()> {
        let owners = self.watch.owners();
        let (killed, killed_us) = (wall_ms(), clock::boot_us());
        for name in names {
            self.take(name)?.kill()?;
            self.watch.forget(name);
        }
        let lost = owners.into_iter().filter(|(_, owner)| names.contains(&owner.instance));
        let open = lost.map(|(shard, owner)| Takeover {
            kill: number,
            seed: self.options.seed,
            commit: self.options.commit.clone(),
            victim: owner.instance,
            killed,
            shard,
            epoch: owner.epoch,
            next_epoch: None,
            gap_ms: None,
        });
        self.watch.measure(Gaps::new(killed_us, open.collect()));
        Ok(())
    }

    /// Has an instance asked by the command line of the product.
    pub(crate) async fn dueline(&self, asked: &str, arguments: &[&str]) -> Result<()> {
        let mut command = std::process::Command::new(&self.options.program);
        let server = format!("http://127.0.0.1:{}", self.instance(asked)?.port);
        command.args(arguments).args(["--server", &server, "--by", "chaos"]).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "dueline {}: {}: {said}", arguments.join(" "), output.status);
        Ok(())
    }

    /// Waits until an instance says that it is drained.
    pub(crate) async fn until_drained(&self, name: &str, seconds: u64) -> Result<()> {
        let url = format!("http://127.0.0.1:{}/readyz", self.instance(name)?.port);
        let client = reqwest::Client::builder().no_proxy().timeout(ANSWER_TIMEOUT).build()?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds);
        loop {
            // One that starts does not answer yet.
            if let Ok(answer) = client.get(&url).send().await
                && answer.text().await.is_ok_and(|said| said.contains("drained"))
            {
                return Ok(());
            }
            ensure!(tokio::time::Instant::now() < deadline, "{name} is not drained after {seconds} s");
            clock::sleep_ms(LOOK_MS).await;
        }
    }

    /// Kills all of them.
    pub(crate) fn kill_all(&mut self) -> Result<()> {
        for instance in std::mem::take(&mut self.live) {
            self.watch.forget(&instance.name);
            instance.kill()?;
        }
        Ok(())
    }

    pub(crate) fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        self.instance(name)?.signal(signal)
    }

    pub(crate) fn set_way(&self, name: &str, server: Server, way: Way) -> Result<()> {
        self.instance(name)?.set_way(server, way)
    }

    /// Asks an instance to stop and does not wait for it: it runs its shards until it lets them go.
    pub(crate) fn leave(&mut self, name: &str) -> Result<()> {
        let instance = self.take(name)?;
        instance.signal(Signal::TERM)?;
        self.leaving.push(instance);
        Ok(())
    }

    /// Waits until those that were asked to stop have ended, and well.
    pub(crate) async fn until_all_left(&mut self) {
        for mut instance in std::mem::take(&mut self.leaving) {
            let ended = instance.until_ended(STOP_SECONDS_MAX).await;
            self.watch.forget(&instance.name);
            let wrong = match ended {
                Some(status) if status.success() => continue,
                Some(status) => format!("{} was asked to stop and ended badly: {status}", instance.name),
                None => format!("{} was asked to stop and runs after {STOP_SECONDS_MAX} s", instance.name),
            };
            say::line(&wrong);
            self.wrongs.push(wrong);
        }
    }
}

fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("a free port")?;
    Ok(listener.local_addr()?.port())
}
