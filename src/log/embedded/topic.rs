//! Topics and their partitions: what offsets they hold, the newest records in memory, who waits for more.
//!
//! A partition has two views. `next` and the last append time *as staged* belong to the writer thread, which gives
//! out offsets. `first` and `next` *as published* move only when records are durable; readers see those alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::frame;
use crate::log::Record;
use crate::model::Wall;
use crate::store::embedded::{Batch, Failure, Fields, Scan, Table, Tables, lock, meta_key, tag};

const VERSION: u8 = 1;
/// Newest records of a partition kept in memory until they are read, which is nearly always at once, and but once.
const RECENT_RECORDS_MAX: usize = 256;
/// And their size, in bytes.
const RECENT_BYTES_MAX: usize = 64 * 1024;
/// Room kept for them when there are none.
const RECENT_ROOM: usize = 8;

/// A topic.
pub(super) struct TopicState {
    /// Its name.
    pub(super) name: String,
    /// Its number in keys.
    pub(super) number: u32,
    /// Its identity: another one means that it was made anew.
    pub(super) id: String,
    /// Its partitions.
    pub(super) partitions: Vec<Partition>,
    stored: AtomicBool,
}

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

/// The offsets a partition holds: `first..next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first one.
    pub first: u64,
    /// The one after the last.
    pub next: u64,
}

impl TopicState {
    /// A new topic, stored with its first record or by [`TopicState::store`].
    pub(super) fn new(name: &str, number: u32, partitions: u32) -> TopicState {
        TopicState {
            name: name.to_owned(),
            number,
            id: uuid::Uuid::new_v4().to_string(),
            partitions: (0..partitions).map(|partition| Partition::empty(number, partition)).collect(),
            stored: AtomicBool::new(false),
        }
    }

    /// Whether its row was put.
    pub(super) fn is_stored(&self) -> bool {
        self.stored.load(Ordering::Acquire)
    }

    /// Puts the topic's row into the batch, once.
    pub(super) fn store(&self, batch: &mut Batch<'_>) {
        if !self.stored.swap(true, Ordering::AcqRel) {
            let partitions = u32::try_from(self.partitions.len()).expect("made from a u32");
            let row = Fields::new(VERSION).u32(self.number).u32(partitions).bytes(self.id.as_bytes()).done();
            batch.put(Table::Meta, meta_key(tag::TOPIC, self.name.as_bytes()), row);
        }
    }

    /// All stored topics, by name.
    pub(super) fn load_all(tables: &Tables) -> Result<BTreeMap<String, TopicState>, Failure> {
        let mut topics = BTreeMap::new();
        for guard in tables.meta.prefix([tag::TOPIC]) {
            let (key, data) = guard.into_inner().map_err(|e| Failure::of_read(&e))?;
            let name = String::from_utf8_lossy(&key[1..]).into_owned();
            topics.insert(name.clone(), TopicState::load(tables, name, &data)?);
        }
        Ok(topics)
    }

    fn load(tables: &Tables, name: String, data: &[u8]) -> Result<TopicState, Failure> {
        fn read(data: &[u8]) -> Option<(u32, u32, String)> {
            let mut scan = Scan::new(data, VERSION)?;
            let fields = (scan.u32()?, scan.u32()?, scan.text()?);
            scan.end(fields)
        }
        let fields = read(data).ok_or_else(|| Failure::Corrupt(format!("row of topic {name}")))?;
        let (number, count, id) = fields;
        let partitions = (0..count).map(|partition| Partition::load(tables, number, partition));
        let partitions = partitions.collect::<Result<Vec<_>, _>>()?;
        Ok(TopicState { name, number, id, partitions, stored: AtomicBool::new(true) })
    }
}

impl Partition {
    fn empty(topic: u32, number: u32) -> Partition {
        Partition::holding(topic, number, Span { first: 0, next: 0 }, Wall(i64::MIN))
    }

    fn holding(topic: u32, number: u32, span: Span, appended: Wall) -> Partition {
        Partition {
            topic,
            number,
            staged: Mutex::new(Staged { next: span.next, appended }),
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

    fn load(tables: &Tables, topic: u32, number: u32) -> Result<Partition, Failure> {
        let corrupt = || Failure::Corrupt(format!("log of topic number {topic}, partition {number}"));
        let first = match tables.meta.get(first_key(topic, number)).map_err(|e| Failure::of_read(&e))? {
            Some(data) => data[..].try_into().map(u64::from_be_bytes).map_err(|_| corrupt())?,
            None => 0,
        };
        let range = frame::key(topic, number, first)..=frame::key(topic, number, u64::MAX);
        let Some(last) = tables.log.range(range).next_back() else {
            return Ok(Partition::holding(topic, number, Span { first, next: first }, Wall(i64::MIN)));
        };
        let (key, data) = last.into_inner().map_err(|e| Failure::of_read(&e))?;
        let offset = frame::offset_of(&key).ok_or_else(corrupt)?;
        let record = frame::decode(offset, &data).ok_or_else(corrupt)?;
        Ok(Partition::holding(topic, number, Span { first, next: offset + 1 }, record.appended))
    }

    /// Gives out the next offset at a time that is never before the one given out last.
    pub(super) fn assign(&self, now: Wall) -> (u64, Wall) {
        let mut staged = lock(&self.staged);
        let offset = staged.next;
        staged.next += 1;
        staged.appended = staged.appended.max(now);
        (offset, staged.appended)
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
        let range = frame::key(self.topic, self.number, offset)..frame::key(self.topic, self.number, next);
        let mut failure = None;
        let read = tables.log.range(range).map_while(|guard| {
            let record = guard.into_inner().map_err(|e| Failure::of_read(&e)).and_then(|(key, data)| {
                let record = frame::offset_of(&key).and_then(|offset| frame::decode(offset, &data));
                record.ok_or_else(|| Failure::Corrupt(format!("record near offset {offset}")))
            });
            record.map_err(|e| failure = Some(e)).ok()
        });
        let dense = read.zip(offset..).take_while(|(record, offset)| record.offset == *offset);
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
        let data = tables.log.get(frame::key(self.topic, self.number, offset));
        let data = data.map_err(|error| Failure::of_read(&error))?;
        let record = data.and_then(|data| frame::decode(offset, &data));
        let (topic, number) = (self.topic, self.number);
        let lost = || {
            Failure::Corrupt(format!("record at offset {offset} of topic number {topic}, partition {number}"))
        };
        record.map(|record| record.appended).ok_or_else(lost)
    }

    /// Lets readers see that offsets `first..below` are gone, and puts their removal into the batch. After a crash in
    /// between they are there again: retention a little late.
    pub(super) fn drop_below(&self, batch: &mut Batch<'_>, first: u64, below: u64) {
        if below <= first {
            return;
        }
        let mut published = lock(&self.published);
        published.first = below;
        published.forget_recent(below);
        drop(published);
        for offset in first..below {
            batch.remove(Table::Log, frame::key(self.topic, self.number, offset));
        }
        batch.put(Table::Meta, first_key(self.topic, self.number), below.to_be_bytes());
    }
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
