//! The layer of the TOML file. All problems of a file are found at once, each with its line.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::keys::{COLLECTION_KEYS, HANDLER_KEYS, KEYS, Key, QUEUE_KEYS, TOKEN_KEYS};
use super::kind::Raw;
use super::section::{Origin, Section};
use super::{Problem, TABLES_MAX, did_you_mean};

/// Largest config file, in bytes.
pub(super) const FILE_BYTES_MAX: usize = 4 << 20;

/// The tables of which there may be many.
#[derive(Clone, Default)]
pub(super) struct Tables {
    pub(super) handlers: Vec<Section>,
    pub(super) collections: Vec<Section>,
    pub(super) queues: Vec<Section>,
    pub(super) tokens: Vec<Section>,
}

/// Reads a file's text into the main section and returns the tables of which there may be many.
pub(super) fn read(path: &str, text: &str, main: &mut Section, problems: &mut Vec<Problem>) -> Tables {
    let reader = Reader { path, text };
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        problems.extend(errors.iter().map(|error| {
            let origin = reader.origin(error.span().unwrap_or(0..0));
            Problem::new(
                &origin,
                "",
                format!("is not TOML: {}", error.message().lines().next().unwrap_or_default()),
            )
        }));
        return Tables::default();
    }
    let mut tables = Tables::default();
    for (name, value) in document.get_ref() {
        if name.get_ref() == "handler" {
            tables.handlers = reader.tables("handler", HANDLER_KEYS, value.get_ref(), value.span(), problems);
        } else if name.get_ref() == "collection" {
            let (value, span) = (value.get_ref(), value.span());
            tables.collections = reader.tables("collection", COLLECTION_KEYS, value, span, problems);
        } else if name.get_ref() == "queue" {
            tables.queues = reader.tables("queue", QUEUE_KEYS, value.get_ref(), value.span(), problems);
        } else if let ("http", Some(table)) = (&**name.get_ref(), value.get_ref().as_table()) {
            for (name, value) in table {
                let (span, value) = (value.span(), value.get_ref());
                if name.get_ref() == "token" {
                    tables.tokens = reader.tables("http.token", TOKEN_KEYS, value, span, problems);
                } else {
                    reader.entry("http.", name.get_ref(), name.span(), value, main, problems);
                }
            }
        } else {
            reader.entry("", name.get_ref(), name.span(), value.get_ref(), main, problems);
        }
    }
    tables
}

struct Reader<'a> {
    path: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn tables(
        &self,
        name: &str,
        keys: &'static [Key],
        value: &DeValue<'_>,
        span: Range<usize>,
        problems: &mut Vec<Problem>,
    ) -> Vec<Section> {
        let tables = value.as_array().filter(|array| array.iter().all(|entry| entry.get_ref().is_table()));
        let Some(tables) = tables.filter(|tables| tables.len() <= TABLES_MAX) else {
            let text = format!("must be up to {TABLES_MAX} tables, each begun with [[{name}]]");
            problems.push(Problem::new(&self.origin(span), name, text));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for table in tables {
            let mut section = Section::with_defaults(keys, self.origin(table.span()));
            for (name, value) in table.get_ref().as_table().into_iter().flatten() {
                self.entry("", name.get_ref(), name.span(), value.get_ref(), &mut section, problems);
            }
            sections.push(section);
        }
        sections
    }

    /// One `name = value` or `[name]` under a prefix that is "" or ends with a dot.
    fn entry(
        &self,
        prefix: &str,
        name: &str,
        at: Range<usize>,
        value: &DeValue<'_>,
        section: &mut Section,
        problems: &mut Vec<Problem>,
    ) {
        let path = format!("{prefix}{name}");
        let below = format!("{path}.");
        if let Some(key) = section.key(&path) {
            self.value(key, at, value, section, problems);
        } else if !section.keys.iter().any(|key| key.path.starts_with(&below)) {
            problems.push(self.unknown(prefix, &path, at, section.keys));
        } else if let Some(table) = value.as_table() {
            for (name, value) in table {
                self.entry(&below, name.get_ref(), name.span(), value.get_ref(), section, problems);
            }
        } else {
            let text = format!("must be a table: write [{path}] and its keys below");
            problems.push(Problem::new(&self.origin(at), path, text));
        }
    }

    fn value(
        &self,
        key: &'static Key,
        at: Range<usize>,
        value: &DeValue<'_>,
        section: &mut Section,
        problems: &mut Vec<Problem>,
    ) {
        if !key.kind.is_map() {
            problems.extend(section.read(key, "", Raw::Toml(value), self.origin(at)).err());
            return;
        }
        let Some(table) = value.as_table() else {
            let text = format!("must be a table of free names: write [{}] and its entries below", key.path);
            problems.push(Problem::new(&self.origin(at), key.path, text));
            return;
        };
        for (name, value) in table {
            if value.get_ref().is_table() {
                let text =
                    "must be one value: a name with dots needs quotes, as in \"security.protocol\" = \"SSL\"";
                let path = format!("{}.{}", key.path, name.get_ref());
                problems.push(Problem::new(&self.origin(name.span()), path, text));
            } else {
                let origin = self.origin(name.span());
                problems.extend(section.read(key, name.get_ref(), Raw::Toml(value.get_ref()), origin).err());
            }
        }
    }

    fn unknown(&self, prefix: &str, path: &str, at: Range<usize>, keys: &[Key]) -> Problem {
        let depth = prefix.matches('.').count();
        let part = |key: &Key| key.path.splitn(depth + 2, '.').take(depth + 1).collect::<Vec<_>>().join(".");
        let siblings = keys.iter().filter(|key| key.path.starts_with(prefix)).map(part);
        let is_main = std::ptr::eq(keys, KEYS);
        let tables = ["handler", "collection", "queue", "http.token"].into_iter().filter(|_| is_main);
        let tables = tables.filter(|table| table.starts_with(prefix)).map(str::to_owned);
        let known: Vec<String> =
            siblings.chain(tables).chain(keys.iter().map(|key| key.path.to_owned())).collect();
        Problem::new(&self.origin(at), path, format!("is not a key{}", did_you_mean(path, &known)))
    }

    fn origin(&self, span: Range<usize>) -> Origin {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        Origin::File {
            path: self.path.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
        }
    }
}
