//! What an owner has in memory of the list of ids: all of it, or what may be packed.
//!
//! ```text
//! all       some 13 bytes an event      an id that is not among them is new
//! packed    8 bytes                     every id is looked up; among these are all events that its key does not lead to
//! ```

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::known::{Known, Noted};
use crate::model::{IdsRow, Print, TaskKey, Version, limits};

/// What is kept; by the upper half of versions, of which there are two at most for a long time.
#[derive(Debug)]
pub(super) enum Kept {
    All {
        known: BTreeMap<u32, Known>,
        /// How many there are of each chunk.
        of_chunks: BTreeMap<u64, u32>,
    },
    /// Each in order.
    Packed(BTreeMap<u32, Vec<Noted>>),
}

impl Default for Kept {
    fn default() -> Kept {
        Kept::Packed(BTreeMap::new())
    }
}

fn half(version: Version) -> u32 {
    (version.0 >> u32::BITS) as u32
}

fn noted(version: Version, print: Print) -> Noted {
    Noted::new(print, version.0 as u32)
}

fn version_of(half: u32, entry: Noted) -> Version {
    Version(u64::from(half) << u32::BITS | u64::from(entry.offset()))
}

impl Kept {
    /// All of the rows that count.
    pub(super) fn all(rows: &[IdsRow]) -> Kept {
        let (mut entries, mut of_chunks) = (BTreeMap::<u32, Vec<Noted>>::new(), BTreeMap::new());
        for row in rows {
            for (version, print) in row.events() {
                entries.entry(half(version)).or_default().push(noted(version, print));
                *of_chunks.entry(row.chunk).or_default() += 1;
            }
        }
        let known = entries.into_iter().map(|(half, entries)| (half, Known::of(entries))).collect();
        Kept::All { known, of_chunks }
    }

    /// Of the rows that count what may be packed.
    pub(super) fn packed(rows: &[IdsRow]) -> Kept {
        let mut packed = BTreeMap::<u32, Vec<Noted>>::new();
        for (version, print) in
            rows.iter().flat_map(IdsRow::events).filter(|(_, print)| print.may_be_packed())
        {
            packed.entry(half(version)).or_default().push(noted(version, print));
        }
        packed.values_mut().for_each(|entries| entries.sort_unstable());
        Kept::Packed(packed)
    }

    pub(super) fn is_all(&self) -> bool {
        matches!(self, Kept::All { .. })
    }

    /// Keeps no more than what may be packed.
    pub(super) fn shrink(&mut self) {
        if let Kept::All { known, .. } = self {
            let packed = |known: &Known| {
                let mut packed: Vec<Noted> =
                    known.all().filter(|entry| entry.print().may_be_packed()).collect();
                packed.sort_unstable();
                packed
            };
            *self = Kept::Packed(known.iter().map(|(half, known)| (*half, packed(known))).collect());
        }
    }

    /// The first chunk with something in it, where all is kept.
    pub(super) fn first_chunk(&self) -> Option<u64> {
        match self {
            Kept::All { of_chunks, .. } => of_chunks.keys().next().copied(),
            Kept::Packed(_) => None,
        }
    }

    /// Whether for certain there is no event of this id.
    pub(super) fn has_none(&self, print: Print) -> bool {
        match self {
            Kept::All { known, .. } => !known.values().any(|known| known.has(print)),
            Kept::Packed(_) => false,
        }
    }

    /// The versions of events that may be this id's and packed.
    pub(super) fn packed_of(&self, print: Print) -> Vec<Version> {
        let mut versions = Vec::new();
        let mut add = |half: &u32, entries: &[Noted]| {
            let packed = entries.iter().filter(|entry| entry.print().may_be_packed());
            versions.extend(packed.map(|entry| version_of(*half, *entry)));
        };
        match self {
            Kept::All { known, .. } => known.iter().for_each(|(half, known)| add(half, known.of_id(print))),
            Kept::Packed(packed) => packed.iter().for_each(|(half, all)| add(half, Noted::of_id(all, print))),
        }
        versions
    }

    /// Takes an event; false when it is there. Where what may be packed is kept it takes nothing else.
    pub(super) fn put(&mut self, version: Version, print: Print) -> bool {
        let entry = noted(version, print);
        match self {
            Kept::All { known, of_chunks } => {
                let is_new = known.entry(half(version)).or_default().put(entry);
                if is_new {
                    *of_chunks.entry(IdsRow::chunk_of(version)).or_default() += 1;
                }
                is_new
            }
            Kept::Packed(packed) if print.may_be_packed() => {
                let entries = packed.entry(half(version)).or_default();
                let at = entries.binary_search(&entry);
                at.inspect_err(|at| entries.insert(*at, entry)).is_err()
            }
            Kept::Packed(_) => true,
        }
    }

    /// Takes events away, and says which were there, each once.
    pub(super) fn take(&mut self, events: &[(TaskKey, Version)]) -> Vec<Version> {
        let mut of_halves = BTreeMap::<u32, BTreeSet<Noted>>::new();
        for (key, version) in events {
            let both = [false, true].map(|may_be_packed| noted(*version, Print::of(key, may_be_packed)));
            of_halves.entry(half(*version)).or_default().extend(both);
        }
        let mut taken = Vec::new();
        for (half, entries) in of_halves {
            let gone: Vec<Noted> = match self {
                Kept::All { known, .. } => {
                    known.get_mut(&half).map_or_else(Vec::new, |known| known.take(entries))
                }
                Kept::Packed(packed) => packed.get_mut(&half).map_or_else(Vec::new, |packed| {
                    let is_there = |entry: &Noted| packed.binary_search(entry).is_ok();
                    let gone: Vec<Noted> = entries.into_iter().filter(is_there).collect();
                    let mut next = gone.iter().peekable();
                    packed.retain(|entry| next.next_if_eq(&entry).is_none());
                    gone
                }),
            };
            taken.extend(gone.into_iter().map(|entry| version_of(half, entry)));
        }
        if let Kept::All { of_chunks, .. } = self {
            for version in &taken {
                if let Entry::Occupied(mut left) = of_chunks.entry(IdsRow::chunk_of(*version)) {
                    *left.get_mut() -= 1;
                    if *left.get() == 0 {
                        left.remove();
                    }
                }
            }
        }
        taken
    }

    /// The rows of chunks with what is kept of them, empty where nothing is left.
    pub(super) fn prints_of(&self, wanted: &BTreeSet<u64>) -> BTreeMap<u64, Vec<u32>> {
        let mut all: BTreeMap<u64, Vec<u32>> = wanted.iter().map(|chunk| (*chunk, Vec::new())).collect();
        if all.is_empty() {
            return all;
        }
        let mut add = |half: u32, entry: Noted| {
            let version = version_of(half, entry);
            if let Some(prints) = all.get_mut(&IdsRow::chunk_of(version)) {
                put(prints, version, entry.print().0);
            }
        };
        match self {
            Kept::All { known, .. } => {
                known.iter().for_each(|(half, known)| known.all().for_each(|entry| add(*half, entry)));
            }
            Kept::Packed(packed) => {
                packed.iter().for_each(|(half, all)| all.iter().for_each(|entry| add(*half, *entry)));
            }
        }
        all
    }
}

fn index(version: Version) -> usize {
    (version.0 % limits::IDS_OF_CHUNK) as usize
}

/// What the row of its chunk has of an event.
pub(super) fn at(prints: &[u32], version: Version) -> Print {
    Print(prints.get(index(version)).copied().unwrap_or(0))
}

/// Puts the fingerprint of an event into the row of its chunk; 0 takes it away.
pub(super) fn put(prints: &mut Vec<u32>, version: Version, print: u32) {
    let index = index(version);
    if prints.len() <= index {
        prints.resize(index + 1, 0);
    }
    prints[index] = print;
    // What is forgotten leaves nothing behind.
    while prints.last() == Some(&0) {
        prints.pop();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Epoch, QueueName, Shard, TaskId};

    fn key(n: u8) -> TaskKey {
        let queue = QueueName::new("q").expect("legal");
        TaskKey { queue, id: TaskId::new(&format!("t-{n}")).expect("legal") }
    }

    /// Versions in a few chunks, and now and then one of another generation.
    fn version() -> impl Strategy<Value = Version> {
        prop_oneof![20 => 0..1_500u64, 1 => (1u64 << 44)..(1 << 44) + 300].prop_map(Version)
    }

    /// The id of an event, and whether it may be packed.
    type Event = (u8, bool);

    fn print((n, may_be_packed): Event) -> Print {
        Print::of(&key(n), may_be_packed)
    }

    fn rows(model: &BTreeMap<Version, Event>) -> Vec<IdsRow> {
        let mut chunks: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (version, event) in model {
            put(chunks.entry(IdsRow::chunk_of(*version)).or_default(), *version, print(*event).0);
        }
        let row = |(chunk, prints)| IdsRow { shard: Shard(0), chunk, epoch: Epoch(1), prints };
        chunks.into_iter().map(row).collect()
    }

    fn check(kept: &Kept, model: &BTreeMap<Version, Event>) -> Result<(), TestCaseError> {
        for n in 0..30 {
            let of_id = model.iter().filter(|(_, event)| event.0 == n);
            let packed: Vec<Version> =
                of_id.clone().filter(|(_, event)| event.1).map(|(version, _)| *version).collect();
            let mut found = kept.packed_of(print((n, false)));
            found.sort_unstable();
            prop_assert_eq!(found, packed);
            prop_assert_eq!(kept.has_none(print((n, true))), kept.is_all() && of_id.count() == 0);
        }
        let is_kept = |event: &Event| kept.is_all() || print(*event).may_be_packed();
        let model =
            model.iter().filter(|(_, event)| is_kept(event)).map(|(version, event)| (*version, *event));
        let rows = rows(&model.collect());
        let first = rows.first().map(|row| row.chunk).filter(|_| kept.is_all());
        prop_assert_eq!(kept.first_chunk(), first);
        let wanted = BTreeSet::from_iter([0, 1, 2, 9, 1 << 36]);
        let found = kept.prints_of(&wanted);
        for chunk in wanted {
            let row = rows.iter().find(|row| row.chunk == chunk).map(|row| row.prints.clone());
            prop_assert_eq!(&found[&chunk], &row.unwrap_or_default());
        }
        Ok(())
    }

    proptest! {
        /// A model: the event of each version.
        #[test]
        fn whichever_way_they_are_kept_what_may_be_packed_is_known(
            mut model in proptest::collection::btree_map(version(), (0..30u8, any::<bool>()), 0..300),
            begins_with_all in any::<bool>(),
            steps in proptest::collection::vec(
                (0..4u8, proptest::collection::vec((version(), (0..30u8, any::<bool>())), 0..60)), 0..12),
        ) {
            let rows = rows(&model);
            let mut kept = if begins_with_all { Kept::all(&rows) } else { Kept::packed(&rows) };
            check(&kept, &model)?;
            for (step, events) in steps {
                match step {
                    0 => {
                        let named: Vec<_> = events.iter().map(|(version, event)| (key(event.0), *version)).collect();
                        let mut taken = kept.take(&named);
                        taken.sort_unstable();
                        let is_there = |(version, event): &&(Version, Event)| {
                            let found = model.get(version).filter(|found| found.0 == event.0);
                            found.is_some_and(|found| found.1 || kept.is_all())
                        };
                        let wanted: BTreeSet<Version> =
                            events.iter().filter(is_there).map(|(version, _)| *version).collect();
                        prop_assert_eq!(taken, Vec::from_iter(wanted.clone()));
                        model.retain(|version, _| !wanted.contains(version));
                    }
                    1 => kept.shrink(),
                    _ => {
                        // A version is of one id; what was not said to be packed may be said to be later.
                        for (version, (n, may_be_packed)) in events {
                            let before = model.get(&version).copied();
                            let event = model.entry(version).or_insert((n, may_be_packed));
                            event.1 |= may_be_packed;
                            let is_new = kept.put(version, print((event.0, may_be_packed)));
                            let is_kept = |event: Event| kept.is_all() || print(event).may_be_packed();
                            let is_there = before.is_some_and(is_kept);
                            let is_of_these = is_kept((event.0, may_be_packed));
                            prop_assert!(is_new != is_there || !is_of_these);
                        }
                    }
                }
                check(&kept, &model)?;
            }
        }
    }
}
