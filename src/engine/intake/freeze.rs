//! Tasks that something was decided about: they do not start until the decision is visible.

use crate::model::{Place, Version, Wall};

use super::super::Engine;

impl Engine {
    /// What is decided about a task comes first: it leaves its line until that is visible.
    pub(super) fn freeze(&mut self, place: Place) {
        *self.intake.frozen.entry(place).or_insert(0) += 1;
        let queue = self.window.get(place).map(|task| task.key.queue.clone());
        if let Some(queue) = queue {
            self.unline_if(&queue, place);
        }
    }

    /// A mark was loaded whose event is still to be applied. Its answer may have been given already.
    pub(in crate::engine) fn freeze_until(&mut self, by: Version, place: Place) {
        if self.intake.early_marks.insert((by, place)) {
            self.freeze(place);
        }
    }

    pub(super) fn thaw_applied(&mut self) {
        let end = (self.commit.applied_to(), Place::start_of(Wall::MIN));
        let later = self.intake.early_marks.split_off(&end);
        for (_, place) in std::mem::replace(&mut self.intake.early_marks, later) {
            self.thaw(place);
            self.repump(place);
        }
    }

    pub(super) fn repump(&mut self, place: Place) {
        if let Some(queue) = self.window.get(place).map(|task| task.key.queue.clone()) {
            self.pump(&queue);
        }
    }

    pub(super) fn thaw(&mut self, place: Place) {
        if let Some(count) = self.intake.frozen.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.intake.frozen.remove(&place);
            }
        }
    }
}
