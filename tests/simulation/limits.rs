//! Rates and breakers of handlers in a simulation: instances learn their part of a rate as the product does, and calls are
//! counted over all of them.

use std::collections::{BTreeMap, VecDeque};

use dueline::engine::{CallOrder, Holdup, Limit};
use dueline::model::{BreakerPolicy, HandlerName, Outcome};
use dueline::testing::rng::Rng;

use crate::setup::Setup;
use crate::workload::{HANDLERS, handler};
use crate::world::{Addr, Event, World};

/// Time between looks at how many shards are owned, as in `src/runtime/slots.rs`.
const LOOK_MS: u64 = 250;
/// Calls are counted over so long.
const WINDOW_MS: u64 = 30_000;

/// The limits of a run: a rate of the first handler, a breaker of the second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// Calls a second.
    pub(crate) rate: Option<u64>,
    pub(crate) breaker: Option<BreakerPolicy>,
}

impl Limits {
    pub(crate) fn of(seed: u64) -> Limits {
        let mut rng = Rng::new(seed ^ 0x11_4175);
        let rate = rng.chance(300).then(|| rng.range(3, 9));
        let (failures, pause_ms) = (rng.range(2, 5) as u32, rng.range(300, 4_000));
        Limits { rate, breaker: rng.chance(300).then_some(BreakerPolicy { failures, pause_ms }) }
    }

    fn any(&self) -> bool {
        self.rate.is_some() || self.breaker.is_some()
    }
}

/// What each handler is limited to.
pub(crate) fn of_handlers(setup: &Setup) -> BTreeMap<HandlerName, Limit> {
    let limit = |n: u64| Limit {
        rate: setup.limits.rate.filter(|_| n == 0).and_then(|rate| format!("{rate}/s").parse().ok()),
        breaker: setup.limits.breaker.filter(|_| n == 1),
        ..Limit::of(setup.slots)
    };
    (0..HANDLERS).map(|n| (handler(n), limit(n))).collect()
}

/// When calls of the handler that has a rate went out, and when instances began.
#[derive(Debug, Default)]
pub(crate) struct Rated {
    calls: VecDeque<u64>,
    begun: VecDeque<u64>,
}

impl Rated {
    /// An instance is to begin anew.
    pub(crate) fn begun(&mut self, now: u64) {
        self.begun.push_back(now);
    }
}

impl World {
    pub(crate) fn begin_limits(&mut self) {
        if self.setup.limits.any() {
            for instance in 0..self.setup.instances {
                self.after(1, Event::Share(instance));
            }
        }
    }

    /// An instance looks how many shards it owns.
    pub(crate) fn share(&mut self, instance: usize) {
        self.after(LOOK_MS, Event::Share(instance));
        let now = self.clock(instance).boot;
        let at = &mut self.instances[instance];
        if !at.up || at.frozen {
            return;
        }
        let owned = at.engines.values().filter(|engine| engine.shard_view(now).phase == "running").count();
        at.pool.share(now, owned as u32, self.setup.shards);
        self.grant_in_time(instance);
    }

    /// Grants what rates and breakers held up, and comes again when the next one may be.
    pub(crate) fn grant_in_time(&mut self, instance: usize) {
        let now = self.clock(instance).boot;
        let at = &mut self.instances[instance];
        if !at.up || at.frozen {
            return;
        }
        let grants = at.pool.tick(now);
        let held_up: Vec<Holdup> = at.pool.holdups(now).collect();
        let life = at.life;
        for holdup in held_up {
            match holdup {
                Holdup::Rate(_) => self.ledger.count("held up by a rate"),
                Holdup::Breaker(_) => self.ledger.count("held up by a breaker"),
                Holdup::Probe => self.ledger.count("probe under way"),
                Holdup::Concurrency(_) => {}
            }
        }
        for grant in grants {
            let to = Addr { instance, life, shard: grant.shard };
            self.after(0, Event::Deliver(to, dueline::engine::Input::Slots(grant.handler, grant.count)));
        }
        self.wait_for_grants(instance);
    }

    /// Comes again when the next slot may be granted.
    pub(crate) fn wait_for_grants(&mut self, instance: usize) {
        if !self.setup.limits.any() {
            return;
        }
        let now = self.clock(instance).boot;
        let next = self.instances[instance].pool.poll_timeout(now);
        let next = next.map(|next| self.now + next.ms_since(now).max(1));
        let waits = self.instances[instance].granting;
        if let Some(next) = next.filter(|next| waits.is_none_or(|at| *next < at || at <= self.now)) {
            self.instances[instance].granting = Some(next);
            self.after(next - self.now, Event::Grant(instance));
        }
    }

    /// A call has ended: its instance hears how.
    pub(crate) fn tell_breaker(&mut self, from: Addr, name: &HandlerName, outcome: Outcome) {
        let is_well = match outcome {
            Outcome::Succeeded | Outcome::Snoozed | Outcome::Fatal => true,
            Outcome::Retryable | Outcome::TimedOut => false,
            Outcome::Aborted | Outcome::Interrupted | Outcome::NotCalled => return,
        };
        if self.alive(from) {
            let now = self.clock(from.instance).boot;
            self.instances[from.instance].pool.ended(now, name, is_well);
        }
    }

    /// In no stretch of time more calls of a handler go out than its rate allows over all instances, but for what each instance
    /// may do at once: a burst, what its slots hold, and one call when it begins.
    pub(crate) fn judge_rate(&mut self, order: &CallOrder) {
        let Some(rate) = self.setup.limits.rate.filter(|_| order.content.handler == handler(0)) else {
            return;
        };
        let from = self.now.saturating_sub(WINDOW_MS);
        self.rated.calls.push_back(self.now);
        for times in [&mut self.rated.calls, &mut self.rated.begun] {
            while times.front().is_some_and(|at| *at < from) {
                times.pop_front();
            }
        }
        let at_once = 1 + rate / 10 + u64::from(self.setup.slots);
        let instances = self.setup.instances as u64 + self.rated.begun.len() as u64;
        let most = rate * WINDOW_MS / 1_000 + instances * at_once + rate;
        if self.rated.calls.len() as u64 > most {
            let count = self.rated.calls.len();
            let wrong =
                format!("{count} calls in {WINDOW_MS} ms at {}, at most {most} at {rate}/s", self.now);
            self.ledger.wrong(wrong);
        }
    }
}
