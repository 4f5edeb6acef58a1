//! Operations: one partition, a row a number, inserted only where there is none.

use uuid::Uuid;

use super::singles::{Pages, number_column, rows, text, uuid_column};
use super::{Shared, owner};
use crate::model::Operation;
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
