//! Reading on: pages of pointers, then the facts of those whose turn is near.
//!
//! A queue reads when something unread lies before its head, and ahead of need while it moves and there is room. What
//! happened to a task while its facts were being read is not in the answer: then it is read again.

use crate::model::{FactRow, Place, Pointer, PointerPage, PointerRange, QueueName, Version, limits};

use super::super::Engine;
use super::super::effect::Effect;
use super::super::fold::{Next, fold};
use super::super::input::Failure;
use super::super::window::{PageNotes, Written};
use super::{LateQueue, Page};

const RETRY_MS: u64 = 500;
/// Pointers due after now by the clock of an owner before may be this far ahead, in milliseconds.
const AHEAD_MS: i64 = 3_600_000;

/// A read under way.
#[derive(Debug)]
pub(super) enum Read {
    Page(QueueName),
    Facts {
        queue: QueueName,
        pointer: Pointer,
        /// A mark became visible meanwhile.
        outdated: bool,
    },
}

impl Read {
    pub(super) fn is_of(&self, place: Place) -> bool {
        matches!(self, Read::Facts { pointer, .. } if pointer.place() == place)
    }
}

impl Engine {
    /// Notes that a queue has to read on, if it has.
    pub(in crate::engine) fn note_hunger(&mut self, name: &QueueName) {
        if self.tasks_wanted(name) == 0 {
            return;
        }
        let Some(late) = self.late.queues.get_mut(name).filter(|late| !late.is_hungry) else { return };
        late.is_hungry = true;
        self.late.hungry.push_back(name.clone());
    }

    /// How many tasks a late queue should read now.
    fn tasks_wanted(&self, name: &QueueName) -> usize {
        let Some(late) = self.late.queues.get(name).filter(|late| late.page.is_none()) else { return 0 };
        let Some(next) = late.next_read() else { return 0 };
        let queue = self.queues.by_name.get(name);
        let nearest = queue.and_then(|queue| queue.first()).into_iter();
        let nearest = nearest.chain(late.fetching.first().map(Pointer::standing)).min();
        let search = late.is_closed() && late.fetching.is_empty();
        let stands_before = search || nearest.is_none_or(|nearest| next < nearest);
        let waits = queue.is_some_and(|queue| self.is_blocked(queue));
        if waits || self.window.is_full() {
            return usize::from(stands_before);
        }
        let here = queue.map_or(0, |queue| queue.len()) + late.fetching.len();
        let max = self.options.queue_tasks_max;
        if stands_before || here <= max / 4 { (max / 2).saturating_sub(here).max(1) } else { 0 }
    }

    /// Lets hungry queues read, as many at once as is allowed.
    pub(super) fn feed(&mut self) {
        if !self.may_load() || !self.late.list.is_read() {
            return;
        }
        if self.late.retry_at.is_some_and(|at| self.now.boot < at) {
            return;
        }
        self.late.retry_at = None;
        for _ in 0..self.late.hungry.len() {
            if self.late.reads.len() >= limits::LATE_READS_MAX {
                return;
            }
            let Some(name) = self.late.hungry.pop_front() else { return };
            if let Some(late) = self.late.queues.get_mut(&name) {
                late.is_hungry = false;
            }
            self.read_on(&name, self.tasks_wanted(&name));
            self.note_hunger(&name);
        }
    }

    fn read_on(&mut self, name: &QueueName, wanted: usize) {
        let mut left = wanted;
        while left > 0 && self.late.reads.len() < limits::LATE_READS_MAX {
            let Some(late) = self.late.queues.get_mut(name) else { return };
            let named = late.named_to_read().next().copied();
            let Some(pointer) = named.or_else(|| late.known.pop_first()) else { break };
            let place = pointer.place();
            if named.is_none() && late.unseen_to.is_some_and(|to| place.ready_at >= to) {
                let standing = pointer.standing();
                late.passed = Some(late.passed.map_or(standing, |passed| passed.min(standing)));
                continue;
            }
            // What lies at the cursor or after is brought by the loader.
            if self.window.covers(place) && self.window.get(place).is_none() {
                self.fetch_task(name.clone(), pointer);
                left -= 1;
            } else if let Some(late) = self.late.queues.get_mut(name) {
                late.named.remove(&pointer);
            }
        }
        let Some(late) = self.late.queues.get_mut(name) else { return };
        if left > 0 && late.known.is_empty() && late.page.is_none() {
            self.read_page(name);
        }
        self.settle_late(name);
        self.pump(name);
    }

    fn fetch_task(&mut self, queue: QueueName, pointer: Pointer) {
        let ticket = self.ticket();
        if let Some(late) = self.late.queues.get_mut(&queue) {
            late.known.remove(&pointer);
            if !late.fetching.insert(pointer) {
                return;
            }
        }
        self.effects.push_back(Effect::ReadFacts(ticket, pointer.place()));
        self.late.reads.insert(ticket, Read::Facts { queue, pointer, outdated: false });
    }

    fn read_page(&mut self, name: &QueueName) {
        let to = self.now.wall.max(self.commit.watermark()).plus_ms(AHEAD_MS);
        let ticket = self.ticket();
        let Some(late) = self.late.queues.get_mut(name) else { return };
        let Some(from) = late.unread else { return };
        late.page = Some(Page::default());
        let range = PointerRange { queue: name.clone(), opened: late.opened, from, to };
        self.late.reads.insert(ticket, Read::Page(name.clone()));
        self.effects.push_back(Effect::ReadPointers(ticket, range));
    }

    pub(in crate::engine) fn pointers_read(&mut self, ticket: u64, read: Result<PointerPage, Failure>) {
        let Some(Read::Page(name)) = self.late.reads.remove(&ticket) else { return };
        let Some(late) = self.late.queues.get_mut(&name) else { return };
        let Some(page) = late.page.take() else { return };
        match read {
            Ok(PointerPage { pointers, next }) => {
                take_page(late, pointers, next, &page);
                let known: Vec<Pointer> = late.known.iter().copied().collect();
                let here = known.into_iter().filter(|pointer| self.window.get(pointer.place()).is_some());
                let here: Vec<Pointer> = here.collect();
                if let Some(late) = self.late.queues.get_mut(&name) {
                    late.known.retain(|pointer| !here.contains(pointer));
                }
            }
            Err(failure) => self.read_failed("late pointers read", &failure),
        }
        self.settle_late(&name);
        self.pump(&name);
    }

    /// Takes the facts of a task known by pointer. False when nobody here asked for them.
    pub(in crate::engine) fn late_facts_read(
        &mut self,
        ticket: u64,
        read: &Result<Vec<FactRow>, Failure>,
    ) -> bool {
        let Some(Read::Facts { queue, pointer, outdated }) = self.late.reads.remove(&ticket) else {
            return false;
        };
        let Some(late) = self.late.queues.get_mut(&queue) else { return true };
        late.fetching.remove(&pointer);
        match read {
            Err(failure) => {
                // What is named still is: a pointer stands in one set at a time.
                if !late.named.contains(&pointer) {
                    late.known.insert(pointer);
                }
                self.read_failed("late task read", failure);
            }
            Ok(_) if outdated => self.fetch_task(queue.clone(), pointer),
            Ok(rows) => {
                late.named.remove(&pointer);
                self.take_late(&queue, pointer, rows);
            }
        }
        self.settle_late(&queue);
        self.pump(&queue);
        true
    }

    /// A task known by pointer comes back, unless it is finished or the loader brings it.
    fn take_late(&mut self, queue: &QueueName, pointer: Pointer, rows: &[FactRow]) {
        let place = pointer.place();
        // Counted as held while it comes: the queue is not late no more on its account.
        if let Some(late) = self.late.queues.get_mut(queue) {
            late.held.insert(pointer);
        }
        if !rows.is_empty() && self.window.covers(place) {
            self.load_task(rows, &PageNotes::default());
        }
        // An owner before may have gone on behind a task whose mark is still to be applied here.
        // One that failed and waits aside holds up nothing: another behind it may be under way.
        let next = fold(rows.iter().map(|row| &row.fact), Version::MAX).next();
        let is_aside = matches!(next, Next::Run(_))
            && self.window.get(place).is_some_and(|task| task.may_wait_aside())
            && !planted!(AsideTakenForFirst);
        let stands_first = !matches!(next, Next::Finished(_)) && !is_aside;
        let is_kept = self.outbox.keep_pointer(place);
        let back = self.window.get_mut(place);
        let is_back = back.is_some();
        if let Some(task) = back {
            task.pointer = Written::Yes;
        }
        if let Some(late) = self.late.queues.get_mut(queue) {
            if is_back {
                if stands_first && late.unseen_to.is_some_and(|to| place.ready_at < to) {
                    let standing = pointer.standing();
                    late.found = Some(late.found.map_or(standing, |found| found.min(standing)));
                }
            } else if !is_kept {
                late.held.remove(&pointer);
                late.ends += 1;
            }
        }
    }

    /// A mark became visible: facts of its task that are being read may lack it.
    pub(in crate::engine) fn late_mark_shown(&mut self, place: Place) {
        for read in self.late.reads.values_mut() {
            if let Read::Facts { pointer, outdated, .. } = read
                && pointer.place() == place
            {
                *outdated = true;
            }
        }
    }

    fn read_failed(&mut self, what: &'static str, failure: &Failure) {
        self.trouble(what, failure);
        self.late.retry_at = Some(self.now.boot.plus_ms(RETRY_MS));
    }
}

fn take_page(
    late: &mut LateQueue,
    pointers: Vec<Pointer>,
    next: Option<crate::model::Standing>,
    page: &Page,
) {
    late.unread = next.into_iter().chain(page.left).min();
    let unread = late.unread;
    let before = |pointer: &Pointer| unread.is_none_or(|unread| pointer.standing() < unread);
    let is_new = |pointer: &Pointer| !late.fetching.contains(pointer) && !late.named.contains(pointer);
    let new = pointers.into_iter().filter(|pointer| before(pointer) && is_new(pointer));
    let new: Vec<Pointer> = new.collect();
    late.known.extend(new);
}
