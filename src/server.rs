//! The HTTP API: any instance answers; what only a shard's owner knows is asked of it by one hop.
//!
//! ```text
//! listen (bounds on connections) → guard (bounds on requests) → origin (no foreign page) → tasks · list · dead_letters · shards · gates → node
//!                                                                  └ hop ── Dueline-Hop: 1 ──▶ another instance
//! ```
//! Holds no state. Asking for something writes a schedule event to the log like any other producer; the answer can wait
//! until it is decided (`Prefer: wait=N`). Errors are `application/problem+json`.

mod batches;
mod body;
mod dead_letters;
mod document;
mod explain;
mod gates;
mod guard;
mod health;
mod hop;
mod limits;
mod list;
mod listen;
mod origin;
mod params;
mod problem;
mod produce;
mod shards;
mod tasks;
mod views;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::node::Node;

use problem::Problem;

/// The HTTP interface of an instance. Clones are the same one.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

/// What all requests share.
struct Shared {
    node: OnceLock<Node>,
    /// Asks other instances.
    http: reqwest::Client,
    /// One permit a request.
    requests: Semaphore,
    stopping: AtomicBool,
}

/// What handlers share once the node is there.
#[derive(Clone)]
struct App {
    node: Node,
    http: reqwest::Client,
}

type Answer<T> = Result<T, Problem>;

impl Default for Server {
    fn default() -> Server {
        Server::new()
    }
}

impl Server {
    /// An interface that answers `starting` until [`Server::open`]; it is alive from the first moment, so that nobody
    /// restarts a process for waiting.
    pub fn new() -> Server {
        let shared = Shared {
            node: OnceLock::new(),
            http: hop::client(),
            requests: Semaphore::new(limits::REQUESTS_MAX),
            stopping: AtomicBool::new(false),
        };
        Server { shared: Arc::new(shared) }
    }

    /// Answers for this node from now on. A second node is not taken.
    pub fn open(&self, node: Node) {
        let _ = self.shared.node.set(node);
    }

    /// Asks for no more requests, while those that come are still answered: not ready from now on.
    pub fn turn_away(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }

    /// Serves until `stop` is ready; then requests under way get a short time to end.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn run(
        &self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let server = self.clone();
        let (stopped, stopping) = tokio::sync::oneshot::channel();
        let stop = async move {
            stop.await;
            server.turn_away();
            let _ = stopped.send(());
        };
        let serving = axum::serve(listen::Bounded::new(listener), router(&self.shared));
        let overdue = async {
            if stopping.await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(limits::STOP_TIMEOUT).await;
        };
        tokio::select! {
            served = serving.with_graceful_shutdown(stop).into_future() => served,
            () = overdue => Ok(()),
        }
    }
}

fn router(shared: &Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/tasks", get(list::tasks).post(tasks::schedule))
        .route("/v1/tasks:batch", post(tasks::batch))
        .route("/v1/tasks/{queue}/{id}", get(tasks::show))
        .route("/v1/tasks/{queue}/{id}/cancel", post(tasks::cancel))
        .route("/v1/tasks/{queue}/{id}/reschedule", post(tasks::reschedule))
        .route("/v1/tasks/{queue}/{id}/redrive", post(tasks::redrive))
        .route("/v1/tasks/{queue}/{id}/abort", post(tasks::abort))
        .route("/v1/tasks/{queue}/{id}/run", post(tasks::run))
        .route("/v1/tasks/{queue}/{id}/explain", get(explain::task))
        .route("/v1/queues", get(shards::queues))
        .route("/v1/queues/{queue}", get(shards::queue))
        .route("/v1/queues/{queue}/explain", get(explain::queue))
        .route("/v1/queues/{queue}/pause", post(gates::pause))
        .route("/v1/queues/{queue}/resume", post(gates::resume))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/gates", get(gates::list).post(gates::set))
        .route("/v1/gates:clear", post(gates::clear))
        .route("/v1/operations", get(gates::operations))
        .route("/v1/batches", get(batches::list).post(batches::begin))
        .route("/v1/batches/{id}", get(batches::show))
        .route("/v1/batches/{id}/stop", post(batches::stop))
        .route("/v1/batches/{id}/resume", post(batches::resume))
        .route("/v1/shards", get(shards::shards))
        .route("/v1/instances", get(shards::instances))
        .route("/v1/handlers", get(shards::handlers))
        .route("/v1/handlers/{handler}/explain", get(explain::handler))
        .route("/v1/rejected", get(list::rejected))
        .route("/openapi.json", get(document::served))
        .route_layer(from_fn_with_state(shared.clone(), origin::check))
        .route_layer(from_fn_with_state(shared.clone(), guard::bounds))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(limits::BATCH_BYTES_MAX))
        .layer(from_fn(guard::head))
        .with_state(shared.clone())
}

async fn nothing_here(uri: Uri) -> Problem {
    let detail = format!("There is nothing at {}; /openapi.json says what there is.", uri.path());
    Problem::not_found("no_such_path", detail)
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not answer {method}; /openapi.json says what it answers.", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail)
}

/// Waits between looks at whether an event is decided.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
