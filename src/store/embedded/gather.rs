//! What the writer takes into one batch.
//!
//! A commit costs much the same however much is in it: an fsync, and waking all who wait for it. While one is under way the next batch
//! gathers, so batches grow by themselves where fsyncs are slow. Where they are fast a load is written in many small batches, and
//! processor time goes into commits instead of tasks. So behind a large batch the writer gathers on, as long as each look at the queue
//! finds more, for [`LOOKS_MAX`] of them. It sleeps between looks and nobody wakes it. Behind a small batch nothing waits.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::writer::Job;

/// Most changes of one batch.
const CHANGES_MAX: usize = 4_096;
/// A batch takes no further change from this size on, in bytes.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// A batch of this size is large, in bytes: some forty tasks, which 5,000 a second are in 8 ms.
const LARGE_BYTES: usize = 32 * 1024;
/// Time between two looks.
const LOOK: Duration = Duration::from_micros(250);
/// Most looks for one batch: 4 ms, with what a sleep takes longer than it was asked to.
const LOOKS_MAX: u32 = 13;

/// Takes changes from the queue, and knows how large the last batch was.
#[derive(Debug, Default)]
pub(super) struct Gatherer {
    last_bytes: usize,
}

/// Changes that are written together.
pub(super) struct Gathered {
    /// In the order in which they were asked for.
    pub(super) jobs: Vec<Job>,
    /// The size of all of them.
    pub(super) bytes: usize,
}

impl Gathered {
    fn has_room(&self) -> bool {
        self.jobs.len() < CHANGES_MAX && self.bytes < BYTES_MAX
    }

    /// Takes all that wait and that there is room for. Whether there were any.
    fn take(&mut self, queue: &Receiver<Job>) -> bool {
        let before = self.jobs.len();
        while self.has_room() {
            let Ok(job) = queue.try_recv() else { break };
            self.bytes += job.bytes;
            self.jobs.push(job);
        }
        self.jobs.len() > before
    }
}

impl Gatherer {
    /// The batch that begins with a change; `sleep` passes the time between looks.
    pub(super) fn gather(&mut self, first: Job, queue: &Receiver<Job>, sleep: impl Fn(Duration)) -> Gathered {
        let mut gathered = Gathered { bytes: first.bytes, jobs: vec![first] };
        gathered.take(queue);
        if self.last_bytes >= LARGE_BYTES {
            for _ in 0..LOOKS_MAX {
                if !gathered.has_room() {
                    break;
                }
                sleep(LOOK);
                if !gathered.take(queue) {
                    break;
                }
            }
        }
        self.last_bytes = gathered.bytes;
        gathered
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    use tokio::sync::Semaphore;

    use super::super::db::Failure;
    use super::super::writer::{Batch, Change};
    use super::*;

    struct Nothing;

    impl Change for Nothing {
        fn stage(&mut self, _: &mut Batch<'_>) {}

        fn settle(self: Box<Self>, _: Result<(), Failure>) {}
    }

    fn job(bytes: usize) -> Job {
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a permit");
        Job { change: Box::new(Nothing), bytes, _room: room }
    }

    fn send(queue: &Sender<Job>, bytes: usize) {
        queue.send(job(bytes)).expect("the queue is open");
    }

    /// Gathers while `coming` more changes come, one before each look: how many there are in the batch, and how many looks were taken.
    fn gathers(gatherer: &mut Gatherer, first_bytes: usize, coming: u32) -> (usize, u32) {
        let (sender, queue) = channel();
        let looks = Cell::new(0);
        let gathered = gatherer.gather(job(first_bytes), &queue, |_| {
            if looks.get() < coming {
                send(&sender, 1);
            }
            looks.set(looks.get() + 1);
        });
        assert_eq!(gathered.bytes, first_bytes + gathered.jobs.len() - 1);
        (gathered.jobs.len(), looks.get())
    }

    #[test]
    fn behind_a_small_batch_nothing_waits() {
        let mut gatherer = Gatherer::default();
        assert_eq!(gathers(&mut gatherer, LARGE_BYTES - 1, 5), (1, 0));
        assert_eq!(gathers(&mut gatherer, 1, 5), (1, 0));
    }

    #[test]
    fn behind_a_large_batch_more_is_waited_for_until_a_look_finds_nothing() {
        let mut gatherer = Gatherer::default();
        assert_eq!(gathers(&mut gatherer, LARGE_BYTES, 0), (1, 0));
        assert_eq!(gathers(&mut gatherer, LARGE_BYTES, 3), (4, 4));
        assert_eq!(gathers(&mut gatherer, LARGE_BYTES, 0), (1, 1));
        assert_eq!(gathers(&mut gatherer, 1, 0), (1, 1), "the last was large");
        assert_eq!(gathers(&mut gatherer, 1, 5), (1, 0), "the last was small");
    }

    #[test]
    fn more_is_waited_for_no_longer_than_there_are_looks() {
        let mut gatherer = Gatherer { last_bytes: LARGE_BYTES };
        let (all, looks) = gathers(&mut gatherer, 1, u32::MAX);
        assert_eq!((all, looks), (1 + LOOKS_MAX as usize, LOOKS_MAX));
    }

    #[test]
    fn what_a_batch_has_no_room_for_stays_in_the_queue_in_order() {
        let (sender, queue) = channel();
        let mut gatherer = Gatherer { last_bytes: LARGE_BYTES };
        [BYTES_MAX - 1, 1, 7].into_iter().for_each(|bytes| send(&sender, bytes));
        let sizes =
            |gathered: Gathered| -> Vec<usize> { gathered.jobs.iter().map(|job| job.bytes).collect() };
        let full = gatherer.gather(queue.recv().expect("a change"), &queue, |_| panic!("it is full"));
        assert_eq!(sizes(full), [BYTES_MAX - 1, 1]);
        let next = gatherer.gather(queue.recv().expect("a change"), &queue, |_| ());
        assert_eq!(sizes(next), [7]);
        (0..=CHANGES_MAX).for_each(|_| send(&sender, 1));
        let full = gatherer.gather(queue.recv().expect("a change"), &queue, |_| ());
        assert_eq!(full.jobs.len(), CHANGES_MAX);
        assert!(queue.try_recv().is_ok() && queue.try_recv().is_err());
    }
}
