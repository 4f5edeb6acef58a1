//! A map for what is looked up often, or by keys that are costly to compare: looked up by hash, walked in an order that depends on nothing but what was
//! done to it, so that a simulation stays what it is.

use std::hash::Hash;

use indexmap::Equivalent;

/// With chance in it, as keys come from outside; none where instructions are counted.
#[cfg(not(feature = "fixed-hashes"))]
pub(super) type State = foldhash::fast::RandomState;
#[cfg(feature = "fixed-hashes")]
pub(super) type State = foldhash::fast::FixedState;

/// By hash; walked in the order of insertion, but for removals, which put the last in the place of what is removed.
pub(super) type Map<K, V> = indexmap::IndexMap<K, V, State>;

/// Room for so many is kept, however few there are.
const ROOM_KEPT: usize = 1_024;

/// Takes out what stands under a key. Room for four times what is left, and more, is given back: a peak is not kept for ever.
pub(super) fn take<K, V, Q>(map: &mut Map<K, V>, key: &Q) -> Option<V>
where
    Q: Hash + Equivalent<K> + ?Sized,
{
    let value = map.swap_remove(key)?;
    give_room_back(map);
    Some(value)
}

/// Gives back room for four times what there is, and more.
pub(super) fn give_room_back<K, V>(map: &mut Map<K, V>) {
    if map.capacity() > ROOM_KEPT && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_many_is_given_back_when_few_are_left() {
        let mut map: Map<u64, u64> = (0..100_000).map(|n| (n, n)).collect();
        for n in 0..99_990 {
            assert_eq!(take(&mut map, &n), Some(n));
            assert!(
                map.capacity() <= (4 * map.len() + 4).max(2 * ROOM_KEPT),
                "{} for {}",
                map.capacity(),
                map.len()
            );
        }
        assert_eq!((take(&mut map, &1), map.len()), (None, 10));
        assert!((99_990..100_000).all(|n| map.get(&n) == Some(&n)), "the others are where they were");
    }
}
