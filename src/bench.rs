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
mod pace;
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

/// Runs a scenario with one value of everything; progress goes to stderr. Limits, and how servers are reached, come from
/// `config` when there is one.
///
/// # Errors
/// The arguments do not fit the scenario, a server does not answer, or tasks do not finish in time.
pub async fn run(args: &Args, config: Option<crate::config::Config>) -> Result<Report, Error> {
    let plan = args.plan(config.as_ref()).map_err(Error::Usage)?;
    let site = site::Site::open(&plan, config).await?;
    let measured = scenario::run(&plan, &site).await;
    let closed = site.close().await;
    let report = measured?;
    closed?;
    Ok(report)
}

/// Runs this program with its own arguments once for each of `count` values, each in a process of its own, so that none
/// inherits the memory of another. Those that ended are one report; of the others it is said why they failed.
///
/// # Errors
/// None of them ended.
pub fn each(
    program: &std::path::Path,
    args: Vec<std::ffi::OsString>,
    count: usize,
) -> anyhow::Result<(Report, Option<anyhow::Error>)> {
    let (mut runs, mut failed) = (Vec::new(), None);
    for nth in 0..count {
        let mut command = std::process::Command::new(program);
        command.args(&args).arg("--nth").arg(nth.to_string());
        let printed = suite::process::printed(command, program);
        match printed.and_then(|printed| Ok(serde_json::from_slice::<Report>(&printed)?)) {
            Ok(report) => runs.push(report),
            Err(error) => {
                failed = Some(failed.unwrap_or(error.context(format!("run {} of {count}", nth + 1))))
            }
        }
    }
    match failed {
        Some(error) if runs.is_empty() => Err(error),
        failed => Ok((Report::of_all(runs), failed)),
    }
}
