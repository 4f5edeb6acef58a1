//! Breaking things, and mending them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline::log::kafka::topics::{self, Planned};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Statement;

use super::{Config, Patient};
use crate::cluster;

/// Shards of the installation.
pub(super) const SHARDS: u32 = 12;
const WHOLE: &str = "{'class': 'NetworkTopologyStrategy', 'dc1': 2, 'dc2': 2, 'dc3': 1}";
/// The others let nobody take the place of a node that they have just heard of.
const TAKEN_FOR_DEAD: Duration = Duration::from_secs(30);
const CQL_TIMEOUT: Duration = Duration::from_secs(60);

/// What is broken.
pub(super) enum Fault {
    /// The schedule topic, with a prefix of its own.
    Topic(TopicFault),
    /// The configuration alone.
    ConfiguredPartitions(u32),
    NoKeyspace,
    /// The keyspace's replication.
    Replication(&'static str),
    Cql(Cql),
    /// Servers killed.
    Down(&'static [&'static str]),
    /// A server started again with other settings.
    Set(&'static str, &'static [&'static str]),
    /// A node that lost its disk, back with nothing.
    Empty(&'static str),
    /// A data centre lost.
    Lost(&'static str),
}

pub(super) enum TopicFault {
    /// The brokers of each partition.
    Placed(&'static [i32]),
    Setting(&'static str, &'static str),
    Partitions(i32),
    Missing,
}

pub(super) enum Cql {
    /// Heartbeats of so many instances.
    Instances(usize),
    PendingMigration,
    /// An operation that drains a data centre.
    Drained,
}

/// Breaks something; the configuration to ask with.
pub(super) async fn make(patient: &Patient, fault: &Fault) -> Result<PathBuf> {
    let unique = &patient.unique;
    let own = Config { prefix: unique, keyspace: unique, partitions: SHARDS };
    match fault {
        Fault::Topic(fault) => {
            let prefix = broken_prefix(patient);
            create(patient, &prefix, fault).await?;
            return patient.write("broken", &Config { prefix: &prefix, ..own });
        }
        Fault::ConfiguredPartitions(partitions) => {
            return patient.write("broken", &Config { partitions: *partitions, ..own });
        }
        Fault::NoKeyspace => return patient.write("broken", &Config { keyspace: "doctor_nowhere", ..own }),
        Fault::Replication(factors) => alter(patient, factors).await?,
        Fault::Cql(Cql::Instances(count)) => {
            for number in 0..*count {
                let text = format!(
                    "INSERT INTO {unique}.instance (part, name, dc, advertise, version, started_at, seen_at) VALUES \
                     (0, 'i-{number}', 'dc1', 'http://i-{number}:1', '0', toTimestamp(now()), toTimestamp(now()))"
                );
                cql(patient, &text).await?;
            }
        }
        Fault::Cql(Cql::Drained) => {
            let text = format!(
                "INSERT INTO {unique}.operation (part, number, id, data) VALUES (0, 1, uuid(), \
                 '{{\"at\":0,\"change\":\"drained\",\"target\":\"dc\",\"of\":\"dc2\"}}')"
            );
            cql(patient, &text).await?;
        }
        Fault::Cql(Cql::PendingMigration) => {
            cql(patient, &format!("DELETE FROM {unique}.schema_migration WHERE version = 5")).await?;
        }
        Fault::Down(servers) => act("kill", servers).await?,
        Fault::Set(server, settings) => {
            act("stop", &[server]).await?;
            let set = settings.iter().flat_map(|setting| ["--set", *setting]);
            let arguments: Vec<&str> = [*server].into_iter().chain(set).collect();
            act("start", &arguments).await?;
        }
        Fault::Empty(server) => {
            wipe(server).await?;
            act("start", &[server, "--empty"]).await?;
        }
        Fault::Lost(dc) => act("lose", &[dc]).await?,
    }
    Ok(patient.config.clone())
}

/// Mends it.
pub(super) async fn mend(patient: &Patient, fault: &Fault) -> Result<()> {
    let unique = &patient.unique;
    match fault {
        Fault::Topic(_) => delete(patient, &broken_prefix(patient)).await,
        Fault::ConfiguredPartitions(_) | Fault::NoKeyspace => Ok(()),
        Fault::Replication(_) => alter(patient, WHOLE).await,
        Fault::Cql(Cql::Instances(_)) => cql(patient, &format!("TRUNCATE {unique}.instance")).await,
        Fault::Cql(Cql::Drained) => cql(patient, &format!("TRUNCATE {unique}.operation")).await,
        Fault::Cql(Cql::PendingMigration) => patient.dueline(&["migrate", "up"]).await,
        Fault::Down(servers) => act("start", servers).await,
        Fault::Set(server, _) => {
            act("stop", &[server]).await?;
            act("start", &[server]).await
        }
        Fault::Empty(server) => {
            wipe(server).await?;
            act("start", &[server]).await
        }
        Fault::Lost(dc) => act("heal", &[dc]).await,
    }
}

/// Stores the number of shards, as the first start of an instance does.
pub(super) async fn store_shards(patient: &Patient) -> Result<()> {
    let unique = &patient.unique;
    let text = format!(
        "INSERT INTO {unique}.cluster (id, shards, bucket_ms, subs, hash, signing_key) \
         VALUES (0, {SHARDS}, 60000, 1, 'murmur2', 0x{})",
        "00".repeat(32)
    );
    cql(patient, &text).await
}

async fn act(verb: &str, arguments: &[&str]) -> Result<()> {
    cluster::act(&[&[verb], arguments].concat()).await
}

async fn wipe(server: &str) -> Result<()> {
    act("kill", &[server]).await?;
    act("wipe", &[server]).await?;
    tokio::time::sleep(TAKEN_FOR_DEAD).await;
    Ok(())
}

fn broken_prefix(patient: &Patient) -> String {
    format!("{}_broken", patient.unique)
}

fn plan(prefix: &str) -> topics::Plan {
    let wanted =
        topics::Wanted { prefix: prefix.to_owned(), partitions: SHARDS, ..topics::Wanted::default() };
    topics::plan(&wanted)
}

fn admin(patient: &Patient) -> Result<AdminClient<DefaultClientContext>> {
    ClientConfig::new().set("bootstrap.servers", &patient.kafka).create().context("a client of Kafka")
}

/// Makes the topics, the schedule topic with the fault.
async fn create(patient: &Patient, prefix: &str, fault: &TopicFault) -> Result<()> {
    let mut plan = plan(prefix);
    if matches!(fault, TopicFault::Missing) {
        plan.topics.retain(|topic| !topic.name.ends_with(".schedule"));
    }
    let assignment: Vec<&[i32]> = match fault {
        TopicFault::Placed(brokers) => vec![brokers; SHARDS as usize],
        _ => Vec::new(),
    };
    let topics: Vec<NewTopic<'_>> = plan.topics.iter().map(|topic| new(topic, fault, &assignment)).collect();
    let created = admin(patient)?.create_topics(&topics, &AdminOptions::new()).await?;
    let refused: Vec<_> = created.into_iter().filter_map(Result::err).collect();
    ensure!(refused.is_empty(), "topics were not created: {refused:?}");
    Ok(())
}

fn new<'a>(planned: &'a Planned, fault: &TopicFault, assignment: &'a [&'a [i32]]) -> NewTopic<'a> {
    let fixed = TopicReplication::Fixed(i32::from(planned.replication_factor));
    let is_broken = planned.name.ends_with(".schedule");
    let shards = i32::try_from(SHARDS).unwrap_or(i32::MAX);
    let topic = match fault {
        TopicFault::Placed(_) if is_broken => {
            NewTopic::new(&planned.name, shards, TopicReplication::Variable(assignment))
        }
        TopicFault::Partitions(partitions) if is_broken => NewTopic::new(&planned.name, *partitions, fixed),
        _ => NewTopic::new(&planned.name, shards, fixed),
    };
    planned.settings.iter().fold(topic, |topic, setting| match fault {
        TopicFault::Setting(name, value) if is_broken && *name == setting.name => topic.set(name, value),
        _ => topic.set(setting.name, &setting.value),
    })
}

async fn delete(patient: &Patient, prefix: &str) -> Result<()> {
    let names = plan(prefix).names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let admin = admin(patient)?;
    admin.delete_topics(&names, &AdminOptions::new()).await?;
    // Brokers hear of it a moment later; the next case makes topics of the same names.
    for _ in 0..DELETED_POLLS_MAX {
        let client = admin.inner().fetch_metadata(None, CQL_TIMEOUT)?;
        if !client.topics().iter().any(|topic| names.contains(&topic.name())) {
            return Ok(());
        }
        tokio::time::sleep(DELETED_POLL).await;
    }
    anyhow::bail!("the topics {prefix}.* are still there")
}

const DELETED_POLL: Duration = Duration::from_millis(200);
const DELETED_POLLS_MAX: u32 = 150;

async fn alter(patient: &Patient, replication: &str) -> Result<()> {
    cql(patient, &format!("ALTER KEYSPACE {} WITH replication = {replication}", patient.unique)).await
}

async fn cql(patient: &Patient, text: &str) -> Result<()> {
    let session: Session =
        SessionBuilder::new().known_nodes(patient.cassandra.split(',')).build().await.context("a session")?;
    let mut statement = Statement::new(text);
    statement.set_request_timeout(Some(CQL_TIMEOUT));
    session.query_unpaged(statement, ()).await.with_context(|| text.to_owned())?;
    Ok(())
}
