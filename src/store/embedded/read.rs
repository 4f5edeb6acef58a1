//! What is read from the tables: points and ranges, in the order of the keys.

use std::ops::ControlFlow;
use std::sync::Arc;

use fjall::{Keyspace, Slice as Bytes};

use super::db::{Failure, Tables};
use super::keys::{self, tag};
use super::meta;
use crate::model::{
    BatchProgress, DeadLetterRow, Died, Epoch, FactRow, IdsRow, Operation, OwnerRow, Place, Progress, Shard,
    Version, Wall,
};
use crate::store::pack::{self, Cell};
use crate::store::{Instance, Slice};
use crate::wire::row;

/// Reads a range in order until `each` breaks.
pub(super) fn scan(
    table: &Keyspace,
    from: &[u8],
    to: &[u8],
    mut each: impl FnMut(&Bytes, &Bytes) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    if from >= to {
        return Ok(());
    }
    for guard in table.range(from..to) {
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

/// Whole places from `from` to before `to`, until `rows_max` rows are reached, and what is packed of them.
pub(super) fn slice(
    tables: &Tables,
    shard: Shard,
    from: Place,
    to: Place,
    rows_max: usize,
) -> Result<Slice, Failure> {
    let mut slice = Slice::default();
    let (first, last) = (keys::place(shard, from), keys::place(shard, to));
    scan(&tables.due, &first, &last, |key, data| {
        let place = keys::place_of(key).ok_or_else(|| Failure::Corrupt("key of due".to_owned()))?;
        let begins = slice.rows.last().is_some_and(|last: &FactRow| last.place != place);
        if begins && slice.rows.len() >= rows_max {
            slice.next = Some(place);
            return Ok(ControlFlow::Break(()));
        }
        slice.rows.push(keys::fact_from(shard, key, data).map_err(|e| unreadable(&e))?);
        Ok(ControlFlow::Continue(()))
    })?;
    add_packed(tables, shard, &mut slice.rows)?;
    Ok(slice)
}

/// Whole places from before `to` back to `from`, the newest first, until `rows_max` rows are reached, and what is packed of them.
pub(super) fn slice_back(
    tables: &Tables,
    shard: Shard,
    from: Place,
    to: Place,
    rows_max: usize,
) -> Result<Slice, Failure> {
    let mut slice = Slice::default();
    if from >= to {
        return Ok(slice);
    }
    for guard in tables.due.range(keys::place(shard, from)..keys::place(shard, to)).rev() {
        let (key, data) = guard.into_inner().map_err(|e| Failure::of_read(&e))?;
        let row = keys::fact_from(shard, &key, &data).map_err(|e| unreadable(&e))?;
        let last = slice.rows.last().map(|last| last.place).filter(|last| *last != row.place);
        if last.is_some() && slice.rows.len() >= rows_max {
            slice.next = last;
            break;
        }
        slice.rows.push(row);
    }
    slice.rows.reverse();
    add_packed(tables, shard, &mut slice.rows)?;
    // The places turn round, the rows of one keep their order.
    slice.rows.reverse();
    slice.rows.chunk_by_mut(|one, next| one.place == next.place).for_each(<[FactRow]>::reverse);
    Ok(slice)
}

/// Puts what is packed of places among their rows: the rows of a range, the oldest first. There is none of places without rows.
fn add_packed(tables: &Tables, shard: Shard, rows: &mut Vec<FactRow>) -> Result<(), Failure> {
    let (Some(first), Some(last)) = (rows.first().map(|row| row.place), rows.last().map(|row| row.place))
    else {
        return Ok(());
    };
    let mut packed = Vec::new();
    let cell = |cell| keys::cell(shard, cell);
    let second = cell(Cell::of_second(first));
    let (from, to) = (cell(Cell::of_instant(first)), cell(Cell::of_instant(last)));
    for (from, to) in [(&second, after(&second)), (&from, after(&to))] {
        scan(&tables.due_pack, from, &to, |_, data| {
            open(shard, data, |place| first <= place && place <= last, &mut packed)
        })?;
    }
    pack::merge(rows, packed);
    Ok(())
}

/// All rows of one place.
pub(super) fn facts(tables: &Tables, shard: Shard, place: Place) -> Result<Vec<FactRow>, Failure> {
    let mut rows = Vec::new();
    let prefix = keys::place(shard, place);
    scan(&tables.due, &prefix, &after(&prefix), |key, data| {
        rows.push(keys::fact_from(shard, key, data).map_err(|e| unreadable(&e))?);
        Ok(ControlFlow::Continue(()))
    })?;
    let mut packed = Vec::new();
    for cell in Cell::of(place) {
        let prefix = keys::cell(shard, cell);
        scan(&tables.due_pack, &prefix, &after(&prefix), |_, data| {
            open(shard, data, |at| at == place, &mut packed)
        })?;
    }
    pack::merge(&mut rows, packed);
    Ok(rows)
}

fn open(
    shard: Shard,
    data: &[u8],
    wanted: impl Fn(Place) -> bool,
    found: &mut Vec<FactRow>,
) -> Result<ControlFlow<()>, Failure> {
    let data = std::str::from_utf8(data).map_err(|_| Failure::Corrupt("a pack is no text".to_owned()))?;
    pack::open(shard, data, wanted, found).map_err(|error| unreadable(&error))?;
    Ok(ControlFlow::Continue(()))
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
