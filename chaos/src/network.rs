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
type Dial = (SocketAddr, oneshot::Sender<std::io::Result<TcpStream>>);

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
        let inner = [ports.kafka, ports.cassandra, ports.sink].map(|port| (Ipv4Addr::LOCALHOST, port).into());
        let (Made { path, listeners }, dialer) =
            live(make, inner.to_vec()).await.context("a network namespace of its own")?;
        let (kafka, _) = watch::channel(Way::Open);
        let (cassandra, _) = watch::channel(Way::Open);
        let (always, _) = watch::channel(Way::Open);
        let gates = [kafka.subscribe(), cassandra.subscribe(), always.subscribe()];
        let mut forwarders = Vec::new();
        for (listener, gate) in listeners.into_iter().zip(gates) {
            let to = listener.local_addr()?;
            forwarders.push(Forwarder::outwards(listener, to, gate)?);
        }
        let http = (Ipv4Addr::LOCALHOST, ports.http).into();
        forwarders.push(inwards(ports.http, http, &dialer, always.subscribe())?);
        let gates = [(Server::Kafka, kafka), (Server::Cassandra, cassandra)].into();
        Ok(Network { path, gates, _forwarders: forwarders, _dialer: dialer })
    }

    /// Of an instance in a data centre that is there already: only its HTTP is reached from outside, at this port.
    pub(crate) fn within(inside: &Inside, instance: SocketAddr, port: u16) -> Result<Network> {
        let (_, always) = watch::channel(Way::Open);
        let forwarder = inwards(port, instance, &inside.dialer, always)?;
        let (path, dialer) = (inside.path.clone(), inside.dialer.clone());
        Ok(Network { path, gates: BTreeMap::new(), _forwarders: vec![forwarder], _dialer: dialer })
    }

    /// Changes the way to a server, for all connections, those that are open too.
    pub(crate) fn set(&self, server: Server, way: Way) {
        if let Some(gate) = self.gates.get(&server) {
            gate.send_replace(way);
        }
    }
}

/// A network namespace that somebody else made, seen from within.
#[derive(Debug)]
pub(crate) struct Inside {
    path: PathBuf,
    dialer: mpsc::Sender<Dial>,
}

impl Inside {
    /// Enters it, and listens there.
    pub(crate) async fn enter(path: PathBuf, listen: SocketAddr) -> Result<(Inside, TcpListener)> {
        let (Made { path, mut listeners }, dialer) = live(move || entered(path), vec![listen]).await?;
        let listener = listeners.pop().context("a listener in a data centre")?;
        Ok((Inside { path, dialer }, listener))
    }
}

fn inwards(
    port: u16,
    to: SocketAddr,
    dialer: &mpsc::Sender<Dial>,
    gate: watch::Receiver<Way>,
) -> Result<Forwarder> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).context("the instance's port")?;
    Forwarder::inwards(listener, to, dialer.clone(), gate)
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

/// Starts the thread of a namespace: it goes there, listens, and connects to whom it is asked to until nobody can ask.
async fn live(
    go: impl FnOnce() -> Result<PathBuf> + Send + 'static,
    listen: Vec<SocketAddr>,
) -> Result<(Made, mpsc::Sender<Dial>)> {
    let (dialer, dials) = mpsc::channel::<Dial>();
    let (tell, told) = oneshot::channel();
    let there = move || -> Result<Made> {
        let path = go()?;
        let listeners = listen.iter().map(TcpListener::bind).collect::<std::io::Result<_>>()?;
        Ok(Made { path, listeners })
    };
    let life = move || {
        if tell.send(there()).is_ok() {
            for (address, answer) in dials {
                // Nobody there any more to hear of it: nothing to do.
                let _ = answer.send(TcpStream::connect_timeout(&address, DIAL_TIMEOUT));
            }
        }
    };
    let thread = std::thread::Builder::new().name("namespace".into()).spawn(life);
    thread.context("a thread for a network namespace")?;
    Ok((told.await.context("the thread of a network namespace ended")??, dialer))
}

/// Makes a namespace for this thread; its path.
#[cfg(target_os = "linux")]
fn make() -> Result<PathBuf> {
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
    Ok(format!("/proc/{}/task/{thread}/ns/net", std::process::id()).into())
}

/// Brings this thread, and those it starts, into a namespace; its path.
#[cfg(target_os = "linux")]
pub(crate) fn entered(path: PathBuf) -> Result<PathBuf> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::fd::AsFd as _;
    let file = std::fs::File::open(&path).with_context(|| format!("{}", path.display()))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("entering the network {}", path.display()))?;
    Ok(path)
}

#[cfg(not(target_os = "linux"))]
fn make() -> Result<PathBuf> {
    anyhow::bail!("network namespaces are Linux's")
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn entered(_path: PathBuf) -> Result<PathBuf> {
    anyhow::bail!("network namespaces are Linux's")
}

#[cfg(test)]
mod tests;
