//! Rows there are few of: the cluster row, payloads, progress, heartbeats.

use std::sync::Arc;

use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryRowsResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::{Layout, Shared, errors, owner};
use crate::model::{Epoch, Place, Progress, Shard, Wall};
use crate::store::{Cluster, Error, Instance};
use crate::wire::row as codec;

/// The number a shard has in the tables.
pub(super) fn shard_column(shard: Shard) -> i32 {
    // A bijection: shards above 2^31 would show as negative numbers, and there is no topic of that many partitions.
    shard.0 as i32
}

/// The number an epoch, sequence or count has in the tables.
pub(super) fn number_column(number: u64) -> Result<i64, Error> {
    i64::try_from(number)
        .map_err(|_| Error::Misconfigured(format!("{number} is larger than any stored number")))
}

/// Runs a statement that answers with rows, and gives its pages one after the other.
pub(super) struct Pages<'a, V> {
    shared: &'a Shared,
    pub(super) statement: &'a PreparedStatement,
    pub(super) values: V,
    state: Option<PagingState>,
}

impl<'a, V: SerializeRow> Pages<'a, V> {
    pub(super) fn new(shared: &'a Shared, statement: &'a PreparedStatement, values: V) -> Self {
        Pages { shared, statement, values, state: Some(PagingState::start()) }
    }

    /// The next page; `None` after the last. A page may be empty without being the last.
    pub(super) async fn next(&mut self) -> Result<Option<QueryRowsResult>, Error> {
        let Some(state) = self.state.take() else { return Ok(None) };
        let (page, state) = self
            .shared
            .ask()
            .execute_single_page(self.statement, &self.values, state)
            .await
            .map_err(|error| errors::of_request(&error))?;
        self.state = match state {
            PagingStateResponse::HasMorePages { state } => Some(state),
            PagingStateResponse::NoMorePages => None,
        };
        page.into_rows_result().map(Some).map_err(|error| Error::Corrupt(error.to_string()))
    }

    /// Whether another page follows.
    pub(super) fn has_more(&self) -> bool {
        self.state.is_some()
    }
}

/// The rows of a page.
pub(super) fn rows<'frame, R: DeserializeRow<'frame, 'frame>>(
    table: &str,
    page: &'frame QueryRowsResult,
) -> Result<Vec<R>, Error> {
    let unreadable = errors::unreadable(table);
    page.rows::<R>()
        .map_err(|error| unreadable(&error))?
        .map(|row| row.map_err(|error| unreadable(&error)))
        .collect()
}

/// The only page of a statement that answers with few rows.
pub(super) async fn one_page(
    shared: &Shared,
    statement: &PreparedStatement,
    values: impl SerializeRow,
) -> Result<QueryRowsResult, Error> {
    let answer = shared.ask().execute_unpaged(statement, values).await;
    let answer = answer.map_err(|error| errors::of_request(&error))?;
    answer.into_rows_result().map_err(|error| Error::Corrupt(error.to_string()))
}

pub(super) async fn execute(
    shared: &Shared,
    statement: &PreparedStatement,
    values: impl SerializeRow,
) -> Result<(), Error> {
    let answer = shared.ask().execute_unpaged(statement, values).await;
    answer.map(drop).map_err(|error| errors::of_request(&error))
}

/// The `cluster` row, written with `wanted` when there is none.
pub(super) async fn cluster(shared: &Shared, wanted: Cluster) -> Result<Cluster, Error> {
    if wanted.bucket_ms < 1 || wanted.subs < 1 || wanted.shards < 1 {
        return Err(Error::Misconfigured("cluster: shards, bucket_ms and subs are at least 1".into()));
    }
    if let Some(found) = read_cluster(shared).await? {
        return Ok(found);
    }
    let values =
        (wanted.shards as i32, wanted.bucket_ms, wanted.subs as i32, &wanted.hash, &wanted.signing_key[..]);
    // Lost against another instance or not answered: the row that is there decides.
    let inserted = owner::compare_and_set(shared, &shared.statements.cluster_insert, values).await;
    match read_cluster(shared).await? {
        Some(found) => Ok(found),
        None => Err(inserted
            .err()
            .unwrap_or_else(|| Error::Unavailable("the cluster row is not there yet".into()))),
    }
}

/// What of the `cluster` row the layout of rows depends on.
pub(super) async fn layout(shared: &Shared) -> Result<Layout, Error> {
    match read_cluster(shared).await? {
        Some(found) => Ok(Layout { shards: found.shards, bucket_ms: found.bucket_ms, subs: found.subs }),
        None => {
            Err(Error::Misconfigured("the cluster row is missing: it is written at the first start".into()))
        }
    }
}

async fn read_cluster(shared: &Shared) -> Result<Option<Cluster>, Error> {
    let page = one_page(shared, &shared.statements.cluster_read, ()).await?;
    let Some((shards, bucket_ms, subs, hash, key)) =
        rows::<(i32, i64, i32, String, &[u8])>("cluster", &page)?.into_iter().next()
    else {
        return Ok(None);
    };
    let unreadable =
        || Error::Corrupt("cluster: a number out of range or a key that has not 32 bytes".into());
    let signing_key = key.try_into().map_err(|_| unreadable())?;
    if shards < 1 || bucket_ms < 1 || subs < 1 {
        return Err(unreadable());
    }
    Ok(Some(Cluster { shards: shards as u32, bucket_ms, subs: subs as u32, hash, signing_key }))
}

/// The payload stored apart under a place.
pub(super) async fn payload(shared: &Shared, shard: Shard, place: Place) -> Result<Option<Arc<[u8]>>, Error> {
    let bucket = shared.layout().await?.bucket_of(place);
    let values = (shard_column(shard), bucket, number_column(place.version.0)?);
    let page = one_page(shared, &shared.statements.payload_read, values).await?;
    let found = rows::<(&[u8],)>("payload", &page)?;
    Ok(found.first().map(|(bytes,)| Arc::from(*bytes)))
}

/// The progress row of the highest epoch.
pub(super) async fn progress(shared: &Shared, shard: Shard) -> Result<Option<Progress>, Error> {
    let page = one_page(shared, &shared.statements.progress_read, (shard_column(shard),)).await?;
    let found = rows::<(i64, &str)>("shard_progress", &page)?.into_iter().next();
    let Some((epoch, data)) = found else { return Ok(None) };
    let progress = codec::decode_progress(Epoch(epoch as u64), data.as_bytes());
    progress.map(Some).map_err(|error| Error::Corrupt(error.to_string()))
}

/// Writes a progress row with `stamp` as its write time: the higher one stays.
pub(super) async fn write_progress(
    shared: &Shared,
    shard: Shard,
    progress: &Progress,
    stamp: u64,
) -> Result<(), Error> {
    let data = text(codec::encode_progress(progress))?;
    let values = (shard_column(shard), number_column(progress.epoch.0)?, data, number_column(stamp)?);
    execute(shared, &shared.statements.progress_insert, values).await
}

/// Row data as the text column wants it.
pub(super) fn text(data: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(data).map_err(|_| Error::Misconfigured("row data is not text".into()))
}

/// Writes a heartbeat.
pub(super) async fn beat(shared: &Shared, row: &Instance) -> Result<(), Error> {
    let (started_at, seen_at) = (CqlTimestamp(row.started_at.0), CqlTimestamp(row.seen_at.0));
    let values = (&row.name, &row.dc, &row.advertise, &row.version, started_at, seen_at);
    execute(shared, &shared.statements.instance_insert, values).await
}

/// All instances with a heartbeat row.
pub(super) async fn instances(shared: &Shared) -> Result<Vec<Instance>, Error> {
    type Columns = (String, String, String, String, CqlTimestamp, CqlTimestamp);
    let page = one_page(shared, &shared.statements.instance_read, ()).await?;
    let found = rows::<Columns>("instance", &page)?;
    let instance = |(name, dc, advertise, version, started_at, seen_at): Columns| Instance {
        name,
        dc,
        advertise,
        version,
        started_at: Wall(started_at.0),
        seen_at: Wall(seen_at.0),
    };
    Ok(found.into_iter().map(instance).collect())
}

/// The column of an owner.
pub(super) fn uuid_column(owner: u128) -> Uuid {
    Uuid::from_u128(owner)
}
