//! The queues that have ready tasks, and who is next.
//!
//! Within a queue tasks stand by (due time, version) and one at a time is under way: while `busy` holds anything, the
//! queue waits. A failed task keeps its place, so a retry never moves. Between queues, heads wait for a slot of
//! their lane by (ready time, version); between lanes the pool of slots decides.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};

use smallvec::SmallVec;

use crate::model::{Boot, Place, QueueName, Standing, Version, Wall};

use super::lane::{Lane, Sought};
use super::map::Map;

/// A queue with ready tasks, or with one under way.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: BTreeSet<(Wall, Version, Wall)>,
    /// Tasks with an attempt open or being written: the queue waits for them.
    pub(super) busy: Busy,
    /// The head, while it waits for a slot.
    pub(super) candidate: Option<Place>,
    /// When the head is tried again.
    pub(super) backoff: Option<Wall>,
    /// The head waits at a gate.
    at_gate: bool,
}

/// Tasks of a queue that are under way: hardly ever more than one.
#[derive(Debug, Default)]
pub(super) struct Busy(SmallVec<[Place; 1]>);

impl Busy {
    pub(super) fn insert(&mut self, place: Place) {
        if !self.0.contains(&place) {
            self.0.push(place);
        }
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.0.retain(|other| *other != place);
    }

    pub(super) fn first(&self) -> Option<Place> {
        self.0.iter().min().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.iter()
    }
}

impl Queue {
    pub(super) fn insert(&mut self, due_at: Wall, place: Place) {
        let due_at = if planted!(ArrivalIgnoresDueTime) { Wall::MIN } else { due_at };
        self.ready.insert((due_at, place.version, place.ready_at));
    }

    pub(super) fn remove(&mut self, due_at: Wall, place: Place) {
        let due_at = if planted!(ArrivalIgnoresDueTime) { Wall::MIN } else { due_at };
        self.ready.remove(&(due_at, place.version, place.ready_at));
    }

    pub(super) fn head(&self) -> Option<Place> {
        self.ready.first().map(|(_, version, ready_at)| Place { ready_at: *ready_at, version: *version })
    }

    /// Where the first of it stands.
    pub(super) fn first(&self) -> Option<Standing> {
        self.ready.first().map(|(due_at, version, _)| Standing { due_at: *due_at, version: *version })
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether the head waits at a gate.
    pub(super) fn is_at_gate(&self) -> bool {
        self.at_gate
    }

    /// The places in running order.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.ready.iter().map(|(_, version, ready_at)| Place { ready_at: *ready_at, version: *version })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.busy.is_empty()
    }
}

/// Heads waiting for a slot of one lane, first (ready time, version) first.
#[derive(Debug, Default)]
struct Line {
    heads: BTreeSet<Place>,
    free: u32,
    asked: u32,
    /// Since when heads have waited without one of them getting a slot. It stands while slots are withdrawn: that is no
    /// reason to begin anew.
    waits_since: Option<Boot>,
    /// It stands in the list of those that changed.
    is_changed: bool,
}

/// What to ask of the slot pool for one lane.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlotChange {
    /// So many are asked for, by heads that wait since then.
    Want(u32, Boot),
    /// None are needed any more: so many were granted and not used.
    Withdraw(u32),
}

/// The lines for slots, one a lane.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Map<Lane, Line>,
    /// Heads that stand in them.
    heads: usize,
    /// Those that changed since slots were settled, by their place in `lines`.
    changed: Vec<usize>,
    /// Those that may have a head and a slot for it.
    startable: VecDeque<usize>,
    /// Whether heads might start when slots were settled.
    might_start: bool,
    /// How many were left when those in which nobody stands were last forgotten.
    tidied_to: usize,
}

/// Most slots of one lane a shard asks for at once.
const SLOTS_ASKED_MAX: u32 = 256;
/// So many lines are kept although nobody stands in them: heads of their lanes come again.
const LINES_KEPT: usize = 64;

impl Lines {
    /// The lane of a task; one that has a line is the one of that line.
    pub(super) fn lane(&self, sought: Sought<'_>) -> Lane {
        self.lines.get_key_value(&sought).map_or_else(|| sought.into(), |(lane, _)| lane.clone())
    }

    pub(super) fn join(&mut self, lane: &Lane, place: Place) {
        let at = self.at(lane);
        let is_new = self.changes(at).heads.insert(place);
        self.heads += usize::from(is_new);
        self.may_be_startable(at);
    }

    pub(super) fn leave(&mut self, lane: &Lane, place: Place) {
        if let Some(at) = self.lines.get_index_of(lane) {
            let stood = self.changes(at).heads.remove(&place);
            self.heads -= usize::from(stood);
        }
    }

    pub(super) fn granted(&mut self, lane: &Lane, count: u32) {
        let at = self.at(lane);
        let line = self.changes(at);
        line.asked = line.asked.saturating_sub(count);
        line.free += count;
        self.may_be_startable(at);
    }

    /// How many heads stand in all lines.
    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    /// The next head that has a slot, and its lane; the slot is taken.
    pub(super) fn next(&mut self) -> Option<(Place, Lane)> {
        while let Some(at) = self.startable.front().copied() {
            let (lane, line) =
                self.lines.get_index_mut(at).expect("lines stay where they are while heads may start");
            let head = if line.free > 0 { line.heads.pop_first() } else { None };
            let Some(place) = head else {
                self.startable.pop_front();
                continue;
            };
            self.heads -= 1;
            line.free -= 1;
            line.waits_since = None;
            let lane = lane.clone();
            self.changes(at);
            return Some((place, lane));
        }
        None
    }

    /// Puts back a slot that was taken and not used.
    pub(super) fn unused(&mut self, lane: &Lane) {
        let at = self.at(lane);
        self.changes(at).free += 1;
        self.may_be_startable(at);
    }

    /// What to ask for and what to give back, so that slots match the heads that wait.
    /// When nothing may start, what was asked for is withdrawn and what is free goes back.
    pub(super) fn settle(&mut self, now: Boot, may_start: bool) -> Vec<(Lane, SlotChange)> {
        if std::mem::replace(&mut self.might_start, may_start) != may_start {
            self.changed = (0..self.lines.len()).collect();
        }
        let mut changes = Vec::new();
        for at in std::mem::take(&mut self.changed) {
            let (lane, line) = self.lines.get_index_mut(at).expect("a line that changed is there");
            line.is_changed = false;
            changes.extend(line.settle(now, may_start).map(|change| (lane.clone(), change)));
        }
        self.tidy();
        changes
    }

    /// Takes all heads out and gives back what is free: the shard is let go.
    pub(super) fn clear(&mut self) -> Vec<(Lane, SlotChange)> {
        for line in self.lines.values_mut() {
            line.heads.clear();
        }
        self.heads = 0;
        self.changed = (0..self.lines.len()).collect();
        self.startable.clear();
        // Nothing is asked for without heads, so the time does not count.
        self.settle(Boot(0), false)
    }

    /// How many stand before a place in line for its handler, and how many in all: those of higher priority first.
    pub(super) fn position(&self, lane: &Lane, place: Place) -> (usize, usize) {
        let of_handler = self.lines.iter().filter(|(other, _)| other.handler == lane.handler);
        of_handler.fold((0, 0), |(before, all), (other, line)| {
            let ahead = match other.priority.cmp(&lane.priority) {
                Ordering::Greater => line.heads.len(),
                Ordering::Equal => line.heads.range(..place).count(),
                Ordering::Less => 0,
            };
            (before + ahead, all + line.heads.len())
        })
    }

    #[cfg(test)]
    pub(super) fn waiting(&self, lane: &Lane) -> usize {
        self.lines.get(lane).map_or(0, |line| line.heads.len())
    }

    /// Where the line of a lane is.
    fn at(&mut self, lane: &Lane) -> usize {
        match self.lines.get_index_of(lane) {
            Some(at) => at,
            None => self.lines.insert_full(lane.clone(), Line::default()).0,
        }
    }

    /// A line that is about to change.
    fn changes(&mut self, at: usize) -> &mut Line {
        let line = &mut self.lines[at];
        if !std::mem::replace(&mut line.is_changed, true) {
            self.changed.push(at);
        }
        line
    }

    fn may_be_startable(&mut self, at: usize) {
        let line = &self.lines[at];
        if line.free > 0 && !line.heads.is_empty() && self.startable.back() != Some(&at) {
            self.startable.push_back(at);
        }
    }

    /// Forgets lines in which nobody stands, when there are many, and nothing else tells of them by their place.
    fn tidy(&mut self) {
        let is_many = self.lines.len() > 2 * self.tidied_to + LINES_KEPT;
        if is_many && self.changed.is_empty() && self.startable.is_empty() {
            self.lines.retain(|_, line| line.free + line.asked > 0 || !line.heads.is_empty());
            self.tidied_to = self.lines.len();
        }
    }
}

impl Line {
    fn settle(&mut self, now: Boot, may_start: bool) -> Option<SlotChange> {
        let since = *self.waits_since.get_or_insert(now);
        if self.heads.is_empty() {
            self.waits_since = None;
        }
        let heads = if may_start { self.heads.len() } else { 0 };
        let wanted = u32::try_from(heads).unwrap_or(u32::MAX).min(SLOTS_ASKED_MAX);
        let have = self.free + self.asked;
        if wanted > have {
            // Who asks for more than it waits for already has more heads since now.
            let since = if have == 0 { since } else { now };
            self.asked += wanted - have;
            return Some(SlotChange::Want(wanted - have, since));
        }
        if heads == 0 && have > 0 {
            // What is granted before the pool hears of it is counted when it comes, and goes back then.
            self.asked = 0;
            return Some(SlotChange::Withdraw(std::mem::take(&mut self.free)));
        }
        None
    }
}

/// All queues of a shard, and the times at which a blocked head is tried again.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) by_name: Map<QueueName, Queue>,
    backoffs: BTreeSet<(Wall, QueueName)>,
    at_gates: usize,
}

impl Queues {
    /// Notes when the head of a queue is tried again. An index is that of the queue until the next one is removed.
    pub(super) fn set_backoff(&mut self, index: usize, at: Option<Wall>) {
        let (name, queue) = self.by_name.get_index_mut(index).expect("it is of a queue");
        if queue.backoff == at {
            return;
        }
        if let Some(old) = queue.backoff.take() {
            self.backoffs.remove(&(old, name.clone()));
        }
        if let Some(at) = at {
            queue.backoff = Some(at);
            self.backoffs.insert((at, name.clone()));
        }
    }

    /// Notes whether the head of a queue waits at a gate.
    pub(super) fn set_at_gate(&mut self, index: usize, at_gate: bool) {
        let queue = &mut self.by_name[index];
        if std::mem::replace(&mut queue.at_gate, at_gate) != at_gate {
            self.at_gates = if at_gate { self.at_gates + 1 } else { self.at_gates - 1 };
        }
    }

    /// Queues whose head waits at a gate.
    pub(super) fn at_gates(&self) -> usize {
        self.at_gates
    }

    /// A queue whose head may be tried again at `now`.
    pub(super) fn take_backoff(&mut self, now: Wall) -> Option<QueueName> {
        let (at, _) = self.backoffs.first()?;
        if *at > now {
            return None;
        }
        let (_, name) = self.backoffs.pop_first()?;
        if let Some(queue) = self.by_name.get_mut(&name) {
            queue.backoff = None;
        }
        Some(name)
    }

    /// Queues whose head waits for its next try.
    pub(super) fn backing_off(&self) -> usize {
        self.backoffs.len()
    }

    pub(super) fn next_backoff(&self) -> Option<Wall> {
        self.backoffs.first().map(|(at, _)| *at)
    }
}
