//! Events of tasks by id: the first one lies in the row that says that its task has events here. A look-up of a task without any is a
//! point read, which filters answer.
//!
//! Whoever puts an event has to know whether that row is there. Whoever decided the event may know that there is none
//! ([`EventRow::is_first`]): such events are packed ([`super::firsts`]). Of all other tasks the writer reads the row.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use fjall::Slice as Bytes;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use indexmap::map::Entry;

use super::db::{Failure, Table, Tables};
use super::firsts::{self, Found};
use super::read::{after, get, scan, unreadable};
use super::writer::Batch;
use super::{event_row, keys};
use crate::model::{Epoch, EventRow, TaskKey, Version};
use crate::store::Lookup;
use crate::wire::row;

/// Version and epoch of an event, as in a key: before the data of the first, at the end of the key of another.
type Columns = [u8; keys::EVENT_COLUMNS_BYTES];

/// What the data of events of earlier builds begins with.
const TEXT: u8 = b'{';

/// Looked up by hash, with chance in it, as keys come from outside.
pub(super) type Map<K, V> = IndexMap<K, V, RandomState>;

/// The row that says that a task has events.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    /// It holds the first, of this version and epoch.
    Here(Columns),
    /// It holds none: an earlier build made it, or the first is forgotten.
    Elsewhere,
}

impl First {
    fn of(data: &[u8]) -> Result<First, Failure> {
        match data.first_chunk() {
            Some(columns) => Ok(First::Here(*columns)),
            None if data.is_empty() => Ok(First::Elsewhere),
            None => Err(Failure::Corrupt("first row of a task in task_event".to_owned())),
        }
    }

    fn read(tables: &Tables, task: &[u8]) -> Result<Option<First>, Failure> {
        get(&tables.task_event, task)?.map(|data| First::of(&data)).transpose()
    }
}

/// What a batch makes of a task's events.
pub(super) struct Touched {
    first: Option<First>,
    /// It puts events into rows of their own.
    puts_others: bool,
}

impl Batch<'_> {
    /// Reads what there is of these tasks, so that nothing fails when their events are put: a change is staged whole or not at all.
    pub(super) fn prepare<'b>(&mut self, mut tasks: impl Iterator<Item = &'b Bytes>) -> Result<(), Failure> {
        tasks.try_for_each(|task| self.touch(task).map(drop))
    }

    /// Puts the first event of a task.
    pub(super) fn lone_first(&mut self, task: Bytes, data: Bytes) {
        self.touched.entry(task.clone()).or_insert(Touched { first: None, puts_others: false });
        self.event(task, data);
    }

    fn touch(&mut self, task: &Bytes) -> Result<&mut Touched, Failure> {
        match self.touched.entry(task.clone()) {
            Entry::Occupied(touched) => Ok(touched.into_mut()),
            Entry::Vacant(untouched) => {
                let first = First::read(self.tables, task)?;
                Ok(untouched.insert(Touched { first, puts_others: false }))
            }
        }
    }

    /// Puts an event of a task that was prepared, its columns before its data, by the key of the task's first row.
    pub(super) fn event(&mut self, task: Bytes, data: Bytes) {
        let columns: Columns = *data.first_chunk().expect("an event is put with its columns");
        let touched = self.touched.get_mut(&task).expect("the tasks of all events are prepared");
        // The same event put once more stays where it is.
        if touched.first.is_none_or(|first| first == First::Here(columns)) {
            touched.first = Some(First::Here(columns));
            self.put(Table::TaskEvent, task, data);
        } else {
            touched.puts_others = true;
            self.put(Table::TaskEvent, [&task[..], &columns].concat(), &data[columns.len()..]);
        }
    }

    /// Takes events up to a version away: what was found of them, and the first one that is a row by id; its row stays while there are
    /// newer ones. Those may be in this very batch; what else is put meanwhile has to be newer than `version`.
    pub(super) fn forget(&mut self, task: &TaskKey, version: Version, old: Old) -> Result<(), Failure> {
        if let Some(packed) = old.packed {
            self.forget_first(&packed)?;
        }
        for key in old.keys {
            self.remove(Table::TaskEvent, key);
        }
        let key: Bytes = keys::task(task).into();
        let (from, to) = (keys::events_from(task, Version(u64::MAX)), keys::events_from(task, version));
        let tables = self.tables;
        let touched = self.touch(&key)?;
        let stays = match touched.first {
            None => true,
            Some(First::Here(columns)) => {
                keys::event_columns(&columns).is_some_and(|(first, _)| first > version)
            }
            Some(First::Elsewhere) => false,
        };
        if stays {
            return Ok(());
        }
        let mut has_newer = touched.puts_others;
        scan(&tables.task_event, &from, &to, |_, _| {
            has_newer = true;
            Ok(ControlFlow::Break(()))
        })?;
        touched.first = has_newer.then_some(First::Elsewhere);
        if has_newer {
            self.put(Table::TaskEvent, key, Bytes::empty());
        } else {
            self.remove(Table::TaskEvent, key);
        }
        Ok(())
    }
}

/// For each look-up the rows of versions `first..=last`, newest first, and the newest below.
pub(super) fn look_up(tables: &Tables, lookups: &[Lookup]) -> Result<Vec<Vec<EventRow>>, Failure> {
    lookups.iter().map(|lookup| rows_of(tables, lookup)).collect()
}

fn rows_of(tables: &Tables, lookup: &Lookup) -> Result<Vec<EventRow>, Failure> {
    let has_below = |rows: &[EventRow]| rows.last().is_some_and(|last| last.version < lookup.first);
    newest_first(tables, &lookup.key, lookup.last, has_below)
}

/// All rows of a task, newest first.
pub(super) fn history(tables: &Tables, task: &TaskKey, rows_max: usize) -> Result<Vec<EventRow>, Failure> {
    newest_first(tables, task, Version(u64::MAX), |rows| rows.len() >= rows_max)
}

/// The rows of a task from a version down, newest first, the highest epoch first, until they are enough.
fn newest_first(
    tables: &Tables,
    task: &TaskKey,
    last: Version,
    are_enough: impl Fn(&[EventRow]) -> bool,
) -> Result<Vec<EventRow>, Failure> {
    let key = keys::task(task);
    let packed = firsts::find(tables, task, &key)?.map(|found| found.row);
    let mut rows = Vec::new();
    let mut apart = Vec::from_iter(packed);
    if let Some(data) = get(&tables.task_event, &key)? {
        if let First::Here(columns) = First::of(&data)? {
            apart.push(event(task, &columns, &data[columns.len()..])?);
        }
        scan(&tables.task_event, &keys::events_from(task, last), &after(&key), |key, data| {
            rows.push(event(task, key, data)?);
            Ok(if are_enough(&rows) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    rows.extend(apart.into_iter().filter(|row| row.version <= last));
    rows.sort_by_key(|row| Reverse((row.version, row.epoch)));
    // What was put once more may lie in both ways.
    rows.dedup_by_key(|row| (row.version, row.epoch));
    if let Some(enough) = (0..rows.len()).find(|len| are_enough(&rows[..*len])) {
        rows.truncate(enough);
    }
    Ok(rows)
}

/// An event from its columns, or from a key that ends with them, and its data.
pub(super) fn event(task: &TaskKey, columns: &[u8], data: &[u8]) -> Result<EventRow, Failure> {
    let columns: Option<(Version, Epoch)> = keys::event_columns(columns);
    let (version, epoch) = columns.ok_or_else(|| Failure::Corrupt("key of task_event".to_owned()))?;
    if data.first() == Some(&TEXT) {
        return row::decode_event(task.clone(), version, epoch, data).map_err(|e| unreadable(&e));
    }
    event_row::decode(task.clone(), version, epoch, data)
        .ok_or_else(|| Failure::Corrupt(format!("event {} of task {}", version.0, row::key_text(task))))
}

/// Events of a task up to a version, as they lie.
pub(super) struct Old {
    /// The keys of those that have rows of their own.
    keys: Vec<Bytes>,
    packed: Option<Found>,
}

/// The events of a task up to a version, but for the first that is a row by id.
pub(super) fn old(tables: &Tables, task: &TaskKey, version: Version) -> Result<Old, Failure> {
    let mut found = Vec::new();
    let key = keys::task(task);
    if get(&tables.task_event, &key)?.is_some() {
        scan(&tables.task_event, &keys::events_from(task, version), &after(&key), |key, _| {
            found.push(key.clone());
            Ok(ControlFlow::Continue(()))
        })?;
    }
    let packed = firsts::find(tables, task, &key)?.filter(|found| found.row.version <= version);
    Ok(Old { keys: found, packed })
}
