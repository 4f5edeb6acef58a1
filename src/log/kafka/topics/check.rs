//! Whether the real topics are as planned, each difference with what to do about it.

use super::super::facts::{self, Facts, Settings, Topic};
use super::super::options::Options;
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

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// Whether the topic is there and can be described; or all of it, when it is as planned.
    Topic,
    /// The number of partitions.
    Partitions,
    /// Replicas and which of them are in sync.
    Replicas,
    /// Settings.
    Settings,
}

/// One thing found out about the topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about.
    pub about: Aspect,
    /// What was found.
    pub what: String,
    /// What to do about it; empty when nothing is to be done.
    pub todo: String,
    /// It passes by itself when brokers come back: no reason to refuse a start.
    pub passes: bool,
}

impl Finding {
    fn new(level: Level, about: Aspect, what: String, todo: impl Into<String>) -> Finding {
        Finding { level, about, what, todo: todo.into(), passes: false }
    }

    fn passing(self) -> Finding {
        Finding { passes: true, ..self }
    }
}

/// Compares the real topics with the plan.
///
/// # Errors
/// [`Error::Unavailable`] when the cluster does not answer.
pub async fn check(options: &Options, plan: &Plan) -> Result<Vec<Finding>, Error> {
    Ok(compare(plan, &facts::read(options, &plan.names()).await?))
}

/// Compares what the cluster says with the plan.
pub fn compare(plan: &Plan, facts: &Facts) -> Vec<Finding> {
    let each = plan.topics.iter();
    each.flat_map(|topic| compare_one(topic, facts.topics.get(&topic.name), facts.settings.get(&topic.name)))
        .collect()
}

fn compare_one(
    planned: &Planned,
    real: Option<&Result<Topic, String>>,
    settings: Option<&Settings>,
) -> Vec<Finding> {
    let name = &planned.name;
    let real = match real {
        None => {
            let todo = "create it: dueline topics create, or the output of dueline topics plan";
            return vec![Finding::new(Level::Fail, Aspect::Topic, format!("{name} does not exist"), todo)];
        }
        Some(Err(why)) => {
            let what = format!("{name} cannot be described: {why}");
            let todo = "grant Describe on it: the rights are in deploy/k8s/kafka/users.yaml";
            return vec![Finding::new(Level::Fail, Aspect::Topic, what, todo)];
        }
        Some(Ok(real)) => real,
    };
    let mut findings = vec![partitions(planned, real)];
    findings.extend(replicas(planned, real));
    findings.extend(differences(planned, settings));
    findings.retain(|finding| finding.level != Level::Ok);
    if findings.is_empty() {
        findings.push(Finding::new(Level::Ok, Aspect::Topic, format!("{name} is as planned"), ""));
    }
    findings
}

fn differences(planned: &Planned, settings: Option<&Settings>) -> Vec<Finding> {
    let name = &planned.name;
    let settings = match settings {
        Some(Ok(settings)) => settings,
        unknown => {
            let why = unknown.and_then(|one| one.as_ref().err()).map_or("not answered", String::as_str);
            let todo = "grant DescribeConfigs on it: the rights are in deploy/k8s/kafka/users.yaml";
            let what = format!("the settings of {name} are not known: {why}");
            return vec![Finding::new(Level::Fail, Aspect::Settings, what, todo)];
        }
    };
    let each = planned.settings.iter().filter_map(|setting| {
        let found = settings.get(setting.name).map_or("unknown", String::as_str);
        differs(name, setting.name, &setting.value, found)
    });
    each.collect()
}

fn partitions(planned: &Planned, real: &Topic) -> Finding {
    let (name, wanted, found) = (&planned.name, planned.partitions, real.partitions.len());
    let about = Aspect::Partitions;
    if found == wanted as usize {
        return Finding::new(Level::Ok, about, format!("{name} has {found} partitions"), "");
    }
    let what = format!("{name} has {found} partitions, {wanted} are planned");
    if name.ends_with(".schedule") {
        let todo = "the number of shards is fixed for good: set topics.partitions to what the topic has, if it was \
                    created so; if partitions were added later, keys have moved: make a new generation of the topic";
        Finding::new(Level::Fail, about, what, todo)
    } else {
        let todo = "the order of a queue's records rests on the number staying as it is";
        Finding::new(Level::Warn, about, what, todo)
    }
}

fn replicas(planned: &Planned, real: &Topic) -> Vec<Finding> {
    let (name, wanted) = (&planned.name, usize::from(planned.replication_factor));
    let found = |level, what, todo| Finding::new(level, Aspect::Replicas, what, todo);
    let fewest = real.partitions.iter().map(|one| one.replicas.len()).min().unwrap_or(0);
    let mut findings = Vec::new();
    if fewest < wanted {
        let what = format!("{name} has a partition with {fewest} replicas, {wanted} are planned");
        findings.push(found(Level::Fail, what, "add replicas: kafka-reassign-partitions.sh"));
    }
    let needed: usize = planned.setting("min.insync.replicas").and_then(|min| min.parse().ok()).unwrap_or(1);
    let stands = real.partitions.iter().filter(|one| one.in_sync.len() < needed || !one.has_leader).count();
    let lags = real.partitions.iter().filter(|one| one.in_sync.len() < one.replicas.len()).count();
    let of = real.partitions.len();
    if stands > 0 {
        let what = format!(
            "{name}: {stands} of {of} partitions have no leader or fewer than {needed} replicas in sync"
        );
        let todo = "bring the brokers back: nothing can be written there";
        findings.push(found(Level::Fail, what, todo).passing());
    } else if lags > 0 {
        let what = format!("{name}: {lags} of {of} partitions have replicas that are not in sync");
        findings.push(found(Level::Warn, what, "see which broker is down or behind"));
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
    Some(Finding::new(level, Aspect::Settings, what, todo))
}

#[cfg(test)]
mod tests {
    use super::super::super::facts::Partition;
    use super::super::{Wanted, plan};
    use super::*;

    fn as_planned(planned: &Planned) -> (Topic, Settings) {
        let partition =
            |id| Partition { id, has_leader: true, replicas: vec![1, 2, 3], in_sync: vec![1, 2, 3] };
        let partitions = (0..i32::try_from(planned.partitions).expect("few")).map(partition).collect();
        let settings = planned.settings.iter().map(|one| (one.name.to_owned(), one.value.clone())).collect();
        (Topic { partitions, rights: None }, Ok(settings))
    }

    fn found(planned: &Planned, change: impl FnOnce(&mut Topic)) -> Vec<(Level, Aspect)> {
        let (mut real, settings) = as_planned(planned);
        change(&mut real);
        let findings = compare_one(planned, Some(&Ok(real)), Some(&settings));
        findings.iter().map(|finding| (finding.level, finding.about)).collect()
    }

    #[test]
    fn each_difference_of_shape_is_found() {
        let plan = plan(&Wanted::default());
        let schedule = &plan.topics[0];
        let shorter = |real: &mut Topic| drop(real.partitions.pop());
        assert_eq!(found(schedule, |_| {}), [(Level::Ok, Aspect::Topic)]);
        assert_eq!(found(schedule, shorter), [(Level::Fail, Aspect::Partitions)]);
        assert_eq!(found(&plan.topics[1], shorter), [(Level::Warn, Aspect::Partitions)]);
        let fewer = |real: &mut Topic| {
            (real.partitions[7].replicas, real.partitions[7].in_sync) = (vec![1, 2], vec![1, 2]);
        };
        assert_eq!(found(schedule, fewer), [(Level::Fail, Aspect::Replicas)]);
        let behind = |in_sync| move |real: &mut Topic| real.partitions[7].in_sync = in_sync;
        assert_eq!(found(schedule, behind(vec![1, 2])), [(Level::Warn, Aspect::Replicas)]);
        assert_eq!(found(schedule, behind(vec![1])), [(Level::Fail, Aspect::Replicas)]);
        let leaderless = |real: &mut Topic| real.partitions[7].has_leader = false;
        assert_eq!(found(schedule, leaderless), [(Level::Fail, Aspect::Replicas)]);
    }

    #[test]
    fn each_difference_of_settings_is_found_with_what_to_do() {
        let plan = plan(&Wanted::default());
        let schedule = &plan.topics[0];
        let (real, settings) = as_planned(schedule);
        let with = |name: &str, value: &str| {
            let mut settings = settings.clone().expect("as planned");
            settings.insert(name.into(), value.into());
            compare_one(schedule, Some(&Ok(real.clone())), Some(&Ok(settings))).remove(0)
        };
        for (name, value) in [
            ("message.timestamp.type", "CreateTime"),
            ("cleanup.policy", "compact"),
            ("unclean.leader.election.enable", "true"),
            ("min.insync.replicas", "1"),
        ] {
            let finding = with(name, value);
            assert_eq!((finding.level, finding.about), (Level::Fail, Aspect::Settings), "{name}");
            assert!(finding.todo.contains(&format!("--add-config {name}=")), "{}", finding.todo);
        }
        assert_eq!(with("retention.ms", "-1").level, Level::Ok);
    }

    #[test]
    fn what_is_missing_or_hidden_is_told() {
        let plan = plan(&Wanted::default());
        let schedule = &plan.topics[0];
        let missing = compare_one(schedule, None, None).remove(0);
        assert!(missing.level == Level::Fail && missing.todo.contains("topics create"));
        let hidden = compare_one(schedule, Some(&Err("denied".into())), None).remove(0);
        assert!(hidden.level == Level::Fail && hidden.todo.contains("grant Describe "));
        let (real, _) = as_planned(schedule);
        let unread = compare_one(schedule, Some(&Ok(real)), Some(&Err("denied".into()))).remove(0);
        assert!(unread.level == Level::Fail && unread.todo.contains("grant DescribeConfigs "));
    }
}
