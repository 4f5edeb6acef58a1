//! The forwarder: takes connections on one side, makes one on the other for each, and carries bytes while its gate is
//! open. It reads no protocol.

use std::net::{SocketAddr, TcpListener, TcpStream as Dialled};
use std::sync::mpsc;

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::Dial;

/// Bytes carried at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// Whether bytes pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Nothing passes and nobody is told.
    Silent,
    /// Connections are reset, new ones too.
    Reset,
}

type Gate = watch::Receiver<Way>;

/// Where a connection goes on to.
#[derive(Clone, Debug)]
enum Far {
    Outside(SocketAddr),
    Inside(SocketAddr, mpsc::Sender<Dial>),
}

/// A forwarder; dropping it ends its connections.
#[derive(Debug)]
pub(super) struct Forwarder(JoinHandle<()>);

impl Forwarder {
    pub(super) fn outwards(listener: TcpListener, to: SocketAddr, gate: Gate) -> Result<Forwarder> {
        Forwarder::start(listener, Far::Outside(to), gate)
    }

    pub(super) fn inwards(
        listener: TcpListener,
        to: SocketAddr,
        dialer: mpsc::Sender<Dial>,
        gate: Gate,
    ) -> Result<Forwarder> {
        Forwarder::start(listener, Far::Inside(to, dialer), gate)
    }

    fn start(listener: TcpListener, far: Far, gate: Gate) -> Result<Forwarder> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        Ok(Forwarder(tokio::spawn(async move {
            // Dropped with this task, and its connections with it.
            let mut open = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                open.spawn(carry(near, far.clone(), gate.clone()));
                while open.try_join_next().is_some() {}
            }
        })))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Far {
    async fn connect(&self) -> std::io::Result<TcpStream> {
        match self {
            Far::Outside(to) => TcpStream::connect(to).await,
            Far::Inside(to, dialer) => {
                let (answer, answered) = oneshot::channel::<std::io::Result<Dialled>>();
                let gone = || std::io::Error::other("the namespace is gone");
                dialer.send((*to, answer)).map_err(|_| gone())?;
                let stream = answered.await.map_err(|_| gone())??;
                stream.set_nonblocking(true)?;
                TcpStream::from_std(stream)
            }
        }
    }
}

async fn carry(mut near: TcpStream, far: Far, mut gate: Gate) {
    let way = gate.wait_for(|way| *way != Way::Silent).await.map(|way| *way);
    let far = match way {
        Ok(Way::Open) => far.connect().await,
        _ => Err(std::io::Error::other("cut")),
    };
    let Ok(mut far) = far else { return reset(&near) };
    let mut cut = gate.clone();
    {
        let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
        let both = async { tokio::join!(pump(near_in, far_out, gate.clone()), pump(far_in, near_out, gate)) };
        tokio::select! {
            ended = both => {
                if ended.0.is_ok() && ended.1.is_ok() {
                    return;
                }
            }
            Ok(_) = cut.wait_for(|way| *way == Way::Reset) => {}
        }
    }
    reset(&near);
    reset(&far);
}

/// Makes the end of a connection a reset.
fn reset(stream: &TcpStream) {
    // A connection that is gone already needs none.
    let _ = stream.set_zero_linger();
}

/// Carries bytes in one direction until its end, and holds them while nothing passes.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut gate: Gate,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        opened(&mut gate).await;
        let bytes = from.read(&mut buffer).await?;
        opened(&mut gate).await;
        if bytes == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..bytes]).await?;
    }
}

/// Waits while nothing passes. A gate that nobody holds any more stays as it is.
async fn opened(gate: &mut Gate) {
    if gate.wait_for(|way| *way == Way::Open).await.is_err() && *gate.borrow() != Way::Open {
        std::future::pending::<()>().await;
    }
}
