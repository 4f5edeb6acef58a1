//! Scenarios of a steady load: what is measured is how late its tasks are.

use std::time::Duration;

use anyhow::Context as _;

use super::super::event::held;
use super::super::measure::{Usage, rss_mb, settled_rss_mb};
use super::super::report::Report;
use super::super::rig::Bench;
use super::super::seen::wall_ms;

/// How far ahead the tasks of a steady load are due, in milliseconds.
const AHEAD_MS: i64 = 2_000;

pub(super) async fn steady(bench: &Bench<'_>) -> anyhow::Result<Report> {
    load(bench, bench.plan.warm_up).await
}

/// One task every so often. `first`: the number of the first of them; the count of calls begins anew.
pub(super) async fn load(bench: &Bench<'_>, first: u64) -> anyhow::Result<Report> {
    bench.seen.forget();
    let tasks = bench.plan.rate * bench.plan.seconds;
    bench.bar.set_message("steady");
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / bench.plan.rate));
    let usage = Usage::now();
    let mut sends = Vec::new();
    for task in first..first + tasks {
        ticks.tick().await;
        let message = bench.plan.message(task, wall_ms() + AHEAD_MS);
        sends.push(tokio::spawn(bench.node().producer().produce(message)));
    }
    for sent in sends {
        sent.await?.context("a record")?;
    }
    bench.until_called("run", tasks).await?;
    let tasks_per_second = tasks as f64 / usage.seconds();
    Ok(Report { tasks, tasks_per_second, ..Report::default() }.late(&bench.seen.take_late()))
}

/// A steady load while attempts stay open; memory is that with all of them open.
pub(super) async fn long_running(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let (open, idle_mb, now) = (bench.plan.open, rss_mb(), wall_ms());
    let held_now = || bench.seen.held_now();
    tokio::try_join!(
        bench.send((0..open).map(|number| held(number, now))),
        bench.until("open", u64::from(open), held_now)
    )?;
    let mut report = steady(bench).await?;
    report.open_attempts = Some(u64::from(open));
    report.at_rest(settled_rss_mb(bench.plan.rest).await, idle_mb);
    bench.release.send_replace(true);
    bench.until_empty().await?;
    Ok(report)
}
