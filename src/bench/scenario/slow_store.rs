//! The `slow-store` scenario: a pipeline as it is, and the same with a store that takes a tenth of the rows a second.

use anyhow::Context as _;

use super::super::report::{Report, SlowStore};
use super::super::rig::Bench;
use super::burst;

/// How much slower.
const TIMES: f64 = 10.0;

pub(super) async fn slow_store(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let before = burst::pipeline(bench).await?;
    let rows_per_task: f64 = bench.rows.per_task(before.tasks).rows.values().sum();
    let rows_per_second = (rows_per_task * before.tasks_per_second / TIMES).max(1.0);
    bench.pace.set(Some(rows_per_second as u64));
    let published = Published::now(bench)?;
    let slowed = burst::pipeline(bench).await;
    bench.pace.set(None);
    let (slowed, published) = (slowed?, Published::now(bench)?.since(&published));
    let slow_store = SlowStore {
        before_per_second: before.tasks_per_second,
        rss_peak_before_mb: before.rss_peak_mb,
        rows_per_second,
        lateness_mean_ms: slowed.lateness_mean_ms,
        lateness_published_mean_ms: published.mean_ms().context("lateness is published")?,
    };
    Ok(Report { slow_store: Some(slow_store), ..slowed })
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
            let lines = text.lines().filter(|line| line.starts_with(&name));
            lines.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<f64>()?)).sum()
        };
        Ok(Published { calls: sum("count")?, seconds: sum("sum")? })
    }

    fn since(self, before: &Published) -> Published {
        Published { calls: self.calls - before.calls, seconds: self.seconds - before.seconds }
    }

    fn mean_ms(&self) -> Option<f64> {
        (self.calls > 0.0).then(|| self.seconds * 1e3 / self.calls)
    }
}
