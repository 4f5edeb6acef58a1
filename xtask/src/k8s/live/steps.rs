//! What happens to the installation, one after the other, each under load and with a line of its own.

use super::Stage;
use super::install::{READY_WAIT_MAX, SHARDS_WAIT_MAX};
use super::load::Load;
use super::overlay::{NAMESPACE, SHARDS};
use super::pods::misplaced;
use super::report::{faults_of, figures_of};
use crate::k8s::cluster;
use crate::k8s::cluster::node::Place;
use crate::k8s::cluster::plan::{NODES, Node};
use crate::say;
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Tasks accepted before something happens, and after it.
const TASKS_AROUND: usize = 150;
const ACCEPT_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a task that was accepted may wait for its call at the end of a step.
const CALL_WAIT_MAX: Duration = Duration::from_secs(90);
const ROLLOUT_MAX: &str = "180s";
/// Session and lease of an instance that was killed, and time to read: as chaos has it.
const TAKEOVER_MAX: Duration = Duration::from_secs(15);

/// All of them.
pub(super) fn run(stage: &mut Stage) -> Result<()> {
    under_load(stage, "events run", Hands::Any, |_| Ok(Vec::new()))?;
    under_load(stage, "rolling update, a zone after the other", Hands::InOrder, rolled)?;
    under_load(stage, "drain of a node", Hands::InOrder, drained)?;
    under_load(stage, "zone killed: kubelet, containerd, containers", Hands::Lost, killed)?;
    under_load(stage, "scaled 3 to 6 to 3", Hands::InOrder, scaled)?;
    super::outage::run(stage)
}

/// How shards change hands in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hands {
    /// They need not.
    Any,
    InOrder,
    /// An owner is lost with them.
    Lost,
}

/// Has tasks scheduled all the while that something happens; a line with what came of them.
fn under_load(
    stage: &mut Stage,
    what: &str,
    hands: Hands,
    act: impl FnOnce(&Stage) -> Result<Vec<String>>,
) -> Result<()> {
    say::line(format_args!("{what} …"));
    settled(stage)?;
    stage.watch.seen().begin();
    let refused_before = stage.ledger.refusals();
    let begun = Instant::now();
    let load = Load::start(&stage.producer, &format!("t{}", stage.report.count()));
    let mut faults = Vec::new();
    accepted(stage, begun, &mut faults);
    let mut figures = match act(stage) {
        Ok(figures) => figures,
        Err(error) => {
            faults.push(format!("{error:#}"));
            Vec::new()
        }
    };
    accepted(stage, Instant::now(), &mut faults);
    drop(load);
    let verdict = stage.ledger.judge(begun, Instant::now(), CALL_WAIT_MAX);
    let changes = stage.watch.seen().gaps.changes().to_vec();
    faults.extend(faults_of(&verdict, &changes, hands == Hands::InOrder));
    let refused = stage.ledger.refusals() - refused_before;
    if refused > 0 {
        faults.push(format!("{refused} tasks were accepted by nobody for a minute"));
    }
    figures.push(figures_of(&verdict, &changes));
    stage.report.line(what, &figures.join("; "), &faults)
}

/// Waits until some tasks more are accepted.
fn accepted(stage: &Stage, from: Instant, faults: &mut Vec<String>) {
    if !stage.ledger.wait_accepted(from, TASKS_AROUND, ACCEPT_WAIT_MAX) {
        faults.push(format!("{TASKS_AROUND} tasks were not accepted within {ACCEPT_WAIT_MAX:?}"));
    }
}

/// Waits until every shard has a running owner.
pub(super) fn settled(stage: &Stage) -> Result<()> {
    let from = Instant::now();
    let all = |seen: &super::watch::Seen| seen.gaps.owned_since(from) == SHARDS as usize;
    stage.watch.wait("every shard has a running owner", SHARDS_WAIT_MAX, all)
}

/// Waits for so many pods that serve and none that leaves.
fn counted(stage: &Stage, count: usize) -> Result<()> {
    let what = format!("{count} pods are ready and no other is there");
    stage.watch.wait(&what, READY_WAIT_MAX, |seen| seen.serving() == count && seen.pods.len() == count)
}

/// Tells the Deployment of a node's zone to replace its pod; its name.
pub(super) fn restart(stage: &Stage, node: Node) -> Result<String> {
    let deployment = format!("deployment/dueline-{}", node.zone());
    stage.up.kubectl.said(&["rollout", "restart", "--namespace", NAMESPACE, &deployment])?;
    Ok(deployment)
}

/// Every pod is replaced; none leaves before its successor is ready.
fn rolled(stage: &Stage) -> Result<Vec<String>> {
    let begun = Instant::now();
    let before: BTreeSet<String> = names(stage);
    for node in NODES {
        let deployment = restart(stage, node)?;
        let timeout = format!("--timeout={ROLLOUT_MAX}");
        stage.up.kubectl.said(&["rollout", "status", "--namespace", NAMESPACE, &deployment, &timeout])?;
        counted(stage, NODES.len())?;
        settled(stage)?;
    }
    ensure!(names(stage).is_disjoint(&before), "a pod was not replaced");
    let fewest = stage.watch.seen().served_min;
    ensure!(fewest >= NODES.len(), "only {fewest} pods were ready at one time, maxUnavailable is 0");
    Ok(vec![format!("3 pods replaced in {:.0?}, never fewer than {fewest} ready", begun.elapsed())])
}

fn names(stage: &Stage) -> BTreeSet<String> {
    stage.watch.seen().pods.iter().map(|pod| pod.name.clone()).collect()
}

/// A node is emptied; while its pod has no other place, no other may be evicted.
fn drained(stage: &Stage) -> Result<Vec<String>> {
    let (node, other) = (NODES[1].name(), NODES[2].name());
    let kubectl = &stage.up.kubectl;
    let begun = Instant::now();
    let selector = "--pod-selector=app.kubernetes.io/component=instance";
    kubectl.said(&["drain", &node, selector, "--timeout=120s"])?;
    let took = begun.elapsed();
    let refused = kubectl.said(&["drain", &other, selector, "--timeout=8s"]);
    let word = match &refused {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}"),
    };
    kubectl.said(&["uncordon", &other])?;
    let fewest = stage.watch.seen().served_min;
    kubectl.said(&["uncordon", &node])?;
    counted(stage, NODES.len())?;
    settled(stage)?;
    ensure!(
        word.contains("disruption budget"),
        "a second node was drained as well, or for another reason: {word:?}"
    );
    ensure!(
        fewest + 1 >= NODES.len(),
        "only {fewest} pods were ready at one time, maxUnavailable of the budget is 1"
    );
    let told = format!(
        "drained in {took:.0?}, never fewer than {fewest} ready, a second eviction refused by the budget"
    );
    Ok(vec![told])
}

/// A zone is lost without a word, and comes back.
fn killed(stage: &Stage) -> Result<Vec<String>> {
    let node = NODES[2];
    let place = Place::of(node, &stage.up.dir);
    let of_zone = pods_of(stage, node);
    let shards = stage.watch.seen().gaps.of(&of_zone);
    ensure!(!shards.is_empty(), "{} ran no shard", node.zone());
    place.kill()?;
    let lost = Instant::now();
    stage.watch.wait("others run its shards", SHARDS_WAIT_MAX, |seen| seen.gaps.of(&of_zone).is_empty())?;
    let taken = lost.elapsed();
    say::line(format_args!("{} shards of {} run elsewhere after {taken:.1?}", shards.len(), node.zone()));
    let mut faults = Vec::new();
    accepted(stage, Instant::now(), &mut faults);
    let back = Instant::now();
    place.start_again(&stage.up.programs)?;
    stage.watch.wait("a pod of it is ready again", READY_WAIT_MAX, |seen| {
        let again = |pod: &super::pods::Pod| pod.node == node.name() && pod.serves() && pod.restarts > 0;
        seen.pods.iter().any(again)
    })?;
    cluster::wait_nodes(&stage.up.kubectl)?;
    let returned = back.elapsed();
    stage.watch.wait("it runs shards again", SHARDS_WAIT_MAX, |seen| {
        let here: BTreeSet<&str> =
            seen.pods.iter().filter(|pod| pod.node == node.name()).map(|pod| pod.name.as_str()).collect();
        seen.gaps.owners().intersection(&here).next().is_some()
    })?;
    settled(stage)?;
    ensure!(faults.is_empty(), "while the zone was away: {}", faults.join("; "));
    ensure!(
        taken <= TAKEOVER_MAX,
        "its shards ran elsewhere after {taken:.1?}, {TAKEOVER_MAX:?} is the bound"
    );
    Ok(vec![format!(
        "{} shards run elsewhere {taken:.1?} after the kill (bound {TAKEOVER_MAX:?}), back and ready {returned:.0?} after its start",
        shards.len()
    )])
}

fn pods_of(stage: &Stage, node: Node) -> BTreeSet<String> {
    let seen = stage.watch.seen();
    seen.pods.iter().filter(|pod| pod.node == node.name()).map(|pod| pod.name.clone()).collect()
}

/// Twice as many, and back.
fn scaled(stage: &Stage) -> Result<Vec<String>> {
    let mut figures = Vec::new();
    for each in [2, 1] {
        let begun = Instant::now();
        let count = each * NODES.len();
        let replicas = format!("--replicas={each}");
        let selector = "--selector=app.kubernetes.io/component=instance";
        stage.up.kubectl.said(&["scale", "deployment", "--namespace", NAMESPACE, selector, &replicas])?;
        counted(stage, count)?;
        stage.watch.wait("every pod runs shards, and no other", SHARDS_WAIT_MAX, |seen| {
            let pods: BTreeSet<&str> = seen.pods.iter().map(|pod| pod.name.as_str()).collect();
            seen.gaps.owners() == pods
        })?;
        settled(stage)?;
        let faults = misplaced(&stage.watch.seen().pods, each);
        ensure!(faults.is_empty(), "{}", faults.join("; "));
        figures.push(format!("{count} pods, each with shards, after {:.0?}", begun.elapsed()));
    }
    Ok(figures)
}
