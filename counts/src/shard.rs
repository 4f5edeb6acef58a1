//! One shard: the engine, and answers to all it asks for. Only what goes through [`counted_input`] and [`counted_effect`]
//! counts: valgrind is told their names.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alone::engine::{CallEnd, Effect, Engine, Incoming, Input, LogEnd, Observation, Options, Timing};
use alone::model::{
    Boot, Change, Due, Epoch, Event, Fact, Gate, Gates, HandlerName, ListedIds, Now, Operation, Outcome,
    OwnerRow, Payload, QueueName, Row, Target, TaskContent, TaskId, Verb, Wall,
};

use super::memory::Memory;

const START: i64 = 1_000_000_000_000;
/// Inputs that are given before effects are asked for, as an actor does.
const INPUTS_PER_TURN: usize = 256;
/// The owner's row is looked at once in a year.
const YEAR_MS: u64 = 365 * 86_400_000;

pub(super) struct Shard {
    engine: Engine,
    ms: u64,
    owner: OwnerRow,
    memory: Memory,
    stored: u64,
    ended: u64,
    log: Vec<Incoming>,
    position: usize,
    fetch: Option<(u64, usize)>,
    inputs: VecDeque<Input>,
    counts: bool,
    took: Duration,
}

#[inline(never)]
fn counted_input(engine: &mut Engine, now: Now, input: Input) {
    engine.handle(now, input);
}

#[inline(never)]
fn counted_effect(engine: &mut Engine) -> Option<Effect> {
    engine.poll_effect()
}

impl Shard {
    /// An owner that runs, of an empty log.
    pub(super) fn running(options: Options) -> Shard {
        let timing =
            Timing { lease_ms: 100 * YEAR_MS, verify_ms: 50 * YEAR_MS, margin_ms: 1, ..Timing::default() };
        let mut shard = Shard {
            engine: Engine::new(Options { timing, ..options }),
            ms: 0,
            owner: OwnerRow::default(),
            memory: Memory::default(),
            stored: 0,
            ended: 0,
            log: Vec::new(),
            position: 0,
            fetch: None,
            inputs: VecDeque::new(),
            counts: false,
            took: Duration::ZERO,
        };
        shard.give(Input::Assigned { owner: 1 });
        assert_eq!(shard.engine.shard_view(shard.now().boot).phase, "running");
        shard
    }

    /// What happens in here counts.
    pub(super) fn count(&mut self, what: impl FnOnce(&mut Shard)) {
        self.counts = true;
        what(self);
        self.counts = false;
    }

    /// How long the engine took for what counts.
    pub(super) fn took(&self) -> Duration {
        self.took
    }

    /// Tasks in the store.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// Attempts that ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Closes the gate before a queue.
    pub(super) fn close(&mut self, queue: &str) {
        let mut gates = Gates::default();
        let target = Target::Queue(QueueName::new(queue).expect("a name"));
        let change = Change::GateSet(Gate::pause(target, "counts".into()));
        gates.apply(&Operation { number: 1, id: 1, at: self.now().wall, by: None, reason: None, change });
        let closed = gates.closed(self.now().wall, |_, _| false);
        self.give(Input::Gates(Arc::new(closed), self.now().boot));
    }

    /// Schedules tasks due in `ms`.
    pub(super) fn schedule(
        &mut self,
        tasks: u64,
        ms: i64,
        queue_of: impl Fn(u64) -> String,
        collections: Option<u64>,
    ) {
        let now = self.now().wall;
        let names: Vec<Arc<str>> =
            (0..collections.unwrap_or(0)).map(|number| format!("c-{number}").into()).collect();
        for task in 0..tasks {
            let offset = self.log.len() as u64;
            let queue = queue_of(task);
            let collection = names.get((task % names.len().max(1) as u64) as usize).cloned();
            let event = event(&queue, offset, now.plus_ms(ms), collection);
            self.log.push(Incoming {
                offset,
                bytes: 200,
                appended: now,
                leader_epoch: None,
                decoded: Ok((event, None)),
            });
        }
        let fetched = self.fetched();
        self.inputs.extend(fetched);
        self.turn();
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, ms: u64) {
        let end = self.ms + ms;
        while let Some(at) = self.engine.poll_timeout().filter(|at| at.0 <= end) {
            self.ms = self.ms.max(at.0);
            self.give(Input::Tick);
        }
        self.ms = end;
        self.give(Input::Tick);
    }

    fn now(&self) -> Now {
        Now { wall: Wall(START + self.ms as i64), boot: Boot(self.ms) }
    }

    fn give(&mut self, input: Input) {
        self.inputs.push_back(input);
        self.turn();
    }

    /// Gives inputs and answers effects until there are none.
    fn turn(&mut self) {
        while !self.inputs.is_empty() {
            for _ in 0..INPUTS_PER_TURN {
                let Some(input) = self.inputs.pop_front() else { break };
                self.handle(input);
            }
            while let Some(effect) = self.poll_effect() {
                let answer = self.answer(effect);
                self.inputs.extend(answer);
            }
        }
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        if !self.counts {
            return self.engine.handle(now, input);
        }
        let start = Instant::now();
        counted_input(&mut self.engine, now, input);
        self.took += start.elapsed();
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        if !self.counts {
            return self.engine.poll_effect();
        }
        let start = Instant::now();
        let effect = counted_effect(&mut self.engine);
        self.took += start.elapsed();
        effect
    }

    fn answer(&mut self, effect: Effect) -> Option<Input> {
        Some(match effect {
            Effect::ReadOwner => Input::OwnerRead(Ok(self.owner.clone())),
            Effect::LookAtOwner => Input::OwnerSeen(Ok(self.owner.clone())),
            Effect::Bump { expected, owner, wait_ms } => {
                self.owner.epoch = Epoch(expected.0 + 1);
                (self.owner.owner, self.owner.wait_ms) = (owner, wait_ms);
                Input::Bumped(Ok(true))
            }
            Effect::Release { .. } => Input::Released(Ok(true)),
            Effect::ReadProgress(ticket) => Input::ProgressRead(ticket, Ok(None)),
            Effect::ReadIds(ticket, ..) => Input::IdsRead(ticket, Ok(ListedIds::default())),
            Effect::WriteProgress { ticket, .. } => Input::ProgressWritten(ticket, Ok(())),
            Effect::ReadLogEnd(ticket) => {
                let end = LogEnd {
                    first: 0,
                    next: self.log.len() as u64,
                    leader_epoch: None,
                    topic_id: "counts".into(),
                };
                Input::LogEndRead(ticket, Ok(end))
            }
            Effect::Seek(ticket, offset) => {
                self.position = offset as usize;
                Input::Sought(ticket, Ok(()))
            }
            Effect::Fetch { ticket, records_max, .. } => {
                self.fetch = Some((ticket, records_max));
                return self.fetched();
            }
            Effect::WantSlots(lane, count, _) => Input::Slots(lane, count),
            Effect::Call(order) => Input::CallEnded(order.token.sequence, succeeded()),
            Effect::Publish(ticket, events) => Input::Published(ticket, events.len(), None),
            Effect::StopQueue { seq, .. } => Input::QueueStopped(seq, Ok(())),
            Effect::Reject(offset, rejection) => panic!("{offset} is rejected: {rejection:?}"),
            Effect::Forward(offset, _) => panic!("{offset} is not at home"),
            Effect::Observe(Observation::Stopped(why)) => panic!("the shard stopped: {why}"),
            Effect::BreakOff(..)
            | Effect::FreeSlots(..)
            | Effect::WithdrawSlots(..)
            | Effect::Rejoin(_)
            | Effect::AskGates
            | Effect::StopFetch
            | Effect::Commit(_)
            | Effect::Observe(_) => return None,
            effect => {
                if let Effect::Write(_, rows) = &effect {
                    self.note(rows);
                }
                let answer = self.memory.answer(effect);
                assert!(answer.is_some(), "all that is left is asked of the store");
                return answer;
            }
        })
    }

    fn note(&mut self, rows: &[Row]) {
        let facts =
            rows.iter().filter_map(|row| if let Row::Fact(row) = row { Some(&row.fact) } else { None });
        for fact in facts {
            self.stored += u64::from(matches!(fact, Fact::Task { .. }));
            self.ended += u64::from(matches!(fact, Fact::Ended(_)));
        }
    }

    fn fetched(&mut self) -> Option<Input> {
        let (ticket, records_max) = self.fetch?;
        let from = self.log.get(self.position..).unwrap_or_default();
        let records: Vec<Incoming> = from.iter().take(records_max).cloned().collect();
        if records.is_empty() {
            return None;
        }
        self.fetch = None;
        self.position += records.len();
        Some(Input::Fetched(ticket, Ok(records)))
    }
}

fn succeeded() -> CallEnd {
    CallEnd::of(Outcome::Succeeded)
}

fn event(queue: &str, number: u64, due_at: Wall, collection: Option<Arc<str>>) -> Event {
    let content = TaskContent {
        collection,
        ..TaskContent::new(
            HandlerName::new("noop").expect("a name"),
            Payload::Inline(Arc::from(&br#"{"note":"of ordinary length","user":"someone@example.org"}"#[..])),
        )
    };
    Event {
        queue: Some(QueueName::new(queue).expect("a name")),
        id: Some(TaskId::new(&format!("t-{number}")).expect("a name")),
        verb: Verb::Schedule(Due::At(due_at), Box::new(content)),
        content_hash: u128::from(number).to_le_bytes(),
        event_id_hash: None,
        reason: None,
    }
}
