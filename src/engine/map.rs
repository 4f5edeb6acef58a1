//! A map for keys that are costly to compare: looked up by hash, walked in an order that depends on nothing but what was
//! done to it, so that a simulation stays what it is.

/// With chance in it, as keys come from outside; none where instructions are counted.
#[cfg(not(feature = "fixed-hashes"))]
pub(super) type State = foldhash::fast::RandomState;
#[cfg(feature = "fixed-hashes")]
pub(super) type State = foldhash::fast::FixedState;

/// By hash; walked in the order of insertion, but for removals, which put the last in the place of what is removed.
pub(super) type Map<K, V> = indexmap::IndexMap<K, V, State>;
