//! Bad input over HTTP: each gets a status, a code and words; the server stays alive and its shards go on.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::dev::Dev;
use super::sink::Sink;

/// Bodies of `POST /v1/tasks`, which has to answer 400 with the code unless said otherwise.
fn bodies() -> Vec<(&'static str, Vec<u8>, u16, &'static str)> {
    let with = |name: &str, value: Value| {
        let mut task = json!({"queue": "bad", "id": "bad", "handler": "log"});
        task[name] = value;
        task.to_string().into_bytes()
    };
    vec![
        ("not JSON", b"{queue: 1}".to_vec(), 400, "not_json"),
        ("cut off", b"{\"queue\":\"bad\"".to_vec(), 400, "not_json"),
        ("an empty body", Vec::new(), 400, "empty"),
        ("an array", b"[]".to_vec(), 400, "invalid_field"),
        ("invalid UTF-8", b"{\"handler\":\"\xff\"}".to_vec(), 400, "not_utf8"),
        ("an unknown field", with("qeue", json!("x")), 400, "unknown_field"),
        ("an unknown type", with("type", json!("launch")), 400, "unknown_type"),
        ("a cancel", b"{\"type\":\"cancel\",\"queue\":\"a\",\"id\":\"b\"}".to_vec(), 400, "wrong_type"),
        ("no handler", b"{\"queue\":\"bad\"}".to_vec(), 400, "invalid_field"),
        ("an unknown handler", with("handler", json!("lgo")), 400, "unknown_handler"),
        ("a handler elsewhere", with("handler", json!("http://192.0.2.1/x")), 400, "unknown_handler"),
        ("a handler by name", with("handler", json!("http://example.com/x")), 400, "unknown_handler"),
        ("a file", with("handler", json!("file:///etc/passwd")), 400, "unknown_handler"),
        ("a time out of range", with("due_at", json!("2126-01-01T00:00:00Z")), 400, "invalid_field"),
        ("no time", with("due_at", json!("tomorrow")), 400, "invalid_field"),
        ("a long delay", with("delay", json!("90000000h")), 400, "invalid_field"),
        ("a number as delay", with("delay", json!(5)), 400, "invalid_field"),
        ("an empty id", with("id", json!("")), 400, "invalid_field"),
        ("a long id", with("id", json!("x".repeat(501))), 400, "invalid_field"),
        ("a control character", with("id", json!("a\u{7}b")), 400, "invalid_field"),
        ("a control character in the queue", with("queue", json!("a\nb")), 400, "invalid_field"),
        ("a priority out of range", with("priority", json!(10)), 400, "invalid_field"),
        ("a large payload", with("payload", json!("x".repeat(300 * 1024))), 413, "too_large"),
        ("a large body", with("payload", json!("x".repeat(2 * 1024 * 1024))), 413, "too_large"),
        (
            "due_at and delay",
            b"{\"handler\":\"log\",\"delay\":\"1s\",\"due_at\":\"2026-11-21T10:00:00Z\"}".to_vec(),
            400,
            "invalid_field",
        ),
    ]
}

/// Requests without a body.
const PATHS: [(&str, &str, u16, &str); 23] = [
    ("GET", "/v1/tasks/a/b?full=1", 400, "unknown_parameter"),
    ("GET", "/v1/queues/a?full=1", 400, "unknown_parameter"),
    ("GET", "/v1/shards?full=1", 400, "unknown_parameter"),
    ("GET", "/v1/shards?lag=maybe", 400, "invalid_parameter"),
    ("POST", "/v1/tasks?wait=5", 400, "unknown_parameter"),
    ("POST", "/v1/tasks:batch?wait=5", 400, "unknown_parameter"),
    ("GET", "/v1/tasks/%zz/a", 400, "invalid_path"),
    ("GET", "/v1/tasks/a/%ff", 400, "invalid_path"),
    ("GET", "/v1/tasks/a/%00", 400, "invalid_path"),
    ("GET", "/v1/queues/%", 400, "invalid_path"),
    ("GET", "/v1/tasks?quue=a", 400, "unknown_parameter"),
    ("GET", "/v1/tasks?queue=a&queue=b", 400, "invalid_parameter"),
    ("GET", "/v1/tasks?queue=%zz", 400, "invalid_parameter"),
    ("GET", "/v1/tasks?page_token=nonsense", 400, "invalid_parameter"),
    ("GET", "/v1/tasks?page_token=1.99999999999999999999.3", 400, "invalid_parameter"),
    ("GET", "/v1/tasks?page_size=0", 400, "invalid_parameter"),
    ("GET", "/v1/tasks?state=sleeping", 400, "invalid_parameter"),
    ("GET", "/v1/tasks?from=yesterday", 400, "invalid_parameter"),
    ("GET", "/v1/queues?page=2", 400, "unknown_parameter"),
    ("DELETE", "/v1/tasks", 405, "wrong_method"),
    ("POST", "/v1/shards", 405, "wrong_method"),
    ("GET", "/v1/nothing", 404, "no_such_path"),
    ("GET", "/v1/tasks/a/b/c/d", 404, "no_such_path"),
];

/// The media type of every error, and words for people in it.
fn told(what: &str, kind: &str, problem: &Value) {
    assert_eq!(kind, "application/problem+json", "{what}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{what}: {problem}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_told_by_status_and_code_and_stops_nothing() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    let mut wrong = Vec::new();
    for (what, body, status, code) in bodies() {
        let answer = dev.send(Method::POST, "/v1/tasks", body, &[]).await;
        if answer.problem() != (status, code) {
            wrong.push(format!("{what}: {answer:?}"));
        }
        told(what, &answer.kind, &answer.json);
    }
    for (method, path, status, code) in PATHS {
        let method = method.parse().expect("a method");
        let answer = dev.send(method, path, "", &[]).await;
        if answer.problem() != (status, code) {
            wrong.push(format!("{path}: {answer:?}"));
        }
        told(path, &answer.kind, &answer.json);
    }
    for (verb, body, status, code) in [
        ("cancel", "{\"why\":1}", 400, "invalid_body"),
        ("cancel", "nonsense", 400, "invalid_body"),
        ("cancel", "[]", 400, "invalid_body"),
        ("cancel", "[\"why\"]", 400, "invalid_body"),
        ("cancel", "null", 400, "invalid_body"),
        ("reschedule", "[null,\"2h\",null]", 400, "invalid_body"),
        ("reschedule", "{}", 400, "invalid_field"),
        ("reschedule", "{\"delay\":\"1s\",\"due_at\":\"2026-11-21T10:00:00Z\"}", 400, "invalid_field"),
    ] {
        let answer = dev.send(Method::POST, &format!("/v1/tasks/a/b/{verb}"), body, &[]).await;
        if answer.problem() != (status, code) {
            wrong.push(format!("{verb} {body}: {answer:?}"));
        }
        told(verb, &answer.kind, &answer.json);
    }
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    let answer = dev.send(Method::POST, "/v1/tasks", "{\"handler\":\"log\"}", &twice).await;
    assert_eq!(answer.problem(), (400, "invalid_header"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let task = json!({"queue": "bad", "id": "bad", "handler": sink.handler("ok")});
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    dev.task_in("succeeded", "bad", "bad").await;
    assert_eq!(dev.get("/v1/rejected").await.json, json!({"rejected": []}), "nothing of it got into the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_foreign_web_page_may_send_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    let task = json!({"queue": "page", "id": "page", "handler": "log", "delay": "1h"}).to_string();
    let own = format!("http://{}", dev.address);
    let cases = [
        ("/v1/tasks", ("content-type", "text/plain"), 415, "wrong_content_type"),
        ("/v1/tasks", ("content-type", "application/x-www-form-urlencoded"), 415, "wrong_content_type"),
        ("/v1/tasks", ("content-type", "application/x-ndjson"), 415, "wrong_content_type"),
        ("/v1/tasks:batch", ("content-type", "multipart/form-data"), 415, "wrong_content_type"),
        ("/v1/tasks/page/page/cancel", ("content-type", "text/plain"), 415, "wrong_content_type"),
        ("/v1/tasks", ("origin", "https://attacker.example"), 403, "foreign_origin"),
        ("/v1/tasks", ("origin", "null"), 403, "foreign_origin"),
        ("/v1/tasks", ("host", "attacker.example:7420"), 403, "foreign_host"),
        ("/v1/tasks/page/page/cancel", ("host", "attacker.example"), 403, "foreign_host"),
    ];
    for (path, header, status, code) in cases {
        let answer = dev.send(Method::POST, path, task.clone(), &[header]).await;
        assert_eq!(answer.problem(), (status, code), "{path} {header:?}");
        told(path, &answer.kind, &answer.json);
    }
    let bare = format!(
        "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{task}",
        task.len()
    );
    assert!(raw(&dev, bare.into_bytes()).await.starts_with("HTTP/1.1 415 "));
    assert_eq!(dev.get("/v1/tasks/page/page").await.problem(), (404, "unknown_task"), "nothing was written");
    assert_eq!(dev.send(Method::GET, "/livez", "", &[("host", "service.example")]).await.status, 200);

    let taken = [("origin", own.as_str()), ("content-type", "application/json; charset=utf-8")];
    assert_eq!(dev.send(Method::POST, "/v1/tasks", task.clone(), &taken).await.status, 202);
    let lines = [("content-type", "application/x-ndjson"), ("host", "localhost:1")];
    assert_eq!(dev.send(Method::POST, "/v1/tasks:batch", task, &lines).await.status, 200);
    let bare = "POST /v1/tasks/page/page/cancel HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    assert!(raw(&dev, bare.into()).await.starts_with("HTTP/1.1 202 "), "no body needs no type");
}

/// A request as bytes, and the answer as text: the answer is read while the request is still being sent.
async fn raw(dev: &Dev, request: Vec<u8>) -> String {
    let stream = tokio::net::TcpStream::connect(&dev.address).await.expect("connected");
    let (mut read, mut write) = stream.into_split();
    let sending = tokio::spawn(async move {
        let _ = write.write_all(&request).await;
        write
    });
    let (mut answer, mut part) = (Vec::new(), vec![0; 65_536]);
    while let Ok(count @ 1..) = read.read(&mut part).await {
        answer.extend_from_slice(&part[..count]);
    }
    sending.abort();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_or_no_http_is_refused_on_the_wire() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    let mib20 = 20 * 1024 * 1024;
    let head = |path: &str, rest: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{rest}\r\n")
    };
    for path in ["/v1/tasks", "/v1/tasks:batch", "/v1/tasks/a/b/cancel"] {
        let mut request = head(path, &format!("content-length: {mib20}\r\n")).into_bytes();
        request.resize(request.len() + mib20, b'x');
        let answer = raw(&dev, request).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{path}: {answer}");
        assert!(answer.contains("application/problem+json") && answer.contains("\"too_large\""), "{answer}");
    }
    let many = "{}\n".repeat(10_001);
    let answer = dev.send(Method::POST, "/v1/tasks:batch", many, &[]).await;
    assert_eq!(answer.problem(), (413, "too_many_lines"));
    let long = dev.get(&format!("/v1/tasks/{}", "a".repeat(9_000))).await;
    assert_eq!(long.problem(), (414, "uri_too_long"));
    let large = "x".repeat(40 * 1024);
    let headers = dev.send(Method::GET, "/v1/tasks", "", &[("x-large", large.as_str())]).await;
    assert_eq!(headers.problem(), (431, "headers_too_large"));
    let huge = head("/v1/tasks", &format!("x-huge: {}\r\ncontent-length: 0\r\n", "x".repeat(1024 * 1024)));
    let answer = raw(&dev, huge.into_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let answer = raw(&dev, b"\x16\x03\x01nonsense\r\n\r\n".to_vec()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(dev.get("/livez").await.status, 200);
}
