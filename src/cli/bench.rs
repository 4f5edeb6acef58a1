//! `dueline bench`.

use super::output::{self, Format};
use super::{Exit, Global};
use crate::bench::Error;

/// Measure tasks per second, lateness, processor time and memory, beside the raw ceiling of log and store.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline bench pipeline --tasks 20000\n\
Example of several runs: dueline bench queues --queues 10,10000 --tasks 50000\n\
Example on servers: dueline bench pipeline --kafka 127.0.0.1:9092 --cassandra 127.0.0.1:9042 -o json")]
#[group(skip)]
pub(super) struct Args {
    #[command(flatten)]
    bench: crate::bench::Args,
}

pub(super) async fn run(global: &Global, args: Args) -> anyhow::Result<()> {
    let config = match &global.config {
        Some(_) => Some(super::config::loaded(global, Vec::new())?.config),
        None => None,
    };
    let report = crate::bench::run(&args.bench, config).await.map_err(|error| match error {
        Error::Usage(text) => Exit::Usage.with(text),
        Error::Run(error) => error,
    })?;
    match global.output {
        Format::Text => output::text(&report.table()),
        Format::Json | Format::Jsonl => output::json(Format::Jsonl, &report),
    }
}
