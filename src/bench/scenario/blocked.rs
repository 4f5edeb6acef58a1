//! The `blocked` scenario: a steady load without and with many tasks behind one head.

use crate::model::{Change, Gate, QueueName, Target, Wall};
use crate::runtime::gates::Author;

use super::super::measure::settled_rss_mb;
use super::super::report::Report;
use super::super::rig::Bench;
use super::super::seen::wall_ms;
use super::steady;

pub(super) async fn blocked(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let before = steady::steady(bench).await?;
    let (plan, gates) = (bench.plan, bench.node().service().gates());
    let queue = QueueName::new(&format!("q-{}", plan.queues))?;
    let gate = Gate::pause(Target::Queue(queue), "bench".into());
    gates.change(Wall(wall_ms()), Author::default(), Change::GateSet(gate)).await?;
    // In force everywhere before the first of them is due.
    bench.pause().await;
    let behind = bench.numbers(plan.tasks);
    let stored = behind.end;
    bench.send(behind.map(|task| plan.message_of(plan.queues, task, wall_ms()))).await?;
    bench.until_stored(stored).await?;
    // Beside tasks that wait, not beside what the store still has to do for their intake.
    settled_rss_mb(bench.plan.rest).await;
    let after = steady::steady(bench).await?;
    let called = bench.seen.calls();
    anyhow::ensure!(
        called == after.tasks,
        "{called} calls for {} tasks: some came through the gate",
        after.tasks
    );
    let (lateness_before_ms, tasks_behind) = (Some(before.lateness_ms), Some(plan.tasks));
    Ok(Report { lateness_before_ms, tasks_behind, ..after })
}
