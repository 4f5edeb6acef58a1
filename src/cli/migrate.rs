//! `dueline migrate`: the tables in Cassandra.

use super::output::{self, Format};
use super::{Exit, Global};
use crate::node::cassandra_options;
use crate::store::cassandra::migrate;

/// What is done with the tables.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Show which migrations are applied.
    #[command(after_help = "Example: dueline migrate status --config dueline.toml")]
    Status,
    /// Apply what is pending; safe when several instances do it at once.
    #[command(after_help = "Example: dueline migrate up --config dueline.toml")]
    Up {
        /// Only show the statements.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Create and upgrade the tables in Cassandra.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
#[command(after_help = "Example: dueline migrate --dry-run --config dueline.toml")]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Only show the statements that `up` would run.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(global: &Global, args: Args) -> anyhow::Result<()> {
    let verb = args.verb.unwrap_or(Verb::Up { dry_run: args.dry_run });
    let config = super::config::with_servers(global, Vec::new())?.config;
    let options = cassandra_options(&config);
    match verb {
        Verb::Status => {
            let status = migrate::status(&options).await.map_err(|error| super::doctor::of_store(&error))?;
            show(global.output, &status)
        }
        Verb::Up { dry_run: true } => {
            let statements =
                migrate::plan(&options).await.map_err(|error| super::doctor::of_store(&error))?;
            match global.output {
                Format::Text => {
                    output::text(&statements.iter().map(|one| format!("{one};\n\n")).collect::<String>())
                }
                format => output::json_each(format, &statements),
            }
        }
        Verb::Up { dry_run: false } => {
            let mut tell = |step: migrate::Step| eprintln!("{step}");
            let done = migrate::up(&options, &config.instance.name, &mut tell).await;
            let status = done.map_err(|error| super::doctor::of_store(&error))?;
            show(global.output, &status)
        }
    }
}

fn word(state: &migrate::State) -> &'static str {
    match state {
        migrate::State::Pending => "pending",
        migrate::State::Applied { .. } => "applied",
        migrate::State::Changed => "changed",
        migrate::State::Newer => "newer",
    }
}

fn show(format: Format, status: &migrate::Status) -> anyhow::Result<()> {
    let rows: Vec<serde_json::Value> = status
        .migrations
        .iter()
        .map(|one| serde_json::json!({ "version": one.version, "name": one.name, "state": word(&one.state) }))
        .collect();
    match format {
        Format::Text => {
            let lines = status
                .migrations
                .iter()
                .map(|one| format!("{:04}  {:<30} {}\n", one.version, one.name, word(&one.state)));
            output::text(&lines.collect::<String>())?;
        }
        format => output::json_each(format, &rows)?,
    }
    if status.pending().next().is_some() {
        return Err(Exit::Error.with("migrations are pending: run `dueline migrate up`"));
    }
    Ok(())
}
