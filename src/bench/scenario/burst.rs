//! Scenarios of as much as goes: tasks due now, later, all at one instant, or dead.

use std::time::Duration;

use crate::model::{Batch, BatchFilter, BatchVerb, Change, Wall};
use crate::runtime::gates::Author;

use super::super::measure::Usage;
use super::super::report::Report;
use super::super::rig::Bench;
use super::super::seen::{wall_ms, wall_us};
use super::{FAR_MS, HOUR_MS};

/// From the first record to the last task done.
pub(super) async fn pipeline(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let tasks = bench.plan.tasks;
    let (usage, now) = (Usage::now(), wall_ms());
    tokio::try_join!(bench.produce(0..tasks, |_| now), bench.until_called("run", tasks))?;
    bench.until_empty().await?;
    let tasks_per_second = tasks as f64 / usage.seconds();
    Ok(Report { tasks, tasks_per_second, ..Report::default() }.late(&bench.seen.take_late()))
}

/// From the first record until all are stored.
pub(super) async fn ingest(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let (tasks, usage) = (bench.plan.tasks, Usage::now());
    let from = wall_ms() + FAR_MS;
    let spread = |task| from + (task * HOUR_MS / tasks) as i64;
    tokio::try_join!(bench.produce(0..tasks, spread), bench.until_stored(tasks))?;
    let tasks_per_second = tasks as f64 / usage.seconds();
    Ok(Report {
        tasks,
        tasks_per_second,
        persisted_per_second: Some(tasks_per_second),
        cpu_us_per_task: Some(usage.cpu_us() / tasks as f64),
        ..Report::default()
    })
}

/// All stored before the instant at which all are due; from then to the last call.
pub(super) async fn herd(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let (tasks, lead, usage) = (bench.plan.tasks, bench.plan.lead, Usage::now());
    let due = wall_ms() + lead.as_millis() as i64;
    tokio::try_join!(bench.produce(0..tasks, |_| due), bench.until_stored(tasks))?;
    let persisted = tasks as f64 / usage.seconds();
    let left = due - wall_ms();
    anyhow::ensure!(
        left > 0,
        "the {tasks} tasks of the herd were stored {} ms after they were due, and have to be before: give --lead \
         more than {} seconds",
        -left,
        lead.as_secs()
    );
    bench.bar.set_message("due soon");
    tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
    bench.until_called("run", tasks).await?;
    let drained = (bench.seen.last_us() - due * 1_000).max(1) as f64 / 1e6;
    bench.until_empty().await?;
    let tasks_per_second = tasks as f64 / drained;
    let report =
        Report { tasks, tasks_per_second, persisted_per_second: Some(persisted), ..Report::default() };
    Ok(report.late(&bench.seen.take_late()))
}

/// All die; then from the batch that redrives them until they are done.
pub(super) async fn redrive(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let (tasks, now) = (bench.plan.tasks, wall_ms());
    tokio::try_join!(bench.produce(0..tasks, |_| now), bench.until_called("die", tasks))?;
    bench.until_empty().await?;
    bench.seen.set_fails(false);
    bench.seen.forget();
    let usage = Usage::now();
    let now = Wall(wall_us() / 1_000);
    let batch = Batch {
        verb: BatchVerb::Redrive,
        filter: BatchFilter::default(),
        from: now.plus_ms(-FAR_MS),
        to: now.plus_ms(1_000),
        shift_ms: 0,
        rate: 100_000,
        dry_run: false,
    };
    let gates = bench.node().service().gates();
    gates.change(now, Author::default(), Change::BatchBegun(batch)).await?;
    bench.until_called("redrive", tasks).await?;
    bench.until_empty().await?;
    let tasks_per_second = tasks as f64 / usage.seconds();
    Ok(Report { tasks, tasks_per_second, ..Report::default() }.late(&bench.seen.take_late()))
}
