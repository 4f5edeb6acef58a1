//! What the handlers of a run saw: how many calls, how late, and whether each queue's tasks came in their order.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::dispatch::in_process::Context;

use super::measure::Times;

/// Counted by every call of a handler.
pub(super) struct Seen {
    calls: AtomicU64,
    /// Never forgotten.
    calls_ever: AtomicU64,
    /// Calls whose attempts stay open.
    held: AtomicU64,
    /// When the last one was, in microseconds of wall time.
    last_us: AtomicI64,
    late: Mutex<Times>,
    /// Every call fails for good.
    fails: AtomicBool,
    /// The number of the last task of each queue, and 1.
    queues: Vec<AtomicU32>,
    out_of_order: AtomicU64,
    repeated: AtomicU64,
}

impl Seen {
    /// Nothing yet, of queues with numbers below `queues`.
    pub(super) fn new(queues: u64) -> Seen {
        Seen {
            calls: AtomicU64::new(0),
            calls_ever: AtomicU64::new(0),
            held: AtomicU64::new(0),
            last_us: AtomicI64::new(0),
            late: Mutex::default(),
            fails: AtomicBool::new(false),
            queues: (0..queues).map(|_| AtomicU32::new(0)).collect(),
            out_of_order: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
        }
    }

    pub(super) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.calls_ever.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn held(&self) {
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note(&self, context: &Context) {
        let now = wall_us();
        self.last_us.fetch_max(now, Ordering::Relaxed);
        let key = &context.call.key;
        if let (Some(queue), Some(task)) = (number(key.queue.as_str(), "q-"), number(key.id.as_str(), "t-")) {
            self.in_order(queue, task);
        }
        let late = now - context.call.due_at.0 * 1_000;
        self.late.lock().unwrap_or_else(PoisonError::into_inner).add_us(late);
        self.called();
    }

    /// Tasks of a queue are produced, and due, in the order of their numbers.
    fn in_order(&self, queue: u64, task: u64) {
        let Some(last) = usize::try_from(queue).ok().and_then(|queue| self.queues.get(queue)) else { return };
        let this = u32::try_from(task).map_or(u32::MAX, |task| task.saturating_add(1));
        match last.swap(this, Ordering::Relaxed) {
            last if last > this => self.out_of_order.fetch_add(1, Ordering::Relaxed),
            last if last == this => self.repeated.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn calls_ever(&self) -> u64 {
        self.calls_ever.load(Ordering::Relaxed)
    }

    pub(super) fn held_now(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn last_us(&self) -> i64 {
        self.last_us.load(Ordering::Relaxed)
    }

    /// Calls of a task that came after one behind it in its queue, and second calls of the same task.
    pub(super) fn disorder(&self) -> (u64, u64) {
        (self.out_of_order.load(Ordering::Relaxed), self.repeated.load(Ordering::Relaxed))
    }

    pub(super) fn fails(&self) -> bool {
        self.fails.load(Ordering::Relaxed)
    }

    pub(super) fn set_fails(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Begins anew: what was called and how late is forgotten, which tasks there were is not.
    pub(super) fn forget(&self) {
        self.calls.store(0, Ordering::Relaxed);
        self.take_late();
    }

    pub(super) fn take_late(&self) -> Times {
        std::mem::take(&mut self.late.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn number(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.parse().ok()
}

/// Wall time in microseconds.
pub(super) fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Wall time in milliseconds.
pub(super) fn wall_ms() -> i64 {
    wall_us() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_before_the_last_one_of_its_queue_is_out_of_order() {
        let seen = Seen::new(2);
        for (queue, task) in [(0, 4), (1, 3), (0, 5), (0, 5), (0, 4), (1, 9), (7, 1)] {
            seen.in_order(queue, task);
        }
        assert_eq!(seen.disorder(), (1, 1));
    }
}
