//! The runtime: one actor a shard, each with an engine; it performs what engines ask for and decides nothing.
//!
//! ```text
//!   consumer group ──Assigned/Revoked──► service ──► shard actor (engine) ◄──► store, log, handlers
//!                                           │              ▲
//!                                       slot pool ─────────┘
//! ```
//!
//! An actor polls its engine, its unanswered store and log calls, its running handler calls and one timer, in one
//! task. Handlers run in tasks of their own, so that a slow or panicking one harms no shard.

mod actor;
mod alarm;
pub(crate) mod batch;
pub mod clock;
mod due_soon;
pub(crate) mod gates;
mod membership;
mod observe;
mod pace;
pub(crate) mod perform;
mod publish;
mod rehearsal;
mod retention;
mod slots;
mod trouble;
mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::dispatch::Registry;
use crate::engine::{self, Engine, Input, Timing};
use crate::log::{Assignment, Consumer, Producer};
use crate::metrics::Metrics;
use crate::model::{CollectionLimits, HandlerName, Shard, limits};
use crate::store::{self, Cluster, Store};
use crate::telemetry::otlp::Tracer;
use crate::wire::event::Rules;

pub use clock::Clock;

use actor::{Actor, Command};
use slots::Slots;

/// What a service is made of.
pub struct Parts {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The reading side of the log.
    pub consumer: Arc<dyn Consumer>,
    /// The writing side of the log.
    pub producer: Arc<dyn Producer>,
    /// The writing side of the log for task events: their failures hold up nothing else.
    pub events_producer: Arc<dyn Producer>,
    /// The handlers.
    pub registry: Arc<Registry>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// What makes spans of attempts; `None` = nothing does.
    pub tracer: Option<Tracer>,
    /// What events are checked against.
    pub rules: Rules,
    /// The cluster row.
    pub cluster: Cluster,
    /// The options.
    pub options: Options,
}

/// How a service runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// This instance's name.
    pub instance: String,
    /// Its data centre.
    pub dc: String,
    /// Where its HTTP interface answers.
    pub advertise: String,
    /// The lease.
    pub timing: Timing,
    /// Tasks that the instance holds in memory.
    pub tasks_in_memory: usize,
    /// Memory for schedule events that are fetched and not stored yet, in bytes.
    pub intake_bytes: usize,
    /// Memory for task events that are not published yet, in bytes.
    pub events_bytes: usize,
    /// Ids with events on record that the instance knows of in memory.
    pub ids_in_memory: usize,
    /// How far ahead tasks are loaded, in milliseconds.
    pub look_ahead_ms: i64,
    /// How long the end of an attempt that nobody waits for may wait for a start to go along with, in milliseconds.
    pub ends_wait_ms: u64,
    /// Same content within this time is a repeat, in milliseconds.
    pub repeat_window_ms: i64,
    /// What is finished is kept for so long, in milliseconds; more than the time before.
    pub history_ms: u64,
    /// Whether what becomes of tasks is published on the events topic.
    pub task_events: bool,
    /// Whether a copy of dead letters is put on the dead topic.
    pub dead_letters: bool,
    /// The consumer group's name.
    pub group: String,
    /// What collections are limited to.
    pub collections: Arc<CollectionLimits>,
    /// Topic names' prefix.
    pub prefix: String,
    /// No other process can own a shard (the embedded store is locked): a jump of the clock ends no lease.
    pub sole_owner: bool,
    /// The group keeps its shards for it while it is away for a moment: nobody runs them then.
    pub static_member: bool,
}

/// What actors share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) consumer: Arc<dyn Consumer>,
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) events_producer: Arc<dyn Producer>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) rules: Rules,
    pub(crate) cluster: Cluster,
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) slots: Slots,
    pub(crate) gates: gates::Keeper,
    rejoin: mpsc::Sender<engine::LeaveCause>,
    /// It lets go for good: the group is not joined any more.
    stopping: AtomicBool,
    /// Out of the group, or about to leave it: no shard is taken.
    leaving: AtomicBool,
    troubles: trouble::Troubles,
}

/// A running service.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    actors: Arc<Mutex<BTreeMap<Shard, mpsc::UnboundedSender<Command>>>>,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// What an engine has to know of a handler's policy.
pub(crate) fn of_engine(policy: &crate::dispatch::Policy) -> engine::Policy {
    engine::Policy {
        timeout_ms: policy.timeout_ms,
        retry: policy.retry,
        open_attempts: policy.open_attempts,
        intake: policy.intake,
        catches_up: policy.catch_up.is_some(),
    }
}

/// What the slots of a handler are limited by.
fn limit_of(policy: &crate::dispatch::Policy) -> engine::Limit {
    engine::Limit {
        concurrency: policy.concurrency,
        rate: policy.rate,
        breaker: policy.breaker,
        reserve: policy.reserve,
        catch_up: policy.catch_up,
    }
}

/// Time between heartbeat rows.
const BEAT: Duration = Duration::from_secs(5);
/// Time for shards on their way to this instance, before it leaves. Who runs a shard that this one turns down runs on for twice
/// as long.
const ARRIVE: Duration = Duration::from_secs(2);
/// Time for letting go of all shards.
const LET_GO: Duration = Duration::from_secs(6);
/// Time for what is still on its way to topics.
const FLUSH: Duration = Duration::from_secs(3);

impl Service {
    /// Starts: joins the group, unless it is drained and once it has rehearsed a takeover, and what it is assigned.
    pub fn start(parts: Parts) -> Service {
        let limits = parts.registry.handlers().map(|(name, _, policy)| (name.clone(), limit_of(&policy)));
        let pool = engine::Pool::new(limits.collect(), limit_of(&crate::dispatch::Policy::default()))
            .with_collections((*parts.options.collections).clone());
        let clock = Clock::start();
        let slots = Slots::new(pool, clock.clone(), parts.cluster.shards);
        let (rejoin, asked) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            gates: gates::Keeper::new(parts.store.clone()),
            store: parts.store,
            consumer: parts.consumer,
            producer: parts.producer,
            events_producer: parts.events_producer,
            registry: parts.registry,
            metrics: parts.metrics,
            tracer: parts.tracer,
            rules: parts.rules,
            cluster: parts.cluster,
            options: parts.options,
            clock,
            slots,
            rejoin,
            stopping: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            troubles: trouble::Troubles::default(),
        });
        let service = Service { shared, actors: Arc::default(), tasks: Arc::default() };
        let follow = tokio::spawn(service.clone().follow_assignment());
        let beat = tokio::spawn(service.clone().beat());
        let gates = tokio::spawn(gates::follow(service.clone()));
        let batches = tokio::spawn(batch::follow(service.clone()));
        let membership = tokio::spawn(membership::keep(service.clone(), asked));
        let clock = tokio::spawn(service.shared.clock.clone().keep());
        let watch = tokio::spawn(watch::watch(service.clone()));
        let slots = tokio::spawn(slots::grant_in_time(service.shared.clone()));
        let retention = tokio::spawn(retention::follow(service.clone()));
        let due_soon =
            due_soon::TOGETHER.map(|horizons| tokio::spawn(due_soon::follow(service.clone(), horizons)));
        service.tasks.lock().unwrap_or_else(PoisonError::into_inner).extend(
            [follow, beat, gates, batches, membership, clock, watch, slots, retention]
                .into_iter()
                .chain(due_soon),
        );
        service
    }

    /// The clock that everything runs by.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Slots of a handler that are taken, and those that this instance has.
    pub(crate) fn slots_taken(&self, handler: &HandlerName) -> (u32, u32) {
        self.shared.slots.taken(handler)
    }

    /// Why no slot of a lane would be granted now.
    pub(crate) fn holdup_in(&self, lane: &engine::Lane) -> Option<engine::Holdup> {
        self.shared.slots.holdup_in(lane)
    }

    /// Why no slot of a handler would be granted now.
    pub(crate) fn holdup(&self, handler: &HandlerName) -> Option<engine::Holdup> {
        self.shared.slots.holdup(handler)
    }

    /// What holds up some of the tasks of a handler that wait: with the collection, where it is the limit of one.
    pub(crate) fn holdups_apart(&self, handler: &HandlerName) -> Vec<(Option<Arc<str>>, engine::Holdup)> {
        self.shared.slots.holdups_apart(handler)
    }

    /// The gates.
    pub(crate) fn gates(&self) -> &gates::Keeper {
        &self.shared.gates
    }

    /// Asks a shard's engine something; `None` when this instance has no such shard.
    pub async fn ask<T: Send + 'static>(
        &self,
        shard: Shard,
        question: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Ask(Box::new(move |engine| {
            let _ = answer.send(question(engine));
        }));
        self.actor(shard)?.send(command).ok()?;
        answered.await.ok()
    }

    /// The shards this instance has actors for.
    pub fn shards(&self) -> Vec<Shard> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Those of them that run.
    async fn running(&self) -> Vec<Shard> {
        let mut running = Vec::new();
        for shard in self.shards() {
            if self.ask(shard, Engine::runs).await == Some(true) {
                running.push(shard);
            }
        }
        running
    }

    /// The first half of a stop in order: takes no shard any more, leaves the group, so that others get the shards while they
    /// run on for a moment, and lets go of them all. What is not let go after 6 s is left to its lease.
    pub async fn let_go(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.leave_group(ARRIVE).await;
        self.tell_all(|| Input::Revoked);
        let _ = tokio::time::timeout(LET_GO, self.until_all(|engine| engine.is_released())).await;
    }

    /// Leaves the group, when the shards have arrived that come from others right now, in so long at most, and takes no further
    /// ones: several that leave one after the other would else hand each other shards that nobody runs meanwhile.
    async fn leave_group(&self, arrive: Duration) {
        self.shared.leaving.store(true, Ordering::SeqCst);
        let arrived = self.until_all(|engine| !engine.is_taking_over());
        let _ = tokio::time::timeout(arrive, arrived).await;
        self.shared.consumer.leave();
    }

    /// Joins the group, unless the service is to stop. The group gives shards to those that have joined alone: all that were
    /// turned down before are taken away again by then.
    fn join_group(&self) {
        if !self.shared.stopping.load(Ordering::SeqCst) {
            self.shared.leaving.store(false, Ordering::SeqCst);
            self.shared.consumer.join();
        }
    }

    /// Stops in order: [`Service::let_go`], then [`Service::finish`].
    pub async fn stop(&self, wait: Duration) {
        self.let_go().await;
        self.finish(wait).await;
    }

    /// The second half, after [`Service::let_go`]: waits for running calls up to `wait`, and ends.
    pub async fn finish(&self, wait: Duration) {
        self.shared.consumer.close().await;
        if tokio::time::timeout(wait, self.until_all(Engine::is_idle)).await.is_err() {
            tracing::warn!(
                ?wait,
                "calls that run still are broken off; their queues wait until their deadlines"
            );
        }
        let _ = tokio::time::timeout(FLUSH, self.shared.producer.flush(FLUSH.as_millis() as u64)).await;
        self.actors.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let tasks: Vec<_> = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        // Calls that were broken off have their spans now.
        if let Some(tracer) = &self.shared.tracer {
            tracer.finish().await;
        }
    }

    fn actor(&self, shard: Shard) -> Option<mpsc::UnboundedSender<Command>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner).get(&shard).cloned()
    }

    fn tell_all(&self, input: impl Fn() -> Input) {
        for actor in self.actors.lock().unwrap_or_else(PoisonError::into_inner).values() {
            let _ = actor.send(Command::Input(input()));
        }
    }

    /// Those that are not held here are passed over.
    fn tell_each(&self, inputs: impl Iterator<Item = (Shard, Input)>) {
        for (shard, input) in inputs {
            if let Some(actor) = self.actor(shard) {
                let _ = actor.send(Command::Input(input));
            }
        }
    }

    async fn until_all(&self, holds: impl Fn(&Engine) -> bool + Copy + Send + 'static) {
        for shard in self.shards() {
            while self.ask(shard, holds).await == Some(false) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn follow_assignment(self) {
        self.shared.gates.known().await;
        while let Some(change) = self.shared.consumer.assignment().await {
            tracing::debug!(?change, "assignment");
            match change {
                // Who runs them now goes on until they are given to another.
                Assignment::Assigned(_) if self.shared.leaving.load(Ordering::SeqCst) => {}
                Assignment::Assigned(shards) => {
                    tracing::info!(shards = shards.len(), "shards assigned");
                    for shard in shards {
                        self.assign(shard);
                    }
                }
                Assignment::Revoked(shards) => {
                    tracing::info!(shards = shards.len(), "shards revoked");
                    self.tell(&shards, || Input::Revoked);
                }
                Assignment::Lost(shards) => {
                    tracing::warn!(
                        shards = shards.len(),
                        "assignment lost: shards run on under their leases"
                    );
                    self.tell(&shards, || Input::Lost);
                }
            }
            self.share_budget().await;
        }
    }

    fn tell(&self, shards: &[Shard], input: impl Fn() -> Input) {
        for shard in shards {
            if let Some(actor) = self.actor(*shard) {
                let _ = actor.send(Command::Input(input()));
            }
        }
    }

    fn assign(&self, shard: Shard) {
        let owner = uuid::Uuid::new_v4().as_u128();
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        let actor = actors.entry(shard).or_insert_with(|| {
            let (commands, inbox) = mpsc::unbounded_channel();
            self.shared.slots.register(shard, commands.clone());
            let actor = Actor::new(self.shared.clone(), self.engine_options(shard), inbox);
            let task = tokio::spawn(actor.run());
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
            if let Some(known) = self.shared.gates.closed() {
                let _ = commands.send(Command::Input(Input::Gates(known.closed, known.asked_at)));
            }
            commands
        });
        let _ = actor.send(Command::Input(Input::Assigned { owner }));
    }

    fn engine_options(&self, shard: Shard) -> engine::Options {
        let shared = &self.shared;
        let policies: BTreeMap<HandlerName, engine::Policy> =
            shared.registry.handlers().map(|(name, _, policy)| (name.clone(), of_engine(&policy))).collect();
        engine::Options {
            timing: shared.options.timing,
            look_ahead_ms: shared.options.look_ahead_ms,
            ends_wait_ms: shared.options.ends_wait_ms,
            repeat_window_ms: shared.options.repeat_window_ms,
            publishes: shared.options.task_events || shared.options.dead_letters,
            policies: Arc::new(policies),
            collections: shared.options.collections.clone(),
            ..engine::Options::new(shard, shared.cluster.shards, &shared.options.instance)
        }
    }

    /// Shares the memory bound among the shards that are owned.
    async fn share_budget(&self) {
        let mut owned = 0;
        for shard in self.shards() {
            owned += usize::from(self.ask(shard, |engine| !engine.is_idle()).await == Some(true));
        }
        let options = &self.shared.options;
        let budget = engine::Budget {
            tasks: (options.tasks_in_memory / owned.max(1)).max(limits::LOAD_PAGE_ROWS),
            intake_bytes: options.intake_bytes / owned.max(1),
            events_bytes: options.events_bytes / owned.max(1),
            ids: options.ids_in_memory / owned.max(1),
        };
        self.tell_all(|| Input::Budget(budget));
    }

    async fn beat(self) {
        let options = &self.shared.options;
        let started_at = self.shared.clock.now().wall;
        loop {
            let instance = store::Instance {
                name: options.instance.clone(),
                dc: options.dc.clone(),
                advertise: options.advertise.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                started_at,
                seen_at: self.shared.clock.now().wall,
            };
            if let Err(error) = self.shared.store.beat(instance).await {
                tracing::debug!(%error, "heartbeat not written");
            }
            tokio::time::sleep(BEAT).await;
        }
    }
}
