//! The `[[queue]]` tables: what tasks of a queue do to it when they fail or die.

use std::collections::BTreeMap;

use super::Problem;
use super::section::Section;
use crate::model::{HeadPolicy, OnDead, OnFailure, QueueName};

/// The policies of all tables that are in order, by the queue's name; the problems of the others.
pub(super) fn policies(tables: &[Section], problems: &mut Vec<Problem>) -> BTreeMap<String, HeadPolicy> {
    let mut policies = BTreeMap::new();
    for section in tables {
        match policy(section) {
            Err(problem) => problems.push(problem),
            Ok((name, policy)) => {
                if policies.insert(name.to_string(), policy).is_some() {
                    let text = format!("is {:?} again: each queue has one table", name.as_str());
                    problems.push(problem(section, "name", text));
                }
            }
        }
    }
    policies
}

fn problem(section: &Section, path: &str, text: impl Into<String>) -> Problem {
    Problem::new(&section.origin_of(path), format!("queue.{path}"), text)
}

fn policy(section: &Section) -> Result<(QueueName, HeadPolicy), Problem> {
    let missing = || problem(section, "name", "is missing: write name = …, the queue that tasks name");
    let name = section.text_if_set("name").ok_or_else(missing)?;
    let name = QueueName::new(&name).map_err(|error| problem(section, "name", error.to_string()))?;
    if name.as_str() == "*" {
        let text =
            "is \"*\", which no other queues go by: what holds for all tasks of a handler is said there";
        return Err(problem(section, "name", text));
    }
    let policy = head(section);
    if policy == HeadPolicy::default() {
        let text = format!("is {:?}, and nothing is said of it: write on_failure or on_dead", name.as_str());
        return Err(problem(section, "name", text));
    }
    Ok((name, policy))
}

/// What a table of a queue or of a handler says of both.
pub(super) fn head(section: &Section) -> HeadPolicy {
    let word = |path| section.text_if_set(path);
    HeadPolicy {
        on_failure: word("on_failure").map(|word| match word.as_str() {
            "park" => OnFailure::Park,
            _ => OnFailure::Block,
        }),
        on_dead: word("on_dead").map(|word| match word.as_str() {
            "stop" => OnDead::Stop,
            _ => OnDead::Continue,
        }),
    }
}
