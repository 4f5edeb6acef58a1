//! `dueline shard`: how far each is, and accepting that the log of one lost records.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};

use super::client::{Client, entries};
use super::look::list;
use super::task::one;
use super::wait::{self, Patience};
use super::{Exit, Global, output};

/// Look at shards, and have those go on whose log lost records.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List every shard: owner, epoch, phase, progress.
    #[command(after_help = "Example: dueline shard list")]
    List,
    Reset(Reset),
}

/// Accept that records of stopped shards are lost, and go on with what their logs hold now. Tasks that were taken in stay and run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline shard reset 3 17 --reason \"topic made anew after incident 42\"")]
pub(super) struct Reset {
    /// The shards: each has to be stopped.
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "SHARD")]
    shards: Vec<u32>,
    /// Every shard that is stopped.
    #[arg(long)]
    all: bool,
    /// Who: the user name when not given.
    #[arg(long, env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
    /// Do not wait until they run.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    patience: Patience,
}

pub(super) async fn run(global: &Global, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List => list(global, ("shards", "shards"), line_of_shard).await,
        Verb::Reset(wanted) => reset(global, wanted).await,
    }
}

async fn reset(global: &Global, wanted: Reset) -> anyhow::Result<()> {
    let Reset { shards, all, by, reason, no_wait, patience } = wanted;
    let patience = patience.duration()?;
    let mut body = if all { json!({"all": true}) } else { json!({"shards": shards}) };
    for (name, value) in [("by", by), ("reason", reason)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    let client = Client::new(global)?;
    let answer = client.post("/v1/shards:reset", body.to_string(), None).await?;
    let missing: Vec<&str> = entries(&answer["missing"]).iter().filter_map(Value::as_str).collect();
    missing.iter().for_each(|one| eprintln!("missing: {one}"));
    if !no_wait {
        let until = Instant::now() + patience;
        let look = |shards: &[Value]| {
            let left = left(entries(&answer["resets"]), shards);
            (left.is_empty(), format!("not running yet: {}", Vec::from_iter(left).join(", ")))
        };
        let stands = "the reset is on record; `dueline shard list` says what becomes of it";
        wait::for_shards(&client, until, look, stands).await?;
    }
    one(global.output, &answer, |answer| entries(&answer["resets"]).iter().map(line_of_reset).collect())?;
    match missing.is_empty() || !all {
        true => Ok(()),
        false => {
            Err(Exit::Unavailable.with("what is stopped there was not reset: ask again when it answers"))
        }
    }
}

/// Those that do not run the generation of their reset, or a later one, each with what it does.
fn left(resets: &[Value], shards: &[Value]) -> BTreeSet<String> {
    let not_yet = |reset: &Value| {
        let found = shards.iter().find(|shard| shard["shard"] == reset["shard"]);
        let phase = found.and_then(|shard| shard["phase"].as_str()).unwrap_or("unknown");
        let generation = found.and_then(|shard| shard["generation"].as_u64());
        let is_done = phase == "running" && generation >= reset["generation"].as_u64();
        (!is_done).then(|| format!("shard {} {phase}", reset["shard"]))
    };
    resets.iter().filter_map(not_yet).collect()
}

fn line_of_shard(shard: &Value) -> String {
    let owner = shard["owner"].as_str().unwrap_or("-");
    let phase = shard["phase"].as_str().unwrap_or("-");
    let watermark = shard["watermark"].as_str().unwrap_or("-");
    let lag = shard["lag"].as_u64().map_or_else(|| "-".to_owned(), |lag| lag.to_string());
    let mut line = format!(
        "{:<5} {owner:<20} epoch {:<5} {phase:<12} applied {:<8} lag {lag:<6} watermark {watermark:<24}  in memory {}",
        shard["shard"], shard["epoch"], shard["applied"], shard["tasks_in_memory"]
    );
    if let Some(generation) = shard["generation"].as_u64().filter(|generation| *generation > 0) {
        line.push_str(&format!("  generation {generation}"));
    }
    if let Some(why) = shard["stopped"]["why"].as_str() {
        line.push_str(&format!("  {why}"));
    }
    output::on_one_line(&line)
}

fn line_of_reset(reset: &Value) -> String {
    format!(
        "shard {}: generation {}; offset {} was wanted, it goes on at {}\n",
        reset["shard"], reset["generation"], reset["wanted"], reset["first"]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_waited_for_until_its_generation_runs() {
        let resets = [json!({"shard": 3, "generation": 1}), json!({"shard": 4, "generation": 2})];
        let shard = |shard: u32, phase: &str, generation: u32| json!({"shard": shard, "phase": phase, "generation": generation});
        let words = |shards: &[Value]| Vec::from_iter(left(&resets, shards)).join(", ");
        let stopped = [shard(3, "stopped", 0), shard(4, "running", 1)];
        assert_eq!(words(&stopped), "shard 3 stopped, shard 4 running");
        assert_eq!(words(&[shard(3, "running", 1)]), "shard 4 unknown");
        assert_eq!(words(&[shard(3, "running", 1), shard(4, "running", 3)]), "");
    }

    #[test]
    fn a_stopped_shard_says_why_on_its_line() {
        let shard = json!({"shard": 3, "phase": "stopped", "epoch": 2, "generation": 1, "stopped": {"why": "records\nare gone"}});
        let line = line_of_shard(&shard);
        assert!(line.contains("generation 1") && line.ends_with("\n") && line.lines().count() == 1, "{line}");
        assert!(!line_of_shard(&json!({"shard": 3, "generation": 0})).contains("generation"));
    }
}
