//! `cargo xtask k8s check`, the pods' part: `overlays/three-zones` runs on three nodes, under load, while one thing after the
//! other happens to it.
//!
//! ```text
//! load ──HTTP──► pods on node-a, node-b, node-c ──► Kafka (TLS, password), Cassandra (password) on the shared address
//! watch ─asks──►   │                                 all of it ended at the end, or kept with --keep
//! sink ◄──calls────┘
//! ```

mod backing;
mod gaps;
mod install;
mod ledger;
mod load;
mod outage;
mod overlay;
mod pods;
mod records;
mod report;
mod sink;
mod steps;
mod watch;

use super::api::random_token;
use super::cluster::{self, Cluster, Up};
use crate::{image, packages, say};
use anyhow::{Result, bail};
use backing::{Backing, Passwords};
use install::Tokens;
use ledger::Ledger;
use load::Producer;
use report::Report;
use sink::Sink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use watch::Watch;

/// What is told of a thing that cannot be seen here.
const NOT_TESTED: [&str; 2] = [
    "network policies: the bridge network of these nodes enforces none, so a policy that is missing or too tight goes unnoticed",
    "the Service's address and names: no kube-proxy and no name server run; pods are asked by their addresses",
];

/// How to run pods.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The release binary for the image; the one of this checkout, built first, otherwise.
    pub(super) binary: Option<PathBuf>,
    /// Whether the cluster stays.
    pub(super) keep: bool,
}

/// Everything that a step works with.
struct Stage<'a> {
    up: &'a Up,
    backing: Backing,
    watch: Watch,
    ledger: Arc<Ledger>,
    producer: Producer,
    report: Report,
    _sink: Sink,
}

/// Whether all was as wanted.
pub(super) fn run(wanted: &Wanted) -> Result<bool> {
    cluster::possible()?;
    packages::install(&[&cluster::NEEDS[..], &[packages::JAVA, packages::MAVEN, packages::STRIP]].concat())?;
    let cluster = Cluster::open()?;
    let _held = cluster.lock()?;
    if cluster.runs()? {
        bail!("a cluster runs here, and this check makes one of its own: `cargo xtask k8s down` first");
    }
    records::forget()?;
    let begun = Instant::now();
    let checked = cluster.up().and_then(|up| check(&up, &cluster, wanted, begun));
    match wanted.keep {
        true => say::line("the cluster is kept: `cargo xtask k8s down` ends it"),
        false => cluster.clear()?,
    }
    if !matches!(checked, Ok(true)) {
        say::line(format_args!("logs of pods, and what each said of its shards, are in {}", records::DIR));
        if !wanted.keep {
            say::line("with --keep the cluster stays, to be looked at");
        }
    }
    checked
}

fn check(up: &Up, cluster: &Cluster, wanted: &Wanted, begun: Instant) -> Result<bool> {
    let dir = cluster::part(up, "image")?;
    image::write(wanted.binary.clone(), &dir)?;
    cluster::images::layout(&up.dir, &dir, "docker.io/library/dueline")?;
    let tokens = Tokens { admin: random_token()?, operator: random_token()?, viewer: random_token()? };
    let passwords = Passwords {
        kafka: random_token()?,
        kafka_setup: random_token()?,
        cassandra: random_token()?,
        cassandra_setup: random_token()?,
    };
    let backing = Backing::start(up, &cluster.cache, &passwords)?;
    let ledger = Arc::new(Ledger::default());
    let sink = Sink::start(&ledger)?;
    let watch = Watch::start(up, &tokens.viewer)?;
    let producer = Producer { seen: watch.shared(), ledger: ledger.clone(), token: tokens.operator.clone() };
    let mut stage = Stage { up, backing, watch, ledger, producer, report: Report::default(), _sink: sink };
    install::run(&mut stage, &tokens, &passwords)?;
    steps::run(&mut stage)?;
    for text in NOT_TESTED {
        say::data(format_args!("NOT TESTED  {text}"))?;
    }
    say::data(format_args!("differs from deploy/k8s/overlays/three-zones: {}", overlay::DIFFERENCES))?;
    let verdict = if stage.report.holds() { "ok" } else { "FAILED" };
    let (told, seconds) = (stage.report.told(), begun.elapsed().as_secs());
    say::data(format_args!(
        "{verdict}: three-zones in pods on Kubernetes {}, {told}, {seconds} s",
        super::programs::VERSION
    ))?;
    Ok(stage.report.holds())
}
