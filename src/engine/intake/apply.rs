//! From decided to visible: rows are written, and what they say is shown once every earlier offset is durable too.

use std::sync::Arc;

use crate::model::{
    Decision, EventRow, FactRow, MarkKind, Place, RejectReason, Rejection, Row, Verb, Version,
};

use super::super::Engine;
use super::super::decide::Plan;
use super::super::effect::Observation;
use super::super::fold::{Next, fold};
use super::super::input::Failure;
use super::super::load::LoadedTask;
use super::super::window::Status;
use super::batch::Batch;
use super::item::Item;
use super::{Need, RETRY_MS, mark_of, memory_of, rows};

impl Engine {
    pub(super) fn carry_out(&mut self, index: usize, version: Version, mut plan: Plan) {
        self.observe(Observation::Decided(plan.decision));
        let (epoch, shard) = (self.epoch(), self.options.shard);
        plan.mark = plan.mark.filter(|(place, _)| !planted!(FarCancelLost) || self.window.covers(*place));
        if let Some((place, _)) = plan.mark.filter(|_| !planted!(AnsweredBeforeVisible)) {
            self.freeze(place);
        }
        self.mind_quotas(index, version, &plan);
        if plan.decision == Decision::Conflict {
            let detail = "another task of this id is unfinished and `on_conflict` is `reject`".into();
            let offset = version.offset();
            self.reject(index, offset, Rejection { reason: RejectReason::Conflict, detail });
        }
        let batch = &mut self.intake.batches[index];
        let (row, may_be_packed) = batch.carry_out(version, plan, (epoch, shard), &self.ids);
        self.note_id(&row.key, version, may_be_packed && !planted!(PackedNotNoted));
        self.note_decision(index, &row);
    }

    /// Notes what is to be published of a decision.
    pub(super) fn note_decision(&mut self, index: usize, row: &EventRow) {
        let batch = &self.intake.batches[index];
        let (event, _) = batch.next_item().event_and_key();
        let content = match &event.verb {
            Verb::Schedule(_, content) => Some(&**content),
            _ => row.current.and_then(|current| batch.made(current.place)).map(|task| &*task.content),
        };
        let told = self.event_of_decision(row, content);
        self.intake.batches[index].tells.extend(told.map(|event| (row.version, event)));
    }

    /// Sends what is to be written next of each batch. Only under the lease: a further group rests on the one before it,
    /// and that counts for the next owner only when it was on record before the lease ended.
    pub(super) fn write_groups(&mut self) {
        let ready = self.intake.batches.iter_mut().filter(|batch| batch.is_decided() && !batch.writing);
        let groups: Vec<(u64, Vec<Row>)> =
            ready.filter_map(|batch| Some((batch.id, batch.take_group()?))).collect();
        for (id, rows) in groups {
            self.write_batch(id, rows);
        }
    }

    pub(in crate::engine) fn batch_written(&mut self, id: u64) {
        let Some(batch) = self.intake.batches.iter_mut().find(|batch| batch.id == id) else { return };
        batch.writing = false;
        if planted!(GroupWithoutLease) {
            self.write_groups();
        }
    }

    /// A request of a batch was answered, or not: its marks may be on record, but for a row that was refused.
    pub(in crate::engine) fn marks_are_out(&mut self, id: u64, rows: &[Row], refused: Option<usize>) {
        if let Some(batch) = self.intake.batches.iter_mut().find(|batch| batch.id == id) {
            let others = rows.iter().enumerate().filter(|(index, _)| Some(*index) != refused);
            batch.marks_are_out(others.map(|(_, row)| row));
        }
    }

    /// Whether the event of a row cannot be rejected any more: its mark may be on record.
    pub(in crate::engine) fn has_to_be_stored(&self, id: u64, row: &Row) -> bool {
        let version = rows::version_of(row);
        // Its mark on its own task says only that an owner before rejected it.
        let is_early = |(by, place): &(Version, Place)| *by == version && place.version != version;
        let early = self.intake.early_marks.iter().any(is_early);
        let batch = self.intake.batches.iter().find(|batch| batch.id == id);
        let out = early || batch.is_some_and(|batch| batch.mark_is_out(version));
        out && !planted!(RefusedAfterItsMark)
    }

    /// The store takes other rows, not this one: its event is rejected, the rest of the batch goes on.
    pub(in crate::engine) fn row_refused(&mut self, id: u64, rows: &[Row], refused: usize, detail: &str) {
        let Some(index) = self.intake.batches.iter().position(|batch| batch.id == id) else { return };
        let epoch = self.epoch();
        let batch = &mut self.intake.batches[index];
        let Some(version) = rows.get(refused).map(rows::version_of) else {
            return batch.put_back(rows.to_vec());
        };
        let rest = rows.iter().filter(|row| rows::version_of(row) != version);
        let mut rest: Vec<Row> = rest.cloned().collect();
        let item = batch.items.iter_mut().find(|item| item.record.offset == version.offset());
        let (task, mark) = item.map_or((None, None), |item| (item.task.take(), item.mark.take()));
        if let Some(task) = &task {
            // Its event may be on record already: then it stands for a task that never runs.
            let (shard, mark) = (self.options.shard, MarkKind::Cancelled);
            rest.push(rows::mark_row(shard, task.place, version, epoch, mark));
        }
        batch.forget_rows(version);
        batch.put_back(rest);
        if let Some((place, _)) = mark {
            self.thaw(place);
            self.repump(place);
        }
        let detail = format!("the store refuses it: {detail}");
        self.reject(index, version.offset(), Rejection { reason: RejectReason::RefusedByStore, detail });
    }

    pub(in crate::engine) fn facts_read(
        &mut self,
        ticket: u64,
        place: Place,
        rows: Result<Vec<FactRow>, Failure>,
    ) {
        let now = self.now.boot;
        let is_waiting = |batch: &Batch| batch.waits_for == Some(Need::Facts(place));
        let is_ahead = self.intake.batches.iter().any(|batch| batch.ahead.is_answer(place, ticket));
        let wants = |batch: &&mut Batch| is_waiting(batch) || batch.ahead.is_answer(place, ticket);
        match rows {
            Ok(rows) => {
                // What was asked ahead may be from before a hold began.
                if !is_ahead {
                    self.held_facts_read(ticket, place, &rows);
                }
                let Some(batch) = self.intake.batches.iter_mut().find(wants) else { return };
                let mut is_old = batch.ahead.take(place, ticket);
                if is_waiting(batch) {
                    is_old |= std::mem::take(&mut batch.read_again);
                    if is_old {
                        return self.ask(Need::Facts(place));
                    }
                    (batch.waits_for, batch.need_at) = (None, None);
                }
                if !is_old {
                    batch.facts.insert(place, rows);
                }
            }
            Err(failure) => {
                if let Some(batch) = self.intake.batches.iter_mut().find(wants) {
                    // One that nobody waits for yet is asked for again when its event has its turn.
                    batch.ahead.take(place, ticket);
                    if is_waiting(batch) {
                        batch.need_at = Some(now.plus_ms(RETRY_MS));
                    }
                }
                self.trouble("facts read", &failure);
            }
        }
    }

    pub(in crate::engine) fn payload_read(
        &mut self,
        place: Place,
        payload: Result<Option<Arc<[u8]>>, Failure>,
    ) {
        let now = self.now.boot;
        if let Some(batch) =
            self.intake.batches.iter_mut().find(|batch| batch.waits_for == Some(Need::Payload(place)))
        {
            match &payload {
                Ok(bytes) => {
                    batch.payloads.insert(place, bytes.clone());
                    batch.waits_for = None;
                }
                Err(_) => batch.need_at = Some(now.plus_ms(RETRY_MS)),
            }
        }
        self.task_payload_read(place, payload);
    }

    /// What was read of a place is out of date.
    pub(in crate::engine) fn forget_facts(&mut self, place: Place) {
        self.intake.batches.iter_mut().for_each(|batch| batch.forget_facts(place));
    }

    /// Shows what is durable, in order. True when there was something.
    pub(super) fn complete_batches(&mut self) -> bool {
        let before = self.intake.batches.len();
        while let Some(batch) = self.intake.batches.pop_front_if(|batch| batch.is_complete()) {
            let last = batch.items.last().map(|item| &item.record);
            let last = last.map(|record| (record.offset, record.appended, record.leader_epoch));
            if let Some((offset, ..)) = last {
                // Before what becomes of the tasks is shown, and told.
                let mut tells = batch.tells;
                tells.sort_by_key(|(version, _)| *version);
                let events = tells.into_iter().map(|(_, event)| event).collect();
                self.tell_decisions(events, offset + 1);
            }
            for item in batch.items {
                self.intake.bytes -= memory_of(&item.record);
                if !batch.is_again {
                    self.show(item);
                }
            }
            if let Some((offset, appended, leader_epoch)) = last {
                if batch.is_again {
                    self.intake.decided_again_to(offset + 1);
                } else {
                    self.commit.advance(offset + 1, appended, leader_epoch);
                }
            }
            self.thaw_applied();
        }
        self.intake.batches.len() != before
    }

    /// A round is on record, and its batch is not visible yet: aborts, and cancels of tasks that are under way, count from now
    /// on. All else waits for the batch: what takes the place of a task is visible when the mark on that is.
    pub(super) fn show_to_calls(&mut self, index: usize) {
        let items = &mut self.intake.batches[index].items;
        let aborts: Vec<u64> = items.iter_mut().filter_map(|item| item.abort.take()).collect();
        let marks = items.iter().filter_map(|item| item.mark);
        let cancelled: Vec<Place> =
            marks.filter(|(_, mark)| *mark == MarkKind::Cancelled).map(|(place, _)| place).collect();
        for seq in aborts {
            self.abort_if_running(seq);
        }
        for place in cancelled {
            if let Some(task) = self.window.get_mut(place).filter(|task| task.status.is_under_way()) {
                task.mark.get_or_insert(MarkKind::Cancelled);
            }
        }
    }

    pub(super) fn show(&mut self, item: Item) {
        if let Some(origin) = item.origin().filter(|_| item.rejection.is_none()) {
            let at = (origin.generation, origin.offset);
            if self.commit.origin_mark(origin.shard).is_none_or(|known| at > known) {
                self.commit.set_origin_mark(origin.shard, mark_of(origin, item.record.offset));
            }
        }
        if let Some((place, mark)) = item.mark {
            self.show_mark(place, mark);
        }
        if let Some(seq) = item.abort {
            self.abort_if_running(seq);
        }
        let Some(task) = item.task else { return };
        self.forget_facts(task.place);
        let cancelled = item.mark.is_some_and(|(place, _)| place == task.place);
        let early = self.window.take_early(task.place);
        let next = fold(&early, Version::MIN).next();
        let shown = LoadedTask { key: task.key, due_at: task.due_at, content: task.stored };
        let mark = item.mark.filter(|(place, _)| *place == task.place).map(|(_, mark)| mark);
        let is_over = cancelled || matches!(next, Next::Finished(_));
        self.retell(task.place, &shown, early.iter(), (is_over, mark));
        if cancelled || self.window.get(task.place).is_some() {
            return;
        }
        if self.window.covers(task.place) {
            self.late.tally.note(task.place.ready_at);
            self.admit_folded(task.place, shown, next, None);
        } else if matches!(next, Next::Open(_)) {
            self.admit_folded(task.place, shown, next, None);
        } else {
            self.window.note_shown(task.place, shown, next);
        }
    }

    pub(super) fn show_mark(&mut self, place: Place, mark: MarkKind) {
        self.thaw(place);
        self.window.note_mark(place, mark);
        self.late_mark_shown(place);
        let Some(task) = self.window.get_mut(place) else { return };
        let (name, status) = (task.key.queue.clone(), task.status);
        let behind = self.queues.by_name.get(&name).is_some_and(|queue| !queue.busy.is_empty());
        if planted!(CancelBehindHeadLost) && behind && status == Status::Queued {
            return;
        }
        match status {
            Status::Pending | Status::Queued | Status::Parked => self.stop_marked(place, mark),
            Status::Fetching => {
                let lane = self.window.get(place).map(|task| self.lane_of(task));
                self.lines.unused(&lane.expect("it was just found"));
                self.stop_marked(place, mark);
            }
            Status::Starting | Status::Running | Status::Ending | Status::Held => {
                task.mark = Some(mark);
                self.pump(&name);
            }
        }
    }
}
