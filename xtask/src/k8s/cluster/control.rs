//! What decides: etcd, the API server, the controllers, the scheduler; all on the shared address.

use super::daemon::{self, Daemon};
use super::keys::{self, Authority};
use super::plan::{API_PORT, ETCD_PORTS, NODES, Node, SHARED};
use crate::k8s::api::{self, random_token};
use crate::k8s::kubectl::{Kubectl, kubeconfig};
use crate::k8s::programs::Programs;
use crate::packages;
use crate::servers::state;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const READY_WAIT_MAX: Duration = Duration::from_secs(60);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(200);
const CONTROLLERS: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";
/// Who may do everything.
const ADMIN: &str = "admin";

/// Where the API server is reached.
pub(super) fn url() -> String {
    format!("https://{SHARED}:{API_PORT}")
}

/// The kubeconfig of a user of the cluster.
pub(super) fn config_of(cluster: &Path, user: &str) -> PathBuf {
    cluster.join("users").join(user.replace(':', "-"))
}

/// The user that the kubelet of a node is.
pub(super) fn user_of(node: Node) -> String {
    format!("system:node:{}", node.name())
}

/// The authority that kubelets know the API server by.
pub(super) fn authority_of(cluster: &Path) -> PathBuf {
    cluster.join("keys/ca.crt")
}

/// Starts everything and waits until it answers.
pub(super) fn start(cluster: &Path, programs: &Programs, kubectl: &Kubectl) -> Result<()> {
    let dir = cluster.join("control");
    let keys = cluster.join("keys");
    for dir in [&dir, &keys, &cluster.join("users")] {
        state::make_dir(dir)?;
    }
    let authority = Authority::make(&keys, "dueline-test-nodes")?;
    // Kubelets ask the API server what a subject may; this one may all.
    let client = authority.sign("kubelet-client", "/O=system:masters/CN=kube-apiserver", None)?;
    keys::key(&keys.join("service-accounts.key"))?;
    let admin = users(cluster, &dir)?;
    let program = packages::program("etcd").context("etcd: install the Debian package etcd-server")?;
    let (client_port, peer_port) = ETCD_PORTS;
    let args = api::etcd_flags(&dir, SHARED, client_port, peer_port);
    let etcd = Daemon { name: "etcd", program: &program, args, dir: &dir };
    daemon::told(&etcd, &etcd.start()?);
    let program = programs.path("kube-apiserver");
    let apiserver =
        Daemon { name: "kube-apiserver", program: &program, args: flags(&dir, &keys, &client), dir: &dir };
    let process = apiserver.start()?;
    daemon::told(&apiserver, &process);
    kubectl.configure(&url(), &dir.join("certificates/apiserver.crt"), &admin)?;
    let begun = Instant::now();
    while !kubectl.answers() {
        ensure!(
            process.alive(),
            "kube-apiserver ended while starting; its log ends with:\n{}",
            apiserver.tail()
        );
        ensure!(begun.elapsed() < READY_WAIT_MAX, "kube-apiserver does not answer:\n{}", apiserver.tail());
        std::thread::sleep(READY_POLL_INTERVAL);
    }
    controllers(cluster, &dir, programs)
}

fn flags(dir: &Path, keys: &Path, client: &keys::Certificate) -> Vec<String> {
    let mut flags =
        api::apiserver_flags(dir, SHARED, ETCD_PORTS.0, API_PORT, &keys.join("service-accounts.key"));
    flags.extend([
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--kubelet-client-certificate={}", client.certificate.display()),
        format!("--kubelet-client-key={}", client.key.display()),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
    ]);
    flags
}

/// Makes a token and a kubeconfig for everybody; the token of the administrator.
fn users(cluster: &Path, dir: &Path) -> Result<String> {
    let mut lines = String::new();
    let admin = random_token()?;
    let _ = writeln!(lines, "{admin},{ADMIN},{ADMIN},\"system:masters\"");
    let nodes = NODES.into_iter().map(|node| (user_of(node), "system:nodes"));
    let others = [(CONTROLLERS.to_owned(), ""), (SCHEDULER.to_owned(), "")];
    for (user, group) in nodes.chain(others) {
        let token = random_token()?;
        let _ = writeln!(lines, "{token},{user},{user},\"{group}\"");
        let config = kubeconfig(&url(), &dir.join("certificates/apiserver.crt"), &token);
        let path = config_of(cluster, &user);
        fs::write(&path, config.to_string()).with_context(|| format!("writing {}", path.display()))?;
    }
    fs::write(dir.join(api::TOKENS), lines).context("writing the tokens")?;
    Ok(admin)
}

fn controllers(cluster: &Path, dir: &Path, programs: &Programs) -> Result<()> {
    let (manager, scheduler) = (programs.path("kube-controller-manager"), programs.path("kube-scheduler"));
    let config = |user: &str| format!("--kubeconfig={}", config_of(cluster, user).display());
    let all = [
        Daemon {
            name: "kube-controller-manager",
            program: &manager,
            args: vec![
                config(CONTROLLERS),
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
                "--use-service-account-credentials=true".to_owned(),
                format!(
                    "--service-account-private-key-file={}",
                    cluster.join("keys/service-accounts.key").display()
                ),
                format!("--root-ca-file={}", dir.join("certificates/apiserver.crt").display()),
            ],
            dir,
        },
        Daemon {
            name: "kube-scheduler",
            program: &scheduler,
            args: vec![config(SCHEDULER), "--leader-elect=false".to_owned(), "--secure-port=0".to_owned()],
            dir,
        },
    ];
    for one in &all {
        daemon::told(one, &one.start()?);
    }
    Ok(())
}
