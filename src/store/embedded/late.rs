//! Late queues: pointers of a queue in their order, and lists of late queues.

use std::ops::ControlFlow;

use super::db::{Failure, Tables};
use super::keys;
use super::read::{after, scan, unreadable};
use crate::model::{
    LateQueueRow, Pointer, PointerPage, PointerRange, Segment, Shard, Standing, Version, Wall,
};
use crate::wire::row;

/// Pointers of a range, in order.
pub(super) fn pointers(
    tables: &Tables,
    shard: Shard,
    range: &PointerRange,
    rows_max: usize,
) -> Result<PointerPage, Failure> {
    let mut page = PointerPage::default();
    let end = Standing { due_at: range.to, version: Version(0) };
    let (from, to) =
        (keys::pointer(shard, &range.queue, range.from), keys::pointer(shard, &range.queue, end));
    scan(&tables.late, &from, &to, |key, data| {
        let broken = || Failure::Corrupt("row of late".to_owned());
        let Standing { due_at, version } = keys::standing_of(key).ok_or_else(broken)?;
        if page.pointers.len() >= rows_max {
            page.next = Some(Standing { due_at, version });
            return Ok(ControlFlow::Break(()));
        }
        let ready_at: [u8; 8] = data.as_ref().try_into().map_err(|_| broken())?;
        page.pointers.push(Pointer { due_at, version, ready_at: Wall(i64::from_be_bytes(ready_at)) });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(page)
}

/// All rows of a list.
pub(super) fn late_queues(
    tables: &Tables,
    shard: Shard,
    segment: Segment,
) -> Result<Vec<LateQueueRow>, Failure> {
    let mut rows = Vec::new();
    let prefix = keys::segment(shard, segment);
    scan(&tables.late_queue, &prefix, &after(&prefix), |key, data| {
        let seq = keys::seq_of(key).ok_or_else(|| Failure::Corrupt("key of late_queue".to_owned()))?;
        rows.push(row::decode_late_queue(shard, segment, seq, data).map_err(|e| unreadable(&e))?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rows)
}
