//! Values found for a table of keys, each with where it was said. Later layers win: default, file, environment, flag.

use std::collections::BTreeMap;
use std::fmt;

use super::keys::{Key, Otherwise};
use super::kind::{Kind, Raw, Value};
use super::{Problem, is_secret_name};

/// Where a value was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere.
    Default,
    /// In the config file.
    File {
        /// Its path.
        path: String,
        /// The line, from 1.
        line: usize,
    },
    /// In a variable of the environment.
    Environment(String),
    /// By a flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{path}:{line}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Found {
    pub value: Value,
    pub origin: Origin,
}

/// The values of one table of keys. Entries of maps have the entry's name beside the path, other values "".
#[derive(Clone)]
pub(super) struct Section {
    pub keys: &'static [Key],
    pub found: BTreeMap<(&'static str, String), Found>,
    /// Where the section begins.
    pub origin: Origin,
}

impl Section {
    /// A section with the defaults of its keys.
    pub(super) fn with_defaults(keys: &'static [Key], origin: Origin) -> Section {
        let mut section = Section { keys, found: BTreeMap::new(), origin };
        for key in keys {
            if let Otherwise::Text(text) = key.default {
                let value = key.kind.read(Raw::Text(text)).expect("a default keeps its own bounds");
                section.put(key, "", value, Origin::Default);
            }
        }
        section
    }

    pub(super) fn key(&self, path: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.path == path)
    }

    pub(super) fn put(&mut self, key: &'static Key, entry: &str, value: Value, origin: Origin) {
        self.found.insert((key.path, entry.to_owned()), Found { value, origin });
    }

    /// Reads a value and takes it.
    ///
    /// # Errors
    /// It is not what the key takes.
    pub(super) fn read(
        &mut self,
        key: &'static Key,
        entry: &str,
        raw: Raw<'_>,
        origin: Origin,
    ) -> Result<(), Problem> {
        let name = if entry.is_empty() { key.path.to_owned() } else { format!("{}.{entry}", key.path) };
        if key.kind == Kind::Secret && matches!(origin, Origin::File { .. }) {
            let text = "is a secret and does not belong in this file: name a file with it, or set it in the environment";
            return Err(Problem::new(&origin, name, text));
        }
        let value = key.kind.read(raw).map_err(|text| Problem::new(&origin, name, text))?;
        self.put(key, entry, value, origin);
        Ok(())
    }

    /// Puts all keys of these prefixes back to their defaults, and names those that were set.
    pub(super) fn reset(&mut self, prefixes: &[&str]) -> Vec<String> {
        let is_meant = |path: &str| prefixes.iter().any(|prefix| path.starts_with(prefix));
        let set =
            self.found.iter().filter(|((path, _), found)| is_meant(path) && found.origin != Origin::Default);
        let mut names: Vec<String> = set.map(|((path, _), _)| (*path).to_owned()).collect();
        names.dedup();
        self.found.retain(|(path, _), _| !is_meant(path));
        for (at, found) in Section::with_defaults(self.keys, Origin::Default).found {
            self.found.entry(at).or_insert(found);
        }
        names
    }

    pub(super) fn is_set(&self, path: &str) -> bool {
        self.value(path).is_some()
    }

    /// Where a value was said; the section's own place when it was not.
    pub(super) fn origin_of(&self, path: &str) -> Origin {
        self.found.get(&Self::at(self.path(path))).map_or(self.origin.clone(), |found| found.origin.clone())
    }

    pub(super) fn text_if_set(&self, path: &str) -> Option<String> {
        match self.value(path)? {
            Value::Text(text) => Some(text.clone()),
            other => panic!("{path} is no text but {other:?}"),
        }
    }

    pub(super) fn text(&self, path: &str) -> String {
        self.text_if_set(path).unwrap_or_default()
    }

    pub(super) fn bool(&self, path: &str) -> bool {
        matches!(self.value(path), Some(Value::Bool(true)))
    }

    pub(super) fn list(&self, path: &str) -> Vec<String> {
        match self.value(path) {
            Some(Value::List(entries)) => entries.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn integer(&self, path: &str) -> i64 {
        match self.value(path) {
            Some(Value::Integer(number)) => *number,
            other => panic!("{path} is no integer but {other:?}"),
        }
    }

    pub(super) fn number(&self, path: &str) -> f64 {
        match self.value(path) {
            Some(Value::Number(number)) => *number,
            other => panic!("{path} is no number but {other:?}"),
        }
    }

    pub(super) fn ms(&self, path: &str) -> u64 {
        match self.value(path) {
            Some(Value::Duration(ms)) => *ms,
            other => panic!("{path} is no duration but {other:?}"),
        }
    }

    /// The entries of a map with their origins.
    pub(super) fn entries(&self, path: &str) -> impl Iterator<Item = (&str, &Found)> {
        let path = self.path(path);
        let range = (path, String::new())..;
        let entries = self.found.range(range).take_while(move |((of, _), _)| *of == path);
        entries.map(|((_, entry), found)| (entry.as_str(), found))
    }

    fn value(&self, path: &str) -> Option<&Value> {
        self.found.get(&Self::at(self.path(path))).map(|found| &found.value)
    }

    /// The path as the table has it: asking for a key that is not in the table is a mistake of this room.
    fn path(&self, path: &str) -> &'static str {
        self.key(path).map(|key| key.path).expect("only keys of the table are asked for")
    }

    fn at(path: &'static str) -> (&'static str, String) {
        (path, String::new())
    }

    /// Whether a value must never be shown.
    pub(super) fn is_hidden(key: &Key, entry: &str) -> bool {
        match key.kind {
            Kind::Secret => true,
            Kind::Headers => !entry.ends_with("_file"),
            Kind::TextMap => is_secret_name(entry),
            _ => false,
        }
    }
}
