//! How many schedule events of a handler or a collection a shard takes in.
//!
//! Time is the records' append time, so a replay judges as the first reading did, but for what had been saved up, and for the
//! rounds of a batch, which come one after the other. Each shard has an even part of a rate, and saves up what it did not use
//! for one unit of the rate's time.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{
    Decision, HandlerName, MarkKind, Rate, RejectReason, Rejection, TaskContent, Verb, Version, Wall,
};

use super::super::Engine;
use super::super::decide::{Known, Plan};
use super::item::Item;

/// Above so many collections those that have used nothing are forgotten.
const COLLECTIONS_KEPT: usize = 1_024;

/// What is left of one rate: a token bucket of whole numbers, where an event costs `unit × shards`.
#[derive(Clone, Copy, Debug)]
struct Left {
    units: u64,
    at: Wall,
}

/// What is left of all rates.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    handlers: BTreeMap<HandlerName, Left>,
    collections: BTreeMap<Arc<str>, Left>,
    /// How many collections were left when those at rest were last forgotten.
    tidied_to: usize,
}

impl Left {
    fn full(rate: Rate, shards: u64, at: Wall) -> Left {
        Left { units: most(rate, shards), at }
    }

    fn at(self, rate: Rate, shards: u64, now: Wall) -> Left {
        let passed = u64::try_from(now.0 - self.at.0).unwrap_or(0);
        let units = self.units.saturating_add(rate.count().saturating_mul(passed));
        let most = if planted!(QuotaSavedUp) { u64::MAX } else { most(rate, shards) };
        Left { units: units.min(most), at: self.at.max(now) }
    }
}

fn cost(rate: Rate, shards: u64) -> u64 {
    rate.unit_ms() * shards
}

/// One unit's worth, and one event at least.
fn most(rate: Rate, shards: u64) -> u64 {
    (rate.count() * rate.unit_ms()).max(cost(rate, shards))
}

/// Which quota an event is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Handler(HandlerName, Rate),
    Collection(Arc<str>, Rate),
}

impl std::fmt::Display for Over {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whose, name, rate) = match self {
            Over::Handler(name, rate) => ("handler", name.as_str(), rate),
            Over::Collection(name, rate) => ("collection", &**name, rate),
        };
        write!(
            f,
            "{whose} {name:?} takes in {rate} over all shards, and this shard has had its part: send it again later"
        )
    }
}

impl Engine {
    /// The quota that a task would be over if it came in now.
    pub(super) fn over_quota(&self, content: &TaskContent, now: Wall) -> Option<Over> {
        let (shards, quotas) = (u64::from(self.options.shards), &self.intake.quotas);
        let is_over = |left: Option<&Left>, rate: Rate| {
            left.is_some_and(|left| left.at(rate, shards, now).units < cost(rate, shards))
        };
        let of_handler = self.options.policy(&content.handler).intake;
        if let Some(rate) = of_handler.filter(|rate| is_over(quotas.handlers.get(&content.handler), *rate)) {
            return Some(Over::Handler(content.handler.clone(), rate));
        }
        let name = content.collection.as_ref()?;
        let rate = self.options.collections.of(name)?.intake?;
        is_over(quotas.collections.get(name), rate).then(|| Over::Collection(name.clone(), rate))
    }

    /// The plan of a new event, or its refusal. An owner before may have taken it in, and was lost before that was on record.
    /// What it may have stopped for it is stopped: then the new task comes in. Else a mark at its place says that what may be
    /// stored there never runs.
    pub(super) fn within_quota(&self, item: &Item, plan: Plan, known: &Known<'_>) -> Plan {
        let (Verb::Schedule(_, content), Some(task)) = (&item.event_and_key().0.verb, &plan.task) else {
            return plan;
        };
        let stands = item.may_be_replayed && plan.mark.is_some();
        if stands || self.over_quota(content, item.record.appended).is_none() {
            return plan;
        }
        let mark = item.may_be_replayed.then_some((task.place, MarkKind::Cancelled));
        Plan { mark, ..Plan::of(Decision::OverQuota, known) }
    }

    /// Rejects an event that is over its quota, and counts one that brings a task in.
    pub(super) fn mind_quotas(&mut self, index: usize, version: Version, plan: &Plan) {
        let item = self.intake.batches[index].next_item();
        let Verb::Schedule(_, content) = &item.event_and_key().0.verb else { return };
        if !self.has_quota(content) {
            return;
        }
        let (content, appended) = (content.clone(), item.record.appended);
        if plan.decision == Decision::OverQuota {
            let over = self.over_quota(&content, appended).map(|over| over.to_string());
            let detail = over.unwrap_or_else(|| "as was decided before".to_owned());
            self.reject(index, version.offset(), Rejection { reason: RejectReason::OverQuota, detail });
        } else if plan.task.is_some() {
            self.count_intake(&content, appended);
        }
    }

    fn has_quota(&self, content: &TaskContent) -> bool {
        let of_collection = content.collection.as_ref().and_then(|name| self.options.collections.of(name));
        let of_handler = self.options.policy(&content.handler).intake;
        of_handler.is_some() || of_collection.is_some_and(|limit| limit.intake.is_some())
    }

    /// Counts a task that came in.
    fn count_intake(&mut self, content: &TaskContent, now: Wall) {
        let shards = u64::from(self.options.shards);
        let of_handler = self.options.policy(&content.handler).intake;
        let quotas = &mut self.intake.quotas;
        let spend = |left: Left, rate: Rate| {
            let left = left.at(rate, shards, now);
            Left { units: left.units.saturating_sub(cost(rate, shards)), ..left }
        };
        if let Some(rate) = of_handler {
            let left = quotas.handlers.get(&content.handler).copied();
            let left = left.unwrap_or(Left::full(rate, shards, now));
            quotas.handlers.insert(content.handler.clone(), spend(left, rate));
        }
        let Some(name) = &content.collection else { return };
        let Some(rate) = self.options.collections.of(name).and_then(|limit| limit.intake) else { return };
        let left = quotas.collections.get(name).copied().unwrap_or(Left::full(rate, shards, now));
        quotas.collections.insert(name.clone(), spend(left, rate));
        if quotas.collections.len() > COLLECTIONS_KEPT.max(2 * quotas.tidied_to) {
            let collections = self.options.collections.clone();
            let rate_of = |name: &str| collections.of(name).and_then(|limit| limit.intake);
            let is_full = |name: &str, left: &Left| {
                rate_of(name).is_none_or(|rate| left.at(rate, shards, now).units == most(rate, shards))
            };
            quotas.collections.retain(|name, left| !is_full(name, left));
            quotas.tidied_to = quotas.collections.len();
        }
    }
}
