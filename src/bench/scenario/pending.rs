//! The `pending` scenario: what tasks that are far from due cost, by their number.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::super::measure::settled_rss_mb;
use super::super::report::{Report, Restart};
use super::super::rig::Bench;
use super::super::seen::{wall_ms, wall_us};
use super::{burst, steady};

/// How far ahead the task is due that a restarted node runs first: enough to have it stored and the node stopped.
const FIRST_DUE_MS: i64 = 5_000;

/// Stores them, rests, runs a steady load beside them, lets memory settle, and starts the node anew.
pub(super) async fn pending(bench: &mut Bench<'_>) -> anyhow::Result<Report> {
    let mut report = burst::ingest(bench).await?;
    // Beside tasks that are pending, not beside what the store still has to do for their ingest.
    settled_rss_mb(bench.plan.rest).await;
    let beside = steady::steady(bench).await?;
    (report.lateness_ms, report.lateness_histogram) = (beside.lateness_ms, beside.lateness_histogram);
    bench.until_stored(bench.numbers(0).end).await?;
    report.at_rest(settled_rss_mb(bench.plan.rest).await, bench.idle_mb);
    report.restart = Some(restart(bench).await?);
    Ok(report)
}

/// Stops the node, and starts one on the same site, which finds a task that became due meanwhile.
async fn restart(bench: &mut Bench<'_>) -> anyhow::Result<Restart> {
    bench.bar.set_message("restart");
    bench.seen.forget();
    let (first, due) = (bench.numbers(1), wall_ms() + FIRST_DUE_MS);
    let stored = first.end;
    bench.produce(first, |_| due).await?;
    bench.until_stored(stored).await?;
    let start = Instant::now();
    if let Some(node) = bench.take() {
        node.stop().await;
    }
    let stop_ms = start.elapsed().as_secs_f64() * 1e3;
    anyhow::ensure!(bench.seen.calls() == 0, "the node took longer than {FIRST_DUE_MS} ms to stop");
    let left = due - wall_ms();
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0))).await;
    let (start, start_us) = (Instant::now(), wall_us());
    let node = bench.builder("bench")?.start().await.context("the node, started anew")?;
    bench.replace(node);
    let since = || start.elapsed().as_secs_f64() * 1e3;
    let first = async {
        bench.until_called("first run", 1).await?;
        anyhow::Ok((bench.seen.last_us() - start_us) as f64 / 1e3)
    };
    let nodes = [bench.node()];
    let running = async {
        bench.until_running(&nodes).await?;
        anyhow::Ok(since())
    };
    let (first_run_ms, running_ms) = tokio::try_join!(first, running)?;
    Ok(Restart { stop_ms, running_ms, first_run_ms })
}
