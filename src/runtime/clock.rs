//! The two clocks. Boot time is the kernel's CLOCK_BOOTTIME (`std::time::Instant` stops in suspend). Wall time is read
//! once at the start and then advanced by boot time, so that a step of the system clock moves no deadline; it follows
//! the system clock by at most 500 parts per million.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::model::{Boot, Now, Wall};

/// The clocks of a process.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Microseconds from boot time to wall time.
    offset_us: Arc<AtomicI64>,
}

const KEEP_EVERY: Duration = Duration::from_secs(1);
const SLEW_US_MAX: i64 = 500;
/// A difference above this is a step, said loudly once.
const STEP_US: i64 = 1_000_000;

impl Clock {
    /// Clocks that agree with the system's now.
    pub fn start() -> Clock {
        Clock { offset_us: Arc::new(AtomicI64::new(system_offset_us())) }
    }

    /// Both times.
    pub fn now(&self) -> Now {
        let boot_us = boot_us();
        let wall_us = boot_us + self.offset_us.load(Ordering::Relaxed);
        Now { wall: Wall(wall_us.div_euclid(1_000)), boot: Boot(u64::try_from(boot_us / 1_000).unwrap_or(0)) }
    }

    /// Wall time in microseconds since the Unix epoch, for lateness.
    pub fn wall_us(&self) -> i64 {
        boot_us() + self.offset_us.load(Ordering::Relaxed)
    }

    /// Follows the system clock for ever.
    pub async fn keep(self) {
        let mut stepped = false;
        loop {
            tokio::time::sleep(KEEP_EVERY).await;
            let behind = system_offset_us() - self.offset_us.load(Ordering::Relaxed);
            if behind.abs() > STEP_US && !stepped {
                tracing::warn!(step_ms = behind / 1_000, "the system clock was set: following it slowly");
            }
            stepped = behind.abs() > STEP_US;
            self.offset_us.fetch_add(behind.clamp(-SLEW_US_MAX, SLEW_US_MAX), Ordering::Relaxed);
        }
    }
}

fn boot_us() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

fn system_offset_us() -> i64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000 - boot_us()
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn time_never_goes_back() {
        let clock = Clock::start();
        let mut last = clock.now();
        for _ in 0..1_000 {
            let now = clock.now();
            assert!(now.boot >= last.boot && now.wall >= last.wall);
            last = now;
        }
    }
}
