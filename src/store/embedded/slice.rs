//! Ranges of `due` with what is packed of them, whole places only, and single places.
//!
//! Rows and packs may each end a page: rows at the end of a place, packs at the end of a cell. In cells before that of a page's end lies
//! all that is packed of its places, but for the second in which it begins, or ends when it is read back: that cell is read by itself,
//! whatever is in it, and does not count.
//!
//! All of an answer is of one snapshot: who saw a task before its stretch was dropped, and not its end, would take it for one that waits.

use std::ops::ControlFlow;

use fjall::{Readable as _, Snapshot};

use super::db::{Failure, Tables};
use super::read::{after, unreadable, walk};
use super::{keys, pack_rows};
use crate::model::{FactRow, Place, Shard};
use crate::store::Slice;
use crate::store::pack::{self, Cell};

/// Whole places from `from` to before `to`, until `rows_max` rows are reached, or as many in packs.
pub(super) fn slice(
    tables: &Tables,
    shard: Shard,
    from: Place,
    to: Place,
    rows_max: usize,
) -> Result<Slice, Failure> {
    if from >= to {
        return Ok(Slice::default());
    }
    let snapshot = tables.database.snapshot();
    let (rows_max, mut rows, mut next) = (rows_max.max(1), Vec::new(), None);
    let (first, last) = (keys::place(shard, from), keys::place(shard, to));
    walk(snapshot.range(&tables.due, first..last), |key, data| {
        let row = keys::fact_from(shard, key, data).map_err(|e| unreadable(&e))?;
        let begins = rows.last().is_some_and(|last: &FactRow| last.place != row.place);
        if begins && rows.len() >= rows_max {
            next = Some(row.place);
            return Ok(ControlFlow::Break(()));
        }
        rows.push(row);
        Ok(ControlFlow::Continue(()))
    })?;
    let is_in = |place, next: Option<Place>| from <= place && place < next.unwrap_or(to);
    let mut packed = cell(tables, &snapshot, shard, Cell::of_second(from), |place| is_in(place, next))?;
    let (of_second, mut last) = (packed.len(), None);
    let first = keys::cell(shard, Cell::of_instant(from));
    let all = &first[..]..&after(&shard.0.to_be_bytes())[..];
    walk(snapshot.range(&tables.due_pack, all), |key, data| {
        let cell = keys::cell_of(key)?;
        if last.replace(cell) != Some(cell) {
            let read_to = cell.start();
            if read_to >= next.unwrap_or(to) {
                return Ok(ControlFlow::Break(()));
            }
            if packed.len() - of_second >= rows_max {
                next = Some(read_to);
                return Ok(ControlFlow::Break(()));
            }
        }
        open(shard, data, |place| is_in(place, next), &mut packed).map(ControlFlow::Continue)
    })?;
    if let Some(next) = next {
        [&mut rows, &mut packed].into_iter().for_each(|rows| rows.retain(|row| row.place < next));
    }
    pack::merge(&mut rows, packed);
    Ok(Slice { rows, next })
}

/// Whole places from before `to` back to `from`, the newest first, until `rows_max` rows are reached, or as many in packs.
pub(super) fn slice_back(
    tables: &Tables,
    shard: Shard,
    from: Place,
    to: Place,
    rows_max: usize,
) -> Result<Slice, Failure> {
    if from >= to {
        return Ok(Slice::default());
    }
    let snapshot = tables.database.snapshot();
    let (rows_max, mut rows, mut next) = (rows_max.max(1), Vec::<FactRow>::new(), None);
    for guard in snapshot.range(&tables.due, keys::place(shard, from)..keys::place(shard, to)).rev() {
        let (key, data) = guard.into_inner().map_err(|e| Failure::of_read(&e))?;
        let row = keys::fact_from(shard, &key, &data).map_err(|e| unreadable(&e))?;
        let last = rows.last().map(|last| last.place).filter(|last| *last != row.place);
        if last.is_some() && rows.len() >= rows_max {
            next = last;
            break;
        }
        rows.push(row);
    }
    rows.reverse();
    let is_in = |place, next: Option<Place>| next.unwrap_or(from) <= place && place < to;
    let (mut packed, mut last) = (Vec::new(), None);
    let cells = [from, to].map(|place| keys::cell(shard, Cell::of_instant(place)));
    for guard in snapshot.range(&tables.due_pack, &cells[0][..]..&after(&cells[1])[..]).rev() {
        let (key, data) = guard.into_inner().map_err(|e| Failure::of_read(&e))?;
        let cell = keys::cell_of(&key)?;
        if last.replace(cell) != Some(cell) {
            let read_to = cell.end();
            if read_to <= next.unwrap_or(from) {
                break;
            }
            if packed.len() >= rows_max {
                next = Some(read_to);
                break;
            }
        }
        open(shard, &data, |place| is_in(place, next), &mut packed)?;
    }
    let second = Cell::of_second(next.unwrap_or(from));
    packed.extend(cell(tables, &snapshot, shard, second, |place| is_in(place, next))?);
    if let Some(next) = next {
        [&mut rows, &mut packed].into_iter().for_each(|rows| rows.retain(|row| row.place >= next));
    }
    pack::merge(&mut rows, packed);
    // The places turn round, the rows of one keep their order.
    rows.reverse();
    rows.chunk_by_mut(|one, next| one.place == next.place).for_each(<[FactRow]>::reverse);
    Ok(Slice { rows, next })
}

/// All rows of one place.
pub(super) fn facts(tables: &Tables, shard: Shard, place: Place) -> Result<Vec<FactRow>, Failure> {
    let snapshot = tables.database.snapshot();
    let mut rows = Vec::new();
    let prefix = keys::place(shard, place);
    walk(snapshot.prefix(&tables.due, prefix), |key, data| {
        rows.push(keys::fact_from(shard, key, data).map_err(|e| unreadable(&e))?);
        Ok(ControlFlow::Continue(()))
    })?;
    let mut packed = Vec::new();
    for of_place in Cell::of(place) {
        packed.extend(cell(tables, &snapshot, shard, of_place, |at| at == place)?);
    }
    pack::merge(&mut rows, packed);
    Ok(rows)
}

/// What is packed in a cell.
fn cell(
    tables: &Tables,
    snapshot: &Snapshot,
    shard: Shard,
    cell: Cell,
    wanted: impl Fn(Place) -> bool,
) -> Result<Vec<FactRow>, Failure> {
    let (prefix, mut found) = (keys::cell(shard, cell), Vec::new());
    walk(snapshot.prefix(&tables.due_pack, prefix), |_, data| {
        open(shard, data, &wanted, &mut found).map(ControlFlow::Continue)
    })?;
    Ok(found)
}

fn open(
    shard: Shard,
    data: &[u8],
    wanted: impl Fn(Place) -> bool,
    found: &mut Vec<FactRow>,
) -> Result<(), Failure> {
    pack_rows::open(shard, data, wanted, found).map_err(|error| unreadable(&error))
}
