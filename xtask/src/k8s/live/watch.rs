//! Looks at the pods four times a second, and asks every one of them for its own shards ten times a second.

use super::gaps::{Gaps, View};
use super::overlay::NAMESPACE;
use super::pods::{self, Pod};
use super::records::Records;
use crate::k8s::cluster::Up;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ureq::Agent;

const PODS_INTERVAL: Duration = Duration::from_millis(250);
const SHARDS_INTERVAL: Duration = Duration::from_millis(100);
/// An instance without Kafka takes two seconds to say so.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// What makes an instance answer for itself alone.
const OWN_ONLY: (&str, &str) = ("dueline-hop", "1");
pub(super) const HTTP_PORT: u16 = 7_420;

/// Everything seen so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) pods: Vec<Pod>,
    /// The fewest pods that served at one time since the last `begin`.
    pub(super) served_min: usize,
    pub(super) gaps: Gaps,
    asked: BTreeSet<(String, String)>,
    records: Option<Records>,
}

impl Seen {
    /// Forgets what was counted until now.
    pub(super) fn begin(&mut self) {
        self.gaps.begin();
        self.served_min = self.serving();
    }

    pub(super) fn serving(&self) -> usize {
        self.pods.iter().filter(|pod| pod.serves()).count()
    }

    fn listed(&mut self, pods: Vec<Pod>) {
        self.pods = pods;
        self.served_min = self.served_min.min(self.serving());
    }

    fn has(&self, name: &str, ip: &str) -> bool {
        self.pods.iter().any(|pod| pod.name == name && pod.ip == ip)
    }
}

/// Looks until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    seen: Arc<Mutex<Seen>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    proxy: Child,
}

#[derive(Deserialize)]
struct Page {
    shards: Vec<View>,
}

impl Watch {
    /// `token` is one of a viewer.
    pub(super) fn start(up: &Up, token: &str) -> Result<Watch> {
        let records = Records::begin(up.kubectl.clone())?;
        let config = format!("--kubeconfig={}", up.kubectl.config().display());
        let mut command = up.kubectl.command(&["proxy", "--port=0", &config]);
        let mut proxy = command.stdout(Stdio::piped()).spawn().context("running kubectl proxy")?;
        let url = match proxied(&mut proxy) {
            Ok(url) => url,
            Err(error) => {
                let _ = proxy.kill();
                let _ = proxy.wait();
                return Err(error);
            }
        };
        let seen = Arc::new(Mutex::new(Seen { records: Some(records), ..Seen::default() }));
        let ends = Arc::<AtomicBool>::default();
        let asker = Asker {
            seen: seen.clone(),
            ends: ends.clone(),
            agent: agent(),
            token: format!("Bearer {token}"),
        };
        let thread = std::thread::spawn(move || look(&asker, &url));
        Ok(Watch { seen, ends, thread: Some(thread), proxy })
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For others who ask pods.
    pub(super) fn shared(&self) -> Arc<Mutex<Seen>> {
        self.seen.clone()
    }

    /// Waits until something holds of what is seen.
    pub(super) fn wait(&self, what: &str, limit: Duration, holds: impl Fn(&Seen) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !holds(&self.seen()) {
            if begun.elapsed() > limit {
                bail!("not within {limit:?}: {what}; pods: {:?}", self.seen().pods);
            }
            std::thread::sleep(SHARDS_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

/// A client that takes every status for an answer.
pub(super) fn agent() -> Agent {
    let config =
        Agent::config_builder().http_status_as_error(false).proxy(None).timeout_global(Some(ANSWER_MAX));
    config.build().into()
}

/// Where the pods are listed: the proxy says its address first.
fn proxied(proxy: &mut Child) -> Result<String> {
    let out = proxy.stdout.take().context("kubectl proxy has no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).context("reading what kubectl proxy says")?;
    match line.trim().rsplit_once(' ') {
        Some((_, address)) => Ok(format!("http://{address}/api/v1/namespaces/{NAMESPACE}/pods")),
        None => bail!("kubectl proxy said {line:?}"),
    }
}

#[derive(Clone)]
struct Asker {
    seen: Arc<Mutex<Seen>>,
    ends: Arc<AtomicBool>,
    agent: Agent,
    token: String,
}

impl Asker {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn shards(&self, ip: &str) -> Option<Vec<View>> {
        let question = self.agent.get(format!("http://{ip}:{HTTP_PORT}/v1/shards"));
        let mut answer =
            question.header(OWN_ONLY.0, OWN_ONLY.1).header("authorization", &self.token).call().ok()?;
        let text = answer.body_mut().read_to_string().ok()?;
        Some(serde_json::from_str::<Page>(&text).ok()?.shards)
    }
}

/// Lists pods, and has each new one asked by a thread of its own until it is gone.
fn look(asker: &Asker, url: &str) {
    let mut threads = Vec::new();
    while !asker.ended() {
        let listed =
            asker.agent.get(url).call().ok().and_then(|mut answer| answer.body_mut().read_to_string().ok());
        if let Some(list) = listed.and_then(|text| serde_json::from_str(&text).ok()) {
            let pods = pods::instances(&list);
            let mut seen = asker.seen();
            seen.listed(pods.clone());
            if let Some(records) = &mut seen.records {
                records.follow(&pods);
            }
            for pod in pods.into_iter().filter(|pod| !pod.ip.is_empty()) {
                if seen.asked.insert((pod.name.clone(), pod.ip.clone())) {
                    let asker = asker.clone();
                    threads.push(std::thread::spawn(move || follow(&asker, &pod)));
                }
            }
        }
        std::thread::sleep(PODS_INTERVAL);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Asks a pod until it is gone. One that starts, or was killed, does not answer; the next question will tell.
fn follow(asker: &Asker, pod: &Pod) {
    while !asker.ended() && asker.seen().has(&pod.name, &pod.ip) {
        let asked = Instant::now();
        if let Some(views) = asker.shards(&pod.ip) {
            let mut seen = asker.seen();
            seen.gaps.take(&pod.name, Instant::now(), &views);
            if let Some(records) = &mut seen.records {
                records.note(&pod.name, &views);
            }
        }
        std::thread::sleep(SHARDS_INTERVAL.saturating_sub(asked.elapsed()));
    }
    asker.seen().asked.remove(&(pod.name.clone(), pod.ip.clone()));
}
