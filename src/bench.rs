//! `dueline bench`: how fast this machine runs Dueline, beside what its log and store can take at all.
//!
//! Every scenario runs a whole node in this process, on servers or embedded, in topics and a keyspace (or a folder) of
//! its own, which it removes afterwards. The raw ceiling is measured in the same run: a fixed program that writes one
//! record, one by-id row and three rows in time-bucketed partitions per task, batched as well as it can be, with no
//! scheduler in between. Numbers of one machine compare only within one run.

mod args;
mod ceiling;
mod event;
mod measure;
mod page;
mod report;
mod rig;
mod rows;
mod samples;
mod scenario;
mod seen;
mod sink;
mod site;
mod suite;
mod threads;

pub use args::{Args, Place, Scenario};
pub use report::Report;
pub use suite::{Program, SuiteArgs, suite};

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments do not fit the scenario.
    #[error("{0}")]
    Usage(String),
    /// A server does not answer, or tasks do not finish in time.
    #[error(transparent)]
    Run(#[from] anyhow::Error),
}

/// Runs a scenario, once for each value of what it is run with several values of; progress goes to stderr. Limits, and how
/// servers are reached, come from `config` when there is one.
///
/// # Errors
/// The arguments do not fit the scenario, a server does not answer, or tasks do not finish in time.
pub async fn run(args: &Args, config: Option<crate::config::Config>) -> Result<Report, Error> {
    let plans = args.plans(config.as_ref()).map_err(Error::Usage)?;
    let mut runs = Vec::new();
    for plan in &plans {
        let site = site::Site::open(plan, config.clone()).await?;
        let measured = scenario::run(plan, &site).await;
        let site_closed = site.close().await;
        runs.push(measured?);
        site_closed?;
    }
    Ok(Report::of_all(runs))
}
