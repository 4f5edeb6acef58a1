//! The two clocks. Boot time is the kernel's CLOCK_BOOTTIME (`std::time::Instant` stops in suspend). Wall time is read
//! once at the start and then advanced by boot time, so that a step of the system clock moves no deadline; it follows
//! the system clock by at most 500 parts per million.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::model::{Boot, Now, Wall};

/// The clocks of a process.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Microseconds from boot time to wall time.
    offset_us: Arc<AtomicI64>,
    jumps: Arc<Jumps>,
}

/// Jumps of the system clock against boot time.
#[derive(Debug)]
struct Jumps {
    /// The system's offset at the last jump, or since then by [`Clock::keep`], in microseconds.
    seen_us: AtomicI64,
    count: AtomicU64,
}

const KEEP_EVERY: Duration = Duration::from_secs(1);
const SLEW_US_MAX: i64 = 500;
/// A difference above this is a step, said loudly once; as long as the margin of a lease (default).
const STEP_US: i64 = 1_000_000;

impl Clock {
    /// Clocks that agree with the system's now.
    pub fn start() -> Clock {
        Clock::at(system_offset_us())
    }

    fn at(offset_us: i64) -> Clock {
        let jumps = Jumps { seen_us: AtomicI64::new(offset_us), count: AtomicU64::new(0) };
        Clock { offset_us: Arc::new(AtomicI64::new(offset_us)), jumps: Arc::new(jumps) }
    }

    /// How often the system clock has moved against boot time by more than a second, beyond drift, up to the last
    /// [`Clock::now`]. It was set, or boot time stood still while a host had the machine stopped: who measures a lease
    /// by boot time has to start anew.
    pub fn jumps(&self) -> u64 {
        self.jumps.count.load(Ordering::Acquire)
    }

    fn look_for_jump(&self, offset_us: i64) {
        let seen_us = self.jumps.seen_us.load(Ordering::Acquire);
        if (offset_us - seen_us).abs() <= STEP_US {
            return;
        }
        // Counted before the new offset is seen: whoever sees that knows of the jump. Two who count it do no harm.
        self.jumps.count.fetch_add(1, Ordering::AcqRel);
        // Who loses against another that saw it too says nothing; against drift, it is seen again by the next one.
        let exchange =
            self.jumps.seen_us.compare_exchange(seen_us, offset_us, Ordering::AcqRel, Ordering::Acquire);
        if exchange.is_ok() {
            tracing::warn!(
                step_ms = (offset_us - seen_us) / 1_000,
                "the system clock moved against boot time: leases are verified anew"
            );
        }
    }

    /// Lets clocks drift apart by what clocks do: stops of less than a second each add up until they count.
    fn forgive_drift(&self, offset_us: i64) {
        let seen_us = self.jumps.seen_us.load(Ordering::Acquire);
        let drift_us = (offset_us - seen_us).clamp(-SLEW_US_MAX, SLEW_US_MAX);
        // Against a jump found meanwhile this loses, and is made up for a second later.
        let _ = self.jumps.seen_us.compare_exchange(
            seen_us,
            seen_us + drift_us,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// Both times.
    pub fn now(&self) -> Now {
        let boot_us = boot_us();
        self.look_for_jump(system_offset_us());
        self.at_us(boot_us)
    }

    fn at_us(&self, boot_us: i64) -> Now {
        let wall_us = boot_us + self.offset_us.load(Ordering::Relaxed);
        Now { wall: Wall(wall_us.div_euclid(1_000)), boot: Boot(u64::try_from(boot_us / 1_000).unwrap_or(0)) }
    }

    /// The boot time, in microseconds, at which what is due at `at` for who saw the clocks at `seen` is due by the wall clock: both
    /// are told in whole milliseconds, which do not begin together. What is due by boot time may be a millisecond later still.
    pub(super) fn instant_us(&self, seen: Now, at: Boot) -> i64 {
        let wait_ms = i64::try_from(at.ms_since(seen.boot)).unwrap_or(i64::MAX);
        seen.wall
            .plus_ms(wait_ms)
            .0
            .saturating_mul(1_000)
            .saturating_sub(self.offset_us.load(Ordering::Relaxed))
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
            self.forgive_drift(system_offset_us());
        }
    }
}

/// Boot time in microseconds.
pub(super) fn boot_us() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

/// From boot time to the system's wall time. That is asked of the C library, as all other clocks in the process are, so that
/// whoever moves the clock of a program (`LD_PRELOAD`) moves this one too.
fn system_offset_us() -> i64 {
    let wall = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
    };
    wall.saturating_sub(boot_us())
}

#[cfg(test)]
mod tests {
    use super::{Clock, SLEW_US_MAX, STEP_US, system_offset_us};

    #[test]
    fn a_jump_is_counted_once_and_drift_never() {
        let clock = Clock::at(system_offset_us() - 2 * STEP_US);
        assert_eq!(clock.jumps(), 0);
        clock.now();
        clock.now();
        assert_eq!(clock.jumps(), 1);
        let offset_us = system_offset_us();
        for second in 1..=20_000 {
            let drifted_us = offset_us + second * SLEW_US_MAX;
            clock.look_for_jump(drifted_us);
            clock.forgive_drift(drifted_us);
        }
        assert_eq!(clock.jumps(), 1, "ten seconds in six hours");
        clock.look_for_jump(offset_us - 3_600 * STEP_US);
        assert_eq!(clock.jumps(), 2);
    }

    #[test]
    fn stops_of_less_than_a_second_add_up() {
        let clock = Clock::start();
        let offset_us = system_offset_us();
        for stop in 1..=3 {
            clock.look_for_jump(offset_us + stop * STEP_US * 6 / 10);
        }
        assert_eq!(clock.jumps(), 1, "1.2 seconds after two of them");
    }

    #[test]
    fn what_is_due_is_due_at_the_beginning_of_its_millisecond() {
        for offset_us in [1_000_250, 999_999, 1_000_000, 1_000_900] {
            let clock = Clock::at(system_offset_us() / 1_000 * 1_000 + offset_us);
            let seen = clock.now();
            for wait_ms in [1_u32, 20] {
                let at = seen.boot.plus_ms(wait_ms.into());
                let at_us = clock.instant_us(seen, at);
                let due = seen.wall.plus_ms(wait_ms.into());
                assert_eq!((clock.at_us(at_us).wall, clock.at_us(at_us - 1).wall), (due, due.plus_ms(-1)));
                assert!(at.ms_since(clock.at_us(at_us).boot) <= 1);
            }
        }
    }

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
