//! Time for tests: wall time, the clock that never steps, and waiting for something with a deadline.

use std::future::Future;
use std::time::Duration;

/// How often something that is waited for is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Milliseconds after 1970.
pub(crate) fn wall_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Microseconds of the clock that also counts while the machine sleeps.
pub(crate) fn boot_us() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// RFC 3339 with milliseconds.
pub(crate) fn rfc3339(wall_ms: i64) -> String {
    format!("{:.3}", jiff::Timestamp::from_millisecond(wall_ms).expect("a time of our days"))
}

/// Milliseconds after 1970 of an RFC 3339 text.
pub(crate) fn parse(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().expect("an RFC 3339 time").as_millisecond()
}

/// Waits until `holds`, looking often; panics with `what` after `seconds`.
pub(crate) async fn until(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) {
    until_async(what, seconds, || std::future::ready(holds())).await;
}

/// As [`until`], for what takes a question to find out.
pub(crate) async fn until_async<F: Future<Output = bool>>(
    what: &str,
    seconds: u64,
    mut holds: impl FnMut() -> F,
) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "not within {seconds} s: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until a wall time, for what is to happen while others work.
pub(crate) async fn until_wall(wall: i64) {
    let left = wall - wall_ms();
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0))).await;
}
