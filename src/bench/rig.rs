//! A running node with its handlers, and what scenarios do with it: produce, wait, count.

use std::io::IsTerminal;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{FutureExt as _, StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;

use crate::dispatch::in_process::{Context, Done, Failure};
use crate::dispatch::registry::{Kind, Policy, Route};
use crate::engine::ShardView;
use crate::log::{Message, Producer};
use crate::model::{BreakerPolicy, HandlerName, limits};
use crate::node::{Builder, Node};
use crate::store::Packs;

use super::args::{Plan, Scenario};
use super::ceiling::Program;
use super::event::{HOLD, SINK};
use super::measure::{Usage, forget_peak, rss_peak_mb};
use super::pace::Pace;
use super::report::Report;
use super::rows::{Rows, Written};
use super::samples::{STEP, Sampler};
use super::seen::{Seen, wall_ms};
use super::sink::Sink;
use super::site::Site;

/// Records sent and not acknowledged yet, and their bytes, which the producer has to hold: less than it takes.
const SENDS_AT_ONCE: u64 = 8_192;
const SENDS_BYTES: u64 = 16 * 1024 * 1024;
/// A run without any progress for this long has failed.
const STALLED: Duration = Duration::from_secs(60);
/// What was just asked for has ended after this, at most.
const PAUSE: Duration = Duration::from_secs(5);
/// Tasks of a warm-up at once, and bytes of their payloads, at most.
const WARM_TASKS: u64 = 5_000;
const WARM_PAYLOADS_BYTES: u64 = 64 * 1024 * 1024;

pub(super) struct Bench<'a> {
    pub(super) plan: &'a Plan,
    pub(super) site: &'a Site,
    pub(super) seen: Arc<Seen>,
    pub(super) rows: Arc<Rows>,
    /// Of the store's writes.
    pub(super) pace: Arc<Pace>,
    pub(super) bar: ProgressBar,
    /// Ends the attempts that are held open.
    pub(super) release: watch::Sender<bool>,
    /// Resident memory at rest before what is measured, in MiB.
    pub(super) idle_mb: f64,
    /// The number of the first task that was not produced yet.
    next: AtomicU64,
    /// Taken away only while it starts anew.
    node: Option<Node>,
    /// On servers records are sent by a client of their own, as those of users are.
    client: Option<Arc<dyn Producer>>,
    sink: Sink,
}

/// A stretch of a run, while it is measured.
pub(super) struct Span {
    usage: Usage,
    sampler: Sampler,
    /// Requests to the store before.
    requests: Option<u64>,
    /// What it had packed before.
    packed: Packs,
}

impl Span {
    pub(super) fn seconds(&self) -> f64 {
        self.usage.seconds()
    }
}

impl<'a> Bench<'a> {
    pub(super) async fn open(plan: &'a Plan, site: &'a Site) -> anyhow::Result<Bench<'a>> {
        // One more: the queue that `blocked` fills.
        let seen = Arc::new(Seen::new(plan.queues + 1));
        let sink = Sink::open(seen.clone()).await?;
        let (release, _) = watch::channel(false);
        let (rows, pace, bar) = (Arc::default(), Arc::default(), progress_bar(plan));
        let mut bench = Bench {
            plan,
            site,
            seen,
            rows,
            pace,
            bar,
            release,
            idle_mb: 0.0,
            next: AtomicU64::new(0),
            node: None,
            client: site.client()?,
            sink,
        };
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
                let (inside, fails) = (seen.note(&context), seen.fails());
                async move {
                    let _inside = inside;
                    if fails { Err(Failure::Fatal("as it is to".to_owned())) } else { Ok(Done::Succeeded) }
                }
            });
        }
        let (rows, pace) = (self.rows.clone(), self.pace.clone());
        Ok(builder.before_write(Arc::new(move |written| {
            let Some(turn) = pace.turn(written.len()) else {
                rows.add(written);
                return None;
            };
            let (rows, written) = (rows.clone(), written.clone());
            Some(turn.map(move |()| rows.add(&written)).boxed())
        })))
    }

    pub(super) fn node(&self) -> &Node {
        self.node.as_ref().expect("it is away only while it starts anew")
    }

    /// Sends the records of the load.
    pub(super) fn producer(&self) -> &Arc<dyn Producer> {
        self.client.as_ref().unwrap_or_else(|| self.node().producer())
    }

    /// Puts another node in its place.
    pub(super) fn replace(&mut self, node: Node) -> Option<Node> {
        self.node.replace(node)
    }

    /// Takes the node away, to be stopped.
    pub(super) fn take(&mut self) -> Option<Node> {
        self.node.take()
    }

    /// Calls a second of the HTTP client and the sink with nothing in between.
    pub(super) async fn client_alone(&self) -> anyhow::Result<f64> {
        self.bar.set_message("client");
        let (at_once, payload) = (self.plan.concurrency, self.plan.payload_of(0));
        self.sink.calls_per_second(at_once, self.plan.raw, &payload).await
    }

    /// What is measured begins here: all that was counted before is forgotten.
    pub(super) fn begin(&self) -> anyhow::Result<Span> {
        self.begin_looking_every(STEP)
    }

    /// The same, looked at after each step.
    pub(super) fn begin_looking_every(&self, step: Duration) -> anyhow::Result<Span> {
        self.seen.forget();
        self.rows.forget();
        forget_peak()?;
        let sampler = Sampler::start(self.seen.clone(), self.rows.clone(), step)?;
        let store = self.node().store();
        Ok(Span { sampler, requests: store.requests(), packed: store.packed(), usage: Usage::now() })
    }

    /// What is measured ends here: the report is told what its tasks took.
    pub(super) fn end(&self, span: Span, report: Report) -> Report {
        let each = report.tasks.max(1) as f64;
        let cpu_us_per_task = Some(span.usage.cpu_us() / each);
        let now = self.node().store().requests();
        let requests = now.zip(span.requests).map(|(now, before)| now.saturating_sub(before) as f64 / each);
        let written = Written { requests, ..self.rows.per_task(report.tasks) };
        let written_per_task = written.packed(self.node().store().packed(), span.packed, each);
        let samples = span.sampler.stop();
        let by_part = samples.cpu_seconds().into_iter();
        let cpu_us_per_task_by_part = by_part.map(|(part, seconds)| (part, seconds * 1e6 / each)).collect();
        let rss_peak_mb = rss_peak_mb();
        Report { cpu_us_per_task, cpu_us_per_task_by_part, samples, written_per_task, rss_peak_mb, ..report }
    }

    /// Numbers of so many tasks that were not produced yet.
    pub(super) fn numbers(&self, tasks: u64) -> Range<u64> {
        let first = self.next.fetch_add(tasks, Ordering::Relaxed);
        first..first + tasks
    }

    /// Produces tasks with numbers from `first` on in their order; `due_at` says when each is due, in milliseconds of wall time.
    pub(super) async fn produce(&self, tasks: Range<u64>, due_at: impl Fn(u64) -> i64) -> anyhow::Result<()> {
        self.send(tasks.map(|task| self.plan.message(task, due_at(task)))).await
    }

    /// Produces records in their order.
    pub(super) async fn send(&self, messages: impl Iterator<Item = Message>) -> anyhow::Result<()> {
        let producer = self.producer();
        let at_once = sends_at_once(self.plan.payload.unwrap_or(0));
        let mut sends =
            stream::iter(messages.map(|message| producer.produce(message))).buffer_unordered(at_once);
        while let Some(sent) = sends.next().await {
            sent.context("a record")?;
        }
        Ok(())
    }

    /// Runs what is not measured: servers that just started compile what they run.
    pub(super) async fn warm_up(&self, raw: Option<&Program>) -> anyhow::Result<()> {
        use Scenario::{
            Blocked, Ceiling, Gate, Herd, List, LongRunning, Redrive, SlowStore, Steady, Takeover,
        };
        match self.plan.scenario {
            Ceiling | List | Takeover => {}
            Steady | Blocked | Gate | LongRunning | Herd | Redrive | SlowStore => {
                self.warm_tasks(self.plan.warm_up).await?
            }
            _ => {
                if let Some(raw) = raw {
                    self.bar.set_message("warm up");
                    raw.warm_up(self.plan.warm).await?;
                }
                let (begun, payload) = (Instant::now(), self.plan.payload.unwrap_or(1));
                while begun.elapsed() < self.plan.warm {
                    self.warm_tasks(WARM_TASKS.min(WARM_PAYLOADS_BYTES / payload)).await?;
                }
            }
        }
        Ok(())
    }

    async fn warm_tasks(&self, tasks: u64) -> anyhow::Result<()> {
        self.seen.forget();
        let now = wall_ms();
        let done = self.until("warm up", tasks, || self.seen.calls());
        tokio::try_join!(self.produce(self.numbers(tasks), |_| now), done)?;
        self.until_empty().await
    }

    /// A moment for what was just done to end.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(PAUSE.min(self.plan.rest)).await;
    }

    /// Until so many handlers' calls were seen.
    pub(super) async fn until_called(&self, what: &'static str, calls: u64) -> anyhow::Result<()> {
        self.until(what, calls, || self.seen.calls()).await
    }

    /// Until every shard is run by exactly one of these nodes.
    pub(super) async fn until_running(&self, nodes: &[&Node]) -> anyhow::Result<()> {
        let shards = self.plan.shards as usize;
        let by_one = || async move {
            let mut runners = vec![0; shards];
            for node in nodes {
                for shard in node.service().shards() {
                    let now = node.service().clock().now().boot;
                    let view = node.service().ask(shard, move |engine| engine.shard_view(now)).await;
                    runners[shard.0 as usize] += u32::from(view.is_some_and(|view| view.phase == "running"));
                }
            }
            runners.into_iter().filter(|runners| *runners == 1).count() as u64
        };
        self.until_async("start", shards as u64, by_one).await
    }

    /// Until this node runs a shard.
    pub(super) async fn until_running_some(&self, node: &Node) -> anyhow::Result<()> {
        self.until_async("share", 1, || running(node)).await
    }

    /// Until every record up to this number of them is stored.
    pub(super) async fn until_stored(&self, records: u64) -> anyhow::Result<()> {
        self.until_async("stored", records, || sum(self.node(), |view| view.next_offset)).await
    }

    /// Until the last end is on record, and every event of it on its topic.
    pub(super) async fn until_empty(&self) -> anyhow::Result<()> {
        let shards = u64::from(self.plan.shards);
        let is_empty = |view: &ShardView| u64::from(view.tasks == 0 && view.events_waiting == 0);
        self.until_async("done", shards, || sum(self.node(), is_empty)).await
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
async fn sum(node: &Node, of: impl Fn(&ShardView) -> u64) -> u64 {
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
