//! First events of ids, many in a row of `event_pack`.
//!
//! ```text
//! (shard, span) | cell, kind, digest | data
//!      3, 0        5     0    7261…    320 2 orders/o-1 {"shard":3,…}
//!                                      321 2 orders/o-2 {"shard":3,…}
//!      3, 0        5     1     320     -                                  the event of version 320 is forgotten
//! ```
//!
//! A row by id costs a server far more than its bytes, and what is packed has nothing that leads from an id to it. That is what the list of
//! ids is for (`event_ids`): the owner of a shard has it in memory and says which versions an id may have; for who asks elsewhere it is
//! read, with what is on record and not listed yet. So only such events are packed as are listed ([`EventRow::is_listed`]), and only those that are
//! the first of their ids: all others are found by the id, as rows of `task_event`.

mod pack;

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;

use super::Shared;
use super::ids::{self, send};
use super::singles::{Pages, number_column, progress, rows, shard_column};
use crate::model::{EventRow, IdsRow, Print, Shard, TaskKey, Version, home_shard, limits};
use crate::store::Error;
use crate::wire::row as codec;
pub(super) use pack::EventPacker;
use pack::{Line, lines};

/// Versions of a span, and of a cell: 2 to the power of this.
const SPAN_BITS: u32 = 14;
const CELL_BITS: u32 = 6;
/// Requests of one call under way at once.
const REQUESTS_MAX: usize = 16;
/// Cells of one request, of up to 20 KiB each.
const CELLS_MAX: usize = 16;
const PACK: i8 = 0;
const GONE: i8 = 1;

/// shard, span, cell, kind, digest, data
pub(super) type EventPackColumns = (i32, i64, i64, i8, i64, String);
/// Shard and span.
pub(super) type Partition = (i32, i64);

fn span_of(version: Version) -> i64 {
    (version.0 >> SPAN_BITS).cast_signed()
}

fn cell_of(version: Version) -> i64 {
    (version.0 >> CELL_BITS).cast_signed()
}

/// An id, and the versions that events of it may have.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) key: &'a TaskKey,
    pub(super) versions: &'a [Version],
}

/// Which cells of which partitions have what is wanted.
type Cells = BTreeMap<Partition, BTreeSet<i64>>;

fn cells_of(shards: u32, wanted: &[Wanted<'_>]) -> Cells {
    let mut cells = Cells::new();
    for Wanted { key, versions } in wanted {
        let shard = shard_column(home_shard(&key.queue, shards));
        for version in *versions {
            cells.entry((shard, span_of(*version))).or_default().insert(cell_of(*version));
        }
    }
    cells
}

/// For each of these ids its packed events that are not forgotten, in any order, among them all of those versions.
pub(super) async fn of_versions(shared: &Shared, wanted: &[Wanted<'_>]) -> Result<Vec<Vec<EventRow>>, Error> {
    let mut found = vec![Vec::new(); wanted.len()];
    let cells = cells_of(shared.layout().await?.shards, wanted);
    if cells.is_empty() {
        return Ok(found);
    }
    let mut asked: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, wanted) in wanted.iter().enumerate().filter(|(_, wanted)| !wanted.versions.is_empty()) {
        asked.entry(codec::key_text(wanted.key)).or_default().push(index);
    }
    let asked = &asked;
    let reads = requests_of(cells).map(|(partition, cells)| async move {
        let mut gone = BTreeSet::new();
        let mut rows_of: Vec<(usize, EventRow)> = Vec::new();
        read_cells(shared, partition, cells, |row| {
            match row {
                CellRow::Gone(version) => drop(gone.insert(version)),
                CellRow::Pack(pack) => {
                    for line in lines(pack.data) {
                        let line = line?;
                        for index in asked.get(line.key).into_iter().flatten() {
                            rows_of.push((*index, decode(wanted[*index].key, &line)?));
                        }
                    }
                }
            }
            Ok(())
        })
        .await?;
        rows_of.retain(|(_, row)| !gone.contains(&row.version));
        Ok::<_, Error>(rows_of)
    });
    let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(REQUESTS_MAX);
    while let Some(rows) = reads.try_next().await? {
        rows.into_iter().for_each(|(index, row)| found[index].push(row));
    }
    Ok(found)
}

fn decode(key: &TaskKey, line: &Line<'_>) -> Result<EventRow, Error> {
    codec::decode_event(key.clone(), line.version, line.epoch, line.data.as_bytes())
        .map_err(|error| Error::Corrupt(error.to_string()))
}

/// So many cells of a partition each.
fn requests_of(cells: Cells) -> impl Iterator<Item = (Partition, Vec<i64>)> {
    cells.into_iter().flat_map(|(partition, cells)| {
        let cells = Vec::from_iter(cells);
        let parts: Vec<_> = cells.chunks(CELLS_MAX).map(|part| (partition, part.to_vec())).collect();
        parts
    })
}

/// A row of a cell.
enum CellRow<'a> {
    Pack(Pack<'a>),
    Gone(Version),
}

struct Pack<'a> {
    cell: i64,
    digest: i64,
    data: &'a str,
}

async fn read_cells(
    shared: &Shared,
    (shard, span): Partition,
    cells: Vec<i64>,
    each: impl FnMut(CellRow<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    read_pages(shared, &shared.statements.event_pack_cells, (shard, span, cells), each).await
}

async fn read_pages(
    shared: &Shared,
    statement: &PreparedStatement,
    values: impl SerializeRow,
    mut each: impl FnMut(CellRow<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let _permit = shared.permit().await?;
    let mut pages = Pages::new(shared, statement, values);
    while let Some(page) = pages.next().await? {
        for (cell, kind, digest, data) in rows::<(i64, i8, i64, Option<&str>)>("event_pack", &page)? {
            match (kind, data) {
                (PACK, Some(data)) => each(CellRow::Pack(Pack { cell, digest, data }))?,
                (GONE, _) => each(CellRow::Gone(Version(digest.cast_unsigned())))?,
                _ => return Err(Error::Corrupt(format!("event_pack: a row of kind {kind}"))),
            }
        }
    }
    Ok(())
}

/// For each of these ids the versions that packed events of it may have, by what is on record.
pub(super) async fn locate(shared: &Shared, keys: &[&TaskKey]) -> Result<Vec<Vec<Version>>, Error> {
    let mut found = vec![Vec::new(); keys.len()];
    if keys.is_empty() {
        return Ok(found);
    }
    let shards = shared.layout().await?.shards;
    let closed = |_| Error::Unavailable("the store is closed".into());
    let _one_of_few = shared.lists.acquire().await.map_err(closed)?;
    let mut of_shards: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
    for (index, key) in keys.iter().enumerate() {
        of_shards.entry(home_shard(&key.queue, shards)).or_default().push(index);
    }
    for (shard, indexes) in of_shards {
        // In this order: what is listed between the two reads is found in one of them.
        let Some(progress) = progress(shared, shard).await? else { continue };
        let Some(from) = progress.ids_from else { continue };
        let (mut by_print, mut by_key) = (BTreeMap::<u32, Vec<usize>>::new(), BTreeMap::new());
        for index in indexes {
            by_print.entry(Print::of(keys[index], true).id()).or_default().push(index);
            by_key.entry(keys[index]).or_insert_with(Vec::new).push(index);
        }
        for row in IdsRow::counting(ids::ids(shared, shard, from).await?) {
            for (version, print) in row.events().filter(|(_, print)| print.may_be_packed()) {
                let of_id = by_print.get(&print.id()).into_iter().flatten();
                of_id.for_each(|index| found[*index].push(version));
            }
        }
        let next = Version::new(progress.generation, progress.next_offset);
        let ends: Vec<Version> = progress.ends.into_iter().chain([next]).collect();
        for (key, version) in unlisted(shared, shard, &ends).await? {
            by_key.get(&key).into_iter().flatten().for_each(|index| found[*index].push(version));
        }
    }
    Ok(found)
}

/// What is packed from each of these versions on, as far as it may be in no list.
pub(super) async fn unlisted(
    shared: &Shared,
    shard: Shard,
    ends: &[Version],
) -> Result<Vec<(TaskKey, Version)>, Error> {
    let (mut found, mut gone) = (Vec::new(), BTreeSet::new());
    for end in ends {
        let last = Version(end.0.saturating_add(limits::UNLISTED_VERSIONS_MAX));
        for span in span_of(*end)..=span_of(last) {
            let statement = &shared.statements.event_pack_from;
            read_pages(shared, statement, (shard_column(shard), span, cell_of(*end)), |row| {
                match row {
                    CellRow::Gone(version) => drop(gone.insert(version)),
                    CellRow::Pack(pack) => {
                        for line in lines(pack.data) {
                            let line = line?;
                            let key = codec::key_from_text(line.key);
                            found.push((
                                key.map_err(|error| Error::Corrupt(error.to_string()))?,
                                line.version,
                            ));
                        }
                    }
                }
                Ok(())
            })
            .await?;
        }
    }
    found.retain(|(_, version)| !gone.contains(version));
    Ok(found)
}

/// What a partition has of a cell in which events are to be forgotten.
#[derive(Default)]
struct Cell {
    /// Each pack with its digest.
    packs: Vec<(i64, BTreeSet<Version>)>,
    /// Forgotten before.
    gone: BTreeSet<Version>,
    /// To be forgotten.
    going: BTreeSet<Version>,
}

/// Forgets packed events of ids: those among `versions` of each.
pub(super) async fn forget(shared: &Shared, wanted: &[Wanted<'_>]) -> Result<(), Error> {
    let cells = cells_of(shared.layout().await?.shards, wanted);
    let mut going: BTreeMap<String, BTreeSet<Version>> = BTreeMap::new();
    for Wanted { key, versions } in wanted.iter().filter(|wanted| !wanted.versions.is_empty()) {
        going.entry(codec::key_text(key)).or_default().extend(*versions);
    }
    let going = &going;
    let forgets = requests_of(cells).map(|(partition, cells)| async move {
        let mut found: BTreeMap<i64, Cell> = BTreeMap::new();
        read_cells(shared, partition, cells, |row| {
            match row {
                CellRow::Gone(version) => {
                    found.entry(cell_of(version)).or_default().gone.insert(version);
                }
                CellRow::Pack(pack) => {
                    let (cell, mut events) = (found.entry(pack.cell).or_default(), BTreeSet::new());
                    for line in lines(pack.data) {
                        let line = line?;
                        events.insert(line.version);
                        if going.get(line.key).is_some_and(|going| going.contains(&line.version)) {
                            cell.going.insert(line.version);
                        }
                    }
                    cell.packs.push((pack.digest, events));
                }
            }
            Ok(())
        })
        .await?;
        for (cell, found) in found {
            forget_of_cell(shared, partition, cell, found).await?;
        }
        Ok::<_, Error>(())
    });
    stream::iter(forgets.collect::<Vec<_>>()).buffer_unordered(REQUESTS_MAX).try_collect().await
}

/// Writes down what is forgotten, and takes away packs of which all is. Those very rows: others may come into the cell meanwhile.
async fn forget_of_cell(
    shared: &Shared,
    (shard, span): Partition,
    cell: i64,
    found: Cell,
) -> Result<(), Error> {
    let Cell { packs, gone, going } = found;
    let is_gone = |version: &Version| gone.contains(version) || going.contains(version);
    let (empty, left): (Vec<_>, Vec<_>) =
        packs.into_iter().partition(|(_, events)| events.iter().all(is_gone));
    let left: BTreeSet<Version> = left.into_iter().flat_map(|(_, events)| events).collect();
    // What is forgotten of packs that stay is noted before others go: it may be in several.
    let noted = going.difference(&gone).filter(|version| left.contains(version));
    let noted = noted.map(|version| {
        let columns: EventPackColumns = (shard, span, cell, GONE, number_column(version.0)?, String::new());
        Ok(columns)
    });
    send(shared, &shared.statements.event_pack_insert, noted.collect::<Result<Vec<_>, Error>>()?).await?;
    let of_packs = empty.iter().map(|(digest, _)| (shard, span, cell, PACK, *digest));
    let notes = gone.iter().filter(|version| !left.contains(version));
    let of_notes = notes.map(|version| (shard, span, cell, GONE, version.0.cast_signed()));
    // The packs first: without its notes what is left of one would come back.
    send(shared, &shared.statements.event_pack_delete, of_packs.collect()).await?;
    send(shared, &shared.statements.event_pack_delete, of_notes.collect()).await
}
