//! Gates: stops that people put on a handler, a queue, a collection or everything; and the log of what people did.
//!
//! ```text
//! operation   number                                     gates, made of the operations in order
//!    1   gate set      handler notify, pause      ─┐
//!    2   gate set      queue incident-42, pause    ├──►  queue incident-42: pause
//!    3   gate cleared  handler notify             ─┘
//! ```
//!
//! Every change is an operation with the next number, never two with one: what is in force does not depend on clocks, and
//! who did what, when and why stays on record. Batches and drains are operations too.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::batch::Batch;
use super::drain;
use super::name::{HandlerName, QueueName};
use super::reset::Reset;
use super::time::Wall;

/// What a gate stops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Every task.
    All,
    /// The tasks of a handler.
    Handler(HandlerName),
    /// The tasks of a queue.
    Queue(QueueName),
    /// The tasks of a collection.
    Collection(Arc<str>),
}

impl Target {
    /// The word used in rows and API.
    pub fn word(&self) -> &'static str {
        match self {
            Target::All => "all",
            Target::Handler(_) => "handler",
            Target::Queue(_) => "queue",
            Target::Collection(_) => "collection",
        }
    }

    /// The name of the handler, queue or collection.
    pub fn name(&self) -> Option<&str> {
        match self {
            Target::All => None,
            Target::Handler(name) => Some(name.as_str()),
            Target::Queue(name) => Some(name.as_str()),
            Target::Collection(name) => Some(name),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            None => f.write_str(self.word()),
            Some(name) => write!(f, "{} {name}", self.word()),
        }
    }
}

/// What happens to a task that comes to a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAction {
    /// It waits, and its queue with it.
    Pause,
    /// It is closed as dropped, on record.
    Drop,
}

impl GateAction {
    /// The word used in rows and API.
    pub fn word(self) -> &'static str {
        match self {
            GateAction::Pause => "pause",
            GateAction::Drop => "drop",
        }
    }

    /// The action of a word.
    pub fn from_word(word: &str) -> Option<GateAction> {
        [GateAction::Pause, GateAction::Drop].into_iter().find(|action| action.word() == word)
    }
}

/// A rule for a gate that is in force again and again: on some days, from one time of day to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blackout {
    /// Monday first: the days on which it begins.
    pub days: [bool; 7],
    /// Minutes after midnight at which it begins, below 1,440.
    pub from_min: u16,
    /// Minutes after midnight at which it ends; at or before its begin: on the next day.
    pub to_min: u16,
    /// IANA time zone.
    pub zone: Arc<str>,
}

/// A stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// What it stops.
    pub target: Target,
    /// Tells it from others of the same target: one of a name is in force.
    pub name: Arc<str>,
    /// What happens to tasks that come to it.
    pub action: GateAction,
    /// Whether attempts under way are broken off when it comes into force.
    pub abort_running: bool,
    /// Not in force from then on.
    pub until: Option<Wall>,
    /// In force only then.
    pub blackout: Option<Blackout>,
}

impl Gate {
    /// A gate at which everything of a target waits until it is cleared.
    pub fn pause(target: Target, name: Arc<str>) -> Gate {
        Gate { target, name, action: GateAction::Pause, abort_running: false, until: None, blackout: None }
    }

    /// Whether it is in force at `now`; `inside` says whether a blackout is in force at a time.
    pub fn is_in_force(&self, now: Wall, inside: impl Fn(&Blackout, Wall) -> bool) -> bool {
        let is_over = self.until.is_some_and(|until| until <= now);
        !is_over && self.blackout.as_ref().is_none_or(|blackout| inside(blackout, now))
    }
}

/// What a person changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its number, from 1, without gaps.
    pub number: u64,
    /// Fresh for each: says whose the number is when an answer was lost.
    pub id: u128,
    /// When.
    pub at: Wall,
    /// Who.
    pub by: Option<Arc<str>>,
    /// Why.
    pub reason: Option<Arc<str>>,
    /// What.
    pub change: Change,
}

/// The change of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A gate was set, in place of one of its target and name.
    GateSet(Gate),
    /// The gate of this target and name was cleared.
    GateCleared(Target, Arc<str>),
    /// A batch began: it has the operation's number.
    BatchBegun(Batch),
    /// The batch of this number was stopped.
    BatchStopped(u64),
    /// It goes on.
    BatchResumed(u64),
    /// Instances were drained: they run no shard.
    Drained(drain::Place),
    /// That was undone.
    Undrained(drain::Place),
    /// What the logs of shards lost is accepted.
    ShardsReset(Vec<Reset>),
    /// Something that a newer build knows: its word.
    Other(Arc<str>),
}

/// The gates that were set and not cleared, as of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    last: u64,
    set: BTreeMap<(Target, Arc<str>), Operation>,
}

impl Gates {
    /// The number of the last operation taken.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Takes the next operation. One that was taken before changes nothing.
    pub fn apply(&mut self, operation: &Operation) {
        if operation.number <= self.last {
            return;
        }
        self.last = operation.number;
        match &operation.change {
            Change::GateSet(gate) => {
                self.set.insert((gate.target.clone(), gate.name.clone()), operation.clone());
            }
            Change::GateCleared(target, name) => {
                self.set.remove(&(target.clone(), name.clone()));
            }
            Change::BatchBegun(_)
            | Change::BatchStopped(_)
            | Change::BatchResumed(_)
            | Change::Drained(_)
            | Change::Undrained(_)
            | Change::ShardsReset(_)
            | Change::Other(_) => {}
        }
    }

    /// The gates, each with the operation that set it.
    pub fn iter(&self) -> impl Iterator<Item = (&Gate, &Operation)> {
        self.set.values().filter_map(|operation| match &operation.change {
            Change::GateSet(gate) => Some((gate, operation)),
            _ => None,
        })
    }

    /// The gate of a target and name.
    pub fn get(&self, target: &Target, name: &str) -> Option<&Operation> {
        self.set.get(&(target.clone(), Arc::from(name)))
    }

    /// What is closed at `now`; `inside` says whether a blackout is in force at a time.
    pub fn closed(&self, now: Wall, inside: impl Fn(&Blackout, Wall) -> bool) -> Closed {
        let mut closed = Closed::default();
        for (gate, operation) in self.iter() {
            if !gate.is_in_force(now, &inside) {
                continue;
            }
            let bar = Bar {
                target: gate.target.clone(),
                action: gate.action,
                abort_running: gate.abort_running,
                until: gate.until,
                note: operation.reason.clone(),
                operation: operation.number,
            };
            closed.add(bar);
        }
        closed
    }
}

/// A gate in force, as engines see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// What it stops.
    pub target: Target,
    /// What happens to tasks that come to it.
    pub action: GateAction,
    /// Whether attempts under way are broken off.
    pub abort_running: bool,
    /// Until when, where that is known.
    pub until: Option<Wall>,
    /// Why, in the words of who set it.
    pub note: Option<Arc<str>>,
    /// The operation that set it.
    pub operation: u64,
}

/// Everything that is closed at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    bars: BTreeMap<Target, Vec<Bar>>,
}

impl Closed {
    fn add(&mut self, bar: Bar) {
        self.bars.entry(bar.target.clone()).or_default().push(bar);
    }

    /// Whether everything is open.
    pub fn is_empty(&self) -> bool {
        self.bars.is_empty()
    }

    /// The gates in force on a target.
    pub fn bars_on(&self, target: &Target) -> impl Iterator<Item = &Bar> {
        self.bars.get(target).into_iter().flatten()
    }

    /// Everything that closes the way of a task, the widest first.
    pub fn bars<'a>(
        &'a self,
        queue: &QueueName,
        handler: &HandlerName,
        collection: Option<&str>,
    ) -> impl Iterator<Item = &'a Bar> {
        let collection = collection.map(|name| Target::Collection(Arc::from(name)));
        let targets = [Target::All, Target::Handler(handler.clone()), Target::Queue(queue.clone())];
        let found = targets.into_iter().chain(collection).filter_map(|target| self.bars.get(&target));
        found.flatten().collect::<Vec<_>>().into_iter()
    }

    /// What closes the way of a task: a pause before a drop, so that what waits is not lost; the widest first.
    pub fn bar(&self, queue: &QueueName, handler: &HandlerName, collection: Option<&str>) -> Option<&Bar> {
        if self.is_empty() {
            return None;
        }
        let mut bars = self.bars(queue, handler, collection);
        let first = bars.next()?;
        let is_pause = |bar: &&Bar| bar.action == GateAction::Pause;
        Some(Some(first).filter(is_pause).or_else(|| bars.find(is_pause)).unwrap_or(first))
    }

    /// The queues that differ from `before` when nothing but gates on queues does; `None` = more differs.
    pub fn only_queues_since<'a>(&'a self, before: &'a Closed) -> Option<Vec<&'a QueueName>> {
        let differs = |target: &&Target| self.bars.get(*target) != before.bars.get(*target);
        let targets: Vec<&Target> = self.bars.keys().chain(before.bars.keys()).filter(differs).collect();
        let queue = |target: &&'a Target| match target {
            Target::Queue(name) => Some(name),
            Target::All | Target::Handler(_) | Target::Collection(_) => None,
        };
        targets.iter().map(queue).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(target: Target, action: GateAction) -> Gate {
        Gate { action, ..Gate::pause(target, "manual".into()) }
    }

    fn operation(number: u64, change: Change) -> Operation {
        Operation { number, id: u128::from(number), at: Wall(1), by: None, reason: None, change }
    }

    fn names() -> (QueueName, HandlerName) {
        (QueueName::new("q").expect("a name"), HandlerName::new("h").expect("a name"))
    }

    #[test]
    fn the_last_operation_on_a_target_decides_and_none_counts_twice() {
        let (queue, handler) = names();
        let target = Target::Queue(queue.clone());
        let set = operation(1, Change::GateSet(gate(target.clone(), GateAction::Pause)));
        let cleared = operation(2, Change::GateCleared(target, "manual".into()));
        let mut gates = Gates::default();
        gates.apply(&set);
        let closed = gates.closed(Wall(5), |_, _| true);
        assert!(closed.bar(&queue, &handler, None).is_some());
        gates.apply(&cleared);
        gates.apply(&set);
        assert!(gates.closed(Wall(5), |_, _| true).is_empty());
        assert_eq!(gates.last(), 2);
    }

    #[test]
    fn a_pause_goes_before_a_drop_and_a_gate_ends_at_its_time() {
        let (queue, handler) = names();
        let mut gates = Gates::default();
        let drop = gate(Target::All, GateAction::Drop);
        let pause =
            Gate { until: Some(Wall(10)), ..gate(Target::Handler(handler.clone()), GateAction::Pause) };
        gates.apply(&operation(1, Change::GateSet(drop)));
        gates.apply(&operation(2, Change::GateSet(pause)));
        let action = |at| {
            let closed = gates.closed(Wall(at), |_, _| true);
            closed.bar(&queue, &handler, Some("c")).map(|bar| bar.action)
        };
        assert_eq!(action(9), Some(GateAction::Pause));
        assert_eq!(action(10), Some(GateAction::Drop));
    }

    #[test]
    fn a_blackout_closes_only_while_it_lasts() {
        let (queue, handler) = names();
        let blackout = Blackout { days: [true; 7], from_min: 60, to_min: 120, zone: Arc::from("Etc/UTC") };
        let gate =
            Gate { blackout: Some(blackout), ..gate(Target::Collection("c".into()), GateAction::Pause) };
        let mut gates = Gates::default();
        gates.apply(&operation(1, Change::GateSet(gate)));
        let closed = |inside: bool| gates.closed(Wall(5), |_, _| inside);
        assert!(closed(true).bar(&queue, &handler, Some("c")).is_some());
        assert!(closed(true).bar(&queue, &handler, Some("other")).is_none());
        assert!(closed(false).is_empty());
    }
}
