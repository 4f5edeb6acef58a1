//! A run of records on its way through intake.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::model::{
    Boot, Epoch, Event, EventRow, FactRow, Generation, MarkKind, Origin, Place, RejectReason, Rejection, Row,
    Shard, TaskContent, TaskKey, Version, Wall, home_shard, limits,
};

use super::super::decide::Plan;
use super::super::effect::{Effect, KeyLookup};
use super::super::input::Incoming;
use super::names::{Coordinates, key_of};
use super::{Need, rows};

/// What the shard's records are judged against.
pub(super) struct Ground {
    pub(super) shard: Shard,
    pub(super) shards: u32,
    pub(super) generation: Generation,
    /// An owner before may have decided what lies below this offset.
    pub(super) decided_to: u64,
}

/// A task that becomes visible with its item.
#[derive(Clone, Debug)]
pub(super) struct ShownTask {
    pub(super) place: Place,
    pub(super) key: TaskKey,
    pub(super) due_at: Wall,
    pub(super) appended: Wall,
    /// With the payload inline.
    pub(super) content: Arc<TaskContent>,
    /// As stored: a large payload apart.
    pub(super) stored: Arc<TaskContent>,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) record: Incoming,
    key: Option<TaskKey>,
    /// An owner before may have decided it.
    may_be_replayed: bool,
    pub(super) rejection: Option<Rejection>,
    pub(super) forward_to: Option<Shard>,
    pub(super) task: Option<ShownTask>,
    pub(super) mark: Option<(Place, MarkKind)>,
}

impl Item {
    fn of(record: Incoming, ground: &Ground) -> Item {
        let may_be_replayed = record.offset < ground.decided_to;
        let (rejection, forward_to) = (None, None);
        let mut item =
            Item { record, key: None, may_be_replayed, rejection, forward_to, task: None, mark: None };
        let (event, origin) = match &item.record.decoded {
            Ok(decoded) => decoded,
            Err(rejection) => {
                item.rejection = Some(rejection.clone());
                return item;
            }
        };
        let at = match origin {
            Some(origin) => {
                Coordinates { generation: origin.generation, shard: origin.shard, offset: origin.offset }
            }
            None => {
                Coordinates { generation: ground.generation, shard: ground.shard, offset: item.record.offset }
            }
        };
        let key = key_of(event, &at, ground.shards);
        let home = home_shard(&key.queue, ground.shards);
        if home != ground.shard && origin.is_some() {
            let detail = format!("forwarded to shard {}, but its home is {}", ground.shard.0, home.0);
            item.rejection = Some(Rejection { reason: RejectReason::Misrouted, detail });
        } else if home != ground.shard {
            item.forward_to = Some(home);
        }
        item.key = Some(key);
        item
    }

    pub(super) fn origin(&self) -> Option<Origin> {
        self.record.decoded.as_ref().ok().and_then(|(_, origin)| *origin)
    }

    pub(super) fn event_and_key(&self) -> (&Event, &TaskKey) {
        let event = self
            .record
            .decoded
            .as_ref()
            .map(|(event, _)| event)
            .expect("an item that is decided is an event");
        (event, self.key.as_ref().expect("an event has a key"))
    }

    /// The key to look up. Of an id that is made from the record's own coordinates nothing is on record but an earlier
    /// decision of this event: it may have another place than would be chosen now.
    fn lookup_key(&self) -> Option<&TaskKey> {
        let (event, _) = self.record.decoded.as_ref().ok()?;
        let settled = self.rejection.is_some() || self.forward_to.is_some();
        self.key.as_ref().filter(|_| !settled && (event.id.is_some() || self.may_be_replayed))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupState {
    Out,
    Retry(Boot),
    Done,
}

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) id: u64,
    pub(super) items: Vec<Item>,
    /// Index of the item to be decided next.
    pub(super) next: usize,
    pub(super) lookup: LookupState,
    lookups: Vec<KeyLookup>,
    found: BTreeMap<TaskKey, Vec<EventRow>>,
    /// The last batch that was visible when the look-up was sent.
    pub(super) sent_after: u64,
    pub(super) waits_for: Option<Need>,
    pub(super) need_at: Option<Boot>,
    /// The place waited for was stored after it was asked for: the answer may not know of it.
    pub(super) read_again: bool,
    pub(super) facts: BTreeMap<Place, Vec<FactRow>>,
    pub(super) payloads: BTreeMap<Place, Arc<[u8]>>,
    event_rows: Vec<Row>,
    other_rows: Vec<Row>,
    /// Marks on tasks that another takes the place of: written when the store has taken the other.
    last_rows: Vec<Row>,
    /// What counts only with its mark: written when the marks are on record. Else an owner who cannot read the log, and sees
    /// no mark, would start a task although the answer on record says that it is cancelled, replaced or moved.
    after_marks: Vec<Row>,
    lifted: bool,
    groups: Option<VecDeque<Vec<Row>>>,
    pub(super) writing: bool,
    /// Records to be acknowledged by the log, by offset; a rejection, or `None` for a forward.
    pub(super) produces: BTreeMap<u64, Option<Rejection>>,
    pub(super) produce_retries: BTreeMap<u64, Boot>,
}

impl Batch {
    pub(super) fn form(id: u64, inbox: &mut VecDeque<Incoming>, ground: &Ground, sent_after: u64) -> Batch {
        let mut items: Vec<Item> = Vec::new();
        let mut counts: BTreeMap<TaskKey, usize> = BTreeMap::new();
        while items.len() < limits::INTAKE_BATCH_RECORDS_MAX {
            let Some(record) = inbox.pop_front() else { break };
            let item = Item::of(record, ground);
            if let Some(key) = item.lookup_key() {
                let count = counts.entry(key.clone()).or_insert(0);
                *count += 1;
                if *count > limits::INTAKE_BATCH_SAME_ID_MAX {
                    inbox.push_front(item.record);
                    break;
                }
            }
            items.push(item);
        }
        let version = |item: &Item| Version::new(ground.generation, item.record.offset);
        let (first, last) = (version(&items[0]), version(&items[items.len() - 1]));
        let lookups: Vec<KeyLookup> = counts.into_keys().map(|key| KeyLookup { key, first, last }).collect();
        let lookup = if lookups.is_empty() { LookupState::Done } else { LookupState::Out };
        Batch {
            id,
            items,
            next: 0,
            lookup,
            lookups,
            found: BTreeMap::new(),
            sent_after,
            waits_for: None,
            need_at: None,
            read_again: false,
            facts: BTreeMap::new(),
            payloads: BTreeMap::new(),
            event_rows: Vec::new(),
            other_rows: Vec::new(),
            last_rows: Vec::new(),
            after_marks: Vec::new(),
            lifted: false,
            groups: None,
            writing: false,
            produces: BTreeMap::new(),
            produce_retries: BTreeMap::new(),
        }
    }

    pub(super) fn lookups(&self) -> Vec<KeyLookup> {
        self.lookups.clone()
    }

    pub(super) fn found(&mut self, rows: Vec<Vec<EventRow>>) {
        let keys = std::mem::take(&mut self.lookups).into_iter().map(|lookup| lookup.key);
        self.found = keys.zip(rows).collect();
        self.lookup = LookupState::Done;
    }

    pub(super) fn next_retry(&self) -> Option<Boot> {
        let lookup = match self.lookup {
            LookupState::Retry(at) => Some(at),
            LookupState::Out | LookupState::Done => None,
        };
        self.produce_retries.values().copied().chain(lookup).chain(self.need_at).min()
    }

    /// Whether something failed and waits to be asked again.
    pub(super) fn waits_for_store(&self) -> bool {
        matches!(self.lookup, LookupState::Retry(_)) || self.need_at.is_some()
    }

    /// What could not be read and is due to be read again.
    pub(super) fn need_again(&mut self, now: Boot) -> Option<Need> {
        self.need_at.take_if(|at| *at <= now)?;
        self.waits_for
    }

    /// What failed and is due to be asked again.
    pub(super) fn retries(&mut self, now: Boot) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let LookupState::Retry(at) = self.lookup
            && at <= now
        {
            self.lookup = LookupState::Out;
            effects.push(Effect::LookUp(self.id, self.lookups.clone()));
        }
        let due: Vec<u64> =
            self.produce_retries.iter().filter(|(_, at)| **at <= now).map(|(offset, _)| *offset).collect();
        for offset in due {
            self.produce_retries.remove(&offset);
            let forward_to = self.forwards_to(offset);
            match (self.produces.get(&offset), forward_to) {
                (Some(Some(rejection)), _) => effects.push(Effect::Reject(offset, rejection.clone())),
                (Some(None), Some(to)) => effects.push(Effect::Forward(offset, to)),
                (Some(None), None) | (None, _) => {}
            }
        }
        effects
    }

    /// The home a misplaced record goes to.
    pub(super) fn forwards_to(&self, offset: u64) -> Option<Shard> {
        self.items.iter().find(|item| item.record.offset == offset).and_then(|item| item.forward_to)
    }

    pub(super) fn is_decided(&self) -> bool {
        self.next >= self.items.len()
    }

    pub(super) fn next_item(&self) -> &Item {
        &self.items[self.next]
    }

    /// The row of the event itself, from an earlier life.
    pub(super) fn recorded(&self, key: &TaskKey, version: Version) -> Option<&EventRow> {
        self.found.get(key)?.iter().find(|row| row.version == version)
    }

    /// Whether the next item's event may have been decided by an owner before: it is on record, or is of an id that is
    /// not looked up.
    pub(super) fn may_be_replayed(&self, version: Version) -> bool {
        let item = self.next_item();
        item.lookup_key().is_none_or(|key| self.recorded(key, version).is_some())
    }

    /// A task became visible: what was read of it before is out of date.
    pub(super) fn forget_facts(&mut self, place: Place) {
        self.facts.remove(&place);
        self.read_again |= self.waits_for == Some(Need::Facts(place));
    }

    pub(super) fn newest_below(&self, key: &TaskKey, version: Version) -> Option<&EventRow> {
        self.found.get(key)?.iter().find(|row| row.version < version)
    }

    /// Notes what the next item does, and gathers its rows.
    pub(super) fn carry_out(&mut self, version: Version, plan: Plan, epoch: Epoch, shard: Shard) -> EventRow {
        let item = &self.items[self.next];
        let recorded = self.recorded(item.event_and_key().1, version).cloned();
        let row = recorded.unwrap_or_else(|| rows::event_row(item, version, &plan, epoch, shard));
        self.lifted |= plan.lifted;
        let mark = plan.mark.map(|(place, mark)| rows::mark_row(shard, place, version, mark));
        let task = plan.task.and_then(|task| {
            let content = task.content?;
            let appended = item.origin().map_or(item.record.appended, |origin| origin.appended);
            let stored = rows::stored_content(&content);
            Some(ShownTask {
                place: task.place,
                key: row.key.clone(),
                due_at: task.due_at,
                appended,
                content,
                stored,
            })
        });
        let task_rows = task.as_ref().map(|task| rows::task_rows(shard, task)).unwrap_or_default();
        let moved = plan.mark.is_some_and(|(_, kind)| kind == MarkKind::Rescheduled) && !plan.lifted;
        // The store has taken what is moved before: its mark may come first. Other tasks have to be taken before they stop
        // one. A place that was lifted is recorded before all else.
        let (tasks, marks) = match (&task, moved) {
            (Some(_), true) => (&mut self.after_marks, &mut self.other_rows),
            (Some(_), false) => (&mut self.other_rows, &mut self.last_rows),
            (None, _) => (&mut self.after_marks, &mut self.other_rows),
        };
        tasks.extend(task_rows);
        let is_marked = mark.is_some() && !plan.lifted;
        marks.extend(mark);
        let events = if is_marked { &mut self.after_marks } else { &mut self.event_rows };
        events.push(Row::Event(row.clone()));
        let item = &mut self.items[self.next];
        item.task = task;
        item.mark = plan.mark;
        row
    }

    pub(super) fn overlay_keys(&self) -> Vec<TaskKey> {
        self.items.iter().filter_map(|item| item.key.clone()).collect()
    }

    /// The rows to be written next: all at once, but events first when a place was lifted, and marks
    /// before what counts only with them.
    pub(super) fn take_group(&mut self) -> Option<Vec<Row>> {
        let (events, others) = (&mut self.event_rows, &mut self.other_rows);
        let lifted = self.lifted;
        let groups = self.groups.get_or_insert_with(|| {
            let (events, mut others) = (std::mem::take(events), std::mem::take(others));
            if lifted {
                return in_requests(&events).chain(in_requests(&others)).collect();
            }
            others.extend(events);
            in_requests(&others).collect()
        });
        loop {
            while let Some(rows) = groups.pop_front() {
                if !rows.is_empty() {
                    self.writing = true;
                    return Some(rows);
                }
            }
            let next = [&mut self.last_rows, &mut self.after_marks].into_iter().find(|rows| !rows.is_empty());
            groups.extend(in_requests(&std::mem::take(next?)));
        }
    }

    /// The store does not take a row of an event: the others that wait are not sent, and what its task would have taken the
    /// place of stays.
    pub(super) fn forget_rows(&mut self, version: Version) {
        let others = |row: &Row| rows::version_of(row) != version;
        self.last_rows.retain(others);
        self.after_marks.retain(others);
        self.groups.iter_mut().flatten().for_each(|rows| rows.retain(others));
    }

    /// Whether a row is of an event with a mark that was sent in an earlier request.
    pub(super) fn mark_is_out(&self, row: &Row) -> bool {
        let version = rows::version_of(row);
        let is_mark = |row: &Row| rows::is_mark(row) && rows::version_of(row) == version;
        let waiting = self.groups.iter().flatten().flatten().chain(&self.other_rows).chain(&self.last_rows);
        let has_mark = |item: &Item| item.record.offset == version.offset() && item.mark.is_some();
        !is_mark(row) && self.items.iter().any(has_mark) && !waiting.into_iter().any(is_mark)
    }

    pub(super) fn put_back(&mut self, rows: Vec<Row>) {
        self.writing = false;
        self.groups.get_or_insert_default().push_front(rows);
    }

    pub(super) fn is_complete(&self) -> bool {
        let last = self.last_rows.is_empty() && self.after_marks.is_empty();
        let sent = self.groups.as_ref().is_some_and(VecDeque::is_empty) && last;
        let written = sent && !self.writing;
        self.is_decided() && (written || planted!(CommitBeforeAck)) && self.produces.is_empty()
    }
}

fn in_requests(rows: &[Row]) -> impl Iterator<Item = Vec<Row>> {
    rows.chunks(limits::WRITE_ROWS_MAX).map(<[Row]>::to_vec)
}
