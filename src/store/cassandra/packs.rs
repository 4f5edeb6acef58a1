//! Reads of `due_pack`: those rows of a partition of `due` that lie in packs.

use super::Shared;
use super::singles::{Pages, one_page, rows, shard_column};
use super::slice::{Order, Reader};
use crate::model::{FactRow, Place, Shard, Wall};
use crate::store::Error;
use crate::store::pack::{self, Cell};

/// What is packed of one place.
pub(super) async fn of_place(
    reader: &Reader<'_>,
    (bucket, sub): (i64, i32),
    place: Place,
) -> Result<Vec<FactRow>, Error> {
    let [second, instant] = Cell::of(place);
    let shard = shard_column(reader.shard);
    let cells = (second.ready_at.0, second.versions, instant.ready_at.0, instant.versions);
    let values = (shard, bucket, sub, cells.0, cells.1, cells.2, cells.3);
    let _permit = reader.shared.permit().await?;
    let page = one_page(reader.shared, &reader.shared.statements.pack_cells, values).await?;
    let mut found = Vec::new();
    for (_, data) in rows::<(i64, &str)>("due_pack", &page)? {
        open(reader.shard, data, |at| at == place, &mut found)?;
    }
    Ok(found)
}

/// What is packed of a range of places in one partition, read as far as it is wanted.
pub(super) struct Packs<'a> {
    shared: &'a Shared,
    shard: Shard,
    order: Order,
    range: (Place, Place),
    pages: Pages<'a, (i32, i64, i32, i64, i64)>,
    /// The cell that was read last begins here.
    reached: Option<Wall>,
    found: Vec<FactRow>,
}

impl<'a> Packs<'a> {
    pub(super) fn new(reader: &Reader<'a>, (bucket, sub): (i64, i32), range: (Place, Place)) -> Packs<'a> {
        let Reader { shared, shard, order, .. } = *reader;
        let statement = match order {
            Order::OldestFirst => &shared.statements.pack_range,
            Order::NewestFirst => &shared.statements.pack_range_back,
        };
        let (from, to) = (Cell::first_from(range.0), range.1.ready_at);
        let values = (shard_column(shard), bucket, sub, from.0, to.0);
        let pages = Pages::new(shared, statement, values);
        Packs { shared, shard, order, range, pages, reached: None, found: Vec::new() }
    }

    /// Reads the next page.
    pub(super) async fn read(&mut self) -> Result<(), Error> {
        let _permit = self.shared.permit().await?;
        let Some(page) = self.pages.next().await? else { return Ok(()) };
        for (ready_at, data) in rows::<(i64, &str)>("due_pack", &page)? {
            self.reached = Some(Wall(ready_at));
            let (from, to) = self.range;
            open(self.shard, data, |at| from <= at && at < to, &mut self.found)?;
        }
        Ok(())
    }

    /// Reads the rest: all, or those of places before `stop`, read back those from it on.
    pub(super) async fn until(mut self, stop: Option<Place>) -> Result<Vec<FactRow>, Error> {
        let order = self.order;
        let is_past = |reached: Wall| match (stop, order) {
            (None, _) => false,
            (Some(stop), Order::OldestFirst) => reached > stop.ready_at,
            (Some(stop), Order::NewestFirst) => reached < Cell::first_from(stop),
        };
        while self.pages.has_more() && !self.reached.is_some_and(is_past) {
            self.read().await?;
        }
        if let Some(stop) = stop {
            let is_back = order == Order::NewestFirst;
            self.found.retain(|row| (row.place < stop) != is_back);
        }
        Ok(self.found)
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
