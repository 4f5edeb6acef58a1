//! The `slow-store` scenario: a pipeline as it is, and the same with a store that takes a tenth of the rows a second.

use anyhow::Context as _;

use super::super::measure::settled_rss_mb;
use super::super::report::{Report, SlowStore};
use super::super::rig::Bench;
use super::super::seen::wall_ms;
use super::burst;

/// How many times slower.
const TIMES: f64 = 10.0;

/// Tasks are due when they are produced: what is published counts from when a task had arrived.
pub(super) async fn slow_store(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let (before, _) = burst::at_once(bench, |_| wall_ms()).await?;
    let rows_per_task: f64 = bench.rows.per_task(before.tasks).rows.values().sum();
    let rows_per_second = (rows_per_task * before.tasks_per_second / TIMES).max(1.0) as u64;
    // Else memory is that of the first load, too.
    settled_rss_mb(bench.plan.rest).await;
    let published = Published::now(bench)?;
    bench.pace.set(Some(rows_per_second));
    let slowed = burst::at_once(bench, |_| wall_ms()).await;
    bench.pace.set(None);
    let (slowed, late) = slowed?;
    let published = Published::now(bench)?.since(&published);
    anyhow::ensure!(
        published.calls as u64 == slowed.tasks,
        "the lateness of {} of {} tasks was published",
        published.calls,
        slowed.tasks
    );
    let slow_store = SlowStore {
        before_per_second: before.tasks_per_second,
        rss_peak_before_mb: before.rss_peak_mb,
        rows_per_second,
        lateness_mean_ms: late.mean_ms(),
        lateness_published_mean_ms: published.seconds * 1e3 / published.calls,
    };
    Ok(Report { slow_store: Some(slow_store), ..slowed.late(&late) })
}

/// Lateness as whoever scrapes the node is told it.
struct Published {
    calls: f64,
    seconds: f64,
}

impl Published {
    fn now(bench: &Bench<'_>) -> anyhow::Result<Published> {
        let text = bench.node().metrics().encode();
        let sum = |of: &str| -> anyhow::Result<f64> {
            let name = format!("dueline_task_lateness_seconds_{of}{{");
            let values =
                text.lines().filter(|line| line.starts_with(&name)).map(|line| line.rsplit(' ').next());
            values.map(|value| value.unwrap_or_default().parse::<f64>().context("a value of a metric")).sum()
        };
        Ok(Published { calls: sum("count")?, seconds: sum("sum")? })
    }

    fn since(self, before: &Published) -> Published {
        Published { calls: self.calls - before.calls, seconds: self.seconds - before.seconds }
    }
}
