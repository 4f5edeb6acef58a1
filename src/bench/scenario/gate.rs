//! The `gate` scenario: how long calls still go out after a gate was asked for, on three nodes under a steady load.

use std::time::Duration;

use anyhow::Context as _;

use crate::model::{Change, Gate, Target, Wall};
use crate::node::Node;
use crate::runtime::gates::Author;

use super::super::report::{GateEffect, Report};
use super::super::rig::Bench;
use super::super::seen::{wall_ms, wall_us};
use super::steady;

/// Without a call for so long the gate is taken to be in force on all nodes: a busy one calls a hundred times in it.
const QUIET: Duration = Duration::from_millis(1_500);
/// A gate that is not in force by then has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two rounds the load runs.
const OPEN: Duration = Duration::from_secs(2);

pub(super) async fn gate(bench: &Bench<'_>) -> anyhow::Result<Report> {
    let mut others = Vec::new();
    if bench.site.dir.is_none() {
        for name in ["bench-2", "bench-3"] {
            others.push(bench.builder(name)?.start().await.with_context(|| format!("the node {name}"))?);
        }
        for other in &others {
            bench.until_running_some(other).await?;
        }
    }
    let nodes: Vec<&Node> = others.iter().chain([bench.node()]).collect();
    bench.until_running(&nodes).await?;
    let rounds = async {
        let lasts = bench.plan.seconds.saturating_sub(steady::AHEAD.as_secs());
        let until = tokio::time::Instant::now() + Duration::from_secs(lasts);
        tokio::time::sleep(steady::AHEAD).await;
        let mut effects = Vec::new();
        while effects.is_empty() || tokio::time::Instant::now() < until {
            tokio::time::sleep(OPEN).await;
            effects.push(round(bench).await?);
        }
        anyhow::Ok(effects)
    };
    let (report, effects) = tokio::try_join!(steady::steady(bench), rounds)?;
    let nodes = nodes.len();
    for other in others {
        other.stop().await;
    }
    let longest = |of: fn(&(f64, f64)) -> f64| effects.iter().map(of).fold(0.0, f64::max);
    let gate = GateEffect {
        nodes,
        rounds: effects.len(),
        answered_ms: longest(|(answered, _)| *answered),
        closed_ms: longest(|(_, closed)| *closed),
    };
    // How late tasks are says how long the gate was closed.
    let Report { tasks, tasks_per_second, .. } = report;
    Ok(Report { tasks, tasks_per_second, gate: Some(gate), ..Report::default() })
}

/// A gate on everything is asked for and cleared: milliseconds from the question until the answer, and until the last call.
async fn round(bench: &Bench<'_>) -> anyhow::Result<(f64, f64)> {
    let gates = bench.node().service().gates();
    let asked_us = wall_us();
    let ms = |us: i64| us.max(0) as f64 / 1e3;
    let set = Change::GateSet(Gate::pause(Target::All, "bench".into()));
    gates.change(Wall(wall_ms()), Author::default(), set).await?;
    let answered = ms(wall_us() - asked_us);
    let quiet_us = i64::try_from(QUIET.as_micros())?;
    while wall_us() - bench.seen.last_us().max(asked_us) < quiet_us {
        anyhow::ensure!(
            ms(wall_us() - asked_us) < PATIENCE.as_secs_f64() * 1e3,
            "calls still go out {} s after a gate on everything was set",
            PATIENCE.as_secs()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let closed = ms(bench.seen.last_us() - asked_us);
    let cleared = Change::GateCleared(Target::All, "bench".into());
    gates.change(Wall(wall_ms()), Author::default(), cleared).await?;
    Ok((answered, closed))
}
