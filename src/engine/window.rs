//! The tasks held in memory: all unfinished ones before `cursor` but those known by pointer (`late`), none after it.
//!
//! ```text
//!   watermark          now            cursor            horizon = now + look-ahead
//!   ────┼───────────────┼───────────────┼───────────────────┼──────────►  place (ready time, version)
//!       all finished    ready, in their  pending, loaded     stays in the store
//! ```
//!
//! The loader moves `cursor` up to the horizon, a page at a time, and takes in no more of a page than fits: what it took in
//! is never given back for its own sake, so that each page brings it on. When the shard's budget is exceeded by what
//! else comes, tasks are evicted from the far end and `cursor` moves down: what is evicted is loaded again later. A budget is counted in
//! units: one per task and one more per KiB of payload. A task that is under way stays in memory beyond the cursor too,
//! but nothing starts from there: a task before it may still have to be read.
//!
//! While a page is being read, what finishes, is superseded or becomes visible in its range is noted and folded over it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{Fact, FactRow, MarkKind, Payload, Place, QueueName, TaskContent, TaskKey, Wall};

use super::fold::{Counts, Next};
use super::load::LoadedTask;
use super::map::{self, Map};

/// Where a task in memory stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Not ready yet.
    Pending,
    /// In its queue, waiting for its turn or its next try.
    Queued,
    /// It failed and waits aside for its next try: in no queue.
    Parked,
    /// Its turn; its payload is being read.
    Fetching,
    /// Its start is being written.
    Starting,
    /// Its call is under way.
    Running,
    /// Its end is being written.
    Ending,
    /// An attempt was broken off or its owner lost: waits until its deadline.
    Held,
}

impl Status {
    /// Whether an attempt is open, or about to be.
    pub(super) fn is_under_way(self) -> bool {
        matches!(self, Status::Starting | Status::Running | Status::Ending | Status::Held)
    }
}

/// Whether a task has a pointer in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    No,
    /// It is being written, under this ticket.
    Asked(u64),
    Yes,
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) key: TaskKey,
    pub(super) due_at: Wall,
    pub(super) content: Arc<TaskContent>,
    pub(super) counts: Counts,
    pub(super) status: Status,
    /// Forbids further attempts.
    pub(super) mark: Option<MarkKind>,
    /// With a stored pointer it may leave memory, and the watermark may pass it.
    pub(super) pointer: Written,
    /// It was late when it came in line for a slot.
    pub(super) is_late: bool,
}

impl Task {
    pub(super) fn units(&self) -> usize {
        match &self.content.payload {
            Payload::Inline(bytes) => 1 + bytes.len() / 1024,
            Payload::Stored(_) => 1,
        }
    }
}

/// A page being read.
#[derive(Debug)]
struct Reading {
    ticket: u64,
    to: Place,
    finished: BTreeSet<Place>,
    marks: BTreeMap<Place, MarkKind>,
    shown: BTreeMap<Place, (LoadedTask, Next)>,
}

#[derive(Debug)]
pub(super) struct Window {
    tasks: Map<Place, Task>,
    /// The places of all of them.
    order: BTreeSet<Place>,
    units: usize,
    budget: usize,
    cursor: Place,
    reading: Option<Reading>,
    /// Tasks before this are in their queues.
    ready_to: Place,
    /// What an owner before wrote about tasks whose event is not applied yet: folded when it is.
    early: BTreeMap<Place, Vec<Fact>>,
}

impl Window {
    pub(super) fn new(cursor: Place, budget: usize) -> Window {
        Window {
            tasks: Map::default(),
            order: BTreeSet::new(),
            units: 0,
            budget: budget.max(1),
            cursor,
            reading: None,
            ready_to: Place::start_of(Wall::MIN),
            early: BTreeMap::new(),
        }
    }

    pub(super) fn set_budget(&mut self, budget: usize) {
        self.budget = budget.max(1);
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn get(&self, place: Place) -> Option<&Task> {
        self.tasks.get(&place)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Task> {
        self.tasks.get_mut(&place)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Place, &Task)> {
        self.in_order(self.order.iter())
    }

    fn in_order<'a>(
        &'a self,
        places: impl DoubleEndedIterator<Item = &'a Place>,
    ) -> impl DoubleEndedIterator<Item = (&'a Place, &'a Task)> {
        places.map(|place| (place, &self.tasks[place]))
    }

    /// The handlers of tasks whose payload is being read: they hold a slot.
    pub(super) fn fetching(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values().filter(|task| task.status == Status::Fetching)
    }

    pub(super) fn cursor(&self) -> Place {
        self.cursor
    }

    /// Whether every unfinished task at `place` is known to be in memory.
    pub(super) fn covers(&self, place: Place) -> bool {
        place < self.cursor
    }

    /// Notes a task that became visible, for the page being read: nothing is taken in ahead of the cursor, or it could
    /// run before a task that is still to be loaded.
    pub(super) fn note_shown(&mut self, place: Place, task: LoadedTask, next: Next) {
        if let Some(reading) = &mut self.reading {
            reading.shown.insert(place, (task, next));
        }
    }

    /// Keeps the facts about attempts of a task whose event intake is still to bring.
    pub(super) fn keep_early(&mut self, place: Place, rows: &[FactRow]) {
        let of_owner = |fact: &Fact| !matches!(fact, Fact::Task { .. } | Fact::Superseded { .. });
        let facts: Vec<Fact> =
            rows.iter().map(|row| &row.fact).filter(|fact| of_owner(fact)).cloned().collect();
        if !facts.is_empty() {
            self.early.insert(place, facts);
        }
    }

    /// Whether anything of the kind is kept.
    pub(super) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    pub(super) fn early(&self, place: Place) -> Option<&[Fact]> {
        self.early.get(&place).map(Vec::as_slice)
    }

    pub(super) fn take_early(&mut self, place: Place) -> Vec<Fact> {
        self.early.remove(&place).unwrap_or_default()
    }

    /// The first place of an unfinished task in memory that has no stored pointer.
    pub(super) fn first_without_pointer(&self) -> Option<Place> {
        let asked_is_enough = planted!(PointerNotAwaited);
        let bare = |task: &Task| match task.pointer {
            Written::No => true,
            Written::Asked(_) => !asked_is_enough,
            Written::Yes => false,
        };
        self.iter().find(|(_, task)| bare(task)).map(|(place, _)| *place)
    }

    /// The first `max` tasks ready up to `to` that have no pointer.
    pub(super) fn without_pointer(&self, to: Wall, max: usize) -> Vec<Place> {
        let ready = self.order.range(..Place::start_of(to.plus_ms(1)).min(self.cursor));
        let ready = self.in_order(ready);
        let bare = ready.filter(|(_, task)| task.pointer == Written::No);
        bare.map(|(place, _)| *place).take(max).collect()
    }

    /// Puts a task into memory. True when it is ready at `now` or was before: it belongs into its queue.
    pub(super) fn insert(&mut self, place: Place, task: Task) -> bool {
        self.units += task.units();
        let old = self.tasks.insert(place, task);
        assert!(old.is_none(), "a place holds one task");
        self.order.insert(place);
        place < self.ready_to
    }

    fn take(&mut self, place: Place) -> Option<Task> {
        let task = map::take(&mut self.tasks, &place)?;
        self.order.remove(&place);
        self.units -= task.units();
        Some(task)
    }

    /// Takes a finished task out.
    pub(super) fn remove(&mut self, place: Place) -> Option<Task> {
        let task = self.take(place)?;
        if let Some(reading) = &mut self.reading {
            reading.finished.insert(place);
        }
        Some(task)
    }

    /// Takes a task out that is known by its pointer from now on.
    pub(super) fn drop_task(&mut self, place: Place) -> Option<Task> {
        assert!(self.covers(place), "what the loader is still to bring is evicted");
        self.take(place)
    }

    /// Notes a mark that became visible, for the page being read.
    pub(super) fn note_mark(&mut self, place: Place, mark: MarkKind) {
        if let Some(reading) = self.reading.as_mut().filter(|_| !planted!(CancelDuringLoadLost)) {
            reading.marks.insert(place, mark);
        }
    }

    /// The tasks that became ready by `now`, now to be put into their queues.
    pub(super) fn take_ready(&mut self, now: Wall) -> Vec<Place> {
        let end = Place::start_of(now.plus_ms(1));
        if end <= self.ready_to {
            return Vec::new();
        }
        let places = self.order.range(self.ready_to..end).copied().collect();
        self.ready_to = end;
        places
    }

    /// The tasks that become ready next, in this order.
    pub(super) fn coming(&self) -> impl Iterator<Item = Place> + '_ {
        self.order.range(self.ready_to..).copied()
    }

    /// When the next task becomes ready.
    pub(super) fn next_ready(&self) -> Option<Wall> {
        self.coming().next().map(|place| place.ready_at)
    }

    /// The idle task at the far end, while the budget is exceeded or it lies beyond the cursor. One that is under way
    /// stays in memory until it is idle again; one before the cursor with a pointer leaves by that. One that is so large
    /// that the loader would bring it again at once stays.
    pub(super) fn next_to_evict(&self) -> Option<Place> {
        if self.reading.is_some() {
            return None;
        }
        let idle =
            |task: &Task| matches!(task.status, Status::Pending | Status::Queued) && task.mark.is_none();
        let may_go =
            |place: Place, task: &Task| idle(task) && (task.pointer == Written::No || !self.covers(place));
        // Within the budget only what lies beyond the cursor may go.
        let from = if self.units > self.budget { Place::start_of(Wall::MIN) } else { self.cursor };
        let mut places = self.in_order(self.order.range(from..)).rev();
        let place = places.find(|(place, task)| may_go(**place, task)).map(|(place, _)| *place)?;
        let left = self.units - self.tasks.get(&place).map_or(0, Task::units);
        let exceeds = self.units > self.budget && left >= self.full_at();
        (exceeds || !self.covers(place)).then_some(place)
    }

    /// Evicts a task: the caller takes it out of its queue, and the loader brings it again.
    pub(super) fn evict(&mut self, place: Place) -> Option<Task> {
        let task = self.take(place)?;
        self.cursor = self.cursor.min(place);
        Some(task)
    }

    /// The queues of tasks from `from` up to the cursor.
    pub(super) fn queues_from(&self, from: Place) -> Vec<QueueName> {
        let places = self.order.range(from.min(self.cursor)..self.cursor);
        self.in_order(places).map(|(_, task)| task.key.queue.clone()).collect()
    }

    /// The next range to read, if there is room and the horizon lies ahead of the cursor.
    pub(super) fn begin_read(&mut self, ticket: u64, horizon: Wall) -> Option<(Place, Place)> {
        let to = Place::start_of(horizon);
        if !self.may_read() || to <= self.cursor {
            return None;
        }
        self.reading = Some(Reading {
            ticket,
            to,
            finished: BTreeSet::new(),
            marks: BTreeMap::new(),
            shown: BTreeMap::new(),
        });
        Some((self.cursor, to))
    }

    /// Ends the page, and says where it ends. `None` when the ticket is not of the page being read.
    pub(super) fn end_read(&mut self, ticket: u64, next: Option<Place>) -> Option<(PageNotes, Place)> {
        let reading = self.reading.take_if(|reading| reading.ticket == ticket)?;
        let end = next.unwrap_or(reading.to).min(reading.to);
        let Reading { finished, marks, mut shown, .. } = reading;
        shown.retain(|place, _| *place < end && !marks.contains_key(place));
        Some((PageNotes { finished, marks, shown }, end))
    }

    /// Everything unfinished before this was taken in.
    pub(super) fn read_to(&mut self, place: Place) {
        self.cursor = self.cursor.max(place);
    }

    /// Drops the page after a failure.
    pub(super) fn abandon_read(&mut self, ticket: u64) {
        self.reading.take_if(|reading| reading.ticket == ticket);
    }

    /// Whether there is room for another page, and none is being read.
    pub(super) fn may_read(&self) -> bool {
        self.reading.is_none() && !self.is_full()
    }

    /// Whether there is no room for another page.
    pub(super) fn is_full(&self) -> bool {
        self.units >= self.full_at()
    }

    fn full_at(&self) -> usize {
        self.budget - self.budget / 4
    }

    /// Whether nothing more of a page is to be taken in.
    pub(super) fn is_used_up(&self) -> bool {
        self.units >= self.budget
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }
}

/// What happened in the range of a page while it was being read.
#[derive(Default)]
pub(super) struct PageNotes {
    pub(super) finished: BTreeSet<Place>,
    pub(super) marks: BTreeMap<Place, MarkKind>,
    pub(super) shown: BTreeMap<Place, (LoadedTask, Next)>,
}
