//! The scenarios: each produces its tasks, waits for what it measures, and reports.

mod blocked;
mod burst;
mod list;
mod pending;
mod steady;
mod takeover;

use crate::model::Wall;

use super::args::{Plan, Scenario};
use super::ceiling::{self, Load};
use super::measure::{Usage, fsync_ms, rss_mb, rss_peak_mb, settled_rss_mb};
use super::report::{Order, Report};
use super::rig::Bench;
use super::samples::Sampler;
use super::seen::wall_ms;
use super::site::Site;

/// Far beyond the look-ahead.
const FAR_MS: i64 = 3_600_000;
const HOUR_MS: u64 = 3_600_000;

/// Runs one plan on a site of its own.
///
/// # Errors
/// When a server does not answer, tasks do not finish in time, or a queue's tasks came in another order than theirs.
pub(super) async fn run(plan: &Plan, site: &Site) -> anyhow::Result<Report> {
    let mut bench = Bench::open(plan, site).await?;
    let measured = measure(&mut bench).await;
    bench.release.send_replace(true);
    if let Some(node) = bench.take() {
        node.stop().await;
    }
    measured
}

async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<Report> {
    let (plan, site) = (bench.plan, bench.site);
    let idle_mb = rss_mb();
    if matches!(plan.scenario, Scenario::Steady | Scenario::Blocked | Scenario::LongRunning) {
        bench.warm_up().await?;
    }
    let (usage, sampler) = (Usage::now(), Sampler::start(bench.seen.clone(), bench.rows.clone())?);
    let mut report = match plan.scenario {
        Scenario::Pipeline
        | Scenario::Http
        | Scenario::Queues
        | Scenario::Payload
        | Scenario::Forward
        | Scenario::Handlers => burst::pipeline(bench).await?,
        Scenario::Ingest => burst::ingest(bench).await?,
        Scenario::Herd => burst::herd(bench).await?,
        Scenario::Redrive => burst::redrive(bench).await?,
        Scenario::Steady => steady::steady(bench).await?,
        Scenario::LongRunning => steady::long_running(bench).await?,
        Scenario::Blocked => blocked::blocked(bench).await?,
        Scenario::Pending => pending::pending(bench).await?,
        Scenario::Takeover => takeover::takeover(bench).await?,
        Scenario::List => list::list(bench, load(plan)).await?,
        Scenario::Ceiling => ceiling::alone(site, bench.node(), load(plan)).await?,
    };
    let each = report.tasks.max(1) as f64;
    report.cpu_us_per_task.get_or_insert(usage.cpu_us() / each);
    report.samples = sampler.stop();
    let by_part = report.samples.cpu_seconds().into_iter();
    report.cpu_us_per_task_by_part = by_part.map(|(part, seconds)| (part, seconds * 1e6 / each)).collect();
    report.written_per_task = bench.rows.per_task(report.tasks);
    if report.rss_mb.is_none() {
        report.at_rest(settled_rss_mb(plan.rest).await, idle_mb);
    }
    report.rss_peak_mb = rss_peak_mb();
    report.order = order(bench)?;
    if plan.ceiling {
        bench.bar.set_message("ceiling");
        report.beside(ceiling::measure(site, bench.node(), load(plan)).await?);
    }
    report.fsync_ms = site.dir.as_deref().map(fsync_ms).transpose()?;
    bench.bar.finish_and_clear();
    Ok(report.of(plan, site.word()))
}

/// What the raw program is to write beside a plan.
fn load(plan: &Plan) -> Load {
    let now = Wall(wall_ms());
    let (from, spread_ms) = if plan.scenario.is_far() || plan.scenario == Scenario::Ceiling {
        (now.plus_ms(FAR_MS), HOUR_MS)
    } else {
        (now, 0)
    };
    Load::new(plan, from, spread_ms)
}

/// Whether the tasks of each queue came in their order, where that can be told.
///
/// # Errors
/// They did not.
fn order(bench: &Bench<'_>) -> anyhow::Result<Option<Order>> {
    // An HTTP call does not say its task here, and a redriven one comes again.
    let cannot_be_told = matches!(bench.plan.scenario, Scenario::Http | Scenario::Redrive);
    if cannot_be_told || bench.seen.calls_ever() == 0 {
        return Ok(None);
    }
    let (out_of_order, repeated) = bench.seen.disorder();
    anyhow::ensure!(
        out_of_order == 0,
        "{out_of_order} tasks ran after one that stands behind them in their queue: that must never be"
    );
    Ok(Some(Order { out_of_order, repeated }))
}
