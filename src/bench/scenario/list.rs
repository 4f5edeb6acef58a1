//! The `list` scenario: the newest and the oldest tasks of one large queue, asked for over HTTP.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use tokio::net::TcpListener;

use crate::model::limits::WRITE_ROWS_MAX;
use crate::model::{
    Fact, FactRow, HandlerName, Place, QueueName, Row, TaskContent, TaskId, TaskKey, Version, home_shard,
};
use crate::server::Server;
use crate::wire::time::format_time;

use super::super::ceiling::Load;
use super::super::event::{NOOP, content};
use super::super::measure::Times;
use super::super::report::{Percentiles, Report};
use super::super::rig::Bench;

/// Writes under way at once.
const WRITES_AT_ONCE: usize = 32;
/// Tasks of a list.
const PAGE: usize = 50;
/// Lists that are asked for and not measured, and those that are.
const FIRST: usize = 20;
const MEASURED: usize = 300;

/// Puts rows of tasks that wait into the store, all of one queue, and asks for its ends, one list after the other.
///
/// # Errors
/// When the store does not take a row, or a list is not answered with a full page.
pub(super) async fn list(bench: &Bench<'_>, load: Load) -> anyhow::Result<Report> {
    let (span, tasks) = (bench.begin()?, bench.plan.tasks);
    let Load { from, spread_ms, .. } = load;
    fill(bench, load).await?;
    let tasks_per_second = tasks as f64 / span.seconds();
    let server = Server::new();
    server.open(bench.node().clone());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("an address for the interface")?;
    let url = format!("http://{}/v1/tasks", listener.local_addr()?);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let stopped = async { stopped.await.unwrap_or_default() };
        server.run(listener, stopped).await
    });
    let to = from.plus_ms(spread_ms as i64 + 1);
    let url = format!("{url}?queue=list&from={}&to={}", format_time(from), format_time(to));
    let list_newest_ms = Some(time(bench, &format!("{url}&order=newest"), tasks - 1).await?);
    let list_oldest_ms = Some(time(bench, &url, 0).await?);
    drop(stop);
    serving.await??;
    let report = Report { tasks, tasks_per_second, list_newest_ms, list_oldest_ms, ..Report::default() };
    Ok(bench.end(span, report).without_shares())
}

async fn fill(bench: &Bench<'_>, load: Load) -> anyhow::Result<()> {
    let Load { from, spread_ms, .. } = load;
    let (tasks, rows) = (bench.plan.tasks, WRITE_ROWS_MAX as u64);
    let store = bench.node().store();
    let queue = QueueName::new("list")?;
    let shard = home_shard(&queue, bench.plan.shards);
    let content: Arc<TaskContent> = Arc::new(content(HandlerName::new(NOOP)?, &bench.plan.payload_of(1)));
    let row = |task: u64| -> anyhow::Result<Row> {
        let ready_at = from.plus_ms((task * spread_ms / tasks) as i64);
        let key = TaskKey { queue: queue.clone(), id: TaskId::new(&format!("t-{task}"))? };
        let place = Place { ready_at, version: Version(Version::MIN.0 + 1 + task) };
        let fact = Fact::Task { key, due_at: ready_at, appended: ready_at, content: content.clone() };
        Ok(Row::Fact(FactRow { shard, place, fact }))
    };
    bench.bar.set_message("fill");
    let writes = stream::iter(0..tasks.div_ceil(rows)).map(|chunk| {
        let rows: anyhow::Result<Vec<Row>> =
            (chunk * rows..((chunk + 1) * rows).min(tasks)).map(row).collect();
        async move {
            let rows = rows?;
            let count = rows.len() as u64;
            store.write(rows.into()).await.context("rows of tasks")?;
            anyhow::Ok(count)
        }
    });
    let mut writes = writes.buffer_unordered(WRITES_AT_ONCE);
    while let Some(written) = writes.next().await {
        bench.bar.inc(written?);
    }
    Ok(())
}

/// How long a list takes, one after the other; `first` is the number of the task it begins with.
async fn time(bench: &Bench<'_>, url: &str, first: u64) -> anyhow::Result<Percentiles> {
    bench.bar.set_message("list");
    let client = reqwest::Client::new();
    let wanted = PAGE.min(usize::try_from(bench.plan.tasks)?);
    let url = format!("{url}&page_size={PAGE}");
    let mut took = Times::default();
    for list in 0..FIRST + MEASURED {
        let start = Instant::now();
        let answer = client.get(&url).send().await?.error_for_status()?.bytes().await?;
        if list >= FIRST {
            took.add_us(i64::try_from(start.elapsed().as_micros())?);
        }
        let page: serde_json::Value = serde_json::from_slice(&answer)?;
        let found = page["tasks"].as_array().map_or(0, Vec::len);
        let begins = page["tasks"][0]["id"] == format!("t-{first}");
        anyhow::ensure!(found == wanted && begins, "{found} tasks, the first {}", page["tasks"][0]["id"]);
    }
    Ok(took.percentiles())
}
