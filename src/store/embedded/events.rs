//! Events of tasks: the first one lies in the row that says that its task has events. Most tasks have but one, and each is looked up
//! before its event comes unless it is known to be new: by a point read, which filters answer for those that are new.
//!
//! Whoever puts an event has to know whether that row is there. Whoever decided the event may know that there is none
//! ([`EventRow::is_first`]); of all other tasks the writer reads the row.

use std::ops::ControlFlow;

use fjall::Slice as Bytes;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use indexmap::map::Entry;

use super::db::{Failure, Table, Tables};
use super::keys;
use super::read::{after, get, scan, unreadable};
use super::writer::Batch;
use crate::model::{Epoch, EventRow, TaskKey, Version};
use crate::store::Lookup;
use crate::wire::row;

/// Version and epoch of an event, as in a key: before the data of the first, at the end of the key of another.
type Columns = [u8; keys::EVENT_COLUMNS_BYTES];

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
    /// Reads what there is of these tasks, each new or not, so that nothing fails when their events are put: a change is staged whole or
    /// not at all.
    pub(super) fn prepare<'b>(
        &mut self,
        mut tasks: impl Iterator<Item = (&'b Bytes, bool)>,
    ) -> Result<(), Failure> {
        tasks.try_for_each(|(task, is_new)| self.touch(task, is_new).map(drop))
    }

    fn touch(&mut self, task: &Bytes, is_new: bool) -> Result<&mut Touched, Failure> {
        match self.touched.entry(task.clone()) {
            Entry::Occupied(touched) => Ok(touched.into_mut()),
            Entry::Vacant(untouched) => {
                let first = if is_new { None } else { First::read(self.tables, task)? };
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

    /// Takes events up to a version away: those that have rows of their own by their keys, and the first one; its row stays while there
    /// are newer ones. Those may be in this very batch; what else is put meanwhile has to be newer than `version`.
    pub(super) fn forget(
        &mut self,
        task: &TaskKey,
        version: Version,
        events: Vec<Bytes>,
    ) -> Result<(), Failure> {
        for key in events {
            self.remove(Table::TaskEvent, key);
        }
        let key: Bytes = keys::task(task).into();
        let (from, to) = (keys::events_from(task, Version(u64::MAX)), keys::events_from(task, version));
        let tables = self.tables;
        let touched = self.touch(&key, false)?;
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
    let mut rows = Vec::new();
    let Some(first) = get(&tables.task_event, keys::task(&lookup.key))? else { return Ok(rows) };
    newest_first(tables, &lookup.key, &first, lookup.last, |row| {
        let below = row.version < lookup.first;
        rows.push(row);
        if below { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(rows)
}

/// All rows of a task, newest first.
pub(super) fn history(tables: &Tables, task: &TaskKey, rows_max: usize) -> Result<Vec<EventRow>, Failure> {
    let mut rows = Vec::new();
    let first = get(&tables.task_event, keys::task(task))?;
    let Some(first) = first.filter(|_| rows_max > 0) else { return Ok(rows) };
    newest_first(tables, task, &first, Version(u64::MAX), |row| {
        rows.push(row);
        if rows.len() < rows_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(rows)
}

/// The rows of a task from a version down, newest first, the highest epoch first, the first row's event in its place among them.
fn newest_first(
    tables: &Tables,
    task: &TaskKey,
    first: &[u8],
    last: Version,
    mut each: impl FnMut(EventRow) -> ControlFlow<()>,
) -> Result<(), Failure> {
    let first = match First::of(first)? {
        First::Here(columns) => Some(event(task, &columns, &first[columns.len()..])?),
        First::Elsewhere => None,
    };
    let mut first = first.filter(|row| row.version <= last);
    let mut goes_on = ControlFlow::Continue(());
    scan(&tables.task_event, &keys::events_from(task, last), &after(&keys::task(task)), |key, data| {
        let row = event(task, key, data)?;
        let order = |row: &EventRow| (row.version, row.epoch);
        if let Some(first) = first.take_if(|first| order(first) > order(&row)) {
            goes_on = each(first);
        }
        if goes_on.is_continue() {
            goes_on = each(row);
        }
        Ok(goes_on)
    })?;
    if let Some(first) = first.filter(|_| goes_on.is_continue()) {
        let _ = each(first);
    }
    Ok(())
}

fn event(task: &TaskKey, columns: &[u8], data: &[u8]) -> Result<EventRow, Failure> {
    let columns: Option<(Version, Epoch)> = keys::event_columns(columns);
    let (version, epoch) = columns.ok_or_else(|| Failure::Corrupt("key of task_event".to_owned()))?;
    row::decode_event(task.clone(), version, epoch, data).map_err(|e| unreadable(&e))
}

/// The keys of a task's events up to a version that have rows of their own.
pub(super) fn keys_to(tables: &Tables, task: &TaskKey, version: Version) -> Result<Vec<Bytes>, Failure> {
    let mut found = Vec::new();
    let from = keys::events_from(task, version);
    scan(&tables.task_event, &from, &after(&keys::task(task)), |key, _| {
        found.push(key.clone());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}
