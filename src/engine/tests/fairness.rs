//! Who gets a slot when there are not enough: collections, priorities, what is reserved, and late tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::engine::map::Map;
use crate::engine::{Grant, Holdup, Lane, LaneKind, Limit, Pool};
use crate::model::{Boot, CollectionLimit, CollectionLimits, HandlerName, Reserve, Shard};

const NO_LIMIT: CollectionLimit = CollectionLimit { concurrency: None, rate: None, weight: 1, intake: None };

fn lane(handler: &str, collection: Option<&str>, priority: u8) -> Lane {
    let (handler, collection) = (HandlerName::new(handler).expect("a name"), collection.map(Arc::from));
    Lane::new(LaneKind { handler, collection, priority, is_late: false })
}

/// The pool of an instance that runs every shard.
fn pool(limit: Limit, collections: &[(&str, CollectionLimit)], each_other: Option<CollectionLimit>) -> Pool {
    let by_name = collections.iter().map(|(name, limit)| (Arc::from(*name), *limit)).collect();
    let mut pool =
        Pool::new(BTreeMap::new(), limit).with_collections(CollectionLimits { by_name, each_other });
    pool.share(Boot(0), 8, 8);
    pool
}

/// Frees what was granted one by one, so many times: the lanes in the order in which they got a slot.
fn turns(pool: &mut Pool, first: Vec<Grant>, times: usize) -> Vec<Lane> {
    let mut out: std::collections::VecDeque<Lane> = first.into_iter().map(|grant| grant.lane).collect();
    let mut order = Vec::new();
    for _ in 0..times {
        let Some(lane) = out.pop_front() else { return order };
        for grant in pool.free(Boot(0), &lane, 1) {
            for _ in 0..grant.count {
                order.push(grant.lane.clone());
                out.push_back(grant.lane.clone());
            }
        }
    }
    order
}

#[test]
fn collections_share_slots_by_weight_and_one_that_was_away_gets_nothing_for_it() {
    let limits = [("a", CollectionLimit { weight: 3, ..NO_LIMIT }), ("b", NO_LIMIT)];
    let mut pool = pool(Limit::of(4), &limits, None);
    let (a, b) = (lane("h", Some("a"), 5), lane("h", Some("b"), 5));
    let first = pool.want(Boot(0), Shard(0), &b, 1_000, Boot(0));
    let alone = turns(&mut pool, first, 100);
    assert!(alone.len() == 100 && alone.iter().all(|lane| *lane == b), "alone it has them all");
    pool.want(Boot(0), Shard(1), &a, 1_000, Boot(0));
    let mut out = vec![b.clone(); 4];
    let mut order = Vec::new();
    for _ in 0..400 {
        let lane = out.remove(0);
        let grants = pool.free(Boot(0), &lane, 1);
        out.extend(grants.iter().map(|grant| grant.lane.clone()));
        order.extend(grants.into_iter().map(|grant| grant.lane));
    }
    let of_a = order.iter().filter(|lane| **lane == a).count();
    assert!((299..=301).contains(&of_a), "three of four: {of_a}");
    let worst = order.windows(5).map(|five| five.iter().filter(|lane| **lane == a).count()).min();
    assert!(worst >= Some(3), "and at no time much less");
}

/// Gives back one slot after the other: how many of the grants that follow are of a lane.
fn granted_to(pool: &mut Pool, out: &mut Vec<Lane>, times: usize, wanted: &Lane) -> usize {
    let mut count = 0;
    for _ in 0..times {
        let lane = out.remove(0);
        for grant in pool.free(Boot(0), &lane, 1) {
            count += usize::from(grant.lane == *wanted);
            out.push(grant.lane);
        }
    }
    count
}

#[test]
fn a_collection_that_its_own_limit_held_up_does_not_make_up_for_it() {
    let limits = [("a", CollectionLimit { concurrency: Some(2), ..NO_LIMIT }), ("b", NO_LIMIT)];
    let mut pool = pool(Limit::of(10), &limits, None);
    let (a, b) = (lane("h", Some("a"), 5), lane("h", Some("b"), 5));
    pool.want(Boot(0), Shard(0), &a, 1_000, Boot(0));
    let mut out: Vec<Lane> = vec![b.clone(); 8];
    assert_eq!(pool.want(Boot(0), Shard(1), &b, 10_000, Boot(0))[0].count, 8);
    // Its two calls hang while eight slots go round.
    assert_eq!(granted_to(&mut pool, &mut out, 1_000, &b), 1_000);
    // Then they end, again and again.
    let mut both = vec![a.clone(), a.clone()];
    both.append(&mut out);
    let of_a = granted_to(&mut pool, &mut both, 40, &a);
    assert!(of_a <= 21, "{of_a} of 40 although the other waits as well");
}

#[test]
fn a_collection_whose_classes_were_held_up_does_not_make_up_for_it() {
    let limit = Limit { reserve: Some(Reserve { priority: 9, slots: 1 }), ..Limit::of(2) };
    let mut pool = pool(limit, &[("a", NO_LIMIT), ("b", NO_LIMIT)], None);
    let (a, b, kept) = (lane("h", Some("a"), 5), lane("h", Some("b"), 5), lane("h", Some("b"), 9));
    // The slot that is not kept hangs while the other goes round.
    assert_eq!(pool.want(Boot(0), Shard(0), &b, 1, Boot(0)).len(), 1);
    assert!(pool.want(Boot(0), Shard(0), &a, 1_000, Boot(0)).is_empty());
    let mut out: Vec<Lane> =
        pool.want(Boot(0), Shard(1), &kept, 101, Boot(0)).into_iter().map(|one| one.lane).collect();
    assert_eq!(granted_to(&mut pool, &mut out, 100, &kept), 100);
    // Then both have low ones that may take it.
    pool.want(Boot(0), Shard(1), &b, 1_000, Boot(0));
    let mut low = vec![b.clone()];
    let of_a = granted_to(&mut pool, &mut low, 40, &a);
    assert!((19..=22).contains(&of_a), "{of_a} of 40 although the other waits as well");
}

#[test]
fn who_came_first_is_not_passed_over_by_ever_new_collections_and_they_are_forgotten() {
    let mut pool = pool(Limit::of(1), &[], Some(NO_LIMIT));
    let long = lane("h", Some("z"), 5);
    let mut out: Vec<Lane> =
        pool.want(Boot(0), Shard(0), &long, 1_000, Boot(0)).into_iter().map(|one| one.lane).collect();
    let mut of_long = 0;
    for n in 0..5_000 {
        pool.want(Boot(0), Shard(1), &lane("h", Some(&format!("c-{n}")), 5), 1, Boot(0));
        of_long += granted_to(&mut pool, &mut out, 1, &long);
    }
    // One comes for every slot: with n of them waiting it has one slot of n + 1, and what it takes makes n grow.
    assert!(of_long > 90, "{of_long}");
    let left = format!("{pool:?}").matches("Flow {").count();
    assert!(left < 400, "a hundred wait still: {left}");
}

#[test]
fn each_collection_without_a_table_of_its_own_has_its_own_part() {
    let mut pool = pool(Limit::of(1), &[], Some(NO_LIMIT));
    let first = pool.want(Boot(0), Shard(0), &lane("h", Some("big"), 5), 1_000, Boot(0));
    for small in ["x", "y", "z"] {
        pool.want(Boot(0), Shard(0), &lane("h", Some(small), 5), 1, Boot(0));
    }
    let next: Vec<_> =
        turns(&mut pool, first, 4).into_iter().filter_map(|lane| lane.collection.clone()).collect();
    let small = next.iter().filter(|name| ***name != *"big").count();
    assert!(small >= 3, "who wants little does not wait for who wants much: {next:?}");
}

#[test]
fn higher_priorities_go_first_and_a_step_is_worth_ten_seconds_of_waiting() {
    let mut pool = pool(Limit::of(1), &[], None);
    let of = |priority| lane("h", None, priority);
    assert_eq!(pool.want(Boot(0), Shard(0), &of(5), 1, Boot(0)).len(), 1);
    pool.want(Boot(1_000), Shard(0), &of(0), 1, Boot(1_000));
    pool.want(Boot(2_000), Shard(1), &of(9), 1, Boot(2_000));
    pool.want(Boot(90_999), Shard(2), &of(9), 1, Boot(90_999));
    pool.want(Boot(91_001), Shard(3), &of(9), 1, Boot(91_001));
    // Withdrawn and asked for again: it has waited all the while.
    pool.withdraw(Boot(91_002), Shard(0), &of(0), 0);
    pool.want(Boot(91_003), Shard(0), &of(0), 1, Boot(1_000));
    let now = Boot(100_000);
    let mut next = || pool.free(now, &of(5), 1).remove(0);
    let order: Vec<(u8, u32)> =
        (0..4).map(|_| next()).map(|grant| (grant.lane.priority, grant.shard.0)).collect();
    assert_eq!(order, [(9, 1), (9, 2), (0, 0), (9, 3)]);
}

#[test]
fn what_is_reserved_is_left_to_high_priorities() {
    let limit = Limit { reserve: Some(Reserve { priority: 8, slots: 2 }), ..Limit::of(5) };
    let mut pool = pool(limit, &[], None);
    let (low, high) = (lane("h", None, 7), lane("h", None, 8));
    assert_eq!(pool.want(Boot(0), Shard(0), &low, 9, Boot(0))[0].count, 3);
    assert_eq!(pool.holdup_in(Boot(0), &low), Some(Holdup::Reserved));
    assert_eq!(pool.holdup_in(Boot(0), &high), None);
    assert_eq!(pool.want(Boot(0), Shard(1), &high, 9, Boot(0))[0].count, 2);
    assert_eq!(pool.holdup_in(Boot(0), &high), Some(Holdup::Concurrency(5)));
    let next = pool.free(Boot(0), &high, 1);
    assert_eq!(next[0].lane, high, "what one of them gives back is another's of them");
    let next = pool.free(Boot(0), &low, 1);
    assert_eq!(next[0].lane, high, "they may take the others too");
    assert!(pool.withdraw(Boot(0), Shard(1), &high, 0).is_empty());
    assert_eq!(
        pool.free(Boot(0), &high, 3)[0].count,
        1,
        "three low ones are under way, and two slots are kept"
    );
    assert_eq!(pool.taken(&low.handler), 3);
}

#[test]
fn a_collection_is_limited_over_all_handlers() {
    let limits = [("a", CollectionLimit { concurrency: Some(3), ..NO_LIMIT })];
    let mut pool = pool(Limit::of(10), &limits, None);
    let (g, h) = (lane("g", Some("a"), 5), lane("h", Some("a"), 5));
    assert_eq!(pool.want(Boot(0), Shard(0), &g, 2, Boot(0))[0].count, 2);
    assert_eq!(pool.want(Boot(0), Shard(0), &h, 4, Boot(0))[0].count, 1);
    assert_eq!(pool.holdup_in(Boot(0), &h), Some(Holdup::CollectionConcurrency(3)));
    assert_eq!(
        pool.want(Boot(0), Shard(0), &lane("h", None, 5), 4, Boot(0))[0].count,
        4,
        "others are not held up"
    );
    let next = pool.free(Boot(0), &g, 1);
    assert_eq!((next.len(), &next[0].lane), (1, &h), "a slot of one handler's call is another handler's");
}

#[test]
fn the_rate_of_a_collection_holds_over_all_handlers_and_its_time_is_told() {
    let limits = [("a", CollectionLimit { rate: Some("10/s".parse().expect("a rate")), ..NO_LIMIT })];
    let mut pool = pool(Limit::of(1_000), &limits, None);
    assert!(pool.has_timed_limits());
    pool.share(Boot(0), 8, 8);
    let lanes = [lane("g", Some("a"), 5), lane("h", Some("a"), 5)];
    let mut begun = Vec::new();
    let mut now = Boot(0);
    for lane in &lanes {
        begun.extend(pool.want(now, Shard(0), lane, 1_000, now).iter().map(|grant| (now.0, grant.count)));
    }
    assert!(matches!(pool.holdup_in(now, &lanes[0]), Some(Holdup::CollectionRate(Some(_)))));
    while let Some(next) = pool.poll_timeout(now).filter(|next| next.0 <= 10_000) {
        assert!(next > now);
        now = next;
        begun.extend(pool.tick(now).iter().map(|grant| (now.0, grant.count)));
    }
    let count: u32 = begun.iter().map(|(_, count)| count).sum();
    assert!((99..=102).contains(&count), "{count} in ten seconds at 10/s");
    assert_eq!(
        pool.want(now, Shard(0), &lane("g", Some("b"), 5), 7, now)[0].count,
        7,
        "others are not held up"
    );
}

#[test]
fn late_tasks_begin_at_the_rate_of_their_handler_and_live_ones_do_not_wait_for_them() {
    let limit = Limit { catch_up: Some("10/s".parse().expect("a rate")), ..Limit::of(1_000) };
    let mut pool = pool(limit, &[], None);
    pool.share(Boot(0), 8, 8);
    let live = lane("h", None, 5);
    let late = Lane::new(LaneKind { is_late: true, ..LaneKind::clone(&live) });
    assert_eq!(pool.want(Boot(0), Shard(0), &late, 500, Boot(0))[0].count, 1);
    assert!(matches!(pool.holdup_in(Boot(0), &late), Some(Holdup::CatchUp(Some(Boot(100))))));
    assert_eq!(pool.want(Boot(1), Shard(0), &live, 50, Boot(1))[0].count, 50);
    let mut count = 0;
    let mut now = Boot(1);
    while let Some(next) = pool.poll_timeout(now).filter(|next| next.0 <= 10_000) {
        now = next;
        count += pool.tick(now).iter().map(|grant| grant.count).sum::<u32>();
    }
    assert!((99..=101).contains(&count), "{count} late ones in ten seconds");
}

/// What a naive pool would know: who has what, and who wants what.
#[derive(Default)]
struct Naive {
    taken: Vec<Lane>,
    wanted: Map<(Lane, u32), u32>,
}

const CONCURRENCY: usize = 4;
const KEPT: usize = 2;
const OF_COLLECTION: usize = 3;

impl Naive {
    fn may(&self, lane: &Lane) -> bool {
        let of_handler = self.taken.iter().filter(|other| other.handler == lane.handler);
        let low = of_handler.clone().filter(|other| other.priority < 8).count();
        let of_collection = self.taken.iter().filter(|other| other.collection == lane.collection).count();
        of_handler.count() < CONCURRENCY
            && (lane.priority >= 8 || low < CONCURRENCY - KEPT)
            && (lane.collection.as_deref() != Some("a") || of_collection < OF_COLLECTION)
    }

    fn granted(&mut self, grants: Vec<Grant>) {
        for grant in grants {
            for _ in 0..grant.count {
                assert!(self.may(&grant.lane), "{:?} is above a limit", grant.lane);
                let wanted = self.wanted.get_mut(&(grant.lane.clone(), grant.shard.0));
                *wanted.expect("only who asked is granted one") -= 1;
                self.taken.push(grant.lane.clone());
            }
        }
        self.wanted.retain(|_, count| *count > 0);
        let idle = self.wanted.keys().find(|(lane, _)| self.may(lane));
        assert!(idle.is_none(), "{idle:?} waits for a slot that is free");
    }
}

proptest! {
    /// Against a naive count: no limit is ever passed, and no slot is free that somebody waits for.
    #[test]
    fn no_limit_is_passed_and_no_slot_lies_idle(
        steps in proptest::collection::vec((0u32..4, 0usize..12, 0u32..3, 1u32..6), 1..80),
    ) {
        let limit = Limit { reserve: Some(Reserve { priority: 8, slots: KEPT as u32 }), ..Limit::of(CONCURRENCY as u32) };
        let of_a = CollectionLimit { concurrency: Some(OF_COLLECTION as u32), weight: 2, ..NO_LIMIT };
        let mut pool = pool(limit, &[("a", of_a), ("b", NO_LIMIT)], None);
        let mut naive = Naive::default();
        let lanes: Vec<Lane> = ["g", "h"].into_iter().flat_map(|handler| {
            [None, Some("a"), Some("b")].into_iter().flat_map(move |collection| {
                [5, 9].into_iter().map(move |priority| lane(handler, collection, priority))
            })
        }).collect();
        for (kind, which, shard, count) in steps {
            let lane = &lanes[which];
            let grants = match kind {
                0 | 1 => {
                    *naive.wanted.entry((lane.clone(), shard)).or_insert(0) += count;
                    pool.want(Boot(0), Shard(shard), lane, count, Boot(0))
                }
                2 => {
                    let Some(at) = naive.taken.iter().position(|taken| taken == lane) else { continue };
                    naive.taken.remove(at);
                    pool.free(Boot(0), lane, 1)
                }
                _ => {
                    naive.wanted.swap_remove(&(lane.clone(), shard));
                    let at = naive.taken.iter().position(|taken| taken == lane).filter(|_| count > 3);
                    at.map(|at| naive.taken.remove(at));
                    pool.withdraw(Boot(0), Shard(shard), lane, u32::from(at.is_some()))
                }
            };
            naive.granted(grants);
        }
    }
}
