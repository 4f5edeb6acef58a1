//! The head of each queue: found anew after every change to its queue, and put in line for a slot.
//!
//! A task in memory is the head only if nothing that the queue has in the store stands before it. A head waits while a task of its queue is under way, while something is being decided about it, until its next
//! try, and at a closed gate. Nothing starts here.

use crate::model::{Place, QueueName, limits};

use super::Engine;
use super::lane::Lane;
use super::map;
use super::window::Task;

impl Engine {
    /// Brings a queue up to date after any change to it: finds its head and lines it up, or notes when to look again.
    pub(super) fn pump(&mut self, name: &QueueName) {
        self.note_hunger(name);
        let Some((index, _, queue)) = self.queues.by_name.get_full(name) else { return };
        if queue.is_empty() {
            self.unline_at(index);
            self.queues.set_backoff(index, None);
            self.queues.set_at_gate(index, false);
            map::take(&mut self.queues.by_name, name);
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
        self.unline_at(index);
        self.queues.set_at_gate(index, false);
        match head {
            Some(place) => self.line_up(index, place),
            None => self.queues.set_backoff(index, None),
        }
    }

    /// Puts the head of a queue in line, if nothing holds it up.
    fn line_up(&mut self, index: usize, place: Place) {
        let Some(task) = self.window.get(place) else { return };
        if self.intake.is_frozen(place) || !self.window.covers(place) {
            self.queues.set_backoff(index, None);
            return;
        }
        let next_try = if planted!(NextTryNotWaitedFor) { place.ready_at } else { task.counts.not_before };
        let at = next_try.max(place.ready_at);
        if at > self.now.wall {
            self.queues.set_backoff(index, Some(at));
            return;
        }
        self.queues.set_backoff(index, None);
        if self.is_paused(place) {
            self.queues.set_at_gate(index, true);
            return;
        }
        let is_late = self.now.wall.0 - at.0 > limits::LATE_IN_LINE_MS;
        let Some(task) = self.window.get_mut(place) else { return };
        task.is_late = is_late;
        let lane = self.lines.lane(self.options.lane(&task.content, is_late));
        self.lines.join(&lane, place);
        self.queues.by_name[index].candidate = Some(place);
    }

    /// Takes the head of a queue out of its line.
    pub(super) fn unline(&mut self, name: &QueueName) {
        if let Some(index) = self.queues.by_name.get_index_of(name) {
            self.unline_at(index);
        }
    }

    fn unline_at(&mut self, index: usize) {
        let Some(place) = self.queues.by_name[index].candidate.take() else { return };
        if let Some(lane) = self.window.get(place).map(|task| self.lane_of(task)) {
            self.lines.leave(&lane, place);
        }
    }

    /// What a task that is in line stands in line for.
    pub(super) fn lane_of(&self, task: &Task) -> Lane {
        self.lines.lane(self.options.lane(&task.content, task.is_late))
    }
}
