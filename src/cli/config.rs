//! `dueline config`: check and show the configuration.

use super::output::{self, Format};
use super::{Exit, Global};
use crate::config::{Flag, Loaded, Sources, load};

/// Check or show the configuration.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Check the configuration; every problem is told at once.
    #[command(after_help = "Example: dueline config check --config dueline.toml")]
    Check,
    /// Show every value and where it comes from; secrets are not shown.
    #[command(after_help = "Example: dueline config show")]
    Show,
}

pub(super) fn run(global: &Global, verb: &Verb) -> anyhow::Result<()> {
    let loaded = loaded(global, Vec::new())?;
    match (verb, global.output) {
        (Verb::Check, _) => {
            eprintln!("the configuration is in order");
            Ok(())
        }
        (Verb::Show, Format::Text) => output::text(&loaded.show()),
        (Verb::Show, format) => output::json(format, &loaded.entries()),
    }
}

/// Reads flags, environment and file.
pub(super) fn loaded(global: &Global, flags: Vec<Flag>) -> anyhow::Result<Loaded> {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let sources = Sources { flags, environment, file: global.config.clone() };
    load(sources).map_err(|problems| Exit::Usage.with(problems.to_string()))
}

/// Reads the configuration of an installation with servers.
pub(super) fn with_servers(global: &Global, flags: Vec<Flag>) -> anyhow::Result<Loaded> {
    let loaded = loaded(global, flags)?;
    loaded.require_servers().map_err(|problems| Exit::Usage.with(problems.to_string()))?;
    Ok(loaded)
}
