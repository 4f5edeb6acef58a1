//! One etcd and one kube-apiserver on loopback, for as long as this value lives.
//!
//! Both end when it is dropped, and the kernel kills them when this process is killed. No controller runs: what is sent is
//! judged and kept, and nothing comes of it.

use super::cluster::keys;
use super::cluster::plan::SERVICES;
use super::kubectl::Kubectl;
use super::programs::Programs;
use crate::servers::state;
use crate::{packages, say};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const READY_WAIT_MAX: Duration = Duration::from_secs(60);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(200);
const STOP_GRACE: Duration = Duration::from_secs(10);
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);
const LOG_TAIL_LINES: usize = 10;
/// Who is who, in the folder of the API server.
pub(super) const TOKENS: &str = "tokens";

/// A running API server.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) kubectl: Kubectl,
    // In this order: the API server ends before what it writes to.
    _apiserver: Process,
    _etcd: Process,
    _dir: Dir,
}

/// Starts both in an empty folder and waits until they answer.
pub(super) fn start(programs: &Programs, dir: &Path) -> Result<Api> {
    state::remove_dir(dir)?;
    state::make_dir(dir)?;
    let held = Dir(dir.to_owned());
    let [client, peer, secure] = free_ports()?;
    let etcd = etcd(dir, client, peer)?;
    let kubectl = Kubectl::new(programs.path("kubectl"), dir);
    let token = random_token()?;
    let apiserver = apiserver(programs, dir, client, secure, &token)?;
    let mut api = Api { kubectl, _apiserver: apiserver, _etcd: etcd, _dir: held };
    api.wait_ready(dir, secure, &token)?;
    Ok(api)
}

impl Api {
    fn wait_ready(&mut self, dir: &Path, port: u16, token: &str) -> Result<()> {
        let authority = dir.join("certificates/apiserver.crt");
        let begun = Instant::now();
        self.kubectl.configure(&format!("https://127.0.0.1:{port}"), &authority, token)?;
        while !self.kubectl.answers() {
            for process in [&mut self._etcd, &mut self._apiserver] {
                if process.ended() {
                    bail!("{} ended while starting; its log ends with:\n{}", process.name, process.tail());
                }
            }
            if begun.elapsed() > READY_WAIT_MAX {
                let tail = self._apiserver.tail();
                bail!("kube-apiserver does not answer after {READY_WAIT_MAX:?}; its log ends with:\n{tail}");
            }
            std::thread::sleep(READY_POLL_INTERVAL);
        }
        say::line(format_args!("kube-apiserver answers on 127.0.0.1:{port} after {:.1?}", begun.elapsed()));
        Ok(())
    }
}

fn etcd(dir: &Path, client: u16, peer: u16) -> Result<Process> {
    let program = packages::program("etcd").context("etcd: install the Debian package etcd-server")?;
    Process::start("etcd", &program, &etcd_flags(dir, Ipv4Addr::LOCALHOST, client, peer), dir)
}

/// How etcd is started in a folder.
pub(super) fn etcd_flags(dir: &Path, at: Ipv4Addr, client: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (format!("http://{at}:{client}"), format!("http://{at}:{peer}"));
    vec![
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]
}

fn apiserver(programs: &Programs, dir: &Path, etcd: u16, port: u16, token: &str) -> Result<Process> {
    let key = dir.join("service-accounts.key");
    keys::key(&key)?;
    fs::write(dir.join(TOKENS), format!("{token},check,check,\"system:masters\"\n"))
        .context("writing the token")?;
    let mut flags = apiserver_flags(dir, Ipv4Addr::LOCALHOST, etcd, port, &key);
    flags.push("--authorization-mode=RBAC".to_owned());
    Process::start("kube-apiserver", &programs.path("kube-apiserver"), &flags, dir)
}

/// How the API server is started in a folder, which has the tokens; the key is that of service accounts.
pub(super) fn apiserver_flags(dir: &Path, at: Ipv4Addr, etcd: u16, port: u16, key: &Path) -> Vec<String> {
    vec![
        format!("--cert-dir={}", dir.join("certificates").display()),
        format!("--etcd-servers=http://{at}:{etcd}"),
        format!("--bind-address={at}"),
        format!("--advertise-address={at}"),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={port}"),
        format!("--token-auth-file={}", dir.join(TOKENS).display()),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", key.display()),
        format!("--service-account-signing-key-file={}", key.display()),
        format!("--service-cluster-ip-range={SERVICES}"),
    ]
}

/// Ports that are free now, all different.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    let mut listeners = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
        *port = listener.local_addr().context("the address of a listener")?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

/// What nobody can guess.
pub(super) fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("reading randomness")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A folder that goes when this value does.
#[derive(Debug)]
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        if let Err(error) = state::remove_dir(&self.0) {
            say::line(format_args!("left behind: {error:#}"));
        }
    }
}

/// A process that ends when this value does.
#[derive(Debug)]
struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// `setpriv` has the kernel kill the process when this one is gone, however it went.
    fn start(name: &'static str, program: &Path, flags: &[String], dir: &Path) -> Result<Process> {
        let path = dir.join(format!("{name}.log"));
        let log = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(flags)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing the log between stdout and stderr")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting `setpriv {name}`: is util-linux installed?"))?;
        Ok(Process { name, child, log: path })
    }

    fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn tail(&self) -> String {
        crate::servers::process::tail(&self.log, LOG_TAIL_LINES)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Until it is found to have ended, its id is nobody else's.
        if self.ended() {
            return;
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_GRACE;
        while !self.ended() {
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(STOP_POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let [one, other] = free_ports().unwrap();
        assert_ne!(one, other);
    }

    #[test]
    fn a_process_and_its_folder_go_with_their_values() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("run");
        fs::create_dir(&dir).unwrap();
        let held = Dir(dir.clone());
        let sleeper = Process::start("sleep", Path::new("/bin/sleep"), &["60".to_owned()], &dir).unwrap();
        let pid = sleeper.child.id();
        drop(sleeper);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        drop(held);
        assert!(!dir.exists());
    }
}
