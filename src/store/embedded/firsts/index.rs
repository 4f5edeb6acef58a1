//! Where packed events lie, by the hashes of their tasks.
//!
//! Hashes come in no order, and to put them into the table one by one costs more than all else of an event. So those of the latest packs
//! are kept in memory; when there are many, a thread writes them into the table at once, in order. A start reads the packs that are
//! not in the table yet.
//!
//! The hash (SipHash-1-3 with 128 bits) has a key of its own in each directory, so that nobody who chooses ids can make two meet; the
//! pack has the whole key of the task for who reads it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fjall::Keyspace;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use siphasher::sip128::SipHasher13;

use super::{number, pack, split, unreadable};
use crate::store::embedded::db::{Failure, Tables, lock};
use crate::store::embedded::keys::{self, tag};
use crate::store::embedded::read::{get, scan};

/// Events in memory at which they are written into the table. Should twice as many have come until that is done, it is waited for.
const EVENTS_OF_LOAD: usize = if cfg!(test) { 2 } else { 131_072 };
const HASH_KEY_BYTES: usize = 16;
const AT_BYTES: usize = 9;

/// The hash of a task's key.
pub(super) type Hash = u128;

/// Looked up by hash: to keep them in order costs more than to put them in order at the end.
type Events = IndexMap<Hash, At, RandomState>;

/// Where an event lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    /// The number of its pack.
    pub(super) pack: u64,
    /// Which of the pack's events it is.
    pub(super) event: u8,
}

impl At {
    fn encode(self) -> [u8; AT_BYTES] {
        let mut data = [0; AT_BYTES];
        data[..8].copy_from_slice(&self.pack.to_be_bytes());
        data[8] = self.event;
        data
    }

    fn decode(data: &[u8]) -> Option<At> {
        let (number, rest) = data.split_first_chunk::<8>()?;
        let [event] = *<&[u8; 1]>::try_from(rest).ok()?;
        (usize::from(event) < pack::EVENTS_MAX).then_some(At { pack: u64::from_be_bytes(*number), event })
    }
}

/// The index; what is written to it comes from the writer thread alone.
#[derive(Default)]
pub(crate) struct Index {
    hash_key: [u8; HASH_KEY_BYTES],
    /// The number of the first pack of this process. What was read of earlier ones the table may have too.
    first: u64,
    recent: Mutex<Recent>,
    packs: AtomicU64,
    events: AtomicU64,
}

/// What the table does not have yet.
#[derive(Default)]
struct Recent {
    /// The number of the next pack.
    next: u64,
    /// Of the latest packs.
    open: Events,
    /// Being written into the table, if that is under way.
    loading: Arc<Events>,
    load: Option<Load>,
    /// Forgotten while they were written into the table: to be taken away there, before the next are written.
    owed: Vec<Hash>,
    /// All packs below are in the table, which is not on record yet.
    indexed_to: Option<u64>,
}

struct Load {
    /// Of packs below this.
    to: u64,
    thread: JoinHandle<fjall::Result<()>>,
}

impl Recent {
    /// What was under way, if it has ended or so much has come meanwhile.
    fn ended(&mut self) -> Option<Load> {
        let is_too_much = self.open.len() >= 2 * EVENTS_OF_LOAD;
        self.load.take_if(|load| is_too_much || load.thread.is_finished())
    }

    fn get(&self, hash: Hash) -> Option<At> {
        self.open.get(&hash).or_else(|| self.loading.get(&hash)).copied()
    }
}

/// What goes into a batch with its events.
pub(super) struct Due {
    /// The number of the next pack.
    pub(super) next: u64,
    /// To be taken out of the table.
    pub(super) owed: Vec<Hash>,
    /// To be put on record: packs below are in the table.
    pub(super) indexed_to: Option<u64>,
}

impl Index {
    /// Reads what the table does not have yet from the packs.
    pub(in crate::store::embedded) fn open(tables: &Tables) -> Result<Index, Failure> {
        let hash_key = hash_key(&tables.meta)?;
        let from = get(&tables.meta, [tag::EVENTS_INDEXED])?.map_or(Ok(0), |data| number(&data))?;
        let mut recent = Recent { next: from, ..Recent::default() };
        let mut gone = (0, 0);
        scan(
            &tables.event_pack,
            &keys::event_pack(from, keys::GONE),
            &keys::EVENT_PACKS_END,
            |key, data| {
                let (pack, kind) = keys::of_event_pack(key).ok_or_else(|| unreadable("key"))?;
                // What is forgotten of a pack comes before it.
                if kind == keys::GONE {
                    gone = (pack, number(data)?);
                    return Ok(ControlFlow::Continue(()));
                }
                let gone = if gone.0 == pack { gone.1 } else { 0 };
                let here = (0..).zip(split(pack, data)?).filter(|(event, _)| gone & (1 << event) == 0);
                recent.open.extend(here.map(|(event, (task, _))| (hash(hash_key, task), At { pack, event })));
                recent.next = pack + 1;
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(Index { hash_key, first: recent.next, recent: Mutex::new(recent), ..Index::default() })
    }

    /// The hash of a task's key.
    pub(super) fn hash(&self, task: &[u8]) -> Hash {
        hash(self.hash_key, task)
    }

    /// Where the event of a hash lies, if it is packed.
    pub(super) fn get(&self, table: &Keyspace, hash: Hash) -> Result<Option<At>, Failure> {
        // In this order: what is written into the table in between is found there.
        if let Some(at) = lock(&self.recent).get(hash) {
            return Ok(Some(at));
        }
        let at = get(table, hash.to_be_bytes())?;
        at.map(|data| At::decode(&data).ok_or_else(|| unreadable("place of an event"))).transpose()
    }

    /// Packs made so far, and the events in them.
    pub(in crate::store::embedded) fn made(&self) -> (u64, u64) {
        (self.packs.load(Ordering::Relaxed), self.events.load(Ordering::Relaxed))
    }

    /// What goes into the next batch.
    pub(super) fn due(&self) -> Due {
        let mut recent = lock(&self.recent);
        Due {
            next: recent.next,
            // Beside what is being written a tombstone would lie under what it is to take away.
            owed: if recent.load.is_none() { std::mem::take(&mut recent.owed) } else { Vec::new() },
            indexed_to: recent.indexed_to.take(),
        }
    }

    /// Whether the table may have this.
    pub(super) fn may_be_in_table(&self, hash: Hash, at: At) -> bool {
        at.pack < self.first || lock(&self.recent).get(hash) != Some(at)
    }

    /// After a batch: its packs and what it has forgotten.
    pub(super) fn note(&self, packed: &[(Hash, At)], forgotten: &[(Hash, At)]) {
        let mut recent = lock(&self.recent);
        for (hash, at) in forgotten {
            if recent.open.get(hash) == Some(at) {
                recent.open.swap_remove(hash);
            } else if recent.loading.get(hash) == Some(at) {
                recent.owed.push(*hash);
            }
        }
        if let Some((_, last)) = packed.last() {
            let packs = last.pack + 1 - recent.next;
            recent.next = last.pack + 1;
            self.packs.fetch_add(packs, Ordering::Relaxed);
            self.events.fetch_add(packed.len() as u64, Ordering::Relaxed);
        }
        recent.open.extend(packed.iter().copied());
    }

    /// Has what is in memory written into the table when it is much; waits for what is under way when it is too much.
    ///
    /// # Errors
    /// When it could not be written.
    pub(in crate::store::embedded) fn tend(&self, table: &Keyspace) -> Result<(), Failure> {
        let load = lock(&self.recent).ended();
        if let Some(load) = load {
            self.end(load)?;
        }
        let mut recent = lock(&self.recent);
        if recent.open.len() < EVENTS_OF_LOAD || recent.load.is_some() || !recent.owed.is_empty() {
            return Ok(());
        }
        recent.loading = Arc::new(std::mem::take(&mut recent.open));
        let (events, table) = (Arc::clone(&recent.loading), table.clone());
        let thread = std::thread::Builder::new().name("dueline-index".to_owned());
        let thread = thread.spawn(move || write(&table, &events));
        let thread = thread.map_err(|error| Failure::Restart(format!("no thread for the index: {error}")))?;
        recent.load = Some(Load { to: recent.next, thread });
        Ok(())
    }

    /// Waits for what is under way.
    ///
    /// # Errors
    /// When it could not be written: the next start reads these packs again.
    pub(in crate::store::embedded) fn finish(&self) -> Result<(), Failure> {
        let load = lock(&self.recent).load.take();
        load.map_or(Ok(()), |load| self.end(load))
    }

    fn end(&self, load: Load) -> Result<(), Failure> {
        let Load { to, thread } = load;
        let written = thread.join().map_err(|_| Failure::Restart("writing the index panicked".to_owned()))?;
        written.map_err(|error| Failure::Restart(format!("the index was not written: {error}")))?;
        let mut recent = lock(&self.recent);
        recent.loading = Arc::default();
        recent.indexed_to = Some(to);
        Ok(())
    }
}

fn write(table: &Keyspace, events: &Events) -> fjall::Result<()> {
    let mut events: Vec<_> = events.iter().collect();
    events.sort_unstable_by_key(|(hash, _)| **hash);
    let mut ingestion = table.start_ingestion()?;
    for (hash, at) in events {
        ingestion.write(hash.to_be_bytes(), at.encode())?;
    }
    ingestion.finish()
}

fn hash(key: [u8; HASH_KEY_BYTES], task: &[u8]) -> Hash {
    SipHasher13::new_with_key(&key).hash(task).as_u128()
}

/// The key of the hash; drawn when there is none.
fn hash_key(meta: &Keyspace) -> Result<[u8; HASH_KEY_BYTES], Failure> {
    if let Some(data) = get(meta, [tag::EVENTS_HASH])? {
        return (*data).try_into().map_err(|_| unreadable("key of the hash"));
    }
    let drawn = uuid::Uuid::new_v4().into_bytes();
    meta.insert([tag::EVENTS_HASH], drawn).map_err(|error| Failure::of_write(&error))?;
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::{At, Events, Index, Load, lock};

    #[test]
    fn what_is_forgotten_while_it_is_written_is_owed_until_that_has_ended() {
        let index = Index::default();
        let at = |event| At { pack: 0, event };
        let (go, wait) = channel::<()>();
        {
            let mut recent = lock(&index.recent);
            recent.loading = Arc::new(Events::from_iter([(1, at(0)), (2, at(1))]));
            let thread = std::thread::spawn(move || {
                let _ = wait.recv();
                Ok(())
            });
            recent.load = Some(Load { to: 1, thread });
        }
        index.note(&[], &[(2, at(1))]);
        assert!(!index.may_be_in_table(2, at(1)), "it is not yet");
        let due = index.due();
        assert_eq!((due.owed, due.indexed_to), (vec![], None), "a tombstone would lie below it");
        drop(go);
        index.finish().expect("it is written");
        assert!(index.may_be_in_table(1, at(0)));
        let due = index.due();
        assert_eq!((due.owed, due.indexed_to), (vec![2], Some(1)));
    }
}
