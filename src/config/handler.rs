//! The `[[handler]]` tables as routes.

use std::collections::BTreeSet;
use std::path::Path;

use super::Problem;
use super::build::read_secret;
use super::queue::head;
use super::section::Section;
use crate::dispatch::http::{self, StatusRange, StatusRules, parse_url};
use crate::dispatch::log_line;
use crate::dispatch::registry::{Kind, Policy, Route};
use crate::dispatch::signature::{SECRETS_MAX, Secret};
use crate::dispatch::topic::{self, is_topic_name};
use crate::log::Topic;
use crate::model::{BreakerPolicy, HandlerName, NoRate, OpenAttempts, Rate, Reserve, RetryPolicy};

/// Which keys only some kinds have.
const OF_KIND: [(&str, &str); 8] = [
    ("url", "http"),
    ("secrets_file", "http"),
    ("secrets", "http"),
    ("succeeded", "http"),
    ("retryable", "http"),
    ("open_attempts", "http"),
    ("topic", "topic"),
    ("show_payload", "log"),
];

/// The routes of all handlers that are in order; the problems of the others.
pub(super) fn routes(handlers: &[Section], prefix: &str, problems: &mut Vec<Problem>) -> Vec<Route> {
    let mut names = BTreeSet::new();
    let mut routes = Vec::new();
    for section in handlers {
        match route(section, prefix) {
            Err(problem) => problems.push(problem),
            Ok(route) if !names.insert(route.name.clone()) => {
                let text = format!("is {:?} again: each handler has a name of its own", route.name.as_str());
                problems.push(problem(section, "name", text));
            }
            Ok(route) => routes.push(route),
        }
    }
    routes
}

fn problem(section: &Section, path: &str, text: impl Into<String>) -> Problem {
    Problem::new(&section.origin_of(path), format!("handler.{path}"), text)
}

fn route(section: &Section, prefix: &str) -> Result<Route, Problem> {
    let name = name(section)?;
    let word = needed(section, "kind", "one of \"http\", \"topic\", \"log\", \"in-process\"")?;
    for (path, kind) in OF_KIND {
        if section.is_set(path) && kind != word {
            let text =
                format!("is only for handlers of kind {kind:?}, and this one is of kind {word:?}: remove it");
            return Err(problem(section, path, text));
        }
    }
    let kind = match word.as_str() {
        "http" => Kind::Http(http_options(section)?),
        "topic" => Kind::Topic(topic_options(section, prefix)?),
        "log" => Kind::Log(log_line::Options { show_payload: section.bool("show_payload") }),
        "in-process" => Kind::InProcess,
        other => {
            let text =
                format!("{other:?} is not there yet: use \"http\", \"topic\", \"log\" or \"in-process\"");
            return Err(problem(section, "kind", text));
        }
    };
    Ok(Route { name, policy: policy(section)?, kind })
}

fn name(section: &Section) -> Result<HandlerName, Problem> {
    let text = needed(section, "name", "the name that schedule events use")?;
    if text.contains("://") {
        return Err(problem(
            section,
            "name",
            "looks like a URL: give the handler a name and put the URL into `url`",
        ));
    }
    HandlerName::new(&text).map_err(|error| problem(section, "name", error.to_string()))
}

fn needed(section: &Section, path: &str, what: &str) -> Result<String, Problem> {
    let missing = || problem(section, path, format!("is missing: write {path} = …, {what}"));
    section.text_if_set(path).ok_or_else(missing)
}

fn policy(section: &Section) -> Result<Policy, Problem> {
    let count = |path| u32::try_from(section.integer(path)).expect("bounds of counts fit");
    let retry = RetryPolicy {
        max_attempts: count("retry.max_attempts"),
        initial_ms: section.ms("retry.initial"),
        factor: section.number("retry.factor"),
        max_ms: section.ms("retry.max"),
        jitter: section.number("retry.jitter"),
        max_age_ms: Some(section.ms("retry.max_age")).filter(|ms| *ms > 0),
    };
    if retry.initial_ms > retry.max_ms {
        return Err(problem(section, "retry.initial", "is longer than retry.max, the longest wait"));
    }
    let open_attempts = match section.text("open_attempts").as_str() {
        "rerun" => OpenAttempts::Rerun,
        _ => OpenAttempts::Wait,
    };
    Ok(Policy {
        timeout_ms: section.ms("timeout"),
        retry,
        concurrency: count("concurrency"),
        rate: rate(section, "rate").map_err(|text| problem(section, "rate", text))?,
        breaker: breaker(section),
        reserve: reserve(section)?,
        catch_up: rate(section, "catch_up").map_err(|text| problem(section, "catch_up", text))?,
        intake: rate(section, "intake").map_err(|text| problem(section, "intake", text))?,
        open_attempts,
        head: head(section),
    })
}

/// A rate, if it is set; else what is wrong with it.
pub(super) fn rate(section: &Section, path: &str) -> Result<Option<Rate>, String> {
    let Some(text) = section.text_if_set(path) else { return Ok(None) };
    text.parse().map(Some).map_err(|error: NoRate| format!("{text:?} {error}"))
}

fn reserve(section: &Section) -> Result<Option<Reserve>, Problem> {
    let slots = section.integer("reserve.slots");
    if slots >= section.integer("concurrency") {
        let text = "keeps every slot of `concurrency`: tasks of lower priority would never run";
        return Err(problem(section, "reserve.slots", text));
    }
    let slots = u32::try_from(slots).expect("bounds of counts fit");
    let priority = u8::try_from(section.integer("reserve.priority")).expect("bounds of priorities fit");
    Ok((slots > 0).then_some(Reserve { priority, slots }))
}

fn breaker(section: &Section) -> Option<BreakerPolicy> {
    let failures = u32::try_from(section.integer("breaker.failures")).expect("bounds of counts fit");
    (failures > 0).then(|| BreakerPolicy { failures, pause_ms: section.ms("breaker.pause") })
}

fn http_options(section: &Section) -> Result<http::Options, Problem> {
    let url = needed(section, "url", "where the callback goes")?;
    let url = parse_url(&url).map_err(|error| problem(section, "url", error.to_string()))?;
    Ok(http::Options { url, secrets: secrets(section)?, statuses: statuses(section)? })
}

fn statuses(section: &Section) -> Result<StatusRules, Problem> {
    let mut rules = StatusRules::default();
    if section.is_set("succeeded") {
        rules.succeeded = ranges(section, "succeeded")?;
    }
    if section.is_set("retryable") {
        rules.retryable = ranges(section, "retryable")?;
    }
    let both = rules.succeeded.iter().find(|one| rules.retryable.iter().any(|other| one.overlaps(*other)));
    match both {
        None => Ok(rules),
        Some(status) => {
            let path = if section.is_set("succeeded") { "succeeded" } else { "retryable" };
            Err(problem(section, path, format!("makes {status} both a success and retryable: keep one")))
        }
    }
}

fn ranges(section: &Section, path: &str) -> Result<Vec<StatusRange>, Problem> {
    let read =
        |text: String| text.parse().map_err(|error| problem(section, path, format!("{text:?} {error}")));
    section.list(path).into_iter().map(read).collect()
}

fn secrets(section: &Section) -> Result<Vec<Secret>, Problem> {
    let (path, text) = match (section.text_if_set("secrets_file"), section.text_if_set("secrets")) {
        (None, None) => return Ok(Vec::new()),
        (Some(_), Some(_)) => {
            let text = "is set, and so are secrets in the environment: remove one";
            return Err(problem(section, "secrets_file", text));
        }
        (None, Some(text)) => ("secrets", text),
        (Some(file), None) => {
            let text =
                read_secret(Path::new(&file)).map_err(|text| problem(section, "secrets_file", text))?;
            ("secrets_file", text)
        }
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || words.len() > SECRETS_MAX {
        return Err(problem(
            section,
            path,
            format!("holds {} secrets; 1 to {SECRETS_MAX} can be", words.len()),
        ));
    }
    let read = |(index, word): (usize, &str)| {
        Secret::parse(word).map_err(|error| problem(section, path, format!("secret {} {error}", index + 1)))
    };
    words.into_iter().enumerate().map(read).collect()
}

fn topic_options(section: &Section, prefix: &str) -> Result<topic::Options, Problem> {
    let topic = needed(section, "topic", "where the payload is produced to")?;
    if !is_topic_name(&topic) {
        let text = format!("{topic:?} is no topic name: up to 249 letters, digits, \".\", \"_\" and \"-\"");
        return Err(problem(section, "topic", text));
    }
    if Topic::ALL.iter().any(|own| own.name(prefix) == topic) {
        let text = format!("{topic:?} is one of Dueline's own topics: produce to another");
        return Err(problem(section, "topic", text));
    }
    Ok(topic::Options { topic })
}
