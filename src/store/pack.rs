//! Tasks, starts and ends of many tasks in one row.
//!
//! Of a task's four rows three are the task itself, its start and its end, and they are written together with those of other tasks.
//! A row costs a store far more than its bytes, so those that go together are one row, a pack; on servers with a line for each
//! (embedded they are laid down in binary):
//!
//! ```text
//! ready_at version kind epoch seq data
//! 1700000000120 7 2 3 41 {"at":1700000000121,…}
//! ```
//!
//! A pack lies in the cell of the tasks it speaks of, so that who asks for one task reads two cells, and both are small:
//!
//! ```text
//! (12:00:01.000, -1)   tasks that were ready within this second; at most [`ROWS_OF_SECOND_MAX`] rows
//! (12:00:01.500, 17)   of the tasks that were ready at this millisecond, maybe a million, those with versions 17 × 256 …
//! ```
//!
//! What has too few others with it stays a row of its own, and so does all that is rare or large, and one task of each cell that a
//! call packs tasks of: where there are packs, there is a row. Tasks are packed apart from starts and ends, so that they can be
//! taken away before those. A pack is named by a digest of what is in it: like every row it is
//! written once, and the same again is the same row. A row may be on record alone and in packs, or in several: it is the same row
//! everywhere, and is read once.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use crate::model::{Fact, FactRow, Outcome, Payload, Place, Row, Shard, Version, Wall};
use crate::wire::row as codec;

use super::Packs;

/// Rows of a pack, at least.
const ROWS_MIN: usize = 4;
/// Bytes after which a pack is full.
const BYTES_MAX: usize = 16 * 1024;
/// A result or an error of more bytes is not packed.
const TEXT_BYTES_MAX: usize = 256;
/// A task whose payload and labels have more bytes is not packed.
const CONTENT_BYTES_MAX: usize = 512;
/// Attempts of a task that are packed, at most: a task may be tried for weeks, and all of a cell is read for each of its tasks.
const ATTEMPTS_MAX: u32 = 16;
/// Rows packed in the cell of a second, at most: all are read for each of its tasks. By one process, as long as it counts them.
const ROWS_OF_SECOND_MAX: usize = 4_096;
/// Seconds whose packs are counted at once; those with few rows are forgotten first.
const SECONDS_COUNTED_MAX: usize = 4_096;
/// Width of the cell of a second.
pub(super) const SECOND_MS: i64 = 1_000;
/// Versions of the cell of a millisecond: 2 to the power of this.
const VERSIONS_BITS: u32 = 8;
/// In the place of versions, in the cell of a second.
const OF_SECOND: i64 = -1;

/// Where a pack lies within its shard. Ordered as the tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    /// The second's start, or the millisecond.
    pub(super) ready_at: Wall,
    /// -1, or which versions.
    pub(super) versions: i64,
}

impl Cell {
    /// The cells with what is packed of a place.
    pub(super) fn of(place: Place) -> [Cell; 2] {
        [Cell::of_second(place), Cell::of_instant(place)]
    }

    /// That of its second. For a range of places that of the first one lies before [`Cell::of_instant`] of it, all others from there
    /// to [`Cell::of_instant`] of the last one.
    pub(super) fn of_second(place: Place) -> Cell {
        let second = place.ready_at.0.div_euclid(SECOND_MS).saturating_mul(SECOND_MS);
        Cell { ready_at: Wall(second), versions: OF_SECOND }
    }

    /// That of its millisecond.
    pub(super) fn of_instant(place: Place) -> Cell {
        let versions = (place.version.0 >> VERSIONS_BITS).cast_signed();
        Cell { ready_at: place.ready_at, versions }
    }

    /// Where a reader of a range stops that has read all cells before this one.
    pub(super) fn start(self) -> Place {
        let version = self.versions.max(0).cast_unsigned() << VERSIONS_BITS;
        Place { ready_at: self.ready_at, version: Version(version) }
    }

    /// The same of who reads back and has read all cells after this one, and reads that of the second of where it stops then.
    pub(super) fn end(self) -> Place {
        let next = Cell { versions: self.versions + 1, ..self }.start();
        if next.version > Version::MAX { Place::start_of(self.ready_at.plus_ms(1)) } else { next }
    }
}

/// Rows of one cell in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pack<P> {
    /// The partition of all of them.
    pub(super) partition: P,
    /// The shard.
    pub(super) shard: Shard,
    /// Where it lies.
    pub(super) cell: Cell,
    /// The index in the call of one of them.
    pub(super) first: usize,
    /// Of the data.
    pub(super) digest: i64,
    /// The rows, one after the other.
    pub(super) data: Vec<u8>,
}

/// What became of the rows of a call.
pub(super) struct Packed<P> {
    /// The packs.
    pub(super) packs: Vec<Pack<P>>,
    /// The rows that are in packs, by index in the call.
    pub(super) taken: Indexes,
}

impl<P> Default for Packed<P> {
    fn default() -> Self {
        Packed { packs: Vec::new(), taken: Indexes::default() }
    }
}

/// Some of the indexes of a call.
#[derive(Default)]
pub(super) struct Indexes(Vec<bool>);

impl Indexes {
    /// Whether this one is among them.
    pub(super) fn contains(&self, index: usize) -> bool {
        self.0.get(index).copied().unwrap_or(false)
    }

    fn count(&self) -> u64 {
        self.0.iter().filter(|is_in| **is_in).count() as u64
    }

    pub(super) fn add(&mut self, index: usize) {
        if self.0.len() <= index {
            self.0.resize(index + 1, false);
        }
        self.0[index] = true;
    }
}

/// Adds a row to those of a pack.
pub(super) type Put = fn(&mut Vec<u8>, &FactRow);

/// Packs rows.
pub(super) struct Packer {
    put: Put,
    /// A line feed ends a row.
    has_lines: bool,
    packs: AtomicU64,
    rows: AtomicU64,
    /// Rows packed in cells of seconds, so far.
    of_seconds: Mutex<BTreeMap<(Shard, Wall), usize>>,
}

struct Candidate<'a, P> {
    partition: P,
    index: usize,
    row: &'a FactRow,
    /// And no start or end.
    is_task: bool,
}

impl Packer {
    /// One that lays rows down like this.
    pub(super) fn new(put: Put) -> Packer {
        let (packs, rows) = (AtomicU64::new(0), AtomicU64::new(0));
        Packer { put, has_lines: false, packs, rows, of_seconds: Mutex::default() }
    }

    /// One that lays rows down as lines of text, which [`open`] reads.
    pub(super) fn of_lines() -> Packer {
        Packer { has_lines: true, ..Packer::new(put_line) }
    }

    /// Packs what can be packed of the rows of a call; of each pack all rows are of one partition.
    pub(super) fn pack<P: Ord + Copy>(
        &self,
        rows: &[Row],
        partition_of: impl Fn(&FactRow) -> P,
    ) -> Packed<P> {
        let mut packed = Packed::default();
        let candidates = rows.iter().enumerate().filter_map(|(index, row)| match row {
            Row::Fact(row) if self.is_packed(&row.fact) => {
                let is_task = matches!(row.fact, Fact::Task { .. });
                Some(Candidate { partition: partition_of(row), index, row, is_task })
            }
            _ => None,
        });
        let mut candidates: Vec<Candidate<'_, P>> = candidates.collect();
        if candidates.len() < ROWS_MIN {
            return packed;
        }
        let order = |one: &Candidate<'_, P>| (one.partition, one.row.shard, one.is_task, one.row.place);
        candidates.sort_by_key(order);
        let second = |one: &Candidate<'_, P>| {
            (one.partition, one.row.shard, one.is_task, Cell::of_second(one.row.place))
        };
        for of_second in candidates.chunk_by(|one, next| second(one) == second(next)) {
            let instant = |one: &Candidate<'_, P>| Cell::of_instant(one.row.place);
            let (mut rest, cell) = (Vec::new(), Cell::of_second(of_second[0].row.place));
            for of_instant in of_second.chunk_by(|one, next| instant(one) == instant(next)) {
                if of_instant.len() < ROWS_MIN {
                    rest.extend(of_instant);
                } else {
                    packed.take(instant(&of_instant[0]), of_instant.iter().collect(), self.put);
                }
            }
            if rest.len() >= ROWS_MIN && self.has_room(rest[0].row.shard, cell.ready_at, rest.len()) {
                packed.take(cell, rest, self.put);
            }
        }
        self.packs.fetch_add(packed.packs.len() as u64, Ordering::Relaxed);
        self.rows.fetch_add(packed.taken.count(), Ordering::Relaxed);
        packed
    }

    /// What was packed so far.
    pub(super) fn made(&self) -> Packs {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Packs { packs: count(&self.packs), rows: count(&self.rows), ..Packs::default() }
    }

    /// Only what there is of every task, as long as it is small, and of each so much.
    fn is_packed(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Started(started) => started.attempt <= ATTEMPTS_MAX,
            Fact::Ended(ended) => {
                let result = ended.result.as_ref().map_or(0, |bytes| bytes.len());
                let error = ended.error.as_ref().map_or(0, |text| text.len());
                result.max(error) <= TEXT_BYTES_MAX
                    && is_counted(ended.outcome)
                    && ended.failures <= ATTEMPTS_MAX
            }
            Fact::Task { content, .. } => match &content.payload {
                Payload::Inline(payload) => {
                    let labels = content.labels.iter().map(|(name, value)| name.len() + value.len());
                    // A payload lies in its line as it was sent, with line feeds between its parts.
                    let fits_a_line = !self.has_lines || !payload.contains(&b'\n');
                    fits_a_line && payload.len() + labels.sum::<usize>() <= CONTENT_BYTES_MAX
                }
                Payload::Stored(_) => false,
            },
            Fact::Superseded { .. } | Fact::Closed { .. } => false,
        }
    }

    fn has_room(&self, shard: Shard, second: Wall, more: usize) -> bool {
        let mut of_seconds = self.of_seconds.lock().unwrap_or_else(PoisonError::into_inner);
        if of_seconds.len() >= SECONDS_COUNTED_MAX {
            of_seconds.retain(|_, rows| *rows > ROWS_OF_SECOND_MAX / 16);
        }
        if of_seconds.len() >= SECONDS_COUNTED_MAX {
            of_seconds.clear();
        }
        let rows = of_seconds.entry((shard, second)).or_default();
        let has_room = *rows + more <= ROWS_OF_SECOND_MAX;
        *rows += if has_room { more } else { 0 };
        has_room
    }
}

impl<P: Copy> Packed<P> {
    /// All but the first task, so that a partition with packs has a row.
    fn take(&mut self, cell: Cell, rows: Vec<&Candidate<'_, P>>, put: Put) {
        let stays = usize::from(rows.first().is_some_and(|first| first.is_task));
        let rows = &rows[stays..];
        let (mut data, mut first) = (Vec::new(), 0);
        for (at, Candidate { partition, index, row, .. }) in rows.iter().enumerate() {
            self.taken.add(*index);
            put(&mut data, row);
            if data.len() >= BYTES_MAX || at + 1 == rows.len() {
                let data = std::mem::take(&mut data);
                let (partition, shard, digest) = (*partition, row.shard, digest(&data));
                let first = rows[std::mem::replace(&mut first, at + 1)].index;
                self.packs.push(Pack { partition, shard, cell, first, digest, data });
            }
        }
    }
}

/// A number of the data that no other data has.
pub(super) fn digest(data: &[u8]) -> i64 {
    Sha256::digest(data).first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

/// Whether ends like this come as often as `failures` says and once more. Others may come without end.
fn is_counted(outcome: Outcome) -> bool {
    use Outcome::{Aborted, Fatal, Interrupted, NotCalled, Retryable, Snoozed, Succeeded, TimedOut};
    match outcome {
        Succeeded | Retryable | Fatal | TimedOut => true,
        Aborted | Interrupted | Snoozed | NotCalled => false,
    }
}

fn put_line(lines: &mut Vec<u8>, row: &FactRow) {
    let (kind, epoch, seq) = codec::fact_columns(&row.fact);
    let Place { ready_at, version } = row.place;
    // Writing to memory does not fail.
    let _ = write!(lines, "{} {} {kind} {epoch} {seq} ", ready_at.0, version.0);
    // JSON of ours: a line feed within a text is escaped.
    lines.extend_from_slice(&codec::encode_fact(&row.fact));
    lines.push(b'\n');
}

/// Takes those rows out of a pack of lines whose places are wanted.
///
/// # Errors
/// A line is not as this build writes it.
pub(super) fn open(
    shard: Shard,
    data: &str,
    wanted: impl Fn(Place) -> bool,
    found: &mut Vec<FactRow>,
) -> Result<(), codec::Error> {
    for line in data.lines() {
        let mut fields = line.splitn(6, ' ');
        let broken = || codec::Error { what: "pack".to_owned(), detail: format!("line {line:?}") };
        let ready_at = fields.next().and_then(|field| i64::from_str(field).ok());
        let mut number = || fields.next().and_then(|field| u64::from_str(field).ok());
        let (Some(ready_at), Some(version)) = (ready_at, number()) else { return Err(broken()) };
        let place = Place { ready_at: Wall(ready_at), version: Version(version) };
        if !wanted(place) {
            continue;
        }
        let (Some(kind), Some(epoch), Some(seq)) = (number(), number(), number()) else {
            return Err(broken());
        };
        let kind = u8::try_from(kind).map_err(|_| broken())?;
        let data = fields.next().ok_or_else(broken)?;
        let fact = codec::decode_fact(kind, epoch, seq, data.as_bytes())?;
        found.push(FactRow { shard, place, fact });
    }
    Ok(())
}

/// Puts rows of packs among rows that are in order; each once.
pub(super) fn merge(rows: &mut Vec<FactRow>, packed: Vec<FactRow>) {
    if packed.is_empty() {
        return;
    }
    rows.extend(packed);
    let key = |row: &FactRow| (row.place, codec::fact_columns(&row.fact));
    rows.sort_by_key(key);
    rows.dedup_by_key(|row| key(row));
}

#[cfg(test)]
mod tests;
