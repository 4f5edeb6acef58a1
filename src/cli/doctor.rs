//! `dueline doctor`: whether this installation would keep its promises, line by line, with what to do.

use std::time::Duration;

use serde::Serialize;

use super::output::{self, Format};
use super::{Exit, Global};
use crate::config::Config;
use crate::log::kafka::topics::{self, Finding, Level};
use crate::node::{cassandra_options, kafka_options, wanted_topics};
use crate::store::cassandra::{Cassandra, migrate};
use crate::{log, store};

/// Check Kafka, Cassandra, topics, replication, migrations and clocks; exit code 1 when a promise would break.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline doctor --config dueline.toml")]
pub(super) struct Args {}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    /// `ok`, `warn` or `fail`.
    pub(super) level: &'static str,
    /// What was found.
    pub(super) what: String,
    /// What to do about it; empty when nothing is to be done.
    pub(super) todo: String,
}

impl Line {
    fn new(level: &'static str, what: impl Into<String>, todo: impl Into<String>) -> Line {
        Line { level, what: what.into(), todo: todo.into() }
    }
}

impl From<&Finding> for Line {
    fn from(finding: &Finding) -> Line {
        let level = match finding.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        Line::new(level, finding.what.clone(), finding.todo.clone())
    }
}

pub(super) async fn run(global: &Global, _args: Args) -> anyhow::Result<()> {
    let config = super::config::with_servers(global, Vec::new())?.config;
    // What the clients run into is told while they try.
    crate::telemetry::init(&config.log)?;
    eprintln!(
        "asking Kafka at {} and Cassandra at {}, each for at most {} s",
        config.kafka.brokers.as_deref().unwrap_or_default(),
        config.cassandra.nodes.join(","),
        WAIT_MAX.as_secs()
    );
    let (of_log, of_store) =
        tokio::join!(in_time("Kafka", kafka(&config)), in_time("Cassandra", cassandra(&config)));
    let lines = [of_log, of_store].concat();
    print(global.output, &lines)?;
    let failed = lines.iter().filter(|line| line.level == "fail").count();
    if failed > 0 {
        return Err(Exit::Error.with(format!("{failed} of {} checks failed", lines.len())));
    }
    Ok(())
}

/// The lines, or one that says that nobody answered.
async fn in_time(what: &str, lines: impl Future<Output = Vec<Line>>) -> Vec<Line> {
    tokio::time::timeout(WAIT_MAX, lines).await.unwrap_or_else(|_| {
        let text = format!("{what} did not answer within {} s", WAIT_MAX.as_secs());
        vec![Line::new("fail", text, "check its address, the network and the security settings")]
    })
}

async fn kafka(config: &Config) -> Vec<Line> {
    let options = kafka_options(config);
    let mut lines = Vec::new();
    match topics::cluster(&options).await {
        Ok(cluster) => {
            let brokers = cluster.brokers.len();
            let what = format!("Kafka answers: {brokers} broker(s), {}", cluster.brokers.join(", "));
            lines.push(Line::new("ok", what, ""));
            if brokers < usize::try_from(config.topics.replication_factor).unwrap_or(usize::MAX) {
                let what = format!(
                    "topics.replication_factor is {}, there are {brokers} broker(s)",
                    config.topics.replication_factor
                );
                lines.push(Line::new("fail", what, "start more brokers, or lower topics.replication_factor"));
            }
            if config.topics.min_insync_replicas < 2 {
                let what = format!("topics.min_insync_replicas is {}", config.topics.min_insync_replicas);
                lines.push(Line::new(
                    "warn",
                    what,
                    "an accepted event may be lost with one broker: 2 or more, on 3 brokers or more",
                ));
            }
        }
        Err(error) => {
            lines.push(Line::new("fail", error.to_string(), "check kafka.brokers and the security settings"));
            return lines;
        }
    }
    match topics::check(&options, &topics::plan(&wanted_topics(config))).await {
        Ok(findings) => lines.extend(findings.iter().map(Line::from)),
        Err(error) => lines.push(Line::new("fail", error.to_string(), "run `dueline topics check` again")),
    }
    lines
}

async fn cassandra(config: &Config) -> Vec<Line> {
    let options = cassandra_options(config);
    let mut lines = Vec::new();
    match migrate::status(&options).await {
        Ok(status) if status.pending().next().is_some() => {
            lines.push(Line::new("ok", "Cassandra answers", ""));
            lines.push(Line::new("fail", "migrations are pending", "run `dueline migrate up`"));
            return lines;
        }
        Ok(_) => lines.push(Line::new("ok", "Cassandra answers, migrations are applied", "")),
        Err(error) => {
            lines.push(Line::new("fail", error.to_string(), CHECK_NODES));
            return lines;
        }
    }
    match Cassandra::connect(&options).await {
        Ok(store) => lines.extend(replication(config, &store)),
        Err(error) => lines.push(Line::new("fail", error.to_string(), CHECK_NODES)),
    }
    lines.extend(clocks(&options).await);
    lines
}

/// Would a quorum be left whichever data centre is lost, with the nodes that are there?
fn replication(config: &Config, store: &Cassandra) -> Vec<Line> {
    let replication = match store.replication() {
        Ok(replication) => replication,
        Err(error) => return vec![Line::new("fail", error.to_string(), CHECK_NODES)],
    };
    let mut lines = Vec::new();
    for (dc, factor) in &replication.factors {
        let nodes = replication.nodes.get(dc).copied().unwrap_or(0);
        let what = format!(
            "keyspace {}: {factor} replica(s) in {dc}, which has {nodes} node(s)",
            config.cassandra.keyspace
        );
        let enough = nodes >= *factor;
        let todo = if enough { "" } else { "add nodes there, or lower the replication factor" };
        lines.push(Line::new(if enough { "ok" } else { "fail" }, what, todo));
    }
    let survives =
        crate::config::Cassandra { replication: replication.factors.clone(), ..config.cassandra.clone() };
    if survives.survives_dc_loss() {
        lines.push(Line::new("ok", "a quorum is left whichever data centre is lost", ""));
    } else {
        let todo = "replicate over three data centres, as in dc1 = 2, dc2 = 2, dc3 = 1";
        lines.push(Line::new("warn", "no quorum is left when one data centre is lost", todo));
    }
    lines
}

/// How far this machine's clock is from the nodes'.
async fn clocks(options: &store::cassandra::Options) -> Vec<Line> {
    match store::cassandra::clock_offset_ms(options).await {
        Ok(offset) if offset.abs() <= CLOCK_WARN_MS => {
            vec![Line::new("ok", format!("clock within {} ms of Cassandra's", offset.abs().max(1)), "")]
        }
        Ok(offset) => {
            let what = format!("clock is {offset} ms from Cassandra's");
            vec![Line::new(
                "warn",
                what,
                "synchronise clocks (chrony, ntpd): tasks run by this machine's wall clock",
            )]
        }
        Err(error) => vec![Line::new("warn", format!("clock offset not known: {error}"), CHECK_NODES)],
    }
}

/// Longest time for the questions to one of the two.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// What to do when Cassandra does not answer, or does not know the keyspace.
const CHECK_NODES: &str =
    "check cassandra.nodes and the credentials; run `dueline migrate up` for a new keyspace";
/// Clock difference that is worth a line, in milliseconds.
const CLOCK_WARN_MS: i64 = 50;

pub(super) fn print(format: Format, lines: &[Line]) -> anyhow::Result<()> {
    if format != Format::Text {
        return output::json_each(format, lines);
    }
    let mut text = String::new();
    for line in lines {
        text.push_str(&format!("{:<4}  {}\n", line.level, line.what));
        if !line.todo.is_empty() {
            text.push_str(&format!("      → {}\n", line.todo));
        }
    }
    output::text(&text)
}

pub(super) fn of_log(error: &log::Error) -> anyhow::Error {
    let exit = match error {
        log::Error::Unavailable(_) | log::Error::Unknown(_) => Exit::Unavailable,
        log::Error::NotAssigned(_)
        | log::Error::OffsetGone { .. }
        | log::Error::Refused(_)
        | log::Error::TooLarge(_)
        | log::Error::Fatal(_) => Exit::Error,
    };
    exit.with(error.to_string())
}

pub(super) fn of_store(error: &store::Error) -> anyhow::Error {
    let exit = match error {
        store::Error::Unavailable(_) => Exit::Unavailable,
        store::Error::RowRefused { .. } | store::Error::Misconfigured(_) | store::Error::Corrupt(_) => {
            Exit::Error
        }
    };
    exit.with(error.to_string())
}
