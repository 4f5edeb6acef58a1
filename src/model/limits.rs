//! Every bound of the product, named with its unit. Those a user may change are defaults of the config.

/// Longest queue name or task id, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 500;
/// Largest payload of one task, in bytes (default of `limits.payload_bytes`).
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;
/// Payloads up to this size lie in the task row; larger ones in a row of their own, read when the task starts.
pub const PAYLOAD_INLINE_BYTES_MAX: usize = 16 * 1024;
/// Largest schedule event read from the log, in bytes: payload, names, labels and envelope.
pub const EVENT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1024;
/// Furthest due time from the record's append time, in milliseconds (ten years).
pub const DUE_AHEAD_MS_MAX: i64 = 3_653 * 86_400_000;
/// Most labels on one task.
pub const LABELS_MAX: usize = 32;
/// Longest reason, label, collection or error text kept, in bytes.
pub const TEXT_BYTES_MAX: usize = 1_024;
/// Largest result of a handler that is kept, in bytes.
pub const RESULT_BYTES_MAX: usize = 16 * 1024;
/// Tasks that an instance holds in memory (default of `limits.tasks_in_memory`); a payload counts as one more per KiB.
pub const TASKS_IN_MEMORY: usize = 500_000;
/// Task events of an instance that are not published yet, in bytes of memory (default of `limits.events_bytes`).
pub const EVENTS_BYTES: usize = 128 * 1024 * 1024;
/// Task events published in one go, in bytes of their texts and of the payloads of dead letters; one is always taken.
pub const EVENTS_AT_ONCE_BYTES: usize = 4 * 1024 * 1024;
/// Task events published in one go.
pub const EVENTS_AT_ONCE: usize = 500;
/// How long the first of fewer waits for others, in milliseconds.
pub const EVENTS_WAIT_MS: u64 = 100;
/// How long the end of an attempt that nobody waits for waits for a start to go along with, in milliseconds.
pub const ENDS_WAIT_MS: u64 = 20;
/// How far ahead of now a shard loads tasks, in milliseconds.
pub const LOOK_AHEAD_MS: i64 = 120_000;
/// Ids with events on record that an instance knows of in memory, some thirteen bytes each (default of `limits.ids_in_memory`).
pub const IDS_IN_MEMORY: usize = 16_777_216;
/// Events with ids that a shard lists at most, or as many as its owner keeps in memory if that is more; one with more lists those
/// alone that may be packed.
pub const IDS_OF_SHARD: usize = 1_048_576;
/// Versions of one row of `event_ids`.
pub const IDS_OF_CHUNK: u64 = 256;
/// How far above the offset that is on record an event may lie that who looks for it by its id finds though no list has it yet.
pub const UNLISTED_VERSIONS_MAX: u64 = 65_536;
/// Schedule events that an instance has fetched and not stored yet, in bytes of memory (default of
/// `limits.intake_bytes`).
pub const INTAKE_BYTES: usize = 32 * 1024 * 1024;
/// What a schedule event on its way to the store takes in memory besides its own bytes, about.
pub const INTAKE_RECORD_BYTES: usize = 3 * 1024;
/// Records that one intake batch holds.
pub const INTAKE_BATCH_RECORDS_MAX: usize = 512;
/// Intake batches of a shard under way at once.
pub const INTAKE_BATCHES_MAX: usize = 3;
/// Events of one id that one batch takes. Each waits until the one before it is on record, and all of the batch with it.
pub const INTAKE_ROUNDS_MAX: usize = 4;
/// Records of an intake batch that has several events of an id: few, as all of them wait for its last round.
pub const INTAKE_ROUNDS_RECORDS_MAX: usize = 256;
/// Rows of one store request.
pub const WRITE_ROWS_MAX: usize = 1_024;
/// Store requests of one shard for execution facts under way at once.
pub const WRITES_IN_FLIGHT_MAX: usize = 2;
/// Rows of one page when a shard loads.
pub const LOAD_PAGE_ROWS: usize = 2_000;
/// Interruptions (owner lost, outcome unknown) after which a task is dead.
pub const INTERRUPTIONS_MAX: u32 = 10;
/// A cancel of an unknown task is remembered this long, in milliseconds of append time.
pub const REMEMBERED_CANCEL_MS: i64 = 3_600_000;
/// Default of the repeat window, in milliseconds of append time.
pub const REPEAT_WINDOW_MS: i64 = 86_400_000;
/// Ready tasks of one queue that stay in memory; above that they have a pointer in the store and are read when they are near their turn.
pub const QUEUE_TASKS_MAX: usize = 64;
/// Task rows between watermark and now above which unfinished ones get pointers, so that the watermark passes them.
pub const LATE_ROWS: usize = 20_000;
/// A task that is ready for less than this gets no pointer for the watermark's sake, in milliseconds.
pub const LATE_AFTER_MS: i64 = 30_000;
/// A task that comes in line for a slot later than this after it could first run is late: its handler may catch up at a rate
/// of its own.
pub const LATE_IN_LINE_MS: i64 = 60_000;
/// Tasks that get a pointer for the watermark's sake at once; the next ones with the next progress row.
pub const LATE_POINTERS_MAX: usize = 1_024;
/// Reads of pointers and of the tasks behind them under way at once, of one shard.
pub const LATE_READS_MAX: usize = 64;
/// Pointers of one page.
pub const LATE_PAGE_ROWS: usize = 64;
/// Width of a bucket of the `late` table, in milliseconds of due time.
pub const LATE_BUCKET_MS: i64 = 3_600_000;
/// Width of a bucket of the `due` table, in milliseconds of ready time.
pub const BUCKET_MS: i64 = 300_000;
/// Bits of a version that hold the offset; the generation lies above.
pub const VERSION_OFFSET_BITS: u32 = 44;
/// Priority of a task that says none.
pub const PRIORITY_DEFAULT: u8 = 5;
/// Default timeout of one attempt, in milliseconds.
pub const TIMEOUT_MS: u64 = 30_000;
/// Longest timeout of one attempt, in milliseconds (one day).
pub const TIMEOUT_MS_MAX: u64 = 86_400_000;
/// Most attempts a retry policy may allow.
pub const ATTEMPTS_MAX: u32 = 1_000;
