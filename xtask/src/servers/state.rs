//! What is on disk: the cache of jars, shared by checkouts, and the run folder with one pair of
//! servers and its state file.
//!
//! ```text
//! CACHE/lock                      held while jars are fetched and from picking ports to binding them
//! CACHE/jars/NAME-VERSION/*.jar
//! CACHE/runs/CHECKOUT-HASH/       the run folder unless --dir names another
//!     lock                        held by every command that changes something
//!     state.json  kafka/  cassandra/
//! CACHE/runs/CHECKOUT-HASH-secured/  the same of the secured pair, and its certificates in tls/
//! ```

use super::Kind;
use super::ports::Ports;
use super::process::Identity;
use crate::workspace;
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Names the cache folder when set.
const CACHE_ENV: &str = "DUELINE_SERVERS_DIR";
const CACHE_DEFAULT: &str = ".servers";

/// One pair of servers: their ports and, once started, their processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) kafka: Server,
    pub(crate) cassandra: Server,
}

/// One server of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) ports: Ports,
    pub(crate) process: Option<Identity>,
}

impl Server {
    /// A server that was never started.
    pub(crate) fn new(ports: Ports) -> Server {
        Server { ports, process: None }
    }

    /// The process, if it still runs.
    pub(crate) fn running(&self) -> Option<&Identity> {
        self.process.as_ref().filter(|process| process.alive())
    }
}

impl State {
    pub(crate) fn server(&self, kind: Kind) -> &Server {
        match kind {
            Kind::Kafka => &self.kafka,
            Kind::Cassandra => &self.cassandra,
        }
    }

    pub(crate) fn server_mut(&mut self, kind: Kind) -> &mut Server {
        match kind {
            Kind::Kafka => &mut self.kafka,
            Kind::Cassandra => &mut self.cassandra,
        }
    }
}

/// The folder of jars and runs.
#[derive(Debug, Clone)]
pub(crate) struct Cache(PathBuf);

impl Cache {
    /// Opens the cache, making the folder when absent.
    pub(crate) fn open() -> Result<Cache> {
        let dir = match std::env::var_os(CACHE_ENV).filter(|value| !value.is_empty()) {
            Some(dir) => std::path::absolute(PathBuf::from(dir)).context("the current folder is gone")?,
            None => workspace::root()?.join(CACHE_DEFAULT),
        };
        make_dir(&dir).with_context(|| format!("{CACHE_ENV} can name another folder"))?;
        Ok(Cache(dir))
    }

    /// A path inside the cache.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Waits for the cache and holds it until the returned file is dropped.
    pub(crate) fn lock(&self) -> Result<File> {
        lock(&self.join("lock"))
    }

    /// The run folder of this checkout for the secured pair.
    pub(crate) fn secured_dir(&self) -> Result<PathBuf> {
        let mut dir = self.run_dir()?.into_os_string();
        dir.push("-secured");
        Ok(dir.into())
    }

    /// The run folder of this checkout.
    fn run_dir(&self) -> Result<PathBuf> {
        let root = workspace::root()?;
        let hash = Sha256::digest(root.as_os_str().as_encoded_bytes());
        let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(self
            .join("runs")
            .join(format!("{name}-{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3])))
    }

    /// The states of all runs in this cache but one.
    pub(crate) fn other_states(&self, run: &Run) -> Vec<State> {
        let dirs = fs::read_dir(self.join("runs")).into_iter().flatten().flatten();
        let others = dirs.map(|entry| Run(entry.path())).filter(|other| other.0 != run.0);
        others.filter_map(|other| other.load().ok().flatten()).collect()
    }
}

/// The folder of one pair of servers.
#[derive(Debug)]
pub(crate) struct Run(PathBuf);

impl Run {
    /// Opens the run folder `dir`, or the one of this checkout.
    pub(crate) fn open(cache: &Cache, dir: Option<&Path>) -> Result<Run> {
        let dir = match dir {
            Some(dir) => std::path::absolute(dir).context("the current folder is gone")?,
            None => cache.run_dir()?,
        };
        make_dir(&dir)?;
        Ok(Run(dir))
    }

    /// A folder that is there.
    #[cfg(test)]
    pub(crate) fn at(dir: &Path) -> Run {
        Run(dir.to_owned())
    }

    /// A path inside the run folder.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Waits for the run and holds it until the returned file is dropped.
    pub(crate) fn lock(&self) -> Result<File> {
        lock(&self.join("lock"))
    }

    /// Reads the state; `None` when nothing was started here.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let path = self.state_path();
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).with_context(|| {
                format!("{} is damaged: end its servers by hand and remove it", path.display())
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Writes the state so that a reader sees the old or the new one, never half of it.
    pub(crate) fn save(&self, state: &impl Serialize) -> Result<()> {
        let path = self.state_path();
        let half = self.join("state.json.new");
        let bytes = serde_json::to_vec_pretty(state).context("encoding the state")?;
        fs::write(&half, bytes).with_context(|| format!("writing {}", half.display()))?;
        fs::rename(&half, &path).with_context(|| format!("writing {}", path.display()))
    }

    /// Removes data, certificates and state. Logs stay until the next start.
    pub(crate) fn clear(&self) -> Result<()> {
        remove_dir(&self.join("tls"))?;
        for kind in Kind::ALL {
            remove_dir(&self.join(kind.name()).join("data"))?;
        }
        self.forget()
    }

    /// Removes the state alone.
    pub(crate) fn forget(&self) -> Result<()> {
        remove_file(&self.state_path())
    }

    fn state_path(&self) -> PathBuf {
        self.join("state.json")
    }
}

/// Makes a folder and those above it.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("making the folder {}", dir.display()))
}

/// Removes a folder if it is there.
pub(crate) fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing the folder {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Removes a file if it is there.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Waits for the lock at `path` and holds it until the returned file is dropped.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("opening the lock {}", path.display()))?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_state_is_read_back_and_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let run = Run::at(dir.path());
        assert_eq!(run.load::<State>().unwrap(), None);
        let state = State {
            kafka: Server::new(Ports::at(19_092).unwrap()),
            cassandra: Server::new(Ports::at(19_042).unwrap()),
        };
        run.save(&state).unwrap();
        assert_eq!(run.load().unwrap(), Some(state));
        run.clear().unwrap();
        assert_eq!(run.load::<State>().unwrap(), None);
        run.clear().unwrap();
    }

    #[test]
    fn a_damaged_state_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let run = Run::at(dir.path());
        fs::write(run.state_path(), "{").unwrap();
        assert!(format!("{:#}", run.load::<State>().unwrap_err()).contains("state.json is damaged"));
    }
}
