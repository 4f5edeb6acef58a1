//! Slots of one instance: how many calls of each handler may be under way over all its shards.
//!
//! Shards ask and give back; what is not free is queued and granted in the order asked, so no shard starves.

use std::collections::{BTreeMap, VecDeque};

use crate::model::{HandlerName, Shard};

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

#[derive(Debug, Default)]
struct Slots {
    taken: u32,
    waiting: VecDeque<(Shard, u32)>,
}

/// The slots of all handlers.
#[derive(Debug)]
pub struct Pool {
    limits: BTreeMap<HandlerName, u32>,
    default_limit: u32,
    slots: BTreeMap<HandlerName, Slots>,
}

impl Pool {
    /// A pool with a limit per handler, and one for handlers not named.
    pub fn new(limits: BTreeMap<HandlerName, u32>, default_limit: u32) -> Pool {
        Pool { limits, default_limit: default_limit.max(1), slots: BTreeMap::new() }
    }

    /// A shard asks for slots: those granted at once.
    pub fn want(&mut self, shard: Shard, handler: &HandlerName, count: u32) -> Vec<Grant> {
        self.slots.entry(handler.clone()).or_default().waiting.push_back((shard, count));
        self.grant(handler)
    }

    /// A shard gives slots back: those granted to others by it.
    pub fn free(&mut self, handler: &HandlerName, count: u32) -> Vec<Grant> {
        let slots = self.slots.entry(handler.clone()).or_default();
        assert!(slots.taken >= count, "no more slots come back than were taken");
        slots.taken -= count;
        self.grant(handler)
    }

    /// Slots of a handler that are taken.
    pub fn taken(&self, handler: &HandlerName) -> u32 {
        self.slots.get(handler).map_or(0, |slots| slots.taken)
    }

    fn grant(&mut self, handler: &HandlerName) -> Vec<Grant> {
        let limit = self.limits.get(handler).copied().unwrap_or(self.default_limit).max(1);
        let Some(slots) = self.slots.get_mut(handler) else { return Vec::new() };
        let mut grants = Vec::new();
        while slots.taken < limit {
            let Some((shard, wanted)) = slots.waiting.pop_front() else { break };
            let count = wanted.min(limit - slots.taken);
            slots.taken += count;
            grants.push(Grant { shard, handler: handler.clone(), count });
            if count < wanted {
                slots.waiting.push_front((shard, wanted - count));
            }
        }
        if slots.taken == 0 && slots.waiting.is_empty() {
            self.slots.remove(handler);
        }
        grants
    }
}
