//! The small rows: cluster, owner, progress, instance, operation; how they are encoded, and the changes that compare them.
//!
//! They are few (a handful a shard), so the writer keeps them in memory as of the last change staged and compares
//! there. Readers read the table.

use std::collections::BTreeMap;

use fjall::{Keyspace, PersistMode};

use super::codec::{Fields, Scan};
use super::db::{Failure, Table, Tables};
use super::keys::{self, tag};
use super::writer::Batch;
use crate::model::{BatchProgress, Epoch, IdsRow, Operation, OwnerRow, Progress, Release, Shard, Wall};
use crate::store::{Bump, Cluster, Instance};
use crate::wire::row;

const VERSION: u8 = 1;
/// What the rows of all tables look like; written when a directory is made, compared when one is opened.
const FORMAT: u8 = 8;
/// Those of before, 2 without packs, 3 with a row of its own for each first event, 4 with one for each record of the log, 5 without
/// packs of events, 6 with tasks as text, 7 with each task as a row: read as they are, and from then on of this build's format.
const FORMATS_BEFORE: [u8; 6] = [2, 3, 4, 5, 6, 7];

/// The rows that are compared before they change.
#[derive(Default)]
pub(super) struct Staged {
    cluster: Option<Cluster>,
    owners: BTreeMap<Shard, OwnerRow>,
    /// Epoch and stamp of each shard's progress row.
    progress: BTreeMap<Shard, (Epoch, u64)>,
    /// Epoch and stamp of the rows of `event_ids` that this process wrote last, of each shard.
    ids: BTreeMap<Shard, (Epoch, u64)>,
    /// The number of the last operation.
    operation: u64,
    /// Stamps of the batches written by this process: no other one has its epochs.
    batches: BTreeMap<(u64, Epoch), u64>,
}

impl Staged {
    /// Reads them from the table. Nobody else can hold a shard under the directory's lock, so whoever owned one
    /// before is gone: every owner row is marked released, and a restart after a crash takes over at once.
    pub(super) fn load(tables: &Tables) -> Result<Staged, Failure> {
        let mut staged = Staged::default();
        if let Some(data) = tables.meta.get([tag::CLUSTER]).map_err(|e| Failure::of_read(&e))? {
            staged.cluster = Some(decode_cluster(&data)?);
        }
        for (shard, data) in shard_rows(tables, tag::OWNER)? {
            let row = decode_owner(&data)?;
            staged.owners.insert(shard, OwnerRow { released_epoch: row.epoch, wait_ms: 0, ..row });
        }
        for (shard, data) in shard_rows(tables, tag::PROGRESS)? {
            let (progress, stamp) = decode_progress(&data)?;
            staged.progress.insert(shard, (progress.epoch, stamp));
        }
        if let Some(guard) = tables.meta.prefix([tag::OPERATION]).next_back() {
            let (key, _) = guard.into_inner().map_err(|e| Failure::of_read(&e))?;
            staged.operation = operation_number(&key)?;
        }
        Ok(staged)
    }

    /// The owner rows, to be written once they are loaded.
    pub(super) fn owner_rows(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
        self.owners.iter().map(|(shard, row)| (keys::shard(tag::OWNER, *shard), encode_owner(row)))
    }
}

/// Puts the row of the format; not synced.
pub(super) fn put_format(meta: &Keyspace) -> fjall::Result<()> {
    meta.insert([tag::FORMAT], [FORMAT])
}

/// A new directory gets the format of this build; one with rows of another is refused.
pub(super) fn check_format(tables: &Tables) -> Result<(), String> {
    let found = tables.meta.get([tag::FORMAT]).map_err(|e| e.to_string())?;
    let is_new = found.is_none() && tables.meta.is_empty().map_err(|e| e.to_string())?;
    let is_before = |found: &fjall::Slice| FORMATS_BEFORE.iter().any(|before| found[..] == [*before]);
    if is_new || found.as_ref().is_some_and(is_before) {
        let put = put_format(&tables.meta).and_then(|()| tables.database.persist(PersistMode::SyncAll));
        return put.map_err(|e| e.to_string());
    }
    if found.as_deref() == Some([FORMAT].as_slice()) {
        return Ok(());
    }
    let found = match found.as_deref() {
        None => "an earlier format".to_owned(),
        Some([number]) => format!("format {number}"),
        Some(other) => format!("format {other:?}"),
    };
    Err(format!(
        "its rows have {found}, this build reads formats {FORMATS_BEFORE:?} and {FORMAT}: use the build that made it, or another directory"
    ))
}

fn shard_rows(tables: &Tables, tag: u8) -> Result<Vec<(Shard, fjall::Slice)>, Failure> {
    let mut rows = Vec::new();
    for guard in tables.meta.prefix([tag]) {
        let (key, data) = guard.into_inner().map_err(|e| Failure::of_read(&e))?;
        let number = key.get(1..).and_then(|rest| <[u8; 4]>::try_from(rest).ok());
        let number = number.ok_or_else(|| unreadable("key of a shard's row"))?;
        rows.push((Shard(u32::from_be_bytes(number)), data));
    }
    Ok(rows)
}

impl Batch<'_> {
    /// The cluster row; `wanted` is written when there is none.
    pub(super) fn cluster(&mut self, wanted: Cluster) -> Cluster {
        if let Some(cluster) = &self.staged.cluster {
            return cluster.clone();
        }
        self.put(Table::Meta, [tag::CLUSTER], encode_cluster(&wanted));
        self.staged.cluster = Some(wanted.clone());
        wanted
    }

    /// Writes a progress row unless a newer one is there.
    pub(super) fn progress(&mut self, shard: Shard, progress: &Progress, stamp: u64) {
        let order = (progress.epoch, stamp);
        if self.staged.progress.get(&shard).is_none_or(|present| *present <= order) {
            self.staged.progress.insert(shard, order);
            self.put(Table::Meta, keys::shard(tag::PROGRESS, shard), encode_progress(progress, stamp));
        }
    }

    /// Writes rows of `event_ids`, unless newer ones of their epoch were written.
    pub(super) fn ids(&mut self, rows: &[IdsRow], stamp: u64) {
        for row in rows {
            let present = self.staged.ids.get(&row.shard).copied().unwrap_or_default();
            if present.0 == row.epoch && present.1 > stamp {
                continue;
            }
            self.staged.ids.insert(row.shard, present.max((row.epoch, stamp)));
            let key = keys::ids(row.shard, row.chunk, row.epoch);
            if row.prints.is_empty() {
                self.remove(Table::EventIds, key);
            } else {
                self.put(Table::EventIds, key, row::encode_ids(row));
            }
        }
    }

    /// Compare-and-set of the owner row.
    pub(super) fn bump(&mut self, shard: Shard, bump: Bump) -> bool {
        let present = self.staged.owners.get(&shard).cloned().unwrap_or_default();
        if present.epoch != bump.expected {
            return false;
        }
        let row = OwnerRow {
            epoch: Epoch(present.epoch.0 + 1),
            owner: bump.owner,
            released_epoch: present.released_epoch,
            lease_ms: bump.lease_ms,
            wait_ms: bump.wait_ms,
            instance: bump.instance,
            advertise: bump.advertise,
        };
        self.set_owner(shard, row);
        true
    }

    /// Says what is released if the row still has this epoch and owner.
    pub(super) fn release(&mut self, shard: Shard, release: Release) -> bool {
        let Release { released, epoch, owner, wait_ms } = release;
        match self.staged.owners.get(&shard) {
            Some(row) if row.epoch == epoch && row.owner == owner => {
                let row = OwnerRow { released_epoch: released, wait_ms, ..row.clone() };
                self.set_owner(shard, row);
                true
            }
            _ => false,
        }
    }

    fn set_owner(&mut self, shard: Shard, row: OwnerRow) {
        self.put(Table::Meta, keys::shard(tag::OWNER, shard), encode_owner(&row));
        self.staged.owners.insert(shard, row);
    }

    /// Puts the next operation on record; one of another number is not taken.
    pub(super) fn add_operation(&mut self, operation: &Operation) -> bool {
        if operation.number != self.staged.operation + 1 {
            return false;
        }
        self.staged.operation = operation.number;
        let key = keys::meta(tag::OPERATION, &operation.number.to_be_bytes());
        let data = Fields::new(VERSION).u128(operation.id).bytes(&row::encode_operation(operation)).done();
        self.put(Table::Meta, key, data);
        true
    }

    /// Writes how far a batch got.
    pub(super) fn batch_progress(&mut self, number: u64, progress: &BatchProgress, stamp: u64) {
        let present = self.staged.batches.get(&(number, progress.epoch));
        if present.is_none_or(|present| *present <= stamp) {
            self.staged.batches.insert((number, progress.epoch), stamp);
            let key = keys::batch(number, progress.epoch);
            self.put(Table::Meta, key, row::encode_batch_progress(progress));
        }
    }

    /// Writes an instance's row.
    pub(super) fn beat(&mut self, instance: &Instance) {
        let key = keys::meta(tag::INSTANCE, instance.name.as_bytes());
        self.put(Table::Meta, key, encode_instance(instance));
    }
}

fn unreadable(what: &str) -> Failure {
    Failure::Corrupt(format!("{what}: not as written by this version"))
}

fn encode_owner(row: &OwnerRow) -> Vec<u8> {
    Fields::new(VERSION)
        .u64(row.epoch.0)
        .u128(row.owner)
        .u64(row.released_epoch.0)
        .u64(row.lease_ms)
        .u64(row.wait_ms)
        .bytes(row.instance.as_bytes())
        .bytes(row.advertise.as_bytes())
        .done()
}

/// An owner row from its data.
pub(super) fn decode_owner(data: &[u8]) -> Result<OwnerRow, Failure> {
    fn read(data: &[u8]) -> Option<OwnerRow> {
        let mut scan = Scan::new(data, VERSION)?;
        let row = OwnerRow {
            epoch: Epoch(scan.u64()?),
            owner: scan.u128()?,
            released_epoch: Epoch(scan.u64()?),
            lease_ms: scan.u64()?,
            wait_ms: scan.u64()?,
            instance: scan.text()?,
            advertise: scan.text()?,
        };
        scan.end(row)
    }
    read(data).ok_or_else(|| unreadable("owner row"))
}

fn encode_progress(progress: &Progress, stamp: u64) -> Vec<u8> {
    Fields::new(VERSION).u64(progress.epoch.0).u64(stamp).bytes(&row::encode_progress(progress)).done()
}

fn operation_number(key: &[u8]) -> Result<u64, Failure> {
    let number = key.get(1..).and_then(|rest| <[u8; 8]>::try_from(rest).ok());
    number.map(u64::from_be_bytes).ok_or_else(|| unreadable("key of an operation"))
}

/// An operation from its row.
pub(super) fn decode_operation(key: &[u8], data: &[u8]) -> Result<Operation, Failure> {
    fn read(data: &[u8]) -> Option<(u128, &[u8])> {
        let mut scan = Scan::new(data, VERSION)?;
        let fields = (scan.u128()?, scan.bytes()?);
        scan.end(fields)
    }
    let (id, data) = read(data).ok_or_else(|| unreadable("operation"))?;
    Ok(row::decode_operation(operation_number(key)?, id, data))
}

/// A progress row and its stamp from its data.
pub(super) fn decode_progress(data: &[u8]) -> Result<(Progress, u64), Failure> {
    fn read(data: &[u8]) -> Option<(Epoch, u64, &[u8])> {
        let mut scan = Scan::new(data, VERSION)?;
        let fields = (Epoch(scan.u64()?), scan.u64()?, scan.bytes()?);
        scan.end(fields)
    }
    let (epoch, stamp, data) = read(data).ok_or_else(|| unreadable("progress row"))?;
    let progress = row::decode_progress(epoch, data).map_err(|e| Failure::Corrupt(e.to_string()))?;
    Ok((progress, stamp))
}

fn encode_cluster(cluster: &Cluster) -> Vec<u8> {
    Fields::new(VERSION)
        .u32(cluster.shards)
        .i64(cluster.bucket_ms)
        .u32(cluster.subs)
        .bytes(cluster.hash.as_bytes())
        .bytes(&cluster.signing_key)
        .done()
}

pub(super) fn decode_cluster(data: &[u8]) -> Result<Cluster, Failure> {
    fn read(data: &[u8]) -> Option<Cluster> {
        let mut scan = Scan::new(data, VERSION)?;
        let row = Cluster {
            shards: scan.u32()?,
            bucket_ms: scan.i64()?,
            subs: scan.u32()?,
            hash: scan.text()?,
            signing_key: scan.bytes()?.try_into().ok()?,
        };
        scan.end(row)
    }
    read(data).ok_or_else(|| unreadable("cluster row"))
}

fn encode_instance(instance: &Instance) -> Vec<u8> {
    Fields::new(VERSION)
        .bytes(instance.name.as_bytes())
        .bytes(instance.dc.as_bytes())
        .bytes(instance.advertise.as_bytes())
        .bytes(instance.version.as_bytes())
        .i64(instance.started_at.0)
        .i64(instance.seen_at.0)
        .done()
}

/// An instance row from its data.
pub(super) fn decode_instance(data: &[u8]) -> Result<Instance, Failure> {
    fn read(data: &[u8]) -> Option<Instance> {
        let mut scan = Scan::new(data, VERSION)?;
        let row = Instance {
            name: scan.text()?,
            dc: scan.text()?,
            advertise: scan.text()?,
            version: scan.text()?,
            started_at: Wall(scan.i64()?),
            seen_at: Wall(scan.i64()?),
        };
        scan.end(row)
    }
    read(data).ok_or_else(|| unreadable("instance row"))
}
