//! Late queues: those with ready tasks that are neither in memory nor above the watermark, known by pointers.
//!
//! ```text
//!   in memory (some of them with a pointer)      known, facts not read       not read yet
//!   ──────────────────────────────────────────┬──────────────────────────┬──────────────────►  (due time, version)
//!          head only if nothing lies before    first page of pointers      `unread`
//! ```
//!
//! A pointer is written for two reasons: a queue has more ready tasks than stay in memory, or too many rows lie above the
//! watermark. Acknowledged, it lets the task leave memory and the watermark pass. It says nothing of the task: facts are
//! read before a task comes back, so a pointer of a lost owner costs one read.
//!
//! What must hold: every unfinished task before the cursor is in memory or has a stored pointer that this page knows or
//! that lies at `unread` or after; and a task that the watermark passed has a pointer that its queue's newest row in the
//! list of late queues does not lie after. An attempt under way may be one that the watermark passed, with tasks that came
//! later standing before it: the list names it, and a new owner reads it before anything of the queue starts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::model::{Boot, Place, Pointer, PointerRow, QueueName, Row, Standing, Wall, limits};

use super::Engine;
use super::outbox::Gone;
use super::queue::Queue;
use super::window::{Status, Written};
use super::writes::Purpose;

pub(super) mod list;
mod read;
mod tally;

use list::List;
use read::Read;
use tally::Tally;

/// Ends of tasks with a pointer after which the list is told where the queue's pointers begin now.
const ENDS_PER_ROW: u32 = 100;
/// A queue whose call is at work for so long, in milliseconds, is as good as blocked when memory is short.
const SLOW_MS: u64 = 1_000;
/// Time between two looks for tasks behind blocked heads, in milliseconds.
const PRESS_MS: u64 = 100;
/// Time after which is looked again although nothing happened, in milliseconds.
const LOOK_MS: u64 = 250;

/// The late queues of a shard.
#[derive(Debug, Default)]
pub(super) struct Late {
    queues: BTreeMap<QueueName, LateQueue>,
    /// Queues that need to read on, in the order they came to need it.
    hungry: VecDeque<QueueName>,
    /// Queues that may have more in memory than stays there.
    overfull: BTreeSet<QueueName>,
    /// Tasks in memory whose pointer is being written.
    asking: BTreeSet<Place>,
    reads: BTreeMap<u64, Read>,
    retry_at: Option<Boot>,
    /// Blocked queues are looked through now and then only.
    press_at: Boot,
    /// When to look again although nothing happened.
    pub(super) look_at: Boot,
    pub(super) list: List,
    pub(super) tally: Tally,
}

/// One late queue.
#[derive(Debug, Default)]
struct LateQueue {
    opened: Wall,
    /// Tasks in memory that have a pointer, or whose pointer is being written.
    held: BTreeSet<Pointer>,
    /// Pointers read, tasks not.
    known: BTreeSet<Pointer>,
    /// Of an owner before: may have an attempt open although they do not stand first. Read before anything starts.
    named: BTreeSet<Pointer>,
    /// Of an owner before: the first task below this watermark may have an attempt open, and was not read yet.
    unseen_to: Option<Wall>,
    /// The least task below that watermark that came back unfinished. It is that first one when nothing before it is
    /// left to be read: tasks that are named, or were read side by side, may come back before it.
    found: Option<Standing>,
    /// The first pointer that was passed over in search of that task: read again from here.
    passed: Option<Standing>,
    /// Pointers whose tasks are being read.
    fetching: BTreeSet<Pointer>,
    /// Pointers from here on are to be read; `None` = none are left.
    unread: Option<Standing>,
    /// A page is being read; what left memory meanwhile is not known by it.
    page: Option<Page>,
    listed: Option<Listed>,
    ends: u32,
    is_hungry: bool,
}

#[derive(Debug, Default)]
struct Page {
    left: Option<Standing>,
}

/// The newest row of a queue in the list.
#[derive(Clone, Debug)]
struct Listed {
    seq: u64,
    from: Standing,
    under_way: BTreeSet<Pointer>,
    acknowledged: bool,
}

impl LateQueue {
    /// No pointer to an unfinished task lies before this; `None` = there is none at all.
    fn least(&self) -> Option<Standing> {
        let held = self.held.first().map(Pointer::standing);
        held.into_iter().chain(self.first_elsewhere()).chain(self.passed).min()
    }

    /// Whether an attempt of an owner before may be open that is not known yet: then nothing starts.
    fn is_closed(&self) -> bool {
        !self.named.is_empty() || self.unseen_to.is_some()
    }

    /// What may have been open behind others was read, or there is nothing: reads on from the first that was passed over.
    fn open_up(&mut self) {
        (self.unseen_to, self.found) = (None, None);
        let Some(passed) = self.passed.take() else { return };
        self.known.retain(|pointer| pointer.standing() < passed);
        self.unread = Some(self.unread.map_or(passed, |unread| unread.min(passed)));
    }

    fn open_up_when_read(&mut self) {
        let fetching = self.fetching.first().map(Pointer::standing);
        let known = self.known.first().map(Pointer::standing);
        let left = fetching.into_iter().chain(known).chain(self.unread).min();
        let is_first = left.is_none_or(|left| self.found.is_some_and(|found| found <= left));
        if self.unseen_to.is_some() && self.page.is_none() && is_first {
            self.open_up();
        }
    }

    /// What is named and not being read.
    fn named_to_read(&self) -> impl Iterator<Item = &Pointer> {
        self.named.iter().filter(|pointer| !self.fetching.contains(pointer))
    }

    /// A head in memory must lie before this.
    fn barrier(&self) -> Option<Standing> {
        if self.is_closed() {
            return Some(Standing::MIN);
        }
        self.first_elsewhere()
    }

    /// Where the first pointer to a task that is not in memory lies.
    fn first_elsewhere(&self) -> Option<Standing> {
        self.next_read().into_iter().chain(self.fetching.first().map(Pointer::standing)).min()
    }

    /// What would be read next.
    fn next_read(&self) -> Option<Standing> {
        let pointers = self.known.first().into_iter().chain(self.named_to_read().next());
        pointers.map(Pointer::standing).chain(self.unread).min()
    }

    fn leaves(&mut self, pointer: &Pointer) {
        let standing = pointer.standing();
        self.held.remove(pointer);
        self.known.split_off(pointer);
        self.unread = Some(self.unread.map_or(standing, |unread| unread.min(standing)));
        if let Some(page) = &mut self.page {
            page.left = Some(page.left.map_or(standing, |left| left.min(standing)));
        }
    }
}

impl Late {
    /// Whether a queue has tasks that may not be in memory.
    pub(super) fn has(&self, queue: &QueueName) -> bool {
        self.queues.contains_key(queue)
    }

    /// Whether everything known by pointer was read, at least once.
    pub(super) fn is_all_read(&self) -> bool {
        let is_read = |late: &LateQueue| late.first_elsewhere().is_none() && late.passed.is_none();
        self.list.is_read() && self.queues.values().all(is_read)
    }

    /// A pointer that is being written says nothing any more.
    pub(super) fn asks_no_more(&mut self, place: Place) {
        self.asking.remove(&place);
    }

    /// Number of late queues.
    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    /// A head of `queue` in memory must lie before this to be the head.
    pub(super) fn barrier(&self, queue: &QueueName) -> Option<Standing> {
        self.queues.get(queue).and_then(LateQueue::barrier)
    }

    /// Whether an attempt of an owner before may be open in a queue that is not known yet. No row of the list that
    /// begins earlier may be written then: the next owner would look for that attempt behind what begins the row.
    fn is_closed(&self, queue: &QueueName) -> bool {
        self.queues.get(queue).is_some_and(LateQueue::is_closed)
    }

    /// Whether pointers are being written: room in memory is on its way.
    pub(super) fn is_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    pub(super) fn note_overfull(&mut self, queue: &QueueName) {
        self.overfull.insert(queue.clone());
    }

    pub(super) fn next_retry(&self) -> Option<Boot> {
        self.retry_at
    }
}

impl Engine {
    /// Brings down what exceeds memory's share of each queue, reads on where queues need it, keeps the list short.
    pub(super) fn drive_late(&mut self) {
        for name in std::mem::take(&mut self.late.overfull) {
            self.trim(&name, self.options.queue_tasks_max.max(1));
        }
        self.feed();
        self.roll_when_long();
    }

    /// Tasks of a queue beyond the first `max` get a pointer, and leave memory when they have one.
    fn trim(&mut self, name: &QueueName, max: usize) -> bool {
        if self.late.is_closed(name) {
            return false;
        }
        let Some(queue) = self.queues.by_name.get(name) else { return false };
        let (candidate, excess) = (queue.candidate, queue.places().skip(max).collect::<Vec<_>>());
        let mut changed = false;
        for place in excess.into_iter().rev() {
            let Some(task) = self.window.get(place) else { continue };
            let idle = task.status == Status::Queued && task.mark.is_none() && candidate != Some(place);
            if !idle || !self.window.covers(place) {
                continue;
            }
            match task.pointer {
                Written::No => self.point(place),
                Written::Asked(_) => continue,
                Written::Yes => self.leave(place),
            }
            changed = true;
        }
        if changed {
            self.pump(name);
        }
        changed
    }

    /// The tasks behind blocked heads make room. False when there are none.
    pub(super) fn press(&mut self) -> bool {
        if self.now.boot < self.late.press_at {
            return false;
        }
        self.late.press_at = self.now.boot.plus_ms(PRESS_MS);
        let slow = self.attempts.at_work_since(Boot(self.now.boot.0.saturating_sub(SLOW_MS)));
        let waits = |queue: &Queue| self.is_blocked(queue) || queue.busy.iter().any(|at| slow.contains(at));
        let blocked = |(_, queue): &(&QueueName, &Queue)| queue.len() > 1 && waits(queue);
        let names: Vec<QueueName> =
            self.queues.by_name.iter().filter(blocked).map(|(name, _)| name.clone()).collect();
        let mut changed = false;
        for name in &names {
            changed |= self.trim(name, 1);
        }
        self.late.look_at = self.now.boot.plus_ms(if changed { PRESS_MS } else { LOOK_MS });
        changed
    }

    /// Whether a queue waits for a next try, for the deadline of an attempt without an answer, or at a gate.
    fn is_blocked(&self, queue: &Queue) -> bool {
        let held = |place: &Place| self.window.get(*place).is_some_and(|task| task.status == Status::Held);
        queue.backoff.is_some() || queue.is_at_gate() || queue.busy.iter().any(held)
    }

    /// Writes a pointer to a task in memory, and tells the list unless it knows.
    pub(super) fn point(&mut self, place: Place) {
        let (asked, opened, shard) = (self.ticket(), self.now.wall, self.options.shard);
        let Some(task) = self.window.get_mut(place).filter(|task| task.pointer == Written::No) else {
            return;
        };
        if self.late.is_closed(&task.key.queue) {
            return;
        }
        task.pointer = Written::Asked(asked);
        let (queue, pointer) = (task.key.queue.clone(), Pointer::of(task.due_at, place));
        self.late.asking.insert(place);
        let late = self
            .late
            .queues
            .entry(queue.clone())
            .or_insert_with(|| LateQueue { opened, ..LateQueue::default() });
        late.held.insert(pointer);
        let (opened, under_way) = (late.opened, self.under_way(&queue));
        let says_it = |listed: &&Listed| {
            let begins_before = listed.from <= pointer.standing() || planted!(LateListBeginsLate);
            begins_before && (listed.under_way.is_superset(&under_way) || planted!(UnderWayNotNamed))
        };
        let known = self.late.queues.get(&queue).and_then(|late| late.listed.as_ref()).filter(says_it);
        let known = known.map(|listed| (listed.seq, listed.acknowledged));
        let (listed, row) = match known {
            Some((_, true)) => (None, None),
            Some((seq, false)) => (Some(seq), self.list_again(&queue)),
            None => {
                let (seq, row) = self.list(&queue);
                (Some(seq), Some(row))
            }
        };
        let mut rows: Vec<Row> = row.into_iter().collect();
        rows.push(Row::Pointer(PointerRow { shard, queue, opened, pointer }));
        self.writes.push_all(rows, Purpose::Pointed { place, asked, listed });
    }

    /// A pointer is stored, and the list's row that came with it.
    pub(super) fn pointed(&mut self, place: Place, asked: u64, listed: Option<u64>) {
        if let Some(seq) = listed {
            self.listed(seq);
        }
        let Some(task) = self.window.get_mut(place).filter(|task| task.pointer == Written::Asked(asked))
        else {
            return;
        };
        task.pointer = Written::Yes;
        let queue = task.key.queue.clone();
        self.late.asking.remove(&place);
        self.late.overfull.insert(queue);
    }

    /// Takes a task with a stored pointer out of memory: it is read again when its turn is near.
    fn leave(&mut self, place: Place) {
        let Some(task) = self.window.drop_task(place) else { return };
        if let Some(queue) = self.queues.by_name.get_mut(&task.key.queue) {
            queue.remove(task.due_at, place);
        }
        if let Some(late) = self.late.queues.get_mut(&task.key.queue) {
            late.leaves(&Pointer::of(task.due_at, place));
        }
        self.forget_facts(place);
    }

    /// A task came into memory on any way: a pointer to it needs no reading.
    pub(super) fn came(&mut self, place: Place) {
        let Some(task) = self.window.get(place) else { return };
        let Some(late) = self.late.queues.get_mut(&task.key.queue) else { return };
        let pointer = Pointer::of(task.due_at, place);
        let known = late.known.remove(&pointer) | late.named.remove(&pointer);
        let fetching = late.fetching.remove(&pointer);
        let queue = task.key.queue.clone();
        if fetching {
            self.late.reads.retain(|_, read| !read.is_of(place));
        }
        if known || fetching {
            self.settle_late(&queue);
        }
    }

    /// A task left memory for good, or is to be loaded again.
    pub(super) fn went(&mut self, place: Place, gone: &Gone, ended: bool) {
        self.forget_facts(place);
        if gone.pointer == Written::No {
            return;
        }
        self.late.asking.remove(&place);
        if let Some(late) = self.late.queues.get_mut(&gone.queue) {
            late.held.remove(&Pointer::of(gone.due_at, place));
            late.ends += u32::from(ended);
        }
        self.settle_late(&gone.queue);
    }

    /// Tells the list when a queue is late no more, and now and then how far it has come.
    fn settle_late(&mut self, name: &QueueName) {
        let Some(late) = self.late.queues.get_mut(name) else { return };
        late.open_up_when_read();
        let least = late.least();
        let moved = late.listed.as_ref().zip(least).is_some_and(|(listed, least)| least > listed.from);
        if least.is_some() && (late.ends < ENDS_PER_ROW || !moved) {
            return;
        }
        late.ends = 0;
        let (seq, row) = self.list(name);
        self.writes.push(row, Purpose::Listed(seq));
        if least.is_none() {
            self.late.queues.remove(name);
        }
    }

    /// Gives tasks that have been ready for long a pointer when too many rows lie above the watermark.
    pub(super) fn point_old(&mut self) {
        let now = self.now.wall;
        self.late.tally.forget_to(self.commit.watermark());
        let Some(to) = self.late.tally.excess(now, self.options.late_rows) else { return };
        let to = to.min(now.plus_ms(-self.options.late_after_ms));
        for place in self.window.without_pointer(to, limits::LATE_POINTERS_MAX) {
            self.point(place);
        }
    }
}
