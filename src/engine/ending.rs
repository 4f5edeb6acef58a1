//! What follows from the end of an attempt: its closing, or its next try. Pure.

use std::sync::Arc;

use crate::model::{CloseReason, Ended, Outcome, RetryPolicy, Started, Wall};

const ABORTED_WAIT_MS: u64 = 1_000;
/// Longest wait before a handler that refused the token is called again, in milliseconds.
pub(super) const FENCED_WAIT_MS_MAX: u64 = 300_000;
/// Longest wait before a call that came to nothing is made again (a handler's topic that takes no records), in milliseconds.
pub(super) const ABORTED_WAIT_MS_MAX: u64 = 30_000;

/// Before a handler that refused the token, or was not reached for a reason that is not the task's, is called again: longer
/// each time, for that may last, and every attempt leaves its facts in the store. Not counted apart: what neither failed
/// nor lost its owner is taken for one.
pub(super) fn aborted_wait_ms(started: &Started, previous: Option<Outcome>, max_ms: u64) -> u64 {
    if previous != Some(Outcome::Aborted) {
        return ABORTED_WAIT_MS;
    }
    let not_failed = started.attempt.saturating_sub(1 + started.failures + started.interruptions);
    (ABORTED_WAIT_MS << not_failed.min(10)).min(max_ms)
}

/// Fills in what follows from an outcome.
pub(super) fn follow(
    ended: &mut Ended,
    policy: &RetryPolicy,
    ready_at: Wall,
    after_ms: Option<u64>,
    fraction: f64,
) {
    let at = ended.at;
    let after_ms = after_ms.filter(|_| !planted!(RetryAfterIgnored));
    let later = |ms: u64| at.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX));
    let is_too_old =
        |at: Wall| policy.max_age_ms.is_some_and(|ms| at.ms_since(ready_at) > ms) && !planted!(AgeIgnored);
    match ended.outcome {
        Outcome::Succeeded => {}
        Outcome::Fatal => {
            ended.failures += 1;
            ended.closed = Some(CloseReason::Fatal);
        }
        Outcome::Retryable | Outcome::TimedOut => {
            ended.failures += 1;
            let wait = if planted!(RetryWithoutWait) { 0 } else { policy.wait_ms(ended.failures, fraction) };
            let next_at = later(wait.max(after_ms.unwrap_or(0)));
            let attempts_max = policy.max_attempts + u32::from(planted!(OneAttemptTooMany));
            if ended.failures >= attempts_max || is_too_old(next_at) {
                ended.closed = Some(CloseReason::Exhausted);
            } else {
                ended.next_at = Some(next_at);
            }
        }
        Outcome::Snoozed => {
            ended.failures += u32::from(planted!(SnoozeIsFailure));
            let next_at = later(after_ms.unwrap_or(0));
            if is_too_old(next_at) {
                ended.closed = Some(CloseReason::Exhausted);
                ended.error = Some(Arc::from("it snoozed for longer than retry.max_age"));
            } else {
                ended.next_at = Some(next_at);
            }
        }
        Outcome::Aborted | Outcome::Interrupted => {
            ended.next_at = Some(later(ABORTED_WAIT_MS.max(after_ms.unwrap_or(0))));
        }
        Outcome::NotCalled => ended.next_at = Some(ended.at),
    }
}

pub(super) fn cut(bytes: Arc<[u8]>, max: usize) -> Arc<[u8]> {
    if bytes.len() <= max { bytes } else { Arc::from(&bytes[..max]) }
}
