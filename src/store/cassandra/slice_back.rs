//! Reads of `due` from the end: bucket by bucket downwards, the newest place first, whole places only. Windows widen and
//! narrow as those of `slice`.

use futures::future::try_join_all;

use super::Shared;
use super::slice::{Buckets, Order, Reader, SHARE_ROWS_MIN, WINDOW_MAX, start_of};
use crate::model::{FactRow, Place, Shard};
use crate::store::{Error, Slice};

/// Rows of `from <= place < to`, about `rows_max` of them, the newest place first.
pub(super) async fn slice_back(
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
    let mut reader = Reader { shared, layout, shard, order: Order::NewestFirst, is_probing: false };
    let window_max = (WINDOW_MAX / layout.subs as usize).max(1);
    let (mut found, mut at, mut width) = (Vec::new(), to, 1);
    let mut packed = 0;
    while found.len() < rows_max && at > from {
        let window = buckets.window_back(layout.bucket_before(at), width);
        let Some(lowest) = window.last() else { return Ok(cut(found, rows_max + packed, None)) };
        reader.is_probing = window.len() > 1;
        let share = ((rows_max - found.len()) / window.len()).max(SHARE_ROWS_MIN);
        let parts =
            try_join_all(window.iter().map(|bucket| reader.bucket(*bucket, (from, at), share))).await?;
        let nothing = parts.iter().all(|part| part.rows.is_empty());
        width = if nothing { (width * 2).min(window_max) } else { (width / 2).max(1) };
        at = start_of(layout, *lowest);
        for part in parts {
            packed += part.packed;
            found.extend(part.rows);
            if let Some(stop) = part.stop {
                (at, width) = (stop, 1);
                break;
            }
        }
    }
    Ok(cut(found, rows_max + packed, Some(at).filter(|at| *at > from)))
}

/// Ends a slice after the place that holds its `rows_max`-th row.
fn cut(mut rows: Vec<FactRow>, rows_max: usize, next: Option<Place>) -> Slice {
    let Some(last) = rows.get(rows_max - 1).map(|row| row.place) else { return Slice { rows, next } };
    let end = rows.partition_point(|row| row.place >= last);
    let next = if end < rows.len() { Some(last) } else { next };
    rows.truncate(end);
    Slice { rows, next }
}
