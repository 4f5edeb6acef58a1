//! `chaos`: faults on real processes of the product and on real servers, and the checker of their histories.
//!
//! A run makes its plan from a seed, keeps ledgers of its own of what was asked for and what was called, and lets the
//! checker of the simulation judge them. It reads from the product only who runs which shard. docs/chaos.md tells more.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum as _};

use cluster::Cluster;
use ending::Ending;

mod act;
mod bounds;
mod check;
mod clock;
mod cluster;
mod course;
mod doctor;
mod ending;
mod enter;
mod event;
mod instance;
mod journal;
mod ledger;
mod load;
mod machine;
mod network;
mod offsets;
mod page;
mod plan;
mod producer;
mod report;
mod run;
#[cfg(test)]
mod sample;
mod say;
mod servers;
mod sink;
mod site;
mod skew;
mod soak;
mod stage;
mod takeover;
mod watch;

#[derive(Parser)]
#[command(
    name = "chaos",
    about = "Faults on real processes and real servers, and the checker of their histories"
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run a scenario; exit code 1 unless everything that is checked holds
    Run(run::Args),
    /// Run faults of all kinds on three data centres for long, in parts of ten minutes (Linux, root)
    Soak(soak::Args),
    /// Judge histories that runs have written
    Check {
        /// Files named history.jsonl; of a run that was killed, asked.jsonl, called.jsonl and faults.jsonl
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Take each record as known to its owner so many milliseconds after its acknowledgement, near a fault or not
        /// [default: as the run did, or 5000]
        #[arg(long)]
        known_ms: Option<i64>,
    },
    /// Break three data centres in many ways, and see whether `dueline doctor` finds each
    Doctor(doctor::Args),
    /// Tell of the scenarios
    List,
    /// Become a process of the product
    #[command(hide = true)]
    Enter(enter::Args),
}

fn main() -> ExitCode {
    match perform(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say::line(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> Result<bool> {
    match task {
        Task::Enter(args) => enter::run(args).map(|()| true),
        Task::Check { files, known_ms } => check::files(&files, known_ms),
        Task::List => {
            for scenario in plan::Scenario::value_variants() {
                say::data(format_args!("{:<16} {}", scenario.word(), scenario.about()))?;
            }
            Ok(true)
        }
        Task::Doctor(args) => doctor::run(&args),
        Task::Run(args) => {
            let is_cluster = args.servers == run::Topology::Cluster;
            let few = args.scenario.grows_servers();
            on_servers(is_cluster.then_some(few), |cluster, ending| run::run(args, cluster, ending))
        }
        Task::Soak(args) => {
            let soak = soak::Soak::ready(args)?;
            on_servers(Some(false), |cluster, ending| soak.run(cluster, ending))
        }
    }
}

/// In three data centres, with few servers or all, or on this machine.
fn on_servers<F: Future<Output = Result<bool>>>(
    few: Option<bool>,
    run: impl FnOnce(Option<Arc<Cluster>>, Ending) -> F,
) -> Result<bool> {
    let ending = Ending::listen()?;
    // It ends last, however this ends.
    let cluster = few.map(|few| Cluster::up(few).map(Arc::new)).transpose()?;
    if let Some(cluster) = &cluster {
        // All threads that this one starts are there too, and so is everything they connect to.
        network::entered(cluster.home.clone())?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?;
    // Polled by this thread, which instances end with.
    runtime.block_on(run(cluster.clone(), ending))
}
