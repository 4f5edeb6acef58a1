//! Refuses attempts of an owner that has been replaced: the receiving side of the fencing token.
//!
//! Between the owner's last look at its lease and the start of its handler a process can be frozen for any time. Only
//! the handler can tell: it keeps the highest token seen per queue and refuses a lower one. Tokens of different shards
//! are not comparable, so a queue is known with its shard.
//!
//! Memory is bounded. Those queues that were quiet longest are forgotten first; what stays of one is its epoch, as the
//! least one that any forgotten queue of its shard is still taken from. So an old owner stays fenced as long as the guard
//! lives, and what forgetting gives up is only the order of two attempts of one and the same owner.
//!
//! A guard in memory starts anew with its process. One that is [`FencingGuard::durable`] goes on where it was. Neither is
//! shared between processes: where several receive, keep the token beside the data that a handler changes.

mod disk;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disk::Disk;
use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::model::{AttemptToken, Epoch, Generation, QueueName, Shard};

/// Queues remembered unless said otherwise.
pub const GUARD_QUEUES_MAX: usize = 100_000;

/// When there are too many queues, one in so many is forgotten at once: which were quiet longest is found by looking at all.
const FORGOTTEN_SHARE: usize = 16;

/// A token lower than one seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fencing token {given} is lower than {highest}, already seen for the queue")]
pub struct Fenced {
    /// The token refused.
    pub given: AttemptToken,
    /// The highest seen; for a forgotten queue the lowest that would be taken.
    pub highest: AttemptToken,
}

/// Why nothing may be done for an attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// Its owner was replaced, or it came late: answer 409 with the header `Dueline-Fenced`, or [`Failure::Fenced`].
    ///
    /// [`Failure::Fenced`]: super::in_process::Failure::Fenced
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The disk does not take the token, or does not give it: try again.
    #[error("the fencing token cannot be kept: {0}")]
    Disk(String),
}

/// A guard's directory cannot be opened: in use by another process, unreadable, or damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fencing guard in {dir}: {detail}")]
pub struct OpenError {
    dir: String,
    detail: String,
}

/// Remembers the highest token of each queue. Clones share what they remember.
#[derive(Clone, Debug)]
pub struct FencingGuard {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug)]
struct Seen {
    queues_max: usize,
    clock: u64,
    queues: IndexMap<(Shard, QueueName), Mark, RandomState>,
    floors: BTreeMap<Shard, (Generation, Epoch)>,
    disk: Option<Disk>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    highest: AttemptToken,
    /// When it was used last, by the guard's clock.
    used: u64,
}

impl Default for FencingGuard {
    fn default() -> Self {
        FencingGuard::new(GUARD_QUEUES_MAX)
    }
}

impl FencingGuard {
    /// A guard that remembers at most `queues_max` queues (at least 1).
    pub fn new(queues_max: usize) -> FencingGuard {
        FencingGuard::with(queues_max, None)
    }

    /// A guard that keeps its tokens in a directory of its own, which one process has open at a time. Every queue is
    /// remembered, `queues_max` of them in memory; a token is on disk before it is admitted, which costs a sync.
    ///
    /// # Errors
    /// The directory cannot be made or opened.
    pub fn durable(dir: impl AsRef<Path>, queues_max: usize) -> Result<FencingGuard, OpenError> {
        let dir = dir.as_ref();
        let named =
            |error: fjall::Error| OpenError { dir: dir.display().to_string(), detail: error.to_string() };
        Ok(FencingGuard::with(queues_max, Some(Disk::open(dir).map_err(named)?)))
    }

    fn with(queues_max: usize, disk: Option<Disk>) -> FencingGuard {
        let seen = Seen {
            disk,
            queues_max: queues_max.max(1),
            clock: 0,
            queues: IndexMap::default(),
            floors: BTreeMap::new(),
        };
        FencingGuard { seen: Arc::new(Mutex::new(seen)) }
    }

    /// Takes a token that is not lower than any seen for the queue, and remembers it. Of a durable guard it waits for the
    /// disk.
    ///
    /// # Errors
    /// The token is lower, or cannot be kept: nothing may be done for this attempt.
    pub fn admit(&self, shard: Shard, queue: &QueueName, token: AttemptToken) -> Result<(), NotAdmitted> {
        self.lock().admit((shard, queue.clone()), token)
    }

    /// Queues remembered now.
    pub fn queues(&self) -> usize {
        self.lock().queues.len()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn admit(&mut self, queue: (Shard, QueueName), token: AttemptToken) -> Result<(), NotAdmitted> {
        let known = self.queues.get_index_of(&queue);
        let highest = match (known, &self.disk) {
            (Some(index), _) => Some(self.queues[index].highest),
            (None, Some(disk)) => disk.highest(queue.0, &queue.1).map_err(|error| on_disk(&error))?,
            (None, None) => self.floor(queue.0),
        };
        if let Some(highest) = highest.filter(|highest| token < *highest) {
            return Err(Fenced { given: token, highest }.into());
        }
        if let Some(disk) = self.disk.as_ref().filter(|_| highest != Some(token)) {
            disk.put(queue.0, &queue.1, token).map_err(|error| on_disk(&error))?;
        }
        self.clock += 1;
        let mark = Mark { highest: token, used: self.clock };
        match known {
            Some(index) => self.queues[index] = mark,
            None => {
                self.queues.insert(queue, mark);
                if self.queues.len() > self.queues_max {
                    self.forget_quietest();
                }
            }
        }
        Ok(())
    }

    /// What a queue that is not remembered was at least.
    fn floor(&self, shard: Shard) -> Option<AttemptToken> {
        let (generation, epoch) = *self.floors.get(&shard)?;
        Some(AttemptToken { generation, epoch, sequence: 0 })
    }

    fn forget_quietest(&mut self) {
        let mut uses: Vec<u64> = self.queues.values().map(|mark| mark.used).collect();
        let count = (uses.len() / FORGOTTEN_SHARE).max(1);
        let last = *uses.select_nth_unstable(count - 1).1;
        let floors = &mut self.floors;
        self.queues.retain(|(shard, _), mark| {
            let stays = mark.used > last;
            if !stays {
                let epoch = (mark.highest.generation, mark.highest.epoch);
                let floor = floors.entry(*shard).or_insert(epoch);
                *floor = epoch.max(*floor);
            }
            stays
        });
    }
}

fn on_disk(error: &fjall::Error) -> NotAdmitted {
    NotAdmitted::Disk(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{FORGOTTEN_SHARE, Fenced, FencingGuard, NotAdmitted};
    use crate::model::{AttemptToken, Epoch, Generation, QueueName, Shard};

    fn token(epoch: u64, sequence: u64) -> AttemptToken {
        AttemptToken { generation: Generation(0), epoch: Epoch(epoch), sequence }
    }

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    #[test]
    fn a_lower_token_is_refused_and_an_equal_or_higher_one_taken() {
        let guard = FencingGuard::default();
        for taken in [token(3, 41), token(3, 41), token(3, 42), token(4, 1)] {
            assert!(guard.admit(Shard(1), &queue("a"), taken).is_ok(), "{taken}");
        }
        for refused in [token(3, 99), token(4, 0)] {
            let error = guard.admit(Shard(1), &queue("a"), refused).expect_err("an old token");
            assert_eq!(error, NotAdmitted::Fenced(Fenced { given: refused, highest: token(4, 1) }));
        }
        let reset = AttemptToken { generation: Generation(1), epoch: Epoch(1), sequence: 0 };
        assert!(
            guard.admit(Shard(1), &queue("a"), reset).is_ok(),
            "a new generation is higher than any epoch"
        );
    }

    #[test]
    fn queues_and_shards_do_not_fence_each_other() {
        let guard = FencingGuard::default();
        guard.admit(Shard(1), &queue("a"), token(9, 9)).expect("taken");
        assert!(guard.admit(Shard(1), &queue("b"), token(1, 1)).is_ok());
        assert!(guard.admit(Shard(2), &queue("a"), token(1, 1)).is_ok());
    }

    #[test]
    fn a_full_guard_forgets_the_quietest_queue_but_never_its_epoch() {
        let guard = FencingGuard::new(2);
        guard.admit(Shard(1), &queue("a"), token(5, 1)).expect("taken");
        guard.admit(Shard(1), &queue("b"), token(5, 2)).expect("taken");
        guard.admit(Shard(1), &queue("a"), token(5, 3)).expect("taken");
        guard.admit(Shard(1), &queue("c"), token(5, 4)).expect("taken");
        assert_eq!(guard.queues(), 2);
        assert!(guard.admit(Shard(1), &queue("a"), token(5, 2)).is_err(), "a was used last, b was forgotten");
        assert!(guard.admit(Shard(1), &queue("b"), token(4, 9)).is_err(), "an older owner stays fenced");
        assert!(guard.admit(Shard(1), &queue("b"), token(5, 1)).is_ok());
        assert!(guard.admit(Shard(2), &queue("b"), token(1, 1)).is_ok());
    }

    #[test]
    fn a_durable_guard_knows_its_tokens_after_a_restart_and_has_its_directory_for_itself() {
        let dir = tempfile::tempdir().expect("a directory");
        let guard = FencingGuard::durable(dir.path(), 2).expect("opened");
        for name in ["a", "b", "c", "d"] {
            guard.admit(Shard(1), &queue(name), token(5, 7)).expect("taken");
        }
        assert_eq!(guard.queues(), 2, "the others are on disk");
        assert!(guard.admit(Shard(1), &queue("a"), token(5, 6)).is_err());
        let error = FencingGuard::durable(dir.path(), 2).expect_err("in use");
        assert!(error.to_string().contains("fencing guard in"), "{error}");
        drop(guard);
        let guard = FencingGuard::durable(dir.path(), 2).expect("opened again");
        for name in ["a", "b", "c", "d"] {
            let error = guard.admit(Shard(1), &queue(name), token(5, 6)).expect_err("an old token");
            assert_eq!(error, NotAdmitted::Fenced(Fenced { given: token(5, 6), highest: token(5, 7) }));
            assert!(guard.admit(Shard(1), &queue(name), token(5, 7)).is_ok());
        }
        assert!(guard.admit(Shard(2), &queue("a"), token(1, 1)).is_ok(), "another shard's queue");
    }

    #[test]
    fn of_many_queues_the_quietest_are_forgotten_together() {
        let guard = FencingGuard::new(160);
        let name = |index: u64| queue(&format!("q{index}"));
        for index in 0..160 {
            guard.admit(Shard(1), &name(index), token(5, 7)).expect("taken");
        }
        guard.admit(Shard(1), &name(0), token(5, 7)).expect("taken");
        guard.admit(Shard(1), &name(160), token(5, 7)).expect("taken");
        assert_eq!(guard.queues(), 161 - 161 / FORGOTTEN_SHARE);
        for kept in [0, 11, 159, 160] {
            assert!(guard.admit(Shard(1), &name(kept), token(5, 6)).is_err(), "{kept} is known");
        }
        for forgotten in 1..=10 {
            assert!(
                guard.admit(Shard(1), &name(forgotten), token(4, 9)).is_err(),
                "of {forgotten} the epoch is"
            );
            assert!(guard.admit(Shard(1), &name(forgotten), token(5, 6)).is_ok(), "{forgotten} is not");
        }
    }

    #[test]
    fn memory_stays_bounded_over_many_queues() {
        let guard = FencingGuard::new(10);
        for index in 0..1_000 {
            guard.admit(Shard(index % 4), &queue(&format!("q{index}")), token(1, 1)).expect("taken");
        }
        let seen = guard.lock();
        assert_eq!((seen.queues.len(), seen.floors.len()), (10, 4));
    }
}
