//! The two ledgers of a run: what the brokers acknowledged and what the handlers were called for, as lines of a history.
//! They are kept by the harness's own producer and handlers, and never read back from the product.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dueline::testing::history::{Asked, Asks, Called, End, Line};

use crate::clock;
use crate::journal::Journal;

/// What was sent, in the order it was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    entries: Arc<Mutex<Vec<Entry>>>,
    /// How often the topic was made anew. Offsets of a later one are higher: they are put down with this above their bits.
    generation: Arc<AtomicU64>,
    journal: Journal,
}

/// Bits of an offset; the generation lies above.
const OFFSET_BITS: u32 = 44;

/// A record on its way, or acknowledged, or lost to its producer.
#[derive(Clone, Debug)]
struct Entry {
    asked: Asked,
    sent: i64,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    UnderWay,
    Acked,
    Failed(String),
}

/// What a broker said of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) shard: u32,
    /// None when it had the record from an earlier try and does not say any more where.
    pub(crate) offset: Option<u64>,
    pub(crate) appended: Option<i64>,
}

/// A task's name.
pub(crate) type Key = (String, String);

impl Sent {
    /// One that is on disk too.
    pub(crate) fn kept(journal: Journal) -> Sent {
        Sent { journal, ..Sent::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// The topic was made anew: what is acknowledged from now on lies in it.
    pub(crate) fn begin_generation(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes down a record while `send` hands it to the client, so that both have one order. Nothing is taken down when
    /// that fails.
    pub(crate) fn send<T, E>(
        &self,
        queue: &str,
        id: &str,
        asks: &Asks,
        send: impl FnOnce() -> Result<T, E>,
    ) -> Result<(usize, T), E> {
        let mut entries = self.lock();
        let sent_at = clock::wall_ms();
        let sent = send()?;
        let asked = Asked {
            shard: None,
            offset: None,
            appended: sent_at,
            handed: Some(sent_at),
            acked: i64::MAX,
            queue: Some(queue.to_owned()),
            id: Some(id.to_owned()),
            asks: asks.clone(),
            origin: None,
            misplaced: false,
        };
        entries.push(Entry { asked, sent: sent_at, state: State::UnderWay });
        Ok((entries.len() - 1, sent))
    }

    pub(crate) fn acked(&self, number: usize, ack: Ack) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(number) else { return };
        entry.asked.shard = Some(ack.shard);
        entry.asked.offset = ack.offset.map(|offset| self.generation() << OFFSET_BITS | offset);
        entry.asked.appended = ack.appended.unwrap_or(entry.asked.appended);
        entry.asked.acked = clock::wall_ms();
        entry.state = State::Acked;
        self.journal.add(Line::Asked(entry.asked.clone()));
    }

    pub(crate) fn failed(&self, number: usize, error: String) {
        if let Some(entry) = self.lock().get_mut(number) {
            entry.state = State::Failed(error);
        }
    }

    /// Of the first `count` records, how many are not answered yet.
    pub(crate) fn under_way(&self, count: usize) -> usize {
        self.lock().iter().take(count).filter(|entry| entry.state == State::UnderWay).count()
    }

    /// What the first record that failed failed with. Whether it is in the log nobody knows, so such a run proves nothing.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().iter().find_map(|entry| match &entry.state {
            State::Failed(error) => Some(error.clone()),
            State::UnderWay | State::Acked => None,
        })
    }

    /// All acknowledged records.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let entries = self.lock();
        entries.iter().filter(|entry| entry.state == State::Acked).map(|entry| entry.asked.clone()).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// How long each record waited for its acknowledgement, in milliseconds.
    pub(crate) fn waits(&self) -> Vec<i64> {
        let entries = self.lock();
        let acked = entries.iter().filter(|entry| entry.state == State::Acked);
        acked.map(|entry| entry.asked.acked - entry.sent).collect()
    }

    /// The last acknowledged offset of each shard in the topic that is there now.
    pub(crate) fn last_offsets(&self) -> BTreeMap<u32, u64> {
        let mut last = BTreeMap::new();
        for entry in self.lock().iter() {
            if let (Some(shard), Some(offset)) = (entry.asked.shard, entry.asked.offset)
                && offset >> OFFSET_BITS == self.generation()
            {
                let offset = offset & ((1 << OFFSET_BITS) - 1);
                let known = last.entry(shard).or_insert(offset);
                *known = offset.max(*known);
            }
        }
        last
    }

    /// Tasks that have to run: the last that was asked about them is not a cancel.
    pub(crate) fn wanted(&self) -> BTreeSet<Key> {
        let mut wanted = BTreeSet::new();
        for entry in self.lock().iter().filter(|entry| entry.state == State::Acked) {
            let (Some(queue), Some(id)) = (&entry.asked.queue, &entry.asked.id) else { continue };
            let key = (queue.clone(), id.clone());
            match entry.asked.asks {
                Asks::Schedule { .. } | Asks::Reschedule { .. } | Asks::Redrive { .. } => wanted.insert(key),
                Asks::Cancel => wanted.remove(&key),
                Asks::Abort | Asks::Nonsense => continue,
            };
        }
        wanted
    }
}

/// A call, and which instance made it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) called: Called,
    pub(crate) by: String,
    begun_us: i64,
}

/// All calls, in the order they arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    book: Arc<Mutex<Book>>,
    journal: Journal,
}

#[derive(Debug, Default)]
struct Book {
    calls: Vec<Call>,
    /// The highest token that each queue has seen.
    highest: BTreeMap<String, [u64; 3]>,
    done: BTreeSet<Key>,
    /// Calls that no ledger line can be made of.
    unreadable: Vec<String>,
}

/// What the guard of the tokens says.
#[derive(Debug)]
pub(crate) enum Taken {
    Open(Open),
    /// The queue has seen a higher token.
    Refused,
}

impl Calls {
    /// One that is on disk too.
    pub(crate) fn kept(journal: Journal) -> Calls {
        Calls { journal, ..Calls::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes down a call as it arrives, and refuses it when its token is lower than one its queue has seen.
    pub(crate) fn arrived(&self, mut called: Called, by: &str) -> Taken {
        let mut book = self.lock();
        let begun_us = clock::boot_us();
        called.arrived = clock::wall_ms();
        let highest = book.highest.entry(called.queue.clone()).or_insert(called.token);
        called.refused = called.token < *highest;
        *highest = called.token.max(*highest);
        called.ended = called.refused.then_some((called.arrived, End::BrokenOff));
        let refused = called.refused;
        self.journal.add(Line::Called(called.clone()));
        book.calls.push(Call { called, by: by.to_owned(), begun_us });
        match refused {
            true => Taken::Refused,
            false => Taken::Open(Open { calls: self.clone(), number: book.calls.len() - 1, ended: false }),
        }
    }

    /// Takes down a call that does not say what it is of.
    pub(crate) fn unreadable(&self, what: String) {
        self.lock().unreadable.push(what);
    }

    pub(crate) fn all(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// Each shard and epoch under which an instance has made calls.
    pub(crate) fn epochs_of(&self, by: &str) -> BTreeSet<(u32, u64)> {
        let book = self.lock();
        let own = book.calls.iter().filter(|call| call.by == by);
        own.map(|call| (call.called.shard, call.called.token[1])).collect()
    }

    /// Those that do not say what they are of.
    pub(crate) fn all_unreadable(&self) -> Vec<String> {
        self.lock().unreadable.clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().calls.len()
    }

    /// How many of these have not succeeded yet.
    pub(crate) fn missing(&self, wanted: &BTreeSet<Key>) -> usize {
        let book = self.lock();
        wanted.iter().filter(|key| !book.done.contains(*key)).count()
    }
}

/// A call that is under way. A caller that goes away drops it, which is taken down.
#[derive(Debug)]
pub(crate) struct Open {
    calls: Calls,
    number: usize,
    ended: bool,
}

impl Open {
    /// Takes down how the handler ends it. Lengths are those of the boot clock.
    pub(crate) fn end(&mut self, end: End) {
        self.ended = true;
        let mut book = self.calls.lock();
        let Some(call) = book.calls.get_mut(self.number) else { return };
        let took_ms = (clock::boot_us() - call.begun_us) / 1_000;
        call.called.ended = Some((call.called.arrived + took_ms, end));
        call.called.broken_off = end == End::BrokenOff;
        self.calls.journal.add(Line::Called(call.called.clone()));
        let key = (call.called.queue.clone(), call.called.id.clone());
        if end == End::Succeeded {
            book.done.insert(key);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.ended {
            self.end(End::BrokenOff);
        }
    }
}

#[cfg(test)]
mod tests;
