//! The handlers that tasks are delivered to: an HTTP server that refuses lower fencing tokens and takes down every call.
//!
//! What it does with a call is in the payload: `fail` = how many attempts get 503, `take_ms` = how long an answer takes,
//! `hang_ms` = the same for the first attempt. It knows nothing of the product but the headers of a callback, and each
//! instance calls a path of its own, so that it is known who called.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use dueline::testing::history::{Called, End};
use percent_encoding::percent_decode_str;
use tokio::task::JoinSet;

use crate::clock;
use crate::event::is_even;
use crate::ledger::{Calls, Taken};
use crate::plan::Mood;

/// The answer of a slow handler takes so much longer, in milliseconds; that of a silent one comes after every deadline.
pub(crate) const SLOW_MS: i64 = 2_000;
const SILENT_MS: i64 = 30_000;

/// A sink that listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Sink {
    /// Where it listens, by data centre.
    at: BTreeMap<String, SocketAddr>,
    pub(crate) calls: Calls,
    mood: Arc<Mutex<Mood>>,
    servers: JoinSet<()>,
}

/// What a payload asks of the sink.
#[derive(Debug, Default, serde::Deserialize)]
struct Wish {
    #[serde(default)]
    fail: u32,
    #[serde(default)]
    take_ms: u64,
    #[serde(default)]
    hang_ms: u64,
}

impl Sink {
    /// Listens in each data centre. All of them share what they have seen, as receivers with one store would.
    pub(crate) fn start(listeners: BTreeMap<String, TcpListener>, calls: Calls) -> Result<Sink> {
        let (mut servers, mut at) = (JoinSet::new(), BTreeMap::new());
        let mood: Arc<Mutex<Mood>> = Arc::default();
        for (dc, listener) in listeners {
            at.insert(dc, listener.local_addr()?);
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let routes = axum::Router::new()
                .route("/sink/{by}", axum::routing::post(take))
                .with_state((calls.clone(), mood.clone()));
            servers.spawn(async move {
                if let Err(error) = axum::serve(listener, routes).await {
                    crate::say::line(format_args!("the handlers ended: {error}"));
                }
            });
        }
        Ok(Sink { at, calls, mood, servers })
    }

    /// What becomes of every call of the first of the handlers that arrives from now on; the other stays as it is.
    pub(crate) fn set_mood(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// Where the handlers of a data centre listen.
    pub(crate) fn address(&self, dc: &str) -> Result<SocketAddr> {
        self.at.get(dc).copied().with_context(|| format!("there are no handlers in {dc}"))
    }

    /// Where an instance delivers to.
    pub(crate) fn url(&self, dc: &str, instance: &str) -> Result<String> {
        Ok(format!("http://{}/sink/{instance}", self.address(dc)?))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.servers.abort_all();
    }
}

async fn take(
    State((calls, mood)): State<(Calls, Arc<Mutex<Mood>>)>,
    Path(by): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let payload = String::from_utf8_lossy(&body).into_owned();
    let Some(called) = called(&headers, payload) else {
        calls.unreadable(format!("a call by {by} whose headers cannot be read: {headers:?}"));
        return (StatusCode::BAD_REQUEST, "a header is missing or cannot be read").into_response();
    };
    let wish: Wish = serde_json::from_str(&called.payload).unwrap_or_default();
    let mood = match is_even(&called.queue) {
        true => *mood.lock().unwrap_or_else(PoisonError::into_inner),
        false => Mood::Willing,
    };
    let fails = called.attempt <= wish.fail || mood == Mood::Failing;
    let hang_ms = if called.attempt == 1 { wish.hang_ms } else { 0 };
    let mut open = match calls.arrived(called, &by) {
        Taken::Open(open) => open,
        Taken::Refused => return (StatusCode::CONFLICT, [("dueline-fenced", "1")]).into_response(),
    };
    let more_ms = match mood {
        Mood::Willing | Mood::Failing => 0,
        Mood::Slow => SLOW_MS,
        Mood::Silent => SILENT_MS,
    };
    let take_ms = wish.take_ms.max(hang_ms) + more_ms.unsigned_abs();
    if take_ms > 0 {
        tokio::time::sleep(Duration::from_millis(take_ms)).await;
    }
    let (end, status) = match fails {
        true => (End::Failed, StatusCode::SERVICE_UNAVAILABLE),
        false => (End::Succeeded, StatusCode::OK),
    };
    open.end(end);
    status.into_response()
}

/// The call that the headers of a callback tell of.
fn called(headers: &HeaderMap, payload: String) -> Option<Called> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let name = |name: &str| Some(percent_decode_str(text(name)?).decode_utf8().ok()?.into_owned());
    let token: Option<Vec<u64>> =
        text("dueline-fencing-token")?.split('.').map(|part| part.parse().ok()).collect();
    Some(Called {
        shard: text("dueline-shard")?.parse().ok()?,
        version: None,
        decided: None,
        sent: None,
        arrived: clock::wall_ms(),
        ended: None,
        queue: name("dueline-queue")?,
        id: name("dueline-task-id")?,
        due: clock::parse(text("dueline-due-at")?)?,
        ready: None,
        deadline: clock::parse(text("dueline-deadline")?)?,
        token: token?.try_into().ok()?,
        attempt: text("dueline-attempt")?.parse().ok()?,
        max_attempts: text("dueline-max-attempts").and_then(|max| max.parse().ok()),
        previous: text("dueline-previous-outcome").map(str::to_owned),
        payload,
        refused: false,
        broken_off: false,
        parks: false,
    })
}
