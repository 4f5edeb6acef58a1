//! What Dueline writes to its store per task, counted at the store's port.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::model::Row;
use crate::store::Packs;
use crate::wire::row::{encode_dead_letter, encode_event, encode_fact, encode_late_queue, key_text};

/// Of so many rows one is weighed: to encode every row twice would cost what is measured. A prime, so that it is not always the
/// same row of a task.
const WEIGHED_OF: u64 = 17;
/// Columns of a row of `due` besides its data: shard, bucket, ready time, version, kind, epoch, sequence.
pub(super) const PLACE_BYTES: usize = 4 + 8 + 8 + 8 + 1 + 8 + 8;
const TABLES: [&str; 6] = ["task_event", "due", "payload", "late", "late_queue", "dead_letter"];

/// Counts of one run, told by the store of every node in it.
#[derive(Debug, Default)]
pub(super) struct Rows {
    calls: AtomicU64,
    by_table: [AtomicU64; TABLES.len()],
    /// All rows but those of payloads, how many of them were weighed, and their bytes.
    all: AtomicU64,
    weighed: AtomicU64,
    weighed_bytes: AtomicU64,
    payload_bytes: AtomicU64,
}

/// Rows and bytes per task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    /// Rows of each table: those that were packed as the packs they are in.
    pub rows: BTreeMap<String, f64>,
    /// Rows of `due` that lie in packs.
    pub packed: f64,
    /// Rows of `task_event` that lie in packs.
    pub packed_events: f64,
    /// Bytes of all of them as servers get them, without what the store adds: payloads that lie apart counted, of all other rows
    /// one in 17 weighed.
    pub bytes: f64,
    /// Writes: calls of the store's port.
    pub calls: f64,
    /// Requests to the store's servers: writes and all else, of shards without tasks too. `null` embedded, where there are none.
    pub requests: Option<f64>,
}

impl Written {
    /// With rows as they were packed; bytes stay those of the rows.
    pub(super) fn packed(mut self, now: Packs, before: Packs, tasks: f64) -> Written {
        let each = |of: fn(&Packs) -> u64| of(&now).saturating_sub(of(&before)) as f64 / tasks;
        let due = ("due", each(|packs| packs.rows), "due_pack", each(|packs| packs.packs));
        let events =
            ("task_event", each(|packs| packs.events), "event_pack", each(|packs| packs.event_packs));
        for (table, rows, pack, packs) in [due, events] {
            if packs > 0.0 {
                self.rows.entry(table.to_owned()).and_modify(|left| *left = (*left - rows).max(0.0));
                self.rows.insert(pack.to_owned(), packs);
            }
        }
        (self.packed, self.packed_events) = (due.1, events.1);
        self
    }
}

impl Rows {
    /// These rows are to be written together.
    pub(super) fn add(&self, rows: &[Row]) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        for row in rows {
            self.by_table[table(row)].fetch_add(1, Ordering::Relaxed);
            if let Row::Payload(payload) = row {
                self.payload_bytes.fetch_add((payload.bytes.len() + PLACE_BYTES) as u64, Ordering::Relaxed);
            } else if self.all.fetch_add(1, Ordering::Relaxed).is_multiple_of(WEIGHED_OF) {
                self.weighed.fetch_add(1, Ordering::Relaxed);
                self.weighed_bytes.fetch_add(bytes(row) as u64, Ordering::Relaxed);
            }
        }
    }

    /// Begins anew.
    pub(super) fn forget(&self) {
        let Rows { calls, by_table, all, weighed, weighed_bytes, payload_bytes } = self;
        let others = [calls, all, weighed, weighed_bytes, payload_bytes];
        others.into_iter().chain(by_table).for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Rows of `task_event`: one for each schedule event.
    pub(super) fn events(&self) -> u64 {
        self.by_table[0].load(Ordering::Relaxed)
    }

    pub(super) fn per_task(&self, tasks: u64) -> Written {
        let tasks = tasks.max(1) as f64;
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
        let each = count(&self.weighed_bytes) / count(&self.weighed).max(1.0);
        let by_table = TABLES.iter().zip(&self.by_table).filter(|(_, rows)| count(rows) > 0.0);
        Written {
            rows: by_table.map(|(table, rows)| ((*table).to_owned(), count(rows) / tasks)).collect(),
            bytes: (count(&self.all) * each + count(&self.payload_bytes)) / tasks,
            calls: count(&self.calls) / tasks,
            packed: 0.0,
            packed_events: 0.0,
            requests: None,
        }
    }
}

fn table(row: &Row) -> usize {
    match row {
        Row::Event(_) => 0,
        Row::Fact(_) => 1,
        Row::Payload(_) => 2,
        Row::Pointer(_) => 3,
        Row::LateQueue(_) => 4,
        Row::DeadLetter(_) => 5,
    }
}

fn bytes(row: &Row) -> usize {
    match row {
        Row::Event(row) => key_text(&row.key).len() + encode_event(row).len() + PLACE_BYTES,
        Row::Fact(row) => encode_fact(&row.fact).len() + PLACE_BYTES,
        Row::Payload(row) => row.bytes.len() + PLACE_BYTES,
        Row::Pointer(_) => PLACE_BYTES,
        Row::LateQueue(row) => encode_late_queue(row).len() + PLACE_BYTES,
        Row::DeadLetter(row) => encode_dead_letter(row).len() + PLACE_BYTES,
    }
}
