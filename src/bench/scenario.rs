//! The scenarios: each produces its tasks, waits for what it measures, and reports.

mod blocked;
mod burst;
mod gate;
mod list;
mod pending;
mod slow_store;
mod steady;
mod takeover;

use anyhow::Context as _;

use crate::model::Wall;

use super::args::{Plan, Scenario};
use super::ceiling::{self, Load, Program};
use super::measure::{fsync_ms, settled_rss_mb};
use super::report::{Order, Report};
use super::rig::Bench;
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
    let raw = match plan.ceiling || plan.scenario == Scenario::Ceiling {
        true => Some(Program::open(site, bench.producer(), load(plan)).await?),
        false => None,
    };
    bench.warm_up(raw.as_ref()).await?;
    let mut ran = Vec::new();
    let of_rates = raw.as_ref().filter(|_| plan.ceiling && plan.scenario != Scenario::Steady);
    if let Some(raw) = of_rates {
        bench.bar.set_message("ceiling");
        ran = raw.all_ways().await?;
    }
    let mut late = Vec::new();
    let is_late = plan.ceiling && plan.scenario == Scenario::Steady;
    if let Some(raw) = raw.as_ref().filter(|_| is_late) {
        bench.bar.set_message("ceiling");
        late = raw.paced(plan.rate, steady::AHEAD).await?;
    }
    let is_http = plan.ceiling && plan.scenario == Scenario::Http;
    let client = if is_http { Some(bench.client_alone().await?) } else { None };
    bench.bar.set_message("rest");
    bench.idle_mb = settled_rss_mb(plan.rest).await;
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
        Scenario::SlowStore => slow_store::slow_store(bench).await?,
        Scenario::Gate => gate::gate(bench).await?,
        Scenario::Takeover => takeover::takeover(bench).await?,
        Scenario::List => list::list(bench, load(plan)).await?,
        Scenario::Ceiling => {
            let raw = raw.as_ref().context("the raw program is there")?;
            ceiling::alone(bench, raw).await?
        }
    };
    if report.rss_mb.is_none() {
        report.at_rest(settled_rss_mb(plan.rest).await, bench.idle_mb);
    }
    report.client_calls_per_second = client;
    report.order = order(bench)?;
    if let Some(raw) = raw.as_ref().filter(|_| is_late) {
        bench.bar.set_message("ceiling");
        late.push(raw.paced_again(&late, plan.rate, steady::AHEAD).await?);
        report.late_beside(late);
    }
    if let Some(raw) = of_rates {
        bench.bar.set_message("ceiling");
        ran.push(raw.again(&ran).await?);
        report.beside(ran);
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
    let order = bench.seen.order();
    let Order { out_of_order, overlapped, .. } = order;
    anyhow::ensure!(
        out_of_order + overlapped == 0,
        "{out_of_order} tasks ran after one that stands behind them in their queue, and {overlapped} began before the one \
         before them had ended: that must never be"
    );
    Ok(Some(order))
}
