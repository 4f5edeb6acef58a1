//! Which ids have events on record: what is new for sure is not looked up.
//!
//! ```text
//!   decided ─► noted ─► rows of event_ids ─► progress row      next owner: progress row ─► rows ─► noted
//! ```
//!
//! Of each event a fingerprint of its id is kept, with the event's offset. The rows that hold them go before the progress row whose
//! offset they reach, so each id with an event below that offset is in them. What lies above was decided by this owner, which
//! notes it, or may have been decided by an owner before: those events are always looked up. An id that is in none of them has
//! no event.
//!
//! Two ids may have one fingerprint: then one is looked up for nothing. A shard with more than there is memory for looks every id
//! up and goes on listing them, for an owner with more room. One with more than [`limits::IDS_OF_SHARD`] and more than it keeps, or whose
//! rows the store refuses, gives that up for good.

mod known;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Epoch, Generation, IdsRow, Shard, TaskKey, Version, fingerprint, limits};

use super::Engine;
use super::effect::{Effect, Observation};
use super::input::Failure;
use known::{Known, Noted};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Every id is looked up.
    #[default]
    Off,
    /// Rows of an owner before are to be read.
    ToBeRead,
    Asked(u64),
    Known,
}

/// The ids of a shard that have events.
#[derive(Debug, Default)]
pub(super) struct Ids {
    state: State,
    /// The first chunk with something in it.
    from: u64,
    /// Where the log ended as its leader told first, and the epoch of the newest leader that told: what comes from there on, and of
    /// no newer leader, no owner before can have decided.
    end: Option<(u64, Option<u32>)>,
    /// How many events are listed.
    count: usize,
    /// There is not memory enough: every id is looked up, and listed all the same.
    is_large: bool,
    known: Known,
    /// How many there are of each chunk.
    of_chunks: BTreeMap<u64, u32>,
    /// The chunks that still grow, by offset within each.
    open: BTreeMap<u64, Vec<u32>>,
    /// Chunks of which the rows are out of date, and those that are being written.
    changed: BTreeSet<u64>,
    writing: BTreeSet<u64>,
    /// Chunks of which the row of an owner before counts.
    inherited: BTreeMap<u64, Epoch>,
    /// Rows of owners before that count no more, and those that are being taken away.
    outdated: Vec<(u64, Epoch)>,
    removing: Vec<(u64, Epoch)>,
}

/// Chunks that do not grow, and rows that count no more, written with one progress row.
const OTHERS_MAX: usize = 64;

impl Ids {
    /// Of a shard whose ids are listed from a chunk on, or not.
    pub(super) fn open(from: Option<u64>) -> Ids {
        let state = if from.is_some() { State::ToBeRead } else { State::Off };
        Ids { state, from: from.unwrap_or_default(), ..Ids::default() }
    }

    /// The chunk from which on the rows list each id, if they do.
    pub(super) fn listed_from(&mut self) -> Option<u64> {
        if let Some(first) = self.of_chunks.keys().next().filter(|_| !self.is_large) {
            self.from = *first;
        }
        Some(self.from).filter(|_| self.state != State::Off)
    }

    /// Whether there is nothing left to be read.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.state, State::Off | State::Known)
    }

    /// Where the log ends, of which leader.
    pub(super) fn end_told(&mut self, end: u64, leader_epoch: Option<u32>) {
        self.end = Some(match self.end {
            Some((known, of)) if leader_epoch > of => (known.max(end), leader_epoch),
            Some(known) => known,
            None => (end, leader_epoch),
        });
    }

    /// Whether an event can have been decided by no owner before.
    pub(super) fn is_nobody_elses(&self, offset: u64, leader_epoch: Option<u32>) -> bool {
        self.end.is_some_and(|(end, of)| offset >= end && leader_epoch <= of)
    }

    /// Whether an id has no event.
    pub(super) fn is_new(&self, key: &TaskKey) -> bool {
        self.state == State::Known && !self.is_large && !self.known.has(fingerprint(key))
    }

    /// An event of an id is decided.
    pub(super) fn note(&mut self, key: &TaskKey, offset: u64) {
        if self.state != State::Known || planted!(IdNotNoted) {
            return;
        }
        let Ok(short) = u32::try_from(offset) else { return self.give_up() };
        let (print, chunk) = (fingerprint(key), offset / limits::IDS_OF_CHUNK);
        put(self.open.entry(chunk).or_default(), offset, print);
        self.changed.insert(chunk);
        if self.is_large {
            self.count += 1;
        } else if self.known.put(Noted::new(print, short)) {
            self.count += 1;
            *self.of_chunks.entry(chunk).or_default() += 1;
        }
    }

    /// From now on no id is listed.
    fn give_up(&mut self) {
        *self = Ids { end: self.end, ..Ids::default() };
    }

    /// Keeps no more than the chunks that grow. What others hold is not known any more: they are not written.
    fn grow_large(&mut self) {
        self.listed_from();
        self.is_large = true;
        (self.known, self.of_chunks) = (Known::default(), BTreeMap::new());
        let Ids { changed, writing, open, .. } = self;
        [changed, writing].into_iter().for_each(|chunks| chunks.retain(|chunk| open.contains_key(chunk)));
    }

    /// Takes what owners before have listed, if it is no more than `ids_max`. What is still to come lies at `next_offset` and above.
    fn take(&mut self, mut rows: Vec<IdsRow>, next_offset: u64, ids_max: usize) {
        self.state = State::Known;
        rows.sort_by_key(|row| (row.chunk, row.epoch));
        let mut counting = Vec::new();
        for of_chunk in rows.chunk_by(|one, next| one.chunk == next.chunk) {
            let Some((counts, others)) = of_chunk.split_last() else { continue };
            self.outdated.extend(others.iter().map(|row| (row.chunk, row.epoch)));
            self.inherited.insert(counts.chunk, counts.epoch);
            self.count += counts.prints.iter().filter(|print| **print != 0).count();
            if counts.chunk >= next_offset / limits::IDS_OF_CHUNK {
                self.open.insert(counts.chunk, counts.prints.clone());
            }
            counting.push(counts);
        }
        self.is_large = self.count > ids_max;
        let mut entries = Vec::with_capacity(if self.is_large { 0 } else { self.count });
        for row in counting.into_iter().filter(|_| !self.is_large) {
            let first = row.chunk.saturating_mul(limits::IDS_OF_CHUNK);
            for (offset, print) in (first..).zip(&row.prints).filter(|(_, print)| **print != 0) {
                let Ok(short) = u32::try_from(offset) else { return self.give_up() };
                entries.push(Noted::new(*print, short));
                *self.of_chunks.entry(row.chunk).or_default() += 1;
            }
        }
        self.known = Known::of(entries);
    }

    /// The rows that are out of date. Those that grow are to be on record before a progress row is that says that the ids are listed.
    pub(super) fn rows(&mut self, shard: Shard, epoch: Epoch) -> Vec<IdsRow> {
        self.changed.append(&mut self.writing);
        self.outdated.append(&mut self.removing);
        let grows = |chunk: &&u64| self.open.contains_key(chunk);
        let closed: BTreeSet<u64> =
            self.changed.iter().filter(|chunk| !grows(chunk)).take(OTHERS_MAX).copied().collect();
        self.writing = self.changed.iter().filter(grows).chain(&closed).copied().collect();
        self.changed.retain(|chunk| !self.writing.contains(chunk));
        let mut prints = self.prints_of(&closed);
        let grown = self.open.iter().filter(|(chunk, _)| self.writing.contains(chunk));
        prints.extend(grown.map(|(chunk, prints)| (*chunk, prints.clone())));
        self.removing = self.outdated.split_off(self.outdated.len().saturating_sub(OTHERS_MAX));
        let removed = self.removing.iter().map(|(chunk, epoch)| (*chunk, *epoch, Vec::new()));
        let written = prints.into_iter().map(|(chunk, prints)| (chunk, epoch, prints));
        let row = |(chunk, epoch, prints)| IdsRow { shard, chunk, epoch, prints };
        written.chain(removed).map(row).collect()
    }

    /// What is left of chunks that do not grow any more.
    fn prints_of(&self, chunks: &BTreeSet<u64>) -> BTreeMap<u64, Vec<u32>> {
        let mut all: BTreeMap<u64, Vec<u32>> = chunks.iter().map(|chunk| (*chunk, Vec::new())).collect();
        if all.is_empty() {
            return all;
        }
        for entry in self.known.all() {
            if let Some(prints) = all.get_mut(&entry.chunk()) {
                put(prints, entry.offset(), entry.print());
            }
        }
        all
    }

    /// What was to be written is on record, or not; everything below `next_offset` is noted.
    pub(super) fn written(&mut self, is_on_record: bool, next_offset: u64) {
        if !is_on_record {
            self.changed.append(&mut self.writing);
            self.outdated.append(&mut self.removing);
        }
        self.removing.clear();
        for chunk in std::mem::take(&mut self.writing) {
            // Only now that there is a row that counts more.
            self.outdated.extend(self.inherited.remove(&chunk).map(|epoch| (chunk, epoch)));
        }
        let grows = |chunk: u64| chunk >= next_offset / limits::IDS_OF_CHUNK;
        let Ids { open, changed, .. } = self;
        open.retain(|chunk, _| grows(*chunk) || changed.contains(chunk));
    }

    /// Events of these versions are forgotten. Of a large shard they stay listed.
    pub(super) fn forget(&mut self, generation: Generation, events: &[(TaskKey, Version)]) {
        if self.state != State::Known || self.is_large {
            return;
        }
        let of_this = events.iter().filter(|(_, version)| version.generation() == generation);
        let entries = of_this.filter_map(|(key, version)| {
            Some(Noted::new(fingerprint(key), u32::try_from(version.offset()).ok()?))
        });
        for gone in self.known.take(entries.collect()) {
            let chunk = gone.chunk();
            self.count -= 1;
            self.changed.insert(chunk);
            if let Some(prints) = self.open.get_mut(&chunk) {
                put(prints, gone.offset(), 0);
            }
            if let Entry::Occupied(mut left) = self.of_chunks.entry(chunk) {
                *left.get_mut() -= 1;
                if *left.get() == 0 {
                    left.remove();
                }
            }
        }
    }
}

fn put(prints: &mut Vec<u32>, offset: u64, print: u32) {
    let index = (offset % limits::IDS_OF_CHUNK) as usize;
    if prints.len() <= index {
        prints.resize(index + 1, 0);
    }
    prints[index] = print;
    // What is forgotten leaves nothing behind.
    while prints.last() == Some(&0) {
        prints.pop();
    }
}

impl Engine {
    /// Reads the ids that owners before have listed, once.
    pub(super) fn read_ids(&mut self) {
        if self.ids.state == State::ToBeRead {
            let ticket = self.ticket();
            self.ids.state = State::Asked(ticket);
            self.effects.push_back(Effect::ReadIds(ticket, self.ids.from));
        }
    }

    pub(super) fn ids_read(&mut self, ticket: u64, read: Result<Vec<IdsRow>, Failure>) {
        if self.ids.state != State::Asked(ticket) {
            return;
        }
        match read {
            Ok(rows) => {
                self.ids.take(rows, self.commit.next_offset(), self.budget.ids);
                if self.ids.is_large {
                    self.observe(Observation::IdsNotKept(self.ids.count));
                }
                self.bound_ids();
            }
            Err(failure @ Failure::Unavailable(_)) => {
                self.ids.state = State::ToBeRead;
                self.trouble("ids read", &failure);
                self.retry_load();
            }
            Err(failure) => {
                self.trouble("ids read, each is looked up from now on", &failure);
                self.ids.give_up();
            }
        }
    }

    /// A progress row was not written, or its ids were not: what the store refuses is not asked of it again.
    pub(super) fn ids_not_written(&mut self, failure: &Failure) {
        let were_written = !self.ids.changed.is_empty() || !self.ids.outdated.is_empty();
        if were_written && !matches!(failure, Failure::Unavailable(_)) {
            self.ids.give_up();
        }
    }

    /// An event of an id is decided: the id is not new any more.
    pub(super) fn note_id(&mut self, key: &TaskKey, version: Version) {
        self.ids.note(key, version.offset());
        self.bound_ids();
    }

    /// More than there is memory for are not kept.
    pub(super) fn bound_ids(&mut self) {
        let is_too_large = self.ids.count > limits::IDS_OF_SHARD.max(self.budget.ids);
        let grows_large = self.ids.count > self.budget.ids && !self.ids.is_large;
        if is_too_large || grows_large {
            self.observe(Observation::IdsNotKept(self.ids.count));
        }
        if is_too_large {
            self.ids.give_up();
        } else if grows_large {
            self.ids.grow_large();
        }
    }
}
