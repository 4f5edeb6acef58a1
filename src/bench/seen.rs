//! What the handlers of a run saw: how many calls, how late, and whether each queue's tasks came in their order.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::dispatch::in_process::Context;

use super::measure::Times;
use super::report::Order;

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
    /// Calls of each queue that have not ended.
    inside: Vec<AtomicU32>,
    out_of_order: AtomicU64,
    overlapped: AtomicU64,
    repeated: AtomicU64,
}

/// A call that has not ended; ends when it is dropped.
pub(super) struct Inside {
    seen: Arc<Seen>,
    queue: Option<usize>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(inside) = self.queue.and_then(|queue| self.seen.inside.get(queue)) {
            inside.fetch_sub(1, Ordering::AcqRel);
        }
    }
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
            inside: (0..queues).map(|_| AtomicU32::new(0)).collect(),
            overlapped: AtomicU64::new(0),
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

    /// A call begins; it ends when what is returned is dropped.
    pub(super) fn note(self: &Arc<Seen>, context: &Context) -> Inside {
        let now = wall_us();
        self.last_us.fetch_max(now, Ordering::Relaxed);
        let key = &context.call.key;
        let (queue, task) = (number(key.queue.as_str(), "q-"), number(key.id.as_str(), "t-"));
        let inside = self.enter(queue);
        if let (Some(queue), Some(task)) = (queue, task) {
            self.in_order(queue, task);
        }
        let late = now - context.call.due_at.0 * 1_000;
        self.late.lock().unwrap_or_else(PoisonError::into_inner).add_us(late);
        self.called();
        inside
    }

    fn enter(self: &Arc<Seen>, queue: Option<u64>) -> Inside {
        let queue = queue.and_then(|queue| usize::try_from(queue).ok());
        if let Some(inside) = queue.and_then(|queue| self.inside.get(queue))
            && inside.fetch_add(1, Ordering::AcqRel) > 0
        {
            self.overlapped.fetch_add(1, Ordering::Relaxed);
        }
        Inside { seen: self.clone(), queue }
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

    /// In which order calls came.
    pub(super) fn order(&self) -> Order {
        Order {
            out_of_order: self.out_of_order.load(Ordering::Relaxed),
            overlapped: self.overlapped.load(Ordering::Relaxed),
            repeated: self.repeated.load(Ordering::Relaxed),
        }
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
        assert_eq!(seen.order(), Order { out_of_order: 1, overlapped: 0, repeated: 1 });
    }

    #[test]
    fn a_call_before_the_one_of_the_same_queue_has_ended_overlaps() {
        let seen = Arc::new(Seen::new(2));
        let first = seen.enter(Some(0));
        drop((seen.enter(Some(1)), seen.enter(None), seen.enter(Some(7))));
        assert_eq!(seen.order().overlapped, 0);
        drop(seen.enter(Some(0)));
        assert_eq!(seen.order().overlapped, 1);
        drop(first);
        drop(seen.enter(Some(0)));
        assert_eq!(seen.order().overlapped, 1);
    }
}
