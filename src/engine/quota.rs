//! Slots of one instance: how many calls may be under way over all its shards, how many may begin in a second, and whether a
//! target is left alone for a while.
//!
//! Shards ask and give back; what is not free is queued and granted one at a time, to whose turn it is ([`flow`]): a slot is
//! one of its handler, and of its collection where collections are limited.
//!
//! A limit holds for all instances together, and none of them asks another: each has the part of it that its shards are of
//! all shards, and a shard has one owner. Slots are rounded up to whole ones; what was not used of a rate is made up for
//! within a tenth of a second ([`bucket`]).

mod bucket;
mod collection;
mod flow;
mod slots;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Boot, BreakerPolicy, CollectionLimits, HandlerName, Rate, Reserve, Shard};

use super::lane::Lane;
use bucket::Share;
use collection::{Collections, Whose};
use flow::{Class, Wish};
use slots::{At, Slots};

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
    /// Calls at once, over all instances, at least 1.
    pub concurrency: u32,
    /// Calls that begin, over all instances.
    pub rate: Option<Rate>,
    /// When its target is left alone.
    pub breaker: Option<BreakerPolicy>,
    /// Slots of these that are kept for high priorities.
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
    /// All of the handler that this instance has are taken.
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
    /// All of the collection that this instance has are taken.
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

/// The slots of all handlers and collections.
#[derive(Debug)]
pub struct Pool {
    limits: BTreeMap<HandlerName, Limit>,
    default: Limit,
    slots: BTreeMap<HandlerName, Slots>,
    collections: Collections,
    share: Share,
}

/// Most reasons that are named of what is held up apart.
const APART_MAX: usize = 20;

impl Pool {
    /// A pool with a limit per handler, and one for handlers not named. It has no part of any rate yet, and one slot of each.
    pub fn new(limits: BTreeMap<HandlerName, Limit>, default: Limit) -> Pool {
        Pool { limits, default, slots: BTreeMap::new(), collections: Collections::default(), share: (0, 1) }
    }

    /// The same with limits of collections.
    #[must_use]
    pub fn with_collections(self, limits: CollectionLimits) -> Pool {
        Pool { collections: Collections::new(limits), ..self }
    }

    /// Of all shards so many are owned here: the part of each limit that this instance has from now on.
    pub fn share(&mut self, now: Boot, owned: u32, all: u32) {
        let share = (u64::from(owned), u64::from(all.max(1)));
        let share = if planted!(LimitsNotShared) { (share.1, share.1) } else { share };
        if share != self.share {
            let at = self.at(now);
            self.collections.fill(now, self.share);
            self.share = share;
            self.slots.values_mut().for_each(|slots| slots.shared_anew(at));
        }
    }

    /// A shard asks for slots, which it has waited for since then: those granted at once.
    pub fn want(&mut self, now: Boot, shard: Shard, lane: &Lane, count: u32, since: Boot) -> Vec<Grant> {
        let (at, whose, class) = (self.at(now), self.enter(now, lane), class_of(lane));
        let (slots, collections) = self.slots_of(now, &lane.handler);
        let at_once = slots.take_at_once(at, collections, (whose, class), count);
        let mut granted = match at_once {
            0 => Vec::new(),
            count => vec![Grant { shard, lane: lane.clone(), count }],
        };
        if at_once < count {
            let weight = collections.weight(whose);
            let wish = Wish { whose, weight, class, lane, count: count - at_once };
            slots.want(since.min(now), shard, wish);
            granted.extend(slots.grant(at, collections));
        }
        granted
    }

    /// A shard gives slots back: those granted to others by it.
    pub fn free(&mut self, now: Boot, lane: &Lane, count: u32) -> Vec<Grant> {
        let whose = self.enter(now, lane);
        let (slots, collections) = self.slots_of(now, &lane.handler);
        slots.give_back(whose, class_of(lane), count);
        collections.give_back(whose, count);
        self.grant_after(now, lane, whose)
    }

    /// A shard needs no slots of a lane any more: what it waits for is forgotten, and it gives back what it did not use, with
    /// its part of the rates and of a probe. Those granted to others by it.
    pub fn withdraw(&mut self, now: Boot, shard: Shard, lane: &Lane, unused: u32) -> Vec<Grant> {
        let (at, whose, class) = (self.at(now), self.enter(now, lane), class_of(lane));
        let Some(slots) = self.slots.get_mut(&lane.handler) else { return Vec::new() };
        slots.forget(shard, whose, class);
        if unused > 0 {
            slots.not_used(at, class, unused);
            slots.give_back(whose, class, unused);
            self.collections.put_back(now, self.share, whose, unused);
            self.collections.give_back(whose, unused);
        }
        self.grant_after(now, lane, whose)
    }

    /// A call has ended: whether its target is well.
    pub fn ended(&mut self, now: Boot, handler: &HandlerName, is_well: bool) {
        if self.limit(handler).breaker.is_some() {
            self.slots_of(now, handler).0.ended(now, is_well);
        }
    }

    /// When something may be granted that is not now.
    pub fn poll_timeout(&self, now: Boot) -> Option<Boot> {
        self.waiting().filter_map(|slots| slots.poll_timeout(self.at(now))).min()
    }

    /// Grants what may be granted by now.
    pub fn tick(&mut self, now: Boot) -> Vec<Grant> {
        let at = self.at(now);
        let waiting = self.slots.values_mut().filter(|slots| slots.is_wanted());
        waiting.flat_map(|slots| slots.grant(at, &mut self.collections)).collect()
    }

    /// What holds up the handlers whose slots somebody waits for: of each the handler's own holdup, else that of whose turn it
    /// would be.
    pub fn holdups(&self, now: Boot) -> impl Iterator<Item = Holdup> {
        self.waiting().filter_map(move |slots| slots.holdup_of_next(self.at(now), &self.collections))
    }

    /// Whether any limit has to do with time.
    pub fn has_timed_limits(&self) -> bool {
        let is_timed =
            |limit: &Limit| limit.rate.is_some() || limit.breaker.is_some() || limit.catch_up.is_some();
        self.collections.have_rates() || is_timed(&self.default) || self.limits.values().any(is_timed)
    }

    /// Slots of a handler that are taken.
    pub fn taken(&self, handler: &HandlerName) -> u32 {
        self.slots.get(handler).map_or(0, Slots::taken)
    }

    /// Slots of a handler that this instance has.
    pub fn part(&self, handler: &HandlerName) -> u32 {
        bucket::part_of(self.limit(handler).concurrency, self.share)
    }

    /// Whether anybody waits for a slot.
    pub fn is_any_wanted(&self) -> bool {
        self.slots.values().any(Slots::is_wanted)
    }

    /// Whether anybody waits for a slot of a handler.
    pub fn is_wanted(&self, handler: &HandlerName) -> bool {
        self.slots.get(handler).is_some_and(Slots::is_wanted)
    }

    /// Why no slot of a handler would be granted now, whoever asked.
    pub fn holdup(&self, now: Boot, handler: &HandlerName) -> Option<Holdup> {
        self.slots.get(handler)?.holdup(self.at(now))
    }

    /// Why no slot of a lane would be granted now.
    pub fn holdup_in(&self, now: Boot, lane: &Lane) -> Option<Holdup> {
        let (slots, at) = (self.slots.get(&lane.handler)?, self.at(now));
        let whose = self.collections.known_as(lane.collection.as_ref());
        let of_lane = || slots.holdup_of_lane(at, &self.collections, (whose, class_of(lane)));
        slots.holdup(at).or_else(of_lane)
    }

    /// What holds up tasks of a handler that wait, apart from what holds up all of them: with the collection, where it is the
    /// limit of one. At most 20.
    pub fn holdups_apart(&self, now: Boot, handler: &HandlerName) -> Vec<(Option<Arc<str>>, Holdup)> {
        let Some(slots) = self.slots.get(handler) else { return Vec::new() };
        let mut found: Vec<(Option<Arc<str>>, Holdup)> = Vec::new();
        for (whose, class) in slots.waiting() {
            let of_collection = self.collections.holdup(now, self.share, whose);
            let of_collection = of_collection.map(|holdup| (self.collections.name(whose).cloned(), holdup));
            let of_class = || Some((None, slots.holdup_of_class(self.at(now), class)?));
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

    fn at(&self, now: Boot) -> At {
        At { now, share: self.share }
    }

    fn limit(&self, handler: &HandlerName) -> Limit {
        self.limits.get(handler).copied().unwrap_or(self.default)
    }

    /// The slots of handlers that somebody waits for.
    fn waiting(&self) -> impl Iterator<Item = &Slots> {
        self.slots.values().filter(|slots| slots.is_wanted())
    }

    /// Whose tasks are in a lane; its collection is known from now on.
    fn enter(&mut self, now: Boot, lane: &Lane) -> Whose {
        let Pool { collections, slots, share, .. } = self;
        let is_waited_for = |number| slots.values().any(|slots| slots.knows(Some(number)));
        collections.enter(now, *share, lane.collection.as_ref(), is_waited_for)
    }

    /// The slots of a handler, and the collections that they are of too.
    fn slots_of(&mut self, now: Boot, handler: &HandlerName) -> (&mut Slots, &mut Collections) {
        if !self.slots.contains_key(handler) {
            let slots = Slots::new(self.at(now), self.limit(handler));
            self.slots.insert(handler.clone(), slots);
        }
        (self.slots.get_mut(handler).expect("it is there now"), &mut self.collections)
    }

    /// Grants what slots that came back allow: to their handler, and to others that have waited for the collection.
    fn grant_after(&mut self, now: Boot, lane: &Lane, whose: Whose) -> Vec<Grant> {
        let at = self.at(now);
        let (slots, collections) = self.slots_of(now, &lane.handler);
        let mut granted = slots.grant(at, collections);
        if slots.is_idle() {
            self.slots.remove(&lane.handler);
        }
        if self.collections.limits_concurrency(whose) {
            for (_, slots) in self.slots.iter_mut().filter(|(other, _)| **other != lane.handler) {
                if slots.has(whose) {
                    slots.back(whose);
                    granted.extend(slots.grant(at, &mut self.collections));
                }
            }
        }
        granted
    }
}

fn class_of(lane: &Lane) -> Class {
    Class { priority: lane.priority, is_late: lane.is_late }
}
