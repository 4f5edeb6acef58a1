//! `dueline topics`: plan, create and check the topics on Kafka; nothing else ever creates one there. List and read those of
//! an embedded instance.

mod read;

use serde_json::Value;

use super::client::entries;
use super::look;
use super::output::{self, Format};
use super::{Exit, Global};
use crate::doctor::Finding;
use crate::log::kafka::topics::{self, Level};
use crate::node::{kafka_options, wanted_topics};

/// Plan, create and check the topics on Kafka; list and read those of an embedded instance.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Show the topics as they are to be.
    #[command(after_help = "Example: dueline topics plan --as commands")]
    Plan {
        /// How: a table, kafka-topics commands, or Strimzi resources.
        #[arg(long = "as", value_enum, default_value = "table")]
        form: Form,
        /// Name of the Kafka cluster in Strimzi resources.
        #[arg(long, default_value = "kafka")]
        cluster: String,
    },
    /// Create the topics that are missing; existing ones stay as they are.
    #[command(after_help = "Example: dueline topics create --config dueline.toml")]
    Create,
    /// Compare the topics with the plan; exit code 1 when a promise would break.
    #[command(after_help = "Example: dueline topics check --config dueline.toml")]
    Check,
    /// List the topics of an embedded instance, with the offsets that they hold; on Kafka ask any client of Kafka's.
    #[command(after_help = "Example: dueline topics list")]
    List,
    Read(read::Args),
}

/// Forms of a plan.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Form {
    /// For people.
    Table,
    /// `kafka-topics` commands.
    Commands,
    /// Strimzi KafkaTopic resources.
    Strimzi,
}

pub(super) async fn run(global: &Global, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Plan { form, cluster } => plan(global, form, &cluster),
        Verb::Create => create(global).await,
        Verb::Check => check(global).await,
        Verb::List => look::list(global, ("topics", "topics"), lines_of_topic).await,
        Verb::Read(wanted) => read::run(global, wanted).await,
    }
}

fn lines_of_topic(topic: &Value) -> String {
    let name = topic["topic"].as_str().unwrap_or("-");
    let line = |one: &Value| {
        format!("{name:<24} partition {:<4} offsets {} to {}\n", one["partition"], one["first"], one["next"])
    };
    entries(&topic["partitions"]).iter().map(line).collect()
}

fn plan(global: &Global, form: Form, cluster: &str) -> anyhow::Result<()> {
    let config = super::config::loaded(global, Vec::new())?.config;
    let plan = topics::plan(&wanted_topics(&config));
    if global.output != Format::Text {
        return output::json(global.output, &plan);
    }
    let brokers = config.kafka.brokers.unwrap_or_else(|| "localhost:9092".to_owned());
    output::text(&match form {
        Form::Table => topics::render::text(&plan),
        Form::Commands => topics::render::commands(&plan, &brokers),
        Form::Strimzi => topics::render::strimzi(&plan, cluster),
    })
}

async fn create(global: &Global) -> anyhow::Result<()> {
    let config = super::config::with_servers(global, Vec::new())?.config;
    let created = topics::create(&kafka_options(&config), &topics::plan(&wanted_topics(&config))).await;
    let created = created.map_err(|error| super::doctor::of_log(&error))?;
    match global.output {
        Format::Text if created.is_empty() => {
            eprintln!("all topics exist already: compare them with `dueline topics check`")
        }
        Format::Text => output::text(&created.join("\n"))?,
        format => output::json_each(format, &created)?,
    }
    Ok(())
}

async fn check(global: &Global) -> anyhow::Result<()> {
    let config = super::config::with_servers(global, Vec::new())?.config;
    let findings = topics::check(&kafka_options(&config), &topics::plan(&wanted_topics(&config))).await;
    let findings = findings.map_err(|error| super::doctor::of_log(&error))?;
    let lines: Vec<Finding> = findings.iter().map(Finding::from).collect();
    super::doctor::print(global.output, &lines)?;
    if findings.iter().any(|finding| finding.level == Level::Fail) {
        return Err(Exit::Error.with("the topics are not as they have to be"));
    }
    Ok(())
}
