//! Bringing the layers together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::file::Tables;
use super::keys::KEYS;
use super::kind::{Raw, Value};
use super::section::{Origin, Section};
use super::{Config, Problem, Problems, build, environment, file};

/// Where the configuration is read from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The TOML file.
    pub file: Option<PathBuf>,
    /// The environment, as from `std::env::vars`; only names that begin with DUELINE_ are looked at.
    pub environment: BTreeMap<String, String>,
    /// Flags that were given.
    pub flags: Vec<Flag>,
}

/// A flag of the command line that sets a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As written: `--listen`.
    pub flag: &'static str,
    /// The key it sets: `http.listen`.
    pub key: &'static str,
    /// Its value.
    pub value: String,
}

/// The configuration with where each value was said.
#[derive(Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    pub(super) main: Section,
    pub(super) tables: Tables,
}

/// Reads, checks and builds the configuration.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load(sources: Sources) -> Result<Loaded, Problems> {
    Layers::read(&sources).finish()
}

/// Reads the configuration of `dueline dev`, which keeps everything under `data_dir`; and the keys that were set and mean
/// nothing without servers, or where whoever reaches it may do everything. A handler `log` is there without being asked for.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load_dev(sources: Sources, data_dir: &Path) -> Result<(Config, Vec<String>), Problems> {
    let mut layers = Layers::read(&sources);
    let mut ignored = layers.go_without_servers();
    ignored.extend(layers.main.reset(&["http.access"]));
    if !std::mem::take(&mut layers.tables.tokens).is_empty() {
        ignored.push("http.token".to_owned());
    }
    let config = layers.finish()?.config;
    Ok((config.into_dev(data_dir), ignored))
}

/// Reads the configuration of `dueline serve --embedded`, which keeps everything under `data_dir` and else goes by the
/// rules of `serve`; and the keys that were set and mean nothing without servers.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load_embedded(sources: Sources, data_dir: &Path) -> Result<(Loaded, Vec<String>), Problems> {
    let mut layers = Layers::read(&sources);
    let ignored = layers.go_without_servers();
    let mut loaded = layers.finish()?;
    loaded.config = loaded.config.into_embedded(data_dir);
    Ok((loaded, ignored))
}

/// What is of no use without servers.
const OF_SERVERS: [&str; 6] = [
    "kafka.",
    "cassandra.",
    "topics.prefix",
    "topics.partitions",
    "topics.replication_factor",
    "topics.min_insync_replicas",
];

/// What was found in all layers, before it is looked at as a whole.
struct Layers {
    main: Section,
    tables: Tables,
    problems: Vec<Problem>,
}

impl Layers {
    fn read(sources: &Sources) -> Layers {
        let mut problems = Vec::new();
        let mut main = Section::with_defaults(KEYS, Origin::Default);
        let mut tables = match &sources.file {
            None => Tables::default(),
            Some(path) => {
                let name = path.display().to_string();
                match read_file(path) {
                    Ok(text) => file::read(&name, &text, &mut main, &mut problems),
                    Err(text) => {
                        let text = format!("config file {name} {text}");
                        problems.push(Problem::new(&Origin::Default, "", text));
                        Tables::default()
                    }
                }
            }
        };
        environment::read(&sources.environment, &mut main, &mut tables, &mut problems);
        for flag in &sources.flags {
            let key = main.key(flag.key).expect("a flag sets a key of the table");
            let origin = Origin::Flag(flag.flag.to_owned());
            problems.extend(main.read(key, "", Raw::Text(&flag.value), origin).err());
        }
        Layers { main, tables, problems }
    }

    /// Puts back what is of no use without servers, and names what of it was set. What is published costs writes to the one disk:
    /// only who asks for it has it.
    fn go_without_servers(&mut self) -> Vec<String> {
        let ignored = self.main.reset(&OF_SERVERS);
        for path in build::PUBLISHED {
            build::put_if_unset(&mut self.main, path, Value::Bool(false));
        }
        ignored
    }

    /// Values that are wrong stand at their default while rules between keys are looked at; what a rule says of such a
    /// key is not told.
    fn finish(self) -> Result<Loaded, Problems> {
        let Layers { mut main, tables, mut problems } = self;
        let mut of_rules = Vec::new();
        let config = build::config(&mut main, &tables, &mut of_rules);
        let is_told = |rule: &Problem| {
            let of_table = |key: &str| {
                ["handler.", "collection.", "queue.", "http.token."]
                    .iter()
                    .fold(key, |key, table| key.trim_start_matches(table))
                    .to_owned()
            };
            problems.iter().any(|problem| of_table(&problem.key) == of_table(&rule.key))
        };
        of_rules.retain(|rule| !is_told(rule));
        problems.extend(of_rules);
        if problems.is_empty() { Ok(Loaded { config, main, tables }) } else { Err(Problems(problems)) }
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > file::FILE_BYTES_MAX {
        return Err(format!("is larger than {} bytes", file::FILE_BYTES_MAX));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

impl Loaded {
    /// Whether this is meant for an installation with servers: one of them is named.
    pub fn names_servers(&self) -> bool {
        SERVERS.iter().any(|path| self.main.is_set(path))
    }

    /// Checks what only an installation with servers needs, as far as that can be done without asking them: brokers,
    /// nodes, files.
    ///
    /// # Errors
    /// What is missing or wrong, at once.
    pub fn require_servers(&self) -> Result<(), Problems> {
        let missing = SERVERS.into_iter().filter(|path| !self.main.is_set(path));
        let problem = |path| {
            let variable = super::keys::variable(self.main.key(path).expect("a key of the table"));
            let text = format!("is not set: set it in the config file or by {variable}");
            Problem::new(&Origin::Default, path, text)
        };
        let mut problems: Vec<Problem> = missing.map(problem).collect();
        let mut wrong = |path: &str, text: String| {
            problems.push(Problem::new(&self.main.origin_of(path), path, text));
        };
        for broker in self.config.kafka.brokers.iter().flat_map(|brokers| brokers.split(',')) {
            if let Err(why) = check_address(broker.trim()) {
                wrong("kafka.brokers", why);
            }
        }
        for node in &self.config.cassandra.nodes {
            if let Err(why) = check_address(node) {
                wrong("cassandra.nodes", why);
            }
        }
        for path in ["cassandra.tls.ca_file", "cassandra.tls.cert_file", "cassandra.tls.key_file"] {
            if let Some(file) = self.main.text_if_set(path)
                && let Err(error) = std::fs::read(&file)
            {
                wrong(path, format!("names {file}, which cannot be read: {error}"));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }

    /// Checks that no handler is code of another program, as in a process that has none.
    ///
    /// # Errors
    /// Every handler that is.
    pub fn refuse_in_process(&self) -> Result<(), Problems> {
        let in_process = |section: &&Section| section.text("kind") == "in-process";
        let problem = |section: &Section| {
            let name = section.text("name");
            let text = format!(
                "of {name} is \"in-process\", which only a program with the library has code for: use \"http\" or another kind"
            );
            Problem::new(&section.origin_of("kind"), "handler.kind", text)
        };
        let problems: Vec<Problem> = self.tables.handlers.iter().filter(in_process).map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }
}

/// What `serve` cannot do without.
const SERVERS: [&str; 2] = ["kafka.brokers", "cassandra.nodes"];

/// Checks `host:port`, where the port may be left out.
fn check_address(text: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("has {text:?}, which {why}; write host:port, as in \"c1:9042\""));
    // A broker may have its protocol in front, an IPv6 address has brackets.
    let rest = text.rsplit_once("://").map_or(text, |(_, rest)| rest);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        return wrong("names no host");
    }
    if host.contains(':') && !host.starts_with('[') && text.parse::<std::net::Ipv6Addr>().is_err() {
        return wrong("has more than one port");
    }
    match port.map(str::parse::<u16>) {
        Some(Err(_) | Ok(0)) => wrong("has no port from 1 to 65535"),
        Some(Ok(_)) | None => Ok(()),
    }
}
