//! Parked tasks (`on_failure: park`): one that failed waits aside for its next try, and its queue goes on.
//!
//! A parked task is in memory and in no queue. When its time has come it goes back to its place, which is the first of its queue
//! unless earlier ones came, and runs when the task under way has ended: still one at a time. Tasks aside take up memory, so
//! only half of a shard's share may be aside; what fails beyond that holds its queue as any other.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{OnFailure, Place, Wall};

use super::Engine;
use super::window::{Status, Task};

/// The tasks aside, by when they are tried again.
#[derive(Debug, Default)]
pub(super) struct Parked {
    until: BTreeMap<Place, (Wall, usize)>,
    /// What they take up in memory, in units of the budget.
    units: usize,
    times: BTreeSet<(Wall, Place)>,
}

impl Parked {
    /// When the next of them is tried again.
    pub(super) fn next(&self) -> Option<Wall> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Forgets a task that is aside no more.
    pub(super) fn forget(&mut self, place: Place) {
        if let Some((until, units)) = self.until.remove(&place) {
            self.times.remove(&(until, place));
            self.units -= units;
        }
    }

    fn insert(&mut self, place: Place, until: Wall, units: usize) {
        self.forget(place);
        self.until.insert(place, (until, units));
        self.times.insert((until, place));
        self.units += units;
    }

    /// The one that is tried again last, while they take up more than this.
    fn take_excess(&mut self, units_max: usize) -> Option<Place> {
        let (_, place) = self.times.last().copied().filter(|_| self.units > units_max)?;
        self.forget(place);
        Some(place)
    }

    fn take_due(&mut self, now: Wall) -> Option<Place> {
        let (_, place) = self.times.first().copied().filter(|(at, _)| *at <= now)?;
        self.forget(place);
        Some(place)
    }
}

impl Task {
    /// Whether it failed and its queue does not wait for it.
    pub(super) fn may_wait_aside(&self) -> bool {
        self.content.on_failure == OnFailure::Park && self.counts.has_failed() && self.mark.is_none()
    }
}

impl Engine {
    /// Puts a task aside that waits for its next try. False when it has to wait in its queue.
    pub(super) fn park(&mut self, place: Place) -> bool {
        let (now, units_max) = (self.now.wall, self.budget.tasks / 2);
        let Some(task) = self.window.get_mut(place) else { return false };
        let units = task.units();
        if self.parked.units + units > units_max || !task.may_wait_aside() || task.counts.not_before <= now {
            return false;
        }
        task.status = Status::Parked;
        let until = task.counts.not_before;
        self.parked.insert(place, until, units);
        true
    }

    /// There is less room aside than there was: the last to be tried again hold their queues.
    pub(super) fn unpark_excess(&mut self) {
        while let Some(place) = self.parked.take_excess(self.budget.tasks / 2) {
            let Some(task) = self.window.get_mut(place) else { continue };
            task.status = Status::Queued;
            let (name, due_at) = (task.key.queue.clone(), task.due_at);
            self.queues.by_name.entry(name.clone()).or_default().insert(due_at, place);
            self.pump(&name);
        }
    }

    /// Tasks whose next try has come go back to their places.
    pub(super) fn unpark(&mut self) {
        while let Some(place) = self.parked.take_due(self.now.wall) {
            self.set_status(place, Status::Queued);
            self.enqueue(place);
        }
    }
}
