//! A running node with its handlers, and what scenarios do with it: produce, wait, count.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;

use crate::dispatch::in_process::{Context, Done, Failure};
use crate::dispatch::registry::{Kind, Policy, Route};
use crate::log::Message;
use crate::model::{BreakerPolicy, HandlerName, limits};
use crate::node::{Builder, Node};

use super::args::{Plan, Scenario};
use super::event::{HOLD, SINK};
use super::rows::Rows;
use super::seen::{Seen, wall_ms};
use super::sink::Sink;
use super::site::Site;

/// Records sent and not acknowledged yet, and their bytes, which the producer has to hold: less than it takes.
const SENDS_AT_ONCE: u64 = 8_192;
const SENDS_BYTES: u64 = 16 * 1024 * 1024;
/// A run without any progress for this long has failed.
const STALLED: Duration = Duration::from_secs(60);
/// Between a warm-up and what is measured, at most.
const REST: Duration = Duration::from_secs(5);

pub(super) struct Bench<'a> {
    pub(super) plan: &'a Plan,
    pub(super) site: &'a Site,
    pub(super) seen: Arc<Seen>,
    pub(super) rows: Arc<Rows>,
    pub(super) bar: ProgressBar,
    /// Ends the attempts that are held open.
    pub(super) release: watch::Sender<bool>,
    /// Taken away only while it starts anew.
    node: Option<Node>,
    sink: Sink,
}

impl<'a> Bench<'a> {
    pub(super) async fn open(plan: &'a Plan, site: &'a Site) -> anyhow::Result<Bench<'a>> {
        // One more: the queue that `blocked` fills.
        let seen = Arc::new(Seen::new(plan.queues + 1));
        seen.set_fails(plan.scenario == Scenario::Redrive);
        let sink = Sink::open(seen.clone()).await?;
        let (release, _) = watch::channel(false);
        let (rows, bar) = (Arc::default(), progress_bar(plan));
        let mut bench = Bench { plan, site, seen, rows, bar, release, node: None, sink };
        let node = bench.builder("bench")?.start().await.context("the node of this run")?;
        bench.node = Some(node);
        bench.until_running(&[bench.node()]).await?;
        Ok(bench)
    }

    /// A node of this run by a name of its own, not started yet.
    pub(super) fn builder(&self, name: &str) -> anyhow::Result<Builder> {
        let policy = policy(self.plan)?;
        let hold = Policy { concurrency: self.plan.open, timeout_ms: limits::TIMEOUT_MS_MAX, ..policy };
        let route = |name: &str, policy| -> anyhow::Result<Route> {
            Ok(Route { name: HandlerName::new(name)?, policy, kind: Kind::InProcess })
        };
        let mut routes = vec![self.sink.route(SINK, policy)?, route(HOLD, hold)?];
        let names: Vec<String> = match self.plan.scenario {
            Scenario::Http => Vec::new(),
            _ => (0..self.plan.handlers).map(|number| self.plan.handler_name(number)).collect(),
        };
        for name in &names {
            routes.push(route(name, policy)?);
        }
        let (seen, released) = (self.seen.clone(), self.release.subscribe());
        let mut builder = self.site.node(name, routes).handler(HOLD, move |_: Context| {
            seen.held();
            let mut released = released.clone();
            async move {
                // Its sender lives as long as the run.
                let _ = released.wait_for(|released| *released).await;
                Ok(Done::Succeeded)
            }
        });
        for name in &names {
            let seen = self.seen.clone();
            builder = builder.handler(name, move |context: Context| {
                seen.note(&context);
                let fails = seen.fails();
                async move {
                    if fails { Err(Failure::Fatal("as it is to".to_owned())) } else { Ok(Done::Succeeded) }
                }
            });
        }
        let rows = self.rows.clone();
        Ok(builder.rows_seen(Arc::new(move |written| rows.add(written))))
    }

    pub(super) fn node(&self) -> &Node {
        self.node.as_ref().expect("it is away only while it starts anew")
    }

    /// Puts another node in its place.
    pub(super) fn replace(&mut self, node: Node) -> Option<Node> {
        self.node.replace(node)
    }

    /// Takes the node away, to be stopped.
    pub(super) fn take(&mut self) -> Option<Node> {
        self.node.take()
    }

    /// Produces tasks with numbers from `first` on in their order; `due_at` says when each is due, in milliseconds of wall time.
    pub(super) async fn produce(
        &self,
        tasks: std::ops::Range<u64>,
        due_at: impl Fn(u64) -> i64,
    ) -> anyhow::Result<()> {
        self.send(tasks.map(|task| self.plan.message(task, due_at(task)))).await
    }

    /// Produces records in their order.
    pub(super) async fn send(&self, messages: impl Iterator<Item = Message>) -> anyhow::Result<()> {
        let producer = self.node().producer();
        let at_once = sends_at_once(self.plan.payload.unwrap_or(0));
        let mut sends =
            stream::iter(messages.map(|message| producer.produce(message))).buffer_unordered(at_once);
        while let Some(sent) = sends.next().await {
            sent.context("a record")?;
        }
        Ok(())
    }

    /// Runs tasks that are not measured, then rests.
    pub(super) async fn warm_up(&self) -> anyhow::Result<()> {
        let (tasks, now) = (self.plan.warm_up, wall_ms());
        let done = self.until("warm up", tasks, || self.seen.calls());
        tokio::try_join!(self.produce(0..tasks, |_| now), done)?;
        self.until_empty().await?;
        self.pause().await;
        self.seen.forget();
        self.rows.forget();
        Ok(())
    }

    /// A moment for what was just done to end.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(REST.min(self.plan.rest)).await;
    }

    /// Until so many handlers' calls were seen.
    pub(super) async fn until_called(&self, what: &'static str, calls: u64) -> anyhow::Result<()> {
        self.until(what, calls, || self.seen.calls()).await
    }

    /// Until these nodes run every shard.
    pub(super) async fn until_running(&self, nodes: &[&Node]) -> anyhow::Result<()> {
        let shards = u64::from(self.plan.shards);
        let all = || async move {
            let mut all = 0;
            for node in nodes {
                all += running(node).await;
            }
            all
        };
        self.until_async("start", shards, all).await
    }

    /// Until this node runs a shard.
    pub(super) async fn until_running_some(&self, node: &Node) -> anyhow::Result<()> {
        self.until_async("share", 1, || running(node)).await
    }

    /// Until every record up to this number of them is stored.
    pub(super) async fn until_stored(&self, records: u64) -> anyhow::Result<()> {
        self.until_async("stored", records, || sum(self.node(), |view| view.next_offset)).await
    }

    /// Until the last end is on record.
    pub(super) async fn until_empty(&self) -> anyhow::Result<()> {
        let shards = u64::from(self.plan.shards);
        self.until_async("done", shards, || sum(self.node(), |view| u64::from(view.tasks == 0))).await
    }

    pub(super) async fn until(
        &self,
        what: &'static str,
        wanted: u64,
        count: impl Fn() -> u64,
    ) -> anyhow::Result<()> {
        self.until_async(what, wanted, || std::future::ready(count())).await
    }

    /// Waits until `count` has reached `wanted`; fails when it stands still.
    async fn until_async<F: Future<Output = u64>>(
        &self,
        what: &'static str,
        wanted: u64,
        count: impl Fn() -> F,
    ) -> anyhow::Result<()> {
        self.bar.set_message(what);
        self.bar.set_length(wanted);
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            let now = count().await;
            self.bar.set_position(now);
            if now >= wanted {
                return Ok(());
            }
            if now > last {
                (last, moved) = (now, Instant::now());
            }
            anyhow::ensure!(moved.elapsed() < STALLED, "{what}: {now} of {wanted}, and no progress for 60 s");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// How many records with such payloads are sent and not acknowledged at once.
pub(super) fn sends_at_once(payload_bytes: u64) -> usize {
    SENDS_AT_ONCE.min(SENDS_BYTES / (payload_bytes + 1_024)) as usize
}

/// Shards that a node runs.
async fn running(node: &Node) -> u64 {
    sum(node, |view| u64::from(view.phase == "running")).await
}

/// The sum of something over the shards of a node.
async fn sum(node: &Node, of: impl Fn(&crate::engine::ShardView) -> u64) -> u64 {
    let mut sum = 0;
    for shard in node.service().shards() {
        let now = node.service().clock().now().boot;
        let view = node.service().ask(shard, move |engine| engine.shard_view(now)).await;
        sum += view.as_ref().map_or(0, &of);
    }
    sum
}

fn policy(plan: &Plan) -> anyhow::Result<Policy> {
    let policy = Policy { concurrency: plan.concurrency, ..Policy::default() };
    if !plan.limited {
        return Ok(policy);
    }
    let plenty = Some("1000000/s".parse()?);
    let breaker = Some(BreakerPolicy { failures: 1_000, pause_ms: 1_000 });
    Ok(Policy { rate: plenty, intake: plenty, breaker, ..policy })
}

fn progress_bar(plan: &Plan) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:>10} {bar:40} {pos}/{len} {per_sec} {eta}");
    let bar = ProgressBar::new(plan.tasks);
    style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
}
