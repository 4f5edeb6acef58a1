//! Faults that are neither a loss nor a cut: a wiped disk, moved offsets, a lost topic, bad handlers, a wrong clock.

use anyhow::{Context as _, Result};

use super::taken_in;
use crate::clock::{self, sleep_ms, until_wall, wall_ms};
use crate::cluster;
use crate::event::HANDLERS;
use crate::offsets;
use crate::plan::{Mood, Offsets};
use crate::say;
use crate::stage::Stage;

/// An instance says of jumps above this, in milliseconds, and measures them as well as this.
const JUMP_MS: i64 = 1_000;
/// When a shard next does something it finds the jump, and breaks off its calls: within the lease, or that has lapsed.
const JUMP_FOUND_MS: i64 = 6_000;
/// A load that is paused may be sending one event still, for so long in milliseconds.
const LAST_SENT_MS: i64 = 1_000;
/// A shard that runs asks for the end of its log every half minute.
const STOPPED_SECONDS_MAX: u64 = 90;

/// Waits for what a person has to wait for before anything else may be lost; not where the server is started with nothing, which is
/// never well.
pub(super) async fn wipe(
    stage: &mut Stage<'_>,
    name: &str,
    empty: bool,
    repaired: Option<&str>,
    for_ms: i64,
) -> Result<()> {
    let from = wall_ms();
    cluster::act(&["kill", name]).await?;
    until_wall(from + for_ms).await;
    cluster::act(&["wipe", name]).await?;
    if let Some(node) = repaired {
        let begun = wall_ms();
        cluster::act(&["repair", node, "--keyspace", &stage.site.keyspace()]).await?;
        say::line(format_args!("   {node} repaired in {:.1} s", (wall_ms() - begun) as f64 / 1_000.0));
    }
    if empty {
        cluster::act(&["start", name, "--empty"]).await?;
        stage.fault(format!("{name} lost its disk and was started with nothing"), from);
        return Ok(());
    }
    cluster::act(&["start", name]).await?;
    stage.until_well().await?;
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

/// Nothing is sent meanwhile: what a broker had acknowledged and nobody had read would be gone with the topic, whatever the product
/// does.
pub(super) async fn renew_topic(stage: &mut Stage<'_>, stopped: bool) -> Result<()> {
    stage.pause_load(true);
    sleep_ms(LAST_SENT_MS).await;
    taken_in(stage).await?;
    let from = wall_ms();
    let names = stage.names();
    if stopped {
        for name in &names {
            stage.leave(name)?;
        }
        stage.until_all_left().await;
    }
    stage.site.renew_schedule_topic().await?;
    stage.producer.sent.begin_generation();
    if stopped {
        for name in &names {
            stage.start(name).await?;
        }
    }
    clock::until("every shard is stopped", STOPPED_SECONDS_MAX, || stage.watch.all_stopped()).await?;
    say::line(format_args!("   every shard is stopped after {:.1} s", (wall_ms() - from) as f64 / 1_000.0));
    let asked = names.first().context("an instance")?;
    stage.dueline(asked, &["shard", "reset", "--all", "--reason", "chaos"]).await?;
    stage.until_all_run().await?;
    stage.fault("the topic made anew".to_owned(), from);
    stage.pause_load(false);
    Ok(())
}

/// The other handler stays as it is.
pub(super) async fn handlers(stage: &mut Stage<'_>, mood: Mood, for_ms: i64) {
    let from = wall_ms();
    stage.sink.set_mood(mood);
    until_wall(from + for_ms).await;
    stage.sink.set_mood(Mood::Willing);
    stage.fault(format!("handler {} {mood:?}", HANDLERS[0]), from);
}

pub(super) async fn step_clock(stage: &mut Stage<'_>, victim: &str, by_ms: i64, for_ms: i64) -> Result<()> {
    let (from, logged) = (wall_ms(), stage.logged(victim)?);
    stage.set_clock(victim, by_ms)?;
    until_wall(from + for_ms).await;
    let told = stage.jumps_since(victim, logged)?;
    // Within what it takes for a jump it has nothing to say.
    let is_told = !told.is_empty() || by_ms.abs() <= JUMP_MS;
    let is_so = is_told && told.iter().all(|told_ms| (told_ms - by_ms).abs() <= JUMP_MS);
    if !is_so {
        stage.wrong(format!(
            "the clock of {victim} was moved by {by_ms} ms, and it says of jumps of {told:?} ms"
        ));
    }
    let back = wall_ms();
    stage.set_clock(victim, 0)?;
    if by_ms.abs() > JUMP_MS {
        for jumped in [from, back] {
            stage.halted_until(victim, jumped, jumped + JUMP_FOUND_MS);
        }
    }
    stage.fault(format!("the clock of {victim} {by_ms:+} ms"), from);
    Ok(())
}
