//! First events of tasks: those that the writer takes together are one row, a pack, and an index says where each lies.
//!
//! Nearly all tasks have one event, and their ids come in no order, so a row by id for each costs the database far more than its bytes
//! do. Packs come in order. An event that the writer has alone stays a row by id ([`super::events`]), as do all that are not said to be
//! the first ([`EventRow::is_first`]); who reads a task's events looks for both.

mod index;
mod pack;

use fjall::Slice as Bytes;
use indexmap::map::Entry;

use self::index::{At, Hash};
use super::db::{Failure, Table, Tables};
use super::events::{self, Map};
use super::keys::{self, tag};
use super::read::get;
use super::writer::Batch;
use crate::model::{EventRow, TaskKey};

pub(super) use self::index::Index;

/// What a batch makes of packs.
#[derive(Default)]
pub(super) struct Firsts {
    /// To be packed: keys of tasks and their events.
    put: Vec<(Bytes, Bytes)>,
    /// What is forgotten of packs.
    gone: Map<u64, Gone>,
    /// The same, one by one.
    forgotten: Vec<(Hash, At)>,
}

/// What is forgotten of a pack, a bit each, and how many events it has.
struct Gone {
    events: u64,
    of: usize,
}

impl Gone {
    fn is_all(&self) -> bool {
        self.events.count_ones() as usize == self.of
    }
}

/// A packed event.
pub(super) struct Found {
    hash: Hash,
    at: At,
    /// The event.
    pub(super) row: EventRow,
}

/// The packed event of a task, by the key of its first row.
pub(super) fn find(tables: &Tables, key: &TaskKey, task: &[u8]) -> Result<Option<Found>, Failure> {
    let hash = tables.index.hash(task);
    let Some(at) = tables.index.get(&tables.event_at, hash)? else { return Ok(None) };
    // The index may name what is gone: an event forgotten while its place was written there.
    let gone = gone(tables, at.pack)?;
    let Some(data) = get(&tables.event_pack, keys::event_pack(at.pack, keys::EVENTS))? else {
        return Ok(None);
    };
    let events = split(at.pack, &data)?;
    match events.get(usize::from(at.event)) {
        Some((of, event)) if *of == task && gone & (1 << at.event) == 0 => {
            let (columns, data) = event.split_at_checked(keys::EVENT_COLUMNS_BYTES).unwrap_or((event, &[]));
            Ok(Some(Found { hash, at, row: events::event(key, columns, data)? }))
        }
        _ => Ok(None),
    }
}

fn split(pack: u64, data: &[u8]) -> Result<Vec<pack::Event<'_>>, Failure> {
    pack::split(data).ok_or_else(|| unreadable(&format!("pack {pack}")))
}

/// What is forgotten of a pack, a bit each.
fn gone(tables: &Tables, pack: u64) -> Result<u64, Failure> {
    get(&tables.event_pack, keys::event_pack(pack, keys::GONE))?.map_or(Ok(0), |data| number(&data))
}

impl Batch<'_> {
    /// Puts an event before which its task has none, its columns before its data, by the key of the task's first row.
    pub(super) fn first(&mut self, task: Bytes, data: Bytes) {
        self.firsts.put.push((task, data));
    }

    /// Takes a packed event away.
    pub(super) fn forget_first(&mut self, found: &Found) -> Result<(), Failure> {
        let Found { hash, at, .. } = *found;
        let gone = match self.firsts.gone.entry(at.pack) {
            Entry::Occupied(gone) => gone.into_mut(),
            Entry::Vacant(untouched) => {
                let pack = get(&self.tables.event_pack, keys::event_pack(at.pack, keys::EVENTS))?;
                // Forgotten twice, and all the others too.
                let Some(data) = pack else { return Ok(()) };
                let of = split(at.pack, &data)?.len();
                untouched.insert(Gone { events: gone(self.tables, at.pack)?, of })
            }
        };
        if gone.events & (1 << at.event) != 0 {
            return Ok(());
        }
        gone.events |= 1 << at.event;
        self.firsts.forgotten.push((hash, at));
        Ok(())
    }

    /// Puts what gathered over all changes; what the index is to note once it is durable.
    pub(super) fn close_firsts(&mut self) -> Noted {
        let Firsts { put, gone, forgotten } = std::mem::take(&mut self.firsts);
        let index = &self.tables.index;
        let due = index.due();
        if let Some(to) = due.indexed_to {
            self.put(Table::Meta, [tag::EVENTS_INDEXED], to.to_be_bytes());
        }
        let in_table =
            forgotten.iter().filter(|(hash, at)| index.may_be_in_table(*hash, *at)).map(|(hash, _)| *hash);
        for hash in due.owed.into_iter().chain(in_table) {
            self.remove(Table::EventAt, hash.to_be_bytes());
        }
        for (pack, gone) in gone {
            let [row, events] = [keys::GONE, keys::EVENTS].map(|kind| keys::event_pack(pack, kind));
            if gone.is_all() {
                self.remove(Table::EventPack, row);
                self.remove(Table::EventPack, events);
            } else {
                self.put(Table::EventPack, row, gone.events.to_be_bytes());
            }
        }
        let packed = self.pack(put, due.next);
        Noted { packed, forgotten }
    }

    fn pack(&mut self, mut put: Vec<(Bytes, Bytes)>, mut number: u64) -> Vec<(Hash, At)> {
        if put.len() == 1
            && let Some((task, data)) = put.pop()
        {
            self.lone_first(task, data);
        }
        let mut packed = Vec::with_capacity(put.len());
        let mut open = pack::Open::new();
        let mut left = put.len();
        for (task, data) in put {
            left -= 1;
            let at = At { pack: number, event: open.push(&task, &data) };
            packed.push((self.tables.index.hash(&task), at));
            if open.is_full() || left == 0 {
                let full = std::mem::replace(&mut open, pack::Open::new());
                self.put(Table::EventPack, keys::event_pack(number, keys::EVENTS), full.data());
                number += 1;
            }
        }
        packed
    }
}

/// For the index.
pub(super) struct Noted {
    packed: Vec<(Hash, At)>,
    forgotten: Vec<(Hash, At)>,
}

impl Noted {
    /// Once the batch is durable.
    pub(super) fn note(&self, index: &Index) {
        index.note(&self.packed, &self.forgotten);
    }
}

fn number(data: &[u8]) -> Result<u64, Failure> {
    data.try_into().map(u64::from_be_bytes).map_err(|_| unreadable("number"))
}

fn unreadable(what: &str) -> Failure {
    Failure::Corrupt(format!("{what} in the packed events"))
}
