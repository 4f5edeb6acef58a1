//! How a task leaves for good: closed without an attempt, stopped by a mark, or done with.

use std::sync::Arc;

use crate::model::{CloseReason, Fact, MarkKind, Outcome, Place, QueueName};

use super::Engine;
use super::death::Death;
use super::effect::Observation;
use super::window::Status;
use super::writes::Purpose;

impl Engine {
    /// Stops a task that is marked and not under way. A start without an end would look open for ever, so it is closed.
    pub(super) fn stop_marked(&mut self, place: Place, mark: MarkKind) {
        let Some(task) = self.window.get_mut(place) else { return };
        task.mark = Some(mark);
        if task.counts.previous == Some(Outcome::Interrupted) {
            self.close(place, CloseReason::Interrupted);
        } else {
            self.finish(place);
        }
    }

    /// Closes a task without an attempt.
    pub(super) fn close(&mut self, place: Place, reason: CloseReason) {
        let Some(task) = self.window.get_mut(place) else { return };
        task.status = Status::Ending;
        let (key, marked, content) = (task.key.clone(), task.mark.is_some(), task.content.clone());
        let (handler, attempts) = (content.handler.clone(), task.counts.attempt.saturating_sub(1));
        self.unline_if(&key.queue, place);
        if let Some(queue) = self.queues.by_name.get_mut(&key.queue) {
            queue.busy.insert(place);
        }
        self.pump(&key.queue);
        self.attempts.last_seq += 1;
        let (epoch, seq, at) = (self.epoch(), self.attempts.last_seq, self.now.wall);
        let fact = Fact::Closed { epoch, seq, at, reason };
        if reason == CloseReason::Interrupted && !marked {
            let error = Some(Arc::from("its owner was lost too often"));
            let death = Death { seq, at, key: key.clone(), content, reason, attempts, error, marked };
            self.push_death(place, fact, death, Purpose::Closed(place));
        } else {
            self.push_fact(place, fact, Purpose::Closed(place));
        }
        if !marked {
            self.observe(Observation::Closed { reason, key, handler });
        }
    }

    /// The task is done with: out of memory, its queue goes on.
    pub(super) fn finish(&mut self, place: Place) {
        self.intake.on_record(place);
        let name = self.window.get(place).map(|task| task.key.queue.clone());
        if let Some(name) = &name {
            self.unline_if(name, place);
        }
        let Some(task) = self.window.remove(place) else { return };
        self.attempts.holds.remove(&place);
        self.parked.forget(place);
        if let Some(queue) = self.queues.by_name.get_mut(&task.key.queue) {
            queue.remove(task.due_at, place);
            queue.busy.remove(place);
        }
        self.gone(place, &task);
        self.pump(&task.key.queue);
    }

    pub(super) fn unline_if(&mut self, name: &QueueName, place: Place) {
        if self.queues.by_name.get(name).is_some_and(|queue| queue.candidate == Some(place)) {
            self.unline(name);
        }
    }
}
