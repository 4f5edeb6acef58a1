//! What is left of pods when they are gone: their logs, and what each said of its shards. Kubernetes removes a pod's log with
//! the pod, and those that left are the ones to be asked when a shard changed hands slowly.

use super::gaps::View;
use super::overlay::NAMESPACE;
use super::pods::Pod;
use crate::k8s::kubectl::Kubectl;
use crate::workspace;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where it is, within the checkout; made anew by each check.
pub(super) const DIR: &str = "target/k8s-pods";

/// A pod that starts is waited for.
const START_WAIT: &str = "--pod-running-timeout=120s";

/// Writes until it is dropped.
#[derive(Debug)]
pub(super) struct Records {
    dir: PathBuf,
    kubectl: Kubectl,
    /// A line for each change: milliseconds after 1970, pod, shard, epoch, phase.
    shards: File,
    followers: BTreeMap<(String, u64), Child>,
    last: BTreeMap<String, Vec<View>>,
}

impl Records {
    pub(super) fn begin(kubectl: Kubectl) -> Result<Records> {
        let dir = workspace::root()?.join(DIR);
        std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let shards = created(&dir, "shards.tsv")?;
        Ok(Records { dir, kubectl, shards, followers: BTreeMap::new(), last: BTreeMap::new() })
    }

    /// Follows the log of each life of each pod. What cannot be written is not there to be read: no check depends on it.
    pub(super) fn follow(&mut self, pods: &[Pod]) {
        for pod in pods.iter().filter(|pod| !pod.ip.is_empty()) {
            let life = (pod.name.clone(), pod.restarts);
            // One that failed, since the container was not there yet, is started again and writes anew.
            let failed =
                |child: &mut Child| matches!(child.try_wait(), Ok(Some(status)) if !status.success());
            if self.followers.get_mut(&life).is_some_and(|child| !failed(child)) {
                continue;
            }
            let name = format!("{}.{}.log", pod.name, pod.restarts);
            let Ok(file) = created(&self.dir, &name) else { continue };
            let args =
                ["logs", "--namespace", NAMESPACE, "--follow", "--all-containers", START_WAIT, &pod.name];
            let mut command = self.kubectl.command(&args);
            if let Ok(child) = command.stdout(file).stderr(Stdio::null()).spawn() {
                self.followers.insert(life, child);
            }
        }
    }

    /// Takes what a pod says of its shards.
    pub(super) fn note(&mut self, pod: &str, views: &[View]) {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let before = self.last.insert(pod.to_owned(), views.to_vec()).unwrap_or_default();
        for View { shard, epoch, phase } in views.iter().filter(|view| !before.contains(view)) {
            let _ = writeln!(self.shards, "{at_ms}\t{pod}\t{shard}\t{epoch}\t{phase}");
        }
        for View { shard, epoch, .. } in
            before.iter().filter(|one| !views.iter().any(|now| now.shard == one.shard))
        {
            let _ = writeln!(self.shards, "{at_ms}\t{pod}\t{shard}\t{epoch}\tgone");
        }
    }
}

/// Removes what an earlier check has left.
pub(super) fn forget() -> Result<()> {
    let dir = workspace::root()?.join(DIR);
    match dir.exists() {
        true => std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display())),
        false => Ok(()),
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        for child in self.followers.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn created(dir: &Path, name: &str) -> Result<File> {
    let path = dir.join(name);
    File::create(&path).with_context(|| format!("writing {}", path.display()))
}
