//! Attempts without an answer: their queue waits until their deadline, and only it.
//!
//! A call of our own that was broken off may still be at work in its handler. An attempt of a lost owner is read again
//! now and then: its end may come into sight. What nobody ends counts as interrupted when the deadline has passed, and a
//! read that was sent after that still found it open: this owner may have stood still over the deadline. Handlers that
//! bear an overlap are not waited for.

use crate::model::{CloseReason, FactRow, HandlerName, OnDead, OpenAttempts, Place, Started, Wall, limits};

use super::Engine;
use super::effect::Effect;
use super::fold::Counts;
use super::map;
use super::window::Status;

/// Time past a lost owner's deadline before its attempt counts as interrupted, in milliseconds.
const HOLD_MARGIN_MS: i64 = 100;
const HOLD_READ_FIRST_MS: i64 = 200;
const HOLD_READ_MS_MAX: i64 = 2_000;

/// An attempt without an answer: its queue waits until the deadline.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) started: Started,
    until: Wall,
    /// Of a lost owner: its end may still come into sight.
    read_at: Option<Wall>,
    read_step_ms: i64,
    /// The first read that was sent after the deadline.
    last_read: Option<u64>,
}

impl Hold {
    fn ends_at(&self) -> Wall {
        if planted!(HoldEndsEarly) {
            return Wall(self.started.at.0.midpoint(self.started.deadline.0));
        }
        self.until
    }

    /// Whether an end is that of its attempt.
    pub(super) fn is_ended_by(&self, ended: &crate::model::Ended) -> bool {
        (ended.epoch, ended.seq) == (self.started.epoch, self.started.seq)
    }

    /// Whether it is of an owner before.
    pub(super) fn is_of_before(&self) -> bool {
        self.read_at.is_some()
    }

    pub(super) fn next(&self) -> Wall {
        match self.read_at {
            None => self.ends_at(),
            Some(at) if self.last_read.is_some() => at,
            Some(at) => at.min(self.ends_at()),
        }
    }
}

impl Engine {
    /// A call of our own was broken off: its handler may still be at work, so the queue waits for its deadline.
    pub(super) fn hold_own(&mut self, seq: u64) {
        let Some(attempt) = map::take(&mut self.attempts.open, &seq) else { return };
        self.attempts.deadlines.remove(&(attempt.deadline, seq));
        self.free_slot(attempt.lane.clone());
        if attempt.leftover {
            return;
        }
        self.set_status(attempt.place, Status::Held);
        if planted!(RerunAfterLapse) {
            if let Some(task) = self.window.get_mut(attempt.place) {
                task.counts = Counts::after_interruption(&attempt.started);
            }
            return self.back_in_line(attempt.place);
        }
        let until = self.hold_until(&attempt.started, &attempt.content.handler);
        let hold = Hold { started: attempt.started, until, read_at: None, read_step_ms: 0, last_read: None };
        self.attempts.holds.insert(attempt.place, hold);
    }

    /// A lost owner's attempt is open: its end may still come into sight.
    pub(super) fn hold_lost(&mut self, place: Place, started: Started, handler: &HandlerName) {
        let until = self.hold_until(&started, handler);
        let read_at = Some(self.now.wall.plus_ms(HOLD_READ_FIRST_MS));
        let hold = Hold { started, until, read_at, read_step_ms: HOLD_READ_FIRST_MS, last_read: None };
        self.attempts.holds.insert(place, hold);
    }

    fn hold_until(&self, started: &Started, handler: &HandlerName) -> Wall {
        match self.options.policy(handler).open_attempts {
            OpenAttempts::Wait => started.deadline.plus_ms(HOLD_MARGIN_MS),
            OpenAttempts::Rerun => self.now.wall,
        }
    }

    /// Re-reads the facts of held attempts, and ends those whose deadline has passed.
    pub(super) fn end_holds(&mut self) {
        let now = self.now.wall;
        if !self.ownership.valid(self.now.boot) || self.attempts.next_hold().is_none_or(|at| at > now) {
            return;
        }
        let (mut over, mut reads) = (Vec::new(), Vec::new());
        for (place, hold) in &mut self.attempts.holds {
            if hold.next() > now {
                continue;
            }
            if hold.read_at.is_none() || planted!(HoldEndsUnread) && hold.ends_at() <= now {
                over.push(*place);
                continue;
            }
            self.tickets += 1;
            reads.push((self.tickets, *place));
            if hold.ends_at() <= now {
                hold.last_read.get_or_insert(self.tickets);
            }
            hold.read_step_ms = (hold.read_step_ms * 2).min(HOLD_READ_MS_MAX);
            hold.read_at = Some(now.plus_ms(hold.read_step_ms));
        }
        for (ticket, place) in reads {
            self.effects.push_back(Effect::ReadFacts(ticket, place));
        }
        for place in over {
            self.interrupt(place);
        }
    }

    fn interrupt(&mut self, place: Place) {
        let Some(hold) = self.attempts.holds.remove(&place) else { return };
        let Some(task) = self.window.get_mut(place) else { return };
        task.counts = Counts::after_interruption(&hold.started);
        if task.mark.is_some() || task.counts.interruptions >= limits::INTERRUPTIONS_MAX {
            self.close(place, CloseReason::Interrupted);
        } else {
            self.back_in_line(place);
        }
    }

    pub(super) fn held_facts_read(&mut self, ticket: u64, place: Place, rows: &[FactRow]) {
        if !self.attempts.holds.contains_key(&place) {
            return;
        }
        let folded = super::fold(rows.iter().map(|row| &row.fact), self.commit.applied_to());
        // That of a cancel in memory may be of an event that is on record and not applied yet.
        let mark = folded.mark.map(|(_, mark)| mark);
        let mark = mark.or(self.window.get(place).and_then(|task| task.mark));
        self.tell_end_of_before(place, rows, mark);
        let Some(hold) = self.attempts.holds.get(&place) else { return };
        match folded.next() {
            super::Next::Open(started) if started == hold.started => {
                let is_last = hold.last_read.is_some_and(|last| last <= ticket);
                if is_last && self.ownership.valid(self.now.boot) {
                    self.interrupt(place);
                }
            }
            super::Next::Open(started) => {
                let Some(task) = self.window.get(place) else { return };
                let handler = task.content.handler.clone();
                self.hold_lost(place, started, &handler);
            }
            super::Next::Finished(_) => {
                // Its owner may have stopped its queue for it.
                if self.window.get(place).is_some_and(|task| task.content.on_dead == OnDead::Stop) {
                    self.gates_may_be_old();
                }
                self.finish(place);
            }
            super::Next::Run(_) if self.window.get(place).is_some_and(|task| task.mark.is_some()) => {
                self.finish(place);
            }
            super::Next::Run(counts) => {
                self.attempts.holds.remove(&place);
                if let Some(task) = self.window.get_mut(place) {
                    task.counts = counts;
                }
                self.back_in_line(place);
            }
        }
    }
}
