//! What containers leave outside of the folder when everything is killed: control groups, sockets of shims, results of
//! network plugins, links to logs; and the mounts inside of it.

use super::plan::Node;
use crate::servers::state;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";
const NETWORK_RESULTS: &str = "/var/lib/cni/results";
const LOG_LINKS: &str = "/var/log/containers";
/// Where shims keep a folder for each container, in the state of containerd.
const TASKS: &str = "state/io.containerd.runtime.v2.task/k8s.io";

/// Folders of the machine that kubelets make, whatever they are told.
pub(super) const FOLDERS: [&str; 2] = ["/var/lib/kubelet", "/var/log/containers"];

/// Removes all of a node's, none of whose processes runs.
pub(super) fn clear(node: Node, dir: &Path) -> Result<()> {
    for container in entries(&dir.join(TASKS)) {
        if let Ok(address) = fs::read_to_string(container.join("address")) {
            state::remove_file(Path::new(address.trim().trim_start_matches("unix://")))?;
        }
        if let Some(id) = container.file_name().and_then(|name| name.to_str()) {
            control_groups(id);
        }
    }
    for result in entries(Path::new(NETWORK_RESULTS)) {
        let Some(id) = result.file_name().and_then(|name| sandbox(name.to_str()?, node)) else { continue };
        state::remove_file(&result)?;
        state::remove_file(&Path::new(NETWORK_RESULTS).join(format!("cni-loopback-{id}-lo")))?;
    }
    for link in entries(Path::new(LOG_LINKS)) {
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(dir)) {
            state::remove_file(&link)?;
        }
    }
    unmount(dir)
}

/// The pod that a result of the network of a node is about.
fn sandbox(result: &str, node: Node) -> Option<&str> {
    result.strip_prefix(&node.bridge())?.strip_prefix('-')?.strip_suffix("-eth0")
}

/// Those of one container, and what they were in when nothing else is, in each hierarchy. What is not empty, the kernel keeps.
fn control_groups(id: &str) {
    for hierarchy in entries(Path::new(CONTROL_GROUPS)).chain([PathBuf::from(CONTROL_GROUPS)]) {
        let above = hierarchy.join("k8s.io");
        let _ = fs::remove_dir(above.join(id));
        let _ = fs::remove_dir(above);
    }
}

/// Unmounts all in a folder, the last one first.
fn unmount(dir: &Path) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    for point in mounts(&table, dir).iter().rev() {
        let output = Command::new("umount")
            .args(["--lazy"])
            .arg(point)
            .stdin(Stdio::null())
            .output()
            .context("running umount: is the package mount installed?")?;
        if !output.status.success() {
            bail!("umount {}: {}", point.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    Ok(())
}

/// Mount points in a folder, in the order they were mounted.
fn mounts(table: &str, dir: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| point.starts_with(dir))
        .collect()
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_other_networks_are_left_alone() {
        let node = super::super::plan::NODES[0];
        assert_eq!(sandbox("dueline-a-12ab-eth0", node), Some("12ab"));
        assert_eq!(sandbox("dueline-b-12ab-eth0", node), None);
        assert_eq!(sandbox("cni-loopback-12ab-lo", node), None);
    }

    #[test]
    fn mounts_of_a_folder_are_found_in_their_order() {
        let table = "36 35 98:0 / /x/node-a/state/a rw - overlay o rw\n37 35 98:0 / /x/node-ab rw - tmpfs t rw\n\
                     38 36 98:0 / /x/node-a/state/a/b\\040c rw - tmpfs t rw\n";
        let found = mounts(table, Path::new("/x/node-a"));
        assert_eq!(found, [Path::new("/x/node-a/state/a"), Path::new("/x/node-a/state/a/b c")]);
    }
}
