//! The simulated world: instances with real engines on one queue of events, ordered by (time, sequence).
//!
//! Everything an engine asks for becomes an operation that runs some time later and is answered some time after that.
//! A crash takes the answers away, not what was already sent; a freeze holds everything back until the instance
//! wakes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dueline::engine::{Budget, CallOrder, Engine, Input, Limit, Options, Policy, Pool};
use dueline::model::{Boot, IdsRow, Now, Progress, Row, Shard, Target, TaskKey, Wall};
use dueline::planted;

use crate::group::Group;
use crate::handlers::Handlers;
use crate::ledger::{BASE, Ledger};
use crate::log::Log;
use crate::nemesis::Fault;
use crate::operation::{LogOp, StoreOp};
use crate::people::{Known, People};
use crate::setup::Setup;
use crate::store::Store;
use crate::store::cell::Mask;
use crate::store::nodes::DCS;
use crate::told::Told;
use crate::trap::{Blow, Heir, Moment};
use crate::workload::{Sending, Workload};
use dueline::testing::rng::Rng;

/// Names an engine in one life of its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Addr {
    pub(crate) instance: usize,
    pub(crate) life: u32,
    pub(crate) shard: Shard,
}

/// Something that happens at a time.
#[derive(Debug)]
pub(crate) enum Event {
    /// An answer, or another fact, reaches an engine.
    Deliver(Addr, Input),
    /// The time an engine asked for has come.
    Tick(Addr, u64),
    Store(Addr, StoreOp),
    Log(Addr, LogOp),
    /// Rows reach replicas that missed them.
    Land(Arc<[Row]>, u64, Mask),
    LandProgress(Shard, Box<Progress>, u64, Mask),
    LandIds(Arc<[IdsRow]>, u64, Mask),
    /// A replica that lost its disk is repaired.
    Repair(usize),
    /// A call reaches its handler.
    Call(Addr, Box<CallOrder>, u64),
    /// A handler is done.
    HandlerDone(usize),
    /// The producers' next record.
    Produce,
    /// Producers send these.
    Send(Vec<Sending>),
    /// Many tasks of one handler come at a time.
    Crowd,
    /// The group's coordinator looks at its members.
    Coordinate,
    Assign(Addr),
    Revoke(Addr),
    Lose(Addr),
    Join(usize, u32),
    Fault(Fault),
    Heal(Fault),
    /// Somebody sets a gate.
    Operate,
    /// Somebody has a task run again, or breaks one off.
    Intervene,
    ClearGate(Target, &'static str),
    /// A task dies that stops its queue.
    StopQueue(Addr, u64, TaskKey),
    LookAtGates(usize),
    /// An instance looks at once.
    LookOnce(usize),
    /// The time its slots wait for has come.
    Grant(usize),
}

/// One instance.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) life: u32,
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    /// What falls on it when it sends a request of this kind.
    pub(crate) trap: Option<(Moment, Blow)>,
    /// The log does not reach it.
    pub(crate) cut_from_log: bool,
    /// The store does not reach it.
    pub(crate) cut_from_store: bool,
    pub(crate) draining: bool,
    /// Its data centre.
    pub(crate) dc: usize,
    pub(crate) engines: BTreeMap<Shard, Engine>,
    pub(crate) pool: Pool,
    /// Shards that count for its part of limits.
    pub(crate) runs: BTreeSet<Shard>,
    /// Who waits for its slots.
    pub(crate) turns: crate::turns::Turns,
    /// When its slots are looked at again.
    pub(crate) granting: Option<u64>,
    pub(crate) gates: Known,
    pub(crate) readings: BTreeMap<Shard, Reading>,
    /// What its client believes it has.
    pub(crate) believes: BTreeSet<Shard>,
    timers: BTreeMap<Shard, u64>,
    held: VecDeque<Event>,
    /// By how much its wall clock was off when it started; the product follows the system clock slowly from there.
    skew: i64,
    /// By how much its system clock was stepped since.
    pub(crate) step: i64,
    boot: u64,
    /// For how long its boot clock stood still.
    stalled: u64,
    /// Since when it does.
    pub(crate) suspended_at: Option<u64>,
    /// When engines decided what is not done yet: it follows other facts of the same moment.
    decided_at: BTreeMap<Shard, u64>,
    /// How often wall time and boot time moved against each other.
    pub(crate) jumps: u64,
    /// And what its engines know of it.
    jumps_told: BTreeMap<Shard, u64>,
}

/// From where an instance reads a shard. What it asked for before its newest seek, and a fetch before its newest, is given
/// up: it moves nothing.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) seek: u64,
    pub(crate) fetch: Option<u64>,
    /// `None` until the seek has arrived.
    pub(crate) position: Option<u64>,
}

/// What a handler has for a call unless the task says otherwise, in milliseconds.
pub(crate) const HANDLER_TIMEOUT_MS: u64 = 8_000;

/// The world.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) now: u64,
    sequence: u64,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    pub(crate) rng: Rng,
    pub(crate) store: Store,
    pub(crate) store_away: bool,
    /// The store refuses all writes.
    pub(crate) guard_rail: bool,
    /// Pages of this shard's tasks are not answered to this instance.
    pub(crate) no_pages: Option<(usize, Shard)>,
    /// The store takes no row that says that a task was cancelled, replaced or moved.
    pub(crate) refuses_answers: bool,
    pub(crate) log: Log,
    pub(crate) told: Told,
    pub(crate) group: Group,
    pub(crate) handlers: Handlers,
    pub(crate) workload: Workload,
    pub(crate) people: People,
    pub(crate) rated: crate::limits::Rated,
    pub(crate) instances: Vec<Instance>,
    pub(crate) ledger: Ledger,
    pub(crate) healing: bool,
    /// What falls on who takes a shard over.
    pub(crate) heir: Option<Heir>,
    /// By so much the request that is being sent comes late.
    pub(crate) held_up: u64,
    pub(crate) trace: u64,
    spins: u32,
}

impl World {
    pub(crate) fn new(setup: Setup, seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let one = |index: usize| Instance { dc: index % DCS, ..Instance::new(&setup, &mut rng) };
        let instances = (0..setup.instances).map(one).collect();
        let mut store = Store::default();
        store.nodes.skew(&mut rng, setup.node_skew_ms);
        let people = People::new(seed, 250);
        let workload = Workload::new(&setup, rng.draw(), people.are_there);
        World {
            now: 0,
            sequence: 0,
            events: BTreeMap::new(),
            store,
            store_away: false,
            guard_rail: false,
            no_pages: None,
            refuses_answers: false,
            log: Log::new(setup.shards),
            told: Told::default(),
            group: Group::default(),
            handlers: Handlers::default(),
            workload,
            people,
            instances,
            ledger: Ledger::default(),
            healing: false,
            heir: None,
            held_up: 0,
            rated: crate::limits::Rated::default(),
            trace: 0xcbf2_9ce4_8422_2325,
            spins: 0,
            rng,
            setup,
        }
    }

    /// Begins: members join, producers start, the coordinator looks, faults are planned.
    pub(crate) fn begin(&mut self) {
        for instance in 0..self.instances.len() {
            let at = self.rng.range(1, 1_500);
            self.after(at, Event::Join(instance, 0));
        }
        self.after(1_000, Event::Produce);
        self.after(500, Event::Coordinate);
        self.begin_people();
        self.begin_crowds();
        for (at, fault) in crate::nemesis::plan(&self.setup, &mut self.rng) {
            self.after(at, Event::Fault(fault));
        }
    }

    /// Runs everything up to `until`.
    pub(crate) fn run_until(&mut self, until: u64) {
        while let Some(entry) = self.events.first_entry() {
            let (at, _) = *entry.key();
            if at > until || self.ledger.wrongs.len() > 20 {
                break;
            }
            let event = entry.remove();
            self.spins = if at == self.now { self.spins + 1 } else { 0 };
            if self.spins > 20_000 {
                self.ledger.wrongs.push(format!("no time passes at {at}: {event:?}"));
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.now = self.now.max(until);
    }

    /// Puts an event on the queue.
    pub(crate) fn after(&mut self, ms: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + ms, self.sequence), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(to, input) => {
                if self.reaches(to, || Event::Deliver(to, input.clone())) {
                    self.give(to, input);
                }
            }
            Event::Tick(to, at) => {
                let current =
                    self.alive(to) && self.instances[to.instance].timers.get(&to.shard) == Some(&at);
                if current && self.reaches(to, || Event::Tick(to, at)) {
                    self.instances[to.instance].timers.remove(&to.shard);
                    self.give(to, Input::Tick);
                }
            }
            Event::Store(from, op) => self.run_store(from, op),
            Event::Log(from, op) => self.run_log(from, op),
            Event::Land(rows, stamp, on) => self.land_late(&rows, stamp, on),
            Event::LandIds(rows, stamp, on) => self.store.put_ids(&rows, stamp, on),
            Event::LandProgress(shard, progress, stamp, on) => {
                self.land_progress_late(shard, &progress, stamp, on);
            }
            Event::Repair(replica) => self.repair(replica),
            Event::Call(from, order, sent) => self.call_arrives(from, order, sent),
            Event::HandlerDone(call) => self.handler_done(call),
            Event::Produce => self.produce(),
            Event::Send(records) => self.send(records),
            Event::Crowd => self.crowd(),
            Event::Coordinate => self.coordinate(),
            Event::Assign(to) => {
                if self.reaches(to, || Event::Assign(to)) && self.takes(to, || Event::Assign(to)) {
                    self.assign(to);
                }
            }
            Event::Revoke(to) => {
                if self.reaches(to, || Event::Revoke(to)) && self.takes(to, || Event::Revoke(to)) {
                    self.instances[to.instance].believes.remove(&to.shard);
                    self.watch_revoke(to);
                    self.give(to, Input::Revoked);
                    self.has_let_go(to.shard, to.instance);
                }
            }
            Event::Lose(to) => {
                if self.reaches(to, || Event::Lose(to))
                    && self.takes(to, || Event::Lose(to))
                    && self.instances[to.instance].believes.remove(&to.shard)
                {
                    self.give(to, Input::Lost);
                }
            }
            Event::Join(instance, life) => self.join(instance, life),
            Event::Fault(fault) => self.strike(fault),
            Event::Heal(fault) => self.heal(fault),
            Event::Operate => self.operate(),
            Event::Intervene => self.intervene(),
            Event::ClearGate(target, name) => self.clear_gate(target, name),
            Event::StopQueue(from, seq, key) => self.stop_queue(from, seq, key),
            Event::LookAtGates(instance) => self.look_at_gates(instance),
            Event::LookOnce(instance) => self.look_once(instance),
            Event::Grant(instance) => self.grant_in_time(instance),
        }
    }

    pub(crate) fn alive(&self, at: Addr) -> bool {
        let instance = &self.instances[at.instance];
        instance.up && instance.life == at.life
    }

    /// Whether a fact gets to an instance now; what a frozen one is told waits until it wakes.
    fn reaches(&mut self, to: Addr, event: impl FnOnce() -> Event) -> bool {
        if !self.alive(to) {
            return false;
        }
        if self.instances[to.instance].frozen {
            self.instances[to.instance].held.push_back(event());
            return false;
        }
        true
    }

    /// Changes of the assignment wait until an instance knows the gates.
    fn takes(&mut self, to: Addr, event: impl FnOnce() -> Event) -> bool {
        let takes = self.knows_gates(to.instance);
        if !takes {
            self.after(300, event());
        }
        takes
    }

    pub(crate) fn hold(&mut self, instance: usize, event: Event) {
        self.instances[instance].held.push_back(event);
    }

    /// Ends a freeze.
    pub(crate) fn wake(&mut self, instance: usize) {
        let at = &mut self.instances[instance];
        at.frozen = false;
        if let Some(since) = at.suspended_at.take() {
            at.stalled += self.now - since;
            at.jumps += 1;
        }
        self.release_held(instance);
        // What was to be granted meanwhile was not.
        self.grant_in_time(instance);
    }

    fn release_held(&mut self, instance: usize) {
        for event in std::mem::take(&mut self.instances[instance].held) {
            self.after(0, event);
        }
    }

    fn assign(&mut self, to: Addr) {
        let owner = u128::from(self.rng.draw()) << 64 | u128::from(self.rng.draw());
        self.instances[to.instance].believes.insert(to.shard);
        if !self.instances[to.instance].engines.contains_key(&to.shard) {
            let engine = Engine::new(self.options(to));
            self.instances[to.instance].engines.insert(to.shard, engine);
            self.give(
                to,
                Input::Budget(Budget {
                    tasks: self.setup.budget,
                    events_bytes: self.setup.events_bytes,
                    ids: self.setup.ids,
                    ..Budget::default()
                }),
            );
            if let Some((closed, asked_at)) = self.closed_for(to.instance) {
                self.give(to, Input::Gates(closed, asked_at));
            }
        }
        self.give(to, Input::Assigned { owner });
    }

    pub(crate) fn phase(&self, at: Addr) -> Option<&'static str> {
        self.instances[at.instance].engines.get(&at.shard).map(|engine| engine.shard_view(Boot(0)).phase)
    }

    fn options(&self, to: Addr) -> Options {
        let policy = Policy {
            timeout_ms: HANDLER_TIMEOUT_MS,
            retry: crate::retries::OF_HANDLERS,
            ..Policy::default()
        };
        let catches_up = |n| n == 2 && self.setup.limits.catch_up.is_some();
        let policies = (0..crate::workload::HANDLERS)
            .map(|n| (crate::workload::handler(n), Policy { catches_up: catches_up(n), ..policy }));
        Options {
            timing: self.setup.timing,
            look_ahead_ms: self.setup.look_ahead_ms,
            queue_tasks_max: self.setup.queue_tasks_max,
            late_rows: self.setup.late_rows,
            late_after_ms: 2_000,
            publishes: self.setup.publishes,
            policies: Arc::new(policies.collect()),
            collections: Arc::new(crate::limits::of_collections(&self.setup)),
            ..Options::new(to.shard, self.setup.shards, &format!("i{}", to.instance))
        }
    }

    pub(crate) fn clock(&self, instance: usize) -> Now {
        let instance = &self.instances[instance];
        let boot = instance.boot + self.now - instance.stalled;
        let stepped = boot.saturating_add_signed(instance.step);
        let boot = if planted!(WallClockInLease) { stepped } else { boot };
        Now { wall: Wall(BASE + self.now as i64 + instance.skew), boot: Boot(boot) }
    }

    /// Hands one fact to an engine and performs what follows.
    pub(crate) fn give(&mut self, to: Addr, input: Input) {
        let now = self.clock(to.instance);
        self.note(to, &input);
        let Some(mut engine) = self.instances[to.instance].engines.remove(&to.shard) else { return };
        if let Input::CallEnded(sequence, _) = &input {
            self.slot_is_free(to, *sequence);
        }
        let is_gathered = self.setup.gathers && dueline::engine::may_gather(&input);
        let before = engine.shard_view(now.boot).phase;
        self.watch_before(to, before, &input);
        if let Some(decided_at) = self.instances[to.instance].decided_at.remove(&to.shard)
            && decided_at < self.now
        {
            // It was frozen before it did what it had decided, and goes on with that.
            self.ledger.count("frozen between decision and act");
            self.perform_all(to, &mut engine, decided_at);
        }
        self.tell_jumps(to, now, &mut engine);
        engine.handle(now, input);
        self.count_for_limits(to, engine.runs());
        let after = engine.shard_view(now.boot).phase;
        self.watch_after(to, before, after);
        if is_gathered && self.rng.chance(500) {
            // More facts may come in this very moment: what it does follows all of them.
            self.instances[to.instance].decided_at.insert(to.shard, self.now);
            self.instances[to.instance].engines.insert(to.shard, engine);
            return self.after(0, Event::Deliver(to, Input::Tick));
        }
        self.perform_all(to, &mut engine, self.now);
        self.watch(to, &engine);
        if let Some(at) = engine.poll_timeout() {
            let at = self.now + at.ms_since(now.boot);
            let timer = self.instances[to.instance].timers.get(&to.shard);
            if timer.is_none_or(|timer| at < *timer || *timer < self.now) {
                self.instances[to.instance].timers.insert(to.shard, at);
                self.after(at - self.now, Event::Tick(to, at));
            }
        }
        self.instances[to.instance].engines.insert(to.shard, engine);
    }

    fn perform_all(&mut self, to: Addr, engine: &mut Engine, decided_at: u64) {
        while let Some(effect) = engine.poll_effect() {
            self.perform(to, effect, engine, decided_at);
        }
    }

    /// As the actor of a shard does: before anything else is handled.
    fn tell_jumps(&mut self, to: Addr, now: Now, engine: &mut Engine) {
        let instance = &mut self.instances[to.instance];
        if instance.jumps_told.insert(to.shard, instance.jumps).unwrap_or(0) != instance.jumps {
            engine.handle(now, Input::ClockJumped);
            self.ledger.count("clock jump");
        }
    }

    fn watch(&mut self, to: Addr, engine: &Engine) {
        let tasks = engine.tasks_in_memory();
        let bound = self.setup.budget + self.setup.page_rows + 150;
        let most = self.ledger.held.entry(to.shard).or_insert((self.now, 0, bound));
        if tasks > most.1 {
            *most = (self.now, tasks, bound);
        }
    }

    /// Mixes what happens into the trace, and prints it in a replay.
    fn note(&mut self, to: Addr, input: &Input) {
        let word = crate::words::of_input(input);
        self.mix(self.now);
        self.mix((to.instance as u64) << 40 | u64::from(to.life) << 20 | u64::from(to.shard.0));
        self.mix_word(word);
        if self.setup.shows(to.shard) && !matches!(input, Input::Tick) {
            let text: String = format!("{input:?}").chars().take(4000).collect();
            eprintln!("{:>8} i{}.{} s{} <- {text}", self.now, to.instance, to.life, to.shard.0);
        }
    }

    pub(crate) fn mix(&mut self, value: u64) {
        self.trace = (self.trace ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }

    pub(crate) fn mix_word(&mut self, word: &str) {
        word.bytes().for_each(|byte| self.mix(u64::from(byte)));
    }

    pub(crate) fn say(&self, shard: Shard, text: impl FnOnce() -> String) {
        if self.setup.shows(shard) {
            eprintln!("{:>8} {}", self.now, text());
        }
    }

    /// An instance ends: its engines and every answer on its way are gone.
    pub(crate) fn crash(&mut self, instance: usize) {
        self.rated.begun(self.now);
        let (setup, rng) = (&self.setup, &mut self.rng);
        let life = self.instances[instance].life + 1;
        let (dc, step) = (self.instances[instance].dc, self.instances[instance].step);
        self.instances[instance] = Instance { life, up: false, dc, step, ..Instance::new(setup, rng) };
    }
}

impl Instance {
    fn new(setup: &Setup, rng: &mut Rng) -> Instance {
        Instance {
            life: 0,
            up: true,
            frozen: false,
            trap: None,
            cut_from_log: false,
            cut_from_store: false,
            draining: false,
            dc: 0,
            engines: BTreeMap::new(),
            pool: Pool::new(crate::limits::of_handlers(setup), Limit::of(2))
                .with_collections(crate::limits::of_collections(setup)),
            runs: BTreeSet::new(),
            turns: crate::turns::Turns::new(setup),
            granting: None,
            gates: Known::default(),
            readings: BTreeMap::new(),
            believes: BTreeSet::new(),
            timers: BTreeMap::new(),
            held: VecDeque::new(),
            skew: rng.below(2 * setup.wall_skew_ms) as i64 - setup.wall_skew_ms as i64,
            step: 0,
            boot: rng.below(1_000_000) + 1,
            stalled: 0,
            suspended_at: None,
            decided_at: BTreeMap::new(),
            jumps: 0,
            jumps_told: BTreeMap::new(),
        }
    }
}
