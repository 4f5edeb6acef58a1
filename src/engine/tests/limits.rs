//! Rates and breakers of the pool of slots.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use crate::engine::{Grant, Holdup, Lane, LaneKind, Limit, Pool};
use crate::model::{Boot, BreakerPolicy, HandlerName, Reserve, Shard};

fn handler() -> HandlerName {
    HandlerName::new("h").expect("a name")
}

fn lane() -> Lane {
    Lane::of(&handler())
}

/// The pool of an instance that has just begun.
fn pool_of_no_shard(limit: Limit) -> Pool {
    Pool::new(BTreeMap::from([(handler(), limit)]), Limit::of(1))
}

/// The pool of an instance that runs every shard.
fn pool(limit: Limit) -> Pool {
    let mut pool = pool_of_no_shard(limit);
    pool.share(Boot(0), 8, 8);
    pool
}

fn rated(rate: &str) -> Limit {
    Limit { rate: Some(rate.parse().expect("a rate")), ..Limit::of(1_000) }
}

fn breaking(failures: u32, pause_ms: u64) -> Limit {
    Limit { breaker: Some(BreakerPolicy { failures, pause_ms }), ..Limit::of(10) }
}

/// When slots were granted to a shard that always wants more, for so long.
fn granted(pool: &mut Pool, from: u64, to: u64) -> Vec<u64> {
    let mut times = Vec::new();
    let mut now = Boot(from);
    let mut count: u32 =
        pool.want(now, Shard(0), &lane(), 100_000, now).iter().map(|grant| grant.count).sum();
    loop {
        times.extend(std::iter::repeat_n(now.0, count as usize));
        if count > 0 {
            count = pool.free(now, &lane(), count).iter().map(|grant| grant.count).sum();
            continue;
        }
        let Some(next) = pool.poll_timeout(now).filter(|next| next.0 < to) else { return times };
        assert!(next > now, "no time passes at {now:?}");
        now = next;
        count = pool.tick(now).iter().map(|grant| grant.count).sum();
    }
}

#[test]
fn a_rate_is_reached_and_never_passed() {
    for (rate, most, least) in [("100/s", 1_001, 990), ("7/s", 71, 69), ("90/m", 16, 14), ("3600/h", 11, 9)] {
        let mut pool = pool(rated(rate));
        pool.share(Boot(5), 8, 8);
        let count = granted(&mut pool, 5, 10_005).len();
        assert!((least..=most).contains(&count), "{rate}: {count} in ten seconds");
    }
}

#[test]
fn an_instance_has_the_part_of_a_rate_that_its_shards_are_and_none_without_one() {
    let mut pool = pool_of_no_shard(rated("80/s"));
    assert_eq!(granted(&mut pool, 0, 1_000), [0], "it has one call to begin with");
    assert_eq!(pool.holdup(Boot(999), &handler()), Some(Holdup::Rate(None)));
    pool.share(Boot(1_000), 2, 8);
    let count = granted(&mut pool, 1_000, 11_000).len();
    assert!((199..=201).contains(&count), "20 a second: {count}");
    pool.share(Boot(11_000), 0, 8);
    assert!(granted(&mut pool, 11_000, 20_000).len() <= 1);
}

#[test]
fn what_was_not_used_is_made_up_for_within_a_tenth_of_a_second_only() {
    let mut pool = pool(rated("100/s"));
    pool.share(Boot(0), 8, 8);
    granted(&mut pool, 0, 10);
    let times = granted(&mut pool, 60_000, 60_001);
    assert_eq!(times.len(), 10, "a tenth of a second's worth after a minute of nothing");
}

#[test]
fn a_breaker_opens_after_failures_in_a_row_and_lets_one_call_through() {
    let (mut pool, h, l) = (pool(breaking(3, 1_000)), handler(), lane());
    let counts = |grants: Vec<Grant>| grants.iter().map(|grant| grant.count).sum::<u32>();
    assert_eq!(counts(pool.want(Boot(0), Shard(0), &l, 50, Boot(0))), 10);
    pool.ended(Boot(1), &h, false);
    pool.ended(Boot(2), &h, false);
    pool.ended(Boot(3), &h, true);
    pool.ended(Boot(4), &h, false);
    pool.ended(Boot(5), &h, false);
    assert_eq!(counts(pool.free(Boot(5), &l, 5)), 5, "a success in between counts from the beginning");
    pool.ended(Boot(6), &h, false);
    assert_eq!(counts(pool.free(Boot(6), &l, 10)), 0);
    assert_eq!(
        (pool.holdup(Boot(7), &h), pool.poll_timeout(Boot(7))),
        (Some(Holdup::Breaker(Boot(1_006))), Some(Boot(1_006)))
    );
    assert_eq!(counts(pool.tick(Boot(1_005))), 0);
    assert_eq!(counts(pool.tick(Boot(1_006))), 1, "one, to see how it is");
    assert_eq!(pool.holdup(Boot(1_007), &h), Some(Holdup::Probe));
    pool.ended(Boot(1_010), &h, false);
    assert_eq!(counts(pool.free(Boot(1_010), &l, 1)), 0, "it is not well: another pause");
    assert_eq!(counts(pool.tick(Boot(2_010))), 1);
    assert_eq!(counts(pool.free(Boot(2_020), &l, 1)), 0, "nothing was heard of the target");
    assert_eq!(counts(pool.tick(Boot(3_010))), 1, "another is let through");
    pool.ended(Boot(3_020), &h, true);
    assert_eq!(counts(pool.free(Boot(3_020), &l, 1)), 10, "well again: all slots at once");
}

#[test]
fn what_is_not_needed_any_more_uses_up_no_rate_and_no_probe() {
    let (mut pool, h, l) = (pool(Limit { concurrency: 2, ..rated("1/s") }), handler(), lane());
    pool.share(Boot(0), 8, 8);
    let shards = |grants: Vec<Grant>| grants.iter().map(|grant| grant.shard.0).collect::<Vec<_>>();
    assert_eq!(shards(pool.want(Boot(0), Shard(0), &l, 3, Boot(0))), [0]);
    assert!(pool.want(Boot(0), Shard(1), &l, 1, Boot(0)).is_empty());
    assert_eq!(
        shards(pool.withdraw(Boot(1), Shard(0), &l, 1)),
        [1],
        "the call of its rate is the next one's"
    );
    assert_eq!(pool.taken(&h), 1);
    assert!(
        pool.tick(Boot(9_000)).is_empty() && !pool.is_wanted(&h),
        "the rest of what it asked for is forgotten"
    );

    let mut pool = self::pool(breaking(1, 1_000));
    assert_eq!(pool.want(Boot(0), Shard(0), &l, 1, Boot(0)).len(), 1);
    pool.ended(Boot(1), &h, false);
    pool.free(Boot(1), &l, 1);
    assert_eq!(shards(pool.want(Boot(1_001), Shard(0), &l, 1, Boot(1_001))), [0], "to see how it is");
    assert!(pool.want(Boot(1_002), Shard(1), &l, 1, Boot(1_002)).is_empty());
    assert_eq!(shards(pool.withdraw(Boot(1_003), Shard(0), &l, 1)), [1], "the probe is the next one's");
}

#[test]
fn who_runs_fewer_shards_from_now_on_starts_nothing_before_enough_has_ended() {
    let (mut pool, l) = (pool(Limit::of(8)), lane());
    assert_eq!(pool.want(Boot(0), Shard(0), &l, 20, Boot(0))[0].count, 8);
    pool.share(Boot(1), 2, 8);
    assert_eq!((pool.taken(&handler()), pool.part(&handler())), (8, 2));
    for left in (2..8).rev() {
        assert!(pool.free(Boot(1), &l, 1).is_empty(), "{left} are under way, and two slots are left");
    }
    assert_eq!(pool.holdup(Boot(1), &handler()), Some(Holdup::Concurrency(2)));
    assert_eq!(pool.free(Boot(1), &l, 1)[0].count, 1);
    pool.share(Boot(2), 8, 8);
    assert_eq!(pool.tick(Boot(2)).iter().map(|grant| grant.count).sum::<u32>(), 6, "and all of them again");
}

#[test]
fn shards_take_turns() {
    let (mut pool, l) = (pool(Limit::of(4)), lane());
    pool.want(Boot(0), Shard(0), &l, 1_000, Boot(0));
    for shard in 1..4 {
        assert!(pool.want(Boot(0), Shard(shard), &l, 2, Boot(0)).is_empty());
    }
    let next: Vec<u32> = (0..8).flat_map(|_| pool.free(Boot(0), &l, 1)).map(|grant| grant.shard.0).collect();
    assert_eq!(next, [0, 1, 2, 3, 0, 1, 2, 3], "who wants little does not wait for who wants much");
}

proptest! {
    /// The parts of all instances make up the whole, and no more than less than one slot for each instance on top.
    #[test]
    fn slots_of_all_instances_are_those_of_the_handler_and_less_than_one_each(
        concurrency in 1u32..200,
        kept in 0u32..200,
        owned in proptest::collection::vec(1u32..20, 1..8),
    ) {
        let kept = kept % concurrency;
        let (all, instances) = (owned.iter().sum::<u32>(), owned.len() as u32);
        let (mut taken, mut taken_low) = (0, 0);
        for owned in owned {
            let reserve = Some(Reserve { priority: 6, slots: kept });
            let mut pool = pool(Limit { reserve, ..Limit::of(concurrency) });
            pool.share(Boot(0), owned, all);
            let low = pool.want(Boot(0), Shard(0), &lane(), 1_000, Boot(0));
            let high = Lane::new(LaneKind { priority: 6, ..(*lane()).clone() });
            let high = pool.want(Boot(0), Shard(1), &high, 1_000, Boot(0));
            let count = |grants: &[Grant]| grants.iter().map(|grant| grant.count).sum::<u32>();
            prop_assert!(count(&low) > 0, "none stands still");
            taken_low += count(&low);
            taken += count(&low) + count(&high);
        }
        prop_assert!((concurrency..concurrency + instances).contains(&taken), "{taken} of {concurrency}");
        let left_to_low = concurrency - kept;
        prop_assert!(taken_low >= left_to_low && taken_low < left_to_low + 2 * instances, "{taken_low} of {left_to_low}");
    }

    /// Against a naive count of all calls: in no stretch of time more than the rate allows and one burst.
    #[test]
    fn in_no_stretch_of_time_more_begins_than_the_rate_and_one_burst(
        rate in 1u64..2_000,
        owned in 1u64..8,
        steps in proptest::collection::vec((0u32..3, 1u32..40, 0u64..300), 1..60),
    ) {
        let mut pool = pool(Limit { concurrency: 30, ..rated(&format!("{rate}/s")) });
        pool.share(Boot(0), owned as u32, 8);
        let (mut now, mut out, mut begun) = (Boot(0), VecDeque::new(), Vec::new());
        for (kind, count, ms) in steps {
            let grants = match kind {
                0 => pool.want(now, Shard(count % 5), &lane(), count, now),
                1 => match out.pop_front() {
                    Some(count) => pool.free(now, &lane(), count),
                    None => Vec::new(),
                },
                _ => {
                    now = now.plus_ms(ms);
                    pool.tick(now)
                }
            };
            for grant in grants {
                out.push_back(grant.count);
                begun.extend(std::iter::repeat_n(now.0, grant.count as usize));
            }
        }
        let share = rate as f64 * owned as f64 / 8.0;
        let burst = (share / 10.0).max(1.0);
        for (first, from) in begun.iter().enumerate() {
            for (last, to) in begun.iter().enumerate().skip(first) {
                let most = share * (to - from) as f64 / 1e3 + burst + 1e-6;
                prop_assert!((last - first + 1) as f64 <= most.max(1.0), "{} from {from} to {to}, at most {most}", last - first + 1);
            }
        }
    }
}
