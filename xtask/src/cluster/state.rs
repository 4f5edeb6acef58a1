//! What is on disk of a cluster: a folder beside the run of `cargo xtask servers`, with a state file that names every process.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::link::Wan;
use super::network::Namespace;
use super::plan::{self, Place};
use crate::servers::process::Identity;
use crate::servers::state::{self, Cache, Run};

/// Everything that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) router: Identity,
    /// What the network was made as.
    #[serde(default)]
    pub(super) wan: Wan,
    /// It was made with the first servers of each data centre alone: others join it.
    #[serde(default)]
    pub(super) few: bool,
    pub(super) servers: BTreeMap<String, Identity>,
}

impl State {
    /// Without it nobody reaches another place, and its devices are gone: the cluster has to be made anew.
    pub(super) fn router_runs(&self) -> bool {
        self.router.alive()
    }

    /// The servers that belong to it by now: all of the plan, or the first ones and those that have joined.
    pub(super) fn names(&self) -> Vec<String> {
        let is_in = |name: &String| !self.few || plan::is_first(name) || self.servers.contains_key(name);
        plan::names().into_iter().filter(is_in).collect()
    }

    /// Whether a server comes to others that have data already.
    pub(super) fn joins(&self, name: &str) -> bool {
        self.few && !plan::is_first(name) && !self.servers.contains_key(name)
    }

    /// A server's process, if it still runs.
    pub(super) fn running(&self, name: &str) -> Option<&Identity> {
        self.servers.get(name).filter(|process| process.alive())
    }
}

/// The folder of this checkout's cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) cache: Cache,
    run: Run,
    /// Tells its namespaces from those of other checkouts.
    tag: String,
}

impl Cluster {
    pub(super) fn open(cache: &Cache) -> Result<Cluster> {
        let dir = Run::open(cache, None)?.join("cluster");
        let hash = Sha256::digest(dir.as_os_str().as_encoded_bytes());
        let tag = format!("dueline-{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2]);
        Ok(Cluster { cache: cache.clone(), run: Run::open(cache, Some(&dir))?, tag })
    }

    pub(super) fn namespace(&self, place: Place) -> Namespace {
        Namespace(format!("{}-{}", self.tag, place.word()))
    }

    /// Where the router is asked.
    pub(super) fn socket(&self) -> PathBuf {
        self.run.join("router.sock")
    }

    /// A path inside the folder.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.run.join(name)
    }

    pub(super) fn lock(&self) -> Result<File> {
        self.run.lock()
    }

    pub(super) fn load(&self) -> Result<Option<State>> {
        self.run.load()
    }

    pub(super) fn save(&self, state: &State) -> Result<()> {
        self.run.save(state)
    }

    /// Removes data and state. Logs stay until the next start.
    pub(super) fn clear(&self) -> Result<()> {
        for name in super::plan::names() {
            super::disk::remove(self, &name)?;
            super::drag::forget(self, &name)?;
        }
        state::remove_file(&self.socket())?;
        self.run.forget()
    }
}
