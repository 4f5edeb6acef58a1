//! `dueline bench`: how fast this machine runs Dueline, beside what its log and store can take at all.
//!
//! Every scenario runs a whole node in this process, with a no-op handler, on servers or embedded, in topics and a
//! keyspace (or a folder) of its own, which it removes afterwards. The raw ceiling is measured in the same run: a fixed
//! program that writes one record, one by-id row and three rows in time-bucketed partitions per task, batched as
//! well as it can be, with no scheduler in between. Numbers of one machine compare only within one run.

mod ceiling;
mod event;
mod list;
mod measure;
mod report;
mod scenario;
mod sink;
mod site;

use std::path::PathBuf;

pub use report::Report;

/// What to measure, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What to measure.
    #[arg(value_enum, default_value = "pipeline")]
    pub scenario: Scenario,
    /// Kafka, as host:port; with --cassandra.
    #[arg(long, requires = "cassandra", conflicts_with = "embedded")]
    pub kafka: Option<String>,
    /// Cassandra, as host:port; with --kafka.
    #[arg(long, requires = "kafka")]
    pub cassandra: Option<String>,
    /// Folder for an embedded run; a new one inside it is used and removed. Default: the system's temporary folder.
    #[arg(long)]
    pub embedded: Option<PathBuf>,
    /// Tasks.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub tasks: u64,
    /// Queues they belong to.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub queues: u64,
    /// Shards.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub shards: u32,
    /// Calls of the handler that may run at once. A slot is held from before the start is stored until the call has
    /// ended, so that with few the run measures how fast the store answers.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: u32,
    /// Tasks per second in `steady` and `blocked`.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub rate: u64,
    /// Seconds that `steady` takes, and each half of `blocked`.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
    /// Tasks due at once that `steady` and `blocked` run first and does not measure: servers that just started compile what they run.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub warm_up: u64,
    /// Collections that the tasks belong to, queue by queue; 0 = none.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub collections: u64,
    /// Gives the handler a rate, a quota and a breaker, and each collection a rate, a quota and slots, all of which
    /// hold nothing up: what limits cost.
    #[arg(long)]
    pub limited: bool,
    /// Leaves the raw ceiling out.
    #[arg(long)]
    pub no_ceiling: bool,
}

/// The scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Tasks due now: schedule, run, done.
    Pipeline,
    /// The same with an HTTP callback instead of a handler in this process.
    Http,
    /// Tasks due in an hour and later: schedule until they are stored.
    Ingest,
    /// Tasks at a steady rate, due two seconds ahead: lateness.
    Steady,
    /// Pending tasks beyond the look-ahead: memory above idle.
    Pending,
    /// Tasks that died: from the batch that redrives them all until they are done.
    Redrive,
    /// `steady` twice: as it is, and with `--tasks` tasks behind the head of one queue that waits at a gate.
    Blocked,
    /// The 50 newest and the 50 oldest tasks of one queue, over HTTP, with `--tasks` tasks of it in the store.
    List,
}

impl Scenario {
    /// The word used in reports.
    pub fn word(self) -> &'static str {
        match self {
            Scenario::Pipeline => "pipeline",
            Scenario::Http => "http",
            Scenario::Ingest => "ingest",
            Scenario::Steady => "steady",
            Scenario::Pending => "pending",
            Scenario::Redrive => "redrive",
            Scenario::Blocked => "blocked",
            Scenario::List => "list",
        }
    }
}

/// Runs a scenario; progress goes to stderr. Limits, and how servers are reached, come from `config` when there is one.
///
/// # Errors
/// When a server does not answer, or tasks do not finish in time.
pub async fn run(args: &Args, config: Option<crate::config::Config>) -> anyhow::Result<Report> {
    let site = site::Site::open(args, config).await?;
    let measured = scenario::run(args, &site).await;
    let site_closed = site.close().await;
    let report = measured?;
    site_closed?;
    Ok(report)
}
