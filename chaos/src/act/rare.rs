//! Tasks that few nodes have, taken in before one of those loses its disk: they are lost unless what takes its place took their rows.
//!
//! Five nodes have a copy of each row, and three are a quorum. A loses its disk, B is the other node of its data centre, C is one of
//! another, D and E are the rest. Who has the rows of these tasks:
//!
//! ```text
//!                           A     B     C     D     E
//!   they are taken in      rows  rows  rows  down  down   a quorum is all three, and none of them keeps hints
//!   D and E are back       rows  rows  rows   -     -     each quorum has one of the three
//!   A loses its disk       gone  rows  rows   -     -     each quorum of the four has B or C
//!   A is its replacement   rows  rows  rows   -     -     it takes each row of one node, the nearest: of B
//!   B and C are down       rows  down  down   -     -     each quorum needs A, and A alone has them
//! ```
//!
//! D and E hear nothing of them before that. Nobody repairs the tables, and a quorum that reads a row gives it to those of it that lack
//! it, but nobody reads these: they are due far beyond what owners read ahead, and no event is about them. Nor can D and E stay
//! down until A has its rows: B and C are no quorum, without which nothing runs, and Cassandra lets no node join.
//!
//! With `--nearest repaired` B is behind, and gets the rows back before A takes its own of it; with `behind` it does not, and the tasks
//! are lost. B and C change places with D and E:
//!
//! ```text
//!                           A     B     C     D     E
//!   they are taken in      rows  down  down  rows  rows
//!   B and C are back       rows   -     -    rows  rows
//!   A loses its disk       gone   -     -    rows  rows
//!   B is repaired          gone  rows  rows  rows  rows   each node that is up gets what another has
//!   A is its replacement   rows  rows  rows  rows  rows   without the repair A, B and C have none
//!   D and E are down       rows  rows  rows  down  down   the quorum that is left has them, or nobody
//! ```
//!
//! That shows what the repair is for, and no more: what A took is shown where B and C are lost.
//!
//! All that was written while A was away is on three of the other four at least, so D or E has it when B and C are down.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use super::{cancel, rest, taken_in};
use crate::clock::{self, until_wall, wall_ms};
use crate::cluster;
use crate::event::Event;
use crate::ledger::Key;
use crate::say;
use crate::stage::Stage;

/// Their queues, and what the names of those begin with.
const RARE_QUEUES: usize = 60;
pub(crate) const RARE_QUEUE: &str = "rare-";
/// They are due so long after they were asked for, in milliseconds: longer than a replacement takes, with all that is waited for
/// around it.
const DUE_AFTER_MS: i64 = 3_600_000;
/// Moved to now, all of them have run within this.
const RUN_SECONDS_MAX: u64 = 120;
/// What a coordinator would keep for nodes that are down, it drops.
const NO_HINTS: &str = "hinted_handoff_enabled=false";
/// Nodes know who came and who went after this, in milliseconds. Until then requests wait for who is gone.
const KNOWN_MS: i64 = 10_000;

/// Has the nodes `by` take tasks in while the nodes `down` are down.
pub(super) async fn schedule(
    stage: &mut Stage<'_>,
    tasks: usize,
    by: &[String],
    down: &[String],
) -> Result<()> {
    let from = wall_ms();
    for name in by {
        cluster::act(&["stop", name]).await?;
        cluster::act(&["start", name, "--set", NO_HINTS]).await?;
        rest(stage, KNOWN_MS).await.with_context(|| format!("{name} was restarted without hints"))?;
    }
    each("kill", down).await?;
    rest(stage, KNOWN_MS).await.with_context(|| format!("{} are down", down.join(", ")))?;
    take_in(stage, tasks).await?;
    each("start", down).await?;
    stage.fault(format!("{} down without hints", down.join(", ")), from);
    Ok(())
}

/// When this ends the rows of each are written, at every node of the only quorum there is.
async fn take_in(stage: &mut Stage<'_>, tasks: usize) -> Result<()> {
    let begins = wall_ms();
    for n in 0..tasks {
        let (queue, id) = (format!("{RARE_QUEUE}{begins}-{}", n % RARE_QUEUES), format!("t-{n}"));
        let due = begins + DUE_AFTER_MS + n as i64;
        stage.producer.send(&Event::schedule(&queue, &id, Some(due), format!(r#"{{"n":{n}}}"#))).await?;
        stage.rare.push((queue, id));
    }
    taken_in(stage).await
}

/// Kills the nodes `down` for so long at least, and moves the tasks to now meanwhile. What is moved is looked up by its id, and read
/// where it lies: an owner that finds neither has lost it.
pub(super) async fn run(stage: &mut Stage<'_>, down: &[String], for_ms: i64) -> Result<()> {
    let rare: BTreeSet<Key> = stage.rare.iter().cloned().collect();
    let from = wall_ms();
    each("kill", down).await?;
    let gone = wall_ms();
    for (queue, id) in &rare {
        stage.producer.send(&Event::reschedule(queue, id, wall_ms())).await?;
    }
    stage.producer.settled().await?;
    stage.rare.clear();
    let all_ran = || stage.sink.calls.missing(&rare) == 0;
    // Which of them are lost is the checker's to say.
    match clock::until("all that few nodes had has run", RUN_SECONDS_MAX, all_ran).await {
        Ok(()) => say::line(format_args!(
            "   {} tasks from before the wipe ran within {:.1} s",
            rare.len(),
            (wall_ms() - gone) as f64 / 1_000.0
        )),
        Err(error) => say::line(error),
    }
    until_wall(from + for_ms).await;
    // Starting takes its time; from here on they may be read from others.
    stage.gone.push((down.to_vec(), gone, wall_ms()));
    each("start", down).await?;
    stage.fault(format!("{} killed", down.join(", ")), from);
    Ok(())
}

/// Cancels the tasks when the step that would run them did not come: they are due when the run is over, and not lost.
pub(crate) async fn cancel_rare(stage: &mut Stage<'_>) -> Result<()> {
    let rare = std::mem::take(&mut stage.rare);
    if rare.is_empty() {
        return Ok(());
    }
    cancel(stage, &rare).await
}

/// Does the same to several servers at once.
async fn each(verb: &str, names: &[String]) -> Result<()> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    cluster::act(&[&[verb], &names[..]].concat()).await
}
