//! What a cluster says about itself and about topics: brokers with their racks, replicas, settings, and the rights that this
//! client has. Read for checks, never changed.
//!
//! Asked with Describe and DescribeConfigs on the topics and Describe on the group alone, the rights that an instance needs
//! anyway. What a missing right hides is said where it would stand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::context::Plain;
use super::options::Options;
use super::topics::{ADMIN_TIMEOUT, admin_options, client};
use super::{error, raw};
use crate::log::{self, Error};

/// Longest time for one question once a broker is there.
const ASK_TIMEOUT: Duration = Duration::from_secs(6);

/// When no broker lets a client in within this time and one has refused it, it is waited for no longer.
const REFUSED_WITHIN: Duration = Duration::from_secs(3);

/// A coordinator that is not there is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// A broker that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub id: i32,
    /// Where it is reached, `host:port`.
    pub address: String,
    /// Its rack: the data centre or zone.
    pub rack: Option<String>,
}

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number.
    pub id: i32,
    /// Whether somebody leads it: without a leader nothing is read or written there.
    pub has_leader: bool,
    /// Ids of the brokers that are to have a copy.
    pub replicas: Vec<i32>,
    /// Ids of those whose copy is complete.
    pub in_sync: Vec<i32>,
}

/// What a client may do with a topic or group; others do not matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Read records; be a member.
    Read,
    /// Write records.
    Write,
    /// Know of it.
    Describe,
    /// Read its settings.
    DescribeConfigs,
}

impl Right {
    /// The word that Kafka's tools take.
    pub fn word(self) -> &'static str {
        match self {
            Right::Read => "Read",
            Right::Write => "Write",
            Right::Describe => "Describe",
            Right::DescribeConfigs => "DescribeConfigs",
        }
    }
}

/// A topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topic {
    /// Its partitions by number.
    pub partitions: Vec<Partition>,
    /// The client's rights on it; `None` when the broker does not tell.
    pub rights: Option<BTreeSet<Right>>,
}

/// Settings by name; why not, when a right is missing.
pub type Settings = Result<BTreeMap<String, String>, String>;

/// What the cluster says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The cluster's id.
    pub id: Option<String>,
    /// The brokers that are there. Those that are down are nowhere but among replicas.
    pub brokers: Vec<Broker>,
    /// The topics asked about that exist; why not, when a right is missing.
    pub topics: BTreeMap<String, Result<Topic, String>>,
    /// The settings of those topics.
    pub settings: BTreeMap<String, Settings>,
}

/// Asks about topics. A name that is no topic is left out; none is ever created by asking.
///
/// # Errors
/// [`Error::Unavailable`] when the cluster does not answer.
pub async fn read(options: &Options, names: &[String]) -> Result<Facts, Error> {
    let (client, asked) = (reached(options).await?, names.to_vec());
    let asking = tokio::task::spawn_blocking(move || (describe(&client, &asked), client));
    let (described, client) = asking.await.map_err(|error| Error::Unavailable(error.to_string()))?;
    let facts = match described {
        Ok(mut facts) => settings(&client, &facts).await.map(|settings| {
            facts.settings = settings;
            facts
        }),
        Err(error) => Err(error),
    };
    // Its end waits for threads of its own.
    tokio::task::spawn_blocking(move || drop(client));
    facts
}

/// The client's rights on its group; `None` when the broker does not tell.
///
/// # Errors
/// [`Error::Unavailable`] when the group's coordinator does not answer; [`Error::Refused`] without the right to ask.
pub async fn group_rights(options: &Options) -> Result<Option<BTreeSet<Right>>, Error> {
    let deadline = Instant::now() + ADMIN_TIMEOUT;
    loop {
        let (client, group) = (reached(options).await?, options.group.clone());
        let asking = tokio::task::spawn_blocking(move || raw::group_rights(client, &group, ASK_TIMEOUT));
        match asking.await.map_err(|error| Error::Unavailable(error.to_string()))? {
            Ok(rights) => return Ok(rights),
            Err(code @ Code::GroupAuthorizationFailed) => return Err(Error::Refused(code.to_string())),
            // The first question after the cluster was made is what makes brokers create the topic of groups.
            Err(_) if Instant::now() < deadline => tokio::time::sleep(ASK_AGAIN).await,
            Err(code) => return Err(Error::Unavailable(format!("group {}: {code}", options.group))),
        }
    }
}

/// A client that has reached a broker: an administrative request that waits for one which refuses connections keeps threads
/// busy with connecting.
///
/// # Errors
/// [`Error::Unavailable`] with the reason, as far as it is known.
pub(super) async fn reached(options: &Options) -> Result<AdminClient<Plain>, Error> {
    let (client, topic, brokers) = (client(options)?, schedule(options), options.brokers.clone());
    // The end of a client waits for threads of its own, so it is there too.
    let asking = tokio::task::spawn_blocking(move || {
        let deadline = Instant::now() + ADMIN_TIMEOUT;
        loop {
            let error = match client.inner().fetch_metadata(Some(&topic), REFUSED_WITHIN) {
                Ok(_) => return Ok(client),
                Err(error) => error,
            };
            raw::overhear(client.inner());
            let reason = &client.inner().context().reason;
            if reason.is_refusal() || Instant::now() >= deadline {
                let why = reason.explain(&error.to_string());
                return Err(Error::Unavailable(format!("no answer from {brokers}: {why}")));
            }
        }
    });
    asking.await.map_err(|error| Error::Unavailable(error.to_string()))?
}

fn schedule(options: &Options) -> String {
    log::Topic::Schedule.name(&options.prefix)
}

fn describe(client: &AdminClient<Plain>, names: &[String]) -> Result<Facts, Error> {
    let unavailable = |code: Code| error::by_code(code, &code.to_string());
    let (id, brokers) = raw::cluster(client.inner(), ASK_TIMEOUT).map_err(unavailable)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut topics = BTreeMap::new();
    for (name, found) in raw::topics(client.inner(), &names, ASK_TIMEOUT).map_err(unavailable)? {
        match found {
            Ok(topic) => drop(topics.insert(name, Ok(topic))),
            Err(Code::UnknownTopicOrPartition) => {}
            Err(code) if is_refusal(code) => drop(topics.insert(name, Err(code.to_string()))),
            Err(code) => return Err(Error::Unavailable(format!("topic {name}: {code}"))),
        }
    }
    Ok(Facts { id, brokers, topics, settings: BTreeMap::new() })
}

async fn settings(client: &AdminClient<Plain>, facts: &Facts) -> Result<BTreeMap<String, Settings>, Error> {
    let known = facts.topics.iter().filter(|(_, topic)| topic.is_ok());
    let resources: Vec<_> = known.map(|(name, _)| ResourceSpecifier::Topic(name)).collect();
    if resources.is_empty() {
        return Ok(BTreeMap::new());
    }
    let described = client.describe_configs(&resources, &admin_options()).await;
    let described = described.map_err(|error| Error::Unavailable(error.to_string()))?;
    let names = facts.topics.iter().filter(|(_, topic)| topic.is_ok()).map(|(name, _)| name);
    let mut settings = BTreeMap::new();
    for (asked, resource) in names.zip(described) {
        match resource {
            // The wrapper keeps a refusal to itself: what is left is a topic without any setting, which there is not.
            Ok(resource) if resource.entries.is_empty() => {
                let why = "the broker tells none, as to one without the right DescribeConfigs";
                settings.insert(asked.clone(), Err(why.to_owned()));
            }
            Ok(resource) => {
                let OwnedResourceSpecifier::Topic(name) = &resource.specifier else { continue };
                settings.insert(name.clone(), Ok(values(&resource)));
            }
            Err(code) if is_refusal(code) => {
                settings.insert(asked.clone(), Err(code.to_string()));
            }
            Err(code) => return Err(Error::Unavailable(format!("settings of {asked}: {code}"))),
        }
    }
    Ok(settings)
}

fn values(resource: &ConfigResource) -> BTreeMap<String, String> {
    let entries = resource.entries.iter();
    entries.filter_map(|entry| Some((entry.name.clone(), entry.value.clone()?))).collect()
}

fn is_refusal(code: Code) -> bool {
    matches!(code, Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)
}
