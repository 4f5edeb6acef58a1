//! The section `[otlp]`: where spans of attempts go, with which headers, and of which tasks.

use std::collections::BTreeMap;
use std::path::Path;

use axum::http::{HeaderName, HeaderValue};

use super::build::read_secret;
use super::kind::Value;
use super::section::Section;
use super::{Hidden, Problem};
use crate::dispatch::http::{Url, parse_url};

/// The path of OTLP over HTTP where a URL has none.
const PATH: &str = "/v1/traces";
/// Headers that say what is sent, and how.
const OWN_HEADERS: [&str; 6] =
    ["content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "host"];

/// Where spans of attempts go.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    /// Where they are posted to; `None` = nothing is exported.
    pub endpoint: Option<Url>,
    /// Headers of these requests, names in small letters.
    pub headers: BTreeMap<String, Hidden>,
    /// Of tasks without a `traceparent` so many get spans, 0 to 100.
    pub sample_percent: f64,
}

pub(super) fn otlp(main: &Section, problems: &mut Vec<Problem>) -> Otlp {
    let endpoint = main.text_if_set("otlp.endpoint").and_then(|text| parse_url(&text).ok());
    if endpoint.as_ref().is_some_and(|url| url.query().is_some()) {
        let text = "has a query, which would be shown: a token goes into otlp.headers, by a file".to_owned();
        problems.push(Problem::new(&main.origin_of("otlp.endpoint"), "otlp.endpoint", text));
    }
    Otlp {
        endpoint: endpoint.map(with_path),
        headers: headers(main, problems),
        sample_percent: main.number("otlp.sample_percent"),
    }
}

fn with_path(mut url: Url) -> Url {
    if url.path() == "/" {
        url.set_path(PATH);
    }
    url
}

fn headers(main: &Section, problems: &mut Vec<Problem>) -> BTreeMap<String, Hidden> {
    let mut headers = BTreeMap::new();
    for (entry, found) in main.entries("otlp.headers") {
        let Value::Text(text) = &found.value else { continue };
        match header(entry, text) {
            Ok((name, value)) if !headers.contains_key(&name) => {
                headers.insert(name, value);
            }
            Ok((name, _)) => {
                let text =
                    format!("is set twice, as {name:?} and as \"{name}_file\" or in capitals: remove one");
                problems.push(Problem::new(&found.origin, format!("otlp.headers.{entry}"), text));
            }
            Err(text) => problems.push(Problem::new(&found.origin, format!("otlp.headers.{entry}"), text)),
        }
    }
    headers
}

/// Reads one entry.
///
/// # Errors
/// What is wrong with it, never the value.
fn header(entry: &str, text: &str) -> Result<(String, Hidden), String> {
    let (name, value) = match entry.strip_suffix("_file") {
        None => (entry, text.to_owned()),
        Some(name) => (name, read_secret(Path::new(text))?),
    };
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "is no name of an HTTP header: letters, digits and \"-\"".to_owned())?;
    if OWN_HEADERS.contains(&name.as_str()) {
        return Err("is set by Dueline itself: remove it".to_owned());
    }
    if HeaderValue::from_str(&value).is_err() {
        return Err("has a value that no HTTP header can have: write one line".to_owned());
    }
    Ok((name.as_str().to_owned(), value.into()))
}
