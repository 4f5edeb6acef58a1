//! The plan as text: for people, programs, scripts and operators.

use std::fmt::Write;

use super::{Plan, Planned};

/// A table for people.
pub fn text(plan: &Plan) -> String {
    let width = plan.topics.iter().map(|topic| topic.name.len()).max().unwrap_or(0).max("TOPIC".len());
    let mut text = format!("{:width$}  PARTITIONS  REPLICAS  SETTINGS\n", "TOPIC");
    for topic in &plan.topics {
        let settings: Vec<String> =
            topic.settings.iter().map(|setting| format!("{}={}", setting.name, setting.value)).collect();
        let (partitions, replicas) = (topic.partitions, topic.replication_factor);
        let line =
            format!("{:width$}  {partitions:>10}  {replicas:>8}  {}\n", topic.name, settings.join(" "));
        text.push_str(&line);
    }
    text
}

/// One JSON object: `{"topics":[{"name","partitions","replication_factor","settings":[{"name","value"}]}]}`.
pub fn json(plan: &Plan) -> String {
    serde_json::to_string_pretty(plan).expect("names and numbers are always JSON")
}

/// One `kafka-topics.sh --create` a topic, for a shell; `bootstrap` is `host:port`.
pub fn commands(plan: &Plan, bootstrap: &str) -> String {
    let mut text = String::new();
    for topic in &plan.topics {
        let _ = write!(
            text,
            "kafka-topics.sh --bootstrap-server {} --create --topic {} --partitions {} --replication-factor {}",
            quoted(bootstrap),
            quoted(&topic.name),
            topic.partitions,
            topic.replication_factor
        );
        for setting in &topic.settings {
            let _ = write!(text, " --config {}={}", setting.name, quoted(&setting.value));
        }
        text.push('\n');
    }
    text
}

/// `KafkaTopic` resources for Strimzi's topic operator; `cluster` is the name of the `Kafka` resource.
pub fn strimzi(plan: &Plan, cluster: &str) -> String {
    plan.topics.iter().map(|topic| resource(topic, cluster)).collect::<Vec<_>>().join("---\n")
}

fn resource(topic: &Planned, cluster: &str) -> String {
    let mut text = format!(
        "apiVersion: kafka.strimzi.io/v1\nkind: KafkaTopic\nmetadata:\n  name: {}\n  labels:\n    \
         strimzi.io/cluster: {}\nspec:\n  topicName: {}\n  partitions: {}\n  replicas: {}\n  config:\n",
        resource_name(&topic.name),
        yaml(cluster),
        yaml(&topic.name),
        topic.partitions,
        topic.replication_factor
    );
    for setting in &topic.settings {
        let _ = writeln!(text, "    {}: {}", setting.name, yaml_value(&setting.value));
    }
    text
}

/// A topic's name as a resource's: lower case, digits, dashes and dots.
fn resource_name(topic: &str) -> String {
    topic
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' })
        .collect()
}

/// A string that YAML cannot take for something else.
fn yaml(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

/// A setting: numbers and truth values as such, anything else as a string.
fn yaml_value(value: &str) -> String {
    if value.parse::<u64>().is_ok() || value == "true" || value == "false" {
        value.to_owned()
    } else {
        yaml(value)
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:,=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Wanted, plan};
    use super::*;

    fn small() -> Plan {
        plan(&Wanted { partitions: 8, ..Wanted::default() })
    }

    #[test]
    fn rejected_records_may_be_larger_than_schedule_records() {
        let plan = small();
        let bytes_of = |index: usize| -> u64 {
            plan.topics[index].setting("max.message.bytes").and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        assert_eq!(plan.topics[2].name, "dueline.rejected");
        assert_eq!(bytes_of(2), bytes_of(0) + 65_536);
    }

    #[test]
    fn each_form_names_every_topic_and_setting() {
        let plan = small();
        let forms = [text(&plan), json(&plan), commands(&plan, "k1:9092,k2:9092"), strimzi(&plan, "kafka")];
        for form in &forms {
            for topic in &plan.topics {
                assert!(form.contains(&topic.name), "{form}");
                assert!(topic.settings.iter().all(|setting| form.contains(setting.name)), "{form}");
            }
        }
        assert!(forms[2].starts_with("kafka-topics.sh --bootstrap-server k1:9092,k2:9092 --create --topic dueline.schedule --partitions 8 --replication-factor 3 --config cleanup.policy=delete"));
        assert!(forms[3].contains("    message.timestamp.type: \"LogAppendTime\"\n"));
    }

    #[test]
    fn a_word_with_anything_odd_is_quoted_for_the_shell() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
