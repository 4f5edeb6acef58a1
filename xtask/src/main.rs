//! Tasks of the repository, run as `cargo xtask <task>`.
//!
//! Data goes to stdout and everything a person reads while waiting goes to stderr, so that
//! `eval "$(cargo xtask servers up)"` works in a shell.

mod clients;
mod cluster;
mod dashboards;
mod image;
mod k8s;
mod packages;
mod promtool;
mod say;
mod servers;
mod sim;
mod table;
mod test;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of the repository")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The dashboards of deploy/monitoring over a live scrape, as pictures
    Dashboards(dashboards::Options),
    /// The image: make it, run it, list what is in it
    Image(image::Options),
    /// The manifests of deploy/k8s against a real Kubernetes API server
    K8s(k8s::Options),
    /// Real Kafka and Cassandra on loopback
    Servers(servers::Options),
    /// Three data centres on this machine: six Kafka brokers, five Cassandra nodes (Linux, root)
    Cluster(cluster::Options),
    /// Many seeds of the simulation, one seed shown, or the planted mistakes
    Sim(sim::Options),
    /// Start the servers and run every test of the workspace
    Test(test::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            say::line(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.task {
        Task::Dashboards(options) => dashboards::run(options),
        Task::Image(options) => image::run(options),
        Task::K8s(options) => k8s::run(options),
        Task::Servers(options) => servers::run(options),
        Task::Cluster(options) => cluster::run(options),
        Task::Sim(options) => sim::run(&options),
        Task::Test(options) => test::run(options),
    }
}
