//! Faults that are neither a loss nor a cut: full disks, a wiped one, moved offsets, bad handlers, a wrong clock.

use anyhow::Result;

use crate::clock::{until_wall, wall_ms};
use crate::cluster;
use crate::offsets;
use crate::plan::{Mood, Offsets};
use crate::stage::Stage;

/// An instance tells whole seconds, some of them late.
const CLOCK_TOLD_MS: i64 = 3_000;

/// The server gets a small disk first, for which it is started anew.
pub(super) async fn fill_disk(stage: &mut Stage<'_>, name: &str, for_ms: i64) -> Result<()> {
    let from = wall_ms();
    cluster::act(&["confine", name]).await?;
    stage.until_all_run().await?;
    let full = wall_ms();
    cluster::act(&["fill", name]).await?;
    until_wall(full + for_ms).await;
    cluster::act(&["empty", name]).await?;
    cluster::act(&["start", name]).await?;
    stage.fault(format!("{name}: disk full"), from);
    Ok(())
}

pub(super) async fn wipe_node(stage: &mut Stage<'_>, name: &str, for_ms: i64) -> Result<()> {
    let from = wall_ms();
    cluster::act(&["kill", name]).await?;
    until_wall(from + for_ms).await;
    cluster::act(&["wipe", name]).await?;
    cluster::act(&["start", name]).await?;
    stage.fault(format!("{name} lost its disk and was replaced"), from);
    Ok(())
}

pub(super) async fn move_offsets(stage: &mut Stage<'_>, to: Offsets) -> Result<()> {
    let from = wall_ms();
    let names = stage.names();
    for name in &names {
        stage.leave(name)?;
    }
    stage.until_all_left().await;
    let (kafka, group, topic) =
        (stage.site.options.kafka.clone(), stage.site.group(), stage.site.schedule_topic());
    tokio::task::spawn_blocking(move || offsets::move_all(&kafka, &group, &topic, to)).await??;
    for name in &names {
        stage.start(name).await?;
    }
    stage.fault(format!("offsets moved to the {to:?}"), from);
    Ok(())
}

pub(super) async fn handlers(stage: &mut Stage<'_>, mood: Mood, for_ms: i64) {
    let from = wall_ms();
    stage.sink.set_mood(mood);
    until_wall(from + for_ms).await;
    stage.sink.set_mood(Mood::Willing);
    stage.fault(format!("handlers {mood:?}"), from);
}

pub(super) async fn step_clock(stage: &mut Stage<'_>, victim: &str, by_ms: i64, for_ms: i64) -> Result<()> {
    let from = wall_ms();
    stage.set_clock(victim, by_ms)?;
    until_wall(from + for_ms).await;
    let told = stage.clock_of(victim).await?;
    if (told - wall_ms() - by_ms).abs() > CLOCK_TOLD_MS {
        stage.wrong(format!("the clock of {victim} did not move: it is {told} there"));
    }
    stage.set_clock(victim, 0)?;
    stage.fault(format!("the clock of {victim} {by_ms:+} ms"), from);
    Ok(())
}
