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
mod decide;
mod due;
mod effect;
mod fold;
mod input;
mod intake;
mod load;
mod ownership;
mod queue;
mod quota;
#[cfg(test)]
mod tests;
mod view;
mod window;
mod writes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::model::{
    Boot, Epoch, HandlerName, Now, OwnerUuid, Place, QueueName, RetryPolicy, Shard, Wall, limits,
};

pub use effect::{CallOrder, Effect, KeyLookup, Observation};
pub use fold::{Counts, Folded, Next, fold, state_of};
pub use input::{Budget, CallEnd, Failure, Incoming, Input, LogEnd};
pub use ownership::Timing;
pub use quota::{Grant, Pool};
pub use view::{Explanation, Pause, QueueView, ShardView};

use attempt::Attempts;
use commit::Commit;
use intake::Intake;
use ownership::{Ownership, Turn};
use queue::{Lines, Queues, SlotChange};
use window::Window;
use writes::Writes;

/// What a handler's tasks get when they do not say themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Time for one attempt, in milliseconds.
    pub timeout_ms: u64,
    /// When a failed attempt is tried again.
    pub retry: RetryPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { timeout_ms: limits::TIMEOUT_MS, retry: RetryPolicy::default() }
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
    /// Same content within this time is a repeat, in milliseconds.
    pub repeat_window_ms: i64,
    /// Time between progress rows, in milliseconds.
    pub progress_ms: u64,
    /// A log that does not answer for this long does not hold up a takeover any more, in milliseconds.
    pub catch_up_ms: u64,
    /// Policies of handlers; others have the default.
    pub policies: Arc<BTreeMap<HandlerName, Policy>>,
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
            repeat_window_ms: limits::REPEAT_WINDOW_MS,
            progress_ms: 200,
            catch_up_ms: 60_000,
            policies: Arc::new(BTreeMap::new()),
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
    queues: Queues,
    lines: Lines,
    attempts: Attempts,
    writes: Writes,
    budget: Budget,
    load_retry: Option<Boot>,
    catch_up_since: Option<Boot>,
    gap_since: Option<Boot>,
    tickets: u64,
    /// Answers to tickets up to this one belong to an earlier life of the shard.
    life_began: u64,
    effects: VecDeque<Effect>,
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
            queues: Queues::default(),
            lines: Lines::default(),
            attempts: Attempts::default(),
            writes: Writes::default(),
            budget,
            load_retry: None,
            catch_up_since: None,
            gap_since: None,
            tickets: 0,
            life_began: 0,
            effects: VecDeque::new(),
            options,
        }
    }

    /// Takes one fact. Effects that follow are then to be polled until there are none.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.now = now;
        match input {
            Input::Assigned { owner } => self.assigned(owner),
            Input::Revoked => self.revoked(),
            Input::Lost => self.lost(),
            Input::Budget(budget) => self.set_budget(budget),
            Input::OwnerRead(read) => {
                let turn = self.ownership.owner_read(now.boot, read);
                self.turn(turn);
            }
            Input::Bumped(applied) => {
                let turn = self.ownership.bumped(now.boot, applied);
                self.turn(turn);
            }
            Input::Released(applied) => {
                let turn = self.ownership.released(now.boot, applied);
                self.turn(turn);
            }
            Input::ProgressRead(ticket, read) => self.when_fresh(ticket, |engine| engine.progress_read(read)),
            Input::ProgressWritten(ticket, written) => {
                self.when_fresh(ticket, |engine| engine.progress_written(written));
            }
            Input::LogEndRead(ticket, read) => {
                self.when_fresh(ticket, |engine| engine.log_end_read(ticket, read));
            }
            Input::Sought(ticket, sought) => self.sought(ticket, sought),
            Input::Fetched(ticket, records) => self.fetched(ticket, records),
            Input::LookedUp(batch, rows) => self.looked_up(batch, rows),
            Input::Sliced(ticket, page) => self.sliced(ticket, page),
            Input::FactsRead(ticket, place, rows) => {
                self.when_fresh(ticket, |engine| engine.facts_read(place, rows));
            }
            Input::PayloadRead(ticket, place, payload) => {
                self.when_fresh(ticket, |engine| engine.payload_read(place, payload));
            }
            Input::Written(ticket, written) => self.written(ticket, written),
            Input::Produced(offset, produced) => self.produced(offset, produced),
            Input::Slots(handler, count) => self.lines.granted(&handler, count),
            Input::CallEnded(seq, end) => self.call_ended(seq, end),
            Input::Tick => {}
            Input::ClockJumped => self.ownership.clock_jumped(now.boot),
        }
        self.advance();
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to come back with `Input::Tick`, by the boot clock.
    pub fn poll_timeout(&self) -> Option<Boot> {
        let always =
            [self.ownership.timeout(self.now.boot), self.attempts.next_deadline(), self.writes.next_retry()];
        let active = [self.window_timeout(), self.queues.next_backoff()].map(|at| self.boot_when(at));
        let active = active.into_iter().chain([self.load_retry, self.catch_up_timeout()]);
        let leased = [self.boot_when(self.attempts.next_hold()), self.intake.next_retry()];
        let leased = leased.into_iter().chain([self.progress_timeout()]);
        let is_leased = self.is_active() && self.ownership.valid(self.now.boot);
        let active = active.filter(|_| self.is_active());
        always.into_iter().chain(active).chain(leased.filter(|_| is_leased)).flatten().min()
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
        self.end_deadlines();
        if self.is_active() {
            self.load_more();
            self.catch_up();
            self.drive_intake();
            self.promote();
            self.end_holds();
            self.start_heads();
            self.write_progress_when_due();
        }
        self.settle_slots();
        self.flush_writes();
    }

    fn assigned(&mut self, owner: OwnerUuid) {
        self.random ^= owner as u64;
        self.gap_since.get_or_insert(self.now.boot);
        if self.ownership.assign(owner, self.now.boot) && self.stage != Stage::Out {
            self.resume_intake();
        }
    }

    fn revoked(&mut self) {
        self.ownership.unassign();
        self.stop_intake();
        if self.ownership.give_up_early() {
            self.reset();
            return;
        }
        if self.ownership.phase_word() != "releasing" {
            self.let_go();
        }
    }

    fn lost(&mut self) {
        self.ownership.unassign();
        self.stop_intake();
        if self.ownership.give_up_early() {
            self.reset();
        }
    }

    fn set_budget(&mut self, budget: Budget) {
        self.budget = Budget { tasks: budget.tasks.max(1), ..budget };
        self.window.set_budget(self.budget.tasks);
    }

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Nothing => {}
            Turn::Load => self.begin_load(),
            Turn::Fenced => self.fenced(),
            Turn::Lapsed(cause) => self.lapsed(cause),
            Turn::Regained(lapse_ms) => self.regained(lapse_ms),
            Turn::Released => {
                self.reset();
                if self.ownership.assigned() {
                    let uuid = OwnerUuid::from(self.draw()) << 64 | OwnerUuid::from(self.draw());
                    self.ownership.assign(uuid, self.now.boot);
                }
            }
        }
    }

    fn fenced(&mut self) {
        self.observe(Observation::LeaseLost("fenced"));
        for seq in self.attempts.running() {
            self.effects.push_back(Effect::BreakOff(seq));
        }
        for handler in self.attempts.slots() {
            self.free_slot(&handler);
        }
        self.attempts.clear();
        self.writes.clear();
        self.reset();
        if self.ownership.assigned() {
            self.effects.push_back(Effect::Rejoin);
        } else {
            self.ownership.give_up_early();
        }
    }

    fn lapsed(&mut self, cause: &'static str) {
        self.gap_since.get_or_insert(self.now.boot);
        self.observe(Observation::LeaseLost(cause));
        for seq in self.attempts.running() {
            self.effects.push_back(Effect::BreakOff(seq));
            self.hold_own(seq);
        }
    }

    fn regained(&mut self, lapse_ms: u64) {
        if lapse_ms > 1_000 && matches!(self.stage, Stage::CatchingUp | Stage::Running) {
            self.stage = Stage::CatchingUp;
            self.begin_catch_up();
        } else {
            self.end_gap();
        }
    }

    /// Nothing starts any more; what was applied is written down, then the shard is released.
    fn let_go(&mut self) {
        self.gap_since = None;
        let loaded = matches!(self.stage, Stage::CatchingUp | Stage::Running);
        if loaded && self.ownership.valid(self.now.boot) {
            self.ownership.stop();
            self.commit.close();
            self.write_progress();
        } else {
            self.ownership.stop();
            self.finish_letting_go();
        }
    }

    fn finish_letting_go(&mut self) {
        self.effects.push_back(Effect::StopFetch);
        self.ownership.release(self.now.boot);
        self.reset();
    }

    /// Forgets the shard's tasks. Calls under way go on, and their ends are still written.
    fn reset(&mut self) {
        self.stage = Stage::Out;
        self.life_began = self.tickets;
        self.writes.forget_batches();
        self.intake = Intake::default();
        self.commit = Commit::default();
        for handler in self.window.fetching() {
            self.free_slot(&handler);
        }
        self.window = Window::new(Place::start_of(Wall::MIN), self.budget.tasks);
        self.queues = Queues::default();
        for (handler, change) in self.lines.clear() {
            self.slot_effect(handler, change);
        }
        self.attempts.let_go();
        self.load_retry = None;
        self.catch_up_since = None;
        self.gap_since = None;
    }

    fn settle_slots(&mut self) {
        let may_start = self.may_start();
        for (handler, change) in self.lines.settle(may_start) {
            self.slot_effect(handler, change);
        }
    }

    fn slot_effect(&mut self, handler: HandlerName, change: SlotChange) {
        self.effects.push_back(match change {
            SlotChange::Want(count) => Effect::WantSlots(handler, count),
            SlotChange::Free(count) => Effect::FreeSlots(handler, count),
        });
    }

    fn end_gap(&mut self) {
        if let Some(since) = self.gap_since.take() {
            self.observe(Observation::Gap(self.now.boot.ms_since(since)));
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

    /// Brings a queue up to date after any change to it: finds its head and lines it up, or notes when to look again.
    fn pump(&mut self, name: &QueueName) {
        let Some(queue) = self.queues.by_name.get(name) else { return };
        if queue.is_empty() {
            self.unline(name);
            self.queues.set_backoff(name, None);
            self.queues.by_name.remove(name);
            return;
        }
        let head = queue.head().filter(|_| queue.busy.is_empty());
        if head.is_some() && queue.candidate == head {
            return;
        }
        self.unline(name);
        let Some(place) = head else {
            self.queues.set_backoff(name, None);
            return;
        };
        self.line_up(name, place);
    }

    fn line_up(&mut self, name: &QueueName, place: Place) {
        let Some(task) = self.window.get(place) else { return };
        if self.intake.is_frozen(place) || !self.window.covers(place) {
            self.queues.set_backoff(name, None);
            return;
        }
        if task.counts.not_before > self.now.wall {
            let at = task.counts.not_before;
            self.queues.set_backoff(name, Some(at));
            return;
        }
        self.queues.set_backoff(name, None);
        let (handler, priority) = (task.content.handler.clone(), task.content.priority);
        self.lines.join(&handler, priority, place);
        if let Some(queue) = self.queues.by_name.get_mut(name) {
            queue.candidate = Some(place);
        }
    }

    fn unline(&mut self, name: &QueueName) {
        let Some(queue) = self.queues.by_name.get_mut(name) else { return };
        let Some(place) = queue.candidate.take() else { return };
        if let Some(task) = self.window.get(place) {
            self.lines.leave(&task.content.handler, task.content.priority, place);
        }
    }
}
