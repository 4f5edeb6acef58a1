//! The list of late queues: one row when a queue becomes late, when its pointers begin elsewhere, when it is late no more.
//!
//! An owner writes segments of its own epoch only. The progress row names the segment that counts, together with the
//! watermark that rests on it, so what a lost owner still writes is read by nobody. A new segment begins with a copy of
//! what is late, at a takeover and when most rows of the old one are out of date; while the copies are on their way the
//! watermark stands still. A new owner starts nothing before its own segment counts: else a row of the owner before could
//! say that something is finished which was started again.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{LateEntry, LateQueueRow, Pointer, QueueName, Row, Segment};

use super::super::effect::Effect;
use super::super::input::Failure;
use super::super::window::Written;
use super::super::writes::Purpose;
use super::super::{Engine, Stage};
use super::{LateQueue, Listed};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reading {
    #[default]
    NotYet,
    Asked(u64),
    Done,
}

/// The list as its owner writes it.
#[derive(Debug, Default)]
pub(in crate::engine) struct List {
    reading: Reading,
    segment: Segment,
    /// Rows written to the segment.
    rows: usize,
    /// Sequence numbers of copies that are not acknowledged.
    copies: BTreeSet<u64>,
    /// The queues of rows that are not acknowledged, by sequence number.
    writing: BTreeMap<u64, QueueName>,
    /// Queues were late at the takeover, and the progress row does not name the own segment yet.
    inherited: bool,
}

impl List {
    /// What a progress row is to name.
    pub(in crate::engine) fn to_name(&self) -> Option<Segment> {
        (self.rows > 0).then_some(self.segment)
    }

    /// Whether the watermark may rest on the segment: all of it that is needed is stored.
    pub(in crate::engine) fn is_whole(&self) -> bool {
        self.reading == Reading::Done && self.copies.is_empty()
    }

    /// Whether the list was read.
    pub(in crate::engine) fn is_read(&self) -> bool {
        self.reading == Reading::Done
    }

    /// Whether nothing of the owner before counts any more.
    pub(in crate::engine) fn is_own(&self) -> bool {
        self.reading == Reading::Done && (!self.inherited || planted!(StartBeforeOwnList))
    }

    /// A progress row that names this segment is durable. A segment without a row is not named at all: then none counts.
    pub(in crate::engine) fn named(&mut self, segment: Option<Segment>) {
        self.inherited &= segment.is_some_and(|segment| segment.epoch != self.segment.epoch);
    }
}

impl Engine {
    /// Reads the list that the progress row names. True when it has been read.
    pub(in crate::engine) fn list_is_read(&mut self) -> bool {
        match (self.late.list.reading, self.commit.late()) {
            (Reading::Done, _) => return true,
            (Reading::Asked(_), _) => {}
            (Reading::NotYet, Some(segment)) => {
                let ticket = self.ticket();
                self.late.list.reading = Reading::Asked(ticket);
                self.effects.push_back(Effect::ReadLateQueues(ticket, segment));
            }
            (Reading::NotYet, None) => self.begin_list(Vec::new()),
        }
        self.late.list.is_read()
    }

    pub(in crate::engine) fn late_queues_read(
        &mut self,
        ticket: u64,
        read: Result<Vec<LateQueueRow>, Failure>,
    ) {
        if self.stage != Stage::Loading || self.late.list.reading != Reading::Asked(ticket) {
            return;
        }
        match read {
            Ok(rows) => self.begin_list(rows),
            Err(failure) => {
                self.late.list.reading = Reading::NotYet;
                self.trouble("late queues read", &failure);
                self.retry_load();
            }
        }
    }

    /// Begins the own list with what was late before.
    fn begin_list(&mut self, mut rows: Vec<LateQueueRow>) {
        if planted!(LateQueueForgotten) {
            rows.clear();
        }
        rows.sort_by_key(|row| row.seq);
        let newest: BTreeMap<QueueName, Option<LateEntry>> =
            rows.into_iter().map(|row| (row.queue, row.entry)).collect();
        for (queue, entry) in newest {
            let Some(LateEntry { opened, from, under_way }) = entry else { continue };
            let late = LateQueue {
                opened,
                unread: Some(from),
                named: under_way.into_iter().filter(|at| self.window.covers(at.place())).collect(),
                unseen_to: Some(self.commit.watermark()),
                ..LateQueue::default()
            };
            let late = if planted!(OpenBehindNotRead) {
                LateQueue { named: BTreeSet::new(), unseen_to: None, ..late }
            } else {
                late
            };
            self.late.queues.insert(queue, late);
        }
        self.late.list.reading = Reading::Done;
        self.late.list.inherited = !self.late.queues.is_empty();
        self.copy_list(Segment { epoch: self.epoch(), number: 0 });
        let names: Vec<QueueName> = self.late.queues.keys().cloned().collect();
        names.iter().for_each(|name| self.pump(name));
    }

    /// Begins a new segment when most rows of this one are out of date.
    pub(in crate::engine) fn roll_when_long(&mut self) {
        let list = &self.late.list;
        let long = list.rows > 2 * self.late.queues.len() + (self.options.late_rows / 20).max(4);
        if long && list.is_whole() {
            self.copy_list(Segment { number: list.segment.number + 1, ..list.segment });
        }
    }

    fn copy_list(&mut self, segment: Segment) {
        self.late.list.segment = segment;
        self.late.list.rows = 0;
        let names: Vec<QueueName> = self.late.queues.keys().cloned().collect();
        for name in names {
            let (seq, row) = self.list(&name);
            self.late.list.copies.insert(seq);
            self.writes.push(row, Purpose::Listed(seq));
        }
    }

    /// A new row of a late queue: from where its pointers are to be read now.
    pub(super) fn list(&mut self, name: &QueueName) -> (u64, Row) {
        let (seq, under_way) = (self.ticket(), self.under_way(name));
        let late = self.late.queues.get_mut(name).expect("a queue that is listed is late");
        late.listed = late.least().map(|from| Listed { seq, from, under_way, acknowledged: false });
        self.late.list.rows += 1;
        self.late.list.writing.insert(seq, name.clone());
        (seq, self.row_of(name, seq))
    }

    /// The tasks of a late queue that a new owner has to read before anything starts, although they do not stand first.
    pub(super) fn under_way(&self, name: &QueueName) -> BTreeSet<Pointer> {
        let (queue, late) = (self.queues.by_name.get(name), self.late.queues.get(name));
        let Some(least) = late.and_then(LateQueue::least) else { return BTreeSet::new() };
        let busy = queue.into_iter().flat_map(|queue| queue.busy.iter()).filter_map(|place| {
            let task = self.window.get(*place).filter(|task| task.pointer != Written::No)?;
            Some(Pointer::of(task.due_at, *place)).filter(|pointer| pointer.standing() > least)
        });
        busy.chain(late.into_iter().flat_map(|late| late.named.iter().copied())).collect()
    }

    /// The newest row of a late queue again, the same.
    pub(super) fn list_again(&self, name: &QueueName) -> Option<Row> {
        let seq = self.late.queues.get(name)?.listed.as_ref()?.seq;
        Some(self.row_of(name, seq))
    }

    fn row_of(&self, name: &QueueName, seq: u64) -> Row {
        let listed = self.late.queues.get(name).and_then(|late| Some((late.opened, late.listed.as_ref()?)));
        let entry = listed.map(|(opened, listed)| LateEntry {
            opened,
            from: listed.from,
            under_way: listed.under_way.iter().copied().collect(),
        });
        let (shard, segment) = (self.options.shard, self.late.list.segment);
        Row::LateQueue(LateQueueRow { shard, segment, seq, queue: name.clone(), entry })
    }

    /// A row of the list is stored.
    pub(in crate::engine) fn listed(&mut self, seq: u64) {
        let Some(name) = self.late.list.writing.remove(&seq) else { return };
        self.late.list.copies.remove(&seq);
        let listed = self.late.queues.get_mut(&name).and_then(|late| late.listed.as_mut());
        if let Some(listed) = listed.filter(|listed| listed.seq == seq) {
            listed.acknowledged = true;
        }
    }
}
