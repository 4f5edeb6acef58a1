//! What the member's thread and the callers share: a bounded buffer for each assigned shard, and the changes of assignment.
//!
//! ```text
//! assigned ──▶ unplaced ──position──▶ reading ◀─position─ gone
//!                 ▲──────unplace──────────┘   ──gone──▶
//! ```
//! A shard that is not placed takes nothing in. One that is read when the group takes it stays on the board, and is read on, until it
//! is stopped, lost, or given again. The board never calls the client.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::log::{Assignment, Error, Record};
use crate::model::Shard;

/// Records that a shard's buffer takes before its partition is paused.
const BUFFER_RECORDS_MAX: usize = 8_192;
/// A shard's share of the buffer, in bytes, is at least this.
const BUFFER_BYTES_MIN: usize = 256 << 10;
/// A shard's share of the buffer, in bytes, is at most this.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// A paused partition is read on when its buffer is down to one part in so many.
const RESUME_PART: usize = 4;
/// What a buffered record costs beside its bytes.
const RECORD_OVERHEAD_BYTES: usize = 96;

/// Locks; a panic of another thread does not spread.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The assigned shards and the changes not yet told.
pub(super) struct Board {
    bytes_total: usize,
    cells: Mutex<BTreeMap<Shard, Arc<Cell>>>,
    changes: Mutex<Changes>,
    changed: Notify,
}

#[derive(Default)]
struct Changes {
    waiting: VecDeque<Assignment>,
    ended: bool,
}

impl Board {
    pub(super) fn new(bytes_total: usize) -> Board {
        Board { bytes_total, cells: Mutex::default(), changes: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn cell(&self, shard: Shard) -> Option<Arc<Cell>> {
        locked(&self.cells).get(&shard).cloned()
    }

    pub(super) fn cells(&self) -> Vec<(Shard, Arc<Cell>)> {
        locked(&self.cells).iter().map(|(shard, cell)| (*shard, cell.clone())).collect()
    }

    /// Whether the group has given nothing that it has not taken.
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.cells).values().all(|cell| cell.is_taken())
    }

    /// Adds unplaced shards and tells of them.
    pub(super) fn assign(&self, shards: Vec<Shard>) {
        let mut cells = locked(&self.cells);
        for shard in &shards {
            if let Some(before) = cells.insert(*shard, Arc::new(Cell::default())) {
                before.revoke();
            }
        }
        drop(cells);
        self.tell(Assignment::Assigned(shards));
    }

    /// The group takes shards in order: those that are read are read on. Gives those that it had given; the caller tells of them.
    pub(super) fn take(&self, shards: &[Shard]) -> Vec<Shard> {
        let mut cells = locked(&self.cells);
        let mut taken = Vec::new();
        for shard in shards {
            let Some(cell) = cells.get(shard).filter(|cell| !cell.is_taken()) else { continue };
            taken.push(*shard);
            if cell.next().is_some() {
                cell.taken.store(true, Ordering::Release);
            } else {
                cell.revoke();
                cells.remove(shard);
            }
        }
        taken
    }

    /// Takes shards away: their fetches end. Gives those that the group had given; the caller tells of them.
    pub(super) fn take_away(&self, shards: &[Shard]) -> Vec<Shard> {
        let mut cells = locked(&self.cells);
        let mut lost = Vec::new();
        for shard in shards {
            if let Some(cell) = cells.remove(shard) {
                cell.revoke();
                lost.extend((!cell.is_taken()).then_some(*shard));
            }
        }
        lost
    }

    /// Forgets what was read of a shard; one that the group has taken leaves the board.
    pub(super) fn stop(&self, shard: Shard) {
        let mut cells = locked(&self.cells);
        match cells.get(&shard) {
            Some(cell) if !cell.is_taken() => cell.unplace(),
            _ => {
                if let Some(cell) = cells.remove(&shard) {
                    cell.revoke();
                }
            }
        }
    }

    /// Takes every shard away.
    pub(super) fn take_away_all(&self) -> Vec<Shard> {
        let all: Vec<Shard> = locked(&self.cells).keys().copied().collect();
        self.take_away(&all)
    }

    /// Tells of a change; one without shards is none.
    pub(super) fn tell(&self, change: Assignment) {
        let (Assignment::Assigned(shards) | Assignment::Revoked(shards) | Assignment::Lost(shards)) = &change;
        if shards.is_empty() {
            return;
        }
        locked(&self.changes).waiting.push_back(change);
        self.changed.notify_waiters();
    }

    /// No change comes any more.
    pub(super) fn end(&self) {
        locked(&self.changes).ended = true;
        self.changed.notify_waiters();
    }

    /// The next change; `None` after the end. Nothing is lost when the future is dropped.
    pub(super) async fn next_change(&self) -> Option<Assignment> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut changes = locked(&self.changes);
                if let Some(change) = changes.waiting.pop_front() {
                    return Some(change);
                }
                if changes.ended {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// A shard's share of the buffer, in bytes.
    pub(super) fn share_bytes(&self) -> usize {
        let assigned = locked(&self.cells).len().max(1);
        (self.bytes_total / assigned).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX)
    }
}

/// What became of a record offered to a shard's buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in the buffer.
    Kept,
    /// It is in the buffer, and the buffer is full: the partition is to be paused.
    Filled,
    /// It is not what is read next and was dropped.
    Dropped,
    /// Offsets between the position and it are missing: to be read again from here, once.
    Jumped(u64),
}

/// What a fetch finds.
pub(super) enum Found {
    /// Nothing yet.
    Nothing,
    /// The answer, and whether the partition is to be read on.
    Answer(Result<Vec<Record>, Error>, bool),
}

/// One assigned shard.
#[derive(Default)]
pub(super) struct Cell {
    buffer: Mutex<Buffer>,
    arrived: Notify,
    /// The group has taken it: it is read on until it is stopped.
    taken: AtomicBool,
}

#[derive(Default)]
struct Buffer {
    records: VecDeque<Record>,
    bytes: usize,
    /// The offset read next; none until the shard is placed.
    next: Option<u64>,
    /// Nothing was read yet since the shard was placed.
    fresh: bool,
    /// The position from which a jump was already seen: it is a real one.
    jumped_at: Option<u64>,
    paused: bool,
    resume_asked: bool,
    /// The client may have stopped reading the partition after an error.
    suspect: bool,
    over: Option<Error>,
    revoked: bool,
}

impl Cell {
    /// Whether the group has taken it.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// The offset read next.
    pub(super) fn next(&self) -> Option<u64> {
        let buffer = locked(&self.buffer);
        if buffer.over.is_some() { None } else { buffer.next }
    }

    pub(super) fn is_paused(&self) -> bool {
        locked(&self.buffer).paused
    }

    pub(super) fn is_suspect(&self) -> bool {
        locked(&self.buffer).suspect
    }

    pub(super) fn suspect(&self) {
        locked(&self.buffer).suspect = true;
    }

    /// Forgets position and records, until [`Cell::place`].
    pub(super) fn unplace(&self) {
        let mut buffer = locked(&self.buffer);
        let (revoked, suspect) = (buffer.revoked, buffer.suspect || buffer.over.is_some());
        *buffer = Buffer { revoked, suspect, ..Buffer::default() };
    }

    /// The client now reads from `offset`; `keep` = on from what is buffered.
    pub(super) fn place(&self, offset: u64, keep: bool) {
        let mut buffer = locked(&self.buffer);
        if !keep {
            buffer.records.clear();
            buffer.bytes = 0;
            buffer.over = None;
            buffer.jumped_at = None;
        }
        buffer.next = Some(offset);
        buffer.fresh = true;
        buffer.paused = false;
        buffer.resume_asked = false;
        buffer.suspect = false;
    }

    /// Offers a record.
    pub(super) fn take(&self, record: Record, share_bytes: usize) -> Taken {
        let mut buffer = locked(&self.buffer);
        let Some(next) = buffer.next else { return Taken::Dropped };
        if buffer.paused || buffer.over.is_some() || record.offset < next {
            return Taken::Dropped;
        }
        if buffer.fresh && record.offset > next && buffer.jumped_at != Some(next) {
            buffer.jumped_at = Some(next);
            return Taken::Jumped(next);
        }
        buffer.fresh = false;
        buffer.next = Some(record.offset + 1);
        buffer.bytes += bytes_of(&record) + RECORD_OVERHEAD_BYTES;
        buffer.records.push_back(record);
        if buffer.bytes < share_bytes && buffer.records.len() < BUFFER_RECORDS_MAX {
            return Taken::Kept;
        }
        buffer.paused = true;
        Taken::Filled
    }

    /// Ends the reading until another offset is sought.
    pub(super) fn stop(&self, error: Error) {
        let mut buffer = locked(&self.buffer);
        buffer.over = Some(error);
        buffer.suspect = true;
        drop(buffer);
        self.wake();
    }

    fn revoke(&self) {
        let mut buffer = locked(&self.buffer);
        *buffer = Buffer { revoked: true, ..Buffer::default() };
        drop(buffer);
        self.wake();
    }

    /// Wakes the fetches that wait.
    pub(super) fn wake(&self) {
        self.arrived.notify_waiters();
    }

    /// Waits for records. Answers with them and whether the partition is to be read on.
    pub(super) async fn fetch(
        &self,
        shard: Shard,
        records_max: usize,
        bytes_max: usize,
        share_bytes: usize,
    ) -> (Result<Vec<Record>, Error>, bool) {
        loop {
            let mut arrived = std::pin::pin!(self.arrived.notified());
            arrived.as_mut().enable();
            match self.find(shard, records_max, bytes_max, share_bytes) {
                Found::Answer(answer, resume) => return (answer, resume),
                Found::Nothing => arrived.await,
            }
        }
    }

    /// Takes records out: what is buffered first, then the error that ended the reading.
    fn find(&self, shard: Shard, records_max: usize, bytes_max: usize, share_bytes: usize) -> Found {
        let mut buffer = locked(&self.buffer);
        if buffer.revoked {
            return Found::Answer(Err(Error::NotAssigned(shard)), false);
        }
        let mut records = Vec::new();
        let mut bytes = 0;
        while let Some(record) = buffer.records.front() {
            let size = bytes_of(record);
            let fits = records.len() < records_max && bytes + size <= bytes_max;
            if !fits && !records.is_empty() {
                break;
            }
            bytes += size;
            buffer.bytes = buffer.bytes.saturating_sub(size + RECORD_OVERHEAD_BYTES);
            records.extend(buffer.records.pop_front());
        }
        if records.is_empty() {
            return match &buffer.over {
                Some(error) => Found::Answer(Err(error.clone()), false),
                None => Found::Nothing,
            };
        }
        let drained = buffer.bytes <= share_bytes / RESUME_PART
            && buffer.records.len() <= BUFFER_RECORDS_MAX / RESUME_PART;
        let resume = buffer.paused && drained && !buffer.resume_asked;
        buffer.resume_asked |= resume;
        Found::Answer(Ok(records), resume)
    }
}

fn bytes_of(record: &Record) -> usize {
    let headers: usize = record
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.as_ref().map_or(0, bytes::Bytes::len))
        .sum();
    let key = record.key.as_ref().map_or(0, bytes::Bytes::len);
    headers + key + record.value.as_ref().map_or(0, bytes::Bytes::len)
}

#[cfg(test)]
mod tests;
