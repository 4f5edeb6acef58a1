//! The slots of one handler: what is taken, what holds them up, and who gets the next.

use crate::engine::lane::Lane;
use crate::model::{Boot, Shard};

use super::bucket::{Breaker, Bucket, Share, part_kept, part_of};
use super::collection::{Collections, Whose};
use super::flow::{Class, Flows, Wish};
use super::{Grant, Holdup, Limit};

/// When, and which part of each limit is this instance's then.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) now: Boot,
    pub(super) share: Share,
}

/// The slots of a handler.
#[derive(Debug)]
pub(super) struct Slots {
    used: Used,
    flows: Flows,
}

/// What is taken of them, beside what may be.
#[derive(Debug)]
struct Used {
    limit: Limit,
    taken: u32,
    /// Those of tasks that may not take what is reserved.
    taken_low: u32,
    bucket: Bucket,
    catch_up: Bucket,
    breaker: Breaker,
}

impl Slots {
    pub(super) fn new(At { now, share }: At, limit: Limit) -> Slots {
        let (bucket, catch_up) = (Bucket::new(now, share), Bucket::new(now, share));
        let used = Used { limit, taken: 0, taken_low: 0, bucket, catch_up, breaker: Breaker::default() };
        Slots { used, flows: Flows::default() }
    }

    /// Slots that are taken.
    pub(super) fn taken(&self) -> u32 {
        self.used.taken
    }

    /// Whether anybody waits.
    pub(super) fn is_wanted(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Whether nothing is known of them that would not be known of new ones.
    pub(super) fn is_idle(&self) -> bool {
        let Used { limit, taken, breaker, .. } = &self.used;
        let has_rate = limit.rate.is_some() || limit.catch_up.is_some();
        !has_rate && *taken == 0 && breaker.failures == 0 && self.flows.is_empty()
    }

    /// The part of each limit is another from now on; `at` has the one before.
    pub(super) fn shared_anew(&mut self, At { now, share }: At) {
        let Used { limit, bucket, catch_up, .. } = &mut self.used;
        bucket.fill(now, limit.rate, share);
        catch_up.fill(now, limit.catch_up, share);
        self.flows.all_back();
    }

    /// Where nobody waits there is no turn to wait for: so many slots are taken at once.
    pub(super) fn take_at_once(
        &mut self,
        at: At,
        collections: &mut Collections,
        of: (Whose, Class),
        count: u32,
    ) -> u32 {
        if self.is_wanted() {
            return 0;
        }
        for taken in 0..count {
            if self.holdup(at).or_else(|| self.holdup_of_lane(at, collections, of)).is_some() {
                return taken;
            }
            self.used.take(at, collections, of);
        }
        count
    }

    /// A shard waits for slots from now on.
    pub(super) fn want(&mut self, since: Boot, shard: Shard, wish: Wish<'_>) {
        self.flows.want(since, shard, wish);
    }

    /// A shard waits for none of a class any more.
    pub(super) fn forget(&mut self, shard: Shard, whose: Whose, class: Class) {
        self.flows.forget(shard, whose, class);
    }

    /// Slots came back.
    pub(super) fn give_back(&mut self, whose: Whose, class: Class, count: u32) {
        let used = &mut self.used;
        used.taken = used.taken.checked_sub(count).expect("no more slots come back than were taken");
        used.taken_low -= if used.is_low(class) { count } else { 0 };
        self.flows.back(whose);
    }

    /// Of the rates, and of a probe, so much was not used.
    pub(super) fn not_used(&mut self, At { now, share }: At, class: Class, unused: u32) {
        let Used { limit, bucket, catch_up, breaker, .. } = &mut self.used;
        bucket.put_back(now, limit.rate, share, unused);
        if class.is_late {
            catch_up.put_back(now, limit.catch_up, share, unused);
        }
        breaker.probe_withdrawn();
    }

    /// A call has ended: whether its target is well.
    pub(super) fn ended(&mut self, now: Boot, is_well: bool) {
        if let Some(policy) = self.used.limit.breaker {
            self.used.breaker.ended(now, policy, is_well);
        }
    }

    /// What held up a collection may be over.
    pub(super) fn back(&mut self, whose: Whose) {
        self.flows.back(whose);
    }

    /// Whether tasks of a collection wait.
    pub(super) fn has(&self, whose: Whose) -> bool {
        self.flows.has(whose)
    }

    /// Whether anything is remembered of a collection.
    pub(super) fn knows(&self, whose: Whose) -> bool {
        self.flows.knows(whose)
    }

    /// All that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Whose, Class)> {
        self.flows.waiting()
    }

    /// Grants what may be granted.
    pub(super) fn grant(&mut self, at: At, collections: &mut Collections) -> Vec<Grant> {
        let mut granted: Vec<Grant> = Vec::new();
        while let Some((whose, class)) = self.next(at, collections) {
            self.used.take(at, collections, (whose, class));
            let (shard, lane): (Shard, Lane) = self.flows.take(whose, class);
            match granted.iter_mut().rfind(|grant| grant.shard == shard && grant.lane == lane) {
                Some(grant) => grant.count += 1,
                None => granted.push(Grant { shard, lane, count: 1 }),
            }
        }
        granted
    }

    /// Who gets the next slot.
    fn next(&mut self, at: At, collections: &Collections) -> Option<(Whose, Class)> {
        let Slots { used, flows } = self;
        if flows.is_empty() || used.holdup(at).is_some() {
            return None;
        }
        let held_up = |whose| collections.holdup(at.now, at.share, whose).map(Holdup::until);
        flows.next(at.now, held_up, |class| used.holdup_of_class(at, class).is_none())
    }

    /// When something may be granted that is not now.
    pub(super) fn poll_timeout(&self, at: At) -> Option<Boot> {
        let Used { limit, breaker, .. } = &self.used;
        match self.holdup(at) {
            Some(Holdup::Probe) => breaker.next_probe(limit.breaker?),
            Some(holdup) => holdup.until(),
            None => {
                let lanes = self.flows.in_line();
                let holdups = lanes.filter_map(|(_, class)| self.holdup_of_class(at, class)?.until());
                holdups.chain(self.flows.next_back()).min()
            }
        }
    }

    /// What holds up all who wait, else whose turn it would be.
    pub(super) fn holdup_of_next(&self, at: At, collections: &Collections) -> Option<Holdup> {
        self.holdup(at).or_else(|| self.holdup_of_lane(at, collections, self.flows.waiting().next()?))
    }

    /// What holds up all of them.
    pub(super) fn holdup(&self, at: At) -> Option<Holdup> {
        self.used.holdup(at)
    }

    /// What holds up those of a collection and a class.
    pub(super) fn holdup_of_lane(
        &self,
        at: At,
        collections: &Collections,
        (whose, class): (Whose, Class),
    ) -> Option<Holdup> {
        let of_collection = collections.holdup(at.now, at.share, whose);
        of_collection.or_else(|| self.holdup_of_class(at, class))
    }

    /// What holds up those of a class.
    pub(super) fn holdup_of_class(&self, at: At, class: Class) -> Option<Holdup> {
        self.used.holdup_of_class(at, class)
    }
}

impl Used {
    fn holdup(&self, At { now, share }: At) -> Option<Holdup> {
        let Used { limit, taken, bucket, breaker, .. } = self;
        if let Some(holdup) = limit.breaker.and_then(|policy| breaker.holdup(now, policy)) {
            return Some(holdup);
        }
        if *taken >= part_of(limit.concurrency, share) {
            return Some(Holdup::Concurrency(*taken));
        }
        bucket.next(now, limit.rate?, share).map(Holdup::Rate)
    }

    fn holdup_of_class(&self, At { now, share }: At, class: Class) -> Option<Holdup> {
        let limit = &self.limit;
        let kept = limit.reserve.map_or(0, |reserve| part_kept(reserve.slots, share));
        let is_kept = self.is_low(class) && self.taken_low + kept >= part_of(limit.concurrency, share);
        if is_kept && !planted!(ReserveForgotten) {
            return Some(Holdup::Reserved);
        }
        let rate = limit.catch_up.filter(|_| class.is_late && !planted!(CatchUpUnbounded))?;
        self.catch_up.next(now, rate, share).map(Holdup::CatchUp)
    }

    /// Whether tasks of a class may not take what is reserved.
    fn is_low(&self, class: Class) -> bool {
        self.limit.reserve.is_some_and(|reserve| class.priority < reserve.priority)
    }

    /// Takes one slot, where nothing holds it up.
    fn take(&mut self, At { now, share }: At, collections: &mut Collections, (whose, class): (Whose, Class)) {
        self.bucket.take(now, self.limit.rate, share);
        if class.is_late && !planted!(CatchUpUnbounded) {
            self.catch_up.take(now, self.limit.catch_up, share);
        }
        self.breaker.let_through(now);
        self.taken += 1;
        self.taken_low += u32::from(self.is_low(class));
        collections.take(now, share, whose);
    }
}
