//! Whether the real topics are as planned, each difference with what to do about it.

use std::collections::BTreeMap;

use rdkafka::admin::{ConfigResource, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::metadata::MetadataTopic;

use super::super::options::Options;
use super::admin::{ADMIN_TIMEOUT, admin_options, client};
use super::{Plan, Planned};
use crate::log::Error;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As planned.
    Ok,
    /// Works, but not as planned.
    Warn,
    /// A promise does not hold.
    Fail,
}

/// One thing found out about the topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub what: String,
    /// What to do about it; empty when nothing is to be done.
    pub todo: String,
    /// It passes by itself when brokers come back: no reason to refuse a start.
    pub passes: bool,
}

impl Finding {
    fn new(level: Level, what: String, todo: impl Into<String>) -> Finding {
        Finding { level, what, todo: todo.into(), passes: false }
    }

    fn passing(self) -> Finding {
        Finding { passes: true, ..self }
    }
}

/// A real topic.
#[derive(Clone, Debug, Default)]
struct Real {
    partitions: usize,
    /// The fewest replicas of a partition.
    replicas: usize,
    /// The fewest replicas in sync of a partition.
    in_sync: usize,
    settings: BTreeMap<String, String>,
}

/// Compares the real topics with the plan.
///
/// # Errors
/// [`Error::Unavailable`] when the cluster does not answer.
pub async fn check(options: &Options, plan: &Plan) -> Result<Vec<Finding>, Error> {
    let real = read(options, plan).await?;
    Ok(plan.topics.iter().flat_map(|topic| compare(topic, real.get(&topic.name))).collect())
}

async fn read(options: &Options, plan: &Plan) -> Result<BTreeMap<String, Real>, Error> {
    let client = client(options)?;
    // All topics are asked for: asking for one by name might create it.
    let asked = tokio::task::spawn_blocking(move || {
        let metadata = client.inner().fetch_metadata(None, ADMIN_TIMEOUT);
        (client, metadata)
    });
    let (client, metadata) = asked.await.map_err(|error| Error::Unavailable(error.to_string()))?;
    let metadata = metadata.map_err(|error| Error::Unavailable(error.to_string()))?;
    let mut real: BTreeMap<String, Real> = metadata
        .topics()
        .iter()
        .filter(|topic| topic.error().is_none() && plan.topics.iter().any(|one| one.name == topic.name()))
        .map(|topic| (topic.name().to_owned(), shape(topic)))
        .collect();
    let names: Vec<String> = real.keys().cloned().collect();
    let resources: Vec<_> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
    if resources.is_empty() {
        return Ok(real);
    }
    let described = client
        .describe_configs(&resources, &admin_options())
        .await
        .map_err(|error| Error::Unavailable(error.to_string()))?;
    for resource in described {
        let resource = resource.map_err(|code| Error::Unavailable(code.to_string()))?;
        if let OwnedResourceSpecifier::Topic(name) = &resource.specifier
            && let Some(topic) = real.get_mut(name)
        {
            topic.settings = settings(&resource);
        }
    }
    Ok(real)
}

fn settings(resource: &ConfigResource) -> BTreeMap<String, String> {
    let entries = resource.entries.iter();
    entries.filter_map(|entry| Some((entry.name.clone(), entry.value.clone()?))).collect()
}

fn shape(topic: &MetadataTopic) -> Real {
    let fewest = |count: fn(&rdkafka::metadata::MetadataPartition) -> usize| {
        topic.partitions().iter().map(count).min().unwrap_or(0)
    };
    Real {
        partitions: topic.partitions().len(),
        replicas: fewest(|partition| partition.replicas().len()),
        in_sync: fewest(|partition| partition.isr().len()),
        settings: BTreeMap::new(),
    }
}

fn compare(planned: &Planned, real: Option<&Real>) -> Vec<Finding> {
    let name = &planned.name;
    let Some(real) = real else {
        let todo = "create it: dueline topics create, or the output of dueline topics plan";
        return vec![Finding::new(Level::Fail, format!("{name} does not exist"), todo)];
    };
    let mut findings = vec![partitions(planned, real)];
    findings.extend(replicas(planned, real));
    findings.extend(planned.settings.iter().filter_map(|setting| {
        let found = real.settings.get(setting.name).map_or("unknown", String::as_str);
        differs(name, setting.name, &setting.value, found)
    }));
    findings.retain(|finding| finding.level != Level::Ok);
    if findings.is_empty() {
        findings.push(Finding::new(Level::Ok, format!("{name} is as planned"), ""));
    }
    findings
}

fn partitions(planned: &Planned, real: &Real) -> Finding {
    let (name, wanted, found) = (&planned.name, planned.partitions, real.partitions);
    if found == wanted as usize {
        return Finding::new(Level::Ok, format!("{name} has {found} partitions"), "");
    }
    let what = format!("{name} has {found} partitions, {wanted} are planned");
    if name.ends_with(".schedule") {
        let todo = "the number of shards is fixed for good: set topics.partitions to what the topic has, if it was \
                    created so; if partitions were added later, keys have moved: make a new generation of the topic";
        Finding::new(Level::Fail, what, todo)
    } else {
        Finding::new(Level::Warn, what, "the order of a queue's records rests on the number staying as it is")
    }
}

fn replicas(planned: &Planned, real: &Real) -> Vec<Finding> {
    let (name, wanted) = (&planned.name, usize::from(planned.replication_factor));
    let mut findings = Vec::new();
    if real.replicas < wanted {
        let what = format!("{name} has a partition with {} replicas, {wanted} are planned", real.replicas);
        findings.push(Finding::new(Level::Fail, what, "add replicas: kafka-reassign-partitions.sh"));
    }
    let needed: usize = planned.setting("min.insync.replicas").and_then(|min| min.parse().ok()).unwrap_or(1);
    if real.in_sync < needed {
        let what =
            format!("{name} has a partition with {} replicas in sync of {needed} needed", real.in_sync);
        let todo = "bring the brokers back: nothing can be written there";
        findings.push(Finding::new(Level::Fail, what, todo).passing());
    } else if real.in_sync < real.replicas {
        let what =
            format!("{name} has a partition with {} of {} replicas in sync", real.in_sync, real.replicas);
        findings.push(Finding::new(Level::Warn, what, "see which broker is down or behind"));
    }
    findings
}

/// A setting that is not as planned; numbers that are safer than planned are.
fn differs(topic: &str, name: &str, wanted: &str, found: &str) -> Option<Finding> {
    if found == wanted {
        return None;
    }
    let numbers = wanted.parse::<i64>().ok().zip(found.parse::<i64>().ok());
    let level = match (name, numbers) {
        ("retention.ms", Some((_, -1))) => return None,
        ("retention.ms" | "max.message.bytes" | "min.insync.replicas", Some((wanted, found)))
            if found > wanted =>
        {
            return None;
        }
        ("retention.ms", _) => Level::Warn,
        _ => Level::Fail,
    };
    let what = format!("{topic} has {name}={found}, {wanted} is planned");
    let todo = format!(
        "kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {name}={wanted}"
    );
    Some(Finding::new(level, what, todo))
}

#[cfg(test)]
mod tests {
    use super::super::{Wanted, plan};
    use super::*;

    fn as_planned(planned: &Planned) -> Real {
        Real {
            partitions: planned.partitions as usize,
            replicas: usize::from(planned.replication_factor),
            in_sync: usize::from(planned.replication_factor),
            settings: planned.settings.iter().map(|one| (one.name.to_owned(), one.value.clone())).collect(),
        }
    }

    fn levels(planned: &Planned, change: impl FnOnce(&mut Real)) -> Vec<Level> {
        let mut real = as_planned(planned);
        change(&mut real);
        compare(planned, Some(&real)).iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn each_difference_is_found_with_what_to_do() {
        let plan = plan(&Wanted::default());
        let schedule = &plan.topics[0];
        assert_eq!(levels(schedule, |_| {}), [Level::Ok]);
        assert_eq!(levels(schedule, |real| real.partitions = 63), [Level::Fail]);
        assert_eq!(levels(&plan.topics[1], |real| real.partitions = 63), [Level::Warn]);
        assert_eq!(levels(schedule, |real| (real.replicas, real.in_sync) = (2, 2)), [Level::Fail]);
        assert_eq!(levels(schedule, |real| real.in_sync = 2), [Level::Warn]);
        assert_eq!(levels(schedule, |real| real.in_sync = 1), [Level::Fail]);
        for (name, value) in [
            ("message.timestamp.type", "CreateTime"),
            ("cleanup.policy", "compact"),
            ("unclean.leader.election.enable", "true"),
            ("min.insync.replicas", "1"),
        ] {
            let set = |real: &mut Real| drop(real.settings.insert(name.into(), value.into()));
            assert_eq!(levels(schedule, set), [Level::Fail], "{name}");
        }
        let longer = |real: &mut Real| drop(real.settings.insert("retention.ms".into(), "-1".into()));
        assert_eq!(levels(schedule, longer), [Level::Ok]);
        let findings = compare(schedule, None);
        assert!(findings[0].level == Level::Fail && findings[0].todo.contains("topics create"));
    }
}
