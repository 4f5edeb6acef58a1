//! `cargo xtask k8s`: the manifests of deploy/k8s against a real Kubernetes API server.
//!
//! The API server and kubectl are built once from their published Go modules (xtask/k8s), etcd is Debian's, the operators'
//! resource definitions come out of their published packages; all of it is pinned. `check --short` runs no pods: it is what
//! an API server can judge (fields, values, admission), what only Dueline can (its configuration, topics and metrics), and
//! what nobody would notice before a pod fails (names that refer to nothing).
//!
//! ```text
//! CACHE/k8s/lock            one check at a time
//! CACHE/k8s/bin-HASH/       kube-apiserver, kubectl
//! CACHE/k8s/crds-HASH/      resource definitions, a file an operator
//! CACHE/k8s/run/            etcd's data, keys, rendered manifests; removed at the end, and at the next start
//! ```

mod api;
mod apply;
mod arrangements;
mod check;
mod configuration;
mod crds;
mod kubectl;
mod mistakes;
mod pods;
mod programs;
mod references;
mod texts;

use anyhow::{Result, bail};
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
    /// A cluster that runs pods: not there yet
    Up,
    /// End that cluster: not there yet
    Down,
}

/// How to check.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Schemas, admission, configuration: no pods
    #[arg(long)]
    short: bool,
    /// The program that judges configurations [default: the one of this checkout, built first]
    #[arg(long)]
    dueline: Option<PathBuf>,
}

/// Runs `cargo xtask k8s`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    match options.action {
        Action::Check(check) if check.short => check::run(check.dueline),
        Action::Check(_) => {
            bail!("`k8s check` that runs pods is not there yet: `k8s check --short` checks all but that")
        }
        Action::Up | Action::Down => {
            bail!(
                "`k8s up` and `k8s down` are not there yet: `k8s check --short` has an API server of its own"
            )
        }
    }
}
