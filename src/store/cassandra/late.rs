//! Reads of `late` and `late_queue`.
//!
//! The pointers of a queue lie in partitions of an hour of due time, so that a queue that is late for ever does not make
//! one partition of it. What was due before the queue became late lies in the partition of that hour. Buckets are probed
//! as slices of `due` are: in windows that double while nothing is found, and a page ends at the first that holds rows.

use futures::future::try_join_all;

use super::Shared;
use super::singles::{Pages, number_column, rows, shard_column};
use crate::model::limits::LATE_BUCKET_MS;
use crate::model::{
    LateQueueRow, Pointer, PointerPage, PointerRange, Segment, Shard, Standing, Version, Wall,
};
use crate::store::Error;
use crate::wire::row as codec;

/// Partitions probed at once.
const WINDOW_MAX: i64 = 64;

/// The bucket of a pointer of a queue that became late at `opened`.
pub(super) fn bucket_of(opened: Wall, due_at: Wall) -> i64 {
    due_at.max(opened).0.div_euclid(LATE_BUCKET_MS)
}

/// Pointers of a range, in order.
pub(super) async fn pointers(
    shared: &Shared,
    shard: Shard,
    range: &PointerRange,
    rows_max: usize,
) -> Result<PointerPage, Error> {
    if range.from.due_at >= range.to {
        return Ok(PointerPage::default());
    }
    let last = bucket_of(range.opened, range.to.plus_ms(-1));
    let (mut first, mut width) = (bucket_of(range.opened, range.from.due_at), 1);
    while first <= last {
        let end = (first + width - 1).min(last);
        let window = (first..=end).map(|bucket| partition(shared, shard, range, bucket, rows_max));
        let mut page = PointerPage { pointers: Vec::new(), next: (end < last).then(|| start_of(end + 1)) };
        for pointers in try_join_all(window).await? {
            page.pointers.extend(pointers);
        }
        if !page.pointers.is_empty() {
            return Ok(cut(page, rows_max));
        }
        (first, width) = (end + 1, (width * 2).min(WINDOW_MAX));
    }
    Ok(PointerPage::default())
}

/// Where the pointers of a bucket begin that is not the first of its queue.
fn start_of(bucket: i64) -> Standing {
    Standing { due_at: Wall(bucket.saturating_mul(LATE_BUCKET_MS)), version: Version(0) }
}

/// Ends a page after `rows_max` pointers. A partition that gave so many may hold more.
fn cut(mut page: PointerPage, rows_max: usize) -> PointerPage {
    if let Some(last) = page.pointers.get(rows_max.max(1) - 1) {
        page.next = Some(last.standing().next());
        page.pointers.truncate(rows_max.max(1));
    }
    page
}

async fn partition(
    shared: &Shared,
    shard: Shard,
    range: &PointerRange,
    bucket: i64,
    rows_max: usize,
) -> Result<Vec<Pointer>, Error> {
    let values = (
        shard_column(shard),
        range.queue.as_str(),
        bucket,
        range.from.due_at.0,
        number_column(range.from.version.0)?,
        range.to.0,
        0_i64,
        i32::try_from(rows_max.max(1)).unwrap_or(i32::MAX),
    );
    let _permit = shared.permit().await?;
    let mut pages = Pages::new(shared, &shared.statements.late_range, values);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        for (due_at, version, ready_at) in rows::<(i64, i64, i64)>("late", &page)? {
            let (due_at, ready_at) = (Wall(due_at), Wall(ready_at));
            found.push(Pointer { due_at, version: Version(version as u64), ready_at });
        }
    }
    Ok(found)
}

/// All rows of a list.
pub(super) async fn late_queues(
    shared: &Shared,
    shard: Shard,
    segment: Segment,
) -> Result<Vec<LateQueueRow>, Error> {
    let values = (shard_column(shard), number_column(segment.epoch.0)?, number_column(segment.number)?);
    let _permit = shared.permit().await?;
    let mut pages = Pages::new(shared, &shared.statements.late_queue_read, values);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        for (seq, data) in rows::<(i64, &str)>("late_queue", &page)? {
            let row = codec::decode_late_queue(shard, segment, seq as u64, data.as_bytes());
            found.push(row.map_err(|error| Error::Corrupt(error.to_string()))?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{bucket_of, cut};
    use crate::model::limits::LATE_BUCKET_MS;
    use crate::model::{Pointer, PointerPage, Version, Wall};

    fn pointer(due_at: i64) -> Pointer {
        Pointer { due_at: Wall(due_at), version: Version(7), ready_at: Wall(due_at) }
    }

    #[test]
    fn what_was_due_before_a_queue_became_late_lies_in_one_bucket() {
        let opened = Wall(10 * LATE_BUCKET_MS + 5);
        assert_eq!(bucket_of(opened, Wall(-1)), 10);
        assert_eq!(bucket_of(opened, Wall(11 * LATE_BUCKET_MS - 1)), 10);
        assert_eq!(bucket_of(opened, Wall(11 * LATE_BUCKET_MS)), 11);
    }

    #[test]
    fn a_full_page_goes_on_after_its_last_pointer() {
        let page = PointerPage { pointers: vec![pointer(1), pointer(2), pointer(3)], next: None };
        let cut_page = cut(page.clone(), 2);
        assert_eq!(cut_page.next, Some(pointer(2).standing().next()));
        assert_eq!(cut_page.pointers.len(), 2);
        assert_eq!(cut(page.clone(), 4), page);
        assert_eq!(cut(page, 3).next, Some(pointer(3).standing().next()));
    }
}
