//! Stops and double starts: a running call gets to end, a second signal does not wait, a folder has one owner.

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::dev::{DUELINE, Dev, run};
use super::sink::Sink;
use super::until;

async fn with_an_open_call() -> (tempfile::TempDir, Sink, Dev) {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    let task = json!({"queue": "s", "id": "held", "handler": sink.handler("hold")});
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    until("the call", || async { (sink.count() == 1).then_some(()) }).await;
    (dir, sink, dev)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_the_running_call_end_and_keeps_its_result() {
    let (dir, sink, mut dev) = with_an_open_call().await;
    dev.terminate();
    until("the word of the stop", || async { dev.said().contains("stopping").then_some(()) }).await;
    assert!(sink.calls()[0].ended.is_none(), "the call is still open");
    let released = std::time::Instant::now();
    sink.release();
    assert_eq!(dev.ended().await.code(), Some(0), "{}", dev.said());
    assert!(released.elapsed().as_secs() < 10, "stopped after {:?}", released.elapsed());

    let dev = Dev::start(dir.path()).await;
    let task = dev.task_in("succeeded", "s", "held").await;
    assert_eq!(task["attempts"][0]["result"], "held");
    assert_eq!(sink.count(), 1, "it ran once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_no_longer_than_it_is_told_to_and_the_call_is_made_again() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let config = dir.path().join("dueline.toml");
    std::fs::write(&config, "[instance]\nstop_wait = \"500ms\"\n").expect("written");
    let data = dir.path().join("data");
    let mut dev = Dev::configured(&data, Some(&config)).await;
    // Its only attempt: a stop uses up none.
    let task = json!({"queue": "s", "id": "held", "timeout": "8s", "handler": sink.handler("hold"),
        "retry": {"max_attempts": 1}});
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    until("the call", || async { (sink.count() == 1).then_some(()) }).await;
    let told = std::time::Instant::now();
    dev.terminate();
    assert_eq!(dev.ended().await.code(), Some(0), "{}", dev.said());
    assert!(told.elapsed().as_millis() < 7_000, "before the deadline of the call: {:?}", told.elapsed());
    assert!(dev.said().contains("are broken off"), "{}", dev.said());

    let dev = Dev::configured(&data, Some(&config)).await;
    until("the second call", || async { (sink.count() == 2).then_some(()) }).await;
    assert!(told.elapsed().as_secs() >= 5, "its queue waits until the deadline: {:?}", told.elapsed());
    sink.release();
    dev.task_in("succeeded", "s", "held").await;
    let call = &sink.calls()[1];
    assert_eq!((call.attempt(), call.header("dueline-previous-outcome")), (2, "interrupted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once() {
    let (_dir, _sink, mut dev) = with_an_open_call().await;
    dev.terminate();
    until("the word of the stop", || async { dev.said().contains("once more").then_some(()) }).await;
    let asked = std::time::Instant::now();
    dev.terminate();
    assert_eq!(dev.ended().await.code(), Some(1), "{}", dev.said());
    assert!(asked.elapsed().as_secs() < 5, "ended after {:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_request_does_not_hold_up_a_stop() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut dev = Dev::start(dir.path()).await;
    let mut open = Vec::new();
    for part in ["", "POST /v1/tasks HTTP/1.1\r\n", "POST /v1/tasks HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"] {
        let mut stream = tokio::net::TcpStream::connect(&dev.address).await.expect("connected");
        stream.write_all(part.as_bytes()).await.expect("sent");
        open.push(stream);
    }
    assert_eq!(dev.get("/livez").await.status, 200);
    let asked = std::time::Instant::now();
    dev.terminate();
    assert_eq!(dev.ended().await.code(), Some(0), "{}", dev.said());
    assert!(asked.elapsed().as_secs() < 10, "stopped after {:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_dev_says_who_has_the_folder_or_the_port() {
    let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let dev = Dev::start(dir.path()).await;
    let start = |data: &std::path::Path, listen: &str| {
        let mut command = std::process::Command::new(DUELINE);
        run(command.args(["dev", "--listen", listen, "--data"]).arg(data))
    };
    let same_folder = start(dir.path(), "127.0.0.1:0");
    assert_eq!(same_folder.code, 1, "{same_folder:?}");
    assert!(same_folder.err.contains(&format!("process {}", dev.pid())), "{same_folder:?}");
    let same_port = start(other.path(), &dev.address);
    assert_eq!(same_port.code, 1, "{same_port:?}");
    assert!(same_port.err.contains(&format!("cannot listen on {}", dev.address)), "{same_port:?}");
    assert!(same_port.err.contains("--listen"), "{same_port:?}");
    assert_eq!(dev.get("/livez").await.status, 200);
}
