//! Handlers on loopback that answer as their path says, and note what they were called for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::watch;

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) queue: String,
    pub(crate) id: String,
    pub(crate) at: Instant,
}

#[derive(Clone)]
struct Shared {
    calls: Arc<Mutex<Vec<Call>>>,
    open: watch::Receiver<bool>,
}

/// The handlers; they go with the test's runtime.
pub(crate) struct Sink {
    shared: Shared,
    port: u16,
    open: watch::Sender<bool>,
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    /// Listens on a free port.
    pub(crate) async fn start() -> Sink {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let (open, opened) = watch::channel(false);
        let shared = Shared { calls: Arc::default(), open: opened };
        let app = Router::new().fallback(answer).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Sink { shared, port, open }
    }

    /// The handler that answers as `path` says.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Lets every `hold` go.
    pub(crate) fn release(&self) {
        self.open.send_replace(true);
    }

    /// The calls of queues that begin with `prefix`, in the order they came.
    pub(crate) fn of(&self, prefix: &str) -> Vec<Call> {
        self.shared.calls().iter().filter(|call| call.queue.starts_with(prefix)).cloned().collect()
    }
}

async fn answer(State(mut shared): State<Shared>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name| headers[name].to_str().expect("ASCII").to_owned();
    let call = Call { queue: header("dueline-queue"), id: header("dueline-task-id"), at: Instant::now() };
    let first = {
        let mut calls = shared.calls();
        let known: BTreeSet<(&str, &str)> = calls.iter().map(|call| (&*call.queue, &*call.id)).collect();
        let first = !known.contains(&(&*call.queue, &*call.id));
        calls.push(call);
        first
    };
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    match uri.path() {
        "/flaky" if first => unavailable.into_response(),
        "/later" if first => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "2")]).into_response(),
        "/snooze" if first => (StatusCode::OK, [("dueline-snooze", "1s")]).into_response(),
        "/nap" => (StatusCode::OK, [("dueline-snooze", "8s")]).into_response(),
        "/ok" | "/flaky" | "/later" | "/snooze" => StatusCode::NO_CONTENT.into_response(),
        "/result" => "{\"sent\":17}".into_response(),
        "/large" => "x".repeat(20_000).into_response(),
        "/fatal" => (StatusCode::UNPROCESSABLE_ENTITY, "no such user").into_response(),
        "/fail" => (unavailable, "out of order").into_response(),
        // Well once the payload is mended.
        "/mend" if body.as_ref() == b"{\"mended\":true}" => StatusCode::NO_CONTENT.into_response(),
        "/mend" => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        "/hang" => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            unavailable.into_response()
        }
        "/hold" => {
            let released = shared.open.wait_for(|open| *open).await.is_ok();
            assert!(released, "the sink is there");
            StatusCode::NO_CONTENT.into_response()
        }
        path => (StatusCode::NOT_FOUND, format!("no {path} here")).into_response(),
    }
}
