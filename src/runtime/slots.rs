//! The slot pool shared by all shards of the instance: asks the engine's [`Pool`], tells the shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use crate::engine::{Grant, Holdup, Input, Lane, Pool};
use crate::metrics::HoldupReason;
use crate::model::{Boot, HandlerName, Outcome, Shard};

use super::Shared;
use super::actor::Command;
use super::clock::Clock;

pub(crate) struct Slots {
    inner: Mutex<Inner>,
    clock: Clock,
    /// Somebody waits for a time.
    waits: Notify,
    has_timed_limits: bool,
    /// Shards there are.
    all: u32,
}

struct Inner {
    pool: Pool,
    /// Those that run here, which make up this instance's part of each limit.
    running: BTreeSet<Shard>,
    shards: BTreeMap<Shard, mpsc::UnboundedSender<Command>>,
}

impl Slots {
    pub(crate) fn new(pool: Pool, clock: Clock, all: u32) -> Slots {
        let has_timed_limits = pool.has_timed_limits();
        let inner = Mutex::new(Inner { pool, running: BTreeSet::new(), shards: BTreeMap::new() });
        Slots { inner, clock, waits: Notify::new(), has_timed_limits, all }
    }

    pub(crate) fn register(&self, shard: Shard, commands: mpsc::UnboundedSender<Command>) {
        self.lock().shards.insert(shard, commands);
    }

    /// Asks for slots: how many the shard got at once. The rest is sent when it comes free.
    pub(crate) fn want(&self, shard: Shard, lane: &Lane, count: u32, since: Boot) -> u32 {
        self.grant(shard, lane, |pool, now| pool.want(now, shard, lane, count, since))
    }

    /// Gives slots back: how many the shard itself got by it.
    pub(crate) fn free(&self, shard: Shard, lane: &Lane, count: u32) -> u32 {
        self.grant(shard, lane, |pool, now| pool.free(now, lane, count))
    }

    /// A shard needs no more slots, and did not use some that it had.
    pub(crate) fn withdraw(&self, shard: Shard, lane: &Lane, unused: u32) {
        self.grant(shard, lane, |pool, now| pool.withdraw(now, shard, lane, unused));
    }

    /// A call has ended so.
    pub(crate) fn ended(&self, handler: &HandlerName, outcome: Outcome) {
        let is_well = match outcome {
            Outcome::Succeeded | Outcome::Snoozed | Outcome::Fatal => true,
            Outcome::Retryable | Outcome::TimedOut => false,
            Outcome::Aborted | Outcome::Interrupted | Outcome::NotCalled => return,
        };
        let now = self.clock.now().boot;
        self.lock().pool.ended(now, handler, is_well);
    }

    /// A shard runs here from now on, or does no more.
    pub(crate) fn runs(&self, shard: Shard, runs: bool) {
        let mut inner = self.lock();
        let is_new = if runs { inner.running.insert(shard) } else { inner.running.remove(&shard) };
        if is_new {
            let (now, running) = (self.clock.now().boot, inner.running.len() as u32);
            inner.pool.share(now, running, self.all);
            inner.tick(now);
            self.waits.notify_one();
        }
    }

    /// Slots of a handler that are taken, and those that this instance has.
    pub(crate) fn taken(&self, handler: &HandlerName) -> (u32, u32) {
        let inner = self.lock();
        (inner.pool.taken(handler), inner.pool.part(handler))
    }

    /// Why no slot of a lane is granted.
    pub(crate) fn holdup_in(&self, lane: &Lane) -> Option<Holdup> {
        self.lock().pool.holdup_in(self.clock.now().boot, lane)
    }

    /// Why no slot of a handler is granted that somebody waits for.
    pub(crate) fn holdup(&self, handler: &HandlerName) -> Option<Holdup> {
        let inner = self.lock();
        inner.pool.holdup(self.clock.now().boot, handler).filter(|_| inner.pool.is_wanted(handler))
    }

    /// What holds up some of the tasks of a handler that wait.
    pub(crate) fn holdups_apart(&self, handler: &HandlerName) -> Vec<(Option<Arc<str>>, Holdup)> {
        self.lock().pool.holdups_apart(self.clock.now().boot, handler)
    }

    /// How many handlers are held up by what.
    pub(crate) fn holdups(&self) -> BTreeMap<HoldupReason, usize> {
        let mut counts = BTreeMap::new();
        let now = self.clock.now().boot;
        for holdup in self.lock().pool.holdups(now) {
            let reason = match holdup {
                Holdup::Concurrency(_) => HoldupReason::Concurrency,
                Holdup::Rate(_) => HoldupReason::Rate,
                Holdup::Breaker(_) | Holdup::Probe => HoldupReason::Breaker,
                Holdup::Reserved => HoldupReason::Reserved,
                Holdup::CatchUp(_) => HoldupReason::CatchUp,
                Holdup::CollectionConcurrency(_) | Holdup::CollectionRate(_) => HoldupReason::Collection,
            };
            *counts.entry(reason).or_default() += 1;
        }
        counts
    }

    fn grant(&self, shard: Shard, lane: &Lane, ask: impl FnOnce(&mut Pool, Boot) -> Vec<Grant>) -> u32 {
        let mut inner = self.lock();
        let grants = ask(&mut inner.pool, self.clock.now().boot);
        if self.has_timed_limits && inner.pool.is_any_wanted() {
            self.waits.notify_one();
        }
        inner.send(shard, lane, grants)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn send(&mut self, to: Shard, lane: &Lane, grants: Vec<Grant>) -> u32 {
        let mut own = 0;
        for grant in grants {
            if grant.shard == to && grant.lane == *lane {
                own += grant.count;
            } else {
                self.tell(grant);
            }
        }
        own
    }

    fn tick(&mut self, now: Boot) {
        for grant in self.pool.tick(now) {
            self.tell(grant);
        }
    }

    fn tell(&self, grant: Grant) {
        if let Some(commands) = self.shards.get(&grant.shard) {
            let _ = commands.send(Command::Input(Input::Slots(grant.lane, grant.count)));
        }
    }
}

/// Least time between looks at what time allows: a rate makes up for more than that.
const REST: Duration = Duration::from_millis(3);

/// Grants what rates and breakers held up, when its time comes, if there are any.
pub(super) async fn grant_in_time(shared: Arc<Shared>) {
    let slots = &shared.slots;
    if !slots.has_timed_limits {
        return;
    }
    loop {
        let (now, next) = {
            let mut inner = slots.lock();
            // One time for both: what may be granted between two looks would wait for nobody.
            let now = slots.clock.now().boot;
            inner.tick(now);
            (now, inner.pool.poll_timeout(now))
        };
        match next {
            None => slots.waits.notified().await,
            Some(at) => {
                let wait = Duration::from_millis(at.ms_since(now).max(1));
                let _ = tokio::time::timeout(wait, slots.waits.notified()).await;
            }
        }
        tokio::time::sleep(REST).await;
    }
}
