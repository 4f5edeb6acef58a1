//! A handler on loopback: it notes every call and answers as the path says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

/// A call that was noted.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    pub(crate) started: Instant,
    /// When it was answered or its connection broke.
    pub(crate) ended: Option<Instant>,
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn queue(&self) -> &str {
        self.header("dueline-queue")
    }

    pub(crate) fn id(&self) -> &str {
        self.header("dueline-task-id")
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.header("dueline-attempt").parse().expect("a number")
    }

    /// The fencing token, as its three numbers.
    pub(crate) fn token(&self) -> Vec<u64> {
        let token = self.header("dueline-fencing-token");
        token.split('.').map(|part| part.parse().expect("a number")).collect()
    }
}

type Calls = Arc<Mutex<Vec<Call>>>;

/// The sink; it goes with the test's runtime.
pub(crate) struct Sink {
    calls: Calls,
    port: u16,
    open: watch::Sender<bool>,
}

impl Sink {
    /// Listens on a free port.
    pub(crate) async fn start() -> Sink {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (open, gate) = watch::channel(false);
        let calls = Calls::default();
        let app = Router::new().fallback(answer).with_state((calls.clone(), gate));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Sink { calls, port, open }
    }

    /// The handler that answers as `path` says.
    pub(crate) fn handler(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Lets every `hold` go.
    pub(crate) fn release(&self) {
        self.open.send_replace(true);
    }

    /// How many calls there were.
    pub(crate) fn count(&self) -> usize {
        self.calls.lock().expect("lock").len()
    }

    /// Every call in the order of arrival.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("lock").clone()
    }

    /// The calls of a task.
    pub(crate) fn of(&self, queue: &str, id: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.queue() == queue && call.id() == id).collect()
    }
}

/// Notes the end of a call, also when its connection breaks.
struct End(Calls, usize);

impl Drop for End {
    fn drop(&mut self) {
        self.0.lock().expect("lock")[self.1].ended = Some(Instant::now());
    }
}

async fn answer(
    State((calls, mut gate)): State<(Calls, watch::Receiver<bool>)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let body = String::from_utf8_lossy(&body).into_owned();
    let known = uri.path() == "/flaky" || uri.path() == "/snooze";
    let call = Call { headers, body, started: Instant::now(), ended: None };
    let (first, _end) = {
        let mut noted = calls.lock().expect("lock");
        let first =
            known && !noted.iter().any(|other| (other.queue(), other.id()) == (call.queue(), call.id()));
        noted.push(call);
        (first, End(calls.clone(), noted.len() - 1))
    };
    match uri.path() {
        "/ok" => StatusCode::NO_CONTENT.into_response(),
        "/work" => {
            tokio::time::sleep(Duration::from_millis(3)).await;
            StatusCode::NO_CONTENT.into_response()
        }
        "/result" => "{\"sent\":17}".into_response(),
        "/fail" => (StatusCode::INTERNAL_SERVER_ERROR, "out of order").into_response(),
        "/flaky" if first => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "/snooze" if first => (StatusCode::OK, [("dueline-snooze", "1s")]).into_response(),
        "/flaky" | "/snooze" => StatusCode::OK.into_response(),
        "/fatal" => (StatusCode::UNPROCESSABLE_ENTITY, "no such user").into_response(),
        "/hold" => {
            gate.wait_for(|open| *open).await.expect("the sink is there");
            "held".into_response()
        }
        path => (StatusCode::NOT_FOUND, format!("no {path} here")).into_response(),
    }
}
