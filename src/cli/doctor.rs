//! `dueline doctor`: whether this installation would keep its promises, line by line, with what to do.
//!
//! Gathers facts from Kafka and Cassandra at once and has [`crate::doctor`] judge them.

use std::time::Duration;

use super::output::{self, Format};
use super::{Exit, Global};
use crate::config::Config;
use crate::doctor::{Check, Finding, Level, Wanted, cassandra, installation, kafka};
use crate::log::kafka::{facts, topics};
use crate::node::{cassandra_options, kafka_options, wanted_topics};
use crate::runtime::clock::Clock;
use crate::{log, store};

/// Check Kafka, Cassandra, topics, rights, replication, migrations and clocks, and whether a data centre can be lost; exit
/// code 1 when a promise would break.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline doctor --config dueline.toml")]
pub(super) struct Args {}

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
    let wanted = Wanted::of(&config);
    let (of_log, of_group, of_store) = tokio::join!(
        in_time(Check::KafkaAnswers, "Kafka", of_kafka(&config, &wanted)),
        in_time(Check::KafkaRights, "the group's coordinator", of_group(&config, &wanted)),
        in_time(Check::CassandraAnswers, "Cassandra", of_cassandra(&config, &wanted))
    );
    let findings = [of_log, of_group, of_store].concat();
    print(global.output, &findings)?;
    let failed = findings.iter().filter(|one| one.level == Level::Fail).count();
    if failed > 0 {
        return Err(Exit::Error.with(format!("{failed} of {} checks failed", findings.len())));
    }
    Ok(())
}

/// The findings, or one that says that nobody answered.
async fn in_time(check: Check, what: &str, found: impl Future<Output = Vec<Finding>>) -> Vec<Finding> {
    tokio::time::timeout(WAIT_MAX, found).await.unwrap_or_else(|_| {
        let text = format!("{what} did not answer within {} s", WAIT_MAX.as_secs());
        vec![Finding::fail(check, text, "check its address, the network and the security settings")]
    })
}

async fn of_kafka(config: &Config, wanted: &Wanted) -> Vec<Finding> {
    let plan = topics::plan(&wanted_topics(config));
    match facts::read(&kafka_options(config), &plan.names()).await {
        Ok(facts) => kafka::findings(wanted, &plan, &facts),
        Err(error) => {
            let todo = "check kafka.brokers and the security settings";
            vec![Finding::fail(Check::KafkaAnswers, error.to_string(), todo)]
        }
    }
}

async fn of_group(config: &Config, wanted: &Wanted) -> Vec<Finding> {
    vec![kafka::group_rights(wanted, &facts::group_rights(&kafka_options(config)).await)]
}

async fn of_cassandra(config: &Config, wanted: &Wanted) -> Vec<Finding> {
    match store::cassandra::facts::read(&cassandra_options(config)).await {
        Ok(facts) => {
            let now = Clock::start().now().wall;
            [cassandra::findings(wanted, &facts), installation::findings(wanted, &facts, now)].concat()
        }
        Err(error) => {
            let todo = "check cassandra.nodes, the network and the credentials";
            vec![Finding::fail(Check::CassandraAnswers, error.to_string(), todo)]
        }
    }
}

/// Longest time for the questions to one of them.
const WAIT_MAX: Duration = Duration::from_secs(30);

pub(super) fn print(format: Format, findings: &[Finding]) -> anyhow::Result<()> {
    if format != Format::Text {
        return output::json_each(format, findings);
    }
    let mut text = String::new();
    for finding in findings {
        let (level, check) = (finding.level.word(), finding.check.word());
        text.push_str(&format!("{level:<4}  {check:<22}  {}\n", finding.what));
        if !finding.todo.is_empty() {
            text.push_str(&format!("{:28}  → {}\n", "", finding.todo));
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
