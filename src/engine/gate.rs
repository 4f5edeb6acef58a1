//! Gates: what comes to a closed one waits in its place, or is dropped on record.
//!
//! Which gates are in force is told from outside, all of them at every change. A head that may not pass holds its queue as
//! any other wait does, and takes no slot. A start that is on record when a gate closes is not called. Gates are relied on no longer than
//! a lease: who could not ask the store for that long starts nothing until it has asked again.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{Bar, Boot, Closed, GateAction, Outcome, Place, QueueName};

use super::Engine;
use super::effect::Effect;
use super::input::CallEnd;

impl Engine {
    /// Takes the gates in force. They are relied on for as long as a lease that was verified when they were asked for.
    pub(super) fn gates_known(&mut self, closed: Arc<Closed>, asked_at: Boot) {
        if asked_at >= self.gates_after {
            self.gates_until = asked_at.plus_ms(self.options.timing.lease_ms);
        }
        if self.closed != closed {
            self.gates_changed(closed);
        }
    }

    /// Gates asked for before now may be out of date: the boot clock may have stood still, or an owner before has set one and
    /// put on record what rests on it. Nothing starts until they were asked for again.
    pub(super) fn gates_may_be_old(&mut self) {
        if self.gates_until < Boot(u64::MAX) {
            (self.gates_after, self.gates_until) = (self.now.boot, self.now.boot);
            self.effects.push_back(Effect::AskGates);
        }
    }

    /// Whether the gates known are young enough: an owner that the store did not reach may not have heard of one.
    pub(super) fn gates_are_known(&self) -> bool {
        self.now.boot < self.gates_until
    }

    /// Looks at every head again, and breaks off what a new gate says to break off.
    fn gates_changed(&mut self, closed: Arc<Closed>) {
        let before = std::mem::replace(&mut self.closed, closed);
        let names: Vec<QueueName> = match self.closed.only_queues_since(&before) {
            Some(queues) => queues.into_iter().cloned().collect(),
            None => self.queues.by_name.keys().cloned().collect(),
        };
        for name in names {
            self.unline(&name);
            self.pump(&name);
        }
        for seq in self.attempts.running() {
            let Some(attempt) = self.attempts.open.get(&seq) else { continue };
            let content = &attempt.content;
            let bars = |closed: &Closed| -> BTreeSet<u64> {
                let bars = closed.bars(attempt.queue(), &content.handler, content.collection.as_deref());
                bars.filter(|bar| bar.abort_running).map(|bar| bar.operation).collect()
            };
            if !bars(&self.closed).is_subset(&bars(&before)) {
                self.abort(seq);
            }
        }
    }

    /// Breaks off a call on purpose. Its handler may still be at work, so its queue waits for the deadline, unless the
    /// handler bears an overlap.
    pub(super) fn abort(&mut self, seq: u64) {
        self.effects.push_back(Effect::BreakOff(seq, Outcome::Aborted));
        let error = Some(Arc::from("broken off by a person"));
        let lost = !planted!(AbortForgets);
        self.call_ended(seq, CallEnd { error, lost, ..CallEnd::of(Outcome::Aborted) });
    }

    /// Breaks off the call of this number, if it is at work still.
    pub(super) fn abort_if_running(&mut self, seq: u64) {
        if self.attempts.is_running(seq) {
            self.abort(seq);
        }
    }

    /// What closes the way of the task at `place`.
    pub(super) fn bar_of(&self, place: Place) -> Option<&Bar> {
        if self.closed.is_empty() || planted!(GateIgnored) {
            return None;
        }
        let task = self.window.get(place)?;
        let content = &task.content;
        self.closed.bar(&task.key.queue, &content.handler, content.collection.as_deref())
    }

    /// Whether the task at `place` has to wait at a gate.
    pub(super) fn is_paused(&self, place: Place) -> bool {
        self.bar_of(place).is_some_and(|bar| bar.action == GateAction::Pause)
    }

    /// Whether the task at `place` is to be dropped.
    pub(super) fn is_dropped(&self, place: Place) -> bool {
        self.bar_of(place).is_some_and(|bar| bar.action == GateAction::Drop)
    }
}
