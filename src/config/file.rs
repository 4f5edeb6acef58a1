//! The layer of the TOML file. All problems of a file are found at once, each with its line.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::keys::{HANDLER_KEYS, KEYS, Key};
use super::kind::Raw;
use super::section::{Origin, Section};
use super::{HANDLERS_MAX, Problem, did_you_mean};

/// Largest config file, in bytes.
pub(super) const FILE_BYTES_MAX: usize = 4 << 20;

/// Reads a file's text into the main section and returns the sections of its handlers.
pub(super) fn read(path: &str, text: &str, main: &mut Section, problems: &mut Vec<Problem>) -> Vec<Section> {
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
        return Vec::new();
    }
    let mut handlers = Vec::new();
    for (name, value) in document.get_ref() {
        if name.get_ref() == "handler" {
            handlers = reader.handlers(value.get_ref(), value.span(), problems);
        } else {
            reader.entry("", name.get_ref(), name.span(), value.get_ref(), main, problems);
        }
    }
    handlers
}

struct Reader<'a> {
    path: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn handlers(&self, value: &DeValue<'_>, span: Range<usize>, problems: &mut Vec<Problem>) -> Vec<Section> {
        let tables = value.as_array().filter(|array| array.iter().all(|entry| entry.get_ref().is_table()));
        let Some(tables) = tables.filter(|tables| tables.len() <= HANDLERS_MAX) else {
            let text = format!("must be up to {HANDLERS_MAX} tables, each begun with [[handler]]");
            problems.push(Problem::new(&self.origin(span), "handler", text));
            return Vec::new();
        };
        let mut handlers = Vec::new();
        for table in tables {
            let mut section = Section::with_defaults(HANDLER_KEYS, self.origin(table.span()));
            for (name, value) in table.get_ref().as_table().into_iter().flatten() {
                self.entry("", name.get_ref(), name.span(), value.get_ref(), &mut section, problems);
            }
            handlers.push(section);
        }
        handlers
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
        let handler = (prefix.is_empty() && std::ptr::eq(keys, KEYS)).then(|| "handler".to_owned());
        let known: Vec<String> =
            siblings.chain(handler).chain(keys.iter().map(|key| key.path.to_owned())).collect();
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
