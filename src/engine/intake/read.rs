//! Reading the log: from where, how far ahead, and what an owner before applied and may not have published.

use std::ops::Range;

use crate::model::limits;

use super::super::effect::{Effect, Observation};
use super::super::input::{Failure, Incoming};
use super::super::takeover::Step;
use super::super::{Engine, Stage};
use super::{RETRY_MS, memory_of};

impl Engine {
    /// Seeks the log to where the store ends.
    pub(in crate::engine) fn begin_intake(&mut self) {
        let has_begun = self.intake.sought || self.intake.seeking.is_some();
        if has_begun || self.lost.is_some() || !self.ownership.assigned() {
            return;
        }
        if !self.intake.reading && self.intake.backlog() == 0 {
            self.intake.next_expected = self.first_to_read();
            self.intake.marks = self.commit.origin_marks();
        }
        self.intake.decided_to = self.intake.decided_to.or(self.commit.log_end());
        self.intake.reading = true;
        self.seek();
    }

    /// Whether what was applied before and may not be published is read again: tasks from the store, decisions from the log.
    pub(in crate::engine) fn has_read_again(&self) -> bool {
        self.stage != Stage::Loading && self.intake.again.as_ref().is_some_and(Range::is_empty)
    }

    /// Up to where that was read again; `None` = reading has not begun.
    pub(in crate::engine) fn read_again_to(&self) -> Option<u64> {
        self.intake.again.as_ref().map(|again| again.start)
    }

    /// What was applied when this owner began to read is read again from where decisions may not be published; what the log
    /// has let go of is not.
    fn first_to_read(&mut self) -> u64 {
        let applied_to = self.commit.next_offset();
        let told = if self.options.publishes { self.outbox.decided_to() } else { applied_to };
        let again = self.intake.again.clone().unwrap_or(told.min(applied_to)..applied_to);
        // Retention may have gone on since reading began.
        let from = again.start.max(self.commit.log_first().unwrap_or(0).min(again.end));
        if again.start < from {
            let detail = "what was decided of them is not published";
            let detail = format!("records {} to {from} are gone: {detail}", again.start);
            self.observe(Observation::Trouble { what: "task events are lost", detail });
            self.outbox.expect_decisions(from, 0);
        }
        self.intake.again = Some(from..again.end);
        if from < again.end { from } else { applied_to }
    }

    pub(super) fn seek(&mut self) {
        self.intake.seek_at = None;
        let ticket = self.ticket();
        self.intake.seeking = Some(ticket);
        self.effects.push_back(Effect::Seek(ticket, self.intake.next_expected));
    }

    /// The shard was assigned again while it was held: go on where fetching stopped.
    pub(in crate::engine) fn resume_intake(&mut self) {
        self.intake.sought = false;
        self.intake.seeking = None;
        self.intake.fetching = None;
        let has_begun = matches!(self.stage, Stage::Loading | Stage::CatchingUp | Stage::Running);
        if has_begun && self.commit.target().is_some() {
            self.begin_intake();
        } else if self.stage == Stage::Running {
            self.begin_catch_up();
        }
    }

    pub(in crate::engine) fn stop_intake(&mut self) {
        self.intake.reading = false;
        self.intake.sought = false;
        self.intake.seeking = None;
        self.intake.fetching = None;
        self.intake.seek_at = None;
        self.intake.fetch_at = None;
        self.effects.push_back(Effect::StopFetch);
    }

    pub(in crate::engine) fn sought(&mut self, ticket: u64, sought: Result<(), Failure>) {
        if self.intake.seeking.take_if(|asked| *asked == ticket).is_none() {
            return;
        }
        match sought {
            Ok(()) => self.intake.sought = true,
            Err(_) if !self.ownership.assigned() => self.stop_intake(),
            Err(failure @ Failure::OffsetGone(_)) => self.look_for_loss("log seek", &failure),
            Err(failure) => {
                self.trouble("log seek", &failure);
                self.intake.seek_at = Some(self.now.boot.plus_ms(RETRY_MS));
            }
        }
    }

    pub(in crate::engine) fn fetched(&mut self, ticket: u64, records: Result<Vec<Incoming>, Failure>) {
        if self.intake.fetching.take_if(|asked| *asked == ticket).is_none() {
            return;
        }
        match records {
            Ok(records) => {
                self.log_heard();
                self.came_to(Step::Fetched);
                let intake = &mut self.intake;
                for record in records {
                    if record.offset >= intake.next_expected {
                        intake.next_expected = record.offset + 1;
                        intake.bytes += memory_of(&record);
                        intake.inbox.push_back(record);
                    }
                }
            }
            // What is read on after it was taken may be lost at any time: the next owner reads it.
            Err(_) if !self.ownership.assigned() => self.stop_intake(),
            Err(failure @ Failure::OffsetGone(_)) => self.look_for_loss("log fetch", &failure),
            Err(failure) => {
                self.trouble("log fetch", &failure);
                self.intake.fetch_at = Some(self.now.boot.plus_ms(RETRY_MS));
            }
        }
    }

    pub(super) fn fetch_more(&mut self) {
        let is_full_of_events = self.is_full_of_events();
        let intake = &mut self.intake;
        intake.fetch_at.take_if(|at| *at <= self.now.boot);
        let waits = intake.fetch_at.is_some();
        // A third each: one fetched while others are looked up and written.
        let bytes_max = self.budget.intake_bytes / limits::INTAKE_BATCHES_MAX;
        let room = intake.has_room(self.budget.intake_bytes)
            && !is_full_of_events
            && intake.inbox.len() < limits::INTAKE_BATCH_RECORDS_MAX;
        if intake.reading && intake.sought && intake.fetching.is_none() && room && !waits {
            let records_max =
                (bytes_max / limits::INTAKE_RECORD_BYTES).clamp(1, limits::INTAKE_BATCH_RECORDS_MAX);
            let ticket = self.ticket();
            self.intake.fetching = Some(ticket);
            self.effects.push_back(Effect::Fetch { ticket, records_max, bytes_max });
        }
    }
}
