//! Limits of handlers and collections in a simulation: instances have their part of each as in the product, and calls are
//! counted over all of them.

use std::collections::{BTreeMap, VecDeque};

use dueline::engine::{CallOrder, Holdup, Limit};
use dueline::model::{
    BreakerPolicy, CollectionLimit, CollectionLimits, Decision, Epoch, HandlerName, Outcome, Rate, Reserve,
    Shard, Version, limits,
};
use dueline::testing::rng::Rng;

use crate::ledger::BASE;
use crate::setup::Setup;
use crate::workload::{COLLECTION, HANDLERS, handler};
use crate::world::{Addr, Event, World};

/// More time than passes between a slot's grant and its call.
const GRANT_TO_CALL_MS: u64 = 60_000;
/// A task that began so much later than late ones are known by was late when it came in line.
const CERTAINLY_LATE_MS: i64 = 20_000;
/// Calls are counted over so long.
const WINDOW_MS: u64 = 30_000;
/// The collection has so many slots where what is of none has one.
const WEIGHT: u32 = 4;
/// The quota is one of events in so long.
const QUOTA_MS: u64 = 60_000;

/// The limits of a run: a rate of the first handler, a breaker of the second, slots kept and a rate to catch up of the third; a
/// collection's slots and rate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// Calls a second.
    pub(crate) rate: Option<u64>,
    pub(crate) breaker: Option<BreakerPolicy>,
    pub(crate) reserve: Option<Reserve>,
    pub(crate) catch_up: Option<u64>,
    /// At once, and a second.
    pub(crate) of_collection: Option<(u32, u64)>,
    /// Events of the collection that are taken in, a minute.
    pub(crate) intake: Option<u64>,
    /// Many tasks of a handler come at a time, half of them of the collection.
    pub(crate) crowds: bool,
}

impl Limits {
    pub(crate) fn of(seed: u64) -> Limits {
        let mut rng = Rng::new(seed ^ 0x11_4175);
        let rate = rng.chance(300).then(|| rng.range(3, 9));
        let (failures, pause_ms) = (rng.range(2, 5) as u32, rng.range(300, 4_000));
        let breaker = rng.chance(300).then_some(BreakerPolicy { failures, pause_ms });
        let reserve = rng.chance(300).then(|| Reserve { priority: rng.range(6, 9) as u8, slots: 1 });
        let catch_up = rng.chance(300).then(|| rng.range(1, 4));
        let of_collection = rng.chance(300).then(|| (rng.range(1, 3) as u32, rng.range(2, 6)));
        let intake = rng.chance(200).then(|| rng.range(10, 120));
        let crowds = rng.chance(250);
        Limits { rate, breaker, reserve, catch_up, of_collection, intake, crowds }
    }

    fn any(&self) -> bool {
        let of_handlers = self.rate.is_some() || self.breaker.is_some() || self.catch_up.is_some();
        of_handlers || self.of_collection.is_some()
    }
}

/// What each handler is limited to.
pub(crate) fn of_handlers(setup: &Setup) -> BTreeMap<HandlerName, Limit> {
    let limit = |n: u64| Limit {
        rate: setup.limits.rate.filter(|_| n == 0).map(a_second),
        breaker: setup.limits.breaker.filter(|_| n == 1),
        reserve: setup.limits.reserve.filter(|reserve| n == 2 && reserve.slots < setup.slots),
        catch_up: setup.limits.catch_up.filter(|_| n == 2).map(a_second),
        ..Limit::of(setup.slots)
    };
    (0..HANDLERS).map(|n| (handler(n), limit(n))).collect()
}

fn a_second(count: u64) -> Rate {
    format!("{count}/s").parse().expect("a rate")
}

/// What the collection is limited to.
pub(crate) fn of_collections(setup: &Setup) -> CollectionLimits {
    let Limits { of_collection, intake, crowds, .. } = &setup.limits;
    if of_collection.is_none() && intake.is_none() && !crowds {
        return CollectionLimits::default();
    }
    let limit = CollectionLimit {
        concurrency: of_collection.map(|(concurrency, _)| concurrency),
        rate: of_collection.map(|(_, rate)| a_second(rate)),
        weight: WEIGHT,
        intake: intake.map(|count| format!("{count}/m").parse().expect("a rate")),
    };
    CollectionLimits { by_name: BTreeMap::from([(COLLECTION.into(), limit)]), each_other: None }
}

/// The weight of the collection, where nothing else limits what of it begins.
pub(crate) fn weight_alone(setup: &Setup) -> Option<u32> {
    setup.limits.of_collection.is_none().then_some(WEIGHT)
}

/// Calls that are limited together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Together {
    /// Of the handler that has a rate.
    Handler,
    /// Of the collection.
    Collection,
    /// Late ones of the handler that catches up at a rate.
    Late,
}

/// An instance, and which of its lives.
type Life = (usize, u32);
/// Calls by shard and number, each with when it went out.
type UnderWay = BTreeMap<(Shard, u64), (u64, CallOrder)>;

/// When calls of the handler that has a rate went out, and when instances began.
#[derive(Debug, Default)]
pub(crate) struct Rated {
    calls: BTreeMap<Together, VecDeque<u64>>,
    begun: VecDeque<u64>,
    /// Calls under way of each life of an instance.
    under_way: BTreeMap<Life, UnderWay>,
    /// How many shards each life of an instance ran from when on.
    ran: BTreeMap<Life, Vec<(u64, u32)>>,
}

impl Rated {
    /// An instance is to begin anew.
    pub(crate) fn begun(&mut self, now: u64) {
        self.begun.push_back(now);
    }
}

impl World {
    /// A shard counts for its instance's part of limits while it runs there, as in `src/runtime/actor.rs`.
    pub(crate) fn count_for_limits(&mut self, at: Addr, runs: bool) {
        let now = self.clock(at.instance).boot;
        let instance = &mut self.instances[at.instance];
        let is_new = if runs { instance.runs.insert(at.shard) } else { instance.runs.remove(&at.shard) };
        if is_new {
            let runs = instance.runs.len() as u32;
            instance.pool.share(now, runs, self.setup.shards);
            self.rated.ran.entry((at.instance, at.life)).or_default().push((self.now, runs));
            self.grant_in_time(at.instance);
        }
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
                Holdup::Reserved => self.ledger.count("held up by what is kept for higher priorities"),
                Holdup::CatchUp(_) => self.ledger.count("held up by the rate of late tasks"),
                Holdup::CollectionConcurrency(_) | Holdup::CollectionRate(_) => {
                    self.ledger.count("held up by a collection");
                }
                Holdup::Concurrency(_) => {}
            }
        }
        self.grant(Addr { instance, life, shard: Shard(0) }, grants);
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
            let at = &mut self.instances[from.instance];
            at.turns.ended(now, name, is_well);
            at.pool.ended(now, name, is_well);
        }
    }

    /// In no stretch of time more calls go out than a rate allows over all instances, but for what each instance may do at
    /// once: a burst, what its slots hold, and one call when it begins.
    pub(crate) fn judge_rates(&mut self, order: &CallOrder) {
        let (limits, late_ms) = (self.setup.limits.clone(), limits::LATE_IN_LINE_MS + CERTAINLY_LATE_MS);
        let is_late = BASE + self.now as i64 - order.ready_at.0 > late_ms && order.attempt == 1;
        let of_handler = limits.rate.filter(|_| order.content.handler == handler(0));
        let of_late = limits.catch_up.filter(|_| is_late && order.content.handler == handler(2));
        let of_collection = limits.of_collection.filter(|_| order.content.collection.is_some());
        self.judge_rate(Together::Handler, of_handler);
        self.judge_rate(Together::Late, of_late);
        self.judge_rate(Together::Collection, of_collection.map(|(_, rate)| rate));
    }

    fn judge_rate(&mut self, of: Together, rate: Option<u64>) {
        let Some(rate) = rate else { return };
        let from = self.now.saturating_sub(WINDOW_MS);
        let calls = self.rated.calls.entry(of).or_default();
        calls.push_back(self.now);
        for times in [&mut *calls, &mut self.rated.begun] {
            while times.front().is_some_and(|at| *at < from) {
                times.pop_front();
            }
        }
        // What was in line before it was late may wait there for long.
        let slots = u64::from(self.setup.slots) * if of == Together::Collection { HANDLERS } else { 1 };
        let slots = slots + if of == Together::Late { self.setup.queues } else { 0 };
        let at_once = 1 + rate / 10 + slots;
        let instances = self.setup.instances as u64 + self.rated.begun.len() as u64;
        let most = rate * WINDOW_MS / 1_000 + instances * at_once + rate;
        if calls.len() as u64 > most {
            let count = calls.len();
            let wrong = format!(
                "{count} calls of {of:?} in {WINDOW_MS} ms at {}, at most {most} at {rate}/s",
                self.now
            );
            self.ledger.wrong(wrong);
        }
    }

    /// On no instance more calls are under way than its part of the slots, those that are kept, and those of the collection
    /// allow. Which part that is, a call knows by when it got its slot: the largest since the first that is under way counts.
    pub(crate) fn judge_slots(&mut self, from: Addr, order: &CallOrder) {
        let life = (from.instance, from.life);
        let calls = self.rated.under_way.entry(life).or_default();
        calls.insert((from.shard, order.token.sequence), (self.now, order.clone()));
        let (slots, shards) = (u64::from(self.setup.slots), u64::from(self.setup.shards));
        let ran = self.rated.ran.get(&life).map(Vec::as_slice).unwrap_or_default();
        let part_of = |slots: u64, ran: u64| (slots * ran).div_ceil(shards).max(1);
        let limit = of_handlers(&self.setup).get(&order.content.handler).copied();
        let reserve = limit.and_then(|limit| limit.reserve);
        let left_to_low = |kept: u32, ran: u64| part_of(slots, ran) - u64::from(kept) * ran / shards;
        let mut wrongs = Vec::new();
        let mut judge = |is_of: &dyn Fn(&CallOrder) -> bool, what: &str, most: &dyn Fn(u64) -> u64| {
            let of: Vec<u64> = calls.values().filter(|(_, call)| is_of(call)).map(|(at, _)| *at).collect();
            let since = of.iter().min().map_or(0, |first| first.saturating_sub(GRANT_TO_CALL_MS));
            let began_with = ran.iter().rev().find(|(at, _)| *at <= since);
            let counted = ran.iter().filter(|(at, _)| *at > since).chain(began_with);
            let most = counted.map(|(_, ran)| most(u64::from(*ran))).max().unwrap_or(1);
            if of.len() as u64 > most {
                wrongs.push(format!("{} calls {what} under way, at most {most}", of.len()));
            }
        };
        let is_of_handler = |call: &CallOrder| call.content.handler == order.content.handler;
        let granted = u64::from(self.instances[from.instance].turns.out(&order.content.handler));
        judge(&is_of_handler, "with a slot each", &|_| granted);
        judge(&is_of_handler, order.content.handler.as_str(), &|ran| part_of(slots, ran));
        if let Some(reserve) = reserve {
            let is_low = |call: &CallOrder| is_of_handler(call) && call.content.priority < reserve.priority;
            judge(&is_low, "of low priority", &|ran| left_to_low(reserve.slots, ran));
        }
        if let Some((most, _)) = self.setup.limits.of_collection {
            let is_of = |call: &CallOrder| call.content.collection.is_some();
            judge(&is_of, "of the collection", &|ran| part_of(u64::from(most), ran));
        }
        for wrong in wrongs {
            self.ledger.wrong(format!("{wrong} on i{} at {}", from.instance, self.now));
        }
    }

    /// Of the collection no owner takes in more on a shard, in any stretch of time, than the shard's part of the quota and what
    /// of it was saved up. What stops another task is left out: it comes in all the same where an owner before may have begun it.
    pub(crate) fn judge_intake(&mut self) {
        let Some(intake) = self.setup.limits.intake else { return };
        // Of each owner and shard: the latest append time up to an event of the collection, and that up to one that came in before.
        let mut taken: BTreeMap<(Shard, Epoch), Vec<(i64, i64)>> = BTreeMap::new();
        let mut appends: Vec<(Shard, u64)> = (self.ledger.appends.iter())
            .filter(|append| append.of_collection)
            .map(|append| (append.shard, append.offset))
            .collect();
        appends.sort_unstable();
        let mut latest: BTreeMap<Shard, i64> = BTreeMap::new();
        for (shard, offset) in appends {
            let at = self.log.record(shard, offset).appended.0;
            let latest = latest.entry(shard).or_insert(at);
            *latest = at.max(*latest);
            let answered = self.ledger.answers.get(&(shard, Version(offset)));
            let Some(row) = answered.map(|answered| &answered.row) else { continue };
            if row.decision == Decision::Scheduled {
                let times = taken.entry((shard, row.epoch)).or_default();
                let own = times.last().map_or(at, |(own, _)| at.max(*own));
                times.push((own, *latest));
            }
        }
        let cost = QUOTA_MS * u64::from(self.setup.shards);
        let saved_up = cost.max(intake * QUOTA_MS);
        for ((shard, epoch), times) in taken {
            for (first, (from, _)) in times.iter().enumerate() {
                let is_over = |(count, (_, until)): &(u64, &(i64, i64))| {
                    count * cost > saved_up + intake * until.saturating_sub(*from).unsigned_abs()
                };
                if let Some((count, (_, until))) = (1..).zip(&times[first..]).find(is_over) {
                    let wrong = format!("{count} events of the collection came in from {from} to {until}");
                    self.ledger
                        .wrong(format!("{wrong} on shard {} in epoch {}, {intake}/m", shard.0, epoch.0));
                    return;
                }
            }
        }
    }

    /// A call gave its slot back.
    pub(crate) fn slot_is_free(&mut self, from: Addr, sequence: u64) {
        if let Some(calls) = self.rated.under_way.get_mut(&(from.instance, from.life)) {
            calls.remove(&(from.shard, sequence));
        }
    }
}
