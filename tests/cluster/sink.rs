//! An HTTP server that tasks are delivered to, and the ledger of every call it gets.
//!
//! What it does with a call is in the payload: `fail` = how many attempts get 503, `retry_after` = seconds said with it,
//! `take_ms` = how long an answer takes. It knows nothing of the product but the headers of a callback.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;

use crate::clock;
use crate::ledger::{Call, End};

/// A sink that listens until it is dropped.
pub(crate) struct Sink {
    pub(crate) url: String,
    calls: Calls,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Call>>>);

/// What a payload asks of the sink.
#[derive(Default, serde::Deserialize)]
struct Wish {
    #[serde(default)]
    fail: u32,
    #[serde(default)]
    retry_after: u32,
    #[serde(default)]
    take_ms: u64,
}

impl Sink {
    pub(crate) async fn start() -> Sink {
        let calls = Calls::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/sink", listener.local_addr().expect("its address"));
        let routes = axum::Router::new().route("/sink", axum::routing::post(take)).with_state(calls.clone());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.expect("it serves") });
        Sink { url, calls, server }
    }

    /// All calls so far, in the order they arrived.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    /// Looks at the calls without copying them.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&[Call]) -> T) -> T {
        at(&self.calls.lock())
    }

    /// Ids of a queue in the order of their calls.
    pub(crate) fn ids_of(&self, queue: &str) -> Vec<String> {
        self.look(|calls| {
            calls.iter().filter(|call| call.queue == queue).map(|call| call.id.clone()).collect()
        })
    }

    /// Tasks of queues that begin with `prefix` of which a call succeeded.
    pub(crate) fn done_in(&self, prefix: &str) -> usize {
        let done = |calls: &[Call]| -> BTreeSet<(String, String)> {
            let mine = calls.iter().filter(|call| call.queue.starts_with(prefix) && call.succeeded());
            mine.map(|call| (call.queue.clone(), call.id.clone())).collect()
        };
        self.look(|calls| done(calls).len())
    }

    /// Tasks of which a call succeeded.
    pub(crate) fn done(&self) -> usize {
        self.done_in("")
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, call: Call) -> Open {
        let mut calls = self.lock();
        calls.push(call);
        Open { calls: self.clone(), index: calls.len() - 1, ended: false }
    }
}

/// A call that is under way. A caller that goes away drops it, which is written down.
struct Open {
    calls: Calls,
    index: usize,
    ended: bool,
}

impl Open {
    fn end(&mut self, end: End) {
        self.ended = true;
        self.calls.lock()[self.index].ended = Some((clock::boot_us(), end));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.ended {
            self.end(End::BrokenOff);
        }
    }
}

async fn take(State(calls): State<Calls>, headers: HeaderMap, body: Bytes) -> Response {
    let payload = String::from_utf8_lossy(&body).into_owned();
    let call = call_of(&headers, payload);
    let wish: Wish = serde_json::from_str(&call.payload).unwrap_or_default();
    let fails = call.attempt <= wish.fail;
    let mut open = calls.begin(call);
    if wish.take_ms > 0 {
        tokio::time::sleep(Duration::from_millis(wish.take_ms)).await;
    }
    if !fails {
        open.end(End::Succeeded);
        return StatusCode::OK.into_response();
    }
    open.end(End::Failed);
    let mut answer = StatusCode::SERVICE_UNAVAILABLE.into_response();
    if wish.retry_after > 0 {
        let name = HeaderName::from_static("retry-after");
        answer.headers_mut().insert(name, HeaderValue::from(wish.retry_after));
    }
    answer
}

fn call_of(headers: &HeaderMap, payload: String) -> Call {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().expect("ASCII").to_owned());
    let given = |name: &str| text(name).unwrap_or_else(|| panic!("no header {name}"));
    let name = |name: &str| percent_decode_str(&given(name)).decode_utf8().expect("UTF-8").into_owned();
    let token: Vec<u64> =
        given("dueline-fencing-token").split('.').map(|part| part.parse().expect("a number")).collect();
    Call {
        wall: clock::wall_ms(),
        begun_us: clock::boot_us(),
        ended: None,
        queue: name("dueline-queue"),
        id: name("dueline-task-id"),
        shard: given("dueline-shard").parse().expect("a number"),
        attempt: given("dueline-attempt").parse().expect("a number"),
        token: token.try_into().expect("three numbers"),
        due: clock::parse(&given("dueline-due-at")),
        deadline: clock::parse(&given("dueline-deadline")),
        previous: text("dueline-previous-outcome"),
        payload,
    }
}
