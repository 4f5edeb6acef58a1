//! What is done to data centres: lost, cut off, their servers and the network between them.

use anyhow::Result;

use super::refusals::{self, Away};
use super::{TAKEOVER_SECONDS_MAX, taken_in};
use crate::clock::{self, until_wall, wall_ms};
use crate::cluster::{self, BROKERS, NODES, QUORUM};
use crate::course::Recovery;
use crate::event::Event;
use crate::plan::{Down, Wire};
use crate::say;
use crate::site;
use crate::stage::Stage;

/// Without a quorum of nodes nothing starts any more after this: the lease, and what was on its way, in milliseconds.
const QUIET_AFTER_MS: i64 = 8_000;
/// Tasks that come due while no event can be taken in, their queues, and what the names of those begin with.
const MEANWHILE: i64 = 400;
const MEANWHILE_QUEUES: i64 = 40;
pub(crate) const MEANWHILE_QUEUE: &str = "meanwhile-";
/// The first is due so long after it was asked for, the last so long before the end, in milliseconds.
const MEANWHILE_FIRST_MS: i64 = 10_000;
const MEANWHILE_LAST_MS: i64 = 2_000;
/// An outage that is shorter has no room for them.
const MEANWHILE_MS_MIN: i64 = 30_000;

/// Loses a data centre, waits until the others run all its shards, and gets it back.
pub(super) async fn lose_dc(
    stage: &mut Stage<'_>,
    dc: &str,
    whole: bool,
    further: &[String],
    for_ms: i64,
) -> Result<()> {
    let victims: Vec<String> = stage.names().into_iter().filter(|name| is_in(name, dc)).collect();
    let (verb, back) = if whole { ("lose", "heal") } else { ("cut", "open") };
    let from = wall_ms();
    if whole {
        stage.kill_together(&victims, 0)?;
    }
    cluster::act(&[verb, dc]).await?;
    let taken = others_run(stage, dc).await;
    let took_ms = wall_ms() - from;
    say::line(format_args!("   all shards run elsewhere after {:.1} s", took_ms as f64 / 1_000.0));
    if let Err(error) = taken {
        stage.wrong(format!("{dc} lost: {error}"));
    }
    if !further.is_empty() {
        let own = NODES.iter().filter(|node| cluster::dc_of(node) == dc).count();
        lose_more(stage, further, own, Down::Killed, for_ms / 2).await?;
        if let Err(error) = others_run(stage, dc).await {
            stage.wrong(format!("{dc} lost, {} back: {error}", further.join(", ")));
        }
    }
    until_wall(from + for_ms).await;
    cluster::act(&[back, dc]).await?;
    stage.fault(format!("{dc} {}", if whole { "lost" } else { "cut off" }), from);
    stage.recoveries.push(Recovery { dc: dc.to_owned(), whole, from, to: wall_ms(), took_ms });
    for name in &victims {
        match whole {
            true => stage.start(name).await?,
            false => stage.halted(name, from),
        }
    }
    Ok(())
}

/// Waits until every shard runs outside of a data centre.
async fn others_run(stage: &Stage<'_>, dc: &str) -> Result<()> {
    let run = || {
        let owners = stage.watch.owners();
        owners.len() == site::SHARDS as usize && !owners.values().any(|owner| is_in(&owner.instance, dc))
    };
    clock::until(&format!("others run all shards of {dc}"), TAKEOVER_SECONDS_MAX, run).await
}

/// Kills servers, or freezes or slows them, and has them go on.
pub(super) async fn lose_servers(
    stage: &mut Stage<'_>,
    names: &[String],
    how: Down,
    for_ms: i64,
) -> Result<()> {
    lose_more(stage, names, 0, how, for_ms).await
}

/// The same where so many nodes are lost already.
async fn lose_more(
    stage: &mut Stage<'_>,
    names: &[String],
    lost: usize,
    how: Down,
    for_ms: i64,
) -> Result<()> {
    let length = for_ms.to_string();
    let (begin, end): (&[&str], &str) = match how {
        Down::Killed => (&["kill"], "start"),
        Down::Frozen => (&["freeze"], "thaw"),
        // It is over when this returns.
        Down::Slow => (&["slow", "--for-ms", &length], "thaw"),
    };
    let servers: Vec<&str> = names.iter().map(String::as_str).collect();
    let no_broker = BROKERS.iter().all(|broker| names.iter().any(|name| name == broker));
    if no_broker && for_ms >= MEANWHILE_MS_MIN {
        due_meanwhile(stage, for_ms).await?;
    }
    // Who cannot reach the store, or waits for it, does not hear in time how calls ended. One node less is no reason.
    let nodes = names.iter().filter(|name| name.starts_with("cassandra")).count();
    let no_quorum = nodes > 0 && lost + nodes > NODES.len() - QUORUM;
    let away = if no_quorum { Away::Quorum } else { Away::Brokers };
    let is_asked = how == Down::Killed && (no_quorum || no_broker);
    let mut asking = is_asked.then(|| refusals::ready(stage, away)).transpose()?;
    let from = wall_ms();
    cluster::act(&[begin, &servers].concat()).await?;
    let gone = wall_ms();
    if let Some(asking) = &mut asking {
        asking.begin(from + for_ms);
    }
    if no_quorum && how == Down::Killed {
        nothing_starts(stage, gone + QUIET_AFTER_MS, from + for_ms).await;
    }
    until_wall(from + for_ms).await;
    // Starting takes its time; what is measured of the fault ends here.
    stage.gone.push((names.to_vec(), gone, wall_ms()));
    cluster::act(&[&[end], &servers[..]].concat()).await?;
    stage.fault(format!("{} {}", names.join(", "), how.word()), from);
    if no_quorum {
        halt_all(stage, from);
    }
    match asking {
        Some(asking) => refusals::end(stage, asking).await,
        None => Ok(()),
    }
}

/// Without a quorum a start cannot be put on record, so nobody calls anything.
async fn nothing_starts(stage: &mut Stage<'_>, from: i64, to: i64) {
    until_wall(from.min(to)).await;
    let before = stage.sink.calls.count();
    until_wall(to).await;
    let calls = stage.sink.calls.count() - before;
    if calls > 0 {
        stage.wrong(format!("{calls} calls while there was no quorum of nodes"));
    }
}

fn halt_all(stage: &mut Stage<'_>, from: i64) {
    for name in stage.names() {
        stage.halted(&name, from);
    }
}

/// Tasks that are taken in now and due while no event can be: they have to run on time.
async fn due_meanwhile(stage: &Stage<'_>, for_ms: i64) -> Result<()> {
    let begins = wall_ms() + MEANWHILE_FIRST_MS;
    let over_ms = for_ms - MEANWHILE_FIRST_MS - MEANWHILE_LAST_MS;
    for n in 0..MEANWHILE {
        let (queue, id) = (format!("{MEANWHILE_QUEUE}{begins}-{}", n % MEANWHILE_QUEUES), format!("t-{n}"));
        let due = begins + n * over_ms / MEANWHILE;
        stage.producer.send(&Event::schedule(&queue, &id, Some(due), format!(r#"{{"n":{n}}}"#))).await?;
    }
    taken_in(stage).await?;
    if wall_ms() >= begins {
        say::line("this machine is too slow: tasks came due before the brokers were gone");
    }
    Ok(())
}

/// The network between two data centres is bad for a while.
pub(super) async fn wire(stage: &mut Stage<'_>, (a, b): (&str, &str), how: Wire, for_ms: i64) -> Result<()> {
    let number;
    let change: &[&str] = match how {
        Wire::CutOneWay => &["--one-way", "--cut"],
        Wire::Cut => &["--cut"],
        Wire::Slow(ms) => {
            number = ms.to_string();
            &["--delay", &number]
        }
        Wire::Lossy(permille) => {
            number = permille.to_string();
            &["--loss", &number]
        }
    };
    let from = wall_ms();
    cluster::act(&[&["link", a, b], change].concat()).await?;
    until_wall(from + for_ms).await;
    cluster::act(&["mend"]).await?;
    stage.fault(format!("{a} and {b}: {how:?}"), from);
    // Who asks the other for a quorum does not hear in time how calls ended.
    halt_all(stage, from);
    Ok(())
}

/// A server or an instance is stopped in good order, and started again.
pub(super) async fn restart(stage: &mut Stage<'_>, name: &str) -> Result<()> {
    let from = wall_ms();
    if stage.names().contains(name) {
        stage.leave(name)?;
        stage.until_all_left().await;
        stage.start(name).await?;
    } else {
        cluster::act(&["stop", name]).await?;
        cluster::act(&["start", name]).await?;
    }
    stage.fault(format!("{name} restarted"), from);
    Ok(())
}

/// A broker or a node comes to those that are there, with nothing.
pub(super) async fn add_server(stage: &mut Stage<'_>, name: &str) -> Result<()> {
    let from = wall_ms();
    cluster::act(&["start", name]).await?;
    say::line(format_args!("   {name} is in after {:.1} s", (wall_ms() - from) as f64 / 1_000.0));
    stage.fault(format!("{name} joins"), from);
    Ok(())
}

/// Brokers that joined lead nothing and have nothing until partitions are given to them.
pub(super) async fn deal_partitions(stage: &mut Stage<'_>) -> Result<()> {
    let from = wall_ms();
    cluster::act(&["spread"]).await?;
    stage.fault("partitions dealt to all brokers".to_owned(), from);
    Ok(())
}

/// Whether an instance runs in a data centre.
pub(super) fn is_in(instance: &str, dc: &str) -> bool {
    cluster::spot(instance).is_ok_and(|(place, _)| place == dc)
}
