//! Who writes which tasks: chunks of one shard, given out to whoever asks until the time is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tasks of one shard that are written together: the numbers from `first` on, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) shard: u32,
    first: u64,
    step: u64,
    pub(super) count: u64,
}

impl Chunk {
    /// The numbers of its tasks.
    pub(super) fn tasks(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |index| self.first + index * self.step)
    }
}

/// The chunks of one run, the shards in turn.
pub(super) struct Chunks {
    first: u64,
    together: u64,
    shards: u64,
    /// Chunks, at most.
    most: u64,
    until: Instant,
    given: AtomicU64,
}

impl Chunks {
    /// Of `together` tasks each, from the number `first` on, for so long; at most about `tasks_max`, and one at least.
    pub(super) fn new(first: u64, together: u64, shards: u64, tasks_max: u64, time: Duration) -> Chunks {
        let most = (tasks_max / together).max(1);
        Chunks { first, together, shards, most, until: Instant::now() + time, given: AtomicU64::new(0) }
    }

    pub(super) fn next(&self) -> Option<Chunk> {
        let is_over = |given: u64| given >= self.most || (given > 0 && Instant::now() >= self.until);
        let more = |given: u64| (!is_over(given)).then_some(given + 1);
        let number = self.given.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let (group, shard) = (number / self.shards, number % self.shards);
        let first = self.first + group * self.together * self.shards + shard;
        Some(Chunk { shard: shard as u32, first, step: self.shards, count: self.together })
    }

    /// Tasks given out.
    pub(super) fn tasks(&self) -> u64 {
        self.given.load(Ordering::Relaxed) * self.together
    }

    /// Above the number of every task given out.
    pub(super) fn end(&self) -> u64 {
        let groups = self.given.load(Ordering::Relaxed).div_ceil(self.shards);
        self.first + groups * self.together * self.shards
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_task_is_given_out_twice_and_those_of_a_chunk_are_of_one_shard() {
        let mut seen = BTreeSet::new();
        let mut first = 0;
        for (together, most) in [(3, 50), (7, 60)] {
            let chunks = Chunks::new(first, together, 4, most, Duration::from_secs(3_600));
            while let Some(chunk) = chunks.next() {
                for task in chunk.tasks() {
                    assert_eq!(task % 4, u64::from(chunk.shard));
                    assert!(seen.insert(task) && (first..chunks.end()).contains(&task), "{task}");
                }
            }
            assert_eq!(chunks.tasks(), most / together * together);
            first = chunks.end();
        }
    }

    #[test]
    fn when_the_time_is_over_one_chunk_was_given_out() {
        let chunks = Chunks::new(0, 5, 2, 1_000, Duration::ZERO);
        assert!(chunks.next().is_some() && chunks.next().is_none());
        assert_eq!(chunks.tasks(), 5);
    }
}
