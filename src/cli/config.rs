//! `dueline config`: check and show the configuration.

use std::collections::BTreeMap;

use super::output::{self, Format};
use super::{Exit, Global};
use crate::config::{Config, Flag, Loaded, Problems, Sources, load};

/// Check or show the configuration.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Check the configuration, all of it at once; with servers named also what `serve` would refuse before it asks them, without them what `serve --embedded` would refuse is told.
    #[command(after_help = "Example: dueline config check --config dueline.toml")]
    Check,
    /// Show every value and where it comes from; secrets are not shown.
    #[command(after_help = "Example: dueline config show")]
    Show,
}

pub(super) fn run(global: &Global, verb: &Verb) -> anyhow::Result<()> {
    let loaded = loaded(global, Vec::new())?;
    if matches!(verb, Verb::Check) {
        loaded.config.doubts().iter().for_each(|doubt| eprintln!("warning: {doubt}"));
    }
    match (verb, global.output) {
        (Verb::Check, _) if loaded.names_servers() => {
            expect_servers(&loaded)?;
            eprintln!("the configuration is in order");
            Ok(())
        }
        (Verb::Check, _) => {
            eprintln!("{}", without_servers(&loaded));
            Ok(())
        }
        (Verb::Show, Format::Text) => output::text(&loaded.show()),
        (Verb::Show, format) => output::json_each(format, &loaded.entries()),
    }
}

/// What may be started with a configuration that names no servers.
fn without_servers(loaded: &Loaded) -> String {
    match expect_embedded(loaded) {
        Ok(()) => "the configuration is in order for `dev` and `serve --embedded`; `serve` without it also needs kafka.brokers and cassandra.nodes".to_owned(),
        Err(problems) => format!("the configuration is in order for `dev`; `serve --embedded` refuses it:\n{problems}"),
    }
}

/// Flags, environment and file.
///
/// # Errors
/// A variable of Dueline is not UTF-8.
pub(super) fn sources(global: &Global, flags: Vec<Flag>) -> anyhow::Result<Sources> {
    let mut environment = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        if !name.as_encoded_bytes().starts_with(b"DUELINE_") {
            continue;
        }
        let shown = name.to_string_lossy().into_owned();
        let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) else {
            return Err(
                Exit::Usage.with(format!("environment {shown}: is not UTF-8: set it anew, or remove it"))
            );
        };
        environment.insert(name, value);
    }
    Ok(Sources { flags, environment, file: global.config.clone() })
}

/// Reads flags, environment and file.
pub(super) fn loaded(global: &Global, flags: Vec<Flag>) -> anyhow::Result<Loaded> {
    load(sources(global, flags)?).map_err(|problems| Exit::Usage.with(problems.to_string()))
}

/// Reads the configuration of an installation with servers.
pub(super) fn with_servers(global: &Global, flags: Vec<Flag>) -> anyhow::Result<Loaded> {
    let loaded = loaded(global, flags)?;
    loaded.require_servers().map_err(|problems| Exit::Usage.with(problems.to_string()))?;
    Ok(loaded)
}

/// Says what the configuration says and a person hardly means.
pub(super) fn warn(config: &Config) {
    for doubt in config.doubts() {
        tracing::warn!("configuration: {doubt}");
    }
}

/// Says which keys were set aside by a verb that has no servers.
pub(super) fn warn_of_ignored(keys: &[String], verb: &str) {
    if !keys.is_empty() {
        tracing::warn!(keys = keys.join(", "), "set, and of no use to `{verb}`, which has no servers");
    }
}

/// Checks all that `serve` needs of the configuration and that can be seen without a connection.
pub(super) fn expect_servers(loaded: &Loaded) -> anyhow::Result<()> {
    let mut lines =
        lines([loaded.require_servers(), loaded.refuse_in_process(), loaded.config.require_access()]);
    if let Err(error) = crate::node::kafka_options(&loaded.config).check() {
        lines.push(format!("kafka: {error}"));
    }
    refused_if_any(&lines)
}

/// Checks all that `serve --embedded` needs of the configuration.
pub(super) fn expect_embedded(loaded: &Loaded) -> anyhow::Result<()> {
    refused_if_any(&lines([loaded.refuse_in_process(), loaded.config.require_access()]))
}

fn lines<const N: usize>(checks: [Result<(), Problems>; N]) -> Vec<String> {
    checks.into_iter().filter_map(Result::err).map(|problems| problems.to_string()).collect()
}

fn refused_if_any(lines: &[String]) -> anyhow::Result<()> {
    if lines.is_empty() { Ok(()) } else { Err(Exit::Usage.with(lines.join("\n"))) }
}
