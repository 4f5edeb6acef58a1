//! The product as its users meet it: the binary, its HTTP interface and its command line, on `dueline dev`.
//!
//! Every test starts the real binary on a free port with a folder of its own, and a sink on loopback that plays the
//! handler. Nothing waits for a fixed time: everything is asked for until it holds or a deadline has passed.

mod access;
mod batches;
mod bench;
mod callbacks;
mod cli;
#[cfg(feature = "otlp")]
mod collector;
mod control;
mod dead_letters;
mod dev;
mod drains;
mod embedded;
mod explain;
mod fairness;
mod gates;
mod help;
mod incident;
mod keys;
mod kill;
mod limits;
mod lists;
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod refused;
mod serve;
mod sink;
mod stop;
mod tasks;
mod topics;
#[path = "../walk/mod.rs"]
mod walk;

use std::time::{Duration, Instant};

/// Longest wait for anything that has to come.
const PATIENCE: Duration = Duration::from_secs(40);

/// Asks again and again until there is an answer; says what it waited for when none came.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
