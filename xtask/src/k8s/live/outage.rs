//! Kafka is away: what the probes say, what runs all the same, and that all is well again when it is back.

use super::Stage;
use super::install::READY_WAIT_MAX;
use super::load::{Load, Task, Until};
use super::report::faults_of;
use super::steps::{restart, settled};
use super::watch::{Seen, agent};
use crate::k8s::cluster::plan::NODES;
use crate::say;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longer than it takes the liveness probe to give up on a client that hangs: 30 s, and three times 10 s.
const OUTAGE: Duration = Duration::from_secs(75);
/// Tasks that are stored before, and due in the outage.
const TASKS: usize = 60;
const FIRST_DUE: Duration = Duration::from_secs(15);
const BETWEEN_DUE: Duration = Duration::from_millis(500);
/// When the outage is this old, a Deployment is told to replace its pod.
const UPDATE_AFTER: Duration = Duration::from_secs(5);
const RETURN_MAX: Duration = Duration::from_secs(120);
const TASKS_AFTER: usize = 150;

/// The lines of an outage.
pub(super) fn run(stage: &mut Stage) -> Result<()> {
    say::line("Kafka is away …");
    settled(stage)?;
    let begun = Instant::now();
    let ids = stored(stage);
    let before = restarts(&stage.watch.seen());
    stage.watch.seen().begin();
    stage.backing.kill_kafka()?;
    let away = Instant::now();
    wait_out(stage, away)?;
    let end = Instant::now();
    let ran = stage.ledger.called_before(&ids, end);
    let (figures, faults) = looked(&stage.watch.seen(), &before);
    let figures = format!("{:.0?} without a broker, {figures}", end - away);
    stage.report.line("probes while Kafka is away", &figures, &faults)?;
    let missing = match ran == TASKS {
        true => Vec::new(),
        false => vec![format!("{} were stored, {ran} of them called", ids.len())],
    };
    let figures = format!("{ran} of {TASKS} tasks that were stored before were called");
    stage.report.line("what is stored runs while Kafka is away", &figures, &missing)?;
    stage.backing.start_kafka()?;
    let result = returned(stage, begun);
    stage.report.result("Kafka is back", result)?;
    Ok(())
}

/// Has tasks stored that are due in the outage; those that were.
fn stored(stage: &Stage) -> Vec<String> {
    let agent = agent();
    let mut ids = Vec::new();
    for number in 0..TASKS {
        let delay = FIRST_DUE + BETWEEN_DUE * u32::try_from(number).unwrap_or_default();
        let task = Task { id: format!("stored-{number}"), number, delay, until: Until::Stored };
        if stage.producer.schedule(&agent, &task) {
            ids.push(task.id);
        }
    }
    ids
}

fn restarts(seen: &Seen) -> BTreeMap<String, u64> {
    seen.pods.iter().map(|pod| (pod.name.clone(), pod.restarts)).collect()
}

/// Waits for the end of it; a Deployment is told to replace its pod meanwhile.
fn wait_out(stage: &Stage, away: Instant) -> Result<()> {
    std::thread::sleep(UPDATE_AFTER.saturating_sub(away.elapsed()));
    restart(stage, NODES[0])?;
    std::thread::sleep(OUTAGE.saturating_sub(away.elapsed()));
    Ok(())
}

/// What pods were like, with how often each was restarted before: figures, faults.
fn looked(seen: &Seen, before: &BTreeMap<String, u64>) -> (String, Vec<String>) {
    let mut faults = Vec::new();
    let mut again = 0;
    for (name, count) in restarts(seen) {
        let since = count - before.get(&name).copied().unwrap_or_default();
        again += since;
        if since > 0 {
            faults.push(format!("{name} was restarted {since} times"));
        }
    }
    if before.keys().any(|name| !seen.pods.iter().any(|pod| pod.name == *name && pod.serves())) {
        faults.push("a pod that was there before is gone or not ready".to_owned());
    }
    if seen.served_min < before.len() {
        faults.push(format!("only {} pods were ready at one time", seen.served_min));
    }
    let new = seen.pods.iter().find(|pod| !before.contains_key(&pod.name));
    let new = match new {
        None => {
            faults.push("the update made no new pod".to_owned());
            "no new pod".to_owned()
        }
        Some(pod) => {
            if pod.ready {
                faults.push(format!("{} is ready without ever having seen Kafka", pod.name));
            }
            if !pod.started {
                faults.push(format!("the startup probe of {} is not green", pod.name));
            }
            format!("the new pod of an update started: {}, ready: {}", pod.started, pod.ready)
        }
    };
    (format!("{again} restarts, never fewer than {} pods ready, {new}", seen.served_min), faults)
}

/// All goes on by itself, the update too.
fn returned(stage: &Stage, begun: Instant) -> Result<String> {
    let back = Instant::now();
    let load = Load::start(&stage.producer, "after");
    let accepted = stage.ledger.wait_accepted(back, TASKS_AFTER, RETURN_MAX);
    let resumed = back.elapsed();
    stage.watch.wait("the update that waited is done", READY_WAIT_MAX, |seen| {
        seen.serving() == NODES.len() && seen.pods.len() == NODES.len()
    })?;
    let updated = back.elapsed();
    settled(stage)?;
    drop(load);
    ensure!(accepted, "{TASKS_AFTER} tasks were not accepted within {RETURN_MAX:?}");
    let verdict = stage.ledger.judge(begun, Instant::now(), RETURN_MAX);
    let faults = faults_of(&verdict, &[], false);
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(format!(
        "{TASKS_AFTER} tasks accepted after {resumed:.1?}, the update that waited done after {updated:.0?}; {} accepted in all, 0 lost, {} called again",
        verdict.accepted, verdict.again
    ))
}

#[cfg(test)]
mod tests {
    use super::super::pods::Pod;
    use super::*;

    fn pod(name: &str, ready: bool, restarts: u64) -> Pod {
        let text = |text: &str| text.to_owned();
        Pod {
            name: text(name),
            zone: text("zone-a"),
            node: text("node-a"),
            ip: String::new(),
            ready,
            started: true,
            leaves: false,
            restarts,
        }
    }

    fn faults(pods: Vec<Pod>) -> usize {
        let mut seen = Seen::default();
        (seen.served_min, seen.pods) = (1, pods);
        looked(&seen, &BTreeMap::from([("old".to_owned(), 1)])).1.len()
    }

    #[test]
    fn the_old_pod_stays_ready_without_a_restart_and_the_new_one_waits() {
        assert_eq!(faults(vec![pod("old", true, 1), pod("new", false, 0)]), 0);
        assert_eq!(faults(vec![pod("old", true, 2), pod("new", false, 0)]), 1, "restarted");
        assert_eq!(faults(vec![pod("old", false, 1), pod("new", false, 0)]), 1, "not ready");
        assert_eq!(faults(vec![pod("old", true, 1), pod("new", true, 0)]), 1, "ready too early");
        assert_eq!(faults(vec![pod("old", true, 1)]), 1, "no update");
    }
}
