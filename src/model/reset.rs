//! Resets: a person accepts that the log of a shard lost what was to come next, and the shard goes on with what it holds now.
//!
//! Made of the same operations as gates. A reset names the loss that it was asked for, so that it accepts no later one.

use std::collections::BTreeMap;

use super::gate::{Change, Operation};
use super::owner::{Generation, Progress, Shard};

/// A loss that is accepted: the shard, and what it had applied when it stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The shard.
    pub shard: Shard,
    /// The generation whose log lost records; the next one begins.
    pub generation: Generation,
    /// The offset that was wanted and is not there.
    pub next_offset: u64,
    /// The offset that is gone on with.
    pub first: u64,
    /// Identity of the topic that is to be gone on with; empty when the log has none.
    pub topic_id: String,
}

impl Reset {
    /// Whether it is of a shard that came as far as this, and not further.
    pub fn fits(&self, progress: &Progress) -> bool {
        self.generation == progress.generation && progress.next_offset <= self.next_offset
    }
}

/// The newest reset of each shard, as of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resets {
    last: u64,
    of: BTreeMap<Shard, Reset>,
}

impl Resets {
    /// Takes the next operation. One that was taken before changes nothing.
    pub fn apply(&mut self, operation: &Operation) {
        if operation.number <= self.last {
            return;
        }
        self.last = operation.number;
        match &operation.change {
            Change::ShardsReset(resets) => {
                self.of.extend(resets.iter().map(|reset| (reset.shard, reset.clone())));
            }
            Change::GateSet(_)
            | Change::GateCleared(..)
            | Change::BatchBegun(_)
            | Change::BatchStopped(_)
            | Change::BatchResumed(_)
            | Change::Drained(_)
            | Change::Undrained(_)
            | Change::Other(_) => {}
        }
    }

    /// The newest of each shard that has one.
    pub fn iter(&self) -> impl Iterator<Item = &Reset> {
        self.of.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Wall;

    fn progress(generation: u32, next_offset: u64) -> Progress {
        Progress {
            epoch: crate::model::Epoch(1),
            generation: Generation(generation),
            topic_id: "a".to_owned(),
            next_offset,
            leader_epoch: None,
            watermark: Wall(0),
            late: None,
            marks: BTreeMap::new(),
            told: None,
            ids_from: None,
            ids_are_all: false,
            ends: Vec::new(),
        }
    }

    #[test]
    fn a_reset_accepts_the_loss_that_it_was_asked_for_and_no_later_one() {
        let (shard, generation, topic_id) = (Shard(3), Generation(1), "b".to_owned());
        let reset = Reset { shard, generation, next_offset: 7, first: 0, topic_id };
        assert!(reset.fits(&progress(1, 7)));
        assert!(reset.fits(&progress(1, 6)), "the last offsets may not be on record");
        assert!(!reset.fits(&progress(1, 8)), "the shard went on");
        assert!(!reset.fits(&progress(2, 0)), "it is done");
        assert!(!reset.fits(&progress(0, 7)));
    }

    #[test]
    fn of_two_resets_of_a_shard_the_newer_counts() {
        let reset = |shard, next_offset| Reset {
            shard: Shard(shard),
            generation: Generation(0),
            next_offset,
            first: 0,
            topic_id: String::new(),
        };
        let mut resets = Resets::default();
        for (number, of) in (1..).zip([vec![reset(1, 5), reset(2, 6)], vec![reset(1, 9)]]) {
            let change = Change::ShardsReset(of);
            let operation = Operation { number, id: 1, at: Wall(0), by: None, reason: None, change };
            resets.apply(&operation);
            resets.apply(&operation);
        }
        assert_eq!(resets.iter().cloned().collect::<Vec<_>>(), [reset(1, 9), reset(2, 6)]);
    }
}
