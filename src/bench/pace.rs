//! Holds writes up as a busy store does: they are taken one after the other, so many rows a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

/// How fast a store takes rows.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// 0: as it comes.
    rows_per_second: AtomicU64,
    /// When it has taken all that came so far.
    free_at: Mutex<Option<Instant>>,
}

impl Pace {
    /// From now on so many rows a second; `None`: as it comes.
    pub(super) fn set(&self, rows_per_second: Option<u64>) {
        self.rows_per_second.store(rows_per_second.unwrap_or(0), Ordering::Relaxed);
    }

    /// Until a write of so many rows has had its turn; `None`: nothing holds it up.
    pub(super) fn turn(&self, rows: usize) -> Option<BoxFuture<'static, ()>> {
        self.done_at(Instant::now(), rows).map(|done| sleep_until(done).boxed())
    }

    fn done_at(&self, now: Instant, rows: usize) -> Option<Instant> {
        let rows_per_second = self.rows_per_second.load(Ordering::Relaxed);
        if rows_per_second == 0 {
            return None;
        }
        let takes = Duration::from_secs_f64(rows as f64 / rows_per_second as f64);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = Some(free_at.map_or(now, |free_at| free_at.max(now)) + takes);
        *free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_taken_one_after_the_other_at_the_pace() {
        let (pace, now) = (Pace::default(), Instant::now());
        let after = |ms| now + Duration::from_millis(ms);
        assert_eq!(pace.done_at(now, 1_000), None);
        pace.set(Some(100));
        assert_eq!(pace.done_at(now, 50), Some(after(500)));
        assert_eq!(pace.done_at(after(100), 100), Some(after(1_500)));
        assert_eq!(
            pace.done_at(after(9_000), 100),
            Some(after(10_000)),
            "time without writes is not saved up"
        );
        pace.set(None);
        assert_eq!(pace.done_at(after(9_000), 1_000), None);
    }
}
