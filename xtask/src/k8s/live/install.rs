//! The installation as the README has one make it: Secrets, overlay, Jobs, pods.

use super::Stage;
use super::backing::Passwords;
use super::overlay::{self, NAMESPACE, SHARDS};
use super::pods::misplaced;
use crate::k8s::check::list;
use crate::k8s::cluster::plan::NODES;
use crate::k8s::kubectl::Run;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

/// Within so long after all pods are ready every shard runs.
const SETTLED: Duration = Duration::from_secs(15);
const JOBS_WAIT: &str = "180s";
pub(super) const READY_WAIT_MAX: Duration = Duration::from_secs(180);
pub(super) const SHARDS_WAIT_MAX: Duration = Duration::from_secs(60);

/// Three names for three roles.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) admin: String,
    pub(super) operator: String,
    pub(super) viewer: String,
}

/// Installs it and looks at it; an error when there is nothing to go on with.
pub(super) fn run(stage: &mut Stage, tokens: &Tokens, passwords: &Passwords) -> Result<()> {
    let dir = stage.up.dir.join("overlay");
    let own = overlay::write(&dir)?;
    let kubectl = &stage.up.kubectl;
    let said = kubectl.apply(&overlay::namespace(&dir)?, Run::Real)?;
    ensure!(said.complaints.is_empty(), "the namespace: {}", said.complaints.join("; "));
    let secrets = secrets(stage, tokens, passwords)?;
    let count = secrets.len();
    let said = kubectl.apply(&list(secrets), Run::Real)?;
    ensure!(said.complaints.is_empty(), "Secrets: {}", said.complaints.join("; "));
    let begun = Instant::now();
    // That the same again changes nothing is shown where no controller changes objects meanwhile: by the short check.
    let applied = kubectl.apply(&kubectl.kustomize(&own)?, Run::Real)?;
    let figures =
        format!("{} objects in a namespace that enforces restricted, {count} Secrets", applied.objects.len());
    stage.report.line("overlay applied", &figures, &applied.complaints)?;
    let jobs = jobs(stage, begun);
    ensure!(
        stage.report.result("Jobs complete: topics, migrate", jobs)?,
        "without topics and tables nothing runs"
    );
    stage.backing.let_instances_in(passwords)?;
    let pods = ready(stage, begun);
    ensure!(
        stage.report.result("pods are up, started, ready, one a node in its zone", pods)?,
        "nothing runs"
    );
    let said = shards_listed(stage);
    stage.report.result("dueline shard list in a pod", said)?;
    let said = doctor(stage);
    stage.report.result("dueline doctor in a pod", said)?;
    Ok(())
}

fn secret(name: &str, values: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": values,
    })
}

fn secrets(stage: &Stage, tokens: &Tokens, passwords: &Passwords) -> Result<Vec<Value>> {
    let authority = fs::read_to_string(&stage.backing.authority).context("reading the authority of Kafka")?;
    let Tokens { admin, operator, viewer } = tokens;
    let Passwords { kafka, kafka_setup, cassandra, cassandra_setup } = passwords;
    let of_user = |name: &str, password: &str| secret(name, &json!({"password": password}));
    Ok(vec![
        secret("dueline-tokens", &json!({"admin": admin, "operator": operator, "viewer": viewer})),
        secret("dueline-kafka-ca", &json!({"ca.crt": authority})),
        of_user("dueline-kafka", kafka),
        of_user("dueline-kafka-setup", kafka_setup),
        of_user("dueline-cassandra", cassandra),
        of_user("dueline-cassandra-setup", cassandra_setup),
    ])
}

fn jobs(stage: &Stage, begun: Instant) -> Result<String> {
    let timeout = format!("--timeout={JOBS_WAIT}");
    let args = ["wait", "--namespace", NAMESPACE, "--for=condition=complete", &timeout];
    stage.up.kubectl.said(&[&args[..], &["job/dueline-topics", "job/dueline-migrate"]].concat())?;
    Ok(format!("{:.0?} after they were applied", begun.elapsed()))
}

fn ready(stage: &Stage, begun: Instant) -> Result<String> {
    stage.watch.wait("all pods are ready", READY_WAIT_MAX, |seen| seen.serving() == NODES.len())?;
    let after = begun.elapsed();
    stage.watch.wait("every shard has a running owner", SHARDS_WAIT_MAX, |seen| {
        let second_ago = Instant::now() - Duration::from_secs(1);
        seen.gaps.owned_since(second_ago) == SHARDS as usize
    })?;
    let seen = stage.watch.seen();
    let faults = misplaced(&seen.pods, 1);
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    ensure!(seen.pods.iter().all(|pod| pod.started), "a startup probe is not green");
    let restarts: u64 = seen.pods.iter().map(|pod| pod.restarts).sum();
    Ok(format!(
        "{after:.0?} after they were applied, {restarts} starts before topics, tables and rights were there"
    ))
}

/// A command in a pod, which finds its token there.
fn in_pod(stage: &Stage, command: &[&str]) -> Result<String> {
    let deployment = format!("deploy/dueline-{}", NODES[0].zone());
    let exec = ["exec", "--namespace", NAMESPACE, &deployment, "--", "dueline"];
    stage.up.kubectl.said(&[&exec[..], command].concat())
}

/// Pods that have just joined are handed shards for a moment still.
fn shards_listed(stage: &Stage) -> Result<String> {
    let begun = Instant::now();
    loop {
        let said = in_pod(stage, &["shard", "list", "-o", "json"])?;
        let running = said.matches("\"running\"").count();
        if running == SHARDS as usize {
            return Ok(format!(
                "{running} shards are running, {}s after it was asked",
                begun.elapsed().as_secs()
            ));
        }
        ensure!(begun.elapsed() < SETTLED, "{running} of {SHARDS} shards are running: {said}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn doctor(stage: &Stage) -> Result<String> {
    let said = in_pod(stage, &["doctor"])?;
    Ok(format!("{} lines, none fails", said.lines().count()))
}
