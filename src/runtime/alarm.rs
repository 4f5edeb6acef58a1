//! Waking at an instant of boot time.
//!
//! The runtime's own timers count whole milliseconds and round up, once in the timer and once more where it waits, which makes a
//! task that is alone in its queue a millisecond late on average. The kernel's timer (`timerfd_create(2)`) is exact to some tens of
//! microseconds, and goes on while the machine sleeps. Where there is none (other systems, no files left), the runtime's does.

use std::time::Duration;

/// One timer, for who waits again and again; made when it is waited for first.
#[derive(Default)]
pub(super) struct Alarm {
    #[cfg(target_os = "linux")]
    kernel: Option<kernel::Timer>,
}

impl Alarm {
    /// Ends at that boot time, in microseconds; `now_us` is what it is now. It may end before that when it was set to an earlier
    /// time and dropped: whoever waits looks at the clock, and waits again.
    pub(super) async fn until(&mut self, at_us: i64, now_us: i64) {
        let Some(left_us) = u64::try_from(at_us - now_us).ok().filter(|left_us| *left_us > 0) else { return };
        #[cfg(target_os = "linux")]
        {
            if self.kernel.is_none() {
                self.kernel = kernel::Timer::new().ok();
            }
            if let Some(timer) = &mut self.kernel {
                match timer.until(at_us, now_us).await {
                    Ok(()) => return,
                    Err(_) => self.kernel = None,
                }
            }
        }
        tokio::time::sleep(Duration::from_micros(left_us)).await;
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    const US: i64 = 1_000_000;
    const NS_OF_US: i64 = 1_000;
    /// Each is an open file, of which a process often may have 1,024; an instance with more shards has other timers for the rest.
    const TIMERS_MAX: usize = 256;
    static TIMERS: AtomicUsize = AtomicUsize::new(0);

    /// One of so many.
    struct Counted;

    impl Counted {
        fn new() -> io::Result<Counted> {
            let counted = Counted;
            match TIMERS.fetch_add(1, Ordering::Relaxed) {
                0..TIMERS_MAX => Ok(counted),
                _ => Err(io::Error::other("there are enough")),
            }
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            TIMERS.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) struct Timer {
        fd: AsyncFd<OwnedFd>,
        /// What it is set to, unless it has rung.
        set_us: Option<i64>,
        _counted: Counted,
    }

    impl Timer {
        pub(super) fn new() -> io::Result<Timer> {
            let counted = Counted::new()?;
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
            #[expect(deprecated, reason = "it is for descriptors that others close; this one is owned")]
            let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
            Ok(Timer { fd, set_us: None, _counted: counted })
        }

        /// Setting it is a system call: one that rings sooner is left as it is.
        pub(super) async fn until(&mut self, at_us: i64, now_us: i64) -> io::Result<()> {
            if !self.set_us.is_some_and(|set_us| (now_us..=at_us).contains(&set_us)) {
                let it_value = Timespec { tv_sec: at_us / US, tv_nsec: at_us % US * NS_OF_US };
                let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
                timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
                self.set_us = Some(at_us);
            }
            loop {
                let mut ready = self.fd.readable().await?;
                let mut count = [0; 8];
                if let Ok(read) = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut count)?)) {
                    self.set_us = None;
                    return read.map(drop);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::boot_us;
    use super::Alarm;

    #[tokio::test]
    async fn it_rings_when_it_is_time_whatever_it_was_set_to_before() {
        let mut alarm = Alarm::default();
        let mut late_us = Vec::new();
        for round in 0..50 {
            let at_us = boot_us() + 3_000 + round * 37;
            // Somebody else was quicker, once before that time and once after it.
            for other_us in [at_us - 2_500, at_us + 60_000_000] {
                let _ = futures::FutureExt::now_or_never(alarm.until(other_us, boot_us()));
            }
            while boot_us() < at_us {
                alarm.until(at_us, boot_us()).await;
            }
            late_us.push(boot_us() - at_us);
        }
        late_us.sort_unstable();
        // Half of them at least: the machine may do other things.
        assert!(late_us[0] >= 0 && late_us[25] < 10_000, "{late_us:?}");
    }

    #[tokio::test]
    async fn what_is_past_is_not_waited_for() {
        let mut alarm = Alarm::default();
        let now_us = boot_us();
        for at_us in [now_us, now_us - 1, 0, i64::MIN / 2] {
            assert!(futures::FutureExt::now_or_never(alarm.until(at_us, now_us)).is_some());
        }
    }
}
