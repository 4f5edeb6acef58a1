//! How far this machine's wall clock is from a node's.

use std::time::{SystemTime, UNIX_EPOCH};

use super::session::{self, Profiles};
use super::{Options, errors};
use crate::store::Error;

/// This machine's wall time less a node's, in milliseconds, correct to half the time that asking took; the best of a few.
///
/// # Errors
/// [`Error::Unavailable`] when no node answers.
pub async fn clock_offset_ms(options: &Options) -> Result<i64, Error> {
    const TRIES: usize = 5;
    let session = session::connect(options, &Profiles::new(options), &[]).await?;
    let mut best: Option<(i64, i64)> = None;
    for _ in 0..TRIES {
        let before = now_ms();
        let query = "SELECT toUnixTimestamp(now()) FROM system.local";
        let answer = session.query_unpaged(query, ()).await.map_err(|error| errors::of_request(&error))?;
        let after = now_ms();
        let rows = answer.into_rows_result().map_err(|error| Error::Corrupt(error.to_string()))?;
        let (node,): (i64,) = rows.single_row().map_err(|error| Error::Corrupt(error.to_string()))?;
        let found = (after - before, (before + after) / 2 - node);
        best = Some(best.map_or(found, |known| known.min(found)));
    }
    best.map(|(_, offset)| offset).ok_or_else(|| Error::Unavailable("no node told its time".into()))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
