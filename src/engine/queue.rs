//! The queues that have ready tasks, and who is next.
//!
//! Within a queue tasks stand by (due time, version) and one at a time is under way: while `busy` holds anything, the
//! queue waits. A failed task keeps its place, so a retry never moves. Between queues, heads wait for a slot of
//! their handler by (priority, ready time, version).

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{HandlerName, Place, QueueName, Standing, Version, Wall};

/// A queue with ready tasks, or with one under way.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: BTreeSet<(Wall, Version, Wall)>,
    /// Tasks with an attempt open or being written: the queue waits for them.
    pub(super) busy: BTreeSet<Place>,
    /// The head, while it waits for a slot.
    pub(super) candidate: Option<Place>,
    /// When the head is tried again.
    pub(super) backoff: Option<Wall>,
    /// The head waits at a gate.
    at_gate: bool,
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

/// Heads waiting for a slot of one handler: (9 − priority, ready time, version).
type Rank = (u8, Wall, Version);

#[derive(Debug, Default)]
struct Line {
    heads: BTreeSet<Rank>,
    free: u32,
    asked: u32,
}

/// What to ask of the slot pool for one handler.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlotChange {
    Want(u32),
    /// None are needed any more: so many were granted and not used.
    Withdraw(u32),
}

/// The lines for slots, one a handler.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: BTreeMap<HandlerName, Line>,
}

/// Most slots of one handler a shard asks for at once.
const SLOTS_ASKED_MAX: u32 = 256;

impl Lines {
    pub(super) fn join(&mut self, handler: &HandlerName, priority: u8, place: Place) {
        let line = match self.lines.get_mut(handler) {
            Some(line) => line,
            None => self.lines.entry(handler.clone()).or_default(),
        };
        line.heads.insert(rank(priority, place));
    }

    pub(super) fn leave(&mut self, handler: &HandlerName, priority: u8, place: Place) {
        if let Some(line) = self.lines.get_mut(handler) {
            line.heads.remove(&rank(priority, place));
        }
    }

    pub(super) fn granted(&mut self, handler: &HandlerName, count: u32) {
        let line = self.lines.entry(handler.clone()).or_default();
        line.asked = line.asked.saturating_sub(count);
        line.free += count;
    }

    /// The next head that has a slot; the slot is taken.
    pub(super) fn next(&mut self) -> Option<Place> {
        let line = self.lines.values_mut().find(|line| line.free > 0 && !line.heads.is_empty())?;
        line.free -= 1;
        line.heads.pop_first().map(|(_, ready_at, version)| Place { ready_at, version })
    }

    /// Puts back a slot that was taken and not used.
    pub(super) fn unused(&mut self, handler: &HandlerName) {
        self.lines.entry(handler.clone()).or_default().free += 1;
    }

    /// What to ask for and what to give back, so that slots match the heads that wait.
    /// When nothing may start, what was asked for is withdrawn and what is free goes back.
    pub(super) fn settle(&mut self, may_start: bool) -> Vec<(HandlerName, SlotChange)> {
        let mut changes = Vec::new();
        for (handler, line) in &mut self.lines {
            let heads = if may_start { line.heads.len() } else { 0 };
            let wanted = u32::try_from(heads).unwrap_or(u32::MAX).min(SLOTS_ASKED_MAX);
            let have = line.free + line.asked;
            if wanted > have {
                line.asked += wanted - have;
                changes.push((handler.clone(), SlotChange::Want(wanted - have)));
            } else if heads == 0 && have > 0 {
                // What is granted before the pool hears of it is counted when it comes, and goes back then.
                line.asked = 0;
                changes.push((handler.clone(), SlotChange::Withdraw(std::mem::take(&mut line.free))));
            }
        }
        self.lines.retain(|_, line| line.free + line.asked > 0 || !line.heads.is_empty());
        changes
    }

    /// Takes all heads out and gives back what is free: the shard is let go.
    pub(super) fn clear(&mut self) -> Vec<(HandlerName, SlotChange)> {
        for line in self.lines.values_mut() {
            line.heads.clear();
        }
        self.settle(false)
    }

    /// How many stand before a place in its line.
    pub(super) fn before(&self, handler: &HandlerName, priority: u8, place: Place) -> usize {
        self.lines.get(handler).map_or(0, |line| line.heads.range(..rank(priority, place)).count())
    }

    pub(super) fn waiting(&self, handler: &HandlerName) -> usize {
        self.lines.get(handler).map_or(0, |line| line.heads.len())
    }
}

fn rank(priority: u8, place: Place) -> Rank {
    (9 - priority.min(9), place.ready_at, place.version)
}

/// All queues of a shard, and the times at which a blocked head is tried again.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) by_name: BTreeMap<QueueName, Queue>,
    backoffs: BTreeSet<(Wall, QueueName)>,
    at_gates: usize,
}

impl Queues {
    pub(super) fn set_backoff(&mut self, name: &QueueName, at: Option<Wall>) {
        let Some(queue) = self.by_name.get_mut(name) else { return };
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
    pub(super) fn set_at_gate(&mut self, name: &QueueName, at_gate: bool) {
        let Some(queue) = self.by_name.get_mut(name) else { return };
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
