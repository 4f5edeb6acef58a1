//! The handler that tasks are delivered to, outside of Kubernetes: it takes down every call.

use super::ledger::{Call, Ledger};
use crate::k8s::cluster::plan::SHARED;
use anyhow::Result;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tiny_http::{Request, Response, Server};

pub(super) const PORT: u16 = 8_080;
/// Calls that are answered at once.
const THREADS: usize = 24;
/// The longest answer that a task may ask for.
const TAKE_MAX: Duration = Duration::from_secs(2);

/// Where it is called.
pub(super) fn url() -> String {
    format!("http://{SHARED}:{PORT}/")
}

/// A handler that listens until it is dropped.
pub(super) struct Sink {
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
}

impl Sink {
    pub(super) fn start(ledger: &Arc<Ledger>) -> Result<Sink> {
        let server = Server::http((SHARED, PORT))
            .map_err(|error| anyhow::anyhow!("listening on {SHARED}:{PORT} for calls: {error}"))?;
        let server = Arc::new(server);
        let threads = (0..THREADS).map(|_| {
            let (server, ledger) = (server.clone(), ledger.clone());
            std::thread::spawn(move || {
                while let Ok(call) = server.recv() {
                    answer(call, &ledger);
                }
            })
        });
        Ok(Sink { threads: threads.collect(), server })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        for _ in &self.threads {
            self.server.unblock();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Takes a call down when it has come, and answers when its task wants.
fn answer(mut call: Request, ledger: &Ledger) {
    let header = |name: &str| {
        let found =
            call.headers().iter().find(|header| header.field.as_str().as_str().eq_ignore_ascii_case(name));
        found.map(|header| header.value.as_str().to_owned())
    };
    let shard = header("dueline-shard").and_then(|shard| shard.parse().ok());
    let (Some(id), Some(shard)) = (header("dueline-task-id"), shard) else {
        let _ = call.respond(Response::empty(400));
        return;
    };
    let explained = header("dueline-previous-outcome").is_some();
    ledger.called(&id, Call { at: Instant::now(), shard, explained });
    let mut body = String::new();
    let wish: serde_json::Value = match call.as_reader().read_to_string(&mut body) {
        Ok(_) => serde_json::from_str(&body).unwrap_or_default(),
        Err(_) => serde_json::Value::Null,
    };
    std::thread::sleep(Duration::from_millis(wish["take_ms"].as_u64().unwrap_or_default()).min(TAKE_MAX));
    // A pod that was killed does not wait for its answer.
    let _ = call.respond(Response::empty(200));
}
