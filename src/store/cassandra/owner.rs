//! The owner row: read at SERIAL, looked at with QUORUM, changed by single-statement compare-and-set, never retried here.

use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use uuid::Uuid;

use super::singles::{number_column, one_page, rows, shard_column, uuid_column};
use super::{Shared, errors};
use crate::model::{Epoch, OwnerRow, Release, Shard};
use crate::store::{Bump, Error};

/// The owner row, read linearizably; the default row when there is none.
pub(super) async fn owner(shared: &Shared, shard: Shard) -> Result<OwnerRow, Error> {
    read(shared, &shared.statements.owner_read, shard).await
}

/// The owner row as a quorum of replicas shows it.
pub(super) async fn look(shared: &Shared, shard: Shard) -> Result<OwnerRow, Error> {
    read(shared, &shared.statements.owner_look, shard).await
}

async fn read(shared: &Shared, statement: &PreparedStatement, shard: Shard) -> Result<OwnerRow, Error> {
    type Columns = (i64, Uuid, i64, i64, i64, String, String);
    let page = one_page(shared, statement, (shard_column(shard),)).await?;
    let Some((epoch, owner, released_epoch, lease_ms, wait_ms, instance, advertise)) =
        rows::<Columns>("shard_owner", &page)?.into_iter().next()
    else {
        return Ok(OwnerRow::default());
    };
    Ok(OwnerRow {
        epoch: Epoch(epoch as u64),
        owner: owner.as_u128(),
        released_epoch: Epoch(released_epoch as u64),
        lease_ms: lease_ms as u64,
        wait_ms: wait_ms as u64,
        instance,
        advertise,
    })
}

/// Raises the epoch if it still is the expected one.
pub(super) async fn bump(shared: &Shared, shard: Shard, bump: &Bump) -> Result<bool, Error> {
    let statements = &shared.statements;
    let expected = number_column(bump.expected.0)?;
    let next = number_column(bump.expected.0 + 1)?;
    let (lease, wait) = (number_column(bump.lease_ms)?, number_column(bump.wait_ms)?);
    let owner = uuid_column(bump.owner);
    let shard = shard_column(shard);
    if expected == 0 {
        let values = (next, owner, lease, wait, &bump.instance, &bump.advertise, shard);
        compare_and_set(shared, &statements.owner_insert, values).await
    } else {
        let values = (next, owner, lease, wait, &bump.instance, &bump.advertise, shard, expected);
        compare_and_set(shared, &statements.owner_bump, values).await
    }
}

/// Lets go of a shard, if epoch and owner still are these.
pub(super) async fn release(shared: &Shared, shard: Shard, release: Release) -> Result<bool, Error> {
    let (released, wait) = (number_column(release.released.0)?, number_column(release.wait_ms)?);
    let epoch = number_column(release.epoch.0)?;
    let values = (released, wait, shard_column(shard), epoch, uuid_column(release.owner));
    compare_and_set(shared, &shared.statements.owner_release, values).await
}

/// Runs a conditional statement: whether it was applied.
pub(super) async fn compare_and_set(
    shared: &Shared,
    statement: &PreparedStatement,
    values: impl SerializeRow,
) -> Result<bool, Error> {
    let page = one_page(shared, statement, values).await?;
    applied(&page)
}

/// Reads the answer to a conditional statement: its first column says whether it was applied.
pub(super) fn applied(page: &scylla::response::query_result::QueryRowsResult) -> Result<bool, Error> {
    let row = page.first_row::<Row>().map_err(|error| errors::unreadable("conditional write")(&error))?;
    match row.columns.first() {
        Some(Some(CqlValue::Boolean(applied))) => Ok(*applied),
        other => Err(Error::Corrupt(format!("conditional write: [applied] is {other:?}"))),
    }
}
