//! A node: a containerd of its own with a bridge for its pods, and the kubelet that runs them.
//!
//! ```text
//! CLUSTER/node-a/containerd.toml  cni/  root/  state/   state has the mounts, the runtime's folder and the namespaces
//!                kubelet.json  kubelet/  pods-log/
//! ```

use super::control::{self, authority_of};
use super::daemon::{self, Daemon};
use super::plan::{KUBELET_HEALTH_PORT, KUBELET_PORT, Node, PAUSE_IMAGE};
use super::remains;
use crate::k8s::programs::Programs;
use crate::packages;
use crate::servers::state;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CNI_PLUGINS: &str = "/usr/lib/cni";
/// The namespace of containerd that the kubelet's containers are in.
const NAMESPACE: &str = "k8s.io";
const READY_WAIT_MAX: Duration = Duration::from_secs(30);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Where everything of a node is.
#[derive(Debug)]
pub(in crate::k8s) struct Place {
    pub(in crate::k8s) node: Node,
    cluster: PathBuf,
    dir: PathBuf,
}

impl Place {
    pub(in crate::k8s) fn of(node: Node, cluster: &Path) -> Place {
        Place { node, cluster: cluster.to_owned(), dir: node.dir(cluster) }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    /// Writes its configuration.
    pub(super) fn prepare(&self) -> Result<()> {
        state::make_dir(&self.dir.join("cni"))?;
        self.write("containerd.toml", &self.containerd_config())?;
        self.write("cni/10-pods.conflist", &self.network_config().to_string())?;
        self.write("kubelet.json", &self.kubelet_config().to_string())
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Starts containerd and waits until it answers.
    pub(super) fn start_containerd(&self) -> Result<()> {
        let program =
            packages::program("containerd").context("containerd: install the Debian package containerd")?;
        let config = format!("--config={}", self.dir.join("containerd.toml").display());
        let daemon = Daemon { name: "containerd", program: &program, args: vec![config], dir: &self.dir };
        let process = daemon.start()?;
        let begun = Instant::now();
        while self.ctr(&["version"]).is_err() {
            ensure!(process.alive(), "containerd of {} ended:\n{}", self.node.name(), daemon.tail());
            ensure!(begun.elapsed() < READY_WAIT_MAX, "containerd of {} does not answer", self.node.name());
            std::thread::sleep(READY_POLL_INTERVAL);
        }
        daemon::told(&daemon, &process);
        Ok(())
    }

    /// Starts the kubelet.
    pub(super) fn start_kubelet(&self, programs: &Programs) -> Result<()> {
        let at = |name: &str| self.dir.join(name).display().to_string();
        let program = programs.path("kubelet");
        let user = control::user_of(self.node);
        let args = vec![
            format!("--config={}", at("kubelet.json")),
            format!("--kubeconfig={}", control::config_of(&self.cluster, &user).display()),
            format!("--root-dir={}", at("kubelet")),
            format!("--cert-dir={}", at("kubelet-certificates")),
            format!("--hostname-override={}", self.node.name()),
            format!("--node-ip={}", self.node.address()),
            format!("--node-labels=topology.kubernetes.io/zone={}", self.node.zone()),
        ];
        let daemon = Daemon { name: "kubelet", program: &program, args, dir: &self.dir };
        let process = daemon.start()?;
        daemon::told(&daemon, &process);
        Ok(())
    }

    /// Takes an archive of an image.
    pub(in crate::k8s) fn import(&self, archive: &Path, base_name: Option<&str>) -> Result<()> {
        let archive = archive.display().to_string();
        let mut args = vec!["images", "import"];
        if let Some(name) = base_name {
            args.extend(["--base-name", name]);
        }
        args.push(&archive);
        self.ctr(&args)
    }

    fn ctr(&self, args: &[&str]) -> Result<()> {
        let output = Command::new("ctr")
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", NAMESPACE])
            .args(args)
            .stdin(Stdio::null())
            .output()
            .context("running ctr, which comes with containerd")?;
        if !output.status.success() {
            bail!("ctr {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Kills everything of it at once: the kubelet, containerd, and every process in its containers.
    pub(in crate::k8s) fn kill(&self) -> Result<()> {
        daemon::kill_all(&self.dir)
    }

    /// Starts it again as a machine does that was off: its disk is there, nothing runs.
    pub(in crate::k8s) fn start_again(&self, programs: &Programs) -> Result<()> {
        remains::clear(self.node, &self.dir)?;
        state::remove_dir(&self.dir.join("state"))?;
        self.start_containerd()?;
        self.start_kubelet(programs)
    }

    fn containerd_config(&self) -> String {
        let at = |name: &str| self.dir.join(name).display().to_string();
        let cri = r#"plugins."io.containerd.grpc.v1.cri""#;
        format!(
            r#"version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
address = "{socket}"

[plugins."io.containerd.internal.v1.opt"]
path = "{opt}"

[{cri}]
sandbox_image = "{PAUSE_IMAGE}"
# Some kernels' guards refuse to make a process less likely to be killed.
restrict_oom_score_adj = true
disable_apparmor = true
netns_mounts_under_state_dir = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"

[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{cri}.containerd.runtimes.runc.options]
Root = "{runc}"
SystemdCgroup = false

[{cri}.cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{cni}"
"#,
            root = at("root"),
            state = at("state"),
            socket = at("containerd.sock"),
            opt = at("opt"),
            runc = at("state/runc"),
            cni = at("cni"),
        )
    }

    fn network_config(&self) -> Value {
        json!({
            "cniVersion": "1.0.0", "name": self.node.bridge(),
            "plugins": [{
                "type": "bridge", "bridge": self.node.bridge(), "isGateway": true, "ipMasq": false,
                "ipam": {
                    "type": "host-local", "dataDir": self.dir.join("cni-addresses"),
                    "ranges": [[{"subnet": self.node.subnet()}]], "routes": [{"dst": "0.0.0.0/0"}],
                },
            }],
        })
    }

    fn kubelet_config(&self) -> Value {
        let address = self.node.address();
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": address, "port": KUBELET_PORT,
            "healthzBindAddress": address, "healthzPort": KUBELET_HEALTH_PORT,
            "authentication": {
                "anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": authority_of(&self.cluster)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": format!("unix://{}", self.socket().display()),
            "podLogsDir": self.dir.join("pods-log"), "volumePluginDir": self.dir.join("volume-plugins"),
            // The machine has no systemd to ask, and may have the first version of control groups.
            "cgroupDriver": "cgroupfs", "failCgroupV1": false, "cgroupsPerQOS": false, "enforceNodeAllocatable": [],
            // It is shared with whoever else works on it.
            "failSwapOn": false, "evictionHard": {}, "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
            "resolvConf": "", "makeIPTablesUtilChains": false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::NODES;
    use super::*;

    #[test]
    fn what_a_node_keeps_is_in_its_folder() {
        let place = Place::of(NODES[0], Path::new("/x/cluster"));
        let config: toml::Value = toml::from_str(&place.containerd_config()).unwrap();
        for key in ["root", "state"] {
            assert!(config[key].as_str().unwrap().starts_with("/x/cluster/node-a/"), "{key}");
        }
        let cri = &config["plugins"]["io.containerd.grpc.v1.cri"];
        assert_eq!(cri["netns_mounts_under_state_dir"].as_bool(), Some(true));
        assert_eq!(cri["sandbox_image"].as_str(), Some(PAUSE_IMAGE));
        let kubelet = place.kubelet_config();
        assert_eq!(kubelet["podLogsDir"], "/x/cluster/node-a/pods-log");
        assert_eq!(kubelet["address"], "10.78.1.1");
    }
}
