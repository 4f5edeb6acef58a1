//! The gate, with sockets of this machine: making a namespace needs root, and runs that cut need it anyway.

use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A server that sends back what it gets, behind a gate.
async fn echo() -> (Forwarder, watch::Sender<Way>, SocketAddr) {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = server.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            tokio::spawn(async move {
                let (mut from, mut back) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut back).await;
            });
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = listener.local_addr().expect("its address");
    let (gate, watched) = watch::channel(Way::Open);
    (Forwarder::outwards(listener, to, watched).expect("a forwarder"), gate, near)
}

async fn says(stream: &mut tokio::net::TcpStream, text: &str) -> std::io::Result<String> {
    stream.write_all(text.as_bytes()).await?;
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await?;
    Ok(String::from_utf8_lossy(&back).into_owned())
}

#[tokio::test]
async fn a_silent_cut_holds_bytes_and_keeps_the_connection() {
    let (_forwarder, gate, near) = echo().await;
    let mut stream = tokio::net::TcpStream::connect(near).await.expect("connected");
    assert_eq!(says(&mut stream, "before").await.expect("carried"), "before");
    gate.send_replace(Way::Silent);
    let held = tokio::time::timeout(Duration::from_millis(200), says(&mut stream, "held")).await;
    assert!(held.is_err(), "nothing comes back");
    gate.send_replace(Way::Open);
    let mut back = [0; 4];
    stream.read_exact(&mut back).await.expect("what was held arrives");
    assert_eq!(&back, b"held");
    assert_eq!(says(&mut stream, "after").await.expect("carried"), "after");
}

#[tokio::test]
async fn a_loud_cut_resets_what_is_open_and_what_is_new() {
    let (_forwarder, gate, near) = echo().await;
    let mut stream = tokio::net::TcpStream::connect(near).await.expect("connected");
    assert_eq!(says(&mut stream, "before").await.expect("carried"), "before");
    gate.send_replace(Way::Reset);
    assert!(says(&mut stream, "cut").await.is_err());
    let mut new = tokio::net::TcpStream::connect(near).await.expect("a backlog takes it");
    assert!(says(&mut new, "cut").await.is_err());
    gate.send_replace(Way::Open);
    let mut healed = tokio::net::TcpStream::connect(near).await.expect("connected");
    assert_eq!(says(&mut healed, "healed").await.expect("carried"), "healed");
}
