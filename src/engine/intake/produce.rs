//! Records that leave for another topic or partition: rejected ones and those that are not at home.
//!
//! A home takes a record that comes behind a later one of the same origin for a repeat, so forwards to one home go one
//! at a time, in the order of their offsets.

use crate::model::{Origin, Rejection, Shard, Version};

use super::super::Engine;
use super::super::effect::{Effect, Observation};
use super::super::input::Failure;
use super::batch::Batch;
use super::{RETRY_MS, mark_of};

impl Engine {
    pub(super) fn reject(&mut self, index: usize, offset: u64, rejection: Rejection) {
        self.observe(Observation::Rejected(rejection.reason));
        self.intake.batches[index].produces.insert(offset, Some(rejection.clone()));
        self.effects.push_back(Effect::Reject(offset, rejection));
    }

    pub(super) fn forward(&mut self, index: usize, offset: u64, to: Shard) {
        self.observe(Observation::Forwarded);
        self.intake.batches[index].produces.insert(offset, None);
        let line = self.intake.forwards.entry(to).or_default();
        line.push_back(offset);
        if line.len() == 1 || planted!(ForwardOutOfOrder) {
            self.effects.push_back(Effect::Forward(offset, to));
        }
    }

    /// Ends the forward under way to `to`, and sends the next. False when `offset` is not the one under way.
    pub(super) fn forwarded(&mut self, offset: u64, to: Shard) -> bool {
        let Some(line) = self.intake.forwards.get_mut(&to).filter(|line| line.front() == Some(&offset))
        else {
            return false;
        };
        line.pop_front();
        if let Some(next) = line.front() {
            self.effects.push_back(Effect::Forward(*next, to));
        }
        true
    }

    /// Finds the forwarded records that were applied here before: they change nothing. By offset, whatever the rounds are
    /// in which they would be decided.
    pub(super) fn note_origins(&mut self, batch: &mut Batch) {
        for item in batch.items.iter_mut().filter(|item| item.own_key().is_some()) {
            if let Some(origin) = item.origin() {
                item.is_known_origin = self.repeats_origin(origin, item.record.offset);
            }
        }
    }

    fn repeats_origin(&mut self, origin: Origin, offset: u64) -> bool {
        let known = self.intake.marks.get(&origin.shard);
        let seen = known.is_some_and(|mark| {
            let (then, at) = ((mark.generation, mark.origin_offset), (origin.generation, origin.offset));
            at < then || (at == then && offset > mark.home_offset)
        });
        if !seen && planted!(MarksAheadOfApplied) {
            self.commit.set_origin_mark(origin.shard, mark_of(origin, offset));
        }
        if planted!(ForwardRepeated) {
            return false;
        }
        if !seen {
            self.intake.marks.insert(origin.shard, mark_of(origin, offset));
        }
        seen
    }

    pub(in crate::engine) fn produced(&mut self, version: Version, produced: Result<(), Failure>) {
        if version.generation() != self.commit.generation() {
            return;
        }
        let (offset, now) = (version.offset(), self.now.boot);
        let holds = |batch: &Batch| batch.produces.contains_key(&offset);
        let Some(index) = self.intake.batches.iter().position(holds) else { return };
        let to = self.intake.batches[index].forwards_to(offset);
        match produced {
            Ok(()) => {
                if to.is_none_or(|to| self.forwarded(offset, to)) {
                    self.intake.batches[index].produces.remove(&offset);
                }
            }
            Err(failure) => {
                let batch = &mut self.intake.batches[index];
                batch.produce_retries.insert(offset, now.plus_ms(RETRY_MS));
                self.trouble("produce", &failure);
            }
        }
    }
}
