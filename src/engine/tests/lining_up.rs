//! Properties of queues, lines and the pool of slots, and of retry waits.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::engine::queue::{Lines, Queue, SlotChange};
use crate::engine::{Lane, LaneKind, Limit, Pool};
use crate::model::{Boot, HandlerName, Place, RetryPolicy, Shard, Version, Wall};

fn handler() -> HandlerName {
    HandlerName::new("h").expect("a name")
}

fn lane() -> Lane {
    Lane::of(&handler())
}

proptest! {
    #[test]
    fn a_queue_runs_by_due_time_then_version(
        steps in proptest::collection::vec((0i64..20, 0i64..20, 0u64..30, any::<bool>()), 0..60),
    ) {
        let mut queue = Queue::default();
        let mut model: Vec<(i64, u64, i64)> = Vec::new();
        for (due, late, version, insert) in steps {
            let place = Place { ready_at: Wall(due + late), version: Version(version) };
            model.retain(|known| *known != (due, version, due + late));
            if insert {
                queue.insert(Wall(due), place);
                model.push((due, version, due + late));
            } else {
                queue.remove(Wall(due), place);
            }
            model.sort_unstable();
            let head = queue.head().map(|place| (place.version.0, place.ready_at.0));
            prop_assert_eq!(head, model.first().map(|(_, version, ready)| (*version, *ready)));
            prop_assert_eq!(queue.len(), model.len());
        }
    }

    #[test]
    fn a_pool_never_grants_above_its_limit_and_starves_nobody(
        limit in 1u32..5,
        wants in proptest::collection::vec((0u32..4, 1u32..6), 1..20),
    ) {
        let mut pool = Pool::new(BTreeMap::from([(handler(), Limit::of(limit))]), Limit::of(1));
        pool.share(Boot(0), 8, 8);
        let mut out: Vec<(Shard, u32)> = Vec::new();
        let mut granted: BTreeMap<Shard, u32> = BTreeMap::new();
        let mut asked: BTreeMap<Shard, u32> = BTreeMap::new();
        for (shard, count) in wants {
            *asked.entry(Shard(shard)).or_insert(0) += count;
            out.extend(pool.want(Boot(0), Shard(shard), &lane(), count, Boot(0)).iter().map(|g| (g.shard, g.count)));
            prop_assert!(pool.taken(&handler()) <= limit);
        }
        for _ in 0..200 {
            let Some((shard, count)) = out.pop() else { break };
            *granted.entry(shard).or_insert(0) += count;
            out.extend(pool.free(Boot(0), &lane(), count).iter().map(|g| (g.shard, g.count)));
            prop_assert!(pool.taken(&handler()) <= limit);
        }
        prop_assert_eq!(granted, asked);
        prop_assert_eq!(pool.taken(&handler()), 0);
    }

    #[test]
    fn a_retry_wait_lies_within_its_policy(
        failures in 1u32..2_000,
        initial_ms in 0u64..100_000,
        factor in 1.0f64..100.0,
        max_ms in 0u64..1_000_000,
        jitter in 0.0f64..1.0,
        random in 0.0f64..1.0,
    ) {
        let policy = RetryPolicy { max_attempts: 10, initial_ms, factor, max_ms, jitter, max_age_ms: None };
        let full = policy.wait_ms(failures, 0.0);
        let drawn = policy.wait_ms(failures, random);
        prop_assert!(full <= max_ms);
        prop_assert!(drawn <= full);
        prop_assert!(drawn as f64 + 1.0 >= full as f64 * (1.0 - jitter));
        prop_assert!(policy.wait_ms(failures + 1, 0.0) >= full || initial_ms == 0);
    }

    /// The pool hears of each wish at once; what it grants is on its way for a while. A wish may outlast its need when a grant
    /// crossed its withdrawal: it comes back unused.
    #[test]
    fn slots_granted_are_used_or_given_back_and_none_is_asked_for_that_nobody_needs(
        steps in proptest::collection::vec((any::<bool>(), 0u64..6, any::<bool>(), any::<bool>(), any::<bool>()), 0..60),
    ) {
        let mut lines = Lines::default();
        let (mut waits, mut on_way, mut granted, mut back, mut used) = (0u32, 0u32, 0u32, 0u32, 0u32);
        let mut crossed = 0;
        let mut hear = |changes: Vec<(Lane, SlotChange)>, waits: &mut u32| for (_, change) in changes {
            match change {
                SlotChange::Want(count, _) => *waits += count,
                SlotChange::Withdraw(unused) => (*waits, back) = (0, back + unused),
            }
        };
        for (join, version, may_start, grants, arrives) in steps {
            let place = Place { ready_at: Wall(0), version: Version(version) };
            if join { lines.join(&lane(), place) } else { lines.leave(&lane(), place) }
            while may_start && lines.next().is_some() {
                used += 1;
            }
            crossed += on_way;
            let is_needed = may_start && lines.waiting(&lane()) > 0;
            hear(lines.settle(Boot(0), may_start), &mut waits);
            prop_assert!(is_needed || waits <= crossed, "{} wait for nobody", waits);
            if grants && waits > 0 {
                (waits, granted, on_way) = (waits - 1, granted + 1, on_way + 1);
            }
            if arrives && on_way > 0 {
                on_way -= 1;
                lines.granted(&lane(), 1);
            }
        }
        hear(lines.clear(), &mut waits);
        lines.granted(&lane(), waits + on_way);
        granted += waits;
        hear(lines.clear(), &mut waits);
        prop_assert_eq!(used + back, granted);
    }
}

#[test]
fn what_is_withdrawn_and_asked_for_again_has_waited_all_the_while() {
    let mut lines = Lines::default();
    let place = |version| Place { ready_at: Wall(0), version: Version(version) };
    let wish = |count, since| vec![(lane(), SlotChange::Want(count, Boot(since)))];
    lines.join(&lane(), place(1));
    assert_eq!(lines.settle(Boot(10), true), wish(1, 10));
    assert_eq!(lines.settle(Boot(20), false), [(lane(), SlotChange::Withdraw(0))]);
    lines.join(&lane(), place(2));
    assert_eq!(lines.settle(Boot(30), true), wish(2, 10));
    lines.join(&lane(), place(3));
    assert_eq!(lines.settle(Boot(40), true), wish(1, 40), "who comes to those that wait");
    // A slot that comes too late to be used changes nothing, one that is used does.
    lines.settle(Boot(50), false);
    lines.granted(&lane(), 1);
    assert_eq!(lines.settle(Boot(60), false), [(lane(), SlotChange::Withdraw(1))]);
    assert_eq!(lines.settle(Boot(70), true), wish(3, 10));
    lines.granted(&lane(), 1);
    assert_eq!(lines.next(), Some((place(1), lane())));
    lines.settle(Boot(80), true);
    lines.settle(Boot(90), false);
    assert_eq!(lines.settle(Boot(100), true), wish(2, 80));
    // Who leaves and comes again has not waited.
    lines.leave(&lane(), place(2));
    lines.leave(&lane(), place(3));
    lines.settle(Boot(110), true);
    lines.join(&lane(), place(4));
    assert_eq!(lines.settle(Boot(120), true), wish(1, 120));
}

#[test]
fn heads_of_a_lane_are_served_by_time_and_their_turn_is_told_by_priority() {
    let mut lines = Lines::default();
    let place = |ready, version| Place { ready_at: Wall(ready), version: Version(version) };
    let of = |priority| Lane::new(LaneKind { priority, ..LaneKind::clone(&lane()) });
    let (low, high) = (of(1), of(9));
    lines.join(&low, place(1, 1));
    lines.join(&high, place(9, 2));
    lines.join(&high, place(3, 3));
    assert_eq!(lines.position(&low, place(1, 1)), (2, 3));
    assert_eq!(lines.position(&high, place(9, 2)), (1, 3));
    lines.granted(&high, 2);
    let order: Vec<u64> = std::iter::from_fn(|| lines.next()).map(|(place, _)| place.version.0).collect();
    assert_eq!(order, [3, 2], "a slot of one lane is no other's");
    lines.granted(&low, 1);
    assert_eq!(lines.next().map(|(place, _)| place.version.0), Some(1));
}
