//! Rows of `event_ids`: a partition a shard.

use futures::{StreamExt, TryStreamExt, stream};
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;

use super::Shared;
use super::singles::{Pages, number_column, rows, shard_column};
use super::write::send_batch;
use crate::model::{Epoch, IdsRow, Shard};
use crate::store::Error;
use crate::wire::row as codec;

/// Rows of one batch: 64 KiB.
const ROWS_MAX: usize = 64;
/// Requests of one call under way at once.
const REQUESTS_MAX: usize = 8;

/// All rows of a shard from a chunk on: below it there may be nothing but what was taken away.
pub(super) async fn ids(shared: &Shared, shard: Shard, from: u64) -> Result<Vec<IdsRow>, Error> {
    let _permit = shared.permit().await?;
    let values = (shard_column(shard), number_column(from)?);
    let mut pages = Pages::new(shared, &shared.statements.ids_read, values);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        for (chunk, epoch, data) in rows::<(i64, i64, &[u8])>("event_ids", &page)? {
            let row = codec::decode_ids(shard, chunk as u64, Epoch(epoch as u64), data);
            found.push(row.map_err(|error| Error::Corrupt(error.to_string()))?);
        }
    }
    Ok(found)
}

/// Writes rows with `stamp` as their write time: the higher one stays.
pub(super) async fn write_ids(shared: &Shared, rows: &[IdsRow], stamp: u64) -> Result<(), Error> {
    let stamp = number_column(stamp)?;
    let (gone, kept): (Vec<&IdsRow>, Vec<&IdsRow>) = rows.iter().partition(|row| row.prints.is_empty());
    let kept = kept.into_iter().map(|row| {
        let (shard, chunk, epoch) = key_of(row)?;
        Ok((shard, chunk, epoch, codec::encode_ids(row), stamp))
    });
    let gone = gone.into_iter().map(|row| {
        let (shard, chunk, epoch) = key_of(row)?;
        Ok((stamp, shard, chunk, epoch))
    });
    send(shared, &shared.statements.ids_insert, kept.collect::<Result<Vec<_>, Error>>()?).await?;
    send(shared, &shared.statements.ids_delete, gone.collect::<Result<Vec<_>, Error>>()?).await
}

fn key_of(row: &IdsRow) -> Result<(i32, i64, i64), Error> {
    Ok((shard_column(row.shard), number_column(row.chunk)?, number_column(row.epoch.0)?))
}

/// Sends rows of one partition with a statement, in batches side by side.
pub(super) async fn send<V: SerializeRow>(
    shared: &Shared,
    statement: &PreparedStatement,
    rows: Vec<V>,
) -> Result<(), Error> {
    let sends: Vec<_> = rows
        .chunks(ROWS_MAX)
        .map(|rows| send_batch(shared, rows.iter().map(move |columns| (statement, columns))))
        .collect();
    stream::iter(sends).buffer_unordered(REQUESTS_MAX).try_collect().await
}
