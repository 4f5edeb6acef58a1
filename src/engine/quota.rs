//! Slots of one instance: how many calls may be under way over all its shards, how many may begin in a second, and whether a
//! target is left alone for a while.
//!
//! Shards ask and give back; what is not free is queued and granted one at a time, to whose turn it is ([`flow`]): a slot is
//! one of its handler, and of its collection where collections are limited.
//!
//! A rate holds for all instances together, and none of them asks another: each has the part of it that its shards are of
//! all shards, and a shard has one owner. What was not used is made up for within a tenth of a second ([`bucket`]).

mod bucket;
mod collection;
mod flow;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Boot, BreakerPolicy, CollectionLimits, HandlerName, Rate, Reserve, Shard};

use super::lane::Lane;
use bucket::{Breaker, Bucket, Share};
use collection::{Collections, Whose};
use flow::{Class, Flows, Wish};

/// Slots granted to a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The shard.
    pub shard: Shard,
    /// What for.
    pub lane: Lane,
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
    /// Slots that are kept for high priorities.
    pub reserve: Option<Reserve>,
    /// Calls of late tasks that begin, over all instances.
    pub catch_up: Option<Rate>,
}

impl Limit {
    /// Only so many at once.
    pub fn of(concurrency: u32) -> Limit {
        Limit { concurrency: concurrency.max(1), rate: None, breaker: None, reserve: None, catch_up: None }
    }
}

/// Why slots are not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holdup {
    /// All of the handler are taken.
    Concurrency(u32),
    /// The handler's rate: the next one begins then. `None` = this instance has no part of it yet.
    Rate(Option<Boot>),
    /// The breaker is open until then.
    Breaker(Boot),
    /// The breaker lets one call through to see whether the target is well.
    Probe,
    /// What is left of the handler's slots is kept for higher priorities.
    Reserved,
    /// The rate at which the handler catches up, as [`Holdup::Rate`].
    CatchUp(Option<Boot>),
    /// All of the collection are taken.
    CollectionConcurrency(u32),
    /// The collection's rate, as [`Holdup::Rate`].
    CollectionRate(Option<Boot>),
}

impl Holdup {
    /// When it is over, where time alone ends it.
    pub fn until(self) -> Option<Boot> {
        match self {
            Holdup::Rate(at) | Holdup::CatchUp(at) | Holdup::CollectionRate(at) => at,
            Holdup::Breaker(at) => Some(at),
            Holdup::Concurrency(_) | Holdup::Probe | Holdup::Reserved | Holdup::CollectionConcurrency(_) => {
                None
            }
        }
    }
}

/// The slots of a handler.
#[derive(Debug, Default)]
struct Slots {
    taken: u32,
    /// Those of tasks that may not take what is reserved.
    taken_low: u32,
    flows: Flows,
    bucket: Bucket,
    catch_up: Bucket,
    breaker: Breaker,
}

/// The slots of all handlers and collections.
#[derive(Debug)]
pub struct Pool {
    limits: BTreeMap<HandlerName, Limit>,
    default: Limit,
    slots: BTreeMap<HandlerName, Slots>,
    collections: Collections,
    share: Share,
}

impl Pool {
    /// A pool with a limit per handler, and one for handlers not named. It has no part of any rate yet.
    pub fn new(limits: BTreeMap<HandlerName, Limit>, default: Limit) -> Pool {
        Pool { limits, default, slots: BTreeMap::new(), collections: Collections::default(), share: (0, 1) }
    }

    /// The same with limits of collections.
    #[must_use]
    pub fn with_collections(self, limits: CollectionLimits) -> Pool {
        Pool { collections: Collections::new(limits), ..self }
    }

    /// Of all shards these are owned here: the part of each rate that this instance has from now on.
    pub fn share(&mut self, now: Boot, owned: u32, all: u32) {
        let share = (u64::from(owned), u64::from(all.max(1)));
        let share = if planted!(RateNotShared) { (share.1, share.1) } else { share };
        if share != self.share {
            for (handler, slots) in &mut self.slots {
                let limit = limit_of(&self.limits, self.default, handler);
                slots.bucket.fill(now, limit.rate, self.share);
                slots.catch_up.fill(now, limit.catch_up, self.share);
            }
            self.collections.fill(now, self.share);
            self.share = share;
            self.slots.values_mut().for_each(|slots| slots.flows.all_back());
        }
    }

    /// A shard asks for slots, which it has waited for since then: those granted at once.
    pub fn want(&mut self, now: Boot, shard: Shard, lane: &Lane, count: u32, since: Boot) -> Vec<Grant> {
        let (whose, class) = (self.enter(now, lane), class_of(lane));
        let at_once = self.take_at_once(now, &lane.handler, whose, class, count);
        let mut granted = match at_once {
            0 => Vec::new(),
            count => vec![Grant { shard, lane: lane.clone(), count }],
        };
        if at_once < count {
            let weight = self.collections.weight(whose);
            let wish = Wish { whose, weight, class, lane, count: count - at_once };
            self.slots_of(now, &lane.handler).flows.want(since.min(now), shard, wish);
            granted.extend(self.grant(now, &lane.handler));
        }
        granted
    }

    /// Whose tasks are in a lane; its collection is known from now on.
    fn enter(&mut self, now: Boot, lane: &Lane) -> Whose {
        let Pool { collections, slots, share, .. } = self;
        let is_waited_for = |number| slots.values().any(|slots| slots.flows.knows(Some(number)));
        collections.enter(now, *share, lane.collection.as_ref(), is_waited_for)
    }

    /// Where nobody waits there is no turn to wait for: so many slots are taken at once.
    fn take_at_once(
        &mut self,
        now: Boot,
        handler: &HandlerName,
        whose: Whose,
        class: Class,
        count: u32,
    ) -> u32 {
        if !self.slots_of(now, handler).flows.is_empty() {
            return 0;
        }
        let limit = self.limit(handler);
        for taken in 0..count {
            let slots = &self.slots[handler];
            let of_handler = self.holdup_of_handler(now, limit, slots);
            if of_handler.or_else(|| self.holdup_of_lane(now, limit, slots, whose, class)).is_some() {
                return taken;
            }
            self.take(now, limit, handler, whose, class);
        }
        count
    }

    /// A shard gives slots back: those granted to others by it.
    pub fn free(&mut self, now: Boot, lane: &Lane, count: u32) -> Vec<Grant> {
        let whose = self.enter(now, lane);
        self.give_back(now, lane, whose, count);
        self.grant_after(now, lane, whose)
    }

    /// A shard needs no slots of a lane any more: what it waits for is forgotten, and it gives back what it did not use, with
    /// its part of the rates and of a probe. Those granted to others by it.
    pub fn withdraw(&mut self, now: Boot, shard: Shard, lane: &Lane, unused: u32) -> Vec<Grant> {
        let (share, limit, whose) = (self.share, self.limit(&lane.handler), self.enter(now, lane));
        let Some(slots) = self.slots.get_mut(&lane.handler) else { return Vec::new() };
        slots.flows.forget(shard, whose, class_of(lane));
        if unused > 0 {
            slots.bucket.put_back(now, limit.rate, share, unused);
            if lane.is_late {
                slots.catch_up.put_back(now, limit.catch_up, share, unused);
            }
            slots.breaker.probe_withdrawn();
            self.collections.put_back(now, share, whose, unused);
            self.give_back(now, lane, whose, unused);
        }
        self.grant_after(now, lane, whose)
    }

    /// A call has ended: whether its target is well.
    pub fn ended(&mut self, now: Boot, handler: &HandlerName, is_well: bool) {
        let Some(policy) = self.limit(handler).breaker else { return };
        self.slots_of(now, handler).breaker.ended(now, policy, is_well);
    }

    /// When something may be granted that is not now.
    pub fn poll_timeout(&self, now: Boot) -> Option<Boot> {
        let waiting = self.slots.iter().filter(|(_, slots)| !slots.flows.is_empty());
        let times = waiting.filter_map(|(handler, slots)| {
            let limit = self.limit(handler);
            match self.holdup_of_handler(now, limit, slots) {
                Some(Holdup::Probe) => slots.breaker.next_probe(limit.breaker?),
                Some(holdup) => holdup.until(),
                None => {
                    let lanes = slots.flows.in_line();
                    let holdups = lanes
                        .filter_map(|(_, class)| self.holdup_of_class(now, limit, slots, class)?.until());
                    holdups.chain(slots.flows.next_back()).min()
                }
            }
        });
        times.min()
    }

    /// Grants what may be granted by now.
    pub fn tick(&mut self, now: Boot) -> Vec<Grant> {
        let waiting = self.slots.iter().filter(|(_, slots)| !slots.flows.is_empty());
        let handlers: Vec<HandlerName> = waiting.map(|(handler, _)| handler.clone()).collect();
        handlers.iter().flat_map(|handler| self.grant(now, handler)).collect()
    }

    /// What holds up the handlers whose slots somebody waits for: of each the handler's own holdup, else that of whose turn it
    /// would be.
    pub fn holdups(&self, now: Boot) -> impl Iterator<Item = Holdup> {
        let waiting = self.slots.iter().filter(|(_, slots)| !slots.flows.is_empty());
        waiting.filter_map(move |(handler, slots)| {
            let limit = self.limit(handler);
            let of_handler = self.holdup_of_handler(now, limit, slots);
            of_handler.or_else(|| {
                let (whose, class) = slots.flows.waiting().next()?;
                self.holdup_of_lane(now, limit, slots, whose, class)
            })
        })
    }

    /// Whether any limit has to do with time.
    pub fn has_timed_limits(&self) -> bool {
        let is_timed =
            |limit: &Limit| limit.rate.is_some() || limit.breaker.is_some() || limit.catch_up.is_some();
        self.collections.have_rates() || is_timed(&self.default) || self.limits.values().any(is_timed)
    }

    /// Slots of a handler that are taken.
    pub fn taken(&self, handler: &HandlerName) -> u32 {
        self.slots.get(handler).map_or(0, |slots| slots.taken)
    }

    /// Whether anybody waits for a slot.
    pub fn is_any_wanted(&self) -> bool {
        self.slots.values().any(|slots| !slots.flows.is_empty())
    }

    /// Whether anybody waits for a slot of a handler.
    pub fn is_wanted(&self, handler: &HandlerName) -> bool {
        self.slots.get(handler).is_some_and(|slots| !slots.flows.is_empty())
    }

    /// Why no slot of a handler would be granted now, whoever asked.
    pub fn holdup(&self, now: Boot, handler: &HandlerName) -> Option<Holdup> {
        self.holdup_of_handler(now, self.limit(handler), self.slots.get(handler)?)
    }

    /// Why no slot of a lane would be granted now.
    pub fn holdup_in(&self, now: Boot, lane: &Lane) -> Option<Holdup> {
        let (limit, slots) = (self.limit(&lane.handler), self.slots.get(&lane.handler)?);
        let of_handler = self.holdup_of_handler(now, limit, slots);
        let whose = self.collections.known_as(lane.collection.as_ref());
        of_handler.or_else(|| self.holdup_of_lane(now, limit, slots, whose, class_of(lane)))
    }

    /// What holds up tasks of a handler that wait, apart from what holds up all of them: with the collection, where it is the
    /// limit of one. At most 20.
    pub fn holdups_apart(&self, now: Boot, handler: &HandlerName) -> Vec<(Option<Arc<str>>, Holdup)> {
        let Some(slots) = self.slots.get(handler) else { return Vec::new() };
        let limit = self.limit(handler);
        let mut found: Vec<(Option<Arc<str>>, Holdup)> = Vec::new();
        for (whose, class) in slots.flows.waiting() {
            let holdup = self.collections.holdup(now, self.share, whose);
            let of_collection = holdup.map(|holdup| (self.collections.name(whose).cloned(), holdup));
            let of_class = || Some((None, self.holdup_of_class(now, limit, slots, class)?));
            let Some(holdup) = of_collection.or_else(of_class) else { continue };
            if !found.contains(&holdup) {
                found.push(holdup);
            }
            if found.len() == APART_MAX {
                break;
            }
        }
        found
    }

    fn holdup_of_handler(&self, now: Boot, limit: Limit, slots: &Slots) -> Option<Holdup> {
        if let Some(at) = limit.breaker.and_then(|policy| slots.breaker.holdup(now, policy)) {
            return Some(at);
        }
        if slots.taken >= limit.concurrency.max(1) {
            return Some(Holdup::Concurrency(slots.taken));
        }
        slots.bucket.next(now, limit.rate?, self.share).map(Holdup::Rate)
    }

    fn holdup_of_lane(
        &self,
        now: Boot,
        limit: Limit,
        slots: &Slots,
        whose: Whose,
        class: Class,
    ) -> Option<Holdup> {
        let of_collection = self.collections.holdup(now, self.share, whose);
        of_collection.or_else(|| self.holdup_of_class(now, limit, slots, class))
    }

    fn holdup_of_class(&self, now: Boot, limit: Limit, slots: &Slots, class: Class) -> Option<Holdup> {
        let is_low = limit.reserve.is_some_and(|reserve| class.priority < reserve.priority);
        let kept = limit.reserve.map_or(0, |reserve| reserve.slots);
        if is_low && slots.taken_low + kept >= limit.concurrency.max(1) && !planted!(ReserveForgotten) {
            return Some(Holdup::Reserved);
        }
        let rate = limit.catch_up.filter(|_| class.is_late && !planted!(CatchUpUnbounded))?;
        slots.catch_up.next(now, rate, self.share).map(Holdup::CatchUp)
    }

    fn limit(&self, handler: &HandlerName) -> Limit {
        limit_of(&self.limits, self.default, handler)
    }

    fn slots_of(&mut self, now: Boot, handler: &HandlerName) -> &mut Slots {
        let share = self.share;
        match self.slots.contains_key(handler) {
            true => self.slots.get_mut(handler).expect("it was just found"),
            false => self.slots.entry(handler.clone()).or_insert_with(|| Slots {
                bucket: Bucket::new(now, share),
                catch_up: Bucket::new(now, share),
                ..Slots::default()
            }),
        }
    }

    fn give_back(&mut self, now: Boot, lane: &Lane, whose: Whose, count: u32) {
        let is_low = is_low(self.limit(&lane.handler), lane.priority);
        let slots = self.slots_of(now, &lane.handler);
        slots.taken = slots.taken.checked_sub(count).expect("no more slots come back than were taken");
        slots.taken_low -= if is_low { count } else { 0 };
        slots.flows.back(whose);
        self.collections.give_back(whose, count);
    }

    /// Grants what slots that came back allow: to their handler, and to others that have waited for the collection.
    fn grant_after(&mut self, now: Boot, lane: &Lane, whose: Whose) -> Vec<Grant> {
        let mut granted = self.grant(now, &lane.handler);
        if self.collections.limits_concurrency(whose) {
            let waits = |slots: &Slots| slots.flows.has(whose);
            let others = self.slots.iter().filter(|(other, slots)| **other != lane.handler && waits(slots));
            let others: Vec<HandlerName> = others.map(|(other, _)| other.clone()).collect();
            for other in &others {
                self.slots_of(now, other).flows.back(whose);
                granted.extend(self.grant(now, other));
            }
        }
        granted
    }

    fn grant(&mut self, now: Boot, handler: &HandlerName) -> Vec<Grant> {
        let limit = self.limit(handler);
        let mut granted: Vec<Grant> = Vec::new();
        while let Some((whose, class)) = self.next(now, limit, handler) {
            self.take(now, limit, handler, whose, class);
            let flows = &mut self.slots.get_mut(handler).expect("somebody waits for it").flows;
            let (shard, lane) = flows.take(whose, class);
            match granted.iter_mut().rfind(|grant| grant.shard == shard && grant.lane == lane) {
                Some(grant) => grant.count += 1,
                None => granted.push(Grant { shard, lane, count: 1 }),
            }
        }
        let has_rate = limit.rate.is_some() || limit.catch_up.is_some();
        if !has_rate && self.slots.get(handler).is_some_and(Slots::is_idle) {
            self.slots.remove(handler);
        }
        granted
    }

    /// Who gets the next slot of a handler.
    fn next(&mut self, now: Boot, limit: Limit, handler: &HandlerName) -> Option<(Whose, Class)> {
        let slots = self.slots.get(handler)?;
        if slots.flows.is_empty() || self.holdup_of_handler(now, limit, slots).is_some() {
            return None;
        }
        // Out of the pool while the rest of it is asked.
        let mut flows = std::mem::take(&mut self.slots.get_mut(handler)?.flows);
        let slots = &self.slots[handler];
        let held_up = |whose| self.collections.holdup(now, self.share, whose).map(Holdup::until);
        let may_class = |class| self.holdup_of_class(now, limit, slots, class).is_none();
        let next = flows.next(now, held_up, may_class);
        self.slots.get_mut(handler)?.flows = flows;
        next
    }

    /// Takes one slot, where nothing holds it up.
    fn take(&mut self, now: Boot, limit: Limit, handler: &HandlerName, whose: Whose, class: Class) {
        let slots = self.slots.get_mut(handler).expect("somebody asked for it");
        slots.bucket.take(now, limit.rate, self.share);
        if class.is_late && !planted!(CatchUpUnbounded) {
            slots.catch_up.take(now, limit.catch_up, self.share);
        }
        slots.breaker.let_through(now);
        slots.taken += 1;
        slots.taken_low += u32::from(is_low(limit, class.priority));
        self.collections.take(now, self.share, whose);
    }
}

/// Most reasons that are named of what is held up apart.
const APART_MAX: usize = 20;

fn limit_of(limits: &BTreeMap<HandlerName, Limit>, default: Limit, handler: &HandlerName) -> Limit {
    limits.get(handler).copied().unwrap_or(default)
}

/// Whether tasks of a priority may not take what a handler reserves.
fn is_low(limit: Limit, priority: u8) -> bool {
    limit.reserve.is_some_and(|reserve| priority < reserve.priority)
}

fn class_of(lane: &Lane) -> Class {
    Class { priority: lane.priority, is_late: lane.is_late }
}

impl Slots {
    fn is_idle(&self) -> bool {
        self.taken == 0 && self.flows.is_empty() && self.breaker.failures == 0
    }
}
