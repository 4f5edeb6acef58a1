//! Who waits for the slots of one handler, and who is next.
//!
//! Between collections by weight: stride scheduling (Waldspurger and Weihl, 1995), where each slot moves its collection on by
//! the inverse of its weight and the one that is least far on is next; who joins begins at the global pass. Within a collection by priority: a step of priority
//! is worth a time of waiting, so that nobody starves. Between shards of the same priority in turn.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::engine::lane::Lane;
use crate::model::{Boot, Shard};

use super::collection::Whose;

/// How much longer a task may have waited than one of the next higher priority and still come after it, in milliseconds.
pub(super) const PRIORITY_STEP_MS: u64 = 10_000;
/// How far one slot moves a collection of weight 1 on.
const STRIDE: u64 = 1 << 20;
/// So many collections are remembered although nobody of them waits.
const FLOWS_KEPT: usize = 16;

/// What is told apart within a collection: priority, and whether they are late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub(super) priority: u8,
    pub(super) is_late: bool,
}

/// Who waits for the slots of one handler.
#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: BTreeMap<Whose, Flow>,
    /// Those in which somebody waits and that nothing of their own holds up: the one that is least far on first, of several the
    /// one that stands there longest.
    order: BTreeMap<Standing, Whose>,
    turns: u64,
    /// Those that their collection's limits hold up: they are not looked at again before that may be over.
    aside: BTreeSet<Whose>,
    /// When those of them come back that time alone brings back.
    back_at: BTreeSet<(Boot, Whose)>,
    /// How far on one would be that had its part of every slot: where who comes new, or after a while, joins.
    passed: u64,
    /// The weights of all that stand in line.
    weights: u64,
    /// How many were left when those at rest were last forgotten.
    tidied_to: usize,
}

/// What a shard asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    pub(super) whose: Whose,
    pub(super) weight: u32,
    pub(super) class: Class,
    pub(super) lane: &'a Lane,
    pub(super) count: u32,
}

/// How far on a collection is, and its number among all that came to stand in line.
type Standing = (u64, u64);

#[derive(Debug, Default)]
struct Flow {
    pass: u64,
    weight: u64,
    /// Kept when nobody waits in them any more: there are few.
    lines: BTreeMap<Class, Line>,
    /// Where it stands in line.
    standing: Option<Standing>,
    /// Its time among those that come back.
    back_at: Option<Boot>,
}

#[derive(Debug, Default)]
struct Line {
    /// What each shard waits for; and whose turn it is.
    wanted: BTreeMap<Shard, Wishes>,
    turns: VecDeque<Shard>,
}

/// What a shard waits for: how many since when, and its lane, which it gets back with each slot.
#[derive(Debug)]
struct Wishes {
    lane: Lane,
    first: (Boot, u32),
    more: VecDeque<(Boot, u32)>,
}

impl Wishes {
    /// Takes one; whether more are left.
    fn take_one(&mut self) -> bool {
        self.first.1 -= 1;
        if self.first.1 > 0 {
            return true;
        }
        let next = self.more.pop_front();
        self.first = next.unwrap_or(self.first);
        next.is_some()
    }
}

impl Flow {
    /// Whether nobody waits.
    fn is_at_rest(&self) -> bool {
        self.lines.values().all(Line::is_empty)
    }

    /// The classes in which somebody waits.
    fn waiting(&self) -> impl Iterator<Item = (Class, &Line)> {
        self.lines.iter().filter(|(_, line)| !line.is_empty()).map(|(class, line)| (*class, line))
    }
}

impl Line {
    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Where it stands among the classes of its collection: since when it waits, and what its priority is worth. The shard
    /// whose turn it is speaks for all: what it waits for came before the last slot that went to this class, or it would stand
    /// behind the others.
    fn rank(&self, class: Class) -> (u64, Reverse<Class>) {
        let wishes = self.turns.front().and_then(|shard| self.wanted.get(shard));
        let since = wishes.map_or(0, |wishes| wishes.first.0.0);
        let since = if planted!(AgeingForgotten) { 0 } else { since };
        let step_ms = if planted!(PriorityIgnored) { 0 } else { PRIORITY_STEP_MS };
        let behind_ms = u64::from(9 - class.priority.min(9)) * step_ms;
        (since.saturating_add(behind_ms), Reverse(class))
    }

    fn want(&mut self, since: Boot, shard: Shard, lane: &Lane, count: u32) {
        if let Some(wishes) = self.wanted.get_mut(&shard) {
            return wishes.more.push_back((since, count));
        }
        self.turns.push_back(shard);
        let wishes = Wishes { lane: lane.clone(), first: (since, count), more: VecDeque::new() };
        self.wanted.insert(shard, wishes);
    }

    /// One slot goes to the shard whose turn it is; it stands at the end when it wants more.
    fn take_turn(&mut self) -> (Shard, Lane) {
        let shard = self.turns.pop_front().expect("somebody waits");
        let wishes = self.wanted.get_mut(&shard).expect("who has a turn wants something");
        if wishes.take_one() {
            if planted!(TurnsForgotten) {
                self.turns.push_front(shard);
            } else {
                self.turns.push_back(shard);
            }
            return (shard, wishes.lane.clone());
        }
        let wishes = self.wanted.remove(&shard).expect("it was just found");
        (shard, wishes.lane)
    }

    fn forget(&mut self, shard: Shard) {
        if self.wanted.remove(&shard).is_some() {
            self.turns.retain(|other| *other != shard);
        }
    }
}

impl Flows {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty() && self.aside.is_empty()
    }

    pub(super) fn want(&mut self, since: Boot, shard: Shard, wish: Wish<'_>) {
        let Wish { whose, weight, class, lane, count } = wish;
        if count == 0 {
            return;
        }
        let passed = self.passed;
        let flow = self.flows.entry(whose).or_default();
        let comes_new = flow.is_at_rest();
        flow.lines.entry(class).or_default().want(since, shard, lane, count);
        if comes_new {
            flow.pass = flow.pass.max(passed);
            let weight = if planted!(WeightsIgnored) { 1 } else { weight };
            flow.weight = u64::from(weight.clamp(1, 1_000));
            self.stand_in_line(whose);
        }
    }

    fn stand_in_line(&mut self, whose: Whose) {
        let flow = self.flows.get_mut(&whose).expect("somebody waits");
        self.turns += 1;
        let standing = (flow.pass, self.turns);
        flow.standing = Some(standing);
        self.weights += flow.weight;
        self.order.insert(standing, whose);
    }

    fn leave_line(&mut self, whose: Whose) {
        let Some(flow) = self.flows.get_mut(&whose) else { return };
        if let Some(standing) = flow.standing.take() {
            self.weights -= flow.weight;
            self.order.remove(&standing);
        }
    }

    pub(super) fn forget(&mut self, shard: Shard, whose: Whose, class: Class) {
        let Some(flow) = self.flows.get_mut(&whose) else { return };
        let Some(line) = flow.lines.get_mut(&class) else { return };
        line.forget(shard);
        if flow.is_at_rest() {
            self.end_aside(whose);
            self.leave_line(whose);
            self.tidy();
        }
    }

    /// One slot goes to the next of a class: its shard, and the lane that it named. Who was held up meanwhile makes up for one
    /// slot at most: who had what it could not take does not fall behind for that.
    pub(super) fn take(&mut self, whose: Whose, class: Class) -> (Shard, Lane) {
        let passed = self.passed;
        self.passed += STRIDE / self.weights.max(1);
        self.leave_line(whose);
        let flow = self.flows.get_mut(&whose).expect("somebody waits");
        let next = flow.lines.get_mut(&class).expect("somebody waits").take_turn();
        let stride = STRIDE / flow.weight;
        flow.pass = flow.pass.clamp(passed.saturating_sub(stride), passed) + stride;
        if flow.is_at_rest() {
            self.tidy();
        } else {
            self.stand_in_line(whose);
        }
        next
    }

    /// Whose turn it is of those that may have a slot. `held_up` says of a collection whether its limits hold it up, and until
    /// when if time alone ends that: it stands aside then, until [`Flows::back`] is called for it or that time has come.
    pub(super) fn next(
        &mut self,
        now: Boot,
        held_up: impl Fn(Whose) -> Option<Option<Boot>>,
        may_class: impl Fn(Class) -> bool,
    ) -> Option<(Whose, Class)> {
        while let Some((_, whose)) = self.back_at.first().copied().filter(|(at, _)| *at <= now) {
            self.back(whose);
        }
        let mut to_aside = Vec::new();
        let next = self.order.values().find_map(|whose| {
            if let Some(until) = held_up(*whose) {
                to_aside.push((*whose, until));
                return None;
            }
            let lines = self.flows[whose].waiting().filter(|(class, _)| may_class(*class));
            let next = lines.min_by_key(|(class, line)| line.rank(*class));
            next.map(|(class, _)| (*whose, class))
        });
        for (whose, until) in to_aside {
            self.set_aside(whose, until);
        }
        next
    }

    fn set_aside(&mut self, whose: Whose, until: Option<Boot>) {
        self.leave_line(whose);
        self.flows.get_mut(&whose).expect("somebody waits").back_at = until;
        self.back_at.extend(until.map(|at| (at, whose)));
        self.aside.insert(whose);
    }

    fn end_aside(&mut self, whose: Whose) -> bool {
        let was_aside = self.aside.remove(&whose);
        if let Some(at) = self.flows.get_mut(&whose).and_then(|flow| flow.back_at.take()) {
            self.back_at.remove(&(at, whose));
        }
        was_aside
    }

    /// What held up a collection may be over.
    pub(super) fn back(&mut self, whose: Whose) {
        if self.end_aside(whose) {
            self.stand_in_line(whose);
        }
    }

    /// The same of all.
    pub(super) fn all_back(&mut self) {
        while let Some(whose) = self.aside.first().copied() {
            self.back(whose);
        }
    }

    /// When the next of those aside comes back by time alone.
    pub(super) fn next_back(&self) -> Option<Boot> {
        self.back_at.first().map(|(at, _)| *at)
    }

    /// All that wait in line, and then those aside.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Whose, Class)> {
        self.in_line().chain(self.aside.iter().flat_map(|whose| self.classes(*whose)))
    }

    /// All that wait and stand in line.
    pub(super) fn in_line(&self) -> impl Iterator<Item = (Whose, Class)> {
        self.order.values().flat_map(|whose| self.classes(*whose))
    }

    fn classes(&self, whose: Whose) -> impl Iterator<Item = (Whose, Class)> {
        self.flows[&whose].waiting().map(move |(class, _)| (whose, class))
    }

    /// Whether tasks of a collection wait.
    pub(super) fn has(&self, whose: Whose) -> bool {
        self.flows.get(&whose).is_some_and(|flow| !flow.is_at_rest())
    }

    /// Whether anything is remembered of a collection.
    pub(super) fn knows(&self, whose: Whose) -> bool {
        self.flows.contains_key(&whose)
    }

    /// Who has nobody waiting is remembered only while it is further on than the others.
    fn tidy(&mut self) {
        if self.flows.len() > 2 * self.tidied_to + FLOWS_KEPT {
            let passed = self.passed;
            self.flows.retain(|_, flow| !flow.is_at_rest() || flow.pass > passed);
            self.tidied_to = self.flows.len();
        }
    }
}
