//! The sans-IO engine of one shard: everything that is decided about it, with no clock, IO, chance or thread of its own.
//!
//! One door in, [`Engine::handle`], takes a fact and the time; one door out, [`Engine::poll_effect`], says what is to
//! be done; [`Engine::poll_timeout`] says when to come back. The same engine runs under Kafka and Cassandra, embedded,
//! and in the simulation. It sees only [`crate::model`].
//!
//! ```text
//!   records ─► intake ─► decide ─► rows ─► visible ─► window ─► queue ─► attempt ─► rows ─► gone
//!                                   │                  ▲                   │
//!                              progress, commit      load (store)        call
//! ```

#[macro_use]
pub mod plant;
mod attempt;
mod commit;
mod death;
mod decide;
mod due;
mod effect;
mod ending;
mod finish;
mod fold;
mod gate;
mod head;
mod hold;
mod ids;
mod input;
mod intake;
mod lane;
mod late;
mod life;
mod load;
mod map;
mod outbox;
mod ownership;
mod park;
mod queue;
mod quota;
mod renew;
mod retention;
mod scout;
mod takeover;
#[cfg(test)]
mod tests;
mod view;
mod window;
mod writes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::model::{
    Boot, Closed, CollectionLimits, Epoch, HandlerName, Now, OpenAttempts, Place, Rate, Reset, RetryPolicy,
    Shard, Wall, limits,
};

pub use effect::{CallOrder, Effect, KeyLookup, LeaveCause, Observation};
pub use fold::{Counts, Folded, Next, fold, state_of};
pub use input::{Budget, CallEnd, Failure, Incoming, Input, LogEnd};
pub use lane::{Kind as LaneKind, Lane};
pub use ownership::Timing;
pub use quota::{Grant, Holdup, Limit, Pool};
pub use renew::Loss;
pub use retention::{Aged, Forget, aged, forget};
pub use takeover::{Step, Takeover};
pub use view::{Blocked, Explanation, HandlerQueues, Pause, QueueView, ShardView, Whose};

use attempt::Attempts;
use commit::Commit;
use ids::Ids;
use intake::Intake;
use late::Late;
use outbox::Outbox;
use ownership::Ownership;
use park::Parked;
use queue::{Lines, Queues, SlotChange};
use scout::Scout;
use window::Window;
use writes::Writes;

/// What a handler's tasks get when they do not say themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Time for one attempt, in milliseconds.
    pub timeout_ms: u64,
    /// When a failed attempt is tried again.
    pub retry: RetryPolicy,
    /// What follows an attempt whose end nobody knows.
    pub open_attempts: OpenAttempts,
    /// Schedule events that are taken in, over all shards.
    pub intake: Option<Rate>,
    /// Late tasks begin at a rate of their own.
    pub catches_up: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            timeout_ms: limits::TIMEOUT_MS,
            retry: RetryPolicy::default(),
            open_attempts: OpenAttempts::default(),
            intake: None,
            catches_up: false,
        }
    }
}

/// What an engine is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The shard.
    pub shard: Shard,
    /// Shards in all.
    pub shards: u32,
    /// This instance's name, for rows that people read.
    pub instance: Arc<str>,
    /// The lease.
    pub timing: Timing,
    /// How far ahead tasks are loaded, in milliseconds.
    pub look_ahead_ms: i64,
    /// How long the end of an attempt that nobody waits for may wait for a start to go along with, in milliseconds.
    pub ends_wait_ms: u64,
    /// Same content within this time is a repeat, in milliseconds.
    pub repeat_window_ms: i64,
    /// Time between progress rows, in milliseconds.
    pub progress_ms: u64,
    /// The same when only the watermark moves, in milliseconds.
    pub watermark_ms: u64,
    /// A log that does not answer for this long does not hold up a takeover any more, in milliseconds.
    pub catch_up_ms: u64,
    /// Ready tasks of one queue that stay in memory.
    pub queue_tasks_max: usize,
    /// Task rows between watermark and now above which unfinished tasks get pointers.
    pub late_rows: usize,
    /// A task ready for less gets no pointer for the watermark's sake, in milliseconds.
    pub late_after_ms: i64,
    /// Whether what becomes of tasks is published on the events topic.
    pub publishes: bool,
    /// Policies of handlers; others have the default.
    pub policies: Arc<BTreeMap<HandlerName, Policy>>,
    /// What collections are limited to.
    pub collections: Arc<CollectionLimits>,
}

impl Options {
    /// The defaults for a shard.
    pub fn new(shard: Shard, shards: u32, instance: &str) -> Options {
        Options {
            shard,
            shards,
            instance: Arc::from(instance),
            timing: Timing::default(),
            look_ahead_ms: limits::LOOK_AHEAD_MS,
            ends_wait_ms: limits::ENDS_WAIT_MS,
            repeat_window_ms: limits::REPEAT_WINDOW_MS,
            progress_ms: 200,
            watermark_ms: 10_000,
            catch_up_ms: 60_000,
            queue_tasks_max: limits::QUEUE_TASKS_MAX,
            late_rows: limits::LATE_ROWS,
            late_after_ms: limits::LATE_AFTER_MS,
            publishes: false,
            policies: Arc::new(BTreeMap::new()),
            collections: Arc::default(),
        }
    }

    fn policy(&self, handler: &HandlerName) -> Policy {
        self.policies.get(handler).copied().unwrap_or_default()
    }
}

/// How far a shard that is owned has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not owned, or letting go.
    Out,
    /// Loading from the store.
    Loading,
    /// Everything accepted before the takeover is being applied; nothing starts yet.
    CatchingUp,
    /// Running.
    Running,
    /// The log lost what is needed: a person has to look.
    Stopped,
}

/// The engine of one shard.
#[derive(Debug)]
pub struct Engine {
    options: Options,
    now: Now,
    random: u64,
    stage: Stage,
    ownership: Ownership,
    commit: Commit,
    intake: Intake,
    window: Window,
    scout: Scout,
    queues: Queues,
    lines: Lines,
    attempts: Attempts,
    parked: Parked,
    late: Late,
    outbox: Outbox,
    ids: Ids,
    writes: Writes,
    budget: Budget,
    /// The gates in force, and until when they may be relied on.
    closed: Arc<Closed>,
    gates_until: Boot,
    /// Those asked for before do not count.
    gates_after: Boot,
    load_retry: Option<Boot>,
    catch_up_since: Option<Boot>,
    gap_since: Option<Boot>,
    /// How a takeover came on, until the shard runs.
    takeover: Option<Takeover>,
    /// Since when an assigned shard has heard nothing of its owner row that still counts.
    unheard_since: Option<Boot>,
    /// The shard was taken in order, and runs on until then.
    let_go_at: Option<Boot>,
    /// What the log lost: the shard is stopped, or about to be.
    lost: Option<Arc<Loss>>,
    /// The loss of records that a person accepted last.
    accepted: Option<Arc<Reset>>,
    tickets: u64,
    /// Answers to tickets up to this one belong to an earlier life of the shard.
    life_began: u64,
    effects: VecDeque<Effect>,
    /// Facts were taken since it went on last.
    is_stirred: bool,
}

impl Engine {
    /// An engine that owns nothing yet.
    pub fn new(options: Options) -> Engine {
        let ownership = Ownership::new(options.timing);
        let budget = Budget::default();
        Engine {
            now: Now::default(),
            random: u64::from(options.shard.0) + 1,
            stage: Stage::Out,
            ownership,
            commit: Commit::default(),
            intake: Intake::default(),
            window: Window::new(Place::start_of(Wall::MIN), budget.tasks),
            scout: Scout::default(),
            queues: Queues::default(),
            lines: Lines::default(),
            attempts: Attempts::default(),
            parked: Parked::default(),
            late: Late::default(),
            outbox: Outbox::default(),
            ids: Ids::default(),
            writes: Writes::default(),
            budget,
            closed: Arc::default(),
            gates_until: Boot(u64::MAX),
            gates_after: Boot(0),
            load_retry: None,
            catch_up_since: None,
            gap_since: None,
            takeover: None,
            unheard_since: None,
            let_go_at: None,
            lost: None,
            accepted: None,
            tickets: 0,
            life_began: 0,
            effects: VecDeque::new(),
            is_stirred: false,
            options,
        }
    }

    fn owner_answered(&mut self, input: Input) {
        let (lease, now) = (&mut self.ownership, self.now.boot);
        let turn = match input {
            Input::OwnerRead(read) => lease.owner_read(now, read),
            Input::OwnerSeen(seen) => lease.owner_seen(now, seen),
            Input::Bumped(applied) => lease.bumped(now, applied),
            Input::Released(applied) => lease.released(now, applied),
            _ => return,
        };
        if matches!(self.ownership.phase_word(), "waiting" | "owned") {
            self.came_to(Step::Bumped);
        }
        self.turn(turn);
    }

    /// Takes one fact. Effects that follow are then to be polled until there are none; of several facts of everyday taken one
    /// after the other they follow together, so that what they lead to is written together.
    pub fn handle(&mut self, now: Now, input: Input) {
        let may_gather = may_gather(&input);
        self.now = now;
        if !may_gather {
            self.advance_if_stirred();
        }
        match input {
            Input::Assigned { owner } => self.assigned(owner),
            Input::Revoked => self.revoked(),
            Input::Lost => self.lost(),
            Input::Budget(budget) => self.set_budget(budget),
            Input::Gates(closed, asked_at) => self.gates_known(closed, asked_at),
            Input::Reset(reset) => self.reset_asked(reset),
            Input::OwnerRead(_) | Input::OwnerSeen(_) | Input::Bumped(_) | Input::Released(_) => {
                self.owner_answered(input);
            }
            Input::ProgressRead(ticket, read) => self.when_fresh(ticket, |engine| engine.progress_read(read)),
            Input::ProgressWritten(ticket, written) => {
                self.when_fresh(ticket, |engine| engine.progress_written(written));
            }
            Input::Forgotten(events) => self.ids.forget(&events),
            Input::IdsRead(ticket, read) => self.when_fresh(ticket, |engine| engine.ids_read(ticket, read)),
            Input::LogEndRead(ticket, read) => {
                self.when_fresh(ticket, |engine| engine.log_end_read(ticket, read));
            }
            Input::Sought(ticket, sought) => self.sought(ticket, sought),
            Input::Fetched(ticket, records) => self.fetched(ticket, records),
            Input::LookedUp(batch, rows) => self.looked_up(batch, rows),
            Input::Sliced(ticket, page) => self.sliced(ticket, page),
            Input::FactsRead(ticket, place, rows) => {
                self.when_fresh(ticket, |engine| {
                    if !engine.late_facts_read(ticket, &rows) {
                        engine.facts_read(ticket, place, rows);
                    }
                });
            }
            Input::PayloadRead(ticket, place, payload) => {
                self.when_fresh(ticket, |engine| engine.payload_read(place, payload));
            }
            Input::LateQueuesRead(ticket, rows) => {
                self.when_fresh(ticket, |engine| engine.late_queues_read(ticket, rows));
            }
            Input::PointersRead(ticket, page) => {
                self.when_fresh(ticket, |engine| engine.pointers_read(ticket, page));
            }
            Input::Written(ticket, written) => self.written(ticket, written),
            Input::Produced(version, produced) => self.produced(version, produced),
            Input::Slots(lane, count) => self.lines.granted(&lane, count),
            Input::CallEnded(seq, end) => self.call_ended(seq, end),
            Input::QueueStopped(seq, stopped) => self.queue_stopped(seq, stopped),
            Input::Published(ticket, count, failure) => self.published(ticket, count, failure),
            Input::Tick => {}
            Input::ClockJumped => {
                self.ownership.clock_jumped(now.boot);
                self.gates_may_be_old();
            }
        }
        self.is_stirred = true;
        if !may_gather {
            self.advance_if_stirred();
        }
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if self.effects.is_empty() {
            self.advance_if_stirred();
        }
        self.effects.pop_front()
    }

    fn advance_if_stirred(&mut self) {
        if std::mem::take(&mut self.is_stirred) {
            self.advance();
        }
    }

    /// When to come back with `Input::Tick`, by the boot clock.
    pub fn poll_timeout(&self) -> Option<Boot> {
        let leased = self.ownership.valid(self.now.boot);
        let lease = [self.ownership.timeout(self.now.boot), self.leave_timeout(), self.let_go_at];
        let lease = lease.into_iter().chain([self.outbox.next_send()]);
        let writes = self.writes.next_send(self.now.boot, leased);
        let sent = [self.attempts.next_deadline(), self.attempts.next_stop(), writes];
        let always = lease.chain(sent);
        let active = [self.window_timeout(), self.queues.next_backoff(), self.parked.next()]
            .map(|at| self.boot_when(at));
        let loading = [self.load_retry, self.press_timeout(), self.late.next_retry()];
        let active = active.into_iter().chain(loading).chain([self.catch_up_timeout()]);
        let owned = [self.boot_when(self.attempts.next_hold()), self.intake.next_retry()];
        let owned = owned.into_iter().chain([self.progress_timeout()]);
        let active = active.filter(|_| self.is_active());
        always.chain(active).chain(owned.filter(|_| self.is_active() && leased)).flatten().min()
    }

    /// Whether the shard is being loaded or run.
    fn is_active(&self) -> bool {
        !matches!(self.stage, Stage::Out | Stage::Stopped)
    }

    /// Whether nothing is owned and nothing is under way: the engine may be dropped.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Out
            && !self.ownership.assigned()
            && self.ownership.phase_word() == "idle"
            && self.attempts.is_empty()
            && self.writes.is_empty()
    }

    fn advance(&mut self) {
        let mut calls = Vec::new();
        let turn = self.ownership.tick(self.now.boot, &mut calls);
        self.effects.extend(calls);
        self.turn(turn);
        self.let_go_when_due();
        self.end_deadlines();
        self.stop_queues_again();
        if self.is_active() {
            self.load_more();
            self.catch_up();
            self.drive_intake();
            self.stop_when_applied();
            self.promote();
            self.end_holds();
            self.drive_late();
            self.start_heads();
            self.write_progress_when_due();
        }
        self.leave_when_unheard();
        self.drive_outbox();
        self.settle_slots();
        self.flush_writes();
    }

    fn settle_slots(&mut self) {
        let may_start = self.may_start();
        for (lane, change) in self.lines.settle(self.now.boot, may_start) {
            self.slot_effect(lane, change);
        }
    }

    fn slot_effect(&mut self, lane: Lane, change: SlotChange) {
        self.effects.push_back(match change {
            SlotChange::Want(count, since) => Effect::WantSlots(lane, count, since),
            SlotChange::Withdraw(unused) => Effect::WithdrawSlots(lane, unused),
        });
    }

    fn end_gap(&mut self) {
        if let Some(since) = self.gap_since.take() {
            self.observe(Observation::Gap(self.now.boot.ms_since(since)));
        }
    }

    fn came_to(&mut self, step: Step) {
        if let Some(takeover) = &mut self.takeover {
            takeover.note(step, self.now.boot);
        }
    }

    fn observe(&mut self, observation: Observation) {
        self.effects.push_back(Effect::Observe(observation));
    }

    fn when_fresh(&mut self, ticket: u64, act: impl FnOnce(&mut Engine)) {
        if ticket > self.life_began {
            act(self);
        }
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// The next number of a small generator (splitmix64, Steele and others 2014), for jitter.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn draw_fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn boot_when(&self, wall: Option<Wall>) -> Option<Boot> {
        wall.map(|wall| self.now.boot.plus_ms(wall.ms_since(self.now.wall)))
    }

    fn epoch(&self) -> Epoch {
        self.ownership.epoch()
    }
}

/// Facts of everyday, of which many come at once: slots, and what became of calls, writes and task events. An engine takes
/// several of them before it is asked what to do.
pub fn may_gather(input: &Input) -> bool {
    matches!(input, Input::Slots(..) | Input::CallEnded(..) | Input::Written(..) | Input::Published(..))
}
