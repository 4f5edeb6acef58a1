//! The `takeover` scenario: how long shards are without an owner that runs them, with tasks pending.
//!
//! A node comes, one stops in order, and one is lost: its runtime ends in the middle of everything, so that it lets go
//! of no lease; its Kafka client leaves the group, which that of a killed process would not.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::node::Node;

use super::super::report::{Report, Takeover};
use super::super::rig::Bench;
use super::super::seen::wall_ms;

pub(super) async fn takeover(bench: &mut Bench<'_>) -> anyhow::Result<Report> {
    let (tasks, lead) = (bench.plan.tasks, bench.plan.lead);
    let span = bench.begin()?;
    let (numbers, due) = (bench.numbers(tasks), wall_ms() + lead.as_millis() as i64);
    let stored = numbers.end;
    tokio::try_join!(bench.produce(numbers, |_| due), bench.until_stored(stored))?;
    let start = Instant::now();
    let second = bench.builder("bench-2")?.start().await.context("the second node")?;
    shared(bench, &second).await?;
    let joined_ms = ms(start);
    let start = Instant::now();
    if let Some(first) = bench.replace(second) {
        let nodes = [bench.node()];
        let (_, running) = tokio::join!(first.stop(), bench.until_running(&nodes));
        running?;
    }
    let stopped_ms = ms(start);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let builder = bench.builder("bench-3")?;
    let third = runtime.spawn(builder.start()).await?.context("the third node")?;
    shared(bench, &third).await?;
    let start = Instant::now();
    drop(third);
    runtime.shutdown_background();
    bench.until_running(&[bench.node()]).await?;
    let lost_ms = ms(start);
    let left = due - wall_ms();
    anyhow::ensure!(
        left > 0,
        "the tasks were due {} ms before the last takeover was over, and wait for it: give --lead more than {} seconds",
        -left,
        lead.as_secs()
    );
    bench.bar.set_message("due soon");
    tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
    bench.until_called("run", tasks).await?;
    bench.until_empty().await?;
    let drained = (bench.seen.last_us() - due * 1_000).max(1) as f64 / 1e6;
    let (tasks_per_second, takeover) =
        (tasks as f64 / drained, Some(Takeover { joined_ms, stopped_ms, lost_ms }));
    let report = Report { tasks, tasks_per_second, takeover, ..Report::default() };
    Ok(bench.end(span, report).without_shares().late(&bench.seen.take_late()))
}

/// Until the other runs some shards, and both together run all of them.
async fn shared(bench: &Bench<'_>, other: &Node) -> anyhow::Result<()> {
    bench.until_running_some(other).await?;
    bench.until_running(&[bench.node(), other]).await
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
