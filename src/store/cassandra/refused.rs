//! What a refusal means: this row, or everything?
//!
//! Only a row that is refused while a small ordinary row of the same table is accepted is a refused row. A guard
//! rail, a missing column or a missing right refuses both, and no event may be rejected for it.

use super::Shared;
use super::write::{DueRow, Request, send};
use crate::store::Error;

/// Key of the ordinary row in `task_event`: without a `/`, so that no task has it.
const PROBE_KEY: &str = "probe";
/// Shard of the ordinary rows: no topic has so many partitions.
const PROBE_SHARD: i32 = -1;

/// Sends the rows of a refused request one by one. All accepted: only their number was refused, and they are written.
///
/// # Errors
/// [`Error::RowRefused`] for the first row that is refused alone; [`Error::Misconfigured`] when ordinary rows are too.
pub(super) async fn find_row(shared: &Shared, request: Request<'_>, why: String) -> Result<(), Error> {
    let table_row = probe(&request);
    let singles = one_by_one(request);
    let alone = singles.len() == 1;
    for (index, single) in singles {
        let answer = if alone { Err(Error::Misconfigured(why.clone())) } else { send(shared, &single).await };
        match answer {
            Err(Error::Misconfigured(detail)) => {
                send(shared, &table_row).await?;
                return Err(Error::RowRefused { index, detail });
            }
            answer => answer?,
        }
    }
    Ok(())
}

fn one_by_one(request: Request<'_>) -> Vec<(usize, Request<'_>)> {
    match request {
        Request::Facts(rows) => rows.into_iter().map(|row| (row.0, Request::Facts(vec![row]))).collect(),
        Request::Events(rows) => rows.into_iter().map(|row| (row.0, Request::Events(vec![row]))).collect(),
        Request::Payload(index, columns) => vec![(index, Request::Payload(index, columns))],
        Request::Pointers(rows) => {
            rows.into_iter().map(|row| (row.0, Request::Pointers(vec![row]))).collect()
        }
        Request::LateQueues(rows) => {
            rows.into_iter().map(|row| (row.0, Request::LateQueues(vec![row]))).collect()
        }
        Request::DeadLetters(rows) => {
            rows.into_iter().map(|row| (row.0, Request::DeadLetters(vec![row]))).collect()
        }
    }
}

/// An ordinary row of the same table, where nobody reads it.
fn probe(request: &Request<'_>) -> Request<'static> {
    match request {
        Request::Facts(_) => {
            let columns = (PROBE_SHARD, -1, 0, 0, 0, 0, 0, 0, "{}".to_owned());
            Request::Facts(vec![(0, DueRow::Fact(columns))])
        }
        Request::Events(_) => Request::Events(vec![(0, (PROBE_KEY.to_owned(), 0, 0, "{}".to_owned()))]),
        Request::Payload(..) => Request::Payload(0, (PROBE_SHARD, -1, 0, &[])),
        Request::Pointers(_) => {
            Request::Pointers(vec![(0, (PROBE_SHARD, PROBE_KEY.to_owned(), -1, 0, 0, 0))])
        }
        Request::LateQueues(_) => Request::LateQueues(vec![(0, (PROBE_SHARD, -1, 0, 0, "{}".to_owned()))]),
        Request::DeadLetters(_) => Request::DeadLetters(vec![(0, (PROBE_SHARD, -1, 0, 0, "{}".to_owned()))]),
    }
}
