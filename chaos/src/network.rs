//! A network of an instance's own, so that it can be cut from one server and from nothing else.
//!
//! Brokers tell their clients to come to 127.0.0.1:PORT, so a proxy on another port would be passed by. In a network
//! namespace with nothing but a loopback of its own, that address is a forwarder of this program, which goes on to the
//! real server from outside:
//!
//! ```text
//!  namespace of i-1                      |  outside
//!  dueline -> 127.0.0.1:19092 forwarder ---gate---> 127.0.0.1:19092 Kafka
//!          -> 127.0.0.1:19042 forwarder ---gate---> 127.0.0.1:19042 Cassandra
//!          -> 127.0.0.1:SINK  forwarder ----------> 127.0.0.1:SINK  handlers
//!  dueline <- 127.0.0.1:HTTP <--------------------- forwarder 127.0.0.1:HTTP <- this program
//! ```
//!
//! A socket keeps the namespace it was made in, whichever thread uses it. The namespace belongs to one thread, which
//! makes the sockets in it; it is gone with that thread, the process and the sockets. Linux and root only.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::{oneshot, watch};

use crate::plan::Server;
use forward::Forwarder;
pub(crate) use forward::Way;

mod forward;

/// How long a connection into the namespace may take: more than enough on a loopback.
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that somebody outside wants into the namespace.
type Dial = (u16, oneshot::Sender<std::io::Result<TcpStream>>);

/// Where the servers and handlers are, and where the instance listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) kafka: u16,
    pub(crate) cassandra: u16,
    pub(crate) sink: u16,
    pub(crate) http: u16,
}

/// The network of one instance. Dropping it ends its connections.
#[derive(Debug)]
pub(crate) struct Network {
    /// The namespace, for a process to enter.
    pub(crate) path: PathBuf,
    gates: BTreeMap<Server, watch::Sender<Way>>,
    _forwarders: Vec<Forwarder>,
    /// The thread of the namespace ends with it.
    _dialer: mpsc::Sender<Dial>,
}

impl Network {
    pub(crate) async fn open(ports: Ports) -> Result<Network> {
        let inner = vec![ports.kafka, ports.cassandra, ports.sink];
        let (dialer, dials) = mpsc::channel();
        let (tell, told) = oneshot::channel();
        std::thread::Builder::new()
            .name("namespace".into())
            .spawn(move || live(&inner, tell, &dials))
            .context("a thread for a network namespace")?;
        let made = told.await.context("the thread of a network namespace ended")?;
        let Made { path, listeners } = made.context("a network namespace of its own")?;
        let (kafka, _) = watch::channel(Way::Open);
        let (cassandra, _) = watch::channel(Way::Open);
        let (always, _) = watch::channel(Way::Open);
        let gates = [kafka.subscribe(), cassandra.subscribe(), always.subscribe()];
        let mut forwarders = Vec::new();
        for (listener, gate) in listeners.into_iter().zip(gates) {
            let to = listener.local_addr()?;
            forwarders.push(Forwarder::outwards(listener, to, gate)?);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, ports.http)).context("the instance's port")?;
        forwarders.push(Forwarder::inwards(listener, ports.http, dialer.clone(), always.subscribe())?);
        let gates = [(Server::Kafka, kafka), (Server::Cassandra, cassandra)].into();
        Ok(Network { path, gates, _forwarders: forwarders, _dialer: dialer })
    }

    /// Changes the way to a server, for all connections, those that are open too.
    pub(crate) fn set(&self, server: Server, way: Way) {
        if let Some(gate) = self.gates.get(&server) {
            gate.send_replace(way);
        }
    }
}

/// Whether networks can be made here; why not, otherwise.
pub(crate) fn possible() -> Result<(), &'static str> {
    if !cfg!(target_os = "linux") {
        return Err("network namespaces are Linux's");
    }
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err("making network namespaces needs root"),
    }
}

#[derive(Debug)]
struct Made {
    path: PathBuf,
    listeners: Vec<TcpListener>,
}

/// The life of the namespace's thread.
fn live(inner: &[u16], tell: oneshot::Sender<Result<Made>>, dials: &mpsc::Receiver<Dial>) {
    if tell.send(make(inner)).is_err() {
        return;
    }
    for (port, answer) in dials {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Nobody there any more to hear of it: nothing to do.
        let _ = answer.send(TcpStream::connect_timeout(&address, DIAL_TIMEOUT));
    }
}

#[cfg(target_os = "linux")]
fn make(inner: &[u16]) -> Result<Made> {
    use rustix::thread::UnshareFlags;
    #[expect(
        deprecated,
        reason = "its other form is unsafe for flags that share memory or files, which these do not"
    )]
    rustix::thread::unshare(UnshareFlags::NEWNET).context("leaving the network of the machine")?;
    let up = std::process::Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .stdin(std::process::Stdio::null())
        .output()
        .context("running `ip`")?;
    let said = String::from_utf8_lossy(&up.stderr);
    anyhow::ensure!(up.status.success(), "`ip link set lo up`: {}", said.trim());
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let path = format!("/proc/{}/task/{thread}/ns/net", std::process::id()).into();
    let bound = inner.iter().map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)));
    Ok(Made { path, listeners: bound.collect::<std::io::Result<_>>()? })
}

#[cfg(not(target_os = "linux"))]
fn make(_inner: &[u16]) -> Result<Made> {
    anyhow::bail!("network namespaces are Linux's")
}

#[cfg(test)]
mod tests;
