//! The `[[collection]]` tables as limits.

use std::sync::Arc;

use super::Problem;
use super::handler::rate;
use super::section::Section;
use crate::model::limits::TEXT_BYTES_MAX;
use crate::model::{CollectionLimit, CollectionLimits};

/// The table that each collection without one of its own goes by.
const EACH_OTHER: &str = "*";

/// The limits of all tables that are in order; the problems of the others.
pub(super) fn limits(tables: &[Section], problems: &mut Vec<Problem>) -> CollectionLimits {
    let mut limits = CollectionLimits::default();
    for section in tables {
        match limit(section) {
            Err(problem) => problems.push(problem),
            Ok((name, limit)) => {
                let before = match name.as_str() {
                    EACH_OTHER => limits.each_other.replace(limit),
                    name => limits.by_name.insert(Arc::from(name), limit),
                };
                if before.is_some() {
                    let text = format!("is {name:?} again: each collection has one table");
                    problems.push(problem(section, "name", text));
                }
            }
        }
    }
    limits
}

fn problem(section: &Section, path: &str, text: impl Into<String>) -> Problem {
    Problem::new(&section.origin_of(path), format!("collection.{path}"), text)
}

fn limit(section: &Section) -> Result<(String, CollectionLimit), Problem> {
    let Some(name) = section.text_if_set("name").filter(|name| !name.is_empty()) else {
        let text = "is missing: write name = …, the collection that tasks name, or \"*\" for each other one";
        return Err(problem(section, "name", text));
    };
    if name.len() > TEXT_BYTES_MAX {
        let text = format!("is longer than {TEXT_BYTES_MAX} bytes, and no task can name it");
        return Err(problem(section, "name", text));
    }
    let count = |path| u32::try_from(section.integer(path)).expect("bounds of counts fit");
    let rate = |path| rate(section, path).map_err(|text| problem(section, path, text));
    let limit = CollectionLimit {
        concurrency: section.is_set("concurrency").then(|| count("concurrency")),
        rate: rate("rate")?,
        weight: count("weight"),
        intake: rate("intake")?,
    };
    Ok((name, limit))
}
