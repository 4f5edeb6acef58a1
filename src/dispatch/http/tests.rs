//! HTTP callbacks against a real server on loopback.

mod broken;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;
use reqwest::header::RETRY_AFTER;
use tokio::net::TcpListener;
use tokio::sync::Barrier;

use super::answer::retry_after_ms;
use super::{Connections, Http, Loopback, Options, StatusRules, UrlError, parse_url};
use crate::dispatch::signature::{Secret, Signed, verify};
use crate::dispatch::tests::call;
use crate::dispatch::{Call, Dispatch, Ending, wall_now};
use crate::model::limits::{RESULT_BYTES_MAX, TEXT_BYTES_MAX};
use crate::model::{HandlerName, Outcome, Wall};

/// What the server answers: status, headers, body.
type Reply = (u16, Vec<(&'static str, String)>, Vec<u8>);

#[derive(Clone, Debug)]
struct Seen {
    method: Method,
    uri: Uri,
    headers: BTreeMap<String, String>,
    body: Bytes,
    peer: SocketAddr,
}

#[derive(Default)]
struct Server {
    reply: Mutex<Reply>,
    seen: Mutex<Vec<Seen>>,
    /// Where requests wait for each other before any is answered: each has a connection of its own then.
    together: Mutex<Option<Arc<Barrier>>>,
}

impl Server {
    async fn start() -> (Arc<Server>, String) {
        let server = Arc::new(Server::default());
        server.answers(200, &[], b"");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/notify?x=1", listener.local_addr().expect("an address"));
        let app = Router::new().fallback(answer).with_state(server.clone());
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        (server, url)
    }

    fn answers(&self, status: u16, headers: &[(&'static str, &str)], body: &[u8]) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        *self.reply.lock().expect("not poisoned") = (status, headers, body.to_vec());
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("not poisoned").clone()
    }

    /// The connections that requests came by.
    fn peers(&self) -> BTreeSet<SocketAddr> {
        self.seen().iter().map(|seen| seen.peer).collect()
    }
}

async fn answer(
    State(server): State<Arc<Server>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |value: &axum::http::HeaderValue| value.to_str().expect("ASCII").to_owned();
    let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    server.seen.lock().expect("not poisoned").push(Seen { method, uri, headers, body, peer });
    let together = server.together.lock().expect("not poisoned").clone();
    if let Some(barrier) = together {
        barrier.wait().await;
    }
    let (status, headers, body) = server.reply.lock().expect("not poisoned").clone();
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Body::from(body)).expect("a response")
}

fn options(url: &str) -> Options {
    Options { url: parse_url(url).expect("a url"), secrets: Vec::new(), statuses: StatusRules::default() }
}

fn http(options: Options) -> Http {
    Http::new(&Connections::new().expect("a client"), options).expect("a dispatcher")
}

/// A call whose deadline is 30 s from now.
fn live_call() -> Call {
    Call { deadline: wall_now().plus_ms(30_000), ..call() }
}

#[tokio::test]
async fn a_callback_carries_payload_headers_and_signature() {
    let (server, url) = Server::start().await;
    let secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "another secret of raw bytes"]
        .map(|text| Secret::parse(text).expect("a secret"));
    let traced = Call {
        previous_outcome: Some(Outcome::Retryable),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..call()
    };
    let ending = http(Options { secrets: secrets.to_vec(), ..options(&url) }).call(traced).await;
    assert_eq!(ending, Ending::of(Outcome::Succeeded));
    let seen = server.seen().pop().expect("a request");
    assert_eq!((seen.method, seen.uri.to_string().as_str()), (Method::POST, "/notify?x=1"));
    assert_eq!(seen.body.as_ref(), br#"{"user":7}"#);
    let wanted = [
        ("content-type", "application/json"),
        ("webhook-id", "call-1"),
        ("idempotency-key", "call-1"),
        ("dueline-queue", "incident%2042"),
        ("dueline-task-id", "notify%2F1"),
        ("dueline-attempt", "2"),
        ("dueline-max-attempts", "10"),
        ("dueline-due-at", "2026-11-21T10:00:00.000Z"),
        ("dueline-deadline", "2026-11-21T10:00:30.000Z"),
        ("dueline-shard", "5"),
        ("dueline-fencing-token", "0.3.41"),
        ("dueline-previous-outcome", "retryable"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    for (name, value) in wanted {
        assert_eq!(seen.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    let signed = Signed {
        id: &seen.headers["webhook-id"],
        timestamp: &seen.headers["webhook-timestamp"],
        signature: &seen.headers["webhook-signature"],
        body: &seen.body,
    };
    for secret in secrets {
        assert_eq!(verify(&[secret], signed, wall_now().0 / 1_000, 60), Ok(()));
    }
}

#[tokio::test]
async fn each_status_has_its_outcome() {
    let (server, url) = Server::start().await;
    let http = http(options(&url));
    for status in (200..=599).filter(|status| StatusCode::from_u16(*status).is_ok()) {
        server.answers(status, &[], b"");
        let wanted = match status {
            200..300 => Outcome::Succeeded,
            408 | 425 | 429 | 500..600 => Outcome::Retryable,
            _ => Outcome::Fatal,
        };
        let ending = http.call(live_call()).await;
        assert_eq!((ending.outcome, ending.after_ms, ending.fenced), (wanted, None, false), "{status}");
    }
}

#[tokio::test]
async fn status_sets_of_a_handler_replace_the_default() {
    let (server, url) = Server::start().await;
    let range = |text: &str| text.parse().expect("a status");
    let statuses = StatusRules { succeeded: vec![range("2xx"), range("404")], retryable: vec![range("4xx")] };
    let http = http(Options { statuses, ..options(&url) });
    for (status, wanted) in [(404, Outcome::Succeeded), (403, Outcome::Retryable), (503, Outcome::Fatal)] {
        server.answers(status, &[], b"");
        assert_eq!(http.call(live_call()).await.outcome, wanted, "{status}");
    }
}

#[tokio::test]
async fn a_fenced_409_aborts_and_any_other_is_fatal() {
    let (server, url) = Server::start().await;
    let http = http(options(&url));
    server.answers(409, &[("Dueline-Fenced", "0.4.1")], b"");
    let ending = http.call(live_call()).await;
    assert_eq!((ending.outcome, ending.fenced), (Outcome::Aborted, true));
    server.answers(409, &[], b"exists");
    let ending = http.call(live_call()).await;
    assert_eq!(ending, Ending::failed(Outcome::Fatal, "409 Conflict: exists"));
}

#[tokio::test]
async fn a_snooze_says_when_to_come_back() {
    let (server, url) = Server::start().await;
    let http = http(options(&url));
    for (text, outcome, after_ms) in [
        ("10m", Outcome::Snoozed, Some(600_000)),
        ("PT1H", Outcome::Snoozed, Some(3_600_000)),
        ("0s", Outcome::Snoozed, Some(100)),
        ("soon", Outcome::Retryable, None),
        ("4000d", Outcome::Retryable, None),
    ] {
        server.answers(202, &[("Dueline-Snooze", text)], b"");
        let ending = http.call(live_call()).await;
        assert_eq!((ending.outcome, ending.after_ms), (outcome, after_ms), "{text}");
    }
    server.answers(503, &[("Dueline-Snooze", "10m")], b"");
    let ending = http.call(live_call()).await;
    assert_eq!((ending.outcome, ending.after_ms), (Outcome::Retryable, None));
}

#[tokio::test]
async fn retry_after_is_honoured_on_failures_only() {
    let (server, url) = Server::start().await;
    let http = http(options(&url));
    for (status, after_ms) in [(429, Some(7_000)), (503, Some(7_000)), (200, None), (400, None)] {
        server.answers(status, &[("Retry-After", "7")], b"");
        assert_eq!(http.call(live_call()).await.after_ms, after_ms, "{status}");
    }
}

#[test]
fn retry_after_is_read_as_seconds_or_as_a_date() {
    let at: Timestamp = "2026-11-21T10:00:00Z".parse().expect("a time");
    let now = Wall(at.as_millisecond());
    for (text, ms) in [
        ("120", Some(120_000)),
        (" 0 ", Some(0)),
        ("99999999999999999999999", Some(86_400_000)),
        ("Sat, 21 Nov 2026 10:00:30 GMT", Some(30_000)),
        ("Sat, 21 Nov 2026 09:00:00 GMT", Some(0)),
        ("Tue, 21 Nov 2028 10:00:00 GMT", Some(86_400_000)),
        ("-1", None),
        ("soon", None),
        ("", None),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, text.parse().expect("a header value"));
        assert_eq!(retry_after_ms(&headers, now), ms, "{text:?}");
    }
}

#[tokio::test]
async fn a_redirect_is_fatal_and_never_followed() {
    let (server, url) = Server::start().await;
    for status in [301, 302, 303, 307, 308] {
        server.answers(status, &[("Location", "/elsewhere")], b"");
        let ending = http(options(&url)).call(live_call()).await;
        assert_eq!(ending.outcome, Outcome::Fatal);
        assert!(ending.error.expect("an error").contains("not followed (to \"/elsewhere\")"));
    }
    assert!(server.seen().iter().all(|seen| seen.uri.path() == "/notify"));
}

#[tokio::test]
async fn a_body_is_kept_to_its_bound_and_an_error_is_cut() {
    let (server, url) = Server::start().await;
    let http = http(options(&url));
    let most = RESULT_BYTES_MAX;
    for (sent, kept, is_cut) in
        [(5, 5, false), (most, most, false), (most + 1, most, true), (10 * most, most, true)]
    {
        server.answers(200, &[], &vec![b'x'; sent]);
        let ending = http.call(live_call()).await;
        assert_eq!(
            (ending.result.map(|result| result.len()), ending.result_cut),
            (Some(kept), is_cut),
            "{sent}"
        );
    }
    server.answers(500, &[], "fehler: ü\n".repeat(10_000).as_bytes());
    let error = http.call(live_call()).await.error.expect("an error");
    assert!(error.starts_with("500 Internal Server Error: fehler: ü fehler"), "{error}");
    assert!(error.len() <= TEXT_BYTES_MAX && !error.contains('\n'));
}

#[tokio::test]
async fn one_connection_serves_many_calls() {
    let (server, url) = Server::start().await;
    server.answers(200, &[], b"ok");
    let http = http(options(&url));
    for _ in 0..5 {
        http.call(live_call()).await;
    }
    assert_eq!(server.peers().len(), 1);
}

/// More than a client would keep by a bound that looks large.
const WAVE: usize = 300;

#[tokio::test]
async fn a_wave_of_calls_leaves_its_connections_for_the_next() {
    let (server, url) = Server::start().await;
    *server.together.lock().expect("not poisoned") = Some(Arc::new(Barrier::new(WAVE)));
    let http = http(options(&url));
    for _ in 0..3 {
        let endings = futures::future::join_all((0..WAVE).map(|_| http.call(live_call()))).await;
        assert!(endings.iter().all(|ending| ending.outcome == Outcome::Succeeded), "{endings:?}");
    }
    // A connection is free again a moment after its answer, so a few may be made anew; three waves that each made most of theirs
    // would be twice as many.
    let made = server.peers().len();
    assert!((WAVE..WAVE * 3 / 2).contains(&made), "{made} connections for waves of {WAVE} calls");
}

#[tokio::test]
async fn a_loopback_url_is_called_and_anything_else_is_fatal() {
    let (server, url) = Server::start().await;
    let loopback = Loopback::new().expect("a client");
    let named = |name: &str| Call { handler: HandlerName::new(name).expect("a name"), ..live_call() };
    assert_eq!(loopback.call(named(&url)).await.outcome, Outcome::Succeeded);
    let by_name = url.replace("127.0.0.1", "localhost");
    assert_eq!(loopback.call(named(&by_name)).await.outcome, Outcome::Succeeded);
    assert_eq!(server.seen().len(), 2);
    let ending = loopback.call(named("http://10.0.0.1/latest/meta-data")).await;
    assert_eq!(ending.outcome, Outcome::Fatal);
    assert!(ending.error.expect("an error").contains("may only name 127.0.0.1, [::1] or localhost"));
}

#[test]
fn a_handlers_url_is_checked() {
    assert!(parse_url("https://handlers.example/notify?tenant=1").is_ok());
    assert_eq!(parse_url("ftp://x/"), Err(UrlError::Scheme("ftp".into())));
    assert_eq!(parse_url("http://user:secret@x/"), Err(UrlError::Credentials));
    assert_eq!(parse_url(&format!("http://x/{}", "y".repeat(2_048))), Err(UrlError::TooLong));
    assert!(matches!(parse_url("notify"), Err(UrlError::Malformed(_))));
    // As the parser writes addresses: in another notation it is the same one.
    for link_local in [
        "http://169.254.169.254/latest",
        "http://[fe80::1]:80/",
        "http://0xa9fea9fe/",
        "https://[::ffff:a9fe:1]/",
    ] {
        assert_eq!(parse_url(link_local), Err(UrlError::LinkLocal), "{link_local}");
    }
}
