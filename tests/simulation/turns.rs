//! Who waits for the slots of one instance, kept in the plainest way beside its pool: each grant is judged by it.
//!
//! Of one handler and collection the class goes first that has waited longest, a step of priority being worth ten seconds; of
//! one class shards take turns; collections that wait all the time have their part by weight; and through an open breaker goes one
//! call at a time. What a limit may have held up is left out.

use std::collections::{BTreeMap, BTreeSet};

use dueline::engine::{Grant, Lane, Limit};
use dueline::model::{Boot, BreakerPolicy, HandlerName, Shard};

use crate::setup::Setup;
use crate::world::{Addr, Event, World};

/// A task may have waited so much longer than one of the next higher priority and still go after it, in milliseconds.
const STEP_MS: u64 = 10_000;
/// Collections come and go between two slots, and each makes up for one slot at most: so many slots of the one that counts least
/// may shares be off, after any number of slots.
const SHARES_OFF: i64 = 3;

/// What one shard waits for in one lane, since when.
#[derive(Debug)]
struct Wish {
    shard: Shard,
    lane: Lane,
    since: Boot,
    count: u32,
}

/// How a target was when it was last heard of.
#[derive(Debug, Default)]
struct Target {
    /// When calls failed, since one did not.
    failed: Vec<Boot>,
    /// When a call was let through of which nothing was heard yet.
    let_through: Option<Boot>,
}

/// Slots that went to the collection that has a weight and to others while both waited all the time, each weighed by what
/// the other one counts: no difference where shares are as they should be.
#[derive(Debug, Default)]
struct Shares {
    ahead: i64,
    slots: u64,
}

/// Who waits on one instance.
#[derive(Debug)]
pub(crate) struct Turns {
    limits: BTreeMap<HandlerName, Limit>,
    /// Of the collection, where nothing but its weight limits it.
    weight: Option<u32>,
    /// Within a lane in the order of turns.
    wishes: Vec<Wish>,
    targets: BTreeMap<HandlerName, Target>,
    shares: BTreeMap<HandlerName, Shares>,
    /// Slots that were granted and did not come back.
    out: BTreeMap<HandlerName, u32>,
}

/// What a grant showed: events to count, and what was wrong.
#[derive(Debug, Default)]
struct Shown {
    events: Vec<&'static str>,
    wrongs: Vec<String>,
}

impl Turns {
    pub(crate) fn new(setup: &Setup) -> Turns {
        let limits = crate::limits::of_handlers(setup);
        let weight = crate::limits::weight_alone(setup);
        let (targets, shares, out) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Turns { limits, weight, wishes: Vec::new(), targets, shares, out }
    }

    fn want(&mut self, shard: Shard, lane: &Lane, count: u32, since: Boot) {
        if count > 0 {
            self.wishes.push(Wish { shard, lane: lane.clone(), since, count });
        }
    }

    fn withdraw(&mut self, shard: Shard, lane: &Lane, unused: u32) {
        self.wishes.retain(|wish| wish.shard != shard || wish.lane != *lane);
        self.end_shares(&lane.handler);
        if unused > 0 {
            self.free(lane, unused);
            // Another may be let through.
            self.targets.entry(lane.handler.clone()).or_default().let_through = None;
        }
    }

    fn free(&mut self, lane: &Lane, count: u32) {
        let out = self.out.entry(lane.handler.clone()).or_default();
        *out = out.saturating_sub(count);
    }

    /// A call has ended: whether its target is well.
    pub(crate) fn ended(&mut self, now: Boot, handler: &HandlerName, is_well: bool) {
        let target = self.targets.entry(handler.clone()).or_default();
        target.let_through = None;
        if is_well {
            target.failed.clear();
        } else {
            target.failed.push(now);
        }
    }

    /// Slots of a handler that were granted and did not come back.
    pub(crate) fn out(&self, handler: &HandlerName) -> u32 {
        self.out.get(handler).copied().unwrap_or(0)
    }

    /// Judges what was granted in one go. In which order is not said: within a collection it can be told.
    fn granted(&mut self, now: Boot, grants: &[Grant]) -> Shown {
        let mut shown = Shown::default();
        let mut left = Vec::new();
        for grant in grants {
            left.extend((0..grant.count).map(|_| (grant.shard, grant.lane.clone())));
        }
        for (_, lane) in &left {
            *self.out.entry(lane.handler.clone()).or_default() += 1;
            self.judge_breaker(now, lane, &mut shown);
        }
        while let Some(lane) = left.iter().map(|(_, lane)| lane).min_by_key(|lane| self.rank(lane)).cloned() {
            self.judge_class(&lane, &mut shown);
            let first = self.first(&lane);
            let next = left.iter().position(|(shard, of)| *of == lane && Some(*shard) == first);
            let Some(next) = next else {
                shown.wrongs.push(format!("it was the turn of shard {first:?} in {lane:?}, not of {left:?}"));
                break;
            };
            let (shard, lane) = left.swap_remove(next);
            self.take(shard, &lane);
        }
        self.judge_shares(grants, &mut shown);
        shown
    }

    /// Its turn is over: it stands behind the others with the rest of what it wants.
    fn take(&mut self, shard: Shard, lane: &Lane) {
        let of_it = |wish: &mut Wish| wish.shard == shard && wish.lane == *lane;
        let mut its: Vec<Wish> = self.wishes.extract_if(.., of_it).collect();
        if let Some(first) = its.first_mut() {
            first.count -= 1;
        }
        self.wishes.extend(its.into_iter().filter(|wish| wish.count > 0));
    }

    /// Since when the next of a lane waits, behind what a higher priority is worth.
    fn rank(&self, lane: &Lane) -> Option<u64> {
        let first = self.wishes.iter().find(|wish| wish.lane == *lane)?;
        Some(first.since.0 + u64::from(9 - lane.priority) * STEP_MS)
    }

    /// Whether a slot that went to one lane could have gone to another of its handler, as far as limits of classes go.
    fn could_have(&self, other: &Lane, lane: &Lane) -> bool {
        let reserve = self.limits.get(&lane.handler).and_then(|limit| limit.reserve);
        let is_low = |lane: &Lane| reserve.is_some_and(|reserve| lane.priority < reserve.priority);
        other.handler == lane.handler && (!is_low(other) || is_low(lane)) && (!other.is_late || lane.is_late)
    }

    fn judge_class(&self, lane: &Lane, shown: &mut Shown) {
        let Some(rank) = self.rank(lane) else { return };
        let others = self.wishes.iter().map(|wish| &wish.lane).filter(|other| {
            *other != lane && other.collection == lane.collection && self.could_have(other, lane)
        });
        for other in others {
            let Some(of_other) = self.rank(other) else { continue };
            if of_other < rank {
                let wrong = format!("{lane:?} had a slot before {other:?}: {rank} against {of_other}");
                return shown.wrongs.push(wrong);
            }
            shown.events.push(match other.priority.cmp(&lane.priority) {
                std::cmp::Ordering::Less => "slot given by priority",
                std::cmp::Ordering::Equal => "slot given to late ones or live ones first",
                std::cmp::Ordering::Greater => "slot given to who had waited longer than a higher priority",
            });
        }
        if self.wishes.iter().any(|wish| wish.lane == *lane && Some(wish.shard) != self.first(lane)) {
            shown.events.push("shards took turns");
        }
    }

    fn first(&self, lane: &Lane) -> Option<Shard> {
        self.wishes.iter().find(|wish| wish.lane == *lane).map(|wish| wish.shard)
    }

    /// What was granted in one go counts where both the collection and others wait even after it, and another could have had
    /// each of its slots: then that was so all the while, whatever came first of it.
    fn judge_shares(&mut self, grants: &[Grant], shown: &mut Shown) {
        let Some(weight) = self.weight.map(i64::from) else { return };
        let handlers: BTreeSet<&HandlerName> = grants.iter().map(|grant| &grant.lane.handler).collect();
        for handler in handlers {
            let of_handler = || grants.iter().filter(|grant| grant.lane.handler == *handler);
            if !self.both_wait(handler) || !of_handler().all(|grant| self.another_could_have(&grant.lane)) {
                self.shares.remove(handler);
                continue;
            }
            let shares = self.shares.entry(handler.clone()).or_default();
            let compared = shares.slots;
            for Grant { lane, count, .. } in of_handler() {
                shares.ahead += i64::from(*count) * if lane.collection.is_some() { 1 } else { -weight };
                shares.slots += u64::from(*count);
            }
            if compared < 12 && shares.slots >= 12 {
                shown.events.push("shares of a dozen slots compared");
            }
            if shares.ahead.abs() > SHARES_OFF * weight {
                shown.wrongs.push(format!("collections do not share by weight: {shares:?} of {handler:?}"));
            }
        }
    }

    /// Whether one that waits, of the collection if `lane` is of none or the other way round, could have had its slot.
    fn another_could_have(&self, lane: &Lane) -> bool {
        let mut others = self.wishes.iter().filter(|wish| wish.lane.collection != lane.collection);
        others.any(|wish| self.could_have(&wish.lane, lane))
    }

    fn both_wait(&self, handler: &HandlerName) -> bool {
        let waits = |is_of: bool| {
            let mut of_handler = self.wishes.iter().filter(|wish| wish.lane.handler == *handler);
            of_handler.any(|wish| wish.lane.collection.is_some() == is_of)
        };
        waits(true) && waits(false)
    }

    /// Who comes anew begins anew.
    fn end_shares(&mut self, handler: &HandlerName) {
        if !self.both_wait(handler) {
            self.shares.remove(handler);
        }
    }

    fn judge_breaker(&mut self, now: Boot, lane: &Lane, shown: &mut Shown) {
        let breaker = self.limits.get(&lane.handler).and_then(|limit| limit.breaker);
        let Some(BreakerPolicy { failures, pause_ms }) = breaker else { return };
        let target = self.targets.entry(lane.handler.clone()).or_default();
        let is_open = target.failed.len() >= failures as usize;
        let Some(last) = target.failed.last().copied().filter(|_| is_open) else { return };
        if now < last.plus_ms(pause_ms) {
            shown.wrongs.push(format!("a slot was given through an open breaker: {target:?}"));
        }
        if target.let_through.is_some_and(|at| now < at.plus_ms(pause_ms)) {
            shown.wrongs.push(format!("more than one went through an open breaker: {target:?}"));
        }
        target.let_through = Some(now);
        shown.events.push("let through an open breaker");
    }
}

impl World {
    pub(crate) fn want_slots(&mut self, from: Addr, lane: &Lane, count: u32, since: Boot) {
        let now = self.clock(from.instance).boot;
        let at = &mut self.instances[from.instance];
        at.turns.want(from.shard, lane, count, since.min(now));
        let grants = at.pool.want(now, from.shard, lane, count, since);
        self.grant(from, grants);
    }

    pub(crate) fn free_slots(&mut self, from: Addr, lane: &Lane, count: u32) {
        let now = self.clock(from.instance).boot;
        let at = &mut self.instances[from.instance];
        at.turns.free(lane, count);
        let grants = at.pool.free(now, lane, count);
        self.grant(from, grants);
    }

    pub(crate) fn withdraw_slots(&mut self, from: Addr, lane: &Lane, unused: u32) {
        let now = self.clock(from.instance).boot;
        let at = &mut self.instances[from.instance];
        at.turns.withdraw(from.shard, lane, unused);
        let grants = at.pool.withdraw(now, from.shard, lane, unused);
        self.grant(from, grants);
    }

    /// Slots reach the shards of an instance.
    pub(crate) fn grant(&mut self, from: Addr, grants: Vec<Grant>) {
        let now = self.clock(from.instance).boot;
        let shown = self.instances[from.instance].turns.granted(now, &grants);
        for event in shown.events {
            self.ledger.count(event);
        }
        for wrong in shown.wrongs {
            self.ledger.wrong(format!("{wrong} on i{} at {}", from.instance, self.now));
        }
        for grant in grants {
            let to = Addr { shard: grant.shard, ..from };
            self.after(0, Event::Deliver(to, dueline::engine::Input::Slots(grant.lane, grant.count)));
        }
        self.wait_for_grants(from.instance);
    }
}
