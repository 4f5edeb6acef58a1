//! The HTTP API: any instance answers; what only a shard's owner knows is asked of it by one hop.
//!
//! ```text
//! listen (bounds on connections) → guard (bounds on requests) → origin (no foreign page) → access (who may; audit)
//!   → tasks · list · dead_letters · shards · gates · drains · batches · topics → node
//!                      └ hop ── Dueline-Hop: 1 ──▶ another instance
//! ```
//! Holds no state. Asking for something writes a schedule event to the log like any other producer; the answer can wait
//! until it is decided (`Prefer: wait=N`). Errors are `application/problem+json`.

mod access;
mod audit;
mod batches;
mod body;
mod dead_letters;
mod document;
mod drains;
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
mod resets;
mod routes;
mod shards;
mod tasks;
mod tokens;
mod topics;
mod views;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::config::{Config, Problems};
use crate::node::Node;

use access::{Access, Caller};
use problem::Problem;

/// The HTTP interface of an instance. Clones are the same one.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

/// What all requests share.
struct Shared {
    node: OnceLock<Node>,
    access: Access,
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
    caller: Caller,
}

type Answer<T> = Result<T, Problem>;

impl Default for Server {
    fn default() -> Server {
        Server::new()
    }
}

impl Server {
    /// An interface that answers `starting` until [`Server::open`]; it is alive from the first moment, so that nobody
    /// restarts a process for waiting. Whoever reaches it may do everything, and nothing of that is logged.
    pub fn new() -> Server {
        Server::with(Access::Own)
    }

    /// The same for those whom the configuration lets in; what they ask to change is in the audit log.
    ///
    /// # Errors
    /// Tokens that cannot be read or are none.
    pub fn guarded(config: &Config) -> Result<Server, Problems> {
        Access::new(config).map(Server::with)
    }

    fn with(access: Access) -> Server {
        let shared = Shared {
            node: OnceLock::new(),
            access,
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
        let service = router(&self.shared).into_make_service_with_connect_info::<access::Peer>();
        let serving = axum::serve(listen::Bounded::new(listener), service);
        let overdue = async {
            if stopping.await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(limits::STOP_TIMEOUT).await;
        };
        tokio::select! {
            served = serving.with_graceful_shutdown(stop).into_future() => served,
            () = overdue => Ok(()),
            () = self.shared.access.follow() => Ok(()),
        }
    }
}

fn router(shared: &Arc<Shared>) -> Router {
    routes::router(shared, routes::asked())
        .route_layer(from_fn_with_state(shared.clone(), origin::check))
        .route_layer(from_fn_with_state(shared.clone(), guard::bounds))
        .merge(routes::router(shared, routes::probes()))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(limits::BATCH_BYTES_MAX))
        .layer(from_fn(guard::head))
        .with_state(shared.clone())
}

async fn nothing_here(_: Caller, uri: Uri) -> Problem {
    let detail = format!("There is nothing at {}; /openapi.json says what there is.", uri.path());
    Problem::not_found("no_such_path", detail)
}

async fn wrong_method(_: Caller, method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not answer {method}; /openapi.json says what it answers.", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail)
}

/// Waits between looks at whether an event is decided.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
