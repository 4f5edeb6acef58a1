//! What the writer does for the database's files: memtables are rotated, flushes are awaited, runs are compacted.
//!
//! fjall asks its worker for one step of compaction with each flush. Under a load that lasts a step is not enough for what a flush
//! brings in, once there are several levels; from thirty unsorted runs on fjall holds up who writes until there are fewer, and if its worker
//! is through with all steps that were asked for by then, for ever (seen with files of 2 MiB, after two million tasks).

use std::sync::Arc;
use std::time::{Duration, Instant};

use fjall::{AbstractTree as _, Database, Keyspace, PersistMode};

use super::db::{Failure, MEMTABLE_BYTES, MEMTABLE_BYTES_MAX};
use super::writer::Writer;

/// Sealed memtables of a table at which the writer waits for the flush. fjall itself would wait from four on, without
/// end should its flush have failed.
const SEALED_MEMTABLES_MAX: usize = 3;
/// Tables are quiet when for so long no more than so much was written, in bytes.
pub(super) const QUIET: Duration = Duration::from_secs(3);
const QUIET_BYTES: usize = 256 * 1024;
/// Memtables of quiet tables are flushed when they hold more than this together, in bytes: memory at rest is small,
/// and so is the journal that the next start reads.
const QUIET_MEMTABLES_BYTES: u64 = 1024 * 1024;
/// Unsorted runs of a table from which the writer compacts it itself before it writes, well below fjall's thirty.
const RUNS_MAX: usize = 20;
/// How long the writer waits before it looks at the database again.
const FLUSH_POLL: Duration = Duration::from_millis(5);

/// Bytes written since a moment.
pub(super) struct Lately {
    since: Instant,
    bytes: usize,
}

impl Lately {
    /// Nothing yet.
    pub(super) fn new() -> Lately {
        Lately { since: Instant::now(), bytes: 0 }
    }

    /// Notes a batch; true when little was written for a while.
    fn is_quiet(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        if self.since.elapsed() < QUIET {
            return false;
        }
        let quiet = self.bytes < QUIET_BYTES;
        *self = Lately::new();
        quiet
    }
}

impl Writer {
    /// After a batch of so many bytes.
    pub(super) fn look_for_quiet(&mut self, bytes: usize) {
        if !self.lately.is_quiet(bytes) || self.failed.is_some() {
            return;
        }
        if self.memtables_bytes() > QUIET_MEMTABLES_BYTES {
            self.flush_quiet_tables();
            self.has_flushed = true;
        } else if std::mem::take(&mut self.has_flushed)
            && let Err(error) = self.tables.forget_flushed()
        {
            tracing::warn!(%error, "flushed memtables of the embedded store stay in memory");
        }
    }

    /// The flush itself runs on the database's own threads. A failure shows at the next write.
    fn flush_quiet_tables(&self) {
        self.tables.all().into_iter().filter(|table| has_room(table)).for_each(rotate);
    }

    /// fjall's own count keeps what was flushed beside its worker, as a load of the index does.
    fn memtables_bytes(&self) -> u64 {
        self.tables.all().into_iter().map(|table| table.tree.active_memtable().size()).sum()
    }

    /// Rotates what is full, and does not leave it to fjall. fjall asks its worker to, with every batch until it is done, in a queue
    /// of 1,000 that the worker itself writes to: filled during a long compaction, both waited for ever. While older ones wait
    /// for their flush a memtable grows instead, to its bound, so that a compaction does not hold up writes at once.
    pub(super) fn rotate_full_memtables(&self) {
        for table in self.tables.all() {
            let size = table.tree.active_memtable().size();
            if (size > MEMTABLE_BYTES && has_room(table)) || size > MEMTABLE_BYTES_MAX {
                rotate(table);
            }
        }
    }

    /// Waits until nothing of the database's own holds up a write.
    pub(super) fn await_files(&self) -> Result<(), Failure> {
        let database = &self.tables.database;
        for table in self.tables.all() {
            compact_runs(database, table, || self.busy.begin())?;
        }
        while self.tables.all().iter().any(|table| table.sealed_memtable_count() >= SEALED_MEMTABLES_MAX) {
            wait_for(database)?;
        }
        Ok(())
    }
}

/// Compacts a table until it has few unsorted runs, in steps, as the worker does.
fn compact_runs(database: &Database, table: &Keyspace, begins: impl Fn()) -> Result<(), Failure> {
    while table.tree.l0_run_count() >= RUNS_MAX {
        begins();
        let strategy = Arc::clone(&table.config.compaction_strategy);
        let old_versions = database.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
        // Nothing, while the worker is at these runs.
        let compacted = table.tree.compact(strategy, old_versions);
        compacted.map_err(|error| Failure::of_read(&error.into()))?;
        if table.tree.l0_run_count() >= RUNS_MAX {
            wait_for(database)?;
        }
    }
    Ok(())
}

/// Gives the database's worker a moment, if it still lives.
fn wait_for(database: &Database) -> Result<(), Failure> {
    // Answers that; writes out nothing that is not written out anyway.
    database.persist(PersistMode::Buffer).map_err(|error| Failure::of_write(&error))?;
    std::thread::park_timeout(FLUSH_POLL);
    Ok(())
}

/// Whether a memtable may be sealed without holding up the next batch.
fn has_room(table: &Keyspace) -> bool {
    table.sealed_memtable_count() + 1 < SEALED_MEMTABLES_MAX
}

fn rotate(table: &Keyspace) {
    if let Err(error) = table.rotate_memtable() {
        tracing::warn!(%error, "rotating a memtable of the embedded store failed");
    }
}

#[cfg(test)]
mod tests {
    use fjall::{AbstractTree as _, Database, KeyspaceCreateOptions};

    use super::{RUNS_MAX, compact_runs};

    /// fjall would wait before the next write, and for ever, as nobody asks its worker for anything.
    #[test]
    fn runs_that_nobody_compacts_are_compacted_by_the_writer() {
        let dir = tempfile::tempdir().expect("a directory");
        let database = Database::builder(dir.path()).worker_threads_unchecked(0).open().expect("it opens");
        let table = database.keyspace("runs", KeyspaceCreateOptions::default).expect("it is made");
        let steps = std::cell::Cell::new(0);
        let runs = u32::try_from(RUNS_MAX).expect("few") + 15;
        for run in 0..runs {
            let mut ingestion = table.start_ingestion().expect("it begins");
            for key in [0, run + 1, u32::MAX] {
                ingestion.write(key.to_be_bytes(), run.to_be_bytes()).expect("it is written");
            }
            ingestion.finish().expect("it is in the table");
        }
        assert_eq!(table.tree.l0_run_count(), runs as usize);
        compact_runs(&database, &table, || steps.set(steps.get() + 1)).expect("they are compacted");
        assert!(table.tree.l0_run_count() < RUNS_MAX && steps.get() > 0);
        table.insert(7u32.to_be_bytes(), [1]).expect("it is written at once");
        for (key, run) in [(0, runs - 1), (5, 4), (runs, runs - 1), (u32::MAX, runs - 1)] {
            let found = table.get(key.to_be_bytes()).expect("it is read");
            assert_eq!(found.as_deref(), Some(run.to_be_bytes().as_slice()), "of {key}");
        }
    }
}
