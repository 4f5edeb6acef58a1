//! Slots of one instance: how many calls of each handler may be under way over all its shards, how many may begin in a
//! second, and whether its target is left alone for a while.
//!
//! Shards ask and give back; what is not free is queued and granted one at a time in turn, so that no shard starves.
//!
//! The rate of a handler holds for all instances together, and none of them asks another: each has the part of it that its
//! shards are of all shards, and a shard has one owner. What was not used is made up for within a tenth of a second (a token
//! bucket). A breaker counts failures in a row; when there are too many it opens: nothing is granted for a while, then one slot
//! at a time until a call did not fail.

use std::collections::{BTreeMap, VecDeque};

use crate::model::{Boot, BreakerPolicy, HandlerName, Rate, Shard};

/// Slots granted to a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The shard.
    pub shard: Shard,
    /// The handler.
    pub handler: HandlerName,
    /// How many.
    pub count: u32,
}

/// What a handler is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Calls at once on this instance, at least 1.
    pub concurrency: u32,
    /// Calls that begin, over all instances.
    pub rate: Option<Rate>,
    /// When its target is left alone.
    pub breaker: Option<BreakerPolicy>,
}

impl Limit {
    /// Only so many at once.
    pub fn of(concurrency: u32) -> Limit {
        Limit { concurrency: concurrency.max(1), rate: None, breaker: None }
    }
}

/// Why a handler's slots are not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holdup {
    /// All are taken.
    Concurrency(u32),
    /// The rate: the next one begins then. `None` = this instance has no part of it yet.
    Rate(Option<Boot>),
    /// The breaker is open until then.
    Breaker(Boot),
    /// The breaker lets one call through to see whether the target is well.
    Probe,
}

/// Units of a token bucket that one call takes for each shard there is: a rate of one an hour gives one unit a millisecond and
/// shard owned, so that nothing is rounded.
const CALL_UNITS: u64 = 3_600_000;
/// What was not used within this time is not made up for, in milliseconds.
const BURST_MS: u64 = 100;

#[derive(Debug, Default)]
struct Slots {
    taken: u32,
    /// What each shard waits for, and whose turn it is.
    wanted: BTreeMap<Shard, u32>,
    turns: VecDeque<Shard>,
    bucket: Bucket,
    breaker: Breaker,
}

#[derive(Debug, Default)]
struct Bucket {
    units: u64,
    filled_at: Boot,
}

#[derive(Debug, Default)]
struct Breaker {
    failures: u32,
    open_until: Option<Boot>,
    /// When a call was let through to see how the target is.
    probe_at: Option<Boot>,
}

/// The slots of all handlers.
#[derive(Debug)]
pub struct Pool {
    limits: BTreeMap<HandlerName, Limit>,
    default: Limit,
    slots: BTreeMap<HandlerName, Slots>,
    /// Shards owned here, and all of them.
    share: (u64, u64),
}

impl Pool {
    /// A pool with a limit per handler, and one for handlers not named. It has no part of any rate yet.
    pub fn new(limits: BTreeMap<HandlerName, Limit>, default: Limit) -> Pool {
        Pool { limits, default, slots: BTreeMap::new(), share: (0, 1) }
    }

    /// Of all shards these are owned here: the part of each rate that this instance has from now on.
    pub fn share(&mut self, now: Boot, owned: u32, all: u32) {
        let share = (u64::from(owned), u64::from(all.max(1)));
        let share = if planted!(RateNotShared) { (share.1, share.1) } else { share };
        if share != self.share {
            for (handler, slots) in &mut self.slots {
                slots.bucket.fill(now, limit_of(&self.limits, self.default, handler).rate, self.share);
            }
            self.share = share;
        }
    }

    /// A shard asks for slots: those granted at once.
    pub fn want(&mut self, now: Boot, shard: Shard, handler: &HandlerName, count: u32) -> Vec<Grant> {
        let share = self.share;
        let slots = self.slots.entry(handler.clone()).or_insert_with(|| Slots::new(now, share));
        *slots.wanted.entry(shard).or_insert_with(|| {
            slots.turns.push_back(shard);
            0
        }) += count;
        self.grant(now, handler)
    }

    /// A shard gives slots back: those granted to others by it.
    pub fn free(&mut self, now: Boot, handler: &HandlerName, count: u32) -> Vec<Grant> {
        let share = self.share;
        let slots = self.slots.entry(handler.clone()).or_insert_with(|| Slots::new(now, share));
        assert!(slots.taken >= count, "no more slots come back than were taken");
        slots.taken -= count;
        self.grant(now, handler)
    }

    /// A shard needs no slots any more: what it waits for is forgotten, and it gives back what it did not use, with its part of
    /// the rate and of a probe. Those granted to others by it.
    pub fn withdraw(&mut self, now: Boot, shard: Shard, handler: &HandlerName, unused: u32) -> Vec<Grant> {
        let (share, limit) = (self.share, self.limit(handler));
        let Some(slots) = self.slots.get_mut(handler) else { return Vec::new() };
        assert!(slots.taken >= unused, "no more slots come back than were taken");
        slots.taken -= unused;
        if slots.wanted.remove(&shard).is_some() {
            slots.turns.retain(|other| *other != shard);
        }
        if unused > 0 {
            slots.bucket.put_back(now, limit.rate, share, unused);
            slots.breaker.probe_at = None;
        }
        self.grant(now, handler)
    }

    /// A call has ended: whether its target is well.
    pub fn ended(&mut self, now: Boot, handler: &HandlerName, is_well: bool) {
        let Some(policy) = self.limit(handler).breaker else { return };
        let share = self.share;
        let slots = self.slots.entry(handler.clone()).or_insert_with(|| Slots::new(now, share));
        slots.breaker.ended(now, policy, is_well);
    }

    /// When something may be granted that is not now.
    pub fn poll_timeout(&self, now: Boot) -> Option<Boot> {
        let waiting = self.slots.iter().filter(|(_, slots)| !slots.turns.is_empty());
        let times = waiting.filter_map(|(handler, _)| match self.holdup(now, handler)? {
            Holdup::Rate(at) => at,
            Holdup::Breaker(at) => Some(at),
            Holdup::Probe => {
                let limit = self.limit(handler).breaker?;
                Some(self.slots.get(handler)?.breaker.probe_at?.plus_ms(limit.pause_ms))
            }
            Holdup::Concurrency(_) => None,
        });
        times.min()
    }

    /// Grants what may be granted by now.
    pub fn tick(&mut self, now: Boot) -> Vec<Grant> {
        let waiting = self.slots.iter().filter(|(_, slots)| !slots.turns.is_empty());
        let handlers: Vec<HandlerName> = waiting.map(|(handler, _)| handler.clone()).collect();
        handlers.iter().flat_map(|handler| self.grant(now, handler)).collect()
    }

    /// What holds up the handlers whose slots somebody waits for.
    pub fn holdups(&self, now: Boot) -> impl Iterator<Item = Holdup> {
        let waiting = self.slots.iter().filter(|(_, slots)| !slots.turns.is_empty());
        waiting.filter_map(move |(handler, _)| self.holdup(now, handler))
    }

    /// Whether any handler has a rate or a breaker.
    pub fn has_timed_limits(&self) -> bool {
        let is_timed = |limit: &Limit| limit.rate.is_some() || limit.breaker.is_some();
        is_timed(&self.default) || self.limits.values().any(is_timed)
    }

    /// Slots of a handler that are taken.
    pub fn taken(&self, handler: &HandlerName) -> u32 {
        self.slots.get(handler).map_or(0, |slots| slots.taken)
    }

    /// Whether anybody waits for a slot of a handler.
    pub fn is_wanted(&self, handler: &HandlerName) -> bool {
        self.slots.get(handler).is_some_and(|slots| !slots.turns.is_empty())
    }

    /// Why no slot of a handler would be granted now.
    pub fn holdup(&self, now: Boot, handler: &HandlerName) -> Option<Holdup> {
        let limit = self.limit(handler);
        let slots = self.slots.get(handler)?;
        if let Some(at) = limit.breaker.and_then(|policy| slots.breaker.holdup(now, policy)) {
            return Some(at);
        }
        if slots.taken >= limit.concurrency {
            return Some(Holdup::Concurrency(slots.taken));
        }
        slots.bucket.next(now, limit.rate?, self.share).map(Holdup::Rate)
    }

    fn limit(&self, handler: &HandlerName) -> Limit {
        limit_of(&self.limits, self.default, handler)
    }

    fn grant(&mut self, now: Boot, handler: &HandlerName) -> Vec<Grant> {
        let (limit, share) = (self.limit(handler), self.share);
        let Some(slots) = self.slots.get_mut(handler) else { return Vec::new() };
        let mut granted: Vec<(Shard, u32)> = Vec::new();
        slots.bucket.fill(now, limit.rate, share);
        while slots.taken < limit.concurrency.max(1)
            && let Some(shard) = slots.turns.front().copied()
        {
            let is_open = limit.breaker.is_some_and(|policy| slots.breaker.holdup(now, policy).is_some());
            if is_open || (limit.rate.is_some() && !slots.bucket.take(share)) {
                break;
            }
            slots.breaker.let_through(now);
            slots.taken += 1;
            slots.take_turn(shard);
            match granted.iter_mut().find(|(other, _)| *other == shard) {
                Some((_, count)) => *count += 1,
                None => granted.push((shard, 1)),
            }
        }
        if slots.is_idle() && limit.rate.is_none() {
            self.slots.remove(handler);
        }
        let grant = |(shard, count)| Grant { shard, handler: handler.clone(), count };
        granted.into_iter().map(grant).collect()
    }
}

fn limit_of(limits: &BTreeMap<HandlerName, Limit>, default: Limit, handler: &HandlerName) -> Limit {
    limits.get(handler).copied().unwrap_or(default)
}

impl Slots {
    /// It has one call to begin with.
    fn new(now: Boot, (_, all): (u64, u64)) -> Slots {
        Slots { bucket: Bucket { units: CALL_UNITS * all, filled_at: now }, ..Slots::default() }
    }

    fn is_idle(&self) -> bool {
        self.taken == 0 && self.turns.is_empty() && self.breaker.failures == 0
    }

    /// One slot goes to the shard whose turn it is; it stands at the end when it wants more.
    fn take_turn(&mut self, shard: Shard) {
        self.turns.pop_front();
        let left = self.wanted.remove(&shard).unwrap_or(0).saturating_sub(1);
        if left > 0 {
            self.wanted.insert(shard, left);
            self.turns.push_back(shard);
        }
    }
}

impl Bucket {
    fn fill(&mut self, now: Boot, rate: Option<Rate>, (owned, all): (u64, u64)) {
        let Some(rate) = rate else { return };
        let passed = now.ms_since(self.filled_at);
        let a_ms = rate.an_hour().saturating_mul(owned);
        let most = a_ms.saturating_mul(BURST_MS).max(CALL_UNITS * all);
        self.units = self.units.saturating_add(a_ms.saturating_mul(passed)).min(most);
        self.filled_at = self.filled_at.max(now);
    }

    fn take(&mut self, (_, all): (u64, u64)) -> bool {
        let left = self.units.checked_sub(CALL_UNITS * all);
        self.units = left.unwrap_or(self.units);
        left.is_some()
    }

    fn put_back(&mut self, now: Boot, rate: Option<Rate>, share: (u64, u64), calls: u32) {
        self.units = self.units.saturating_add(CALL_UNITS * share.1 * u64::from(calls));
        self.fill(now, rate, share);
    }

    /// When the next call may begin, unless it may now; the inner `None` = never, with this share.
    fn next(&self, now: Boot, rate: Rate, (owned, all): (u64, u64)) -> Option<Option<Boot>> {
        let missing = (CALL_UNITS * all).saturating_sub(self.units);
        let a_ms = rate.an_hour().saturating_mul(owned);
        if missing > 0 && a_ms == 0 {
            return Some(None);
        }
        let at = if missing == 0 { self.filled_at } else { self.filled_at.plus_ms(missing.div_ceil(a_ms)) };
        (at > now).then_some(Some(at))
    }
}

impl Breaker {
    fn ended(&mut self, now: Boot, policy: BreakerPolicy, is_well: bool) {
        if is_well {
            *self = Breaker::default();
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures >= policy.failures {
            self.open_until = Some(now.plus_ms(policy.pause_ms));
            self.probe_at = None;
        }
    }

    fn holdup(&self, now: Boot, policy: BreakerPolicy) -> Option<Holdup> {
        let open_until = self.open_until?;
        if now < open_until {
            return Some(Holdup::Breaker(open_until));
        }
        // A slot may come back unused: then nothing is heard of the target, and another is let through.
        let is_out = |at: Boot| now < at.plus_ms(policy.pause_ms) || planted!(ProbeAwaitedForEver);
        let is_out = self.probe_at.is_some_and(is_out);
        is_out.then_some(Holdup::Probe)
    }

    fn let_through(&mut self, now: Boot) {
        if self.open_until.is_some() {
            self.probe_at = Some(now);
        }
    }
}
