//! `cargo xtask k8s`: the manifests of deploy/k8s against a real Kubernetes.
//!
//! Its programs are built once from their published Go modules (xtask/k8s), etcd, containerd and runc are Debian's, the
//! operators' resource definitions come out of their published packages; all of it is pinned or the system's. `check --short`
//! runs no pods: it is what an API server can judge (fields, values, admission), what only Dueline can (its configuration,
//! topics and metrics), and what nobody would notice before a pod fails (names that refer to nothing). The rest of `check`
//! is the overlay of three zones in pods on three nodes (`cluster.rs`), under load, with faults (`live.rs`).
//!
//! ```text
//! CACHE/k8s/lock            one build or short check at a time
//! CACHE/k8s/bin-HASH/       kube-apiserver, kubectl; for pods the others too
//! CACHE/k8s/crds-HASH/      resource definitions, a file an operator
//! CACHE/k8s/run/            of a short check: etcd's data, keys, manifests; removed at the end, and at the next start
//! CACHE/k8s/cluster/        of a cluster, with a lock of its own; removed by `down`, and by the next `up` after a crash
//! ```

mod api;
mod apply;
mod arrangements;
mod check;
mod cluster;
mod configuration;
mod crds;
mod kubectl;
mod live;
mod mistakes;
mod pods;
mod programs;
mod references;
mod texts;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// What to do with Kubernetes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check deploy/k8s
    Check(Check),
    /// Three nodes in three zones on this machine; print KUBECONFIG= and KUBECTL= (Linux, root)
    Up,
    /// End that cluster and remove what is left of it
    Down,
    /// Print its nodes; exit 1 unless all are ready
    Status,
}

/// How to check.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Schemas, admission, configuration: no pods
    #[arg(long)]
    short: bool,
    /// Pods alone
    #[arg(long, conflicts_with = "short")]
    pods: bool,
    /// The release binary for the image [default: the one of this checkout, built first]
    #[arg(long, conflicts_with = "short")]
    binary: Option<PathBuf>,
    /// Leave the cluster as it is at the end
    #[arg(long, conflicts_with = "short")]
    keep: bool,
    /// The program that judges configurations [default: the one of this checkout, built first]
    #[arg(long)]
    dueline: Option<PathBuf>,
}

/// Runs `cargo xtask k8s`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    match options.action {
        Action::Check(check) => check.run(),
        Action::Up => cluster::up().map(|()| ExitCode::SUCCESS),
        Action::Down => cluster::down().map(|()| ExitCode::SUCCESS),
        Action::Status => cluster::status(),
    }
}

impl Check {
    fn run(self) -> Result<ExitCode> {
        let mut holds = self.pods || check::run(self.dueline)?;
        if !self.short {
            holds &= live::run(&live::Wanted { binary: self.binary, keep: self.keep })?;
        }
        Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
