//! Batches: whoever owns a batch's home shard carries it out, one worker a batch.
//!
//! ```text
//!   operation n: batch begun ──► owner of shard n mod shards ──► page of tasks ──► events, as any producer's ──► owners decide
//!                                        └── progress row: where to go on, counts
//! ```
//!
//! It acts on what was there when it began. All it asks may be asked twice: a change of owner costs some events that change
//! nothing, and two workers at once would do no other harm.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::log;
use crate::model::{
    BatchProgress, BatchVerb, Epoch, KnownBatch, Row, Shard, TaskKey, Version, Wall, home_shard,
};
use crate::store::Error;
use crate::wire::event::decode_plain;
use crate::wire::event::request::{self, CancelRequest, RedriveRequest, Request, RescheduleRequest};
use crate::wire::time::format_time;

use super::{Service, Shared};

pub(crate) use page::is_dead;
use page::{Item, Page};

/// What events of batches name as their source.
const EVENT_SOURCE: &str = "urn:dueline:batch";
/// Time between looks for batches that are to be carried out.
const EVERY: Duration = Duration::from_millis(500);
/// What is applied within this time was there when a batch began: progress rows are written five times a second.
const SETTLE: Duration = Duration::from_millis(500);
/// Tasks whose event came so long after a batch was asked for are left alone, in milliseconds: the clocks of its instance and of the
/// brokers may be off by that much, and it may begin late.
const LATER_MS: i64 = 1_000;
/// Time between progress rows of a batch.
const TELL: Duration = Duration::from_millis(500);
/// A pause after something did not work.
const PAUSE: Duration = Duration::from_secs(1);
/// Batches that one instance carries out at once; more wait.
const WORKERS_MAX: usize = 4;
/// Tasks that are shown.
const SAMPLE: usize = 5;
/// Events sent at once, at most; fewer when the rate is low.
const GROUP_MAX: usize = 200;
/// Groups a second when the rate is low.
const GROUPS_A_SECOND: u32 = 10;

/// Sees to the batches whose home shard is owned here, the oldest first, until the service ends.
pub(super) async fn follow(service: Service) {
    service.shared.gates.known().await;
    let mut over = BTreeSet::new();
    let mut under_way: BTreeMap<tokio::task::Id, u64> = BTreeMap::new();
    let mut workers: JoinSet<bool> = JoinSet::new();
    loop {
        let busy: BTreeSet<u64> = under_way.values().copied().collect();
        for (known, home, epoch) in wanted(&service, &over, &busy).await {
            let number = known.begun.number;
            let worker = Worker { service: service.clone(), known, home, epoch };
            under_way.insert(workers.spawn(worker.run()).id(), number);
        }
        let ended = async {
            match workers.join_next_with_id().await {
                Some(ended) => ended,
                None => std::future::pending().await,
            }
        };
        match tokio::time::timeout(EVERY, ended).await {
            Err(_) => {}
            Ok(Ok((id, is_done))) => {
                let number = under_way.remove(&id);
                over.extend(number.filter(|_| is_done));
            }
            Ok(Err(panicked)) => {
                under_way.remove(&panicked.id());
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn home_of(service: &Service, known: &KnownBatch) -> Shard {
    Shard((known.begun.number % u64::from(service.shared.cluster.shards)) as u32)
}

/// What may begin here, beside so many that are under way: of those whose home shard runs here at this moment.
async fn wanted(
    service: &Service,
    over: &BTreeSet<u64>,
    busy: &BTreeSet<u64>,
) -> Vec<(KnownBatch, Shard, Epoch)> {
    let homes: BTreeSet<Shard> = open(service, over, busy).iter().map(|(home, _)| *home).collect();
    let mut epochs = BTreeMap::new();
    for home in homes {
        epochs.extend(owned(service, home).await.map(|epoch| (home, epoch)));
    }
    let found = open(service, over, busy).into_iter();
    let found = found.filter_map(|(home, number)| Some((home, *epochs.get(&home)?, number)));
    let batches = service.shared.gates.batches();
    let found = found.take(WORKERS_MAX.saturating_sub(busy.len()));
    found.filter_map(|(home, epoch, number)| Some((batches.get(number)?.clone(), home, epoch))).collect()
}

/// The batches that are neither stopped, nor known to be over, nor under way, by their home shards; the oldest first.
fn open(service: &Service, over: &BTreeSet<u64>, busy: &BTreeSet<u64>) -> Vec<(Shard, u64)> {
    let batches = service.shared.gates.batches();
    let open = batches.oldest_first().filter(|known| {
        let number = known.begun.number;
        known.stopped.is_none() && !over.contains(&number) && !busy.contains(&number)
    });
    open.map(|known| (home_of(service, known), known.begun.number)).collect()
}

/// The epoch of a shard that runs here.
async fn owned(service: &Service, shard: Shard) -> Option<Epoch> {
    let boot = service.clock().now().boot;
    let view = service.ask(shard, move |engine: &Engine| engine.shard_view(boot)).await?;
    (view.phase == "running").then_some(view.epoch)
}

/// One batch, as long as its home shard is owned here.
struct Worker {
    service: Service,
    known: KnownBatch,
    home: Shard,
    epoch: Epoch,
}

/// Why a worker ends, or does not.
enum Step {
    GoesOn,
    Done,
    /// It was stopped, or its home shard is another's.
    Left,
}

/// What does not work at the moment.
struct Trouble(String);

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble(error.to_string())
    }
}

impl Worker {
    fn shared(&self) -> &Arc<Shared> {
        &self.service.shared
    }

    fn number(&self) -> u64 {
        self.known.begun.number
    }

    fn now(&self) -> Wall {
        self.service.clock().now().wall
    }

    /// Until it is done (true), or is not to go on here.
    async fn run(self) -> bool {
        let mut pace = Pace::new(self.known.batch.rate);
        let progress = loop {
            match self.begin(&mut pace).await {
                Ok(progress) => break progress,
                Err(Trouble(detail)) => {
                    tracing::warn!(batch = self.number(), detail, "a batch waits");
                    tokio::time::sleep(PAUSE).await;
                }
            }
            if !self.may_go_on().await {
                return false;
            }
        };
        progress.is_done || self.go_on(progress, pace).await
    }

    async fn go_on(&self, mut progress: BatchProgress, mut pace: Pace) -> bool {
        let pace = &mut pace;
        tracing::info!(batch = self.number(), verb = self.known.batch.verb.word(), "a batch is carried out");
        loop {
            let step = match self.step(&mut progress, pace).await {
                Ok(step) => step,
                Err(Trouble(detail)) => {
                    tracing::warn!(batch = self.number(), detail, "a batch waits");
                    progress.trouble = Some(detail.into());
                    let _ = self.tell(&mut progress, pace).await;
                    tokio::time::sleep(PAUSE).await;
                    if self.may_go_on().await { Step::GoesOn } else { Step::Left }
                }
            };
            match step {
                Step::GoesOn => {}
                Step::Left => return false,
                Step::Done => {
                    let BatchProgress { found, asked, failed, .. } = progress;
                    tracing::info!(batch = self.number(), found, asked, failed, "a batch is done");
                    return true;
                }
            }
        }
    }

    /// Where the last owner was, or the beginning.
    async fn begin(&self, pace: &mut Pace) -> Result<BatchProgress, Trouble> {
        let instance: Arc<str> = Arc::from(self.shared().options.instance.as_str());
        if let Some(progress) = self.shared().store.batch_progress(self.number()).await? {
            return Ok(BatchProgress { epoch: self.epoch, instance, ..progress });
        }
        tokio::time::sleep(SETTLE).await;
        let mut cutoffs = Vec::new();
        for shard in (0..self.shared().cluster.shards).map(Shard) {
            let progress = self.shared().store.progress(shard).await?;
            let at =
                |progress: crate::model::Progress| Version::new(progress.generation, progress.next_offset);
            cutoffs.push(progress.map_or(Version::MIN, at));
        }
        let batch = &self.known.batch;
        let only = batch.filter.queue.as_ref().map(|queue| home_shard(queue, self.shared().cluster.shards));
        let mut progress = BatchProgress {
            epoch: self.epoch,
            instance,
            shard: only.unwrap_or(Shard(0)),
            reached: crate::model::Reached::start_of(batch.from),
            cutoffs,
            found: 0,
            asked: 0,
            failed: 0,
            sample: Vec::new(),
            trouble: None,
            at: self.now(),
            is_done: false,
        };
        // Nothing is asked before it is on record what is to be left alone: it is made by what is asked.
        self.tell(&mut progress, pace).await?;
        Ok(progress)
    }

    /// Whether it is still this worker's: not stopped, and its home shard still owned in the same epoch.
    async fn may_go_on(&self) -> bool {
        let is_stopped =
            self.shared().gates.batches().get(self.number()).is_none_or(|known| known.stopped.is_some());
        !is_stopped && owned(&self.service, self.home).await == Some(self.epoch)
    }

    /// One page of tasks.
    async fn step(&self, progress: &mut BatchProgress, pace: &mut Pace) -> Result<Step, Trouble> {
        if !self.may_go_on().await {
            self.tell(progress, pace).await?;
            return Ok(Step::Left);
        }
        let page = page::read(self.shared(), &self.known, progress, pace).await?;
        progress.trouble = None;
        let Page { items, next } = page;
        for group in items.chunks(pace.group()) {
            if !self.known.batch.dry_run {
                pace.wait(group.len()).await;
                if pace.is_time_to_tell() && !self.may_go_on().await {
                    self.tell(progress, pace).await?;
                    return Ok(Step::Left);
                }
            }
            // A page may be old by the time that its turn comes.
            let found = page::still_so(&self.shared().store, &self.known.batch, group).await?;
            if !self.known.batch.dry_run {
                let failed = self.ask(&found).await?;
                progress.failed += failed;
                progress.asked += found.len() as u64 - failed;
            }
            progress.found += found.len() as u64;
            let room = SAMPLE.saturating_sub(progress.sample.len());
            progress.sample.extend(found.iter().take(room).map(|item| item.key().clone()));
            if let Some(last) = group.last() {
                progress.reached = last.behind();
            }
            if pace.is_time_to_tell() {
                self.tell(progress, pace).await?;
            }
        }
        match next {
            Some(next) => progress.reached = next,
            None => self.next_shard(progress),
        }
        if progress.is_done || pace.is_time_to_tell() {
            self.tell(progress, pace).await?;
        }
        Ok(if progress.is_done { Step::Done } else { Step::GoesOn })
    }

    fn next_shard(&self, progress: &mut BatchProgress) {
        let next = progress.shard.0 + 1;
        let only_one = self.known.batch.filter.queue.is_some();
        progress.is_done = only_one || next >= self.shared().cluster.shards;
        if !progress.is_done {
            progress.shard = Shard(next);
            progress.reached = crate::model::Reached::start_of(self.known.batch.from);
        }
    }

    async fn tell(&self, progress: &mut BatchProgress, pace: &mut Pace) -> Result<(), Trouble> {
        progress.at = self.now();
        pace.told = Instant::now();
        pace.stamp = (pace.stamp + 1).max(u64::try_from(self.now().0).unwrap_or(0) * 1_000);
        let written = self.shared().store.write_batch_progress(self.number(), progress.clone(), pace.stamp);
        Ok(written.await?)
    }

    /// Asks a group of tasks to change, in order; gives how many cannot be asked for good.
    async fn ask(&self, group: &[&Item]) -> Result<u64, Trouble> {
        if self.known.batch.verb == BatchVerb::Purge {
            let rows: Vec<Row> = group.iter().filter_map(|item| item.purged(self.number())).collect();
            self.shared().store.write(rows.into()).await?;
            return Ok(0);
        }
        let (mut failed, mut keys, mut sent) = (0, Vec::new(), Vec::new());
        for item in group {
            match self.message(item) {
                Ok(message) => {
                    keys.push(item.key());
                    sent.push(self.shared().producer.produce(message));
                }
                Err(detail) => {
                    failed += 1;
                    self.refused(item.key(), &detail);
                }
            }
        }
        let mut trouble = None;
        for (key, answer) in keys.into_iter().zip(join_all(sent).await) {
            match answer {
                Ok(_) => {}
                Err(error @ log::Error::TooLarge(_)) => {
                    failed += 1;
                    self.refused(key, &error.to_string());
                }
                Err(error) => trouble = Some(Trouble(error.to_string())),
            }
        }
        trouble.map_or(Ok(failed), Err)
    }

    fn refused(&self, key: &TaskKey, detail: &str) {
        tracing::warn!(batch = self.number(), queue = %key.queue, id = %key.id, detail, "a task cannot be asked");
    }

    fn message(&self, item: &Item) -> Result<log::Message, String> {
        let (queue, id) = (Some(item.key().queue.to_string()), item.key().id.to_string());
        let number = self.number();
        let reason = match &self.known.begun.reason {
            Some(reason) => format!("batch {number}: {reason}"),
            None => format!("batch {number}"),
        };
        let reason = Some(cut(reason));
        let request = match self.known.batch.verb {
            BatchVerb::Cancel => {
                Request::Cancel(CancelRequest { queue, id, reason, ..CancelRequest::default() })
            }
            BatchVerb::Reschedule => {
                let due_at = item.due_at().plus_ms(self.known.batch.shift_ms);
                let due_at = Some(format_time(due_at.max(Wall(0))));
                Request::Reschedule(RescheduleRequest {
                    queue,
                    id,
                    due_at,
                    reason,
                    ..RescheduleRequest::default()
                })
            }
            BatchVerb::Redrive | BatchVerb::Purge => {
                Request::Redrive(RedriveRequest { queue, id, reason, ..RedriveRequest::default() })
            }
        };
        let plain = request::encode(&request);
        let event =
            decode_plain(&plain, self.now(), &self.shared().rules).map_err(|fault| fault.to_string())?;
        let mut value: serde_json::Value = serde_json::from_slice(&plain).map_err(|why| why.to_string())?;
        value.as_object_mut().and_then(|members| members.remove("type"));
        let mut message = request::message(&event, value.to_string().into(), None);
        // Asked twice, by an owner that was thought lost for example, it is a repeat.
        let id = format!("batch-{number}");
        message.headers.extend(request::cloud_event_headers(event.verb.word(), EVENT_SOURCE, &id));
        message.partition = Some(home_shard(&item.key().queue, self.shared().cluster.shards).0);
        Ok(message)
    }
}

/// A reason as an event may have it.
fn cut(mut reason: String) -> String {
    let mut end = reason.len().min(crate::model::limits::TEXT_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.truncate(end);
    reason
}

/// How fast a batch goes, and how often it tells.
struct Pace {
    rate: u32,
    next: Instant,
    told: Instant,
    /// Of the last progress row.
    stamp: u64,
    /// How much time of dead letters one page looks through, in milliseconds.
    width_ms: i64,
}

impl Pace {
    fn new(rate: u32) -> Pace {
        Pace { rate, next: Instant::now(), told: Instant::now(), stamp: 0, width_ms: page::WIDTH_MS }
    }

    fn group(&self) -> usize {
        (self.rate.div_ceil(GROUPS_A_SECOND) as usize).clamp(1, GROUP_MAX)
    }

    /// Waits until so many more may be asked. What was not used of a rate is not made up for.
    async fn wait(&mut self, count: usize) {
        self.next = self.next.max(Instant::now());
        tokio::time::sleep_until(self.next).await;
        self.next += Duration::from_secs(1) * count as u32 / self.rate;
    }

    fn is_time_to_tell(&self) -> bool {
        self.told.elapsed() >= TELL
    }
}
