//! The steps of a plan, done to a run under way, one after the other.

use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use crate::clock::{self, sleep_ms, until_wall, wall_ms};
use crate::event::Event;
use crate::ledger::Key;
use crate::network::Way;
use crate::plan::{Cut, Plan, Server, Step};
use crate::say;
use crate::stage::Stage;
use crate::takeover;
use dueline::testing::rng::Rng;

mod disks;
mod drains;
mod places;
mod rare;
mod refusals;
mod versions;
mod ways;

pub(crate) use places::MEANWHILE_QUEUE;
pub(crate) use rare::{RARE_QUEUE, cancel_rare};

/// A shard whose owner was killed is waited for so long.
const TAKEOVER_SECONDS_MAX: u64 = 120;
/// All is taken in within this.
const TAKEN_IN_SECONDS_MAX: u64 = 60;
/// Queues that the tasks of [`Step::LoseAll`] are in.
const LOST_QUEUES: usize = 40;
/// Those tasks are due over so long, in milliseconds.
const LOST_DUE_OVER_MS: i64 = 5_000;
/// Tasks that are cancelled when a cut begins, and when the first of them is due, in milliseconds after they are asked
/// for: the checker takes what was acknowledged five seconds before as known.
const DOOMED: usize = 120;
const DOOMED_DUE_MS: i64 = 7_500;
/// The last cancels come so long before instances start again, in milliseconds.
const LAST_CANCELS_MS: i64 = 500;
/// The stream of a seed that decides which tasks are cancelled.
const LOSSES: u64 = 3;

/// Does all steps. Takeovers are added to `ledger` after each kill; `done` kills are in it already.
pub(crate) async fn all(stage: &mut Stage<'_>, plan: &Plan, ledger: &Path, done: u32) -> Result<()> {
    let mut storm_at = wall_ms();
    for (number, step) in plan.steps.iter().enumerate() {
        say::line(format_args!("{}. {step}", number + 1));
        let number = u32::try_from(number)?;
        match step {
            Step::Kill { victim, down_ms, .. } => {
                kill(stage, victim, done + number, *down_ms, ledger).await?;
            }
            Step::Freeze { victim, for_ms, .. } => freeze(stage, victim, *for_ms).await?,
            Step::Cut { victim, from, how, for_ms, .. } => {
                cut(stage, victim, (*from, *how), *for_ms).await?;
            }
            Step::Join { name, after_ms } => {
                storm_at += after_ms;
                until_wall(storm_at).await;
                stage.start(name).await?;
                stage.mark(format!("{name} joins"));
            }
            Step::Leave { name, after_ms } => {
                storm_at += after_ms;
                until_wall(storm_at).await;
                stage.leave(name)?;
                stage.mark(format!("{name} leaves"));
            }
            Step::LoseDc { dc, whole, further, for_ms, .. } => {
                places::lose_dc(stage, dc, *whole, further, *for_ms).await?;
            }
            Step::LoseServers { names, how, for_ms, .. } => {
                places::lose_servers(stage, names, *how, *for_ms).await?;
            }
            Step::Wire { from, to, how, for_ms, .. } => {
                places::wire(stage, (from, to), *how, *for_ms).await?;
            }
            Step::Drain { victim, for_ms, .. } => drains::drain(stage, victim, *for_ms).await?,
            Step::Evacuate { dc, for_ms, .. } => drains::evacuate(stage, dc, *for_ms).await?,
            Step::Restart { name, .. } => places::restart(stage, name).await?,
            Step::AddServer { name, .. } => places::add_server(stage, name).await?,
            Step::DealPartitions { .. } => places::deal_partitions(stage).await?,
            Step::Shrink { names, apart_ms, .. } => drains::shrink(stage, names, *apart_ms).await?,
            Step::Change { name, to, .. } => versions::change(stage, name, *to).await?,
            Step::SlowDisk { name, ms, for_ms, .. } => disks::slow(stage, name, *ms, *for_ms).await?,
            Step::FillDisk { name, for_ms, .. } => disks::fill(stage, name, *for_ms).await?,
            Step::WipeServer { name, empty, repaired, for_ms, .. } => {
                ways::wipe(stage, name, *empty, repaired.as_deref(), *for_ms).await?;
            }
            Step::ScheduleRare { tasks, by, down, .. } => rare::schedule(stage, *tasks, by, down).await?,
            Step::RunRare { down, for_ms, .. } => rare::run(stage, down, *for_ms).await?,
            Step::MoveOffsets { to, .. } => ways::move_offsets(stage, *to).await?,
            Step::RenewTopic { stopped, .. } => ways::renew_topic(stage, *stopped).await?,
            Step::Handlers { mood, for_ms, .. } => ways::handlers(stage, *mood, *for_ms).await,
            Step::MoveClock { victim, by_ms, for_ms, .. } => {
                ways::step_clock(stage, victim, *by_ms, *for_ms).await?;
            }
            Step::LoseAll { tasks, due_ms, down_ms, .. } => {
                let mut dice = Rng::of_stream(stage.options.seed, LOSSES + 1_000 * u64::from(number));
                let loss = Loss { round: number, tasks: *tasks, due_ms: *due_ms, down_ms: *down_ms };
                lose_all(stage, &loss, &plan.instances, &mut dice).await?;
            }
        }
        if let Some(rest_ms) = step.rest_ms() {
            rest(stage, rest_ms).await.with_context(|| format!("after {step}"))?;
            storm_at = wall_ms();
        }
    }
    Ok(())
}

async fn rest(stage: &mut Stage<'_>, rest_ms: i64) -> Result<()> {
    stage.until_all_run().await?;
    sleep_ms(rest_ms).await;
    // Calm has to last: what moved in between is waited for too.
    stage.until_all_run().await
}

async fn kill(stage: &mut Stage<'_>, victim: &str, number: u32, down_ms: i64, ledger: &Path) -> Result<()> {
    let from = wall_ms();
    stage.kill(victim, number)?;
    sleep_ms(down_ms).await;
    stage.start(victim).await?;
    let taken =
        clock::until("all its shards run again", TAKEOVER_SECONDS_MAX, || stage.watch.gaps_closed()).await;
    stage.fault(format!("{victim} killed"), from);
    let gaps = stage.watch.gaps();
    let told = gaps.iter().filter_map(|one| one.gap_ms).max().unwrap_or(0);
    say::line(format_args!("   {} shards without a running owner for up to {told} ms", gaps.len()));
    takeover::append(ledger, &gaps)?;
    stage.takeovers.extend(gaps);
    if let Err(error) = taken {
        stage.wrong(format!("after the kill of {victim}: {error}"));
    }
    Ok(())
}

async fn freeze(stage: &mut Stage<'_>, victim: &str, for_ms: i64) -> Result<()> {
    let from = wall_ms();
    stage.signal(victim, Signal::STOP)?;
    sleep_ms(for_ms).await;
    stage.signal(victim, Signal::CONT)?;
    stage.fault(format!("{victim} frozen"), from);
    stage.halted(victim, from);
    Ok(())
}

async fn cut(stage: &mut Stage<'_>, victim: &str, (server, how): (Server, Cut), for_ms: i64) -> Result<()> {
    let way = match how {
        Cut::Silent => Way::Silent,
        Cut::Loud => Way::Reset,
    };
    let doomed = doomed(stage).await?;
    let from = wall_ms();
    stage.set_way(victim, server, way)?;
    cancel(stage, &doomed).await?;
    until_wall(from + for_ms).await;
    stage.set_way(victim, server, Way::Open)?;
    stage.fault(format!("{victim} cut from {server:?}, {how:?}"), from);
    if server == Server::Cassandra {
        stage.halted(victim, from);
    }
    Ok(())
}

/// Tasks that are taken in before a cut and will be cancelled when it begins, due from well after that on.
async fn doomed(stage: &Stage<'_>) -> Result<Vec<Key>> {
    let begins = wall_ms();
    let keys = (0..DOOMED).map(|n| (format!("doomed-{begins}-{}", n % LOST_QUEUES), format!("t-{n}")));
    let keys: Vec<Key> = keys.collect();
    for (n, (queue, id)) in keys.iter().enumerate() {
        let due = begins + DOOMED_DUE_MS + n as i64 * LOST_DUE_OVER_MS / DOOMED as i64;
        stage.producer.send(&Event::schedule(queue, id, Some(due), format!(r#"{{"n":{n}}}"#))).await?;
    }
    taken_in(stage).await?;
    Ok(keys)
}

/// Waits until everything acknowledged so far is applied.
async fn taken_in(stage: &Stage<'_>) -> Result<()> {
    stage.producer.settled().await?;
    let offsets = stage.producer.sent.last_offsets();
    clock::until("all tasks are taken in", TAKEN_IN_SECONDS_MAX, || stage.watch.applied(&offsets)).await
}

/// [`Step::LoseAll`], with its number.
#[derive(Clone, Copy, Debug)]
struct Loss {
    round: u32,
    tasks: usize,
    due_ms: i64,
    down_ms: i64,
}

async fn lose_all(stage: &mut Stage<'_>, loss: &Loss, instances: &[String], dice: &mut Rng) -> Result<()> {
    let due = wall_ms() + loss.due_ms;
    let keys: Vec<Key> = (0..loss.tasks)
        .map(|n| (format!("lost-{}-{}", loss.round, n % LOST_QUEUES), format!("t-{n}")))
        .collect();
    for (n, (queue, id)) in keys.iter().enumerate() {
        let due = due + n as i64 * LOST_DUE_OVER_MS / loss.tasks.max(1) as i64;
        stage.producer.send(&Event::schedule(queue, id, Some(due), format!(r#"{{"n":{n}}}"#))).await?;
    }
    taken_in(stage).await?;
    let from = wall_ms();
    stage.kill_all()?;
    anyhow::ensure!(wall_ms() < due, "this machine is too slow: tasks came due before all were killed");
    let calls = stage.sink.calls.count();
    let mut cancelled = keys;
    dice.shuffle(&mut cancelled);
    cancelled.truncate(loss.tasks / 2);
    // Half of the cancels at once, half just before somebody lives again.
    let late = cancelled.len() / 2;
    cancel(stage, &cancelled[late..]).await?;
    until_wall(from + loss.down_ms - LAST_CANCELS_MS).await;
    cancel(stage, &cancelled[..late]).await?;
    until_wall(from + loss.down_ms).await;
    anyhow::ensure!(stage.names().is_empty() && stage.sink.calls.count() == calls, "somebody lives");
    for name in instances {
        stage.start(name).await?;
    }
    stage.until_all_run().await.context("after all were killed")?;
    stage.fault("all instances killed".to_owned(), from);
    say::line(format_args!("   {} tasks were cancelled while nobody lived", cancelled.len()));
    // None of them was due when all were killed, so none may ever be called. The checker alone cannot know that of those
    // cancelled after they were due.
    stage.forbid(cancelled);
    until_wall(due + LOST_DUE_OVER_MS).await;
    Ok(())
}

/// Every cancel is acknowledged when this ends, while nobody lives.
async fn cancel(stage: &Stage<'_>, keys: &[Key]) -> Result<()> {
    for (queue, id) in keys {
        stage.producer.send(&Event::cancel(queue, id)).await?;
    }
    stage.producer.settled().await
}
