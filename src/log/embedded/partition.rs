//! A partition of a topic: what offsets it holds, the newest records in memory, who waits for more.
//!
//! A partition has two views. `next` and the last append time *as staged* belong to the writer thread, which gives
//! out offsets. `first` and `next` *as published* move only when records are durable; readers see those alone.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use fjall::Slice;
use tokio::sync::Notify;

use super::frame;
use crate::log::Record;
use crate::model::Wall;
use crate::store::embedded::{Batch, Failure, Table, Tables, lock, meta_key, tag};

/// Newest records of a partition kept in memory until they are read, which is nearly always at once, and but once.
const RECENT_RECORDS_MAX: usize = 256;
/// And their size, in bytes.
const RECENT_BYTES_MAX: usize = 64 * 1024;
/// Room kept for them when there are none.
const RECENT_ROOM: usize = 8;
/// Most frames that are dropped at one time, which is time that nothing is written in.
pub(super) const DROP_FRAMES_MAX: usize = 256;
/// And their bytes in a directory whose frames lie beside their keys, so that they are read.
const DROP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One partition of a topic.
pub(super) struct Partition {
    topic: u32,
    number: u32,
    staged: Mutex<Staged>,
    published: Mutex<Published>,
    /// A trim is under way.
    pub(super) trimming: AtomicBool,
    /// Told of every change that could end a wait.
    pub(super) changed: Notify,
}

struct Staged {
    next: u64,
    appended: Wall,
    /// Records of the batch that is being staged.
    open: Option<frame::Open>,
}

struct Published {
    first: u64,
    next: u64,
    recent: VecDeque<Record>,
    recent_bytes: usize,
}

impl Published {
    fn pop_recent(&mut self) {
        if let Some(oldest) = self.recent.pop_front() {
            self.recent_bytes -= frame::size(&oldest);
        }
    }

    fn forget_recent(&mut self, below: u64) {
        while self.recent.front().is_some_and(|record| record.offset < below) {
            self.pop_recent();
        }
        if self.recent.is_empty() {
            self.recent.shrink_to(RECENT_ROOM);
        }
    }
}

/// What a record got.
pub(super) struct Appended {
    pub(super) offset: u64,
    pub(super) at: Wall,
    /// It is the first of a frame, which has to be closed when all changes are staged.
    pub(super) begins_frame: bool,
}

/// The offsets a partition holds: `first..next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first one.
    pub first: u64,
    /// The one after the last.
    pub next: u64,
}

impl Partition {
    /// One without records.
    pub(super) fn empty(topic: u32, number: u32) -> Partition {
        Partition::holding(topic, number, Span { first: 0, next: 0 }, Wall(i64::MIN))
    }

    fn holding(topic: u32, number: u32, span: Span, appended: Wall) -> Partition {
        Partition {
            topic,
            number,
            staged: Mutex::new(Staged { next: span.next, appended, open: None }),
            published: Mutex::new(Published {
                first: span.first,
                next: span.next,
                recent: VecDeque::new(),
                recent_bytes: 0,
            }),
            trimming: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// As stored.
    pub(super) fn load(tables: &Tables, topic: u32, number: u32) -> Result<Partition, Failure> {
        let corrupt = || Failure::Corrupt(format!("log of topic number {topic}, partition {number}"));
        let first = match tables.meta.get(first_key(topic, number)).map_err(|e| Failure::of_read(&e))? {
            Some(data) => data[..].try_into().map(u64::from_be_bytes).map_err(|_| corrupt())?,
            None => 0,
        };
        let Some((start, data)) = last_frame(tables, topic, number, first, u64::MAX)? else {
            return Ok(Partition::holding(topic, number, Span { first, next: first }, Wall(i64::MIN)));
        };
        let records = frame::split(&data).ok_or_else(corrupt)?;
        let (next, last) = (start + records.len() as u64, records.last().ok_or_else(corrupt)?);
        let last = frame::decode(next - 1, last).ok_or_else(corrupt)?;
        Ok(Partition::holding(topic, number, Span { first, next }, last.appended))
    }

    /// Puts a record into the frame that gathers, with the next offset and a time that is never before the one given out last.
    pub(super) fn append(&self, batch: &mut Batch<'_>, now: Wall, mut record: Vec<u8>) -> Appended {
        let mut staged = lock(&self.staged);
        let offset = staged.next;
        staged.next += 1;
        staged.appended = staged.appended.max(now);
        let at = staged.appended;
        frame::stamp(&mut record, at);
        let begins_frame = staged.open.is_none();
        let open = staged.open.get_or_insert_with(|| frame::Open::at(offset));
        open.push(&record);
        let is_full = open.is_full();
        drop(staged);
        if is_full {
            self.close_frame(batch);
        }
        Appended { offset, at, begins_frame }
    }

    /// Puts the frame that gathers into the batch, if it was not full before.
    pub(super) fn close_frame(&self, batch: &mut Batch<'_>) {
        if let Some(open) = lock(&self.staged).open.take() {
            batch.put(Table::Log, frame::key(self.topic, self.number, open.first()), open.data());
        }
    }

    /// Lets readers see a record: the one at `next`.
    pub(super) fn publish(&self, record: Record) {
        let mut published = lock(&self.published);
        assert_eq!(record.offset, published.next, "records are published in the order of their offsets");
        published.next += 1;
        published.recent_bytes += frame::size(&record);
        published.recent.push_back(record);
        while published.recent.len() > RECENT_RECORDS_MAX || published.recent_bytes > RECENT_BYTES_MAX {
            published.pop_recent();
        }
        drop(published);
        self.changed.notify_waiters();
    }

    /// What it holds.
    pub(super) fn span(&self) -> Span {
        let published = lock(&self.published);
        Span { first: published.first, next: published.next }
    }

    /// Takes records from `offset` on out of memory, if they are there: at least one. Whoever comes again for them
    /// reads the table.
    pub(super) fn take_recent(
        &self,
        offset: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Option<Vec<Record>> {
        let mut published = lock(&self.published);
        let oldest = published.recent.front()?.offset;
        let skip = usize::try_from(offset.checked_sub(oldest)?).ok()?;
        let records = bounded(published.recent.iter().skip(skip).cloned(), records_max, bytes_max);
        let next = records.last()?.offset + 1;
        published.forget_recent(next);
        Some(records)
    }

    /// Records from `offset` on, from the table; empty when there is none at `offset`.
    pub(super) fn stored(
        &self,
        tables: &Tables,
        offset: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, Failure> {
        let next = self.span().next;
        if offset >= next {
            return Ok(Vec::new());
        }
        let (records_max, mut failure) = (records_max.max(1), None);
        let mut frames = self.frames(tables, offset, next).peekable();
        let begins_there = matches!(frames.peek(), Some(Ok((first, _))) if *first == offset);
        let around = if begins_there { None } else { self.frame_with(tables, offset)? };
        let read = around.map(Ok).into_iter().chain(frames).flat_map(|frame| match frame {
            Ok((first, data)) => records_of(first, &data, offset, records_max),
            Err(failure) => vec![Err(failure)],
        });
        let read = read.map_while(|record| record.map_err(|e| failure = Some(e)).ok());
        // Of a frame that was just written some may not be published yet.
        let dense = read.zip(offset..next).take_while(|(record, offset)| record.offset == *offset);
        let records = bounded(dense.map(|(record, _)| record), records_max, bytes_max);
        if let Some(last) = records.last() {
            lock(&self.published).forget_recent(last.offset + 1);
        }
        // Records before an unreadable one are good; it is met again as the first.
        match failure {
            Some(failure) if records.is_empty() => Err(failure),
            _ => Ok(records),
        }
    }

    /// The first offset that stays when records from before a time go, and all but the newest `records_max`.
    pub(super) fn first_to_keep(
        &self,
        tables: &Tables,
        before: Wall,
        records_max: u64,
    ) -> Result<u64, Failure> {
        let Span { first, next } = self.span();
        let mut low = first.max(next.saturating_sub(records_max));
        if low == next || self.appended(tables, low)? >= before {
            return Ok(low);
        }
        let mut high = next;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.appended(tables, middle)? < before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn appended(&self, tables: &Tables, offset: u64) -> Result<Wall, Failure> {
        let frame = self.frame_with(tables, offset)?;
        let record = frame.and_then(|(first, data)| records_of(first, &data, offset, 1).pop());
        let (topic, number) = (self.topic, self.number);
        let lost = || {
            Failure::Corrupt(format!("record at offset {offset} of topic number {topic}, partition {number}"))
        };
        record.ok_or_else(lost)?.map(|record| record.appended)
    }

    /// The frame that an offset lies in, if it is held.
    fn frame_with(&self, tables: &Tables, offset: u64) -> Result<Option<(u64, Slice)>, Failure> {
        last_frame(tables, self.topic, self.number, offset, offset)
    }

    /// The frames that begin at `first` or later and before `below`, with the offsets at which they do.
    pub(super) fn frames(
        &self,
        tables: &Tables,
        first: u64,
        below: u64,
    ) -> impl Iterator<Item = Result<(u64, Slice), Failure>> + use<> {
        let range = frame::key(self.topic, self.number, first)..frame::key(self.topic, self.number, below);
        tables.log.range(range).map(frame_of)
    }

    /// Lets readers see that offsets `first..below` are gone, or the first of them, and puts their removal into the batch. After
    /// a crash in between they are there again: retention a little late. A frame that reaches further stays, and goes with
    /// what is dropped next.
    ///
    /// # Errors
    /// When the frames cannot be read; nothing is dropped then.
    pub(super) fn drop_below(&self, batch: &mut Batch<'_>, first: u64, below: u64) -> Result<(), Failure> {
        if below <= first {
            return Ok(());
        }
        let (gone, below) = self.frames_below(batch.tables, first, below)?;
        for start in gone {
            batch.remove(Table::Log, frame::key(self.topic, self.number, start));
        }
        batch.put(Table::Meta, first_key(self.topic, self.number), below.to_be_bytes());
        let mut published = lock(&self.published);
        published.first = below;
        published.forget_recent(below);
        Ok(())
    }

    /// Where the frames begin that have nothing from `below` on, or from before it if more of them begin than may go at one time.
    /// A frame ends where the next one begins: where frames lie apart from their keys none of them is read.
    fn frames_below(&self, tables: &Tables, first: u64, below: u64) -> Result<(Vec<u64>, u64), Failure> {
        let (mut gone, mut last, mut bytes) = (Vec::new(), None, 0);
        let key = |offset| frame::key(self.topic, self.number, offset);
        let are_apart = tables.log.is_kv_separated();
        // What ends before `first` is gone: only the frame that it lies in begins before it.
        for guard in tables.log.range(key(earliest(first))..=key(u64::MAX)) {
            let (start, size) = if are_apart {
                (start_of(&guard.key().map_err(|e| Failure::of_read(&e))?)?, 0)
            } else {
                frame_of(guard).map(|(start, data)| (start, data.len()))?
            };
            gone.extend(last.replace(start).filter(|_| start <= below));
            if start >= below {
                return Ok((gone, below));
            }
            if gone.len() == DROP_FRAMES_MAX || bytes >= DROP_BYTES_MAX {
                return Ok((gone, start));
            }
            bytes += size;
        }
        gone.extend(last.filter(|_| self.span().next <= below));
        Ok((gone, below))
    }
}

/// Where a frame that an offset lies in begins at the earliest.
fn earliest(offset: u64) -> u64 {
    offset.saturating_sub(frame::RECORDS_MAX as u64 - 1)
}

fn frame_of(guard: fjall::Guard) -> Result<(u64, Slice), Failure> {
    let (key, data) = guard.into_inner().map_err(|e| Failure::of_read(&e))?;
    Ok((start_of(&key)?, data))
}

fn start_of(key: &[u8]) -> Result<u64, Failure> {
    frame::offset_of(key).ok_or_else(|| Failure::Corrupt("key of a record".to_owned()))
}

/// The last frame of a partition that begins at `to` at most, and not so early that it ends before `from`.
pub(super) fn last_frame(
    tables: &Tables,
    topic: u32,
    partition: u32,
    from: u64,
    to: u64,
) -> Result<Option<(u64, Slice)>, Failure> {
    let range = frame::key(topic, partition, earliest(from))..=frame::key(topic, partition, to);
    tables.log.range(range).next_back().map(frame_of).transpose()
}

/// The records of a frame from an offset on, at most so many; of what cannot be read one error.
fn records_of(first: u64, data: &[u8], from: u64, records_max: usize) -> Vec<Result<Record, Failure>> {
    let corrupt = |offset| Failure::Corrupt(format!("record near offset {offset}"));
    let Some(records) = frame::split(data) else { return vec![Err(corrupt(first))] };
    let numbered = (first..).zip(records).skip_while(|(offset, _)| *offset < from).take(records_max);
    let read = numbered.map(|(offset, data)| frame::decode(offset, data).ok_or_else(|| corrupt(offset)));
    read.collect()
}

fn first_key(topic: u32, partition: u32) -> Vec<u8> {
    meta_key(tag::FIRST_OFFSET, &frame::key(topic, partition, 0)[..8])
}

fn bounded(records: impl Iterator<Item = Record>, records_max: usize, bytes_max: usize) -> Vec<Record> {
    let mut bytes = 0;
    let mut taken = Vec::new();
    for record in records.take(records_max.max(1)) {
        bytes += frame::size(&record);
        if !taken.is_empty() && bytes > bytes_max {
            break;
        }
        taken.push(record);
    }
    taken
}
