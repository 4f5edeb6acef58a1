//! Creation of the planned topics, and their end.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::types::RDKafkaErrorCode;

use super::super::context::Plain;
use super::super::error;
use super::super::facts;
use super::super::options::Options;
use super::Plan;
use crate::log::Error;

/// Longest time that the cluster may take to answer.
pub(in crate::log::kafka) const ADMIN_TIMEOUT: Duration = Duration::from_secs(15);

/// Topics that were made are waited for so long.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);
const SHOWN_AGAIN: Duration = Duration::from_millis(50);

pub(in crate::log::kafka) fn client(options: &Options) -> Result<AdminClient<Plain>, Error> {
    options.check()?;
    let mut config = options.admin_config();
    // That a broker closed a connection at once tells of the wrong protocol, and is no warning to librdkafka.
    config.set_log_level(RDKafkaLogLevel::Info);
    AdminClient::from_config_and_context(&config, Plain::default()).map_err(error::creation)
}

pub(in crate::log::kafka) fn admin_options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ADMIN_TIMEOUT)).operation_timeout(Some(ADMIN_TIMEOUT))
}

/// Creates the planned topics that do not exist; gives the names of those created. Existing ones stay as they are.
///
/// # Errors
/// [`Error::Unavailable`] when the cluster does not answer; [`Error::Refused`] with the first topic it refuses.
pub async fn create(options: &Options, plan: &Plan) -> Result<Vec<String>, Error> {
    let client = facts::reached(options).await?;
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
            Err((name, code)) => return Err(Error::Refused(refusal(&name, code))),
        }
    }
    shown(options, &created).await;
    Ok(created)
}

fn refusal(name: &str, code: RDKafkaErrorCode) -> String {
    let todo = match code {
        RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed => {
            ": grant Create on it, or make it as `dueline topics plan --as commands` says: the rights are in \
             deploy/k8s/kafka/users.yaml"
        }
        _ => "",
    };
    format!("topic {name} is not created: {code}{todo}")
}

/// Brokers show a topic a moment after it was made: a start right then would be told that there is none.
async fn shown(options: &Options, names: &[String]) {
    let until = Instant::now() + SHOWN_WITHIN;
    while !names.is_empty() && Instant::now() < until {
        match facts::read(options, names).await {
            Ok(facts) if names.iter().all(|name| facts.topics.contains_key(name)) => return,
            Ok(_) => tokio::time::sleep(SHOWN_AGAIN).await,
            // Who may make topics need not be allowed to ask for them.
            Err(_) => return,
        }
    }
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
