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
//! The same list says where an event lies: a store may put events that are the first of their ids wherever it is quick to, and finds
//! them by their versions ([`Ids::listed`]). So those that it may have packed are listed as long as they are there, and known to
//! each owner.
//!
//! Two ids may have one fingerprint: then one is looked up for nothing. A shard with more than there is memory for looks every id
//! up, lets none be packed any more, and goes on listing them, for an owner with more room. One with more than
//! [`limits::IDS_OF_SHARD`] and more than it keeps lists those alone that may be packed, and so does one whose log began anew.

mod kept;
mod known;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Epoch, IdsRow, ListedIds, Print, Progress, Shard, TaskKey, Version, limits};

use super::effect::{Effect, Observation};
use super::input::Failure;
use super::{Engine, Stage};
use kept::{Kept, at, put};

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
    /// What lies before this version is on record, or so close above what is that its version is found without a list.
    findable_to: Version,
    /// Each event below what is applied is listed, and not only those that may be packed.
    are_all: bool,
    /// The owner before listed those alone already: so it is on record, and rows may be written without the others.
    was_partial: bool,
    /// From here on no owner before can have packed an event.
    packed_before: Version,
    /// Where generations of the log ended whose last events may be in no list.
    ends: Vec<Version>,
    /// How many events are listed.
    count: usize,
    kept: Kept,
    /// The chunks that still grow, by version within each.
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
    /// Of a shard with this progress.
    pub(super) fn open(progress: &Progress) -> Ids {
        let state = if progress.ids_from.is_some() { State::ToBeRead } else { State::Off };
        let (from, are_all) = (progress.ids_from.unwrap_or_default(), progress.ids_are_all);
        let (was_partial, ends) = (!are_all, progress.ends.clone());
        let next = Version::new(progress.generation, progress.next_offset);
        // One that runs on beside this one may go a little further than the row says that was read.
        let versions = if are_all && state != State::Off { 4 * limits::UNLISTED_VERSIONS_MAX } else { 0 };
        let packed_before = Version(next.0.saturating_add(versions));
        Ids { state, from, are_all, was_partial, packed_before, ends, ..Ids::default() }
    }

    /// The chunk from which on the rows list each event that may be packed, and whether they list all others.
    pub(super) fn listed_from(&mut self) -> (Option<u64>, bool) {
        self.from = self.kept.first_chunk().unwrap_or(self.from);
        (Some(self.from).filter(|_| self.state != State::Off), self.are_all)
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
        self.state == State::Known && self.are_all && self.kept.has_none(Print::of(key, false))
    }

    /// Versions of events that may be packed and an id's, and the one that an owner before may have decided.
    pub(super) fn listed(&self, key: &TaskKey, may_be: Option<Version>) -> Vec<Version> {
        let mut listed = self.kept.packed_of(Print::of(key, true));
        listed.retain(|_| !planted!(ListedNotTold));
        listed.extend(may_be.filter(|version| !listed.contains(version) && !planted!(ReplayNotTold)));
        listed
    }

    /// Whether an owner before may have packed an event that it may have decided.
    pub(super) fn was_packed(&self, version: Version) -> bool {
        version < self.packed_before
    }

    /// Whether an event that is decided now may be packed: its owner has room for it, and whoever reads the list finds it.
    pub(super) fn may_be_packed(&self, version: Version) -> bool {
        self.state == State::Known && self.are_all && self.kept.is_all() && version < self.findable_to
    }

    /// An event of an id is decided.
    fn note(&mut self, key: &TaskKey, version: Version, may_be_packed: bool) {
        let is_listed = self.state == State::Known && (self.are_all || may_be_packed);
        if !is_listed || planted!(IdNotNoted) {
            return;
        }
        let chunk = IdsRow::chunk_of(version);
        let prints = self.open.entry(chunk).or_default();
        // What was said to be packed once may be.
        let print = Print::of(key, may_be_packed || at(prints, version).may_be_packed());
        put(prints, version, print.0);
        self.changed.insert(chunk);
        self.count += usize::from(self.kept.put(version, print));
    }

    /// Keeps what there is room for; true when that is less than before. What is not known any more of chunks that do not grow is not
    /// written.
    fn bound(&mut self, ids_max: usize) -> bool {
        if self.state != State::Known || self.count <= ids_max {
            return false;
        }
        let shrinks = self.kept.is_all();
        if shrinks {
            self.listed_from();
            self.kept.shrink();
            let Ids { changed, writing, open, .. } = self;
            [changed, writing].into_iter().for_each(|chunks| chunks.retain(|chunk| open.contains_key(chunk)));
        }
        let gives_up = self.are_all && self.count > limits::IDS_OF_SHARD;
        self.are_all &= !gives_up;
        shrinks || gives_up
    }

    /// Takes what owners before have listed, as far as there is room for it. What is still to come lies at `next` and above.
    fn take(&mut self, ListedIds { mut rows, unlisted }: ListedIds, next: Version, ids_max: usize) {
        self.state = State::Known;
        rows.sort_by_key(|row| (row.chunk, row.epoch));
        let mut counting: Vec<IdsRow> = Vec::with_capacity(rows.len());
        for row in rows {
            if let Some(outdated) = counting.pop_if(|last| last.chunk == row.chunk) {
                self.outdated.push((outdated.chunk, outdated.epoch));
            }
            counting.push(row);
        }
        if !self.are_all {
            // What is left of the list when nothing of it is packed any more is of no use.
            let is_of_use = |row: &IdsRow| row.events().any(|(_, print)| print.may_be_packed());
            let (of_use, rest): (Vec<IdsRow>, Vec<IdsRow>) = counting.into_iter().partition(is_of_use);
            self.outdated.extend(rest.iter().map(|row| (row.chunk, row.epoch)));
            self.from = of_use.first().map_or(IdsRow::chunk_of(next), |row| row.chunk);
            counting = of_use;
        }
        for row in &counting {
            self.inherited.insert(row.chunk, row.epoch);
            self.count += row.events().count();
            if row.chunk >= IdsRow::chunk_of(next) {
                self.open.insert(row.chunk, row.prints.clone());
            }
        }
        // Those of lower epochs go first: left alone they would count again.
        self.outdated.sort_by_key(|(_, epoch)| Reverse(*epoch));
        let fits = self.are_all && self.count <= ids_max;
        self.kept = if fits { Kept::all(&counting) } else { Kept::packed(&counting) };
        for (key, version) in unlisted {
            self.count += usize::from(self.kept.put(version, Print::of(&key, true)));
        }
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
        let mut prints = self.kept.prints_of(&closed);
        let grown = self.open.iter().filter(|(chunk, _)| self.writing.contains(chunk));
        prints.extend(grown.map(|(chunk, prints)| (*chunk, prints.clone())));
        self.removing = self.outdated.split_off(self.outdated.len().saturating_sub(OTHERS_MAX));
        let removed = self.removing.iter().map(|(chunk, epoch)| (*chunk, *epoch, Vec::new()));
        let written = prints.into_iter().map(|(chunk, prints)| (chunk, epoch, prints));
        let row = |(chunk, epoch, prints)| IdsRow { shard, chunk, epoch, prints };
        written.chain(removed).map(row).collect()
    }

    /// What was to be written is on record, or not; everything below `next` is noted.
    pub(super) fn written(&mut self, is_on_record: bool, next: Version) {
        if is_on_record {
            self.findable_to = Version(next.0.saturating_add(limits::UNLISTED_VERSIONS_MAX));
        } else {
            self.changed.append(&mut self.writing);
            self.outdated.append(&mut self.removing);
        }
        self.removing.clear();
        for chunk in std::mem::take(&mut self.writing) {
            // Only now that there is a row that counts more.
            self.outdated.extend(self.inherited.remove(&chunk).map(|epoch| (chunk, epoch)));
        }
        let grows = |chunk: u64| chunk >= IdsRow::chunk_of(next);
        let Ids { open, changed, .. } = self;
        open.retain(|chunk, _| grows(*chunk) || changed.contains(chunk));
    }

    /// Events of these versions are forgotten. Where more is listed than kept they stay in the rows of chunks that do not grow.
    pub(super) fn forget(&mut self, events: &[(TaskKey, Version)]) {
        if self.state != State::Known {
            return;
        }
        for version in self.kept.take(events) {
            let chunk = IdsRow::chunk_of(version);
            self.count -= 1;
            if self.kept.is_all() || self.was_partial {
                self.changed.insert(chunk);
            }
            if let Some(prints) = self.open.get_mut(&chunk) {
                self.changed.insert(chunk);
                put(prints, version, 0);
            }
        }
    }
}

impl Engine {
    /// Reads the ids that owners before have listed, once.
    pub(super) fn read_ids(&mut self) {
        if self.ids.state == State::ToBeRead {
            let ticket = self.ticket();
            self.ids.state = State::Asked(ticket);
            self.effects.push_back(Effect::ReadIds(ticket, self.ids.from, self.ids.ends.clone()));
        }
    }

    pub(super) fn ids_read(&mut self, ticket: u64, read: Result<ListedIds, Failure>) {
        if self.ids.state != State::Asked(ticket) {
            return;
        }
        match read {
            Ok(listed) => {
                self.ids.take(listed, self.next_version(), self.budget.ids);
                let is_too_much = self.ids.are_all && !self.ids.kept.is_all();
                if self.ids.bound(self.budget.ids) || is_too_much {
                    self.observe(Observation::IdsNotKept(self.ids.count));
                }
            }
            Err(failure) => {
                self.ids.state = State::ToBeRead;
                self.trouble("ids read", &failure);
                self.retry_load();
            }
        }
    }

    /// What comes after what is applied.
    fn next_version(&self) -> Version {
        Version::new(self.commit.generation(), self.commit.next_offset())
    }

    /// An event of an id is decided: the id is not new any more.
    pub(super) fn note_id(&mut self, key: &TaskKey, version: Version, may_be_packed: bool) {
        self.ids.note(key, version, may_be_packed);
        self.bound_ids();
    }

    /// More than there is memory for are not kept.
    pub(super) fn bound_ids(&mut self) {
        if self.ids.bound(self.budget.ids) {
            self.observe(Observation::IdsNotKept(self.ids.count));
        }
    }

    /// Versions of events of these tasks that may be packed; `None` = not known here.
    pub fn listed_versions(&self, keys: &[TaskKey]) -> Option<Vec<Vec<Version>>> {
        // Until it has read as far, an owner before may have decided what it does not know of.
        let has_read = self.stage == Stage::Running && self.commit.next_offset() >= self.intake.decided_to();
        let is_known = has_read && self.ownership.valid(self.now.boot);
        is_known.then(|| keys.iter().map(|key| self.ids.listed(key, None)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_too_far_above_what_is_on_record_is_not_packed() {
        let mut ids = Ids { state: State::ToBeRead, are_all: true, ..Ids::default() };
        assert!(!ids.may_be_packed(Version(0)), "nothing is read");
        ids.take(ListedIds::default(), Version(0), 10);
        assert!(!ids.may_be_packed(Version(0)), "nothing is on record");
        for (is_on_record, next, highest) in [(true, 5, 5), (false, 9, 5), (true, 10, 10)] {
            ids.written(is_on_record, Version(next));
            let first_beyond = highest + limits::UNLISTED_VERSIONS_MAX;
            assert!(
                ids.may_be_packed(Version(first_beyond - 1)) && !ids.may_be_packed(Version(first_beyond))
            );
        }
    }
}
