//! The HTTP API: any instance answers; what only a shard's owner knows is asked of it by one hop.
//!
//! Holds no state. Asking for something writes a schedule event to the log like any other producer; the answer can wait
//! until it is decided (`Prefer: wait=N`). Errors are `application/problem+json`.

mod body;
mod health;
mod hop;
mod limits;
mod list;
mod params;
mod problem;
mod produce;
mod shards;
mod tasks;
mod views;

use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use utoipa::OpenApi;

use crate::node::Node;

use problem::Problem;

/// What handlers share.
#[derive(Clone)]
struct App {
    node: Node,
    http: reqwest::Client,
}

type Answer<T> = Result<T, Problem>;

/// Serves until `stop` is ready, then answers what is under way.
///
/// # Errors
/// When the listener fails.
pub async fn run(
    node: Node,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let http = reqwest::Client::builder().no_proxy().timeout(limits::HOP_TIMEOUT).build()?;
    let app = router(App { node, http });
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    Ok(())
}

fn router(app: App) -> Router {
    Router::new()
        .route("/v1/tasks", get(list::tasks).post(tasks::schedule))
        .route("/v1/tasks:batch", post(tasks::batch))
        .route("/v1/tasks/{queue}/{id}", get(tasks::show))
        .route("/v1/tasks/{queue}/{id}/cancel", post(tasks::cancel))
        .route("/v1/tasks/{queue}/{id}/reschedule", post(tasks::reschedule))
        .route("/v1/tasks/{queue}/{id}/explain", get(tasks::explain))
        .route("/v1/queues", get(shards::queues))
        .route("/v1/queues/{queue}", get(shards::queue))
        .route("/v1/shards", get(shards::shards))
        .route("/v1/instances", get(shards::instances))
        .route("/v1/handlers", get(shards::handlers))
        .route("/v1/rejected", get(list::rejected))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(limits::BATCH_BYTES_MAX))
        .layer(axum::middleware::from_fn(in_time))
        .with_state(app)
}

/// No request is answered later than its bound.
async fn in_time(request: axum::extract::Request, next: axum::middleware::Next) -> axum::response::Response {
    use axum::response::IntoResponse;
    match tokio::time::timeout(limits::REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::unavailable("timeout", "the request took too long", 1).into_response(),
    }
}

async fn nothing_here(uri: Uri) -> Problem {
    let detail = format!("There is nothing at {}; /openapi.json says what there is.", uri.path());
    Problem::not_found("no_such_path", detail)
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not answer {method}; /openapi.json says what it answers.", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail)
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Dueline", description = "Schedule, cancel, reschedule and look at tasks."),
    paths(
        tasks::schedule,
        tasks::batch,
        tasks::show,
        tasks::cancel,
        tasks::reschedule,
        tasks::explain,
        list::tasks,
        list::rejected,
        shards::queues,
        shards::queue,
        shards::shards,
        shards::instances,
        shards::handlers,
        health::livez,
        health::readyz,
        health::metrics
    ),
    components(schemas(problem::Problem, problem::FieldError))
)]
struct Document;

async fn openapi() -> axum::Json<utoipa::openapi::OpenApi> {
    axum::Json(Document::openapi())
}

/// Waits between looks at whether an event is decided.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use utoipa::OpenApi;

    #[test]
    fn the_published_document_is_the_one_served() {
        let served = super::Document::openapi().to_pretty_json().expect("JSON") + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/openapi.json");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &served).expect("written");
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            published == served,
            "schemas/openapi.json is not up to date: UPDATE_DOCS=1 cargo test --lib server"
        );
    }
}
