//! Probes and metrics: cheap, and answered under any load.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::{Answer, App, Shared};

/// A client of the log that was not polled for this long hangs, in milliseconds.
const SILENT_MS_MAX: u64 = 30_000;

/// Whether this process works at all: red only when restarting it would help. Waiting for Kafka and Cassandra is alive.
#[utoipa::path(get, path = "/livez", responses((status = 200, body = String), (status = 503, body = Problem)))]
pub(super) async fn livez(State(shared): State<Arc<Shared>>) -> Answer<&'static str> {
    // A client that is being closed is not polled any more.
    let silent_ms = match shared.node.get() {
        Some(node) if !shared.stopping.load(Ordering::Relaxed) => node.consumer().silent_ms(),
        Some(_) | None => 0,
    };
    alive(silent_ms)
}

/// Alive is whose client of the log was polled a while ago at most.
fn alive(silent_ms: u64) -> Answer<&'static str> {
    if silent_ms > SILENT_MS_MAX {
        let detail = format!("The client of the log was not polled for {silent_ms} ms: it hangs.");
        return Err(Problem::unavailable("hangs", detail, 10));
    }
    Ok("ok\n")
}

/// Whether requests are to be sent here: red while it starts and while it stops. An outage of Kafka or Cassandra later
/// does not make it red: nobody else could do better. Nor does a drain, which the answer tells: it answers as well as any.
#[utoipa::path(get, path = "/readyz", responses((status = 200, body = String), (status = 503, body = Problem)))]
pub(super) async fn readyz(app: App, state: State<Arc<Shared>>) -> Answer<String> {
    if state.stopping.load(Ordering::Relaxed) {
        return Err(Problem::unavailable("stopping", "This instance is stopping.", 1));
    }
    let ready = livez(state).await?;
    let drained = app.node.service().gates().drained().borrow().clone();
    Ok(match drained {
        Some((place, _)) => format!("ok: {place} is drained\n"),
        None => ready.to_owned(),
    })
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "text/plain"),
    (status = 503, body = Problem)))]
pub(super) async fn metrics(app: App) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.node.metrics().encode())
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn an_instance_whose_client_was_not_polled_for_long_is_not_alive() {
        for silent_ms in [0, 1, SILENT_MS_MAX] {
            assert!(alive(silent_ms).is_ok(), "{silent_ms}");
        }
        for silent_ms in [SILENT_MS_MAX + 1, u64::MAX] {
            let answer = alive(silent_ms).into_response();
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{silent_ms}");
        }
    }
}
