//! Bringing the layers together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::keys::KEYS;
use super::kind::Raw;
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
    pub(super) handlers: Vec<Section>,
}

/// Reads, checks and builds the configuration.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load(sources: Sources) -> Result<Loaded, Problems> {
    let mut problems = Vec::new();
    let mut main = Section::with_defaults(KEYS, Origin::Default);
    let mut handlers = match &sources.file {
        None => Vec::new(),
        Some(path) => {
            let name = path.display().to_string();
            match read_file(path) {
                Ok(text) => file::read(&name, &text, &mut main, &mut problems),
                Err(text) => {
                    problems.push(Problem::new(&Origin::Default, "", format!("config file {name} {text}")));
                    Vec::new()
                }
            }
        }
    };
    environment::read(&sources.environment, &mut main, &mut handlers, &mut problems);
    for flag in &sources.flags {
        let key = main.key(flag.key).expect("a flag sets a key of the table");
        problems.extend(main.read(key, "", Raw::Text(&flag.value), Origin::Flag(flag.flag.to_owned())).err());
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let config = build::config(&mut main, &handlers).map_err(Problems)?;
    Ok(Loaded { config, main, handlers })
}

fn read_file(path: &std::path::Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > file::FILE_BYTES_MAX {
        return Err(format!("is larger than {} bytes", file::FILE_BYTES_MAX));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

impl Loaded {
    /// Checks what only an installation with servers needs: brokers, nodes, replication.
    ///
    /// # Errors
    /// What is missing, at once.
    pub fn require_servers(&self) -> Result<(), Problems> {
        let needed = ["kafka.brokers", "cassandra.nodes"];
        let missing = needed.into_iter().filter(|path| !self.main.is_set(path));
        let problem = |path| {
            let variable = super::keys::variable(self.main.key(path).expect("a key of the table"));
            let text = format!("is not set: set it in the config file or by {variable}");
            Problem::new(&Origin::Default, path, text)
        };
        let mut problems: Vec<Problem> = missing.map(problem).collect();
        let cassandra = &self.config.cassandra;
        if cassandra.require_dc_loss_survival && !cassandra.survives_dc_loss() {
            let text = "leaves no quorum when one data centre is lost, which cassandra.require_dc_loss_survival \
                 forbids: spread it, as in dc1 = 2, dc2 = 2, dc3 = 1";
            let origin = self.main.origin_of("cassandra.require_dc_loss_survival");
            problems.push(Problem::new(&origin, "cassandra.replication", text));
        }
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }
}
