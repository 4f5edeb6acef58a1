//! deploy/monitoring is true: every expression of its alerts and dashboards parses and asks for metrics, labels and
//! values that a scrape of a real node has; every alert has its runbook and its unit test; what is generated is up to
//! date. Expressions are parsed with a library; promtool, where it is found, has the last word.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod dashboards;
#[path = "../api/dev.rs"]
#[allow(dead_code, reason = "a part of what the tests of the interface use")]
mod dev;
mod expressions;
mod live;
mod pages;
mod promtool;
mod render;
mod rules;
mod scrape;
#[path = "../api/sink.rs"]
#[allow(dead_code, reason = "a part of what the tests of the interface use")]
mod sink;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for anything that has to come.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// A file of the repository.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Files of a folder with an ending, by name without it.
fn names(dir: &str, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(file(dir)).unwrap_or_else(|error| panic!("{dir}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(ending)?.to_owned())).collect();
    names.sort();
    assert!(!names.is_empty(), "{dir} has no *{ending}");
    names
}

/// A generated file: written anew with UPDATE_DOCS=1, otherwise compared.
#[track_caller]
fn check_generated(name: &str, made: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(file(name), made).unwrap();
    }
    let written = std::fs::read_to_string(file(name)).unwrap_or_default();
    assert!(written == made, "{name} is not up to date: run this test with UPDATE_DOCS=1");
}
