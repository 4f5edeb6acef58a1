//! Probes and metrics.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::{Answer, App};

/// A client of the log that was not polled for this long hangs, in milliseconds.
const SILENT_MS_MAX: u64 = 30_000;

/// Whether this process works at all: red only when restarting it would help.
#[utoipa::path(get, path = "/livez", responses((status = 200, body = String), (status = 503, body = Problem)))]
pub(super) async fn livez(State(app): State<App>) -> Answer<&'static str> {
    let silent_ms = app.node.consumer().silent_ms();
    if silent_ms > SILENT_MS_MAX {
        let detail = format!("The client of the log was not polled for {silent_ms} ms: it hangs.");
        return Err(Problem::unavailable("hangs", detail, 10));
    }
    Ok("ok\n")
}

/// Whether requests are to be sent here. An outage of Kafka or Cassandra does not make it red: nobody else could do better.
#[utoipa::path(get, path = "/readyz", responses((status = 200, body = String), (status = 503, body = Problem)))]
pub(super) async fn readyz(state: State<App>) -> Answer<&'static str> {
    livez(state).await
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(app): State<App>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], app.node.metrics().encode()).into_response()
}
