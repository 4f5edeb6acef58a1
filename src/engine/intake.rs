//! Intake: records in, rows out, and only then visible, in the order of their offsets.
//!
//! ```text
//!   inbox ─► batch: look up ids ─► decide one by one ─► rows written, rejected and forwarded acknowledged ─► visible
//! ```
//!
//! Several batches may be under way; they become visible in order. Of one id one event is under way at a time: the next is
//! looked up and decided when the one before is on record, so no decision rests on one that may still be refused or lost.
//! A batch with several events of an id decides and writes them in rounds, one of each id in a round. The target of a
//! decision is frozen until the decision is visible.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crate::model::{Boot, EventRow, Origin, OriginMark, Place, Shard, Version, Wall, limits};

use super::effect::Effect;
use super::input::{Failure, Incoming};
use super::{Engine, Stage};

mod ahead;
mod batch;
mod item;
mod judge;
mod names;
mod quota;
mod rows;

mod apply;
mod freeze;
mod produce;
mod read;

use batch::{Batch, LookupState};
use item::Ground;
use quota::Quotas;

/// The intake of a shard.
#[derive(Debug, Default)]
pub(super) struct Intake {
    reading: bool,
    seek_at: Option<Boot>,
    seeking: Option<u64>,
    sought: bool,
    fetching: Option<u64>,
    fetch_at: Option<Boot>,
    next_expected: u64,
    /// Where the log ended when this owner began to read it: an owner before may have decided what lies below.
    decided_to: Option<u64>,
    inbox: VecDeque<Incoming>,
    batches: VecDeque<Batch>,
    /// What was applied when this owner began to read, and is to be read again for what is to be published of it.
    again: Option<Range<u64>>,
    /// What inbox and batches take in memory.
    bytes: usize,
    frozen: BTreeMap<Place, u32>,
    /// Marks that an owner before wrote for events not applied yet: their targets are frozen until then.
    early_marks: BTreeSet<(Version, Place)>,
    marks: BTreeMap<Shard, OriginMark>,
    /// Offsets to be forwarded to each home, in order: only the first is under way, since a home takes a record that
    /// comes behind a later one for a repeat.
    forwards: BTreeMap<Shard, VecDeque<u64>>,
    quotas: Quotas,
}

const RETRY_MS: u64 = 500;

impl Intake {
    pub(super) fn is_frozen(&self, place: Place) -> bool {
        self.frozen.contains_key(&place)
    }

    /// An owner before may have decided what lies below this offset.
    pub(super) fn decided_to(&self) -> u64 {
        self.decided_to.unwrap_or(u64::MAX)
    }

    /// What was read again up to this offset is decided.
    fn decided_again_to(&mut self, offset: u64) {
        if let Some(again) = &mut self.again {
            again.start = offset.min(again.end);
        }
    }

    /// Append time of the oldest record fetched and not applied.
    pub(super) fn oldest_unapplied(&self) -> Option<Wall> {
        let in_batch =
            self.batches.iter().flat_map(|batch| batch.items.iter().map(|item| item.record.appended));
        in_batch.chain(self.inbox.iter().map(|record| record.appended)).min()
    }

    /// What was being written about a task is on record.
    pub(super) fn on_record(&mut self, place: Place) {
        for batch in &mut self.batches {
            batch.waits_for.take_if(|need| *need == Need::Record(place));
        }
    }

    /// The offset after the last one fetched.
    #[cfg(feature = "testing")]
    pub(super) fn fetched_to(&self) -> u64 {
        self.next_expected
    }

    pub(super) fn next_retry(&self) -> Option<Boot> {
        let batches = self.batches.iter().filter_map(Batch::next_retry);
        batches.chain(self.seek_at).chain(self.fetch_at).min()
    }

    /// A look-up or read failed and waits to be asked again.
    pub(super) fn stuck_on_store(&self) -> bool {
        self.batches.iter().any(Batch::waits_for_store)
    }

    /// The log failed and waits to be asked again.
    pub(super) fn stuck_on_log(&self) -> bool {
        let produce_failed = |batch: &Batch| !batch.produce_retries.is_empty();
        self.seek_at.is_some() || self.fetch_at.is_some() || self.batches.iter().any(produce_failed)
    }

    /// Nothing is fetched because what is under way takes all of its share.
    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.reading && self.fetching.is_none() && !self.has_room(bytes_max)
    }

    /// Whether one more fetch, a third of the share, fits. One record always does.
    fn has_room(&self, bytes_max: usize) -> bool {
        self.bytes == 0 || self.bytes + bytes_max / limits::INTAKE_BATCHES_MAX <= bytes_max
    }

    pub(super) fn backlog(&self) -> usize {
        self.inbox.len() + self.batches.iter().map(|batch| batch.items.len()).sum::<usize>()
    }
}

impl Engine {
    /// Moves every batch on as far as it goes; while the tasks are read, records are only fetched and looked up.
    pub(super) fn drive_intake(&mut self) {
        if matches!(self.stage, Stage::Out | Stage::Stopped) || !self.ownership.valid(self.now.boot) {
            return;
        }
        if self.intake.seek_at.is_some_and(|at| at <= self.now.boot) && self.intake.reading {
            self.seek();
        }
        if self.stage == Stage::Loading {
            if self.may_load() {
                self.retry_batches();
                self.form_batches_while_loading();
            }
            return self.fetch_more();
        }
        self.retry_batches();
        loop {
            self.form_batches();
            self.decide_batches();
            self.write_groups();
            if !self.complete_batches() && !self.next_rounds() {
                break;
            }
        }
        self.fetch_more();
    }

    /// No batch leaves before the tasks are read: those that trickle in behind the first wait for each other.
    fn form_batches_while_loading(&mut self) {
        let Intake { inbox, batches, .. } = &self.intake;
        if !self.ids.is_read() {
            return;
        }
        if batches.is_empty() || inbox.len() >= limits::INTAKE_BATCH_RECORDS_MAX {
            self.form_batches();
        }
    }

    fn form_batches(&mut self) {
        while self.intake.batches.len() < limits::INTAKE_BATCHES_MAX && !self.intake.inbox.is_empty() {
            let id = self.ticket();
            let ground = Ground {
                shard: self.options.shard,
                shards: self.options.shards,
                generation: self.commit.generation(),
                decided_to: self.intake.decided_to(),
                applied_to: self.intake.again.as_ref().map_or(0, |again| again.end),
                ids: &self.ids,
            };
            let Intake { inbox, batches, .. } = &mut self.intake;
            let Some(mut batch) = Batch::form(id, inbox, &ground, batches) else { return };
            if !batch.is_again {
                self.note_origins(&mut batch);
            }
            self.effects.extend(batch.look_up());
            self.intake.batches.push_back(batch);
        }
    }

    /// Begins the next round of batches whose events before are on record. True when there was one.
    fn next_rounds(&mut self) -> bool {
        let mut have_begun = false;
        for index in 0..self.intake.batches.len() {
            if self.intake.batches[index].has_come_on_record() {
                self.show_to_calls(index);
            }
            let batch = &mut self.intake.batches[index];
            if batch.next_round(&self.ids) {
                have_begun = true;
                self.effects.extend(batch.look_up());
            }
        }
        have_begun
    }

    fn retry_batches(&mut self) {
        let now = self.now.boot;
        let mut needs = Vec::new();
        for batch in &mut self.intake.batches {
            needs.extend(batch.need_again(now));
            self.effects.extend(batch.retries(now));
        }
        for need in needs {
            self.ask(need);
        }
    }

    pub(super) fn looked_up(&mut self, id: u64, rows: Result<Vec<Vec<EventRow>>, Failure>) {
        let now = self.now.boot;
        let Some(index) = self.intake.batches.iter().position(|batch| batch.id == id) else { return };
        let batch = &mut self.intake.batches[index];
        match rows {
            Ok(rows) => {
                batch.found(rows);
                self.read_ahead(index);
            }
            Err(failure) => {
                batch.lookup = LookupState::Retry(now.plus_ms(RETRY_MS));
                self.trouble("look-up", &failure);
            }
        }
    }

    /// Decides the items of the first batch that is not decided, in order.
    fn decide_batches(&mut self) {
        for index in 0..self.intake.batches.len() {
            let batch = &self.intake.batches[index];
            if batch.is_decided() {
                continue;
            }
            if batch.lookup != LookupState::Done || batch.waits_for.is_some() {
                return;
            }
            while !self.intake.batches[index].is_decided() {
                if !self.decide_next(index) {
                    return;
                }
            }
        }
    }

    /// Decides one item; false when something has to be read first.
    fn decide_next(&mut self, index: usize) -> bool {
        let item = self.intake.batches[index].next_item();
        let version = Version::new(self.commit.generation(), item.record.offset);
        let offset = item.record.offset;
        if self.intake.batches[index].is_again {
            self.decide_again(index, version);
        } else if let Some(rejection) = item.rejection.clone() {
            self.reject(index, offset, rejection);
        } else if let Some(to) = item.forward_to {
            self.forward(index, offset, to);
        } else if !item.is_known_origin {
            match self.plan(index, version) {
                Ok(plan) => self.carry_out(index, version, plan),
                Err(need) => {
                    let batch = &mut self.intake.batches[index];
                    batch.waits_for = Some(need);
                    let is_asked = matches!(need, Need::Facts(place) if batch.ahead.is_out(place));
                    if !is_asked {
                        self.ask(need);
                    }
                    return false;
                }
            }
        }
        self.intake.batches[index].pass();
        true
    }

    /// What was applied before is published as its row says.
    fn decide_again(&mut self, index: usize, version: Version) {
        let batch = &self.intake.batches[index];
        let row = batch.next_item().own_key().and_then(|key| batch.recorded(key, version)).cloned();
        if let Some(row) = row {
            self.note_decision(index, &row);
        }
    }

    fn ask(&mut self, need: Need) {
        let ticket = self.ticket();
        self.effects.push_back(match need {
            Need::Facts(place) => Effect::ReadFacts(ticket, place),
            Need::Payload(place) => Effect::ReadPayload(ticket, place),
            Need::Record(_) => return,
        });
    }
}

/// About: the record as read, as decoded, and as rows.
fn memory_of(record: &Incoming) -> usize {
    limits::INTAKE_RECORD_BYTES + 3 * record.bytes
}

fn mark_of(origin: Origin, home_offset: u64) -> OriginMark {
    OriginMark { generation: origin.generation, origin_offset: origin.offset, home_offset }
}

/// What has to be known before an event can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Facts(Place),
    Payload(Place),
    /// The start or the closing that is being written: "too late" is true only when it is on record.
    Record(Place),
}
