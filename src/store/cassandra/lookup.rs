//! Reads of `task_event`: many keys in one request, then page by page for the few that have more rows.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};

use super::singles::{Pages, number_column, one_page, rows};
use super::{Shared, statements};
use crate::model::{Epoch, EventRow, TaskKey, Version};
use crate::store::{Error, Lookup};
use crate::wire::row as codec;

/// Keys of one request.
const KEYS_MAX: usize = 50;
/// Newest rows of each key that the first request asks for: most keys have fewer.
const FIRST_ROWS: i32 = 3;
/// Requests of one call under way at once.
const REQUESTS_MAX: usize = 32;

/// For each lookup its rows, newest version first, highest epoch first.
pub(super) async fn lookup(shared: &Shared, lookups: &[Lookup]) -> Result<Vec<Vec<EventRow>>, Error> {
    let mut order: Vec<usize> = (0..lookups.len()).collect();
    // Keys whose ranges end alike share a request, so that its bound cuts little for any of them.
    order.sort_by_key(|index| lookups[*index].last);
    let requests: Vec<_> =
        order.chunks(KEYS_MAX).map(|chunk| look_up_together(shared, lookups, chunk)).collect();
    let found: Vec<Vec<(usize, Vec<EventRow>)>> =
        stream::iter(requests).buffer_unordered(REQUESTS_MAX).try_collect().await?;
    let mut answers = vec![Vec::new(); lookups.len()];
    for (index, rows) in found.into_iter().flatten() {
        answers[index] = rows;
    }
    Ok(answers)
}

async fn look_up_together(
    shared: &Shared,
    lookups: &[Lookup],
    chunk: &[usize],
) -> Result<Vec<(usize, Vec<EventRow>)>, Error> {
    let newest = newest_rows(shared, lookups, chunk).await?;
    let mut answers = Vec::with_capacity(chunk.len());
    let mut unfinished = Vec::new();
    for index in chunk.iter().copied() {
        let lookup = &lookups[index];
        let read = newest.get(&lookup.key).map_or(&[][..], Vec::as_slice);
        let mut wanted = Wanted::new(lookup);
        read.iter().for_each(|row| wanted.take(row.clone()));
        let all_read = read.len() < FIRST_ROWS as usize;
        if all_read || wanted.done {
            answers.push((index, wanted.rows));
        } else {
            let below = read.last().map(|row| (row.version, row.epoch));
            unfinished.push(async move { read_on(shared, wanted, below).await.map(|rows| (index, rows)) });
        }
    }
    let rest: Vec<(usize, Vec<EventRow>)> =
        stream::iter(unfinished).buffer_unordered(REQUESTS_MAX).try_collect().await?;
    answers.extend(rest);
    Ok(answers)
}

/// The newest rows of each key, at most [`FIRST_ROWS`].
async fn newest_rows(
    shared: &Shared,
    lookups: &[Lookup],
    chunk: &[usize],
) -> Result<BTreeMap<TaskKey, Vec<EventRow>>, Error> {
    let mut keys: BTreeMap<String, TaskKey> = BTreeMap::new();
    let mut last = Version::MIN;
    for lookup in chunk.iter().map(|index| &lookups[*index]) {
        keys.insert(codec::key_text(&lookup.key), lookup.key.clone());
        last = last.max(lookup.last);
    }
    let texts: Vec<&str> = keys.keys().map(String::as_str).collect();
    let permit = shared.permit().await?;
    let statement = &shared.statements.event_lookup;
    // Never in pages: for a statement with several keys a node reads those one key after the other, at a round trip between
    // replicas each. Without, it asks for all at once.
    let page = one_page(shared, statement, (texts, number_column(last.0)?, FIRST_ROWS)).await?;
    drop(permit);
    let mut found: BTreeMap<TaskKey, Vec<EventRow>> = BTreeMap::new();
    for (key, version, epoch, data) in rows::<(&str, i64, i64, &str)>("task_event", &page)? {
        let Some(key) = keys.get(key) else {
            return Err(Error::Corrupt(format!("task_event: a row of {key:?}, which was not asked for")));
        };
        let row = decode(key, version, epoch, data)?;
        found.entry(key.clone()).or_default().push(row);
    }
    Ok(found)
}

/// Reads a key's rows below those already read, until the lookup has all it wants.
async fn read_on(
    shared: &Shared,
    mut wanted: Wanted<'_>,
    below: Option<(Version, Epoch)>,
) -> Result<Vec<EventRow>, Error> {
    let key = codec::key_text(&wanted.lookup.key);
    let above_all = (wanted.lookup.last, Epoch(i64::MAX as u64));
    // Where all that was read is newer than the range, reading goes on at its end.
    let (version, epoch) = below.map_or(above_all, |below| below.min(above_all));
    let _permit = shared.permit().await?;
    let values = (key, number_column(version.0)?, number_column(epoch.0)?);
    let mut pages = Pages::new(shared, &shared.statements.event_below, values);
    while let Some(page) = pages.next().await? {
        for (version, epoch, data) in rows::<(i64, i64, &str)>("task_event", &page)? {
            wanted.take(decode(&wanted.lookup.key, version, epoch, data)?);
        }
        if wanted.done {
            break;
        }
    }
    Ok(wanted.rows)
}

/// Collects what a lookup asks for out of rows that come newest first.
struct Wanted<'a> {
    lookup: &'a Lookup,
    rows: Vec<EventRow>,
    done: bool,
}

impl<'a> Wanted<'a> {
    fn new(lookup: &'a Lookup) -> Self {
        Wanted { lookup, rows: Vec::new(), done: false }
    }

    fn take(&mut self, row: EventRow) {
        if self.done || row.version > self.lookup.last {
            return;
        }
        self.done = row.version < self.lookup.first;
        self.rows.push(row);
    }
}

/// All events of one task, newest first.
pub(super) async fn history(shared: &Shared, key: &TaskKey, rows_max: usize) -> Result<Vec<EventRow>, Error> {
    let limit = i32::try_from(rows_max).unwrap_or(i32::MAX);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let _permit = shared.permit().await?;
    let values = (codec::key_text(key), limit);
    let mut pages = Pages::new(shared, &shared.statements.event_history, values);
    let mut found = Vec::with_capacity(rows_max.min(statements::PAGE_ROWS as usize));
    while let Some(page) = pages.next().await? {
        for (version, epoch, data) in rows::<(i64, i64, &str)>("task_event", &page)? {
            found.push(decode(key, version, epoch, data)?);
        }
    }
    Ok(found)
}

fn decode(key: &TaskKey, version: i64, epoch: i64, data: &str) -> Result<EventRow, Error> {
    codec::decode_event(key.clone(), Version(version as u64), Epoch(epoch as u64), data.as_bytes())
        .map_err(|error| Error::Corrupt(error.to_string()))
}
