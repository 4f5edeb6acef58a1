//! A set of events by the fingerprints of their ids: eight bytes each, and half as much again for what they lie in.
//!
//! A look-up is on the way of each event, and what it reads is in no cache. So a fingerprint has one bucket, a piece of memory of a
//! few hundred bytes. Buckets are split one after the other as entries come, which never takes long (linear hashing: W. Litwin,
//! "Linear Hashing: A New Tool for File and Table Addressing", VLDB 1980). Fingerprints are hashed once more, with chance in it: who
//! chooses ids does not choose their buckets.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;

use crate::engine::map::State;
use crate::model::Print;

/// The fingerprint of an event, and the lower half of its version. Ordered by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Noted(u64);

impl Noted {
    pub(super) fn new(print: Print, offset: u32) -> Noted {
        Noted(u64::from(print.0) << 32 | u64::from(offset))
    }

    pub(super) fn print(self) -> Print {
        Print((self.0 >> 32) as u32)
    }

    /// The same event, which may be packed or not.
    fn otherwise(self) -> Noted {
        Noted(self.0 ^ 1 << u32::BITS)
    }

    /// Those of an id, of entries in order.
    pub(super) fn of_id(entries: &[Noted], print: Print) -> &[Noted] {
        let first = entries.partition_point(|entry| entry.print().id() < print.id());
        let rest = &entries[first..];
        &rest[..rest.partition_point(|entry| entry.print().id() == print.id())]
    }

    pub(super) fn offset(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }
}

/// The entries.
#[derive(Debug)]
pub(super) struct Known {
    /// At least one, by the last bits of the hashes of fingerprints; each in order.
    buckets: Vec<Vec<Noted>>,
    count: usize,
    state: State,
}

/// Entries of a bucket, on average: with more there is one bucket more.
const OF_BUCKET: usize = 32;
/// For so many more a bucket that is full is made longer, or by an eighth: an id may have any number of events.
const ROOM: usize = 8;

impl Default for Known {
    fn default() -> Self {
        Known { buckets: vec![Vec::new()], count: 0, state: State::default() }
    }
}

impl Known {
    /// Of entries that are there once each.
    pub(super) fn of(entries: Vec<Noted>) -> Known {
        let (count, all) = (entries.len(), entries.len().div_ceil(OF_BUCKET).max(1));
        let buckets = Vec::from_iter((0..all).map(|_| Vec::with_capacity(OF_BUCKET)));
        let mut known = Known { buckets, count, ..Known::default() };
        for entry in entries {
            let bucket = known.bucket(entry.print());
            make_room(bucket);
            bucket.push(entry);
        }
        known.buckets.iter_mut().for_each(|bucket| bucket.sort_unstable());
        known
    }

    /// The bucket of a fingerprint: by so many bits of its hash as number all buckets, or by one fewer where that one is not there
    /// yet.
    fn index(&self, print: Print) -> usize {
        let all = self.buckets.len();
        let bits = all.next_power_of_two();
        let index = hash(&self.state, print) & (bits - 1);
        if index < all { index } else { index - bits / 2 }
    }

    fn bucket(&mut self, print: Print) -> &mut Vec<Noted> {
        let index = self.index(print);
        &mut self.buckets[index]
    }

    /// Whether there is an event of this id.
    pub(super) fn has(&self, print: Print) -> bool {
        let bucket = &self.buckets[self.index(print)];
        let first = bucket.partition_point(|entry| entry.print().id() < print.id());
        bucket.get(first).is_some_and(|entry| entry.print().id() == print.id())
    }

    /// All events of an id.
    pub(super) fn of_id(&self, print: Print) -> &[Noted] {
        Noted::of_id(&self.buckets[self.index(print)], print)
    }

    /// True when it is not there yet. One that is there and may be packed after all is noted so.
    pub(super) fn put(&mut self, entry: Noted) -> bool {
        let bucket = self.bucket(entry.print());
        let Err(at) = bucket.binary_search(&entry) else { return false };
        if let Ok(same) = bucket.binary_search(&entry.otherwise()) {
            if entry.print().may_be_packed() {
                bucket.remove(same);
                // It comes before.
                bucket.insert(at - 1, entry);
            }
            return false;
        }
        make_room(bucket);
        bucket.insert(at, entry);
        self.count += 1;
        if self.count > OF_BUCKET * self.buckets.len() {
            self.split();
        }
        true
    }

    /// Divides the next bucket between itself and a new one.
    fn split(&mut self) {
        let new = self.buckets.len();
        let bit = (new + 1).next_power_of_two() / 2;
        let Known { buckets, state, .. } = self;
        let bucket = &mut buckets[new - bit];
        let mut moved: Vec<Noted> =
            bucket.extract_if(.., |entry| hash(state, entry.print()) & bit != 0).collect();
        for half in [bucket, &mut moved] {
            half.shrink_to(half.len() + ROOM);
        }
        self.buckets.push(moved);
    }

    /// Takes entries away, and says which were there, each once.
    pub(super) fn take(&mut self, entries: BTreeSet<Noted>) -> Vec<Noted> {
        let entries = Vec::from_iter(entries);
        let mut taken = Vec::new();
        for of_print in entries.chunk_by(|one, next| one.print() == next.print()) {
            let bucket = self.bucket(of_print[0].print());
            taken.extend(bucket.extract_if(.., |entry| of_print.binary_search(entry).is_ok()));
            if bucket.capacity() > 2 * bucket.len() + ROOM {
                bucket.shrink_to(bucket.len() + ROOM);
            }
        }
        self.count -= taken.len();
        taken
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = Noted> {
        self.buckets.iter().flatten().copied()
    }
}

fn hash(state: &State, print: Print) -> usize {
    state.hash_one(print.id()) as usize
}

fn make_room(bucket: &mut Vec<Noted>) {
    if bucket.len() == bucket.capacity() {
        bucket.reserve_exact(ROOM.max(bucket.len() / 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set(
            first in proptest::collection::vec(any::<(u8, u8)>(), 0..300),
            steps in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<(u8, u8)>(), 0..400)), 0..20),
        ) {
            // Each may be packed, or none: what is in between is tested with what is kept.
            let entry = |(print, offset): (u8, u8)| {
                Noted::new(Print(2 * (u32::from(print) + 1)), u32::from(offset))
            };
            let mut model: BTreeSet<Noted> = first.into_iter().map(entry).collect();
            let mut known = Known::of(model.iter().copied().collect());
            for (takes, entries) in steps {
                let entries: Vec<Noted> = entries.into_iter().map(entry).collect();
                if takes {
                    let mut taken = known.take(entries.iter().copied().collect());
                    taken.sort_unstable();
                    let wanted: BTreeSet<Noted> = entries.into_iter().filter(|entry| model.remove(entry)).collect();
                    prop_assert_eq!(taken, wanted.into_iter().collect::<Vec<_>>());
                } else {
                    for entry in entries {
                        prop_assert_eq!(known.put(entry), model.insert(entry));
                    }
                }
                prop_assert_eq!(&known.all().collect::<BTreeSet<_>>(), &model);
                for print in (0..=257).map(|id| Print(2 * id + 1)) {
                    let of_id = model.iter().filter(|entry| entry.print().id() == print.id());
                    let of_id: Vec<Noted> = of_id.copied().collect();
                    prop_assert_eq!(known.has(print), !of_id.is_empty());
                    prop_assert_eq!(known.of_id(print), &of_id[..]);
                }
            }
        }
    }
}
