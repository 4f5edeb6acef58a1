//! Every bound of the HTTP interface, named with its unit.

use std::time::Duration;

/// Longest time for one request, the wait of `Prefer: wait` included.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait of `Prefer: wait`, in seconds; more counts as this.
pub(super) const WAIT_S_MAX: u64 = 30;
/// Body of a small request (a reason, a new time), in bytes.
pub(super) const SMALL_BODY_BYTES_MAX: usize = 16 * 1024;
/// Body of a batch, in bytes.
pub(super) const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Lines of a batch.
pub(super) const BATCH_LINES_MAX: usize = 10_000;
/// Events of a batch that are being written at once.
pub(super) const BATCH_IN_FLIGHT_MAX: usize = 256;
/// Longest idempotency key, in bytes.
pub(super) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// Most entries of a page.
pub(super) const PAGE_SIZE_MAX: usize = 1_000;
/// Entries of a page when nothing is said.
pub(super) const PAGE_SIZE: usize = 100;
/// Events of one task that are shown.
pub(super) const HISTORY_MAX: usize = 200;
/// Longest time for one question to another instance.
pub(super) const HOP_TIMEOUT: Duration = Duration::from_secs(10);
