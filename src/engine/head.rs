//! The head of each queue: found anew after every change to its queue, and put in line for a slot.
//!
//! A task in memory is the head only if nothing that the queue has in the store stands before it. A head waits while a task of its queue is under way, while something is being decided about it, until its next
//! try, and at a closed gate. Nothing starts here.

use crate::model::{Place, QueueName, limits};

use super::Engine;
use super::lane::Lane;
use super::window::Task;

impl Engine {
    /// Brings a queue up to date after any change to it: finds its head and lines it up, or notes when to look again.
    pub(super) fn pump(&mut self, name: &QueueName) {
        self.note_hunger(name);
        let Some(queue) = self.queues.by_name.get(name) else { return };
        if queue.is_empty() {
            self.unline(name);
            self.queues.set_backoff(name, None);
            self.queues.set_at_gate(name, false);
            self.queues.by_name.remove(name);
            return;
        }
        let barrier = self.late.barrier(name);
        let nothing_before =
            barrier.is_none_or(|barrier| queue.first().is_some_and(|first| first <= barrier));
        let nothing_before = nothing_before || planted!(HeadBeforePointer);
        let head = queue.head().filter(|_| queue.busy.is_empty() && nothing_before);
        if head.is_some() && queue.candidate == head {
            return;
        }
        self.unline(name);
        self.queues.set_at_gate(name, false);
        let Some(place) = head else {
            self.queues.set_backoff(name, None);
            return;
        };
        self.line_up(name, place);
    }

    fn line_up(&mut self, name: &QueueName, place: Place) {
        let Some(task) = self.window.get(place) else { return };
        if self.intake.is_frozen(place) || !self.window.covers(place) {
            self.queues.set_backoff(name, None);
            return;
        }
        let next_try = if planted!(NextTryNotWaitedFor) { place.ready_at } else { task.counts.not_before };
        let at = next_try.max(place.ready_at);
        if at > self.now.wall {
            self.queues.set_backoff(name, Some(at));
            return;
        }
        self.queues.set_backoff(name, None);
        if self.is_paused(place) {
            self.queues.set_at_gate(name, true);
            return;
        }
        let is_late = self.now.wall.0 - at.0 > limits::LATE_IN_LINE_MS;
        if let Some(task) = self.window.get_mut(place) {
            task.is_late = is_late;
        }
        let Some(lane) = self.window.get(place).map(|task| self.lane_of(task)) else { return };
        self.lines.join(&lane, place);
        if let Some(queue) = self.queues.by_name.get_mut(name) {
            queue.candidate = Some(place);
        }
    }

    pub(super) fn unline(&mut self, name: &QueueName) {
        let Some(queue) = self.queues.by_name.get_mut(name) else { return };
        let Some(place) = queue.candidate.take() else { return };
        if let Some(lane) = self.window.get(place).map(|task| self.lane_of(task)) {
            self.lines.leave(&lane, place);
        }
    }

    /// What a task that is in line stands in line for.
    pub(super) fn lane_of(&self, task: &Task) -> Lane {
        self.lines.lane(self.options.lane(&task.content, task.is_late))
    }
}
