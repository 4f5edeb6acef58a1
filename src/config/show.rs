//! The configuration as TOML, every value with where it was said; it loads back to the same. Secrets are left out.

use std::fmt::Write as _;

use super::keys::Key;
use super::kind::quoted;
use super::load::Loaded;
use super::section::{Found, Section};

/// One value of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    /// The key: `kafka.group`, `handler.notify.url`.
    pub key: String,
    /// The value as TOML; `None` = a secret.
    pub value: Option<String>,
    /// Where it was said.
    pub origin: String,
}

impl Loaded {
    /// All values as TOML text, secrets left out.
    pub fn show(&self) -> String {
        let mut text = String::new();
        section(&mut text, &self.main, "");
        for handler in &self.tables.handlers {
            text.push_str("\n[[handler]]\n");
            section(&mut text, handler, "handler.");
        }
        for collection in &self.tables.collections {
            text.push_str("\n[[collection]]\n");
            section(&mut text, collection, "collection.");
        }
        for queue in &self.tables.queues {
            text.push_str("\n[[queue]]\n");
            section(&mut text, queue, "queue.");
        }
        for token in &self.tables.tokens {
            text.push_str("\n[[http.token]]\n");
            section(&mut text, token, "http.token.");
        }
        text
    }

    /// All values as a list, for programs.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        let handlers = self.tables.handlers.iter().map(|section| ("handler", section));
        let collections = self.tables.collections.iter().map(|section| ("collection", section));
        let tokens = self.tables.tokens.iter().map(|section| ("http.token", section));
        let queues = self.tables.queues.iter().map(|section| ("queue", section));
        let sections = handlers.chain(collections).chain(queues).chain(tokens);
        let sections =
            sections.map(|(table, section)| (section, format!("{table}.{}.", section.text("name"))));
        for (section, prefix) in [(&self.main, String::new())].into_iter().chain(sections) {
            for (key, name, found) in values(section) {
                let dot = if name.is_empty() { "" } else { "." };
                entries.push(Entry {
                    key: format!("{prefix}{}{dot}{name}", key.path),
                    value: (!Section::is_hidden(key, name)).then(|| found.value.toml()),
                    origin: found.origin.to_string(),
                });
            }
        }
        entries
    }
}

/// Found values in the order of the table.
fn values(section: &Section) -> impl Iterator<Item = (&'static Key, &str, &Found)> {
    section.keys.iter().flat_map(|key| section.entries(key.path).map(move |(name, found)| (key, name, found)))
}

/// Writes the keys of a section, each table of them under its header. Tables without any value are left out.
fn section(text: &mut String, section: &Section, prefix: &str) {
    for keys in section.keys.chunk_by(|one, next| table_of(one) == table_of(next)) {
        let table = table_of(&keys[0]);
        if !keys.iter().any(|key| section.is_any(key)) {
            continue;
        }
        if !table.is_empty() {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}[{prefix}{table}]");
        }
        for key in keys {
            if !section.is_any(key) {
                let _ = writeln!(text, "# {} is not set", name_of(key));
            }
            for (name, found) in section.entries(key.path) {
                line(text, key, name, found);
            }
        }
    }
}

impl Section {
    fn is_any(&self, key: &Key) -> bool {
        self.entries(key.path).next().is_some()
    }
}

fn line(text: &mut String, key: &Key, entry: &str, found: &Found) {
    let name = if entry.is_empty() { name_of(key).to_owned() } else { quoted_key(entry) };
    let _ = if Section::is_hidden(key, entry) {
        writeln!(text, "# {name} is set and not shown # {}", found.origin)
    } else {
        writeln!(text, "{name} = {} # {}", found.value.toml(), found.origin)
    };
}

fn quoted_key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { name.to_owned() } else { quoted(name) }
}

/// `cassandra.tls` of `cassandra.tls.ca_file`; a map is a table of its own.
fn table_of(key: &Key) -> &'static str {
    if key.kind.is_map() { key.path } else { key.path.rsplit_once('.').map_or("", |(table, _)| table) }
}

fn name_of(key: &Key) -> &'static str {
    key.path.rsplit_once('.').map_or(key.path, |(_, name)| name)
}
