//! Creation of the planned topics, and what the cluster says about itself.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::types::RDKafkaErrorCode;

use super::super::context::Plain;
use super::super::error;
use super::super::options::Options;
use super::Plan;
use crate::log::Error;

/// Longest time that the cluster may take to answer.
pub(super) const ADMIN_TIMEOUT: Duration = Duration::from_secs(15);

/// What the cluster says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its id.
    pub id: Option<String>,
    /// Its brokers as `id@host:port`.
    pub brokers: Vec<String>,
    /// The protocol level between the brokers (`inter.broker.protocol.version`), where a broker tells it.
    pub version: Option<String>,
}

pub(super) fn client(options: &Options) -> Result<AdminClient<Plain>, Error> {
    options.check()?;
    AdminClient::from_config_and_context(&options.admin_config(), Plain).map_err(error::creation)
}

pub(super) fn admin_options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ADMIN_TIMEOUT)).operation_timeout(Some(ADMIN_TIMEOUT))
}

/// Creates the planned topics that do not exist; gives the names of those created. Existing ones stay as they are.
///
/// # Errors
/// [`Error::Unavailable`] when the cluster does not answer; [`Error::Refused`] with the first topic it refuses.
pub async fn create(options: &Options, plan: &Plan) -> Result<Vec<String>, Error> {
    let client = client(options)?;
    let topics: Vec<NewTopic<'_>> = plan
        .topics
        .iter()
        .map(|topic| {
            let partitions = i32::try_from(topic.partitions).unwrap_or(i32::MAX);
            let replicas = TopicReplication::Fixed(i32::from(topic.replication_factor));
            let topic_of = NewTopic::new(&topic.name, partitions, replicas);
            topic.settings.iter().fold(topic_of, |new, setting| new.set(setting.name, &setting.value))
        })
        .collect();
    let results = client
        .create_topics(&topics, &admin_options())
        .await
        .map_err(|error| Error::Unavailable(error.to_string()))?;
    let mut created = Vec::new();
    for result in results {
        match result {
            Ok(name) => created.push(name),
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, code)) => return Err(Error::Refused(format!("topic {name}: {code}"))),
        }
    }
    Ok(created)
}

/// Asks the cluster who it is: for `doctor`.
///
/// # Errors
/// [`Error::Unavailable`] when it does not answer.
pub async fn cluster(options: &Options) -> Result<Cluster, Error> {
    let client = client(options)?;
    let asked = tokio::task::spawn_blocking(move || {
        let metadata = client.inner().fetch_metadata(None, ADMIN_TIMEOUT);
        let id = client.inner().fetch_cluster_id(ADMIN_TIMEOUT);
        (client, metadata, id)
    });
    let (client, metadata, id) = asked.await.map_err(|error| Error::Unavailable(error.to_string()))?;
    let metadata = metadata.map_err(|error| Error::Unavailable(error.to_string()))?;
    let brokers: Vec<String> = metadata
        .brokers()
        .iter()
        .map(|broker| format!("{}@{}:{}", broker.id(), broker.host(), broker.port()))
        .collect();
    let version = match metadata.brokers().first() {
        Some(broker) => version(&client, broker.id()).await,
        None => None,
    };
    Ok(Cluster { id, brokers, version })
}

async fn version(client: &AdminClient<Plain>, broker: i32) -> Option<String> {
    use rdkafka::admin::ResourceSpecifier::Broker;
    let described = client.describe_configs(&[Broker(broker)], &admin_options()).await.ok()?;
    let resource = described.into_iter().next()?.ok()?;
    resource.get("inter.broker.protocol.version")?.value.clone()
}

/// Deletes the planned topics with everything in them: for benches and tests, which make their own.
///
/// # Errors
/// [`Error::Unavailable`] when the cluster does not answer.
pub async fn delete(options: &Options, plan: &Plan) -> Result<(), Error> {
    let names: Vec<&str> = plan.topics.iter().map(|topic| topic.name.as_str()).collect();
    let deleted = client(options)?.delete_topics(&names, &admin_options()).await;
    deleted.map(|_| ()).map_err(|error| Error::Unavailable(error.to_string()))
}
