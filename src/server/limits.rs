//! Every bound of the HTTP interface, named with its unit.

use std::time::Duration;

/// Largest headers of a request, all together, in bytes.
pub(super) const HEADER_BYTES_MAX: usize = 32 * 1024;
/// Longest path and query, in bytes: two names of 500 bytes, each byte percent-encoded, and some parameters.
pub(super) const URI_BYTES_MAX: usize = 8 * 1024;
/// Requests answered at once; more are told to come back. Probes and metrics do not count.
pub(super) const REQUESTS_MAX: usize = 1_024;
/// Connections open at once; more wait to be accepted.
pub(super) const CONNECTIONS_MAX: usize = 4_096;
/// A connection on which nothing is read or written for this long is closed.
pub(super) const CONNECTION_IDLE: Duration = Duration::from_secs(120);
/// Time for requests under way when the process stops.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(10);
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
pub(super) const HOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer of another instance, in bytes.
pub(super) const HOP_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest time for a question to a shard of this instance.
pub(super) const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// Shards that the store or the log is asked about at once.
pub(super) const SHARDS_AT_ONCE: usize = 16;
/// Rows of `due` that one page of a list reads, about.
pub(super) const LIST_ROWS_MAX: usize = 20_000;
/// Buckets of `due` that one page of a list looks into, all shards together, about.
pub(super) const LIST_BUCKETS_MAX: i64 = 9_000;
/// Records of one page of a topic, past the first, in bytes.
pub(super) const RECORDS_BYTES_MAX: usize = 4 * 1024 * 1024;
