//! Servers that break off, never end, or speak something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::{http, live_call, options};
use crate::dispatch::Dispatch;
use crate::model::Outcome;
use crate::model::limits::RESULT_BYTES_MAX;

#[tokio::test]
async fn the_rest_of_an_endless_body_is_not_read() {
    let chunk = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let url =
        raw_server(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(), move |mut stream| {
            let (chunk, count) = (chunk.clone(), count.clone());
            tokio::spawn(async move {
                while stream.write_all(&chunk).await.is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                count.fetch_or(1 << 40, Ordering::Relaxed);
            });
        })
        .await;
    let ending = http(options(&url)).call(live_call()).await;
    assert_eq!(
        (ending.outcome, ending.result.map(|r| r.len())),
        (Outcome::Succeeded, Some(RESULT_BYTES_MAX))
    );
    until(|| sent.load(Ordering::Relaxed) >= 1 << 40).await;
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_open_what_became_of_the_call() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
    for answer in [b"".to_vec(), b"HTTP/1.1 200 OK\r\ncont".to_vec(), half] {
        let url = raw_server(answer, drop).await;
        let ending = http(options(&url)).call(live_call()).await;
        assert_eq!((ending.outcome, ending.lost), (Outcome::Retryable, true));
        assert!(ending.error.expect("an error").starts_with("connection lost"));
    }
}

#[tokio::test]
async fn a_handler_that_is_not_there_is_tried_again_as_after_any_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    drop(listener);
    let ending = http(options(&url)).call(live_call()).await;
    assert_eq!((ending.outcome, ending.lost), (Outcome::Retryable, false));
    assert!(ending.error.expect("an error").starts_with("not reached: "));
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_retryable() {
    let url = raw_server(b"SSH-2.0-OpenSSH\r\n".to_vec(), drop).await;
    assert_eq!(http(options(&url)).call(live_call()).await.outcome, Outcome::Retryable);
}

#[tokio::test]
async fn dropping_a_slow_call_closes_its_connection() {
    let (asked, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (asked_there, closed_there) = (asked.clone(), closed.clone());
    let url = raw_server(Vec::new(), move |mut stream| {
        let (asked, closed) = (asked_there.clone(), closed_there.clone());
        asked.notify_one();
        tokio::spawn(async move {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            closed.notify_one();
        });
    })
    .await;
    let call = tokio::spawn(http(options(&url)).call(live_call()));
    asked.notified().await;
    call.abort();
    closed.notified().await;
}

/// A server that reads a request, writes these bytes and hands the connection on; returns its URL.
async fn raw_server(answer: Vec<u8>, then: impl Fn(tokio::net::TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(br#"{"user":7}"#) {
                let mut bytes = [0; 1_024];
                match stream.read(&mut bytes).await {
                    Ok(read) if read > 0 => request.extend_from_slice(&bytes[..read]),
                    _ => break,
                }
            }
            let _ = stream.write_all(&answer).await;
            then(stream);
        }
    });
    url
}

/// Polls a condition until it holds; a test that never gets there is ended by its runner.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
