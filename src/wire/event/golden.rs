//! The examples of schemas/events: decode and the JSON Schema agree on each of them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::read;
use super::tests::{record, rules};
use crate::model::Wall;

/// 2026-11-21T09:00:00Z
const APPENDED: Wall = Wall(1_795_251_600_000);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    pointer: String,
    detail: Option<String>,
    #[serde(default)]
    schema_accepts: bool,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Box<RawValue>>,
    text: Option<String>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Example {
    fn value(&self) -> &str {
        self.text.as_deref().or(self.value.as_deref().map(RawValue::get)).unwrap()
    }

    fn record(&self) -> crate::log::Record {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        record(&headers, self.value().as_bytes())
    }
}

fn folder(name: &str) -> Vec<(String, String)> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/events/golden").join(name);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

fn valid() -> Vec<(String, Example)> {
    let example = |headers, value: &str| Example {
        reason: String::new(),
        pointer: String::new(),
        detail: None,
        schema_accepts: true,
        headers,
        value: Some(RawValue::from_string(value.trim().to_owned()).unwrap()),
        text: None,
    };
    let read = |(name, text): (String, String)| {
        let example = match name.split('-').next().unwrap() {
            "plain" => example(BTreeMap::new(), &text),
            "structured" => {
                let header = ("content-type".to_owned(), "application/cloudevents+json".to_owned());
                example([header].into(), &text)
            }
            "binary" => Example { schema_accepts: true, ..serde_json::from_str(&text).unwrap() },
            other => panic!("no encoding is called {other}"),
        };
        (name, example)
    };
    folder("valid").into_iter().map(read).collect()
}

fn invalid() -> Vec<(String, Example)> {
    folder("invalid").into_iter().map(|(name, text)| (name, serde_json::from_str(&text).unwrap())).collect()
}

/// A part of the schema as a schema.
fn validator(part: &str) -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(super::SCHEMA).unwrap();
    let part = json!({
        "$schema": schema["$schema"],
        "$id": schema["$id"],
        "$defs": schema["$defs"],
        "$ref": format!("#/$defs/{part}"),
    });
    jsonschema::options().should_validate_formats(true).build(&part).unwrap()
}

fn schema_accepts(name: &str, example: &Example) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(example.value()) else { return false };
    match name.split('-').next().unwrap() {
        "binary" => validator("binary").is_valid(&json!({ "headers": example.headers, "value": value })),
        encoding => validator(encoding).is_valid(&value),
    }
}

#[test]
fn every_valid_example_is_read_and_accepted_by_the_schema() {
    let examples = valid();
    assert!(examples.len() >= 24);
    for (name, example) in examples {
        let event = read(&example.record(), APPENDED, &rules());
        assert!(event.is_ok(), "{name}: {}", event.unwrap_err());
        assert!(schema_accepts(&name, &example), "{name}: refused by the schema");
    }
}

#[test]
fn every_invalid_example_is_refused_for_its_reason_and_field() {
    let examples = invalid();
    assert!(examples.len() >= 100);
    let mut wrong = Vec::new();
    for (name, example) in examples {
        let fault = match read(&example.record(), APPENDED, &rules()) {
            Err(fault) => fault,
            Ok(event) => panic!("{name}: read as {event:?}"),
        };
        let found = (fault.reason.word(), fault.pointer(), fault.to_string());
        let detail = example.detail.clone().unwrap_or_else(|| found.2.clone());
        if found != (&example.reason, &example.pointer, detail) {
            wrong.push(format!("{name}: {found:?}"));
        }
        if schema_accepts(&name, &example) != example.schema_accepts {
            wrong.push(format!("{name}: the schema should say {}", example.schema_accepts));
        }
        assert!(found.2.contains(&example.pointer) && found.2.ends_with(['.', '?']), "{name}: {}", found.2);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_example_has_one_hash_in_all_encodings() {
    let examples: BTreeMap<_, _> = valid().into_iter().collect();
    for example in ["schedule", "schedule-full", "cancel", "reschedule"] {
        let hash = |encoding: &str| {
            let record = examples[&format!("{encoding}-{example}")].record();
            read(&record, APPENDED, &rules()).unwrap().content_hash
        };
        assert_eq!(hash("plain"), hash("structured"), "{example}");
        assert_eq!(hash("plain"), hash("binary"), "{example}");
    }
}

#[test]
fn the_schema_tells_plain_and_structured_apart_by_itself() {
    let schema: Value = serde_json::from_str(super::SCHEMA).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    let whole = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    for (name, example) in valid().into_iter().filter(|(name, _)| !name.starts_with("binary")) {
        assert!(whole.is_valid(&serde_json::from_str(example.value()).unwrap()), "{name}");
    }
}

#[test]
fn schema_requests_and_decoder_have_the_same_fields() {
    use utoipa::PartialSchema;

    let schema: Value = serde_json::from_str(super::SCHEMA).unwrap();
    let names = |value: &Value| value["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let sorted = |mut names: Vec<String>| {
        names.retain(|name| name != "type");
        names.sort();
        names
    };
    let request = |schema: utoipa::openapi::RefOr<utoipa::openapi::Schema>| {
        names(&serde_json::to_value(schema).unwrap())
    };
    for (part, request, known) in [
        ("schedule", request(super::request::ScheduleRequest::schema()), super::verb::SCHEDULE_FIELDS),
        ("cancel", request(super::request::CancelRequest::schema()), super::verb::CANCEL_FIELDS),
        ("reschedule", request(super::request::RescheduleRequest::schema()), super::verb::RESCHEDULE_FIELDS),
    ] {
        let in_schema = sorted(names(&schema["$defs"][part]));
        assert_eq!(in_schema, sorted(request), "{part}");
        assert_eq!(in_schema, sorted(known.iter().map(|name| (*name).to_owned()).collect()), "{part}");
    }
}
