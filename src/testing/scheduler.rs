//! A scheduler on a virtual clock, for tests of programs that use Dueline: the engine of the product with a log and a store in
//! memory. Days pass in an instant, and nothing else happens than what the product would do at that time.
//!
#![doc = include_str!("../../docs/testing.md")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::in_process::{Handler, InProcess};
use crate::dispatch::{Dispatch, Policy};
use crate::engine::{self, CallOrder, Effect, Engine, Incoming, Input, LogEnd, fold};
use crate::model::{
    Boot, Change, Closed, Decision, Fact, Gate, Gates, HandlerName, HeadPolicies, ListedIds, Now, Operation,
    Outcome, OwnerRow, QueueName, Shard, Target, TaskId, TaskKey, TaskState, Version, Wall, limits,
};
use crate::runtime::gates::ON_DEAD;
use crate::runtime::perform::{call_end, call_of};
use crate::wire::blackout;
use crate::wire::event::{Handlers, Rules, decode_plain};
use crate::wire::time::{Round, format_time, parse_time};

use memory::Memory;

mod memory;
#[cfg(test)]
mod tests;

const SHARD: Shard = Shard(0);
/// While a gate has a time or a rule, it is looked at again after so long, in milliseconds.
const GATES_MS: u64 = 60_000;
/// Inputs at one time after which time is taken to stand still.
const SPINS_MAX: u32 = 1_000_000;

/// One attempt that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// When, by the virtual clock: RFC 3339 with milliseconds.
    pub at: String,
    /// The task's queue.
    pub queue: String,
    /// Its id.
    pub id: String,
    /// Its handler.
    pub handler: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// Why a schedule event was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A scheduler on a virtual clock. Not for more than a test: everything is in memory.
pub struct TestScheduler {
    engine: Engine,
    is_started: bool,
    start: Wall,
    ms: u64,
    handlers: BTreeMap<HandlerName, (Arc<dyn Dispatch>, Policy)>,
    memory: Memory,
    owner: OwnerRow,
    log: Vec<Incoming>,
    position: usize,
    fetch: Option<(u64, usize)>,
    /// Answers that nothing waits for: they come with the next move of the clock, and so need no time of their own.
    held: Vec<Input>,
    /// Comes before the answer to the effect that is being performed.
    before: Option<Input>,
    calls: VecDeque<CallOrder>,
    runs: Vec<Run>,
    gates: Gates,
    closed: Arc<Closed>,
}

impl TestScheduler {
    /// One whose clock stands at `start`, RFC 3339.
    ///
    /// # Panics
    /// `start` is no such time.
    pub fn at(start: &str) -> TestScheduler {
        let start = parse_time(start, Round::Up).unwrap_or_else(|error| panic!("{start:?}: {error}"));
        TestScheduler {
            engine: Engine::new(options(&BTreeMap::new())),
            is_started: false,
            start,
            ms: 0,
            handlers: BTreeMap::new(),
            memory: Memory::default(),
            owner: OwnerRow::default(),
            log: Vec::new(),
            position: 0,
            fetch: None,
            held: Vec::new(),
            before: None,
            calls: VecDeque::new(),
            runs: Vec::new(),
            gates: Gates::default(),
            closed: Arc::default(),
        }
    }

    /// Adds a handler with the default policy, before the first event.
    ///
    /// # Panics
    /// The name is no handler's name, or an event came before.
    #[must_use]
    pub fn handler(self, name: &str, handler: impl Handler) -> TestScheduler {
        self.handler_with(name, Policy::default(), handler)
    }

    /// Adds a handler, before the first event.
    ///
    /// # Panics
    /// The name is no handler's name, or an event came before.
    #[must_use]
    pub fn handler_with(mut self, name: &str, policy: Policy, handler: impl Handler) -> TestScheduler {
        assert!(!self.is_started, "handlers are added before the first event");
        let name = HandlerName::new(name).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        self.handlers.insert(name, (Arc::new(InProcess::new(handler)), policy));
        self.engine = Engine::new(options(&self.handlers));
        self
    }

    /// The time, RFC 3339.
    pub fn now(&self) -> String {
        format_time(self.wall())
    }

    /// Gives a schedule event, plain JSON as on the topic, and says what was decided. What is due runs before this returns.
    ///
    /// # Errors
    /// What the product would put on the rejected topic: which field is wrong.
    pub async fn send(&mut self, event: &str) -> Result<Decision, Refused> {
        self.start().await;
        let rules = Rules {
            payload_bytes_max: limits::PAYLOAD_BYTES_MAX,
            handlers: Arc::new(Handlers {
                names: self.handlers.keys().map(ToString::to_string).collect(),
                loopback_urls: false,
                heads: HeadPolicies {
                    of_handlers: (self.handlers.iter())
                        .map(|(name, (_, policy))| (name.to_string(), policy.head))
                        .collect(),
                    ..HeadPolicies::default()
                },
            }),
            signing_key: [0; 32],
        };
        let appended = self.wall();
        let decoded = decode_plain(event.as_bytes(), appended, &rules);
        let decoded = decoded.map_err(|fault| Refused(fault.to_string()))?;
        let offset = self.log.len() as u64;
        self.log.push(Incoming {
            offset,
            bytes: event.len(),
            appended,
            leader_epoch: None,
            decoded: Ok((decoded, None)),
        });
        let fetched = self.fetched();
        self.give(fetched).await;
        self.memory.decision(Version(offset)).ok_or_else(|| Refused("not decided: a bug of Dueline".into()))
    }

    /// Lets time pass; everything that comes due runs at its time.
    pub async fn advance(&mut self, time: Duration) {
        self.start().await;
        let end = self.ms + u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 4);
        let held = std::mem::take(&mut self.held);
        self.give(held).await;
        let mut spins = 0;
        loop {
            let gates = self.gates.iter().any(|(gate, _)| gate.until.is_some() || gate.blackout.is_some());
            let look = gates.then_some(self.ms + GATES_MS);
            let next = self.engine.poll_timeout().map(|at| at.0).into_iter().chain(look).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            spins = if next > self.ms { 0 } else { spins + 1 };
            assert!(spins < SPINS_MAX, "the virtual clock stands still at {}: a bug of Dueline", self.now());
            self.ms = self.ms.max(next);
            self.look_at_gates().await;
            self.give([Input::Tick]).await;
        }
        self.ms = end;
        self.look_at_gates().await;
        self.give([Input::Tick]).await;
    }

    /// Lets time pass up to `time`, RFC 3339.
    ///
    /// # Panics
    /// It is no time, or lies in the past.
    pub async fn advance_to(&mut self, time: &str) {
        let to = parse_time(time, Round::Up).unwrap_or_else(|error| panic!("{time:?}: {error}"));
        let ms = to.0 - self.wall().0;
        let ms = u64::try_from(ms).unwrap_or_else(|_| panic!("{time} lies before {}", self.now()));
        self.advance(Duration::from_millis(ms)).await;
    }

    /// Every attempt that was made, in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The ids of the tasks that succeeded, in order.
    pub fn succeeded(&self) -> Vec<&str> {
        let done = self.runs.iter().filter(|run| run.outcome == Outcome::Succeeded);
        done.map(|run| run.id.as_str()).collect()
    }

    /// Where a task stands; `None` = it was never heard of.
    pub fn state(&self, queue: &str, id: &str) -> Option<TaskState> {
        let key = TaskKey { queue: QueueName::new(queue).ok()?, id: TaskId::new(id).ok()? };
        let facts = self.memory.facts(self.memory.current(&key)?);
        let content = facts.iter().find_map(|fact| match fact {
            Fact::Task { content, .. } => Some(content),
            _ => None,
        })?;
        Some(fold(facts, Version::MAX).state_of(content.on_failure))
    }

    /// Sets a gate, as `dueline gate set` does: from now on it stops what it stands before.
    pub async fn close(&mut self, gate: Gate) {
        self.change(Change::GateSet(gate)).await;
    }

    /// Clears the gate of a target and name.
    pub async fn open(&mut self, target: Target, name: &str) {
        self.change(Change::GateCleared(target, Arc::from(name))).await;
    }

    async fn change(&mut self, change: Change) {
        self.start().await;
        let number = self.gates.last() + 1;
        let (id, at) = (u128::from(number), self.wall());
        self.gates.apply(&Operation { number, id, at, by: None, reason: None, change });
        self.look_at_gates().await;
    }

    async fn look_at_gates(&mut self) {
        let closed = self.gates.closed(self.wall(), blackout::is_within);
        if closed != *self.closed {
            self.closed = Arc::new(closed);
            self.give([Input::Gates(self.closed.clone(), Boot(self.ms))]).await;
        }
    }

    async fn start(&mut self) {
        if !std::mem::replace(&mut self.is_started, true) {
            self.give([Input::Assigned { owner: 1 }]).await;
            assert_eq!(self.engine.shard_view(Boot(self.ms)).phase, "running", "a bug of Dueline");
        }
    }

    fn wall(&self) -> Wall {
        self.start.plus_ms(i64::try_from(self.ms).unwrap_or(i64::MAX))
    }

    /// Gives inputs and does everything that follows, calls of handlers too.
    async fn give(&mut self, inputs: impl IntoIterator<Item = Input>) {
        let mut inputs: VecDeque<Input> = inputs.into_iter().collect();
        loop {
            while let Some(input) = inputs.pop_front() {
                let now = Now { wall: self.wall(), boot: Boot(self.ms) };
                self.engine.handle(now, input);
                while let Some(effect) = self.engine.poll_effect() {
                    let answer = self.perform(effect);
                    inputs.extend(self.before.take());
                    inputs.extend(answer);
                }
            }
            let Some(order) = self.calls.pop_front() else { return };
            inputs.push_back(self.call(order).await);
        }
    }

    async fn call(&mut self, order: CallOrder) -> Input {
        let (seq, handler) = (order.token.sequence, order.content.handler.clone());
        let call = call_of(order, SHARD);
        let mut run = Run {
            at: self.now(),
            queue: call.key.queue.to_string(),
            id: call.key.id.to_string(),
            handler: handler.to_string(),
            attempt: call.attempt,
            outcome: Outcome::Fatal,
        };
        let ending = match self.handlers.get(&handler) {
            Some((dispatch, _)) => dispatch.clone().call(call).await,
            None => crate::dispatch::Ending::failed(Outcome::Fatal, format!("no handler {handler}")),
        };
        run.outcome = ending.outcome;
        self.runs.push(run);
        Input::CallEnded(seq, call_end(ending))
    }

    fn perform(&mut self, effect: Effect) -> Option<Input> {
        Some(match effect {
            Effect::ReadOwner => Input::OwnerRead(Ok(self.owner.clone())),
            Effect::LookAtOwner => Input::OwnerSeen(Ok(self.owner.clone())),
            Effect::Bump { expected, owner, wait_ms } => {
                self.owner.epoch = crate::model::Epoch(expected.0 + 1);
                (self.owner.owner, self.owner.wait_ms) = (owner, wait_ms);
                Input::Bumped(Ok(true))
            }
            Effect::Release(release) => {
                self.owner.released_epoch = release.released;
                Input::Released(Ok(true))
            }
            Effect::ReadProgress(ticket) => Input::ProgressRead(ticket, Ok(None)),
            Effect::ReadIds(ticket, ..) => Input::IdsRead(ticket, Ok(ListedIds::default())),
            Effect::WriteProgress { ticket, .. } => {
                return self.later(Input::ProgressWritten(ticket, Ok(())));
            }
            Effect::ReadLogEnd(ticket) => {
                let end = LogEnd {
                    first: 0,
                    next: self.log.len() as u64,
                    leader_epoch: None,
                    topic_id: "test".into(),
                };
                return self.later(Input::LogEndRead(ticket, Ok(end)));
            }
            Effect::Seek(ticket, offset) => {
                self.position = usize::try_from(offset).unwrap_or(usize::MAX);
                Input::Sought(ticket, Ok(()))
            }
            Effect::Fetch { ticket, records_max, .. } => {
                self.fetch = Some((ticket, records_max));
                return self.fetched();
            }
            Effect::WantSlots(handler, count, _) => Input::Slots(handler, count),
            Effect::Call(order) => {
                self.calls.push_back(*order);
                return None;
            }
            Effect::StopQueue { seq, key, .. } => {
                let number = self.gates.last() + 1;
                let gate = Gate::pause(Target::Queue(key.queue), Arc::from(ON_DEAD));
                let (at, change) = (self.wall(), Change::GateSet(gate));
                self.gates.apply(&Operation {
                    number,
                    id: u128::from(number),
                    at,
                    by: None,
                    reason: None,
                    change,
                });
                self.closed = Arc::new(self.gates.closed(at, blackout::is_within));
                self.before = Some(Input::Gates(self.closed.clone(), Boot(self.ms)));
                Input::QueueStopped(seq, Ok(()))
            }
            Effect::AskGates => Input::Gates(self.closed.clone(), Boot(self.ms)),
            Effect::Publish(ticket, events) => Input::Published(ticket, events.len(), None),
            Effect::Reject(offset, _) | Effect::Forward(offset, _) => {
                Input::Produced(Version(offset), Ok(()))
            }
            Effect::Observe(engine::Observation::Stopped(why)) => panic!("stopped: {why}: a bug of Dueline"),
            Effect::BreakOff(..)
            | Effect::FreeSlots(..)
            | Effect::WithdrawSlots(..)
            | Effect::Rejoin(_)
            | Effect::StopFetch
            | Effect::Commit(_)
            | Effect::Observe(_) => return None,
            effect => return self.memory.answer(effect),
        })
    }

    /// What moves only the progress of the shard waits, once it runs.
    fn later(&mut self, answer: Input) -> Option<Input> {
        if !self.engine.runs() {
            return Some(answer);
        }
        self.held.push(answer);
        None
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

/// A lease that needs no look at the owner's row for decades, and everything that may be scheduled in memory: no time is spent
/// on what a test does not ask for.
fn options(handlers: &BTreeMap<HandlerName, (Arc<dyn Dispatch>, Policy)>) -> engine::Options {
    const YEAR_MS: u64 = 365 * 86_400_000;
    let policies = handlers.iter().map(|(name, (_, with))| (name.clone(), crate::runtime::of_engine(with)));
    engine::Options {
        timing: engine::Timing {
            lease_ms: 100 * YEAR_MS,
            verify_ms: 50 * YEAR_MS,
            margin_ms: 1,
            run_on_ms: 0,
        },
        policies: Arc::new(policies.collect()),
        look_ahead_ms: 10 * YEAR_MS as i64,
        // What has run is on record at that very moment.
        ends_wait_ms: 0,
        watermark_ms: 10 * YEAR_MS,
        ..engine::Options::new(SHARD, 1, "test")
    }
}
