//! Reads of `task_event`: many keys in one request, then page by page for the few that have more rows. Beside them what is packed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};

use super::Shared;
use super::event_packs::{self, Wanted};
use super::gather::{Gather, Sent};
use super::singles::{Pages, number_column, one_page, rows};
use crate::model::{Epoch, EventRow, TaskKey, Version};
use crate::store::{Error, Lookup};
use crate::wire::row as codec;

/// Keys of one request.
pub(super) const KEYS_MAX: usize = 50;
/// Newest rows of each key that the first request asks for: most keys have fewer.
const FIRST_ROWS: i32 = 3;
/// Requests of one call under way at once.
const REQUESTS_MAX: usize = 32;

/// For each lookup its rows, newest version first, highest epoch first.
pub(super) async fn lookup(shared: &Shared, lookups: &[Lookup]) -> Result<Vec<Vec<EventRow>>, Error> {
    let wanted: Vec<Wanted<'_>> =
        lookups.iter().map(|lookup| Wanted { key: &lookup.key, versions: &lookup.listed }).collect();
    let packed = event_packs::of_versions(shared, &wanted);
    let (mut found, packed) = tokio::try_join!(by_key(shared, lookups), packed)?;
    for ((rows, packed), lookup) in found.iter_mut().zip(packed).zip(lookups) {
        merge(rows, packed, |row| row.version <= lookup.last);
        if let Some(below) = rows.iter().position(|row| row.version < lookup.first) {
            rows.truncate(below + 1);
        }
    }
    Ok(found)
}

/// For each id the versions that packed events of it may have: as listed, or by what is on record.
pub(super) async fn packed_versions<'a>(
    shared: &Shared,
    ids: impl Iterator<Item = (&'a TaskKey, Option<&'a [Version]>)>,
) -> Result<Vec<Vec<Version>>, Error> {
    let ids: Vec<_> = ids.collect();
    let unknown: Vec<&TaskKey> =
        ids.iter().filter(|(_, listed)| listed.is_none()).map(|(key, _)| *key).collect();
    let mut located = event_packs::locate(shared, &unknown).await?.into_iter();
    let versions = |listed: Option<&[Version]>| match listed {
        Some(listed) => listed.to_vec(),
        None => located.next().unwrap_or_default(),
    };
    Ok(ids.iter().map(|(_, listed)| *listed).map(versions).collect())
}

/// Puts what is packed among rows that are in order. What is there in both ways is one event, and the row counts: it may have been
/// written over.
fn merge(rows: &mut Vec<EventRow>, packed: Vec<EventRow>, is_wanted: impl Fn(&EventRow) -> bool) {
    if packed.is_empty() {
        return;
    }
    rows.extend(packed.into_iter().filter(is_wanted));
    rows.sort_by_key(|row| Reverse((row.version, row.epoch)));
    rows.dedup_by_key(|row| (row.version, row.epoch));
}

/// The same of those that are rows by key.
async fn by_key(shared: &Shared, lookups: &[Lookup]) -> Result<Vec<Vec<EventRow>>, Error> {
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
    let keys = chunk.iter().map(|index| lookups[*index].key.clone()).collect();
    let last = chunk.iter().map(|index| lookups[*index].last).max().unwrap_or(Version::MIN);
    let newest = newest(shared, Newest { keys, last }).await?;
    let mut answers = Vec::with_capacity(chunk.len());
    let mut unfinished = Vec::new();
    for (index, read) in chunk.iter().copied().zip(newest) {
        let lookup = &lookups[index];
        let mut wanted = Range::new(lookup);
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

/// Keys of which the newest rows are wanted, at most [`FIRST_ROWS`] of each.
pub(super) struct Newest {
    pub(super) keys: Vec<TaskKey>,
    /// Newer ones than this are not.
    pub(super) last: Version,
}

/// For each key its newest rows, beside those of other calls where there are few keys.
async fn newest(shared: &Shared, newest: Newest) -> Result<Vec<Vec<EventRow>>, Error> {
    if !Gather::takes(&newest) {
        return newest_rows(shared, &newest).await;
    }
    match shared.lookups.send(newest).await {
        Sent::Together(found) => found,
        Sent::Alone(newest, _under_way) => newest_rows(shared, &newest).await,
    }
}

/// For each key its newest rows, in one request.
pub(super) async fn newest_rows(shared: &Shared, newest: &Newest) -> Result<Vec<Vec<EventRow>>, Error> {
    let mut asked: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, key) in newest.keys.iter().enumerate() {
        asked.entry(codec::key_text(key)).or_default().push(index);
    }
    let texts: Vec<&str> = asked.keys().map(String::as_str).collect();
    let permit = shared.permit().await?;
    let statement = &shared.statements.event_lookup;
    // Never in pages: for a statement with several keys a node reads those one key after the other, at a round trip between
    // replicas each. Without, it asks for all at once.
    let page = one_page(shared, statement, (texts, number_column(newest.last.0)?, FIRST_ROWS)).await?;
    drop(permit);
    let mut found = vec![Vec::new(); newest.keys.len()];
    for (key, version, epoch, data) in rows::<(&str, i64, i64, &str)>("task_event", &page)? {
        let Some(of) = asked.get(key) else {
            return Err(Error::Corrupt(format!("task_event: a row of {key:?}, which was not asked for")));
        };
        for index in of {
            found[*index].push(decode(&newest.keys[*index], version, epoch, data)?);
        }
    }
    Ok(found)
}

/// Reads a key's rows below those already read, until the lookup has all it wants.
async fn read_on(
    shared: &Shared,
    mut wanted: Range<'_>,
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
struct Range<'a> {
    lookup: &'a Lookup,
    rows: Vec<EventRow>,
    done: bool,
}

impl<'a> Range<'a> {
    fn new(lookup: &'a Lookup) -> Self {
        Range { lookup, rows: Vec::new(), done: false }
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
pub(super) async fn history(
    shared: &Shared,
    key: &TaskKey,
    rows_max: usize,
    listed: Option<&[Version]>,
) -> Result<Vec<EventRow>, Error> {
    let limit = i32::try_from(rows_max).unwrap_or(i32::MAX);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let packed = async {
        let versions = packed_versions(shared, std::iter::once((key, listed))).await?;
        let versions: Vec<Version> = versions.into_iter().flatten().collect();
        event_packs::of_versions(shared, &[Wanted { key, versions: &versions }]).await
    };
    let (mut found, packed) = tokio::try_join!(history_by_key(shared, key, limit), packed)?;
    merge(&mut found, packed.into_iter().flatten().collect(), |_| true);
    found.truncate(rows_max);
    Ok(found)
}

async fn history_by_key(shared: &Shared, key: &TaskKey, limit: i32) -> Result<Vec<EventRow>, Error> {
    let _permit = shared.permit().await?;
    let values = (codec::key_text(key), limit);
    let mut pages = Pages::new(shared, &shared.statements.event_history, values);
    let mut found = Vec::new();
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
