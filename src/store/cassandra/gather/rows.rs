//! Rows of few partitions, and keys that are looked up.

use super::super::columns::{Columns, EventColumns};
use super::super::lookup::Newest;
use super::super::write::{DueRow, EVENTS_BYTES_MAX, EVENTS_ROWS_MAX, Request, event_bytes, send_batch};
use super::super::{Shared, lookup};
use super::{Small, Weight};
use crate::model::{EventRow, TaskKey, Version};
use crate::store::Error;

/// Facts of one partition, or events.
pub(in super::super) enum SmallWrite {
    Facts(Vec<(usize, DueRow)>),
    Events(Vec<(usize, EventColumns)>),
}

impl SmallWrite {
    /// A request that may go with others; back when it may not.
    pub(in super::super) fn of(request: Request<'_>) -> Result<SmallWrite, Request<'_>> {
        match request {
            Request::Facts(rows) => Ok(SmallWrite::Facts(rows)),
            Request::Events(rows) => Ok(SmallWrite::Events(rows)),
            other => Err(other),
        }
    }

    pub(in super::super) fn request(self) -> Request<'static> {
        match self {
            SmallWrite::Facts(rows) => Request::Facts(rows),
            SmallWrite::Events(rows) => Request::Events(rows),
        }
    }
}

/// An unlogged batch, below what servers warn of.
impl Small for SmallWrite {
    type To = Shared;
    type Answer = ();
    const MOST: Weight = Weight { partitions: EVENTS_ROWS_MAX, bytes: EVENTS_BYTES_MAX };

    fn weight(&self) -> Weight {
        match self {
            SmallWrite::Facts(rows) => {
                Weight { partitions: 1, bytes: rows.iter().map(|(_, row)| row.bytes()).sum() }
            }
            SmallWrite::Events(rows) => {
                Weight { partitions: rows.len(), bytes: rows.iter().map(|(_, row)| event_bytes(row)).sum() }
            }
        }
    }

    async fn send(shared: &Shared, all: &[SmallWrite]) -> Result<Vec<()>, Error> {
        let statements = &shared.statements;
        let mut rows = Vec::new();
        for small in all {
            match small {
                SmallWrite::Facts(facts) => {
                    rows.extend(facts.iter().map(|(_, row)| row.insert(statements)));
                }
                SmallWrite::Events(events) => {
                    rows.extend(
                        events.iter().map(|(_, row)| (&statements.event_insert, Columns::Event(row))),
                    );
                }
            }
        }
        send_batch(shared, rows.into_iter()).await?;
        Ok(vec![(); all.len()])
    }
}

/// The newest rows of keys.
impl Small for Newest {
    type To = Shared;
    type Answer = Vec<Vec<EventRow>>;
    const MOST: Weight = Weight { partitions: lookup::KEYS_MAX, bytes: usize::MAX };

    fn weight(&self) -> Weight {
        Weight { partitions: self.keys.len(), bytes: 0 }
    }

    async fn send(shared: &Shared, all: &[Newest]) -> Result<Vec<Vec<Vec<EventRow>>>, Error> {
        let keys: Vec<TaskKey> = all.iter().flat_map(|newest| newest.keys.iter().cloned()).collect();
        let last = all.iter().map(|newest| newest.last).max().unwrap_or(Version::MIN);
        let mut found = lookup::newest_rows(shared, &Newest { keys, last }).await?.into_iter();
        Ok(all.iter().map(|newest| found.by_ref().take(newest.keys.len()).collect()).collect())
    }
}
