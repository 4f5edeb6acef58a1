//! The scenarios: each produces its tasks, waits for what it measures, and reports.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use bytes::Bytes;
use futures::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};

use crate::dispatch::in_process::{Context, Done, Failure};
use crate::dispatch::registry::{Kind, Policy, Route};
use crate::log::{Message, Target, Topic};
use crate::model::Target as GateTarget;
use crate::model::{
    Batch, BatchFilter, BatchVerb, BreakerPolicy, Change, Gate, HandlerName, QueueName, Wall,
};
use crate::node::Node;
use crate::runtime::gates::Author;

use super::ceiling::{self, Load};
use super::event::event_text;
use super::measure::{Usage, fsync_ms, rss_mb, rss_peak_mb, settled_rss_mb};
use super::report::{Percentiles, Report};
use super::sink::Sink;
use super::site::Site;
use super::{Args, Scenario};

/// Records sent and not acknowledged yet.
const SENDS_AT_ONCE: usize = 8_192;
/// A run without any progress for this long has failed.
const STALLED: Duration = Duration::from_secs(60);
/// Between a warm-up and what is measured.
const REST: Duration = Duration::from_secs(5);
/// Far beyond the look-ahead.
const FAR_MS: i64 = 3_600_000;
const HOUR_MS: u64 = 3_600_000;

/// What the handler counts.
#[derive(Default)]
pub(super) struct Seen {
    calls: AtomicU64,
    last_us: AtomicI64,
    late_us: Mutex<Vec<i64>>,
    /// Every call fails for good.
    fails: AtomicBool,
}

impl Seen {
    pub(super) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) struct Bench<'a> {
    pub(super) args: &'a Args,
    pub(super) node: Node,
    seen: Arc<Seen>,
    pub(super) bar: ProgressBar,
}

pub(super) async fn run(args: &Args, site: &Site) -> anyhow::Result<Report> {
    let seen: Arc<Seen> = Arc::default();
    let noted = seen.clone();
    let sink = Sink::open(seen.clone()).await?;
    seen.fails.store(args.scenario == Scenario::Redrive, Ordering::Relaxed);
    let policy = policy(args)?;
    let noop = Route { name: HandlerName::new("noop")?, policy, kind: Kind::InProcess };
    let node = site.node([noop, sink.route("sink", policy)?]).handler("noop", move |context: Context| {
        note(&noted, &context);
        let fails = noted.fails.load(Ordering::Relaxed);
        async move { if fails { Err(Failure::Fatal("as it is to".to_owned())) } else { Ok(Done::Succeeded) } }
    });
    let node = node.start().await.context("the node of this run")?;
    let bar = progress_bar(args);
    let bench = Bench { args, node: node.clone(), seen, bar };
    bench.until_running().await?;
    let measured = bench.measure(site).await;
    node.stop().await;
    measured
}

fn policy(args: &Args) -> anyhow::Result<Policy> {
    let policy = Policy { concurrency: args.concurrency, ..Policy::default() };
    if !args.limited {
        return Ok(policy);
    }
    let plenty = Some("1000000/s".parse()?);
    let breaker = Some(BreakerPolicy { failures: 1_000, pause_ms: 1_000 });
    Ok(Policy { rate: plenty, intake: plenty, breaker, ..policy })
}

fn note(seen: &Seen, context: &Context) {
    let now = wall_us();
    seen.called();
    seen.last_us.fetch_max(now, Ordering::Relaxed);
    let late = now - context.call.due_at.0 * 1_000;
    seen.late_us.lock().unwrap_or_else(PoisonError::into_inner).push(late);
}

fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn progress_bar(args: &Args) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:>10} {bar:40} {pos}/{len} {per_sec} {eta}");
    let bar = ProgressBar::new(args.tasks);
    style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
}

impl Bench<'_> {
    async fn measure(&self, site: &Site) -> anyhow::Result<Report> {
        let idle_mb = rss_mb();
        if matches!(self.args.scenario, Scenario::Steady | Scenario::Blocked) {
            self.warm_up().await?;
        }
        let usage = Usage::now();
        let mut report = match self.args.scenario {
            Scenario::Pipeline | Scenario::Http => self.pipeline().await?,
            Scenario::Ingest | Scenario::Pending => self.ingest().await?,
            Scenario::Steady => self.steady().await?,
            Scenario::Redrive => self.redrive().await?,
            Scenario::Blocked => self.blocked().await?,
            Scenario::List => {
                let Load { from, spread_ms, .. } = self.load();
                self.list(from, spread_ms).await?
            }
        };
        report.cpu_us_per_task = usage.cpu_us() / report.tasks.max(1) as f64;
        report.rss_peak_mb = rss_peak_mb();
        report.rss_mb = settled_rss_mb().await;
        report.rss_above_idle_mb = report.rss_mb - idle_mb;
        report.lateness_ms = self.lateness();
        let has_ceiling = matches!(
            self.args.scenario,
            Scenario::Pipeline | Scenario::Http | Scenario::Ingest | Scenario::Pending
        );
        if has_ceiling && !self.args.no_ceiling {
            self.bar.set_message("ceiling");
            let ceiling = ceiling::measure(site, &self.node, self.load()).await?;
            report.ceiling_tasks_per_second = Some(ceiling);
            report.ratio_to_ceiling = Some(report.tasks_per_second / ceiling);
        }
        report.fsync_ms = site.dir.as_deref().map(fsync_ms).transpose()?;
        report.site = site.word().to_owned();
        report.scenario = self.args.scenario.word().to_owned();
        report.queues = if self.args.scenario == Scenario::List { 1 } else { self.args.queues };
        report.shards = self.args.shards;
        report.commit = option_env!("DUELINE_COMMIT").unwrap_or(env!("CARGO_PKG_VERSION")).to_owned();
        self.bar.finish_and_clear();
        Ok(report)
    }

    fn load(&self) -> Load {
        let now = Wall(wall_us() / 1_000);
        let (from, spread_ms) = match self.args.scenario {
            Scenario::Pipeline
            | Scenario::Http
            | Scenario::Steady
            | Scenario::Redrive
            | Scenario::Blocked => (now, 0),
            Scenario::Ingest | Scenario::Pending | Scenario::List => (now.plus_ms(FAR_MS), HOUR_MS),
        };
        Load { tasks: self.args.tasks, shards: self.args.shards, from, spread_ms }
    }

    /// From the first record to the last task done.
    async fn pipeline(&self) -> anyhow::Result<Report> {
        let usage = Usage::now();
        let now = wall_us() / 1_000;
        let produce = self.produce(self.args.tasks, |_| now);
        let done = self.until("run", self.args.tasks, || self.seen.calls.load(Ordering::Relaxed));
        tokio::try_join!(produce, done)?;
        self.until_empty().await?;
        let seconds = usage.seconds();
        Ok(Report {
            tasks: self.args.tasks,
            tasks_per_second: self.args.tasks as f64 / seconds,
            ..Report::default()
        })
    }

    /// All die; then from the batch that redrives them until they are done.
    async fn redrive(&self) -> anyhow::Result<Report> {
        let (tasks, now) = (self.args.tasks, wall_us() / 1_000);
        let calls = || self.seen.calls.load(Ordering::Relaxed);
        tokio::try_join!(self.produce(tasks, |_| now), self.until("die", tasks, calls))?;
        self.until_empty().await?;
        self.seen.fails.store(false, Ordering::Relaxed);
        self.seen.late_us.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let usage = Usage::now();
        let now = Wall(wall_us() / 1_000);
        let batch = Batch {
            verb: BatchVerb::Redrive,
            filter: BatchFilter::default(),
            from: now.plus_ms(-FAR_MS),
            to: now.plus_ms(1_000),
            shift_ms: 0,
            rate: 100_000,
            dry_run: false,
        };
        self.node.service().gates().change(now, Author::default(), Change::BatchBegun(batch)).await?;
        self.until("redrive", 2 * tasks, calls).await?;
        self.until_empty().await?;
        let tasks_per_second = tasks as f64 / usage.seconds();
        Ok(Report { tasks, tasks_per_second, ..Report::default() })
    }

    /// From the first record until all are stored.
    async fn ingest(&self) -> anyhow::Result<Report> {
        let usage = Usage::now();
        let from = wall_us() / 1_000 + FAR_MS;
        let spread = |task| from + (task * HOUR_MS / self.args.tasks) as i64;
        tokio::try_join!(self.produce(self.args.tasks, spread), self.until_stored())?;
        let per_second = self.args.tasks as f64 / usage.seconds();
        Ok(Report {
            tasks: self.args.tasks,
            tasks_per_second: per_second,
            persisted_per_second: Some(per_second),
            ..Report::default()
        })
    }

    /// Runs tasks that are not measured.
    async fn warm_up(&self) -> anyhow::Result<()> {
        let (tasks, now) = (self.args.warm_up, wall_us() / 1_000);
        let produce = self.produce(tasks, |_| now);
        let done = self.until("warm up", tasks, || self.seen.calls.load(Ordering::Relaxed));
        tokio::try_join!(produce, done)?;
        self.until_empty().await?;
        tokio::time::sleep(REST).await;
        self.seen.calls.store(0, Ordering::Relaxed);
        self.seen.late_us.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    /// `steady` without and with many tasks behind one head.
    async fn blocked(&self) -> anyhow::Result<Report> {
        let first = self.steady().await?.tasks;
        let lateness_before_ms = Some(self.lateness());
        let now = Wall(wall_us() / 1_000);
        let queue = QueueName::new(&format!("q-{}", self.args.queues))?;
        let gate = Gate::pause(GateTarget::Queue(queue), "bench".into());
        self.node.service().gates().change(now, Author::default(), Change::GateSet(gate)).await?;
        // In force everywhere before the first of them is due.
        tokio::time::sleep(REST).await;
        let from = self.args.warm_up + first;
        let sends = stream::iter(0..self.args.tasks).map(|task| {
            let due_at = wall_us() / 1_000;
            self.node.producer().produce(self.message_of(self.args.queues, from + task, due_at))
        });
        let mut sends = sends.buffer_unordered(SENDS_AT_ONCE);
        while let Some(sent) = sends.next().await {
            sent.context("a record")?;
        }
        let stored = from + self.args.tasks;
        self.until_async("stored", stored, || self.sum(|view| view.next_offset)).await?;
        tokio::time::sleep(REST).await;
        self.seen.calls.store(0, Ordering::Relaxed);
        let after = self.steady_from(stored).await?;
        Ok(Report { lateness_before_ms, ..after })
    }

    async fn steady(&self) -> anyhow::Result<Report> {
        self.steady_from(self.args.warm_up).await
    }

    /// One task every so often, each due two seconds after it is sent. `first`: the number of the first of them.
    async fn steady_from(&self, first: u64) -> anyhow::Result<Report> {
        let tasks = self.args.rate * self.args.seconds;
        let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / self.args.rate));
        let usage = Usage::now();
        let mut sends = Vec::new();
        for task in 0..tasks {
            ticks.tick().await;
            let due_at = wall_us() / 1_000 + 2_000;
            sends.push(tokio::spawn(self.node.producer().produce(self.message(first + task, due_at))));
        }
        for sent in sends {
            sent.await?.context("a record")?;
        }
        self.until("run", tasks, || self.seen.calls.load(Ordering::Relaxed)).await?;
        Ok(Report { tasks, tasks_per_second: tasks as f64 / usage.seconds(), ..Report::default() })
    }

    fn message(&self, task: u64, due_at_ms: i64) -> Message {
        self.message_of(task % self.args.queues, task, due_at_ms)
    }

    fn message_of(&self, queue: u64, task: u64, due_at_ms: i64) -> Message {
        Message {
            target: Target::Topic(Topic::Schedule),
            partition: None,
            key: Some(Bytes::from(format!("q-{queue}"))),
            headers: Vec::new(),
            value: Some(event_text(task, queue, due_at_ms, self.handler(), self.args.collections)),
        }
    }

    fn handler(&self) -> &'static str {
        if self.args.scenario == Scenario::Http { "sink" } else { "noop" }
    }

    async fn produce(&self, tasks: u64, due_at: impl Fn(u64) -> i64) -> anyhow::Result<()> {
        let sends =
            stream::iter(0..tasks).map(|task| self.node.producer().produce(self.message(task, due_at(task))));
        let mut sends = sends.buffer_unordered(SENDS_AT_ONCE);
        while let Some(sent) = sends.next().await {
            sent.context("a record")?;
        }
        Ok(())
    }

    async fn until_running(&self) -> anyhow::Result<()> {
        let shards = u64::from(self.args.shards);
        let running = || async { self.sum(|view| u64::from(view.phase == "running")).await };
        self.until_async("start", shards, running).await
    }

    async fn until_stored(&self) -> anyhow::Result<()> {
        self.until_async("stored", self.args.tasks, || self.sum(|view| view.next_offset)).await
    }

    /// Until the last end is on record.
    async fn until_empty(&self) -> anyhow::Result<()> {
        let shards = u64::from(self.args.shards);
        self.until_async("done", shards, || self.sum(|view| u64::from(view.tasks == 0))).await
    }

    async fn sum(&self, of: impl Fn(&crate::engine::ShardView) -> u64) -> u64 {
        let mut sum = 0;
        for shard in self.node.service().shards() {
            let now = self.node.service().clock().now().boot;
            let view = self.node.service().ask(shard, move |engine| engine.shard_view(now)).await;
            sum += view.as_ref().map_or(0, &of);
        }
        sum
    }

    async fn until(&self, what: &'static str, wanted: u64, count: impl Fn() -> u64) -> anyhow::Result<()> {
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

    fn lateness(&self) -> Percentiles {
        let mut late = self.seen.late_us.lock().unwrap_or_else(PoisonError::into_inner);
        Percentiles::of(std::mem::take(&mut late))
    }
}
