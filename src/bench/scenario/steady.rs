//! Scenarios of a steady load: what is measured is how late its tasks are.

use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;

use super::super::event::held;
use super::super::measure::settled_rss_mb;
use super::super::report::Report;
use super::super::rig::Bench;
use super::super::samples::STEP_LATENESS;
use super::super::seen::wall_ms;

/// How far ahead the tasks of a steady load are due.
pub(super) const AHEAD: Duration = Duration::from_secs(2);

/// One task every so often, due when its turn is, as those of the raw program are: who sends it may be held up meanwhile.
pub(super) async fn steady(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let tasks = bench.plan.rate * bench.plan.seconds;
    bench.bar.set_message("steady");
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / bench.plan.rate));
    let (span, mut sends) = (bench.begin_looking_every(STEP_LATENESS)?, JoinSet::new());
    let from = wall_ms() + AHEAD.as_millis() as i64;
    for (number, task) in bench.numbers(tasks).enumerate() {
        ticks.tick().await;
        let due = from + (number as u64 * 1_000 / bench.plan.rate) as i64;
        sends.spawn(bench.producer().produce(bench.plan.message(task, due)));
        while let Some(sent) = sends.try_join_next() {
            sent?.context("a record")?;
        }
    }
    while let Some(sent) = sends.join_next().await {
        sent?.context("a record")?;
    }
    bench.until_called("run", tasks).await?;
    let tasks_per_second = tasks as f64 / span.seconds();
    let report = Report { tasks, tasks_per_second, ..Report::default() };
    Ok(bench.end(span, report).late(&bench.seen.take_late()))
}

/// A steady load while attempts stay open; memory is that with all of them open.
pub(super) async fn long_running(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let (open, now) = (bench.plan.open, wall_ms());
    let held_now = || bench.seen.held_now();
    tokio::try_join!(
        bench.send((0..open).map(|number| held(number, now))),
        bench.until("open", u64::from(open), held_now)
    )?;
    let mut report = steady(bench).await?;
    report.open_attempts = Some(u64::from(open));
    report.at_rest(settled_rss_mb(bench.plan.rest).await, bench.idle_mb);
    bench.release.send_replace(true);
    bench.until_empty().await?;
    Ok(report)
}
