//! Writes rows: grouped into few requests, sent side by side, answered when a quorum has every one.
//!
//! ```text
//! facts of one `due` partition   one unlogged batch: a single mutation at the server, whatever its size in rows; what goes
//!                                together as packs
//! first events of a shard        the same, as packs by version
//! other events                   unlogged batches of a few keys, kept below the sizes that the server warns of
//! rows of one list of late queues   as facts
//! pointers                       unlogged batches of a few queues
//! payloads                       one by one
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, stream};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::columns::{
    Columns, DeadLetterColumns, EventColumns, FactColumns, LateQueueColumns, PackColumns, PayloadColumns,
    PointerColumns,
};
use super::event_packs::{EventPackColumns, EventPacker};
use super::gather::{Gather, Sent, SmallWrite};
use super::singles::{number_column, shard_column, text};
use super::statements::Statements;
use super::{Layout, Shared, dead_letter, errors, late, refused};
use crate::model::{DeadLetterRow, EventRow, FactRow, LateQueueRow, PayloadRow, Pointer, PointerRow, Row};
use crate::store::Error;
use crate::store::pack::{Pack, Packer};
use crate::wire::row as codec;

/// Rows of one batch of facts.
pub(super) const FACTS_ROWS_MAX: usize = 100;
/// Bytes of row data of one batch of facts.
pub(super) const FACTS_BYTES_MAX: usize = 256 * 1024;
/// Keys of one batch of events: the server warns above 10.
pub(super) const EVENTS_ROWS_MAX: usize = 10;
/// Bytes of one batch of events: the server warns above 5 KiB.
pub(super) const EVENTS_BYTES_MAX: usize = 4_608;
/// What one row takes beside its texts, in bytes.
const ROW_BYTES: usize = 80;
/// Requests of one call under way at once.
const REQUESTS_MAX: usize = 64;

/// Rows that go to the server together, each with its index in the call.
pub(super) enum Request<'a> {
    /// Of one partition.
    Facts(Vec<(usize, DueRow)>),
    Events(Vec<(usize, EventColumns)>),
    Payload(usize, PayloadColumns<'a>),
    Pointers(Vec<(usize, PointerColumns)>),
    LateQueues(Vec<(usize, LateQueueColumns)>),
    DeadLetters(Vec<(usize, DeadLetterColumns)>),
}

/// A row of facts.
pub(super) enum DueRow {
    /// One, of `due`.
    Fact(FactColumns),
    /// Many, of `due_pack`: its index is the first one's.
    Pack(PackColumns),
    /// First events, of `event_pack`: the same.
    EventPack(EventPackColumns),
}

impl DueRow {
    /// What it takes in a batch.
    pub(super) fn bytes(&self) -> usize {
        ROW_BYTES + self.data().len()
    }

    fn data(&self) -> &str {
        match self {
            DueRow::Fact(columns) => &columns.8,
            DueRow::Pack(columns) => &columns.6,
            DueRow::EventPack(columns) => &columns.5,
        }
    }

    /// What it is written with.
    pub(super) fn insert<'a>(&'a self, statements: &'a Statements) -> (&'a PreparedStatement, Columns<'a>) {
        match self {
            DueRow::Fact(columns) => (&statements.due_insert, Columns::Fact(columns)),
            DueRow::Pack(columns) => (&statements.pack_insert, Columns::Pack(columns)),
            DueRow::EventPack(columns) => (&statements.event_pack_insert, Columns::EventPack(columns)),
        }
    }
}

impl Request<'_> {
    fn has_packs(&self) -> bool {
        let Request::Facts(rows) = self else { return false };
        rows.iter().any(|(_, row)| !matches!(row, DueRow::Fact(_)))
    }
}

/// Writes all rows.
pub(super) async fn write(shared: &Shared, rows: &[Row]) -> Result<(), Error> {
    let layout = shared.layout().await?;
    let requests = plan(layout, rows, Some((&shared.packer, &shared.event_packer)))?;
    let has_packs = requests.iter().any(Request::has_packs);
    match send_all(shared, requests).await {
        // What is refused has to be found, and a pack is many.
        Err(Error::Misconfigured(why)) if has_packs => {
            let alone = send_all(shared, plan(layout, rows, None)?).await;
            if alone.is_ok() && !shared.packs_refused.swap(true, Ordering::Relaxed) {
                tracing::warn!(%why, "packs are refused that rows are taken of: what could be packed is written twice until it is mended");
            }
            alone
        }
        sent => sent,
    }
}

async fn send_all(shared: &Shared, requests: Vec<Request<'_>>) -> Result<(), Error> {
    let failed = AtomicBool::new(false);
    let sends: Vec<_> = requests.into_iter().map(|request| send_unless(&failed, shared, request)).collect();
    let results: Vec<Result<(), Error>> = stream::iter(sends).buffer_unordered(REQUESTS_MAX).collect().await;
    results.into_iter().filter_map(Result::err).min_by_key(rank).map_or(Ok(()), Err)
}

/// Once a request has failed the rest is not sent: the caller sends all of it again.
async fn send_unless(failed: &AtomicBool, shared: &Shared, request: Request<'_>) -> Result<(), Error> {
    if failed.load(Ordering::Relaxed) {
        return Ok(());
    }
    let sent = match SmallWrite::of(request) {
        Ok(small) if Gather::takes(&small) => match shared.writes.send(small).await {
            Sent::Together(sent) => sent,
            Sent::Alone(small, _under_way) => send_alone(shared, small.request()).await,
        },
        Ok(small) => send_alone(shared, small.request()).await,
        Err(request) => send_alone(shared, request).await,
    };
    if sent.is_err() {
        failed.store(true, Ordering::Relaxed);
    }
    sent
}

async fn send_alone(shared: &Shared, request: Request<'_>) -> Result<(), Error> {
    match send(shared, &request).await {
        Err(Error::Misconfigured(why)) if !request.has_packs() => {
            refused::find_row(shared, request, why).await
        }
        sent => sent,
    }
}

/// Of several errors the one that tells the caller most.
fn rank(error: &Error) -> (u8, usize) {
    match error {
        Error::Misconfigured(_) => (0, 0),
        Error::RowRefused { index, .. } => (1, *index),
        Error::Corrupt(_) => (2, 0),
        Error::Unavailable(_) => (3, 0),
    }
}

/// Sends one request.
pub(super) async fn send(shared: &Shared, request: &Request<'_>) -> Result<(), Error> {
    let statements = &shared.statements;
    match request {
        Request::Facts(rows) => match &rows[..] {
            [(_, row)] => {
                let (insert, columns) = row.insert(statements);
                send_row(shared, insert, columns).await
            }
            rows => send_batch(shared, rows.iter().map(|(_, row)| row.insert(statements))).await,
        },
        Request::Events(rows) => send_rows(shared, &statements.event_insert, rows).await,
        Request::Payload(_, columns) => send_row(shared, &statements.payload_insert, columns).await,
        Request::Pointers(rows) => send_rows(shared, &statements.late_insert, rows).await,
        Request::LateQueues(rows) => send_rows(shared, &statements.late_queue_insert, rows).await,
        Request::DeadLetters(rows) => send_rows(shared, &statements.dead_letter_insert, rows).await,
    }
}

async fn send_rows<V: SerializeRow>(
    shared: &Shared,
    statement: &PreparedStatement,
    rows: &[(usize, V)],
) -> Result<(), Error> {
    if let [(_, columns)] = rows {
        return send_row(shared, statement, columns).await;
    }
    let rows = rows.iter().map(|(_, columns)| (statement, columns));
    send_batch(shared, rows).await
}

/// Sends rows, each with its statement, as one unlogged batch.
pub(super) async fn send_batch<'a, V: SerializeRow>(
    shared: &Shared,
    rows: impl Iterator<Item = (&'a PreparedStatement, V)>,
) -> Result<(), Error> {
    let mut batch = Batch::new(BatchType::Unlogged);
    batch.set_is_idempotent(true);
    let mut values = Vec::new();
    for (statement, columns) in rows {
        batch.set_execution_profile_handle(statement.get_execution_profile_handle().cloned());
        batch.append_statement(statement.clone());
        values.push(columns);
    }
    let _permit = shared.permit().await?;
    let answer = shared.ask().batch(&batch, values).await;
    answered(answer.map_err(|error| errors::of_request(&error))?);
    Ok(())
}

async fn send_row(
    shared: &Shared,
    statement: &PreparedStatement,
    columns: impl SerializeRow,
) -> Result<(), Error> {
    let _permit = shared.permit().await?;
    let answer = shared.ask().execute_unpaged(statement, columns).await;
    answered(answer.map_err(|error| errors::of_request(&error))?);
    Ok(())
}

fn answered(answer: QueryResult) {
    for warning in answer.warnings() {
        tracing::warn!(warning, "the store warns about a write");
    }
}

/// Groups rows into requests, every row in exactly one.
fn plan<'a>(
    layout: Layout,
    rows: &'a [Row],
    packers: Option<(&Packer, &EventPacker)>,
) -> Result<Vec<Request<'a>>, Error> {
    let mut partitions: BTreeMap<(i32, i64, i32), Vec<(usize, DueRow)>> = BTreeMap::new();
    let packed = packers.map(|(packer, _)| packer.pack(rows, |row| layout.partition_of(row.place)));
    let packed = packed.unwrap_or_default();
    let packed_events = packers.map(|(_, packer)| packer.pack(rows, layout.shards)).transpose()?;
    let packed_events = packed_events.unwrap_or_default();
    for Pack { partition: (bucket, sub), shard, cell, first, digest, data } in packed.packs {
        let shard = shard_column(shard);
        let data = text(data)?;
        let columns = (shard, bucket, sub, cell.ready_at.0, cell.versions, digest, data);
        partitions.entry((shard, bucket, sub)).or_default().push((first, DueRow::Pack(columns)));
    }
    let mut lists: BTreeMap<(i32, i64, i64), Vec<(usize, LateQueueColumns)>> = BTreeMap::new();
    let mut dead: BTreeMap<(i32, i64), Vec<(usize, DeadLetterColumns)>> = BTreeMap::new();
    let (mut events, mut pointers, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        match row {
            Row::Fact(_) if packed.taken.contains(index) => {}
            Row::Fact(row) => {
                let columns = fact_columns(layout, row)?;
                let partition = (columns.0, columns.1, columns.2);
                partitions.entry(partition).or_default().push((index, DueRow::Fact(columns)));
            }
            Row::Event(_) if packed_events.taken.contains(index) => {}
            Row::Event(row) => events.push((index, event_columns(row)?)),
            Row::Payload(row) => requests.push(Request::Payload(index, payload_columns(layout, row)?)),
            Row::Pointer(row) => pointers.push((index, pointer_columns(row)?)),
            Row::LateQueue(row) => {
                let columns = late_queue_columns(row)?;
                lists.entry((columns.0, columns.1, columns.2)).or_default().push((index, columns));
            }
            Row::DeadLetter(row) => {
                let columns = dead_letter_columns(row)?;
                dead.entry((columns.0, columns.1)).or_default().push((index, columns));
            }
        }
    }
    for packs in packed_events.packs.into_values() {
        let packs = packs.into_iter().map(|(index, columns)| (index, DueRow::EventPack(columns))).collect();
        let parts = split(packs, FACTS_ROWS_MAX, FACTS_BYTES_MAX, DueRow::bytes);
        requests.extend(parts.into_iter().map(Request::Facts));
    }
    for facts in partitions.into_values() {
        requests.extend(
            split(facts, FACTS_ROWS_MAX, FACTS_BYTES_MAX, DueRow::bytes).into_iter().map(Request::Facts),
        );
    }
    let bytes = |row: &LateQueueColumns| row.4.len() + ROW_BYTES;
    for rows in lists.into_values() {
        let parts = split(rows, FACTS_ROWS_MAX, FACTS_BYTES_MAX, bytes);
        requests.extend(parts.into_iter().map(Request::LateQueues));
    }
    for rows in dead.into_values() {
        let parts = split(rows, FACTS_ROWS_MAX, FACTS_BYTES_MAX, bytes);
        requests.extend(parts.into_iter().map(Request::DeadLetters));
    }
    pointers.sort_by(|(_, one), (_, other)| one.cmp(other));
    let bytes = |row: &PointerColumns| row.1.len() + ROW_BYTES;
    let parts = split(pointers, EVENTS_ROWS_MAX, EVENTS_BYTES_MAX, bytes);
    requests.extend(parts.into_iter().map(Request::Pointers));
    requests.extend(
        split(events, EVENTS_ROWS_MAX, EVENTS_BYTES_MAX, event_bytes).into_iter().map(Request::Events),
    );
    Ok(requests)
}

/// What a row of events takes in a batch.
pub(super) fn event_bytes(row: &EventColumns) -> usize {
    row.0.len() + row.3.len() + ROW_BYTES
}

/// Splits rows, in order, so that no part has more than so many rows and, unless it is a single row, bytes.
fn split<V>(
    rows: Vec<(usize, V)>,
    rows_max: usize,
    bytes_max: usize,
    bytes_of: impl Fn(&V) -> usize,
) -> Vec<Vec<(usize, V)>> {
    let mut parts: Vec<Vec<(usize, V)>> = Vec::new();
    let mut bytes = 0;
    for row in rows {
        let row_bytes = bytes_of(&row.1);
        bytes += row_bytes;
        match parts.last_mut() {
            Some(part) if part.len() < rows_max && bytes <= bytes_max => part.push(row),
            _ => {
                bytes = row_bytes;
                parts.push(vec![row]);
            }
        }
    }
    parts
}

fn fact_columns(layout: Layout, row: &FactRow) -> Result<FactColumns, Error> {
    let (kind, epoch, seq) = codec::fact_columns(&row.fact);
    let (bucket, sub) = layout.partition_of(row.place);
    Ok((
        shard_column(row.shard),
        bucket,
        sub,
        row.place.ready_at.0,
        number_column(row.place.version.0)?,
        kind as i8,
        number_column(epoch)?,
        number_column(seq)?,
        text(codec::encode_fact(&row.fact))?,
    ))
}

fn pointer_columns(row: &PointerRow) -> Result<PointerColumns, Error> {
    let Pointer { due_at, version, ready_at } = row.pointer;
    let bucket = late::bucket_of(row.opened, due_at);
    let version = number_column(version.0)?;
    Ok((shard_column(row.shard), row.queue.as_str().to_owned(), bucket, due_at.0, version, ready_at.0))
}

fn late_queue_columns(row: &LateQueueRow) -> Result<LateQueueColumns, Error> {
    let (epoch, number) = (number_column(row.segment.epoch.0)?, number_column(row.segment.number)?);
    let data = text(codec::encode_late_queue(row))?;
    Ok((shard_column(row.shard), epoch, number, number_column(row.seq)?, data))
}

fn dead_letter_columns(row: &DeadLetterRow) -> Result<DeadLetterColumns, Error> {
    let data = text(codec::encode_dead_letter(row))?;
    let (bucket, version) = (dead_letter::bucket_of(row.at), number_column(row.place.version.0)?);
    Ok((shard_column(row.shard), bucket, row.at.0, version, data))
}

fn event_columns(row: &EventRow) -> Result<EventColumns, Error> {
    let data = text(codec::encode_event(row))?;
    Ok((codec::key_text(&row.key), number_column(row.version.0)?, number_column(row.epoch.0)?, data))
}

fn payload_columns(layout: Layout, row: &PayloadRow) -> Result<PayloadColumns<'_>, Error> {
    let bucket = layout.bucket_of(row.place);
    Ok((shard_column(row.shard), bucket, number_column(row.place.version.0)?, &row.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_by_rows_and_bytes_and_keep_every_row() {
        let rows: Vec<(usize, usize)> = [5, 5, 5, 50, 1, 1, 1, 1, 1, 9].into_iter().enumerate().collect();
        let parts = split(rows.clone(), 4, 12, |bytes| *bytes);
        assert_eq!(parts.concat(), rows);
        let sizes: Vec<Vec<usize>> =
            parts.iter().map(|part| part.iter().map(|(_, bytes)| *bytes).collect()).collect();
        assert_eq!(sizes, [vec![5, 5], vec![5], vec![50], vec![1, 1, 1, 1], vec![1, 9]]);
    }

    #[test]
    fn a_refusal_outranks_a_timeout() {
        let refused = Error::RowRefused { index: 7, detail: String::new() };
        let mut errors = [Error::Unavailable(String::new()), refused, Error::Misconfigured(String::new())];
        errors.sort_by_key(rank);
        assert!(matches!(errors[0], Error::Misconfigured(_)));
        assert!(matches!(errors[1], Error::RowRefused { index: 7, .. }));
    }
}
