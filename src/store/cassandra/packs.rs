//! Reads of `due_pack`: those rows of a partition of `due` that lie in packs.

use std::collections::BTreeSet;

use super::Shared;
use super::singles::{Pages, rows, shard_column};
use super::slice::{Order, Reader};
use crate::model::{FactRow, Place, Shard, Wall};
use crate::store::Error;
use crate::store::pack::{self, Cell};

/// What is packed of places of one partition.
pub(super) async fn of_places(
    reader: &Reader<'_>,
    partition: (i64, i32),
    places: &BTreeSet<Place>,
) -> Result<Vec<FactRow>, Error> {
    let cells = places.iter().copied().flat_map(Cell::of).collect();
    of_cells(reader, partition, cells, |at| places.contains(&at)).await
}

/// What is packed of a range in the cell of the second of a place.
pub(super) async fn of_second(
    reader: &Reader<'_>,
    partition: (i64, i32),
    place: Place,
    range: (Place, Place),
) -> Result<Vec<FactRow>, Error> {
    let (from, to) = range;
    of_cells(reader, partition, [Cell::of_second(place)].into(), |at| from <= at && at < to).await
}

async fn of_cells(
    reader: &Reader<'_>,
    (bucket, sub): (i64, i32),
    cells: BTreeSet<Cell>,
    wanted: impl Fn(Place) -> bool,
) -> Result<Vec<FactRow>, Error> {
    let cells: Vec<(i64, i64)> = cells.into_iter().map(|cell| (cell.ready_at.0, cell.versions)).collect();
    let values = (shard_column(reader.shard), bucket, sub, cells);
    let _permit = reader.shared.permit().await?;
    let mut pages = Pages::new(reader.shared, &reader.shared.statements.pack_cells, values);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        for (data,) in rows::<(&str,)>("due_pack", &page)? {
            open(reader.shard, data, &wanted, &mut found)?;
        }
    }
    Ok(found)
}

/// What is packed of a range of places in one partition, read as far as it is wanted; without the cell of the second of its first
/// place, which lies before all others.
pub(super) struct Packs<'a> {
    shared: &'a Shared,
    shard: Shard,
    order: Order,
    range: (Place, Place),
    pages: Pages<'a, (i32, i64, i32, i64, i64, i64, i64)>,
    /// The cell that was read last, maybe not all of it.
    reached: Option<Cell>,
    found: Vec<FactRow>,
}

impl<'a> Packs<'a> {
    pub(super) fn new(reader: &Reader<'a>, (bucket, sub): (i64, i32), range: (Place, Place)) -> Packs<'a> {
        let Reader { shared, shard, order, .. } = *reader;
        let statement = match order {
            Order::OldestFirst => &shared.statements.pack_range,
            Order::NewestFirst => &shared.statements.pack_range_back,
        };
        let (from, to) = (Cell::of_instant(range.0), Cell::of_instant(range.1));
        let shard_of = shard_column(shard);
        let values = (shard_of, bucket, sub, from.ready_at.0, from.versions, to.ready_at.0, to.versions);
        let pages = Pages::new(shared, statement, values);
        Packs { shared, shard, order, range, pages, reached: None, found: Vec::new() }
    }

    /// Reads the next page.
    pub(super) async fn read(&mut self) -> Result<(), Error> {
        let _permit = self.shared.permit().await?;
        let Some(page) = self.pages.next().await? else { return Ok(()) };
        for (ready_at, versions, data) in rows::<(i64, i64, &str)>("due_pack", &page)? {
            self.reached = Some(Cell { ready_at: Wall(ready_at), versions });
            let (from, to) = self.range;
            open(self.shard, data, |at| from <= at && at < to, &mut self.found)?;
        }
        Ok(())
    }

    /// Reads the rest until `rows_max` rows are reached, of places before `stop` or, read back, from it on: the rows, and where it
    /// stopped. Read back, the cell of the second of that place is still to be read.
    pub(super) async fn until(
        mut self,
        stop: Option<Place>,
        rows_max: usize,
    ) -> Result<(Vec<FactRow>, Option<Place>), Error> {
        while self.pages.has_more() {
            if let Some(got_to) = self.got_to() {
                let (from, to) = self.range;
                let end = if self.order == Order::OldestFirst { to } else { from };
                if self.order.is_reached(got_to, stop.unwrap_or(end)) {
                    break;
                }
                if self.found.len() >= rows_max {
                    return Ok((self.found, Some(got_to)));
                }
            }
            self.read().await?;
        }
        Ok((self.found, stop))
    }

    /// How far it was read, if that is a step.
    fn got_to(&self) -> Option<Place> {
        let (from, to) = self.range;
        match self.order {
            Order::OldestFirst => self.reached.map(Cell::start).filter(|start| *start > from),
            Order::NewestFirst => self.reached.map(Cell::end).filter(|end| *end < to),
        }
    }
}

fn open(
    shard: Shard,
    data: &str,
    wanted: impl Fn(Place) -> bool,
    found: &mut Vec<FactRow>,
) -> Result<(), Error> {
    pack::open(shard, data, wanted, found)
        .map_err(|error| Error::Corrupt(format!("due_pack, shard {}: {error}", shard.0)))
}
