//! Time for a run: wall time for the ledgers, the boot clock for lengths, and waiting for something with a deadline.

use std::time::Duration;

use anyhow::{Result, bail};
use rustix::time::{ClockId, clock_gettime};

/// How often something that is waited for is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Milliseconds after 1970.
pub(crate) fn wall_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Microseconds of a clock that never steps, and on Linux also counts while the machine sleeps.
pub(crate) fn boot_us() -> i64 {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// RFC 3339 with milliseconds.
pub(crate) fn rfc3339(wall_ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(wall_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{at:.3}")
}

/// Milliseconds after 1970 of an RFC 3339 text.
pub(crate) fn parse(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

pub(crate) async fn sleep_ms(ms: i64) {
    tokio::time::sleep(Duration::from_millis(u64::try_from(ms).unwrap_or(0))).await;
}

/// Waits until a wall time.
pub(crate) async fn until_wall(wall: i64) {
    sleep_ms(wall - wall_ms()).await;
}

/// Waits until `holds`, looking often.
///
/// # Errors
/// It does not hold within `seconds`.
pub(crate) async fn until(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds);
    while !holds() {
        if tokio::time::Instant::now() > deadline {
            bail!("not within {seconds} s: {what}");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_as_it_was_written() {
        let text = rfc3339(1_795_000_000_123);
        assert_eq!(parse(&text), Some(1_795_000_000_123), "{text}");
        assert_eq!(parse("yesterday"), None);
    }
}
