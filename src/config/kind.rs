//! What a key takes: reading a value from TOML or from text, its bounds, and its text for people.

use std::net::SocketAddr;

use toml::de::DeValue;
use tracing_subscriber::EnvFilter;

use crate::dispatch::http::{UrlError, parse_url};
use crate::dispatch::topic::is_topic_name;
use crate::wire::time::parse_duration_ms;

/// Longest text value, in bytes.
const TEXT_BYTES_MAX: usize = 4_096;
/// Most entries of a list.
const LIST_ENTRIES_MAX: usize = 256;
/// Longest prefix: the longest topic name less the longest word put after it.
const PREFIX_BYTES_MAX: usize = 200;
/// Longest keyspace name of Cassandra.
const KEYSPACE_BYTES_MAX: usize = 48;

/// What a key takes. Bounds of durations are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Line,
    Path,
    Url,
    Address,
    TopicPrefix,
    Keyspace,
    Filter,
    Bool,
    Integer { min: i64, max: i64 },
    Number { min: u32, max: u32 },
    Duration { min: u64, max: u64 },
    Choice(&'static [&'static str]),
    List,
    TextMap,
    Headers,
    IntegerMap { min: i64, max: i64 },
    Secret,
}

/// A value as read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Bool(bool),
    Integer(i64),
    Number(f64),
    Duration(u64),
    List(Vec<String>),
}

/// A value as written.
#[derive(Clone, Copy)]
pub(super) enum Raw<'a> {
    /// In TOML, where the type has to be right.
    Toml(&'a DeValue<'a>),
    /// As text: environment, flag or default.
    Text(&'a str),
}

impl Kind {
    /// Whether the key is a table of free names.
    pub(super) fn is_map(self) -> bool {
        self.is_text_map() || matches!(self, Kind::IntegerMap { .. })
    }

    /// Whether the key is a table of texts, each of which has a variable of its own.
    pub(super) fn is_text_map(self) -> bool {
        matches!(self, Kind::TextMap | Kind::Headers)
    }

    /// Reads a value, or one entry of a map.
    ///
    /// # Errors
    /// One sentence: what is wanted and what was found.
    pub(super) fn read(self, raw: Raw<'_>) -> Result<Value, String> {
        let wrong = |found: String| format!("must be {}; found {found}", self.wanted());
        match (self, raw) {
            (Kind::Bool, Raw::Toml(DeValue::Boolean(value))) => Ok(Value::Bool(*value)),
            (Kind::Integer { .. } | Kind::IntegerMap { .. }, Raw::Toml(DeValue::Integer(value))) => {
                let number = i64::from_str_radix(value.as_str(), value.radix()).ok();
                number.and_then(|number| self.integer(number)).ok_or_else(|| wrong(value.to_string()))
            }
            (Kind::Number { .. }, Raw::Toml(DeValue::Integer(value))) => {
                self.text(value.as_str()).map_err(wrong)
            }
            (Kind::Number { .. }, Raw::Toml(DeValue::Float(value))) => {
                self.text(value.as_str()).map_err(wrong)
            }
            (Kind::List, Raw::Toml(DeValue::Array(entries))) => {
                let text = |entry: &DeValue<'_>| entry.as_str().map(str::to_owned);
                let entries: Option<Vec<String>> =
                    entries.iter().map(|entry| text(entry.get_ref())).collect();
                list(entries.ok_or_else(|| wrong("a list of something else".to_owned()))?).map_err(wrong)
            }
            (
                Kind::Bool
                | Kind::Integer { .. }
                | Kind::IntegerMap { .. }
                | Kind::Number { .. }
                | Kind::List,
                Raw::Toml(other),
            ) => Err(wrong(found(other))),
            (_, Raw::Toml(DeValue::String(text))) => self.text(text).map_err(wrong),
            (
                Kind::TextMap | Kind::Headers,
                Raw::Toml(value @ (DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_))),
            ) => Ok(Value::Text(scalar(value))),
            (_, Raw::Toml(other)) => Err(wrong(found(other))),
            (_, Raw::Text(text)) => self.text(text).map_err(wrong),
        }
    }

    /// Reads a text; the error is what was found, never a secret.
    fn text(self, text: &str) -> Result<Value, String> {
        let is_secret = matches!(self, Kind::Secret | Kind::Headers);
        let found = || if is_secret { "another".to_owned() } else { format!("{text:?}") };
        let line = || {
            let fits = !text.is_empty() && text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control);
            fits.then(|| Value::Text(text.to_owned()))
        };
        let line_if = |right: bool| if right { line() } else { None };
        let value = match self {
            Kind::Line | Kind::Path | Kind::Secret | Kind::Headers => line(),
            Kind::TextMap => Some(Value::Text(text.to_owned())),
            Kind::Url => match parse_url(text) {
                Ok(_) => line(),
                Err(error @ UrlError::Credentials) => return Err(format!("one that {error}")),
                // Before the "@" and after the "?" there may be a secret.
                Err(_) if text.contains(['@', '?']) => {
                    return Err("one that is none, or that holds credentials".to_owned());
                }
                Err(error) => return Err(format!("{text:?}, which {error}")),
            },
            Kind::Address => line_if(text.parse::<SocketAddr>().is_ok()),
            Kind::TopicPrefix => line_if(is_topic_name(text) && text.len() <= PREFIX_BYTES_MAX),
            Kind::Keyspace => line_if(is_keyspace(text)),
            Kind::Filter => line_if(EnvFilter::try_new(text).is_ok()),
            Kind::Bool => text.parse().ok().map(Value::Bool),
            Kind::Integer { .. } | Kind::IntegerMap { .. } => {
                text.replace('_', "").parse().ok().and_then(|number| self.integer(number))
            }
            Kind::Number { min, max } => {
                let within = |number: &f64| (f64::from(min)..=f64::from(max)).contains(number);
                text.parse().ok().filter(within).map(Value::Number)
            }
            Kind::Duration { min, max } => match parse_duration_ms(text) {
                Ok(ms) => (min..=max).contains(&ms).then_some(Value::Duration(ms)),
                Err(error) => return Err(format!("{text:?}, which {error}")),
            },
            Kind::Choice(words) => line_if(words.contains(&text)),
            Kind::List => return list(text.split(',').map(|entry| entry.trim().to_owned()).collect()),
        };
        value.ok_or_else(found)
    }

    fn integer(self, number: i64) -> Option<Value> {
        match self {
            Kind::Integer { min, max } | Kind::IntegerMap { min, max } => {
                (min..=max).contains(&number).then_some(Value::Integer(number))
            }
            _ => None,
        }
    }

    /// What the key takes, after "must be".
    pub(super) fn wanted(self) -> String {
        match self {
            Kind::Line => "a text of one line, up to 4096 bytes".to_owned(),
            Kind::Path => "the path of a file".to_owned(),
            Kind::Url => "an http or https URL".to_owned(),
            Kind::Address => "an address and a port like \"127.0.0.1:7420\"".to_owned(),
            Kind::TopicPrefix => "1 to 200 letters, digits, \".\", \"_\" and \"-\"".to_owned(),
            Kind::Keyspace => "up to 48 small letters, digits and \"_\", a letter first".to_owned(),
            Kind::Filter => "a level like \"info\", or \"info,rdkafka=warn\"".to_owned(),
            Kind::Bool => "true or false".to_owned(),
            Kind::Integer { min, max } | Kind::IntegerMap { min, max } => {
                format!("a whole number from {min} to {max}")
            }
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::Duration { min, max } => {
                format!("a duration in quotes from {:?} to {:?}", text_of_ms(min), text_of_ms(max))
            }
            Kind::Choice(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                format!("one of {}", words.join(", "))
            }
            Kind::List => "a list of 1 to 256 texts, none empty".to_owned(),
            Kind::TextMap => "a text, a number or a boolean".to_owned(),
            Kind::Headers => "a text of one line, up to 4096 bytes".to_owned(),
            Kind::Secret => "a text of one line".to_owned(),
        }
    }

    /// The type and its bounds, for the reference.
    pub(super) fn type_text(self) -> String {
        match self {
            Kind::Line => "text".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Url => "URL".to_owned(),
            Kind::Address => "address:port".to_owned(),
            Kind::TopicPrefix | Kind::Keyspace | Kind::Filter => format!("text: {}", self.wanted()),
            Kind::Bool => "boolean".to_owned(),
            Kind::Integer { min, max } => format!("integer, {min}–{max}"),
            Kind::Number { min, max } => format!("number, {min}–{max}"),
            Kind::Duration { min, max } => format!("duration, {}–{}", text_of_ms(min), text_of_ms(max)),
            Kind::Choice(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
            }
            Kind::List => "list of texts".to_owned(),
            Kind::TextMap => "table of texts".to_owned(),
            Kind::Headers => "table of secret texts".to_owned(),
            Kind::IntegerMap { min, max } => format!("table of integers, {min}–{max}"),
            Kind::Secret => "secret text".to_owned(),
        }
    }
}

impl Value {
    /// The value as TOML.
    pub(super) fn toml(&self) -> String {
        match self {
            Value::Text(text) => quoted(text),
            Value::Bool(value) => value.to_string(),
            Value::Integer(value) => value.to_string(),
            Value::Number(value) => format!("{value:?}"),
            Value::Duration(ms) => quoted(&text_of_ms(*ms)),
            Value::List(entries) => {
                format!("[{}]", entries.iter().map(|entry| quoted(entry)).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A text as a TOML basic string or quoted key.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list(entries: Vec<String>) -> Result<Value, String> {
    if entries.is_empty() || entries.len() > LIST_ENTRIES_MAX {
        return Err(format!("{} of them", entries.len()));
    }
    match entries.iter().any(|entry| entry.is_empty() || entry.contains(char::is_control)) {
        true => Err("an empty one, or one of several lines".to_owned()),
        false => Ok(Value::List(entries)),
    }
}

fn is_keyspace(text: &str) -> bool {
    text.len() <= KEYSPACE_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Array(_) | DeValue::Table(_) => format!("a {}", value.type_str()),
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
            format!("{} without quotes", scalar(value))
        }
    }
}

fn scalar(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(at) => at.to_string(),
        DeValue::String(text) => text.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => value.type_str().to_owned(),
    }
}

/// The shortest text of a duration: 90,000 ms are `1m30s`, none is `0s`.
fn text_of_ms(ms: u64) -> String {
    const UNITS: [(&str, u64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut rest = ms;
    let mut text = String::new();
    for (unit, unit_ms) in UNITS {
        if rest >= unit_ms {
            text.push_str(&format!("{}{unit}", rest / unit_ms));
            rest %= unit_ms;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{parse_duration_ms, text_of_ms};

    #[test]
    fn the_text_of_a_duration_reads_back_the_same() {
        for ms in [0, 1, 999, 1_000, 6_000, 90_000, 86_400_000, 2_592_000_000, 123_456_789] {
            assert_eq!(parse_duration_ms(&text_of_ms(ms)), Ok(ms));
        }
        assert_eq!(text_of_ms(90_000), "1m30s");
    }
}
