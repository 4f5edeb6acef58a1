//! Operations: one partition, a row a number, inserted only where there is none; and how far batches got.

use uuid::Uuid;

use super::singles::{Pages, execute, number_column, one_page, rows, text, uuid_column};
use super::{Shared, owner};
use crate::model::{BatchProgress, Epoch, Operation};
use crate::store::Error;
use crate::wire::row as codec;

/// The operations above a number, in order, at most `rows_max`.
pub(super) async fn operations(
    shared: &Shared,
    after: u64,
    rows_max: usize,
) -> Result<Vec<Operation>, Error> {
    let mut found = Vec::new();
    let mut pages = Pages::new(shared, &shared.statements.operation_read, (number_column(after)?,));
    while let Some(page) = pages.next().await? {
        for (number, id, data) in rows::<(i64, Uuid, &str)>("operation", &page)? {
            found.push(codec::decode_operation(number as u64, id.as_u128(), data.as_bytes()));
            if found.len() >= rows_max {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Inserts an operation unless its number is taken.
pub(super) async fn add(shared: &Shared, operation: &Operation) -> Result<bool, Error> {
    let data = text(codec::encode_operation(operation))?;
    let values = (number_column(operation.number)?, uuid_column(operation.id), data);
    owner::compare_and_set(shared, &shared.statements.operation_insert, values).await
}

/// How far a batch got, in its highest epoch.
pub(super) async fn batch_progress(shared: &Shared, number: u64) -> Result<Option<BatchProgress>, Error> {
    let page = one_page(shared, &shared.statements.batch_read, (number_column(number)?,)).await?;
    let found = rows::<(i64, &str)>("batch_progress", &page)?.into_iter().next();
    let Some((epoch, data)) = found else { return Ok(None) };
    let progress = codec::decode_batch_progress(Epoch(epoch as u64), data.as_bytes());
    progress.map(Some).map_err(|error| Error::Corrupt(error.to_string()))
}

/// Writes how far a batch got, with `stamp` as its write time.
pub(super) async fn write_batch_progress(
    shared: &Shared,
    number: u64,
    progress: &BatchProgress,
    stamp: u64,
) -> Result<(), Error> {
    let data = text(codec::encode_batch_progress(progress))?;
    let values = (number_column(number)?, number_column(progress.epoch.0)?, data, number_column(stamp)?);
    execute(shared, &shared.statements.batch_insert, values).await
}
