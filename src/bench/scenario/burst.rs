//! Scenarios of as much as goes: tasks due now, later, all at one instant, or dead.

use std::time::Duration;

use crate::model::{Batch, BatchFilter, BatchVerb, Change, Wall};
use crate::runtime::gates::Author;

use super::super::measure::Times;
use super::super::report::Report;
use super::super::rig::Bench;
use super::super::seen::{wall_ms, wall_us};
use super::{FAR_MS, HOUR_MS};

/// From the first record to the last task done.
pub(super) async fn pipeline(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let now = wall_ms();
    let (report, late) = at_once(bench, |_| now).await?;
    Ok(report.late(&late))
}

/// As many tasks as go, with these due times; how late each was.
pub(super) async fn at_once(
    bench: &Bench<'_>,
    due_at: impl Fn(u64) -> i64,
) -> anyhow::Result<(Report, Times)> {
    let (tasks, span) = (bench.plan.tasks, bench.begin()?);
    tokio::try_join!(bench.produce(bench.numbers(tasks), due_at), bench.until_called("run", tasks))?;
    bench.until_empty().await?;
    let tasks_per_second = tasks as f64 / span.seconds();
    let report = Report { tasks, tasks_per_second, ..Report::default() };
    Ok((bench.end(span, report), bench.seen.take_late()))
}

/// From the first record until all are stored.
pub(super) async fn ingest(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let (tasks, span) = (bench.plan.tasks, bench.begin()?);
    let (numbers, from) = (bench.numbers(tasks), wall_ms() + FAR_MS);
    let (first, end) = (numbers.start, numbers.end);
    let spread = |task| from + ((task - first) * HOUR_MS / tasks) as i64;
    tokio::try_join!(bench.produce(numbers, spread), bench.until_stored(end))?;
    let tasks_per_second = tasks as f64 / span.seconds();
    let persisted_per_second = Some(tasks_per_second);
    Ok(bench.end(span, Report { tasks, tasks_per_second, persisted_per_second, ..Report::default() }))
}

/// All stored before the instant at which all are due; from then to the last call, and until all is on record.
pub(super) async fn herd(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let (tasks, lead, span) = (bench.plan.tasks, bench.plan.lead, bench.begin()?);
    let (numbers, due) = (bench.numbers(tasks), wall_ms() + lead.as_millis() as i64);
    let end = numbers.end;
    tokio::try_join!(bench.produce(numbers, |_| due), bench.until_stored(end))?;
    let persisted = tasks as f64 / span.seconds();
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
    let done = (wall_us() - due * 1_000).max(1) as f64 / 1e6;
    let report = Report {
        tasks,
        tasks_per_second: tasks as f64 / drained,
        done_per_second: Some(tasks as f64 / done),
        persisted_per_second: Some(persisted),
        ..Report::default()
    };
    Ok(bench.end(span, report).late(&bench.seen.take_late()))
}

/// All die; then from the batch that redrives them until they are done.
pub(super) async fn redrive(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let (tasks, now) = (bench.plan.tasks, wall_ms());
    bench.seen.set_fails(true);
    bench.seen.forget();
    tokio::try_join!(bench.produce(bench.numbers(tasks), |_| now), bench.until_called("die", tasks))?;
    bench.until_empty().await?;
    bench.seen.set_fails(false);
    let span = bench.begin()?;
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
    let tasks_per_second = tasks as f64 / span.seconds();
    let report = Report { tasks, tasks_per_second, ..Report::default() };
    Ok(bench.end(span, report).late(&bench.seen.take_late()))
}
