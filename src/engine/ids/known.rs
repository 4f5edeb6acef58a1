//! A set of events by the fingerprints of their ids: eight bytes each, most of them in one piece of memory in order.

use std::collections::BTreeSet;

use crate::model::limits;

/// A fingerprint, and the offset of an event of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Noted(u64);

impl Noted {
    pub(super) fn new(print: u32, offset: u32) -> Noted {
        Noted(u64::from(print) << 32 | u64::from(offset))
    }

    pub(super) fn print(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn offset(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    pub(super) fn chunk(self) -> u64 {
        self.offset() / limits::IDS_OF_CHUNK
    }
}

/// The entries.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// In order.
    old: Vec<Noted>,
    /// Come since `old` was put in order, and not in it.
    recent: BTreeSet<Noted>,
}

/// So many may come before all are put in order, and a sixteenth of those in order besides.
const RECENT: usize = 4_096;

impl Known {
    pub(super) fn of(mut entries: Vec<Noted>) -> Known {
        entries.sort_unstable();
        entries.shrink_to_fit();
        Known { old: entries, recent: BTreeSet::new() }
    }

    /// Whether there is an event of an id with this fingerprint.
    pub(super) fn has(&self, print: u32) -> bool {
        let (first, last) = (Noted::new(print, 0), Noted::new(print, u32::MAX));
        let index = self.old.partition_point(|entry| *entry < first);
        let is_old = self.old.get(index).is_some_and(|entry| *entry <= last);
        is_old || self.recent.range(first..=last).next().is_some()
    }

    /// True when it is not there yet.
    pub(super) fn put(&mut self, entry: Noted) -> bool {
        let is_new = self.old.binary_search(&entry).is_err() && self.recent.insert(entry);
        if self.recent.len() > RECENT + self.old.len() / 16 {
            self.old.reserve_exact(self.recent.len());
            self.old.extend(std::mem::take(&mut self.recent));
            // A sort that finds two runs in order merges them.
            self.old.sort();
        }
        is_new
    }

    /// Takes entries away, and says which were there, each once.
    pub(super) fn take(&mut self, entries: BTreeSet<Noted>) -> Vec<Noted> {
        let mut taken = Vec::new();
        let mut from_old = BTreeSet::new();
        for entry in entries {
            if self.recent.remove(&entry) {
                taken.push(entry);
            } else if let Ok(index) = self.old.binary_search(&entry) {
                from_old.insert(index);
                taken.push(entry);
            }
        }
        let mut from_old = from_old.into_iter().peekable();
        if from_old.peek().is_some() {
            let mut index = 0..;
            self.old.retain(|_| from_old.next_if_eq(&index.next().unwrap_or_default()).is_none());
        }
        taken
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = Noted> {
        self.old.iter().chain(&self.recent).copied()
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
            let entry = |(print, offset): (u8, u8)| Noted::new(u32::from(print) + 1, u32::from(offset));
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
                for print in 0..=257 {
                    let has = model.iter().any(|entry| entry.print() == print);
                    prop_assert_eq!(known.has(print), has);
                }
            }
        }
    }
}
