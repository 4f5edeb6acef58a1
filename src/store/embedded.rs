//! The store on fjall, in this process: for `dueline dev`, tests, and installations of one instance.
//!
//! Every write is answered after one fsync, shared by all that waited for it (`writer`). Reads see every write
//! answered before, and never one that a crash could take back. Under the directory's lock there is no other owner,
//! so opening marks every shard released and a restart takes over at once.
//!
//! Buckets, which keep Cassandra's partitions small, do not exist here; `due` is one ordered range a shard.

mod codec;
mod db;
mod event_row;
mod events;
mod firsts;
mod gather;
mod keys;
mod late;
mod lock;
mod meta;
mod pack_rows;
mod read;
mod retention;
mod slice;
mod task_row;
mod upkeep;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::pack::{self, Packer};
use super::{Answer, Bump, Cluster, Error, Forgotten, Instance, Lookup, Packs, Slice, Store, Stretch};
use crate::model::{
    BatchProgress, DeadLetterRow, Died, EventRow, FactRow, IdsRow, LateQueueRow, Operation, OwnerRow, Place,
    PointerPage, PointerRange, Progress, Release, Row, Segment, Shard, TaskKey, Version, Wall,
};
use crate::wire::row;

pub(crate) use codec::{Fields, Scan, push_bytes};
pub use db::{Database, OpenError, Options};
pub(crate) use db::{Failure, Table, Tables, lock};
pub(crate) use keys::{meta as meta_key, tag};
pub(crate) use writer::Batch;

/// Largest row, in bytes as stored.
const ROW_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Ids looked up without leaving the async thread.
const LOOKUPS_INLINE_MAX: usize = 8;
/// A second with its packs lies in one bucket.
const _: () = assert!(crate::model::limits::BUCKET_MS % pack::SECOND_MS == 0);
/// Bytes that a small row counts for in the writer's bounds.
const SMALL_ROW_BYTES: usize = 512;

/// The store of a [`Database`].
#[derive(Clone)]
pub struct EmbeddedStore {
    db: Database,
    /// `None`: rows are written as they are.
    packer: Option<Arc<Packer>>,
}

impl EmbeddedStore {
    /// The store of an open database.
    pub fn new(db: &Database) -> EmbeddedStore {
        EmbeddedStore { db: db.clone(), packer: Some(Arc::new(Packer::new(pack_rows::put))) }
    }

    /// The same, which packs no rows: for who is compared with it.
    pub(crate) fn without_packs(db: &Database) -> EmbeddedStore {
        EmbeddedStore { db: db.clone(), packer: None }
    }

    fn change<T: Send + 'static>(
        &self,
        stage: impl FnOnce(&mut Batch<'_>) -> T + Send + 'static,
    ) -> Answer<T> {
        let asked = self.db.ask(SMALL_ROW_BYTES, stage);
        Box::pin(async move { Ok(asked.await?) })
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Tables) -> Result<T, Failure> + Send + 'static,
    ) -> Answer<T> {
        let read = self.db.read(read);
        Box::pin(async move { Ok(read.await?) })
    }

    fn take_away(&self, table: Table, keys: Vec<fjall::Slice>) -> Answer<()> {
        self.change(move |batch| keys.into_iter().for_each(|key| batch.remove(table, key)))
    }

    /// For reads of a row or a few: they take less time than a change of threads.
    fn read_here<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Tables) -> Result<T, Failure> + Send + 'static,
    ) -> Answer<T> {
        let db = self.db.clone();
        Box::pin(async move { Ok(read(db.tables())?) })
    }
}

/// A row ready to be put: its table, key and data. Of an event the key is that of its task's first row, and its columns stand
/// before the data.
struct Encoded {
    table: Table,
    key: fjall::Slice,
    data: fjall::Slice,
    /// An event before which its task had none.
    is_first: bool,
}

impl Encoded {
    fn new(table: Table, key: impl Into<fjall::Slice>, data: impl Into<fjall::Slice>) -> Encoded {
        Encoded { table, key: key.into(), data: data.into(), is_first: false }
    }
}

fn encode(row: &Row) -> Encoded {
    match row {
        Row::Event(row) => {
            let data = [&keys::event_columns_of(row)[..], &event_row::encode(row)].concat();
            let encoded = Encoded::new(Table::TaskEvent, keys::task(&row.key), data);
            Encoded { is_first: row.is_first, ..encoded }
        }
        Row::Fact(row) => Encoded::new(Table::Due, keys::fact(row), fact_data(row)),
        Row::Pointer(row) => Encoded::new(
            Table::Late,
            keys::pointer(row.shard, &row.queue, row.pointer.standing()),
            row.pointer.ready_at.0.to_be_bytes(),
        ),
        Row::LateQueue(row) => {
            Encoded::new(Table::LateQueue, keys::late_queue(row), row::encode_late_queue(row))
        }
        Row::DeadLetter(row) => {
            Encoded::new(Table::DeadLetter, keys::dead_letter(row), row::encode_dead_letter(row))
        }
        Row::Payload(row) => {
            Encoded::new(Table::Payload, keys::place(row.shard, row.place), Arc::clone(&row.bytes))
        }
    }
}

/// The data of a row of `due`, alone or in a pack.
fn fact_data(row: &FactRow) -> Vec<u8> {
    let data = task_row::encode(row.place.ready_at, &row.fact);
    data.unwrap_or_else(|| row::encode_fact(&row.fact))
}

fn encode_all(rows: &[Row], packer: Option<&Packer>) -> Result<(Vec<Encoded>, usize), Error> {
    let mut bytes = 0;
    let mut encoded = Vec::with_capacity(rows.len());
    let packed = packer.map(|packer| packer.pack(rows, |_| ())).unwrap_or_default();
    for pack in packed.packs {
        let row = Encoded::new(Table::DuePack, keys::pack(&pack), pack.data);
        bytes += row.key.len() + row.data.len();
        encoded.push(row);
    }
    for (index, row) in rows.iter().enumerate().filter(|(index, _)| !packed.taken.contains(*index)) {
        let row = encode(row);
        if row.data.len() > ROW_BYTES_MAX {
            let detail = format!("{} bytes, at most {ROW_BYTES_MAX} are stored", row.data.len());
            return Err(Error::RowRefused { index, detail });
        }
        bytes += row.key.len() + row.data.len();
        encoded.push(row);
    }
    Ok((encoded, bytes))
}

impl Store for EmbeddedStore {
    fn packed(&self) -> Packs {
        let Some(packer) = &self.packer else { return Packs::default() };
        let (event_packs, events) = self.db.tables().index.made();
        Packs { event_packs, events, ..packer.made() }
    }

    fn cluster(&self, wanted: Cluster) -> Answer<Cluster> {
        self.change(move |batch| batch.cluster(wanted))
    }

    fn write(&self, rows: Arc<[Row]>) -> Answer<()> {
        let (db, packer) = (self.db.clone(), self.packer.clone());
        Box::pin(async move {
            let (rows, bytes) = encode_all(&rows, packer.as_deref())?;
            let packs = packer.is_some();
            let put = move |batch: &mut Batch<'_>| -> Result<(), Failure> {
                let events = rows.iter().filter(|row| row.table == Table::TaskEvent && !row.is_first);
                batch.prepare(events.map(|row| &row.key))?;
                for Encoded { table, key, data, is_first } in rows {
                    match table {
                        Table::TaskEvent if is_first && packs => batch.first(key, data),
                        Table::TaskEvent if is_first => batch.lone_first(key, data),
                        Table::TaskEvent => batch.event(key, data),
                        _ => batch.put(table, key, data),
                    }
                }
                Ok(())
            };
            Ok(db.ask(bytes, put).await??)
        })
    }

    fn lookup(&self, lookups: Vec<Lookup>) -> Answer<Vec<Vec<EventRow>>> {
        let inline = lookups.len() <= LOOKUPS_INLINE_MAX;
        let read = move |tables: &Tables| events::look_up(tables, &lookups);
        if inline { self.read_here(read) } else { self.read(read) }
    }

    fn history(&self, key: TaskKey, rows_max: usize, _listed: Option<Vec<Version>>) -> Answer<Vec<EventRow>> {
        self.read(move |tables| events::history(tables, &key, rows_max))
    }

    fn slice(&self, shard: Shard, from: Place, to: Place, rows_max: usize) -> Answer<Slice> {
        self.read(move |tables| slice::slice(tables, shard, from, to, rows_max))
    }

    fn slice_back(&self, shard: Shard, from: Place, to: Place, rows_max: usize) -> Answer<Slice> {
        self.read(move |tables| slice::slice_back(tables, shard, from, to, rows_max))
    }

    fn facts(&self, shard: Shard, place: Place) -> Answer<Vec<FactRow>> {
        self.read(move |tables| slice::facts(tables, shard, place))
    }

    fn payload(&self, shard: Shard, place: Place) -> Answer<Option<Arc<[u8]>>> {
        self.read_here(move |tables| read::payload(tables, shard, place))
    }

    fn late_queues(&self, shard: Shard, segment: Segment) -> Answer<Vec<LateQueueRow>> {
        self.read(move |tables| late::late_queues(tables, shard, segment))
    }

    fn pointers(&self, shard: Shard, range: PointerRange, rows_max: usize) -> Answer<PointerPage> {
        self.read(move |tables| late::pointers(tables, shard, &range, rows_max))
    }

    fn dead_letters(
        &self,
        shard: Shard,
        from: Wall,
        before: Died,
        rows_max: usize,
    ) -> Answer<Vec<DeadLetterRow>> {
        self.read(move |tables| read::dead_letters(tables, shard, from, before, rows_max))
    }

    fn progress(&self, shard: Shard) -> Answer<Option<Progress>> {
        self.read_here(move |tables| read::progress(tables, shard))
    }

    fn write_progress(&self, shard: Shard, progress: Progress, stamp: u64) -> Answer<()> {
        self.change(move |batch| batch.progress(shard, &progress, stamp))
    }

    fn ids(&self, shard: Shard, from: u64) -> Answer<Vec<IdsRow>> {
        self.read(move |tables| read::ids(tables, shard, from))
    }

    fn write_ids(&self, rows: Arc<[IdsRow]>, stamp: u64) -> Answer<()> {
        let bytes = rows.iter().map(|row| SMALL_ROW_BYTES + 4 * row.prints.len()).sum();
        let asked = self.db.ask(bytes, move |batch: &mut Batch<'_>| batch.ids(&rows, stamp));
        Box::pin(async move { Ok(asked.await?) })
    }

    fn owner(&self, shard: Shard) -> Answer<OwnerRow> {
        self.read_here(move |tables| read::owner(tables, shard))
    }

    fn bump(&self, shard: Shard, bump: Bump) -> Answer<bool> {
        self.change(move |batch| batch.bump(shard, bump))
    }

    fn release(&self, shard: Shard, release: Release) -> Answer<bool> {
        self.change(move |batch| batch.release(shard, release))
    }

    fn beat(&self, instance: Instance) -> Answer<()> {
        self.change(move |batch| batch.beat(&instance))
    }

    fn instances(&self) -> Answer<Vec<Instance>> {
        self.read(read::instances)
    }

    fn operations(&self, after: u64, rows_max: usize) -> Answer<Vec<Operation>> {
        self.read_here(move |tables| read::operations(tables, after, rows_max))
    }

    fn add_operation(&self, operation: Operation) -> Answer<bool> {
        self.change(move |batch| batch.add_operation(&operation))
    }

    fn stretches(&self, before: Wall) -> Answer<Vec<Stretch>> {
        self.read(move |tables| retention::stretches(tables, before))
    }

    fn forget(&self, tasks: Vec<Forgotten>) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move {
            let found = this.read(move |tables| {
                let keys = |Forgotten { key, up_to, .. }: Forgotten| {
                    Ok((events::old(tables, &key, up_to)?, key, up_to))
                };
                tasks.into_iter().map(keys).collect::<Result<Vec<_>, Failure>>()
            });
            let found = found.await?;
            let forget = move |batch: &mut Batch<'_>| {
                found.into_iter().try_for_each(|(old, key, version)| batch.forget(&key, version, old))
            };
            Ok(this.change(forget).await??)
        })
    }

    fn drop_stretch(&self, stretch: Stretch, payloads: Vec<Place>) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move {
            let payloads: Vec<fjall::Slice> =
                payloads.into_iter().map(|place| keys::place(stretch.shard, place).into()).collect();
            for some in payloads.chunks(retention::KEYS_AT_ONCE) {
                this.take_away(Table::Payload, some.to_vec()).await?;
            }
            for step in retention::STEPS {
                let mut last = None;
                loop {
                    let read =
                        move |tables: &Tables| retention::due_keys(tables, stretch, step, last.as_ref());
                    let found = this.read(read).await?;
                    last = found.last().cloned();
                    if last.is_none() {
                        break;
                    }
                    this.take_away(step.1, found).await?;
                }
            }
            Ok(())
        })
    }

    fn drop_dead_letters(&self, shard: Shard, before: Wall) -> Answer<()> {
        let this = self.clone();
        Box::pin(async move {
            loop {
                let found =
                    this.read(move |tables| retention::dead_letter_keys(tables, shard, before)).await?;
                if found.is_empty() {
                    return Ok(());
                }
                this.take_away(Table::DeadLetter, found).await?;
            }
        })
    }

    fn batch_progress(&self, number: u64) -> Answer<Option<BatchProgress>> {
        self.read_here(move |tables| read::batch_progress(tables, number))
    }

    fn write_batch_progress(&self, number: u64, progress: BatchProgress, stamp: u64) -> Answer<()> {
        self.change(move |batch| batch.batch_progress(number, &progress, stamp))
    }
}
