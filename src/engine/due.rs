//! Tasks whose time has come go into their queues; heads whose next try has come are lined up.

use crate::model::{Place, Wall};

use super::Engine;
use super::outbox::Gone;
use super::window::{Status, Task};

impl Engine {
    pub(super) fn promote(&mut self) {
        for place in self.window.take_ready(self.now.wall) {
            self.enqueue(place);
        }
        self.unpark();
        while let Some(name) = self.queues.take_backoff(self.now.wall) {
            self.pump(&name);
        }
    }

    pub(super) fn window_timeout(&self) -> Option<Wall> {
        let may_read = self.window.may_read() && !self.scout.is_reading();
        let load = (may_read && self.load_retry.is_none())
            .then(|| self.window.cursor().ready_at.plus_ms(-self.options.look_ahead_ms / 2))
            .filter(|_| self.may_load() && self.late.list.is_read());
        [self.window.next_ready(), load].into_iter().flatten().min()
    }

    /// Puts a task into memory, and into its queue when it is ready. One with an attempt open is started already, whatever
    /// the clock of its owner said.
    pub(super) fn admit(&mut self, place: Place, task: Task) {
        let is_held = task.status == Status::Held;
        let ready = self.window.insert(place, task);
        self.came(place);
        if ready || is_held {
            self.enqueue(place);
        }
    }

    /// Makes room while the budget is exceeded: the tasks behind blocked heads leave by pointer before ready tasks of
    /// other queues are evicted from the far end.
    pub(super) fn shed(&mut self) {
        let mut may_press = true;
        while let Some(place) = self.window.next_to_evict() {
            if self.window.covers(place) && place.ready_at <= self.now.wall {
                if self.late.is_asking() {
                    return;
                }
                if std::mem::take(&mut may_press) && self.press() {
                    continue;
                }
            }
            self.evict(place);
        }
    }

    fn evict(&mut self, place: Place) {
        let Some(task) = self.window.evict(place) else { return };
        if let Some(queue) = self.queues.by_name.get_mut(&task.key.queue) {
            queue.remove(task.due_at, place);
            if queue.candidate == Some(place) {
                queue.candidate = None;
                let lane = self.lane_of(&task);
                self.lines.leave(&lane, place);
            }
        }
        self.went(place, &Gone::of(&task), false);
        self.pump(&task.key.queue);
    }

    pub(super) fn enqueue(&mut self, place: Place) {
        let is_held = self.window.get(place).is_some_and(|task| task.status == Status::Held);
        if !is_held && self.park(place) {
            return;
        }
        let Some(task) = self.window.get_mut(place) else { return };
        let held = task.status == Status::Held;
        if task.status == Status::Pending {
            task.status = Status::Queued;
        }
        let due_at = task.due_at;
        let entry = self.queues.by_name.entry(task.key.queue.clone());
        // It shares the name of its queue from now on: who looks the queue up sees that it is the same without reading it.
        let name = entry.key().clone();
        task.key.queue.clone_from(&name);
        let queue = entry.or_default();
        queue.insert(due_at, place);
        if !queue.busy.is_empty() {
            // It waits for the end of what is under way.
            self.writes.hurry();
        }
        if held {
            queue.busy.insert(place);
        }
        if queue.len() > self.options.queue_tasks_max {
            self.late.note_overfull(&name);
        }
        self.pump(&name);
    }
}
