//! Who waits for the slots of one handler, and who is next.
//!
//! Between collections by weight: stride scheduling (Waldspurger and Weihl, 1995), where each slot moves its collection on by
//! the inverse of its weight and the one that is least far on is next. Within a collection by priority: a step of priority
//! is worth a time of waiting, so that nobody starves. Between shards of the same priority in turn.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::model::{Boot, Shard};

/// How much longer a task may have waited than one of the next higher priority and still come after it, in milliseconds.
pub(super) const PRIORITY_STEP_MS: u64 = 10_000;
/// How far one slot moves a collection of weight 1 on.
const STRIDE: u64 = 1 << 20;

/// Whose tasks: those of a collection that is told apart, or all others.
pub(super) type Whose = Option<Arc<str>>;

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
    /// Those in which somebody waits, the one that is least far on first.
    order: BTreeSet<(u64, Whose)>,
    /// How far on the last one was that got a slot.
    passed: u64,
}

#[derive(Debug, Default)]
struct Flow {
    pass: u64,
    lines: BTreeMap<Class, Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// What each shard waits for, since when; and whose turn it is.
    wanted: BTreeMap<Shard, VecDeque<(Boot, u32)>>,
    turns: VecDeque<Shard>,
}

impl Line {
    /// Where it stands among the classes of its collection: since when it waits, and what its priority is worth.
    fn rank(&self, class: Class) -> (u64, Reverse<Class>) {
        let wishes = self.turns.front().and_then(|shard| self.wanted.get(shard)?.front());
        let since = wishes.map_or(0, |(since, _)| since.0);
        let behind_ms = u64::from(9 - class.priority.min(9)) * PRIORITY_STEP_MS;
        (since.saturating_add(behind_ms), Reverse(class))
    }

    fn want(&mut self, now: Boot, shard: Shard, count: u32) {
        let wishes = self.wanted.entry(shard).or_insert_with(|| {
            self.turns.push_back(shard);
            VecDeque::new()
        });
        wishes.push_back((now, count));
    }

    /// One slot goes to the shard whose turn it is; it stands at the end when it wants more.
    fn take_turn(&mut self) -> Shard {
        let shard = self.turns.pop_front().expect("somebody waits");
        let wishes = self.wanted.get_mut(&shard).expect("who has a turn wants something");
        let (_, count) = wishes.front_mut().expect("who has a turn wants something");
        *count -= 1;
        if *count == 0 {
            wishes.pop_front();
        }
        if wishes.is_empty() {
            self.wanted.remove(&shard);
        } else {
            self.turns.push_back(shard);
        }
        shard
    }

    fn forget(&mut self, shard: Shard) {
        if self.wanted.remove(&shard).is_some() {
            self.turns.retain(|other| *other != shard);
        }
    }
}

impl Flows {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn want(&mut self, now: Boot, shard: Shard, whose: &Whose, class: Class, count: u32) {
        if count == 0 {
            return;
        }
        let passed = self.passed;
        let flow = self.flows.entry(whose.clone()).or_default();
        if flow.lines.is_empty() {
            flow.pass = flow.pass.max(passed);
            self.order.insert((flow.pass, whose.clone()));
        }
        flow.lines.entry(class).or_default().want(now, shard, count);
    }

    pub(super) fn forget(&mut self, shard: Shard, whose: &Whose, class: Class) {
        let Some(flow) = self.flows.get_mut(whose) else { return };
        let Some(line) = flow.lines.get_mut(&class) else { return };
        line.forget(shard);
        if line.turns.is_empty() {
            flow.lines.remove(&class);
        }
        if flow.lines.is_empty() {
            self.order.remove(&(flow.pass, whose.clone()));
            self.tidy();
        }
    }

    /// One slot goes to the next of a class.
    pub(super) fn take(&mut self, whose: &Whose, class: Class, weight: u32) -> Shard {
        let flow = self.flows.get_mut(whose).expect("somebody waits");
        let line = flow.lines.get_mut(&class).expect("somebody waits");
        let shard = line.take_turn();
        if line.turns.is_empty() {
            flow.lines.remove(&class);
        }
        self.order.remove(&(flow.pass, whose.clone()));
        self.passed = self.passed.max(flow.pass);
        flow.pass += STRIDE / u64::from(weight.clamp(1, 1_000));
        if flow.lines.is_empty() {
            self.tidy();
        } else {
            self.order.insert((flow.pass, whose.clone()));
        }
        shard
    }

    /// Whose turn it is of those that may have a slot.
    pub(super) fn next(
        &self,
        may: impl Fn(&Whose) -> bool,
        may_class: impl Fn(Class) -> bool,
    ) -> Option<(&Whose, Class)> {
        self.order.iter().filter(|(_, whose)| may(whose)).find_map(|(_, whose)| {
            let lines = self.flows[whose].lines.iter().filter(|(class, _)| may_class(**class));
            let next = lines.min_by_key(|(class, line)| line.rank(**class));
            next.map(|(class, _)| (whose, *class))
        })
    }

    /// All that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Whose, Class)> {
        let classes = |whose| self.flows[whose].lines.keys().map(move |class| (whose, *class));
        self.order.iter().flat_map(move |(_, whose)| classes(whose))
    }

    /// Whether tasks of a collection wait.
    pub(super) fn has(&self, whose: &Whose) -> bool {
        self.flows.get(whose).is_some_and(|flow| !flow.lines.is_empty())
    }

    /// Who has nobody waiting is remembered only while it is further on than the others.
    fn tidy(&mut self) {
        if self.flows.len() > 2 * self.order.len() + 16 {
            let passed = self.passed;
            self.flows.retain(|_, flow| !flow.lines.is_empty() || flow.pass > passed);
        }
    }
}
