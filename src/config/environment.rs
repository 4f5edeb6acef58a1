//! The layer of the environment: DUELINE_KAFKA_BROKERS sets `kafka.brokers`.
//!
//! A variable that is no key is refused like a key of the file, but for those that Kubernetes makes for a service
//! named dueline, and those of this repository's tests.

use std::collections::BTreeMap;

use super::file::Tables;
use super::keys::{KEYS, Key, OTHER_VARIABLES, secrets_variable, token_variable, variable};
use super::kind::{Kind, Raw};
use super::section::{Origin, Section};
use super::{Problem, did_you_mean};

const PREFIX: &str = "DUELINE_";
/// Variables of the repository's own tests and tools.
const OF_TOOLS: [&str; 5] =
    ["DUELINE_COMMIT", "DUELINE_TEST_", "DUELINE_SERVERS_", "DUELINE_SIM_", "DUELINE_LONG"];

/// Reads the variables into the main section, the handlers' secrets and the tokens.
pub(super) fn read(
    variables: &BTreeMap<String, String>,
    main: &mut Section,
    tables: &mut Tables,
    problems: &mut Vec<Problem>,
) {
    for (name, text) in variables.range(PREFIX.to_owned()..).take_while(|(name, _)| name.starts_with(PREFIX))
    {
        let origin = Origin::Environment(name.clone());
        let handler = |handler: &&mut Section| secrets_variable(&handler.text("name")) == *name;
        // Of two tokens of a name it is the one that has no file.
        let token = |token: &&mut Section| {
            token_variable(&token.text("name")) == *name && !token.is_set("token_file")
        };
        if let Some(handler) = tables.handlers.iter_mut().find(handler) {
            let key = handler.key("secrets").expect("handlers have secrets");
            problems.extend(handler.read(key, "", Raw::Text(text), origin).err());
        } else if let Some(section) = tables.tokens.iter_mut().find(token) {
            let key = section.key("token").expect("tokens have a token");
            problems.extend(section.read(key, "", Raw::Text(text), origin).err());
        } else if let Some((key, entry)) = key_of(name) {
            problems.extend(set(main, key, &entry, text, origin).err());
        } else if !is_known_otherwise(name) {
            let known: Vec<String> = KEYS.iter().map(variable).collect();
            let text = format!("is not a variable of Dueline{}", did_you_mean(name, &known));
            problems.push(Problem::new(&origin, name.as_str(), text));
        }
    }
}

fn set(
    main: &mut Section,
    key: &'static Key,
    entry: &str,
    text: &str,
    origin: Origin,
) -> Result<(), Problem> {
    if !matches!(key.kind, Kind::IntegerMap { .. }) {
        return main.read(key, entry, Raw::Text(text), origin);
    }
    main.found.retain(|(path, _), _| *path != key.path);
    for pair in text.split(',') {
        let Some((name, number)) = pair.split_once('=').filter(|(name, _)| !name.trim().is_empty()) else {
            return Err(Problem::new(
                &origin,
                key.path,
                format!("must be like \"dc1=2,dc2=2\"; found {text:?}"),
            ));
        };
        main.read(key, name.trim(), Raw::Text(number.trim()), origin.clone())?;
    }
    Ok(())
}

/// The key a variable sets, and for a table of librdkafka properties or headers the entry.
fn key_of(name: &str) -> Option<(&'static Key, String)> {
    if let Some(key) = KEYS.iter().find(|key| !key.kind.is_text_map() && variable(key) == name) {
        return Some((key, String::new()));
    }
    KEYS.iter().filter(|key| key.kind.is_text_map()).find_map(|key| {
        let rest = name.strip_prefix(&variable(key))?.strip_prefix('_')?;
        (!rest.is_empty()).then(|| (key, entry(key.kind, rest)))
    })
}

/// `SASL_PASSWORD_FILE` is the property `sasl.password_file`, `X_API_KEY` the header `x-api-key`.
fn entry(kind: Kind, rest: &str) -> String {
    let rest = rest.to_ascii_lowercase();
    let (name, ending) = match rest.strip_suffix("_file") {
        Some(name) => (name, "_file"),
        None => (rest.as_str(), ""),
    };
    let between = if kind == Kind::Headers { "-" } else { "." };
    format!("{}{ending}", name.replace('_', between))
}

fn is_known_otherwise(name: &str) -> bool {
    OTHER_VARIABLES.iter().any(|(known, _)| *known == name)
        || OF_TOOLS.iter().any(|prefix| name.starts_with(prefix))
        || is_of_kubernetes(name)
}

/// Kubernetes gives every container `<SERVICE>_SERVICE_HOST`, `<SERVICE>_PORT_7420_TCP_ADDR` and so on.
fn is_of_kubernetes(name: &str) -> bool {
    let of_port = |(_, rest): (&str, &str)| {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < rest.len() && ["_TCP", "_UDP", "_SCTP"].iter().any(|word| digits.starts_with(word))
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.split_once("_PORT_").is_some_and(of_port)
}

#[cfg(test)]
mod tests {
    use super::{is_of_kubernetes, key_of};

    #[test]
    fn a_variable_names_its_key() {
        let path = |name: &str| key_of(name).map(|(key, entry)| (key.path, entry));
        assert_eq!(path("DUELINE_KAFKA_SESSION_TIMEOUT"), Some(("kafka.session_timeout", String::new())));
        assert_eq!(path("DUELINE_LOG"), Some(("log.filter", String::new())));
        assert_eq!(path("DUELINE_CASSANDRA_TLS_CA_FILE"), Some(("cassandra.tls.ca_file", String::new())));
        let password = Some(("kafka.librdkafka", "sasl.password".to_owned()));
        assert_eq!(path("DUELINE_KAFKA_LIBRDKAFKA_SASL_PASSWORD"), password);
        let file = Some(("kafka.consumer", "sasl.password_file".to_owned()));
        assert_eq!(path("DUELINE_KAFKA_CONSUMER_SASL_PASSWORD_FILE"), file);
        let header = Some(("otlp.headers", "x-api-key".to_owned()));
        assert_eq!(path("DUELINE_OTLP_HEADERS_X_API_KEY"), header);
        let file = Some(("otlp.headers", "authorization_file".to_owned()));
        assert_eq!(path("DUELINE_OTLP_HEADERS_AUTHORIZATION_FILE"), file);
        assert_eq!(path("DUELINE_KAFKA_LIBRDKAFKA"), None);
        assert_eq!(path("DUELINE_KAFKA_BROKER"), None);
    }

    #[test]
    fn variables_of_a_kubernetes_service_are_not_ours() {
        for name in [
            "DUELINE_SERVICE_HOST",
            "DUELINE_SERVICE_PORT_HTTP",
            "DUELINE_PORT",
            "DUELINE_PORT_7420_TCP_ADDR",
            "DUELINE_HEADLESS_PORT_7420_TCP",
        ] {
            assert!(is_of_kubernetes(name), "{name}");
        }
        assert!(!is_of_kubernetes("DUELINE_KAFKA_PORT_X") && !is_of_kubernetes("DUELINE_KAFKA_BROKER"));
    }
}
