//! The collections that limits tell apart: what is taken of each, under a number while anything is known of it.

use std::sync::Arc;

use crate::model::{Boot, CollectionLimit, CollectionLimits};

use super::Holdup;
use super::bucket::{Bucket, Share, part_of};
use crate::engine::map::Map;

/// The number of a collection.
pub(super) type Number = usize;

/// Whose tasks: those of a collection that is told apart, or all others.
pub(super) type Whose = Option<Number>;

/// Collections of which something is known.
#[derive(Debug, Default)]
pub(super) struct Collections {
    limits: CollectionLimits,
    numbers: Map<Arc<str>, Number>,
    known: Vec<Collection>,
    /// Numbers of none.
    free: Vec<Number>,
    /// How many were left when those at rest were last forgotten.
    tidied_to: usize,
}

#[derive(Debug)]
struct Collection {
    name: Arc<str>,
    limit: CollectionLimit,
    taken: u32,
    bucket: Bucket,
}

/// Above so many collections those that are at rest are forgotten.
const KEPT: usize = 1_024;
const NO_LIMIT: CollectionLimit = CollectionLimit { concurrency: None, rate: None, weight: 1, intake: None };

impl Collections {
    pub(super) fn new(limits: CollectionLimits) -> Collections {
        Collections { limits, ..Collections::default() }
    }

    pub(super) fn have_rates(&self) -> bool {
        self.limits.all().any(|limit| limit.rate.is_some())
    }

    /// The number of a collection; none for one of which nothing is known, which nothing of its own holds up.
    pub(super) fn known_as(&self, name: Option<&Arc<str>>) -> Whose {
        self.numbers.get(name?).copied()
    }

    /// The number of a collection, which is known from now on. Those that `is_waited_for` names stay known.
    pub(super) fn enter(
        &mut self,
        now: Boot,
        share: Share,
        name: Option<&Arc<str>>,
        is_waited_for: impl Fn(Number) -> bool,
    ) -> Whose {
        let name = name?;
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        if self.numbers.len() >= KEPT.max(2 * self.tidied_to) {
            self.tidy(now, share, is_waited_for);
        }
        let limit = self.limits.of(name).unwrap_or(NO_LIMIT);
        let collection = Collection { name: name.clone(), limit, taken: 0, bucket: Bucket::new(now, share) };
        let number = match self.free.pop() {
            Some(number) => {
                self.known[number] = collection;
                number
            }
            None => {
                self.known.push(collection);
                self.known.len() - 1
            }
        };
        self.numbers.insert(name.clone(), number);
        Some(number)
    }

    pub(super) fn name(&self, whose: Whose) -> Option<&Arc<str>> {
        Some(&self.known[whose?].name)
    }

    pub(super) fn weight(&self, whose: Whose) -> u32 {
        whose.map_or(1, |number| self.known[number].limit.weight)
    }

    pub(super) fn limits_concurrency(&self, whose: Whose) -> bool {
        whose.is_some_and(|number| self.known[number].limit.concurrency.is_some())
    }

    pub(super) fn holdup(&self, now: Boot, share: Share, whose: Whose) -> Option<Holdup> {
        let Collection { limit, taken, bucket, .. } = &self.known[whose?];
        if limit.concurrency.is_some_and(|most| *taken >= part_of(most, share)) {
            return Some(Holdup::CollectionConcurrency(*taken));
        }
        bucket.next(now, limit.rate?, share).map(Holdup::CollectionRate)
    }

    /// Takes one slot, where nothing holds it up.
    pub(super) fn take(&mut self, now: Boot, share: Share, whose: Whose) {
        let Some(number) = whose else { return };
        let Collection { limit, taken, bucket, .. } = &mut self.known[number];
        bucket.take(now, limit.rate, share);
        *taken += u32::from(!planted!(CollectionNotCounted));
    }

    pub(super) fn give_back(&mut self, whose: Whose, count: u32) {
        if let Some(number) = whose {
            let taken = &mut self.known[number].taken;
            *taken = taken.saturating_sub(count);
        }
    }

    /// What was not used of its rate.
    pub(super) fn put_back(&mut self, now: Boot, share: Share, whose: Whose, unused: u32) {
        let Some(number) = whose else { return };
        let Collection { limit, bucket, .. } = &mut self.known[number];
        bucket.put_back(now, limit.rate, share, unused);
    }

    /// Brings rates up to date with the part of them that there was.
    pub(super) fn fill(&mut self, now: Boot, share: Share) {
        for number in self.numbers.values() {
            let Collection { limit, bucket, .. } = &mut self.known[*number];
            bucket.fill(now, limit.rate, share);
        }
    }

    /// Forgets collections of which nothing is known that a new one would not be: nobody waits, nothing is taken, a call to
    /// begin with.
    fn tidy(&mut self, now: Boot, share: Share, is_waited_for: impl Fn(Number) -> bool) {
        let Collections { numbers, known, free, .. } = self;
        numbers.retain(|_, number| {
            let Collection { limit, taken, bucket, .. } = &known[*number];
            let is_behind = limit.rate.is_some_and(|rate| bucket.next(now, rate, share).is_some());
            let is_kept = *taken > 0 || is_behind || is_waited_for(*number);
            free.extend((!is_kept).then_some(*number));
            is_kept
        });
        self.tidied_to = numbers.len();
    }
}
