//! Instances drained before something is done to where they run, by the command line of the product, as a person would; and
//! several stopped at once, as a supervisor does that needs fewer.

use anyhow::{Context as _, Result};

use crate::clock::{self, sleep_ms, until_wall, wall_ms};
use crate::cluster::{self, BROKERS, NODES};
use crate::course::HandOver;
use crate::say;
use crate::stage::Stage;

use super::places::is_in;

/// An instance that starts where all is drained knows of it within this.
const KNOWN_SECONDS_MAX: u64 = 60;

/// One instance: drained, left so for a while, undrained.
pub(super) async fn drain(stage: &mut Stage<'_>, victim: &str, for_ms: i64) -> Result<()> {
    let asked = other(stage, |name| name == victim)?;
    let (from, is_its) = (wall_ms(), |name: &str| name == victim);
    empty(stage, &asked, &[victim], &format!("{victim} drained"), is_its).await?;
    until_wall(from + for_ms).await;
    expect_none(stage, victim, is_its);
    fill(stage, &asked, &[victim], &format!("{victim} undrained")).await?;
    stage.fault(format!("{victim} drained"), from);
    Ok(())
}

/// A data centre is emptied as docs/operations.md says: its instances are drained and stopped, its brokers and nodes stopped in good
/// order, one after the other. Then it is lost and comes back, and when nothing is missing any more its instances are started, and get
/// their shards again.
pub(super) async fn evacuate(stage: &mut Stage<'_>, dc: &str, for_ms: i64) -> Result<()> {
    let asked = other(stage, |name| is_in(name, dc))?;
    let victims: Vec<String> = stage.names().into_iter().filter(|name| is_in(name, dc)).collect();
    let (from, is_its) = (wall_ms(), |name: &str| is_in(name, dc));
    empty(stage, &asked, &["--dc", dc], &format!("{dc} drained"), is_its).await?;
    let before = stage.watch.hand_overs().len();
    let off = wall_ms();
    for name in &victims {
        stage.leave(name)?;
    }
    stage.until_all_left().await;
    for server in BROKERS.iter().chain(&NODES).filter(|server| cluster::dc_of(server) == dc) {
        cluster::act(&["stop", server]).await?;
    }
    say::line(format_args!("   {dc} is off after {:.1} s", (wall_ms() - off) as f64 / 1_000.0));
    let lost = wall_ms();
    cluster::act(&["lose", dc]).await?;
    until_wall(lost + for_ms).await;
    cluster::act(&["heal", dc]).await?;
    stage.until_well().await?;
    for name in &victims {
        stage.start(name).await?;
    }
    for name in &victims {
        stage.until_drained(name, KNOWN_SECONDS_MAX).await?;
    }
    expect_none(stage, dc, is_its);
    let moved = stage.watch.hand_overs().len() - before;
    if moved > 0 {
        stage.wrong(format!("{moved} shards changed hands while {dc}, which had none, was off"));
    }
    fill(stage, &asked, &["--dc", dc], &format!("{dc} undrained")).await?;
    stage.fault(format!("{dc} evacuated"), from);
    Ok(())
}

/// Drains a place and waits, as the command does, until its shards run elsewhere.
async fn empty(
    stage: &mut Stage<'_>,
    asked: &str,
    place: &[&str],
    what: &str,
    is_its: impl Fn(&str) -> bool,
) -> Result<()> {
    let before = stage.watch.hand_overs().len();
    let begun = wall_ms();
    stage.dueline(asked, &[&["instance", "drain", "--reason", "chaos"], place].concat()).await?;
    // The watch looks ten times a second: it may have seen less than the command.
    clock::until("every shard runs elsewhere", 10, || {
        let owners = stage.watch.owners();
        owners.len() == crate::site::SHARDS as usize && !owners.values().any(|owner| is_its(&owner.instance))
    })
    .await?;
    note(stage, what, before, begun);
    Ok(())
}

/// Undoes a drain and waits until everybody has shards.
async fn fill(stage: &mut Stage<'_>, asked: &str, place: &[&str], what: &str) -> Result<()> {
    let before = stage.watch.hand_overs().len();
    let begun = wall_ms();
    stage.dueline(asked, &[&["instance", "undrain"], place].concat()).await?;
    stage.until_all_run().await?;
    note(stage, what, before, begun);
    Ok(())
}

/// Several are stopped before the group has given the shards of the first to others; then they come back together.
pub(super) async fn shrink(stage: &mut Stage<'_>, names: &[String], apart_ms: i64) -> Result<()> {
    let what = format!("{}, {apart_ms} ms apart,", names.join(", "));
    // Some may have joined just now.
    stage.until_all_run().await?;
    let (before, from) = (stage.watch.hand_overs().len(), wall_ms());
    for name in names {
        stage.leave(name)?;
        sleep_ms(apart_ms).await;
    }
    stage.until_all_left().await;
    stage.until_all_run().await?;
    note(stage, &format!("{what} stopped"), before, from);
    let (before, back) = (stage.watch.hand_overs().len(), wall_ms());
    for name in names {
        stage.start(name).await?;
    }
    stage.until_all_run().await?;
    note(stage, &format!("{what} started again"), before, back);
    stage.fault(format!("{what} stopped and started again"), from);
    Ok(())
}

/// How the shards changed hands since then.
pub(super) fn note(stage: &mut Stage<'_>, what: &str, before: usize, begun: i64) {
    let times = stage.watch.hand_overs().split_off(before);
    let longest_ms = times.iter().copied().max();
    let (shards, took_ms) = (times.len(), wall_ms() - begun);
    let told = longest_ms.unwrap_or(0);
    say::line(format_args!(
        "   {what}: {shards} changes of hands in {:.1} s, without a running owner for up to {told} ms",
        took_ms as f64 / 1_000.0
    ));
    stage.hand_overs.push(HandOver { what: what.to_owned(), shards, longest_ms, took_ms });
}

fn expect_none(stage: &mut Stage<'_>, what: &str, is_its: impl Fn(&str) -> bool) {
    let owners = stage.watch.owners();
    let theirs: Vec<u32> =
        owners.iter().filter(|(_, owner)| is_its(&owner.instance)).map(|(shard, _)| *shard).collect();
    if !theirs.is_empty() {
        stage.wrong(format!("{what} is drained and runs the shards {theirs:?}"));
    }
}

/// Somebody who is not in it, to be asked.
fn other(stage: &Stage<'_>, is_its: impl Fn(&str) -> bool) -> Result<String> {
    stage.names().into_iter().find(|name| !is_its(name)).context("an instance that is not to be drained")
}
