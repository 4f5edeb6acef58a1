//! `cargo xtask k8s up|down|status`: a real Kubernetes of three nodes on this machine, each the only one of its zone.
//!
//! ```text
//! (none) --up--> running --down--> (none)
//!                   └── up: what an `up` that was broken off has left is removed, and made anew
//! ```
//!
//! Everything lives in one folder, and what does not is removed by what the folder tells. One cluster fits on a machine, as
//! its addresses are fixed.

pub(super) mod control;
pub(super) mod daemon;
pub(super) mod images;
pub(super) mod keys;
pub(super) mod network;
pub(super) mod node;
pub(super) mod plan;
mod remains;

use super::kubectl::Kubectl;
use super::programs::{self, Programs};
use crate::servers::state::{self, Cache, Run};
use crate::{packages, say};
use anyhow::{Context, Result, bail, ensure};
use node::Place;
use plan::NODES;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What has to be installed, as `cargo xtask k8s check` does.
pub(super) const NEEDS: [packages::Need; 6] = [
    packages::ETCD,
    packages::OPENSSL,
    packages::RUNC,
    packages::CONTAINERD,
    packages::CNI_BRIDGE,
    packages::IPROUTE,
];
const READY_WAIT_MAX: Duration = Duration::from_secs(120);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// What was changed outside of the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// Whether the machine forwarded packets before.
    forwarding: String,
    /// Folders that were not there before and that kubelets make.
    made: Vec<PathBuf>,
    /// Whether it was made whole.
    whole: bool,
}

/// The folder of the cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    run: Run,
    dir: PathBuf,
    pub(super) cache: Cache,
}

/// A cluster that runs.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) dir: PathBuf,
    pub(super) programs: Programs,
    pub(super) kubectl: Kubectl,
}

/// Whether a cluster can be here; why not, otherwise, and what to do instead.
pub(super) fn possible() -> Result<()> {
    let instead = "`cargo xtask k8s check --short` checks what needs no pods";
    if !cfg!(target_os = "linux") {
        bail!("pods are containers, which are Linux's; {instead}");
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "bridges, mounts and containers need root: run it as root, or with sudo; {instead}"
    );
    Ok(())
}

impl Cluster {
    pub(super) fn open() -> Result<Cluster> {
        let cache = Cache::open()?;
        let dir = cache.join("k8s/cluster");
        Ok(Cluster { run: Run::open(&cache, Some(&dir))?, dir, cache })
    }

    pub(super) fn lock(&self) -> Result<File> {
        self.run.lock()
    }

    /// Whether it was made whole; what is left of one that was not is none.
    pub(super) fn runs(&self) -> Result<bool> {
        Ok(self.run.load::<State>()?.is_some_and(|state| state.whole))
    }

    /// How it is asked, whether it runs or not.
    fn reach(&self) -> Result<Up> {
        let programs = {
            let _held = state::lock(&self.cache.join("k8s/lock"))?;
            programs::for_pods(&self.cache)?
        };
        let kubectl = Kubectl::new(programs.path("kubectl"), &self.dir);
        Ok(Up { dir: self.dir.clone(), programs, kubectl })
    }

    /// Makes it, unless it runs. The caller holds the lock.
    pub(super) fn up(&self) -> Result<Up> {
        let up = self.reach()?;
        match self.run.load::<State>()? {
            Some(state) if state.whole && up.kubectl.answers() => {
                say::line("the cluster runs");
                return Ok(up);
            }
            Some(_) => {
                say::line("what is left of an earlier cluster is removed");
                self.clear()?;
            }
            None => {}
        }
        if let Some(device) = network::taken() {
            bail!(
                "there is a device {device} that this checkout has not made: another one's cluster runs on this machine; \
                 end it there with `cargo xtask k8s down`, or `ip link delete {device}`"
            );
        }
        let made = remains::FOLDERS.map(PathBuf::from).into_iter().filter(|dir| !dir.exists()).collect();
        let state = State { forwarding: network::forwarding()?, made, whole: false };
        self.run.save(&state)?;
        if let Err(error) = make(&up) {
            say::line(
                "it could not be started whole: what was started is ended, its logs are kept until the next start",
            );
            self.end()?;
            return Err(error);
        }
        self.run.save(&State { whole: true, ..state })?;
        Ok(up)
    }

    /// Ends everything and removes what is left.
    pub(super) fn clear(&self) -> Result<()> {
        self.end()?;
        for entry in
            std::fs::read_dir(&self.dir).with_context(|| format!("listing {}", self.dir.display()))?.flatten()
        {
            // The lock is held.
            match entry.file_name() == "lock" {
                true => {}
                false if entry.path().is_dir() => state::remove_dir(&entry.path())?,
                false => state::remove_file(&entry.path())?,
            }
        }
        Ok(())
    }

    /// Ends everything; the folder stays but for its state.
    fn end(&self) -> Result<()> {
        daemon::kill_all(&self.dir)?;
        for node in NODES {
            remains::clear(node, &node.dir(&self.dir))?;
        }
        if let Some(state) = self.run.load::<State>()? {
            network::remove()?;
            network::set_forwarding(&state.forwarding)?;
            state.made.iter().try_for_each(|dir| state::remove_dir(dir))?;
        }
        self.run.forget()
    }
}

/// `up`.
pub(super) fn up() -> Result<()> {
    possible()?;
    NEEDS.into_iter().try_for_each(packages::require)?;
    let cluster = Cluster::open()?;
    let _held = cluster.lock()?;
    let up = cluster.up()?;
    say::data(format_args!("KUBECONFIG={}", up.kubectl.config().display()))?;
    say::data(format_args!("KUBECTL={}", up.programs.path("kubectl").display()))
}

/// `down`.
pub(super) fn down() -> Result<()> {
    possible()?;
    let cluster = Cluster::open()?;
    let _held = cluster.lock()?;
    cluster.clear()?;
    say::line("the cluster is gone");
    Ok(())
}

/// `status`: nodes as the API server has them.
pub(super) fn status() -> Result<ExitCode> {
    possible()?;
    let cluster = Cluster::open()?;
    let Some(state) = cluster.run.load::<State>()? else {
        say::line("no cluster");
        return Ok(ExitCode::FAILURE);
    };
    let Up { kubectl, .. } = cluster.reach()?;
    if !state.whole || !kubectl.answers() {
        say::line(
            "a cluster was begun and is not whole: `cargo xtask k8s up` makes it anew, `down` removes it",
        );
        return Ok(ExitCode::FAILURE);
    }
    say::data(kubectl.said(&["get", "nodes", "--label-columns=topology.kubernetes.io/zone"])?.trim_end())?;
    let ready = ready_nodes(&kubectl)?;
    Ok(if ready == NODES.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn make(up: &Up) -> Result<()> {
    let begun = Instant::now();
    network::make()?;
    control::start(&up.dir, &up.programs, &up.kubectl)?;
    for node in NODES {
        let place = Place::of(node, &up.dir);
        place.prepare()?;
        place.start_containerd()?;
    }
    images::pause(&up.dir, &up.programs)?;
    for node in NODES {
        Place::of(node, &up.dir).start_kubelet(&up.programs)?;
    }
    wait_nodes(&up.kubectl)?;
    say::line(format_args!("{} nodes are ready after {:.1?}", NODES.len(), begun.elapsed()));
    Ok(())
}

/// Waits until all nodes are ready.
pub(super) fn wait_nodes(kubectl: &Kubectl) -> Result<()> {
    let begun = Instant::now();
    while ready_nodes(kubectl)? < NODES.len() {
        ensure!(begun.elapsed() < READY_WAIT_MAX, "not all nodes are ready: `cargo xtask k8s status`");
        std::thread::sleep(READY_POLL_INTERVAL);
    }
    Ok(())
}

fn ready_nodes(kubectl: &Kubectl) -> Result<usize> {
    let ready = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
    Ok(kubectl.said(&["get", "nodes", "--output", ready])?.lines().filter(|line| *line == "True").count())
}

/// The folder of a cluster that another part keeps its own things in.
pub(super) fn part(up: &Up, name: &str) -> Result<PathBuf> {
    let dir = up.dir.join(name);
    state::make_dir(Path::new(&dir))?;
    Ok(dir)
}
