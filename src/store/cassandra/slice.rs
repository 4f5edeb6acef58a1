//! Reads of `due`: bucket by bucket, in order, whole places only. Back from the end: `slice_back`.
//!
//! Empty buckets are probed in windows that double while nothing is found, so that a month of them takes seconds;
//! a window that finds rows reads a share of the wanted rows from each of its buckets, so that it never holds many
//! more rows than were asked for. Where a bucket holds more than its share, reading goes on at the place it got to.

use std::collections::BTreeSet;

use futures::future::try_join_all;

use super::packs::{self, Packs};
use super::singles::{Pages, number_column, rows, shard_column};
use super::statements::PAGE_ROWS;
use super::{Layout, Shared};
use crate::model::{Fact, FactRow, Place, Shard, Version, Wall};
use crate::store::{Error, Slice, pack};
use crate::wire::row as codec;

/// Partitions probed at once.
pub(super) const WINDOW_MAX: usize = 128;
/// Rows that every bucket of a window is asked for at least.
pub(super) const SHARE_ROWS_MIN: usize = 16;
/// A range of more partitions than this is not probed one by one: the table's partitions are listed instead.
const PROBES_MAX: i64 = 50_000;
/// Partition keys of one page when they are listed.
pub(super) const LIST_PAGE_ROWS: i32 = 5_000;

/// Rows of `from <= place < to`, about `rows_max` of them.
pub(super) async fn slice(
    shared: &Shared,
    shard: Shard,
    from: Place,
    to: Place,
    rows_max: usize,
) -> Result<Slice, Error> {
    if from >= to {
        return Ok(Slice::default());
    }
    let layout = shared.layout().await?;
    let rows_max = rows_max.max(1);
    let buckets = Buckets::of_range(shared, layout, shard, from, to).await?;
    let mut reader = Reader { shared, layout, shard, order: Order::OldestFirst, is_probing: false };
    let window_max = (WINDOW_MAX / layout.subs as usize).max(1);
    let (mut found, mut at, mut width) = (Vec::new(), from, 1);
    let mut packed = 0;
    while found.len() < rows_max {
        let window = buckets.window(layout.bucket_of(at), width);
        let Some(last) = window.last() else { return Ok(cut(found, rows_max + packed, None)) };
        reader.is_probing = window.len() > 1;
        let share = ((rows_max - found.len()) / window.len()).max(SHARE_ROWS_MIN);
        let parts = try_join_all(window.iter().map(|bucket| reader.bucket(*bucket, (at, to), share))).await?;
        let nothing = parts.iter().all(|part| part.rows.is_empty());
        width = if nothing { (width * 2).min(window_max) } else { (width / 2).max(1) };
        at = start_of(layout, *last + 1);
        for part in parts {
            packed += part.packed;
            found.extend(part.rows);
            if let Some(stop) = part.stop {
                (at, width) = (stop, 1);
                break;
            }
        }
    }
    Ok(cut(found, rows_max + packed, Some(at).filter(|at| *at < to)))
}

pub(super) fn start_of(layout: Layout, bucket: i64) -> Place {
    Place::start_of(Wall(bucket.saturating_mul(layout.bucket_ms)))
}

/// Ends a slice after the place that holds its `rows_max`-th row.
fn cut(mut rows: Vec<FactRow>, rows_max: usize, next: Option<Place>) -> Slice {
    let Some(last) = rows.get(rows_max - 1).map(|row| row.place) else { return Slice { rows, next } };
    let end = rows.partition_point(|row| row.place <= last);
    let next = rows.get(end).map(|row| row.place).or(next);
    rows.truncate(end);
    Slice { rows, next }
}

/// The buckets of a range that may hold rows, in order.
pub(super) enum Buckets {
    /// All from one to another.
    All(i64, i64),
    /// Those that were found.
    Listed(Vec<i64>),
}

impl Buckets {
    pub(super) async fn of_range(
        shared: &Shared,
        layout: Layout,
        shard: Shard,
        from: Place,
        to: Place,
    ) -> Result<Buckets, Error> {
        let (first, last) = (layout.bucket_of(from), layout.bucket_of(to));
        if (last - first).saturating_mul(i64::from(layout.subs)) <= PROBES_MAX {
            return Ok(Buckets::All(first, last));
        }
        let mut statement = shared.statements.due_partitions.clone();
        statement.set_page_size(LIST_PAGE_ROWS);
        let _permit = shared.permit().await?;
        let mut pages = Pages::new(shared, &statement, ());
        let mut found = Vec::new();
        while let Some(page) = pages.next().await? {
            let keys = rows::<(i32, i64, i32)>("due", &page)?.into_iter();
            let mine = keys.filter(|key| key.0 == shard_column(shard) && (first..=last).contains(&key.1));
            found.extend(mine.map(|key| key.1));
        }
        found.sort_unstable();
        found.dedup();
        Ok(Buckets::Listed(found))
    }

    /// The next `width` buckets from `first` on.
    fn window(&self, first: i64, width: usize) -> Vec<i64> {
        match self {
            Buckets::All(_, last) => (first..=*last).take(width).collect(),
            Buckets::Listed(found) => {
                found[found.partition_point(|bucket| *bucket < first)..].iter().take(width).copied().collect()
            }
        }
    }

    /// The next `width` buckets from `last` downwards.
    pub(super) fn window_back(&self, last: i64, width: usize) -> Vec<i64> {
        match self {
            Buckets::All(first, _) => (*first..=last).rev().take(width).collect(),
            Buckets::Listed(found) => {
                let up_to = found.partition_point(|bucket| *bucket <= last);
                found[..up_to].iter().rev().take(width).copied().collect()
            }
        }
    }
}

/// In which order rows are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    OldestFirst,
    NewestFirst,
}

impl Order {
    /// Whether who has read up to a place needs no more for what lies up to another.
    pub(super) fn is_reached(self, got_to: Place, stop: Place) -> bool {
        match self {
            Order::OldestFirst => got_to >= stop,
            Order::NewestFirst => got_to <= stop,
        }
    }
}

/// Rows of a partition, the oldest first: all of those wanted unless it stops, before a place or, read back, from one on. Others
/// may be among them.
struct Partition {
    /// Those of `due`.
    rows: Vec<FactRow>,
    /// Those in packs.
    packed: Vec<FactRow>,
    stop: Option<Place>,
}

/// Rows of a bucket, in order: all of them unless it stops, oldest first before a place, newest first after one.
pub(super) struct Part {
    pub(super) rows: Vec<FactRow>,
    pub(super) stop: Option<Place>,
    /// So many of the rows came from packs, beside what was asked for: to read those that fit would be to read the rest again.
    pub(super) packed: usize,
}

pub(super) struct Reader<'a> {
    pub(super) shared: &'a Shared,
    pub(super) layout: Layout,
    pub(super) shard: Shard,
    pub(super) order: Order,
    /// Most of what is read is likely empty: of whole buckets packs are read after the rows, and not beside them.
    pub(super) is_probing: bool,
}

impl Reader<'_> {
    /// Rows of one bucket within a range: about `share` of each of its partitions, merged in order.
    pub(super) async fn bucket(
        &self,
        bucket: i64,
        range: (Place, Place),
        share: usize,
    ) -> Result<Part, Error> {
        let partitions = (0..self.layout.subs as i32).map(|sub| self.partition(bucket, sub, range, share));
        let parts = try_join_all(partitions).await?;
        let stops = parts.iter().filter_map(|part| part.stop);
        let stop = if self.is_back() { stops.max() } else { stops.min() };
        let is_in = |row: &FactRow| stop.is_none_or(|stop| (row.place < stop) != self.is_back());
        let (mut rows, mut packed) = (Vec::new(), Vec::new());
        for part in parts {
            rows.extend(part.rows.into_iter().filter(is_in));
            packed.extend(part.packed.into_iter().filter(is_in));
        }
        // Stable: the rows of one place come from one partition and keep its order.
        rows.sort_by_key(|row| row.place);
        let alone = rows.len();
        pack::merge(&mut rows, packed);
        let packed = rows.len() - alone;
        if self.is_back() {
            // The places turn round, the rows of one keep their order.
            rows.reverse();
            rows.chunk_by_mut(|one, next| one.place == next.place).for_each(<[FactRow]>::reverse);
        }
        Ok(Part { rows, stop, packed })
    }

    fn is_back(&self) -> bool {
        self.order == Order::NewestFirst
    }

    /// Rows of one partition within a range, and what is packed of them; when there are more than `share`, it stops at the end of a
    /// place.
    async fn partition(
        &self,
        bucket: i64,
        sub: i32,
        range: (Place, Place),
        share: usize,
    ) -> Result<Partition, Error> {
        let partition = (bucket, sub);
        let mut packs = Packs::new(self, partition, range);
        let of_second = |place| packs::of_second(self, partition, place, range);
        let (read, second) = if self.is_probing && self.is_whole(bucket, range) {
            let read = self.rows(bucket, sub, range, share).await?;
            // Where there are packs, there is a row.
            if read.rows.is_empty() {
                return Ok(read);
            }
            (read, None)
        } else {
            let rows = self.rows(bucket, sub, range, share);
            let (read, (), second) = tokio::try_join!(rows, packs.read(), of_second(range.0))?;
            (read, Some(second))
        };
        let (mut packed, stop) = packs.until(read.stop, share).await?;
        let first = stop.filter(|_| self.is_back()).unwrap_or(range.0);
        packed.extend(match second.filter(|_| first == range.0) {
            Some(second) => second,
            None => of_second(first).await?,
        });
        Ok(Partition { packed, stop, ..read })
    }

    /// Whether a range has all of a bucket.
    fn is_whole(&self, bucket: i64, (from, to): (Place, Place)) -> bool {
        from <= start_of(self.layout, bucket) && start_of(self.layout, bucket + 1) <= to
    }

    /// Rows of `due` alone, the oldest first whatever the order in which they are read.
    async fn rows(
        &self,
        bucket: i64,
        sub: i32,
        (from, to): (Place, Place),
        share: usize,
    ) -> Result<Partition, Error> {
        let statements = &self.shared.statements;
        let mut statement =
            if self.is_back() { &statements.due_range_back } else { &statements.due_range }.clone();
        statement.set_page_size(i32::try_from(share).unwrap_or(PAGE_ROWS).min(PAGE_ROWS - 1) + 1);
        let values = (
            shard_column(self.shard),
            bucket,
            sub,
            from.ready_at.0,
            number_column(from.version.0)?,
            to.ready_at.0,
            number_column(to.version.0)?,
        );
        let _permit = self.shared.permit().await?;
        let mut pages = Pages::new(self.shared, &statement, values);
        let mut found: Vec<FactRow> = Vec::new();
        let mut stop = None;
        while let Some(page) = pages.next().await? {
            for columns in rows::<Columns<'_>>("due", &page)? {
                found.push(self.decode(columns)?);
            }
            let Some(last) = found.last().map(|row| row.place) else { continue };
            let whole = found.partition_point(|row| row.place != last);
            if pages.has_more() && found.len() > share && whole > 0 {
                found.truncate(whole);
                stop = Some(if self.is_back() { found[whole - 1].place } else { last });
                break;
            }
        }
        if self.is_back() {
            found.reverse();
        }
        Ok(Partition { rows: found, packed: Vec::new(), stop })
    }

    /// Rows of `due` alone of places of one partition.
    pub(super) async fn rows_of(
        &self,
        (bucket, sub): (i64, i32),
        places: &BTreeSet<Place>,
    ) -> Result<Vec<FactRow>, Error> {
        let column = |place: &Place| Ok((place.ready_at.0, number_column(place.version.0)?));
        let places = places.iter().map(column).collect::<Result<Vec<(i64, i64)>, Error>>()?;
        let values = (shard_column(self.shard), bucket, sub, places);
        let _permit = self.shared.permit().await?;
        let mut pages = Pages::new(self.shared, &self.shared.statements.due_places, values);
        let mut found = Vec::new();
        while let Some(page) = pages.next().await? {
            for columns in rows::<Columns<'_>>("due", &page)? {
                found.push(self.decode(columns)?);
            }
        }
        Ok(found)
    }

    fn decode(&self, (ready_at, version, kind, epoch, seq, data): Columns<'_>) -> Result<FactRow, Error> {
        let place = Place { ready_at: Wall(ready_at), version: Version(version as u64) };
        let fact: Result<Fact, _> = codec::decode_fact(kind as u8, epoch as u64, seq as u64, data.as_bytes());
        let corrupt = |error| Error::Corrupt(format!("due, shard {}, {place:?}: {error}", self.shard.0));
        Ok(FactRow { shard: self.shard, place, fact: fact.map_err(corrupt)? })
    }
}

/// ready_at, version, kind, epoch, seq, data.
type Columns<'a> = (i64, i64, i8, i64, i64, &'a str);

#[cfg(test)]
mod tests {
    use crate::model::{CloseReason, Epoch};

    use super::*;

    fn row(ready_at: i64, seq: u64) -> FactRow {
        let place = Place { ready_at: Wall(ready_at), version: Version(1) };
        let fact = Fact::Closed { epoch: Epoch(1), seq, at: Wall(0), reason: CloseReason::Expired };
        FactRow { shard: Shard(1), place, fact }
    }

    #[test]
    fn a_cut_falls_between_places() {
        let rows = vec![row(1, 1), row(2, 1), row(2, 2), row(2, 3), row(5, 1)];
        let after = Some(row(9, 1).place);
        for (rows_max, kept, next) in [
            (1, 1, Some(rows[1].place)),
            (2, 4, Some(rows[4].place)),
            (4, 4, Some(rows[4].place)),
            (5, 5, after),
            (6, 5, after),
        ] {
            let slice = cut(rows.clone(), rows_max, after);
            assert_eq!((slice.rows.len(), slice.next), (kept, next), "{rows_max}");
        }
    }

    #[test]
    fn windows_go_on_where_the_last_one_ended() {
        assert_eq!(Buckets::All(0, 9).window(7, 5), vec![7, 8, 9]);
        assert_eq!(Buckets::All(0, 9).window(10, 5), Vec::<i64>::new());
        assert_eq!(Buckets::All(7, 9).window_back(8, 5), vec![8, 7]);
        assert_eq!(Buckets::All(7, 9).window_back(6, 5), Vec::<i64>::new());
        let listed = Buckets::Listed(vec![1, 5, 70]);
        assert_eq!(listed.window(2, 5), vec![5, 70]);
        assert_eq!(listed.window(71, 5), Vec::<i64>::new());
        assert_eq!(listed.window_back(69, 5), vec![5, 1]);
        assert_eq!(listed.window_back(0, 5), Vec::<i64>::new());
    }
}
