//! Intake: records in, rows out, and only then visible, in the order of their offsets.
//!
//! ```text
//!   inbox ─► batch: look up ids ─► decide one by one ─► rows written, rejected and forwarded acknowledged ─► visible
//! ```
//!
//! Several batches may be under way; they are decided and become visible in order. `overlay` holds what was decided
//! and may not be found by a look-up yet. The target of a decision is frozen until the decision is visible.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::model::{
    Boot, EventRow, Fact, FactRow, MarkKind, Origin, OriginMark, Place, RejectReason, Rejection, Row, Shard,
    TaskContent, TaskKey, Version, Wall, limits,
};

use super::decide::{Known, Live, Plan, decide, stands};
use super::effect::{Effect, Observation};
use super::fold::{Next, fold};
use super::input::{Failure, Incoming};
use super::load::LoadedTask;
use super::window::Status;
use super::{Engine, Stage};

mod batch;
mod names;
mod rows;

use batch::{Batch, Ground, Item, LookupState};

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
    inbox: VecDeque<Incoming>,
    batches: VecDeque<Batch>,
    visible_batch: u64,
    overlay: BTreeMap<TaskKey, (u64, EventRow)>,
    overlay_log: VecDeque<(u64, Vec<TaskKey>)>,
    fresh: BTreeMap<Place, Fresh>,
    frozen: BTreeMap<Place, u32>,
    /// Marks that an owner before wrote for events not applied yet: their targets are frozen until then.
    early_marks: BTreeSet<(Version, Place)>,
    marks: BTreeMap<Shard, OriginMark>,
    /// Offsets to be forwarded to each home, in order: only the first is under way, since a home takes a record that
    /// comes behind a later one for a repeat.
    forwards: BTreeMap<Shard, VecDeque<u64>>,
}

/// A task whose rows are not visible yet.
#[derive(Debug)]
struct Fresh {
    /// With the payload inline.
    content: Arc<TaskContent>,
    /// An owner before may have decided the same event, and have started the task.
    replayed: bool,
}

const RETRY_MS: u64 = 500;

impl Intake {
    pub(super) fn is_frozen(&self, place: Place) -> bool {
        self.frozen.contains_key(&place)
    }

    /// Append time of the oldest record fetched and not applied.
    pub(super) fn oldest_unapplied(&self) -> Option<Wall> {
        let in_batch =
            self.batches.iter().flat_map(|batch| batch.items.iter().map(|item| item.record.appended));
        in_batch.chain(self.inbox.iter().map(|record| record.appended)).min()
    }

    pub(super) fn next_retry(&self) -> Option<Boot> {
        let batches = self.batches.iter().filter_map(Batch::next_retry);
        batches.chain(self.seek_at).chain(self.fetch_at).min()
    }

    pub(super) fn backlog(&self) -> usize {
        self.inbox.len() + self.batches.iter().map(|batch| batch.items.len()).sum::<usize>()
    }
}

impl Engine {
    /// Seeks the log to where the store ends.
    pub(super) fn begin_intake(&mut self) {
        if self.intake.sought || self.intake.seeking.is_some() || !self.ownership.assigned() {
            return;
        }
        if !self.intake.reading && self.intake.backlog() == 0 {
            self.intake.next_expected = self.commit.next_offset();
            self.intake.marks = self.commit.origin_marks();
        }
        self.intake.reading = true;
        self.seek();
    }

    fn seek(&mut self) {
        self.intake.seek_at = None;
        let ticket = self.ticket();
        self.intake.seeking = Some(ticket);
        self.effects.push_back(Effect::Seek(ticket, self.intake.next_expected));
    }

    /// The shard was assigned again while it was held: go on where fetching stopped.
    pub(super) fn resume_intake(&mut self) {
        self.intake.sought = false;
        self.intake.seeking = None;
        self.intake.fetching = None;
        if matches!(self.stage, Stage::CatchingUp | Stage::Running) && self.commit.target().is_some() {
            self.begin_intake();
        } else if self.stage == Stage::Running {
            self.begin_catch_up();
        }
    }

    pub(super) fn stop_intake(&mut self) {
        self.intake.reading = false;
        self.intake.sought = false;
        self.intake.seeking = None;
        self.intake.fetching = None;
        self.intake.seek_at = None;
        self.intake.fetch_at = None;
        self.effects.push_back(Effect::StopFetch);
    }

    pub(super) fn sought(&mut self, ticket: u64, sought: Result<(), Failure>) {
        if self.intake.seeking.take_if(|asked| *asked == ticket).is_none() {
            return;
        }
        match sought {
            Ok(()) => self.intake.sought = true,
            Err(Failure::OffsetGone(why)) => self.stop_shard(why),
            Err(failure) => {
                self.trouble("log seek", &failure);
                self.intake.seek_at = Some(self.now.boot.plus_ms(RETRY_MS));
            }
        }
    }

    pub(super) fn fetched(&mut self, ticket: u64, records: Result<Vec<Incoming>, Failure>) {
        if self.intake.fetching.take_if(|asked| *asked == ticket).is_none() {
            return;
        }
        match records {
            Ok(records) => {
                self.log_heard();
                let intake = &mut self.intake;
                for record in records {
                    if record.offset >= intake.next_expected {
                        intake.next_expected = record.offset + 1;
                        intake.inbox.push_back(record);
                    }
                }
            }
            Err(Failure::OffsetGone(why)) => self.stop_shard(why),
            Err(failure) => {
                self.trouble("log fetch", &failure);
                self.intake.fetch_at = Some(self.now.boot.plus_ms(RETRY_MS));
            }
        }
    }

    /// Moves every batch on as far as it goes.
    pub(super) fn drive_intake(&mut self) {
        if !matches!(self.stage, Stage::CatchingUp | Stage::Running) || !self.ownership.valid(self.now.boot) {
            return;
        }
        if self.intake.seek_at.is_some_and(|at| at <= self.now.boot) && self.intake.reading {
            self.seek();
        }
        self.form_batches();
        self.retry_batches();
        self.decide_batches();
        self.complete_batches();
        self.fetch_more();
    }

    fn fetch_more(&mut self) {
        let intake = &mut self.intake;
        intake.fetch_at.take_if(|at| *at <= self.now.boot);
        let waits = intake.fetch_at.is_some();
        let room = intake.inbox.len() < limits::INTAKE_BATCH_RECORDS_MAX;
        if intake.reading && intake.sought && intake.fetching.is_none() && room && !waits {
            let ticket = self.ticket();
            self.intake.fetching = Some(ticket);
            self.effects.push_back(Effect::Fetch(ticket));
        }
    }

    fn form_batches(&mut self) {
        while self.intake.batches.len() < limits::INTAKE_BATCHES_MAX && !self.intake.inbox.is_empty() {
            let ground = Ground {
                shard: self.options.shard,
                shards: self.options.shards,
                generation: self.commit.generation(),
            };
            let id = self.ticket();
            let batch = Batch::form(id, &mut self.intake.inbox, &ground, self.intake.visible_batch);
            let lookups = batch.lookups();
            self.intake.batches.push_back(batch);
            if !lookups.is_empty() {
                self.effects.push_back(Effect::LookUp(id, lookups));
            }
        }
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
        let Some(batch) = self.intake.batches.iter_mut().find(|batch| batch.id == id) else { return };
        match rows {
            Ok(rows) => batch.found(rows),
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
            self.decided(index);
        }
    }

    /// Decides one item; false when something has to be read first.
    fn decide_next(&mut self, index: usize) -> bool {
        let item = self.intake.batches[index].next_item();
        let version = Version::new(self.commit.generation(), item.record.offset);
        let offset = item.record.offset;
        if let Some(rejection) = item.rejection.clone() {
            self.reject(index, offset, rejection);
        } else if let Some(to) = item.forward_to {
            self.forward(index, offset, to);
        } else if !self.repeats_origin(index, offset) {
            match self.plan(index, version) {
                Ok(plan) => self.carry_out(index, version, plan),
                Err(need) => {
                    self.intake.batches[index].waits_for = Some(need);
                    self.ask(need);
                    return false;
                }
            }
        }
        self.intake.batches[index].next += 1;
        true
    }

    fn ask(&mut self, need: Need) {
        let ticket = self.ticket();
        self.effects.push_back(match need {
            Need::Facts(place) => Effect::ReadFacts(ticket, place),
            Need::Payload(place) => Effect::ReadPayload(ticket, place),
        });
    }

    fn reject(&mut self, index: usize, offset: u64, rejection: Rejection) {
        self.observe(Observation::Rejected(rejection.reason));
        self.intake.batches[index].produces.insert(offset, Some(rejection.clone()));
        self.effects.push_back(Effect::Reject(offset, rejection));
    }

    fn forward(&mut self, index: usize, offset: u64, to: Shard) {
        self.observe(Observation::Forwarded);
        self.intake.batches[index].produces.insert(offset, None);
        let line = self.intake.forwards.entry(to).or_default();
        line.push_back(offset);
        if line.len() == 1 {
            self.effects.push_back(Effect::Forward(offset, to));
        }
    }

    /// Ends the forward under way to `to`, and sends the next. False when `offset` is not the one under way.
    fn forwarded(&mut self, offset: u64, to: Shard) -> bool {
        let Some(line) = self.intake.forwards.get_mut(&to).filter(|line| line.front() == Some(&offset))
        else {
            return false;
        };
        line.pop_front();
        if let Some(next) = line.front() {
            self.effects.push_back(Effect::Forward(*next, to));
        }
        true
    }

    /// A forwarded record that was applied here before changes nothing.
    fn repeats_origin(&mut self, index: usize, offset: u64) -> bool {
        let Some(origin) = self.intake.batches[index].next_item().origin() else { return false };
        let known = self.intake.marks.get(&origin.shard);
        let seen = known.is_some_and(|mark| {
            let (then, at) = ((mark.generation, mark.origin_offset), (origin.generation, origin.offset));
            at < then || (at == then && offset > mark.home_offset)
        });
        if !seen {
            self.intake.marks.insert(origin.shard, mark_of(origin, offset));
        }
        seen
    }

    fn plan(&mut self, index: usize, version: Version) -> Result<Plan, Need> {
        let batch = &self.intake.batches[index];
        let item = batch.next_item();
        let (event, key) = item.event_and_key();
        let recorded = batch.recorded(key, version);
        let newest = match self.intake.overlay.get(key) {
            Some((_, row)) => Some(row),
            None => batch.newest_below(key, version),
        };
        let live = match newest.and_then(|row| row.current) {
            Some(current) if recorded.is_none() => self.live(batch, key, current.place)?,
            Some(_) | None => Live::Finished,
        };
        let known = Known {
            version,
            appended: item.record.appended,
            asked: item.origin().map_or(item.record.appended, |origin| origin.appended),
            newest,
            live,
            watermark: self.commit.watermark(),
            repeat_window_ms: self.options.repeat_window_ms,
        };
        let mut plan = match recorded {
            Some(row) => stands(event, row, newest, &known),
            None => decide(event, &known),
        };
        if let Some(task) = plan.task.as_mut().filter(|task| task.content.is_none()) {
            let from = newest.and_then(|row| row.current).map(|current| current.place);
            task.content = from.map(|place| self.content_at(batch, place)).transpose()?.flatten();
        }
        if plan.task.as_ref().is_some_and(|task| task.content.is_none()) {
            plan.task = None;
        }
        Ok(plan)
    }

    /// Where the task at `place` stands, read from the store when memory does not know.
    fn live(&self, batch: &Batch, key: &TaskKey, place: Place) -> Result<Live, Need> {
        if let Some(task) = self.window.get(place) {
            return Ok(match task.status {
                Status::Pending | Status::Queued | Status::Fetching => Live::Stoppable,
                Status::Starting | Status::Running | Status::Ending | Status::Held => Live::Open,
            });
        }
        let live = |facts: Vec<&Fact>| match fold(facts, self.commit.applied_to()).next() {
            Next::Run(_) => Live::Stoppable,
            Next::Open(_) => Live::Open,
            Next::Finished(_) => Live::Finished,
        };
        if let Some(facts) = self.window.early(place) {
            return Ok(live(facts.iter().collect()));
        }
        let (covered, fresh) = (self.window.covers(place), self.intake.fresh.get(&place));
        if fresh.is_some_and(|fresh| covered || !fresh.replayed) {
            return Ok(Live::Stoppable);
        }
        if covered && !self.late.has(&key.queue) {
            return Ok(Live::Finished);
        }
        if place.ready_at > self.now.wall {
            return Ok(Live::Stoppable);
        }
        let rows = batch.facts.get(&place).ok_or(Need::Facts(place))?;
        Ok(live(rows.iter().map(|row| &row.fact).collect()))
    }

    /// What the task at `place` runs. `None` when the store has no such task.
    fn content_at(&self, batch: &Batch, place: Place) -> Result<Option<Arc<TaskContent>>, Need> {
        let known = self.window.get(place).map(|task| task.content.clone());
        let known = known.or_else(|| self.intake.fresh.get(&place).map(|fresh| fresh.content.clone()));
        let content = match known {
            Some(content) => Some(content),
            None => {
                let rows = batch.facts.get(&place).ok_or(Need::Facts(place))?;
                LoadedTask::from_rows(rows).map(|task| task.content)
            }
        };
        let Some(content) = content else { return Ok(None) };
        if super::effect::inline(&content.payload).is_some() {
            return Ok(Some(content));
        }
        match batch.payloads.get(&place) {
            None => Err(Need::Payload(place)),
            Some(bytes) => {
                let payload = crate::model::Payload::Inline(bytes.clone());
                Ok(Some(Arc::new(TaskContent { payload, ..(*content).clone() })))
            }
        }
    }

    fn carry_out(&mut self, index: usize, version: Version, plan: Plan) {
        self.observe(Observation::Decided(plan.decision));
        let (epoch, shard) = (self.epoch(), self.options.shard);
        if let Some((place, _)) = plan.mark {
            self.freeze(place);
        }
        if plan.decision == crate::model::Decision::Conflict {
            let detail = "another task of this id is unfinished and `on_conflict` is `reject`".into();
            let offset = version.offset();
            self.reject(index, offset, Rejection { reason: RejectReason::Conflict, detail });
        }
        let batch = &mut self.intake.batches[index];
        let replayed = batch.may_be_replayed(version);
        let row = batch.carry_out(version, plan, epoch, shard);
        let item = batch.next_item();
        if let Some(task) = &item.task {
            self.intake.fresh.insert(task.place, Fresh { content: task.content.clone(), replayed });
        }
        self.intake.overlay.insert(row.key.clone(), (batch.id, row));
    }

    /// What is decided about a task comes first: it leaves its line until that is visible.
    fn freeze(&mut self, place: Place) {
        *self.intake.frozen.entry(place).or_insert(0) += 1;
        let queue = self.window.get(place).map(|task| task.key.queue.clone());
        if let Some(queue) = queue {
            self.unline_if(&queue, place);
        }
    }

    /// A mark was loaded whose event is still to be applied. Its answer may have been given already.
    pub(super) fn freeze_until(&mut self, by: Version, place: Place) {
        if self.intake.early_marks.insert((by, place)) {
            self.freeze(place);
        }
    }

    fn thaw_applied(&mut self) {
        let end = (self.commit.applied_to(), Place::start_of(Wall::MIN));
        let later = self.intake.early_marks.split_off(&end);
        for (_, place) in std::mem::replace(&mut self.intake.early_marks, later) {
            self.thaw(place);
            self.repump(place);
        }
    }

    fn repump(&mut self, place: Place) {
        if let Some(queue) = self.window.get(place).map(|task| task.key.queue.clone()) {
            self.pump(&queue);
        }
    }

    fn thaw(&mut self, place: Place) {
        if let Some(count) = self.intake.frozen.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.intake.frozen.remove(&place);
            }
        }
    }

    /// All items of a batch are decided: its rows go to the store.
    fn decided(&mut self, index: usize) {
        let batch = &mut self.intake.batches[index];
        let (id, keys) = (batch.id, batch.overlay_keys());
        self.intake.overlay_log.push_back((id, keys));
        self.drop_overlay();
        self.write_next_group(index);
    }

    /// Forgets overlay rows that every look-up still out was sent after.
    fn drop_overlay(&mut self) {
        let undecided = self.intake.batches.iter().filter(|batch| !batch.is_decided());
        let floor =
            undecided.map(|batch| batch.sent_after).min().unwrap_or(u64::MAX).min(self.intake.visible_batch);
        while self.intake.overlay_log.front().is_some_and(|(id, _)| *id <= floor) {
            let Some((id, keys)) = self.intake.overlay_log.pop_front() else { return };
            for key in keys {
                if self.intake.overlay.get(&key).is_some_and(|(batch, _)| *batch == id) {
                    self.intake.overlay.remove(&key);
                }
            }
        }
    }

    fn write_next_group(&mut self, index: usize) {
        let batch = &mut self.intake.batches[index];
        let id = batch.id;
        if let Some(rows) = batch.take_group() {
            self.write_batch(id, rows);
        }
    }

    pub(super) fn batch_written(&mut self, id: u64) {
        let Some(index) = self.intake.batches.iter().position(|batch| batch.id == id) else { return };
        self.intake.batches[index].writing = false;
        self.write_next_group(index);
    }

    /// The store takes other rows, not this one: its event is rejected, the rest of the batch goes on.
    pub(super) fn row_refused(&mut self, id: u64, rows: &[Row], refused: usize, detail: &str) {
        let Some(index) = self.intake.batches.iter().position(|batch| batch.id == id) else { return };
        let batch = &mut self.intake.batches[index];
        let version = rows.get(refused).map(rows::version_of);
        let rest = rows.iter().filter(|row| Some(rows::version_of(row)) != version).cloned().collect();
        batch.put_back(rest);
        let Some(version) = version else { return self.write_next_group(index) };
        if let Some(item) = batch.items.iter_mut().find(|item| item.record.offset == version.offset()) {
            let (task, mark) = (item.task.take(), item.mark.take());
            if let Some(task) = task {
                self.intake.fresh.remove(&task.place);
            }
            if let Some((place, _)) = mark {
                self.thaw(place);
                self.repump(place);
            }
        }
        let detail = format!("the store refuses it: {detail}");
        self.reject(index, version.offset(), Rejection { reason: RejectReason::RefusedByStore, detail });
        self.write_next_group(index);
    }

    pub(super) fn produced(&mut self, offset: u64, produced: Result<(), Failure>) {
        let now = self.now.boot;
        let holds = |batch: &Batch| batch.produces.contains_key(&offset);
        let Some(index) = self.intake.batches.iter().position(holds) else { return };
        let to = self.intake.batches[index].forwards_to(offset);
        match produced {
            Ok(()) => {
                if to.is_none_or(|to| self.forwarded(offset, to)) {
                    self.intake.batches[index].produces.remove(&offset);
                }
            }
            Err(failure) => {
                let batch = &mut self.intake.batches[index];
                batch.produce_retries.insert(offset, now.plus_ms(RETRY_MS));
                self.trouble("produce", &failure);
            }
        }
    }

    pub(super) fn facts_read(&mut self, place: Place, rows: Result<Vec<FactRow>, Failure>) {
        let now = self.now.boot;
        let wants = |batch: &&mut Batch| batch.waits_for == Some(Need::Facts(place));
        match rows {
            Ok(rows) => {
                self.held_facts_read(place, &rows);
                let Some(batch) = self.intake.batches.iter_mut().find(wants) else { return };
                if std::mem::take(&mut batch.read_again) {
                    return self.ask(Need::Facts(place));
                }
                batch.waits_for = None;
                batch.facts.insert(place, rows);
            }
            Err(failure) => {
                if let Some(batch) = self.intake.batches.iter_mut().find(wants) {
                    batch.need_at = Some(now.plus_ms(RETRY_MS));
                }
                self.trouble("facts read", &failure);
            }
        }
    }

    pub(super) fn payload_read(&mut self, place: Place, payload: Result<Option<Arc<[u8]>>, Failure>) {
        let now = self.now.boot;
        if let Some(batch) =
            self.intake.batches.iter_mut().find(|batch| batch.waits_for == Some(Need::Payload(place)))
        {
            match &payload {
                Ok(bytes) => {
                    let bytes = bytes.clone().unwrap_or_else(|| Arc::from(&b"null"[..]));
                    batch.payloads.insert(place, bytes);
                    batch.waits_for = None;
                }
                Err(_) => batch.need_at = Some(now.plus_ms(RETRY_MS)),
            }
        }
        self.task_payload_read(place, payload);
    }

    /// What was read of a place is out of date.
    pub(super) fn forget_facts(&mut self, place: Place) {
        self.intake.batches.iter_mut().for_each(|batch| batch.forget_facts(place));
    }

    /// Shows what is durable, in order.
    fn complete_batches(&mut self) {
        while self.intake.batches.front().is_some_and(Batch::is_complete) {
            let Some(batch) = self.intake.batches.pop_front() else { return };
            self.intake.visible_batch = batch.id;
            let last = batch.items.last().map(|item| (item.record.offset, item.record.appended));
            for item in batch.items {
                self.show(item);
            }
            if let Some((offset, appended)) = last {
                self.commit.advance(offset + 1, appended);
            }
            self.thaw_applied();
            self.drop_overlay();
        }
    }

    fn show(&mut self, item: Item) {
        if let Some(origin) = item.origin().filter(|_| item.rejection.is_none()) {
            let at = (origin.generation, origin.offset);
            if self.commit.origin_mark(origin.shard).is_none_or(|known| at > known) {
                self.commit.set_origin_mark(origin.shard, mark_of(origin, item.record.offset));
            }
        }
        if let Some((place, mark)) = item.mark {
            self.show_mark(place, mark);
        }
        let Some(task) = item.task else { return };
        self.intake.fresh.remove(&task.place);
        self.forget_facts(task.place);
        let cancelled = item.mark.is_some_and(|(place, _)| place == task.place);
        let next = fold(&self.window.take_early(task.place), Version::MIN).next();
        let shown = LoadedTask { key: task.key, due_at: task.due_at, content: task.stored };
        if cancelled || self.window.get(task.place).is_some() {
            return;
        }
        if self.window.covers(task.place) {
            self.late.tally.note(task.place.ready_at);
            self.admit_folded(task.place, shown, next, None);
        } else {
            self.window.note_shown(task.place, shown, next);
        }
    }

    fn show_mark(&mut self, place: Place, mark: MarkKind) {
        self.thaw(place);
        self.window.note_mark(place, mark);
        self.late_mark_shown(place);
        let Some(task) = self.window.get_mut(place) else { return };
        let (name, status) = (task.key.queue.clone(), task.status);
        match status {
            Status::Pending | Status::Queued => self.stop_marked(place, mark),
            Status::Fetching => {
                let handler = task.content.handler.clone();
                self.lines.unused(&handler);
                self.stop_marked(place, mark);
            }
            Status::Starting | Status::Running | Status::Ending | Status::Held => {
                task.mark = Some(mark);
                self.pump(&name);
            }
        }
    }
}

fn mark_of(origin: Origin, home_offset: u64) -> OriginMark {
    OriginMark { generation: origin.generation, origin_offset: origin.offset, home_offset }
}

/// What has to be read before an event can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Facts(Place),
    Payload(Place),
}
