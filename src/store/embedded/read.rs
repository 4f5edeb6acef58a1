//! What is read from the tables: points and ranges, in the order of the keys.

use std::ops::ControlFlow;
use std::sync::Arc;

use fjall::{Guard, Keyspace, Slice as Bytes};

use super::db::{Failure, Tables};
use super::keys::{self, tag};
use super::meta;
use crate::model::{
    BatchProgress, DeadLetterRow, Died, Epoch, IdsRow, Operation, OwnerRow, Place, Progress, Shard, Version,
    Wall,
};
use crate::store::Instance;
use crate::wire::row;

/// Reads a range in order until `each` breaks.
pub(super) fn scan(
    table: &Keyspace,
    from: &[u8],
    to: &[u8],
    each: impl FnMut(&Bytes, &Bytes) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    if from >= to {
        return Ok(());
    }
    walk(table.range(from..to), each)
}

/// Reads what a range has until `each` breaks.
pub(super) fn walk(
    range: impl Iterator<Item = Guard>,
    mut each: impl FnMut(&Bytes, &Bytes) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    for guard in range {
        let (key, data) = guard.into_inner().map_err(|e| Failure::of_read(&e))?;
        if each(&key, &data)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The key after every key that begins with `prefix`, which never ends in 0xff bytes alone here.
pub(super) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

pub(super) fn unreadable(error: &row::Error) -> Failure {
    Failure::Corrupt(error.to_string())
}

/// Reads one row.
pub(super) fn get(table: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Failure> {
    table.get(key).map_err(|e| Failure::of_read(&e))
}

/// The payload of a place.
pub(super) fn payload(tables: &Tables, shard: Shard, place: Place) -> Result<Option<Arc<[u8]>>, Failure> {
    let data = get(&tables.payload, keys::place(shard, place))?;
    Ok(data.map(|data| Arc::from(&*data)))
}

/// All rows of `event_ids` of a shard from a chunk on.
pub(super) fn ids(tables: &Tables, shard: Shard, from: u64) -> Result<Vec<IdsRow>, Failure> {
    let mut rows = Vec::new();
    let first = keys::ids(shard, from, Epoch(0));
    scan(&tables.event_ids, &first, &after(&shard.0.to_be_bytes()), |key, data| {
        let of = keys::ids_of(key).ok_or_else(|| Failure::Corrupt("key of event_ids".to_owned()));
        let (chunk, epoch) = of?;
        rows.push(row::decode_ids(shard, chunk, epoch, data).map_err(|e| unreadable(&e))?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rows)
}

/// The newest progress row.
pub(super) fn progress(tables: &Tables, shard: Shard) -> Result<Option<Progress>, Failure> {
    let data = get(&tables.meta, keys::shard(tag::PROGRESS, shard))?;
    data.map(|data| Ok(meta::decode_progress(&data)?.0)).transpose()
}

/// The owner row.
pub(super) fn owner(tables: &Tables, shard: Shard) -> Result<OwnerRow, Failure> {
    match get(&tables.meta, keys::shard(tag::OWNER, shard))? {
        Some(data) => meta::decode_owner(&data),
        None => Ok(OwnerRow::default()),
    }
}

/// Dead letters from a time on that stand before `before`, newest first.
pub(super) fn dead_letters(
    tables: &Tables,
    shard: Shard,
    from: Wall,
    before: Died,
    rows_max: usize,
) -> Result<Vec<DeadLetterRow>, Failure> {
    let mut found = Vec::new();
    let mut first = keys::dead_letters_from(shard, before).to_vec();
    first.push(0);
    let last = keys::dead_letters_from(shard, Died { at: from, version: Version(0) });
    scan(&tables.dead_letter, &first, &after(&last), |key, data| {
        if found.len() >= rows_max {
            return Ok(ControlFlow::Break(()));
        }
        let died = keys::died(key).ok_or_else(|| Failure::Corrupt("key of dead_letter".to_owned()))?;
        found.push(row::decode_dead_letter(shard, died, data).map_err(|error| unreadable(&error))?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// The operations above a number, in order.
pub(super) fn operations(
    tables: &Tables,
    after_number: u64,
    rows_max: usize,
) -> Result<Vec<Operation>, Failure> {
    let mut operations = Vec::new();
    let from = keys::meta(tag::OPERATION, &after_number.saturating_add(1).to_be_bytes());
    scan(&tables.meta, &from, &after(&[tag::OPERATION]), |key, data| {
        if operations.len() >= rows_max {
            return Ok(ControlFlow::Break(()));
        }
        operations.push(meta::decode_operation(key, data)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(operations)
}

/// How far a batch got, in its highest epoch.
pub(super) fn batch_progress(tables: &Tables, number: u64) -> Result<Option<BatchProgress>, Failure> {
    let mut found = None;
    let (first, last) = (keys::batch(number, Epoch(u64::MAX)), keys::batch(number, Epoch(0)));
    scan(&tables.meta, &first, &after(&last), |key, data| {
        let epoch = key.get(9..).and_then(|rest| <[u8; 8]>::try_from(rest).ok());
        let epoch = epoch.ok_or_else(|| Failure::Corrupt("key of a batch".to_owned()))?;
        let epoch = Epoch(!u64::from_be_bytes(epoch));
        found = Some(row::decode_batch_progress(epoch, data).map_err(|error| unreadable(&error))?);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// All instances.
pub(super) fn instances(tables: &Tables) -> Result<Vec<Instance>, Failure> {
    let mut instances = Vec::new();
    scan(&tables.meta, &[tag::INSTANCE], &[tag::INSTANCE + 1], |_, data| {
        instances.push(meta::decode_instance(data)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(instances)
}
