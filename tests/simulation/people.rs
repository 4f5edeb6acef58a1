//! People: they set gates and clear them, have dead tasks run again and break off what runs; every instance looks at gates as the product does. Some runs have them, drawn
//! from a stream of chance of their own, so that the others stay what they are.

use std::sync::Arc;

use dueline::engine::{Failure, Input, fold};
use dueline::model::{
    Boot, Change, Closed, Ended, Fact, Gate, GateAction, Gates, HandlerName, OnDead, Operation, Outcome,
    Place, QueueName, Shard, Target, TaskKey, TaskState, Version, Wall,
};
use dueline::testing::rng::Rng;

use crate::ledger::{Asked, BASE, Call};
use crate::workload::{COLLECTION, HANDLERS, handler, queue};
use crate::world::{Addr, Event, World};

/// A stream of chance of its own.
const PEOPLE: u64 = 2;
/// Time between two looks of an instance.
const LOOK_MS: u64 = 500;
/// The name of gates that people set, and of those that deaths set.
const NAME: &str = "manual";
const ON_DEAD: &str = "on_dead";

/// What people did, and when it was on record.
#[derive(Debug, Default)]
pub(crate) struct People {
    /// Whether there are any in this run.
    pub(crate) are_there: bool,
    rng: Option<Rng>,
    operations: Vec<Operation>,
    /// Deaths on record that stop their queue.
    deaths: Vec<(Shard, QueueName, u64)>,
    /// Of every gate: from when to when it was set.
    pub(crate) gated: Vec<Gated>,
}

/// A gate, from when it was on record to when it was over.
#[derive(Clone, Debug)]
pub(crate) struct Gated {
    pub(crate) gate: Gate,
    pub(crate) from: u64,
    pub(crate) to: Option<u64>,
}

/// What an instance knows of gates.
#[derive(Debug, Default)]
pub(crate) struct Known {
    gates: Gates,
    /// With when that was asked for; `None` until they were read once.
    closed: Option<(Arc<Closed>, Boot)>,
}

impl People {
    pub(crate) fn new(seed: u64, share: u64) -> People {
        let mut rng = Rng::of_stream(seed, PEOPLE);
        let are_there = rng.chance(share);
        People { are_there, rng: Some(rng), ..People::default() }
    }
}

impl Gated {
    fn covers(&self, queue: &QueueName, handler: &HandlerName, collection: Option<&str>) -> bool {
        match &self.gate.target {
            Target::All => true,
            Target::Handler(name) => name == handler,
            Target::Queue(name) => name == queue,
            Target::Collection(name) => Some(&**name) == collection,
        }
    }
}

impl World {
    /// People begin, and instances begin to look.
    pub(crate) fn begin_people(&mut self) {
        if !self.people.are_there {
            return;
        }
        self.after(8_000, Event::Operate);
        self.after(9_000, Event::Intervene);
        for instance in 0..self.instances.len() {
            let ms = self.person().range(1, LOOK_MS);
            self.after(ms, Event::LookAtGates(instance));
        }
    }

    fn person(&mut self) -> &mut Rng {
        self.people.rng.get_or_insert_with(|| Rng::new(PEOPLE))
    }

    /// Somebody sets a gate, which ends by itself or is cleared.
    pub(crate) fn operate(&mut self) {
        if self.healing {
            return;
        }
        let queues = self.setup.queues;
        let (next, short) = (self.person().range(3_000, 40_000), self.person().range(500, 15_000));
        self.after(next, Event::Operate);
        let target = match self.person().below(10) {
            0 => Target::All,
            1..=4 => Target::Handler(handler(self.person().below(HANDLERS))),
            5..=7 => Target::Queue(queue(self.person().below(queues))),
            _ => Target::Collection(COLLECTION.into()),
        };
        let ends_by_itself = self.person().chance(400);
        let until = ends_by_itself.then(|| Wall(BASE + (self.now + short) as i64));
        let drops = self.person().chance(200) && target != Target::All;
        let gate = Gate {
            target: target.clone(),
            name: NAME.into(),
            action: if drops { GateAction::Drop } else { GateAction::Pause },
            abort_running: self.person().chance(300),
            until,
            blackout: None,
        };
        self.ledger.count(if drops { "gate that drops" } else { "gate that pauses" });
        self.ledger.faults.push(("gate", self.now, self.now + short + 2_000));
        self.end_gate(&target, NAME, self.now);
        let to = ends_by_itself.then_some(self.now + short);
        self.people.gated.push(Gated { gate: gate.clone(), from: self.now, to });
        self.record(Change::GateSet(gate));
        if !ends_by_itself {
            self.after(short, Event::ClearGate(target, NAME));
        }
    }

    /// Somebody has a task run again that failed, or breaks off a call: as far as they know, which may be out of date.
    pub(crate) fn intervene(&mut self) {
        if self.healing {
            return;
        }
        let next = self.person().range(500, 8_000);
        self.after(next, Event::Intervene);
        let (breaks_off, is_edited, back) =
            (self.person().chance(300), self.person().chance(300), self.person().below(40) as usize);
        let asked = if breaks_off { Asked::Abort } else { Asked::Redrive };
        let is_over = |call: &Call| {
            let last = call.attempt >= call.max_attempts;
            call.ended.is_some_and(|(_, outcome)| {
                outcome == Outcome::Fatal || last && outcome != Outcome::Succeeded
            })
        };
        let is_meant = |call: &&Call| if breaks_off { call.ended.is_none() } else { is_over(call) };
        let calls = self.ledger.calls.iter().rev().filter(is_meant);
        let Some(key) = calls.skip(back % 4).map(|call| call.key.clone()).next() else { return };
        let sending = self.workload.of_person(self.now, &key, asked, is_edited);
        self.send(vec![sending]);
    }

    pub(crate) fn clear_gate(&mut self, target: Target, name: &'static str) {
        self.end_gate(&target, name, self.now);
        self.record(Change::GateCleared(target, name.into()));
    }

    /// The request to stop a queue reaches the store, or does not; somebody resumes it after a while.
    pub(crate) fn stop_queue(&mut self, from: Addr, seq: u64, key: TaskKey) {
        let reaches = !self.store_away && !self.instances[from.instance].cut_from_store;
        let answer = if reaches {
            self.ledger.count("queue stopped by a death");
            let target = Target::Queue(key.queue);
            let gate = Gate::pause(target.clone(), ON_DEAD.into());
            self.end_gate(&target, ON_DEAD, self.now);
            self.people.gated.push(Gated { gate: gate.clone(), from: self.now, to: None });
            self.record(Change::GateSet(gate));
            let resumed = self.person().range(1_000, 12_000);
            self.ledger.faults.push(("gate", self.now, self.now + resumed + 2_000));
            self.after(resumed, Event::ClearGate(target, ON_DEAD));
            if self.alive(from) && !self.instances[from.instance].frozen {
                self.look(from.instance);
            }
            Ok(())
        } else {
            Err(Failure::Unavailable("not reached".into()))
        };
        let ms = self.way();
        self.after(ms, Event::Deliver(from, Input::QueueStopped(seq, answer)));
    }

    /// Judges the end: every task that is dead has its letter.
    pub(crate) fn judge_letters(&mut self) {
        let made: Vec<(Shard, Place)> = self.ledger.made().collect();
        for (shard, place) in made {
            let rows = self.store.known(shard, place);
            let folded = fold(rows.iter().map(|row| &row.fact), Version::MAX);
            if folded.state() == TaskState::Dead && !self.store.has_letter(shard, place) {
                let wrong =
                    format!("a task is dead and on no list of the dead: {place:?} of shard {}", shard.0);
                self.ledger.wrong(wrong);
            }
        }
    }

    /// Judges a death on record: one that stops its queue had stopped it by then.
    pub(crate) fn judge_death(&mut self, shard: Shard, place: Place, ended: &Ended) {
        if ended.closed.is_none() || !self.people.are_there {
            return;
        }
        let rows = self.store.known(shard, place);
        let task = rows.iter().find_map(|row| match &row.fact {
            Fact::Task { key, content, .. } => Some((key.clone(), content.on_dead)),
            _ => None,
        });
        let marked = rows.iter().any(|row| matches!(row.fact, Fact::Superseded { .. }));
        let Some((key, OnDead::Stop)) = task.filter(|_| !marked) else { return };
        let ended_at = ended.at.0 - BASE - 4_000;
        let stopped = self.people.gated.iter().any(|gated| {
            gated.gate.target == Target::Queue(key.queue.clone())
                && &*gated.gate.name == ON_DEAD
                && gated.from as i64 >= ended_at
        });
        self.people.deaths.push((shard, key.queue.clone(), self.now));
        if !stopped {
            self.ledger
                .wrong(format!("{key:?} is on record as dead at {}, and its queue is not stopped", self.now));
        }
    }

    /// Everything is opened.
    pub(crate) fn open_gates(&mut self) {
        let manual = self.people.gated.iter().filter(|gated| gated.to.is_none() && &*gated.gate.name == NAME);
        let open: Vec<Target> = manual.map(|gated| gated.gate.target.clone()).collect();
        open.into_iter().for_each(|target| self.clear_gate(target, NAME));
    }

    fn end_gate(&mut self, target: &Target, name: &str, at: u64) {
        let is_it = |gate: &Gate| gate.target == *target && &*gate.name == name;
        for gated in self.people.gated.iter_mut().filter(|gated| is_it(&gated.gate)) {
            if gated.to.is_none_or(|to| to > at) {
                gated.to = Some(at);
            }
        }
    }

    fn record(&mut self, change: Change) {
        let number = self.people.operations.len() as u64 + 1;
        let at = Wall(BASE + self.now as i64);
        self.people.operations.push(Operation {
            number,
            id: u128::from(number),
            at,
            by: None,
            reason: None,
            change,
        });
    }

    /// An instance looks; what it cannot read stays as it knew it.
    pub(crate) fn look_at_gates(&mut self, instance: usize) {
        self.after(LOOK_MS, Event::LookAtGates(instance));
        self.look_once(instance);
    }

    pub(crate) fn look_once(&mut self, instance: usize) {
        let at = &self.instances[instance];
        if at.up && !at.frozen {
            self.look(instance);
        }
    }

    fn look(&mut self, instance: usize) {
        let reaches = !self.store_away && !self.instances[instance].cut_from_store;
        let now = self.clock(instance);
        let known = &mut self.instances[instance].gates;
        let asked_at = if reaches {
            self.people.operations.iter().for_each(|operation| known.gates.apply(operation));
            now.boot
        } else {
            let Some((_, asked_at)) = known.closed else { return };
            asked_at
        };
        let closed = Arc::new(known.gates.closed(now.wall, |_, _| true));
        known.closed = Some((closed.clone(), asked_at));
        let life = self.instances[instance].life;
        let shards: Vec<Shard> = self.instances[instance].engines.keys().copied().collect();
        for shard in shards {
            self.give(Addr { instance, life, shard }, Input::Gates(closed.clone(), asked_at));
        }
    }

    /// Whether the gates are known to an instance: it takes no shard before.
    pub(crate) fn knows_gates(&mut self, instance: usize) -> bool {
        if !self.people.are_there {
            return true;
        }
        if self.instances[instance].gates.closed.is_none() {
            self.look(instance);
        }
        self.instances[instance].gates.closed.is_some()
    }

    /// What a new engine is told.
    pub(crate) fn closed_for(&self, instance: usize) -> Option<(Arc<Closed>, Boot)> {
        self.instances[instance].gates.closed.clone()
    }

    /// Judges a call that goes out now: no gate has been closed for it for longer than it takes to be heard of.
    pub(crate) fn judge_call(&mut self, from: Addr, order: &dueline::engine::CallOrder) {
        let content = &order.content;
        let (queue, collection) = (&order.key.queue, content.collection.as_deref());
        self.judge_stopped_queue(from, order);
        let heard_ms = self.heard_ms(from.instance);
        let stopped = self.people.gated.iter().find(|gated| {
            let in_force =
                gated.from + heard_ms < self.now && gated.to.is_none_or(|to| self.now + 2_000 < to);
            in_force && gated.covers(queue, &content.handler, collection)
        });
        if let Some(gated) = stopped {
            let wrong =
                format!("a call went out at {} through a closed gate: {gated:?} {:?}", self.now, order.key);
            self.ledger.wrong(wrong);
        }
    }

    /// A queue that a death had stopped before this owner read anything does not move until it is resumed.
    fn judge_stopped_queue(&mut self, from: Addr, order: &dueline::engine::CallOrder) {
        let queue = &order.key.queue;
        let Some(read) = self.ledger.loads.get(&(from.shard, order.token.epoch.0)).copied() else { return };
        let died = self.people.deaths.iter().any(|(shard, dead, at)| {
            let open = self.people.gated.iter().any(|gated| {
                let is_it = gated.gate.target == Target::Queue(dead.clone()) && &*gated.gate.name == ON_DEAD;
                is_it && gated.from <= *at && gated.to.is_none_or(|to| to > self.now)
            });
            *shard == from.shard && dead == queue && *at < read && open
        });
        if died {
            let wrong = format!("a queue that a death had stopped moved at {}: {:?}", self.now, order.key);
            self.ledger.wrong(wrong);
        }
    }

    /// Judges a task that was dropped: a gate said so, a moment ago at most.
    pub(crate) fn judge_drop(&mut self, from: Addr, queue: &QueueName, handler: &HandlerName) {
        let before = self.now.saturating_sub(self.heard_ms(from.instance));
        // Its collection is not known here.
        let told = self.people.gated.iter().any(|gated| {
            let drops = gated.gate.action == GateAction::Drop;
            drops && gated.to.is_none_or(|to| to >= before) && gated.covers(queue, handler, Some(COLLECTION))
        });
        if !told {
            self.ledger.wrong(format!("a task of queue {queue} was dropped at {} by no gate", self.now));
        }
    }

    /// How long an instance may be without hearing of a gate: as long as its lease, when it does not reach the store or
    /// stood still.
    fn heard_ms(&self, instance: usize) -> u64 {
        let about = |from: u64, to: u64| from <= self.now && self.now <= to + LOOK_MS;
        let disturbed =
            self.ledger.faults.iter().any(|(what, from, to)| *what != "gate" && about(*from, *to));
        let disturbed = disturbed || self.instances[instance].cut_from_store || self.store_away;
        if disturbed { self.setup.timing.lease_ms + 2_000 } else { 2_000 }
    }
}
