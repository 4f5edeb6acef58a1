//! Refuses attempts of an owner that has been replaced: the receiving side of the fencing token.
//!
//! Between the owner's last look at its lease and the start of its handler a process can be frozen for any time. Only
//! the handler can tell: it keeps the highest token seen per queue and refuses a lower one. Tokens of different shards
//! are not comparable, so a queue is known with its shard.
//!
//! Memory is bounded. The queue that was quiet longest is forgotten first; what stays of it is its epoch, as the
//! least one that any forgotten queue of its shard is still taken from. So an old owner stays fenced for ever, and
//! what forgetting gives up is only the order of two attempts of one and the same owner.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::{AttemptToken, Epoch, Generation, QueueName, Shard};

/// Queues remembered unless said otherwise.
pub const GUARD_QUEUES_MAX: usize = 100_000;

/// A token lower than one seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fencing token {given} is lower than {highest}, already seen for the queue")]
pub struct Fenced {
    /// The token refused.
    pub given: AttemptToken,
    /// The highest seen; for a forgotten queue the lowest that would be taken.
    pub highest: AttemptToken,
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
    queues: BTreeMap<(Shard, QueueName), Mark>,
    quiet: BTreeMap<u64, (Shard, QueueName)>,
    floors: BTreeMap<Shard, (Generation, Epoch)>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    highest: AttemptToken,
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
        let seen = Seen {
            queues_max: queues_max.max(1),
            clock: 0,
            queues: BTreeMap::new(),
            quiet: BTreeMap::new(),
            floors: BTreeMap::new(),
        };
        FencingGuard { seen: Arc::new(Mutex::new(seen)) }
    }

    /// Takes a token that is not lower than any seen for the queue, and remembers it.
    ///
    /// # Errors
    /// The token is lower: nothing may be done for this attempt.
    pub fn admit(&self, shard: Shard, queue: &QueueName, token: AttemptToken) -> Result<(), Fenced> {
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
    fn admit(&mut self, queue: (Shard, QueueName), token: AttemptToken) -> Result<(), Fenced> {
        match self.queues.get(&queue).copied() {
            Some(mark) if token < mark.highest => return Err(Fenced { given: token, highest: mark.highest }),
            Some(mark) => {
                self.quiet.remove(&mark.used);
            }
            None => self.admit_unknown(queue.0, token)?,
        }
        self.clock += 1;
        self.quiet.insert(self.clock, queue.clone());
        self.queues.insert(queue, Mark { highest: token, used: self.clock });
        if self.queues.len() > self.queues_max {
            self.forget_quietest();
        }
        Ok(())
    }

    fn admit_unknown(&self, shard: Shard, token: AttemptToken) -> Result<(), Fenced> {
        match self.floors.get(&shard) {
            Some(&(generation, epoch)) if (token.generation, token.epoch) < (generation, epoch) => {
                Err(Fenced { given: token, highest: AttemptToken { generation, epoch, sequence: 0 } })
            }
            _ => Ok(()),
        }
    }

    fn forget_quietest(&mut self) {
        let Some((_, queue)) = self.quiet.pop_first() else { return };
        let mark = self.queues.remove(&queue).expect("every quiet queue is a remembered one");
        let epoch = (mark.highest.generation, mark.highest.epoch);
        let floor = self.floors.entry(queue.0).or_insert(epoch);
        *floor = epoch.max(*floor);
    }
}

#[cfg(test)]
mod tests {
    use super::FencingGuard;
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
            assert_eq!((error.given, error.highest), (refused, token(4, 1)));
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
    fn memory_stays_bounded_over_many_queues() {
        let guard = FencingGuard::new(10);
        for index in 0..1_000 {
            guard.admit(Shard(index % 4), &queue(&format!("q{index}")), token(1, 1)).expect("taken");
        }
        let seen = guard.lock();
        assert_eq!((seen.queues.len(), seen.quiet.len(), seen.floors.len()), (10, 10, 4));
    }
}
