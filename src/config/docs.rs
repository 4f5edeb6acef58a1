//! docs/configuration.md, made from the table of keys.

use std::fmt::Write as _;

use super::access::TOKENS_MAX;
use super::keys::{
    COLLECTION_KEYS, HANDLER_KEYS, KEYS, Key, OTHER_VARIABLES, Otherwise, QUEUE_KEYS, TOKEN_KEYS, variable,
};

const BEGINNING: &str = "# Configuration

<!-- Made from src/config/keys.rs by the test `the_reference_of_the_configuration_is_up_to_date`; run it with
UPDATE_DOCS=1 to write this file anew. -->

A flag wins over the environment, the environment over the TOML file, the file over the default. Unknown keys are
refused, with the nearest known one. `dueline config check` reads everything and says what is wrong, each problem with
its place; `dueline config show` prints every value and where it was said.

Durations are text: `500ms`, `10s`, `1h30m`, `30d`, or ISO 8601 `PT10M`. Lists in the environment have commas between
their entries.

**Secrets** stand in a file of their own, named by a key that ends in `_file`, or in the environment. They are shown
nowhere. Any librdkafka property can be read from a file so: `\"sasl.password_file\" = \"/run/secrets/kafka\"`.

**Tables in the environment**: a librdkafka property is named in capitals with `_` for `.`, as in
`DUELINE_KAFKA_LIBRDKAFKA_SASL_PASSWORD` or `DUELINE_KAFKA_LIBRDKAFKA_SASL_PASSWORD_FILE`; the replication is one
variable, `DUELINE_CASSANDRA_REPLICATION=dc1=2,dc2=2,dc3=1`. A header for the collector is named with `_` for `-`, as in
`DUELINE_OTLP_HEADERS_X_API_KEY` or `DUELINE_OTLP_HEADERS_AUTHORIZATION_FILE`. The signing secrets of handler `notify-eu` are
`DUELINE_HANDLER_NOTIFY_EU_SECRETS`, with spaces between, the token of `ci` is `DUELINE_HTTP_TOKEN_CI`. Other variables that begin with `DUELINE_` are refused, but
for those that Kubernetes makes for a service of that name.

librdkafka properties that the promises rest on (`acks`, `enable.auto.commit`, `isolation.level` and the like) or that
have a key of their own are refused.
";

/// The reference of all keys, as Markdown: docs/configuration.md.
pub fn reference() -> String {
    let mut text = BEGINNING.to_owned();
    for keys in KEYS.chunk_by(|one, next| section_of(one) == section_of(next)) {
        let _ = writeln!(text, "\n## `[{}]`\n", section_of(&keys[0]));
        text.push_str("| key | type | default | environment | meaning |\n|---|---|---|---|---|\n");
        keys.iter().for_each(|key| row(&mut text, key, &format!(" `{}` |", environment(key))));
    }
    text.push_str("\n## `[[handler]]`\n\nOne table for each handler; names all different.\n\n");
    text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
    HANDLER_KEYS.iter().for_each(|key| row(&mut text, key, ""));
    text.push_str(
        "\n## `[[collection]]`\n\nOne table for each collection with limits; names all different.\n\n",
    );
    text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
    COLLECTION_KEYS.iter().for_each(|key| row(&mut text, key, ""));
    text.push_str(
        "\n## `[[queue]]`\n\nOne table for each queue whose tasks do something else to it than those of other queues; names all different.\n\n",
    );
    text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
    QUEUE_KEYS.iter().for_each(|key| row(&mut text, key, ""));
    let _ = writeln!(
        text,
        "\n## `[[http.token]]`\n\nOne table for each token of the HTTP interface, at most {TOKENS_MAX}.\n"
    );
    text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
    TOKEN_KEYS.iter().for_each(|key| row(&mut text, key, ""));
    text.push_str("\n## Other variables\n\n| environment | meaning |\n|---|---|\n");
    for (name, meaning) in OTHER_VARIABLES {
        let _ = writeln!(text, "| `{name}` | {meaning} |");
    }
    text
}

fn row(text: &mut String, key: &Key, environment: &str) {
    let (path, kind, default, meaning) = (key.path, key.kind.type_text(), default(key), key.meaning);
    let _ = writeln!(text, "| `{path}` | {kind} | {default} |{environment} {meaning} |");
}

fn section_of(key: &Key) -> &'static str {
    key.path.split('.').next().unwrap_or_default()
}

fn environment(key: &Key) -> String {
    let entry = if key.kind.is_text_map() { "_…" } else { "" };
    format!("{}{entry}", variable(key))
}

fn default(key: &Key) -> String {
    match key.default {
        Otherwise::Text(text) => format!("`{text}`"),
        Otherwise::Computed(words) => words.to_owned(),
        Otherwise::Unset => "–".to_owned(),
    }
}

/// Compares a page of docs/ with what it is made from; with UPDATE_DOCS=1 writes it instead.
#[cfg(test)]
pub(crate) fn check_generated(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("docs/ can be made");
        std::fs::write(&path, text).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/{name} is not up to date: run this test with UPDATE_DOCS=1");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_of_the_configuration_is_up_to_date() {
        super::check_generated("configuration.md", &super::reference());
    }
}
