//! Mistakes made on purpose: each has to be refused by the one who is meant to notice, for its reason.

mod list;

pub(super) use list::{all, embedded};

use super::apply::name;
use super::check::{self, Site};
use super::kubectl::Run;
use super::{pods, references};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

/// Who is to notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judge {
    /// The API server, of the object.
    Api,
    /// Its admission, of a pod of the object.
    Admission,
    /// This check: names that refer to nothing, and what is asked of pods besides.
    Names,
    /// Dueline, of the configuration.
    Dueline,
}

/// A mistake: a value put in a place of an object.
#[derive(Debug)]
pub(super) struct Mistake {
    what: &'static str,
    judge: Judge,
    /// The object's kind, and where one is not like the others the beginning of its name.
    of: (&'static str, &'static str),
    /// A JSON pointer; `POD` stands for the specification of its pods, `CONTAINER` for their first container.
    place: &'static str,
    /// `null` removes what is there.
    value: Value,
    /// Part of the refusal.
    says: &'static str,
}

/// What came of the mistakes.
#[derive(Debug, Default)]
pub(super) struct Tried {
    pub(super) made: usize,
    /// Those that nobody refused, or not for their reason.
    pub(super) faults: Vec<String>,
    /// Those that could not be made.
    pub(super) skipped: Vec<String>,
}

impl Tried {
    /// Adds what came of others.
    pub(super) fn extend(&mut self, others: Tried) {
        self.made += others.made;
        self.faults.extend(others.faults);
        self.skipped.extend(others.skipped);
    }
}

/// Makes these mistakes in these objects.
pub(super) fn refused(site: &mut Site, mistakes: &[Mistake], objects: &[Value]) -> Result<Tried> {
    let mut tried = Tried::default();
    for mistake in mistakes {
        let (kind, begins) = mistake.of;
        let of = |one: &Value| one["kind"] == kind && own_name(one).starts_with(begins);
        let Some(n) = objects.iter().position(of) else {
            tried.skipped.push(format!("the mistake {}: there is no {kind}", mistake.what));
            continue;
        };
        tried.made += 1;
        let mut objects: Vec<Value> = objects.iter().map(as_written).collect();
        put(&mut objects[n], mistake.place, &mistake.value)?;
        let said = judged(site, mistake.judge, &objects, n)?;
        if !said.iter().any(|text| text.contains(mistake.says)) {
            let (what, who, says) = (mistake.what, mistake.judge, mistake.says);
            tried
                .faults
                .push(format!("{what} in {}: {who:?} does not say {says:?} but {said:?}", name(&objects[n])));
        }
    }
    Ok(tried)
}

fn judged(site: &mut Site, judge: Judge, objects: &[Value], n: usize) -> Result<Vec<String>> {
    Ok(match judge {
        Judge::Api => site.api.kubectl.apply(&objects[n].to_string(), Run::Dry)?.complaints,
        Judge::Admission => {
            site.api.kubectl.apply(&check::list(vec![pods::of(&objects[n])]), Run::Dry)?.complaints
        }
        Judge::Names => [references::faults(objects), pods::faults(objects)].concat(),
        Judge::Dueline => site.dueline.faults(objects)?,
    })
}

fn own_name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// An object without what the API server added.
fn as_written(object: &Value) -> Value {
    const KEPT: [&str; 3] = ["name", "namespace", "labels"];
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().map(std::mem::take).unwrap_or_default();
    let metadata: Map<String, Value> =
        metadata.into_iter().filter(|(key, _)| KEPT.contains(&key.as_str())).collect();
    object["metadata"] = Value::Object(metadata);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// Puts a value in a place; `null` removes what is there, `-` at the end adds to a list.
fn put(object: &mut Value, place: &str, value: &Value) -> Result<()> {
    let place = place.replace("CONTAINER", "POD/containers/0").replace("POD", "/spec/template/spec");
    let (parent, last) = place.rsplit_once('/').context("a place begins with /")?;
    match object.pointer_mut(parent).with_context(|| format!("there is no {parent}"))? {
        Value::Object(fields) if value.is_null() => drop(fields.remove(last)),
        Value::Object(fields) => drop(fields.insert(last.to_owned(), value.clone())),
        Value::Array(items) if last == "-" => items.push(value.clone()),
        _ => bail!("{parent} has no {last}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_put_removed_and_added() {
        let mut object = json!({"a": {"b": 1, "c": [1]}});
        put(&mut object, "/a/b", &json!(2)).unwrap();
        put(&mut object, "/a/c/-", &json!(2)).unwrap();
        assert_eq!(object, json!({"a": {"b": 2, "c": [1, 2]}}));
        put(&mut object, "/a/b", &Value::Null).unwrap();
        assert_eq!(object, json!({"a": {"c": [1, 2]}}));
        assert!(put(&mut object, "/x/y", &json!(1)).is_err());
    }

    #[test]
    fn what_the_server_added_is_left_out() {
        let object = json!({"kind": "A", "metadata": {"name": "n", "uid": "u"}, "status": {}});
        assert_eq!(as_written(&object), json!({"kind": "A", "metadata": {"name": "n"}}));
    }
}
