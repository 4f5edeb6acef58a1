//! `dueline bench`.

use std::path::PathBuf;

use anyhow::Context as _;

use super::output::{self, Format};
use super::{Exit, Global};
use crate::bench::{Error, Program, SuiteArgs};

/// Measure tasks per second, lateness, processor time and memory, beside the raw ceiling of log and store.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Example: dueline bench pipeline --tasks 20000\n\
Example with a page: dueline bench queues --tasks 50000 --html queues.html\n\
Example on servers: dueline bench pipeline --kafka 127.0.0.1:9092 --cassandra 127.0.0.1:9042 -o json")]
#[group(skip)]
pub(super) struct Args {
    #[command(flatten)]
    bench: crate::bench::Args,
    /// Writes a page with pictures over time, too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// All scenarios in turn, each in a process of its own: a report and a page for each, and an index that says what is
    /// wanted and what was reached.
    #[command(after_help = "Example: dueline bench suite --quick --out bench-results")]
    Suite(SuiteArgs),
}

pub(super) async fn run(global: &Global, args: Args) -> anyhow::Result<()> {
    let config = match &global.config {
        Some(_) => Some(super::config::loaded(global, Vec::new())?.config),
        None => None,
    };
    if let Some(Verb::Suite(suite)) = args.verb {
        let path = std::env::current_exe().context("the file of this program")?;
        let program = Program { path, config: global.config.clone() };
        let run = move || crate::bench::suite(&suite, &program, config.as_ref());
        let reached = tokio::task::spawn_blocking(run).await?.map_err(exit)?;
        return output::text(&reached);
    }
    let (report, failed) = match args.bench.several(config.as_ref()).map_err(Error::Usage).map_err(exit)? {
        Some(count) => {
            let path = std::env::current_exe().context("the file of this program")?;
            let own = std::env::args_os().skip(1).collect();
            let each = tokio::task::spawn_blocking(move || crate::bench::each(&path, own, count));
            each.await??
        }
        None => (crate::bench::run(&args.bench, config).await.map_err(exit)?, None),
    };
    if args.bench.is_nth() {
        return output::json(Format::Jsonl, &report);
    }
    if let Some(file) = &args.html {
        let command: Vec<String> = std::env::args().skip(1).collect();
        let page = report.page(&format!("dueline {}", command.join(" ")))?;
        std::fs::write(file, page).with_context(|| format!("the page {}", file.display()))?;
    }
    match global.output {
        Format::Text => output::text(&report.table()),
        Format::Json | Format::Jsonl => output::json(Format::Jsonl, &report),
    }?;
    failed.map_or(Ok(()), Err)
}

fn exit(error: Error) -> anyhow::Error {
    match error {
        Error::Usage(text) => Exit::Usage.with(text),
        Error::Run(error) => error,
    }
}
