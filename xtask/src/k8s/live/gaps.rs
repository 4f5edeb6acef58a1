//! Who runs which shard, by what instances say of themselves, and for how long nobody did.
//!
//! A gap is the time between the last answer that says to run a shard and the first one of its next owner, which has a
//! higher epoch. Up to the time between two questions, twice, is in it.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const RUNNING: &str = "running";

/// What an instance says of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct View {
    pub(super) shard: u32,
    pub(super) epoch: u64,
    pub(super) phase: String,
}

/// When a shard was last said to run, under its highest epoch, and by whom.
#[derive(Debug)]
struct Heard {
    epoch: u64,
    owner: String,
    at: Instant,
}

/// A change of owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) shard: u32,
    pub(super) gap_ms: u128,
}

/// All shards.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    heard: BTreeMap<u32, Heard>,
    changes: Vec<Change>,
}

impl Gaps {
    /// Takes what an instance says.
    pub(super) fn take(&mut self, instance: &str, at: Instant, views: &[View]) {
        for view in views.iter().filter(|view| view.phase == RUNNING) {
            let now = Heard { epoch: view.epoch, owner: instance.to_owned(), at };
            let Some(heard) = self.heard.get_mut(&view.shard) else {
                self.heard.insert(view.shard, now);
                continue;
            };
            if view.epoch > heard.epoch {
                let gap_ms = at.saturating_duration_since(heard.at).as_millis();
                self.changes.push(Change { shard: view.shard, gap_ms });
            }
            if view.epoch >= heard.epoch {
                *heard = now;
            }
        }
    }

    /// Forgets the changes seen so far.
    pub(super) fn begin(&mut self) {
        self.changes.clear();
    }

    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Shards whose owner was heard of from a time on.
    pub(super) fn owned_since(&self, from: Instant) -> usize {
        self.heard.values().filter(|heard| heard.at >= from).count()
    }

    /// Shards that an instance ran last.
    pub(super) fn of(&self, instances: &BTreeSet<String>) -> BTreeSet<u32> {
        let of = self.heard.iter().filter(|(_, heard)| instances.contains(&heard.owner));
        of.map(|(shard, _)| *shard).collect()
    }

    /// Instances that run something.
    pub(super) fn owners(&self) -> BTreeSet<&str> {
        self.heard.values().map(|heard| heard.owner.as_str()).collect()
    }
}

/// How long the gaps were: median and longest, of how many.
pub(super) fn told(changes: &[Change]) -> String {
    let mut all: Vec<u128> = changes.iter().map(|change| change.gap_ms).collect();
    all.sort_unstable();
    match all.last() {
        Some(longest) => {
            format!("{} changes of owner, gap p50 {} ms, max {longest} ms", all.len(), all[all.len() / 2])
        }
        None => "no change of owner".to_owned(),
    }
}

/// The longest gap.
pub(super) fn longest(changes: &[Change]) -> u128 {
    changes.iter().map(|change| change.gap_ms).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn view(shard: u32, epoch: u64, phase: &str) -> View {
        View { shard, epoch, phase: phase.to_owned() }
    }

    #[test]
    fn a_gap_ends_with_the_first_answer_of_a_higher_epoch_and_a_late_answer_of_a_lower_one_counts_nothing() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut gaps = Gaps::default();
        gaps.take("a", at(0), &[view(0, 4, "running"), view(1, 2, "running")]);
        gaps.take("a", at(100), &[view(0, 4, "running")]);
        gaps.take("b", at(200), &[view(0, 5, "waiting")]);
        gaps.take("b", at(700), &[view(0, 5, "running")]);
        gaps.take("a", at(800), &[view(0, 4, "running")]);
        gaps.take("b", at(900), &[view(0, 5, "running")]);
        let found: Vec<_> = gaps.changes().iter().map(|one| (one.shard, one.gap_ms)).collect();
        assert_eq!(found, [(0, 600)]);
        assert_eq!(gaps.of(&BTreeSet::from(["a".to_owned()])), BTreeSet::from([1]));
        assert_eq!(gaps.owned_since(at(850)), 1);
        assert_eq!(told(gaps.changes()), "1 changes of owner, gap p50 600 ms, max 600 ms");
        gaps.begin();
        assert_eq!((longest(gaps.changes()), told(gaps.changes()).as_str()), (0, "no change of owner"));
    }
}
