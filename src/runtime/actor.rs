//! The actor of one shard: its loop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use futures::future::{BoxFuture, OptionFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::engine::{Engine, Input, Options};
use crate::log::Record;
use crate::model::{Boot, HandlerName, Now, Outcome, Shard};
use crate::telemetry::otlp::Attempt;

use super::alarm::Alarm;
use super::clock::boot_us;
use super::pace::Pace;
use super::{Clock, Shared};

/// What an actor is told from outside.
pub(crate) enum Command {
    /// A fact for the engine.
    Input(Input),
    /// A question to the engine.
    Ask(Box<dyn FnOnce(&Engine) + Send>),
}

/// A call that is under way.
pub(super) struct Calling {
    pub(super) task: AbortHandle,
    pub(super) handler: HandlerName,
    pub(super) attempt: Option<Attempt>,
}

impl Drop for Calling {
    /// Who forgets a call that has not ended has broken it off.
    fn drop(&mut self) {
        if let Some(attempt) = &self.attempt {
            attempt.end(Outcome::Interrupted);
        }
    }
}

pub(super) struct Actor {
    pub(super) shared: Arc<Shared>,
    pub(super) shard: Shard,
    pub(super) engine: Engine,
    inbox: mpsc::UnboundedReceiver<Command>,
    /// Store and log calls without an answer yet.
    pub(super) answers: FuturesUnordered<BoxFuture<'static, Input>>,
    /// The fetch without an answer yet, never more than one: an older one would take records that nobody waits for, and
    /// to the next one they would look like a gap in the log.
    fetch: Option<BoxFuture<'static, Fetched>>,
    /// Where handler calls report their end.
    pub(super) ended: mpsc::UnboundedSender<Input>,
    ends: mpsc::UnboundedReceiver<Input>,
    pub(super) calls: BTreeMap<u64, Calling>,
    /// The last offset of each fetch that is not applied yet, and when it was fetched.
    pub(super) unpersisted: VecDeque<(u64, Instant)>,
    /// Records fetched and not applied, for the rejected topic and for forwarding.
    pub(super) records: BTreeMap<u64, Record>,
    /// The handler of the last task that was fetched.
    pub(super) handler: Option<HandlerName>,
    /// When a fetch gives way to calls.
    pace: Pace,
    /// Jumps of the clock that the engine knows of.
    clock_jumps: u64,
    /// What the engine was told last of what time it is.
    seen: Now,
    /// Whether the shard counts for this instance's part of limits.
    counts: bool,
    alarm: Alarm,
}

pub(super) type Fetched = (u64, Result<Vec<Record>, crate::log::Error>);

/// Inputs taken before effects are performed and the scheduler gets a turn.
const INPUTS_PER_TURN: usize = 256;

impl Actor {
    pub(super) fn new(
        shared: Arc<Shared>,
        options: Options,
        inbox: mpsc::UnboundedReceiver<Command>,
    ) -> Actor {
        let (ended, ends) = mpsc::unbounded_channel();
        let (clock_jumps, seen) = (shared.clock.jumps(), shared.clock.now());
        Actor {
            shared,
            shard: options.shard,
            engine: Engine::new(options),
            inbox,
            answers: FuturesUnordered::new(),
            fetch: None,
            ended,
            ends,
            calls: BTreeMap::new(),
            unpersisted: VecDeque::new(),
            records: BTreeMap::new(),
            handler: None,
            pace: Pace::default(),
            clock_jumps,
            seen,
            counts: false,
            alarm: Alarm::default(),
        }
    }

    /// Runs until the service drops its sender.
    pub(super) async fn run(mut self) {
        loop {
            self.perform_all();
            let gives_way = self.gives_way_until();
            let timeout = self.engine.poll_timeout().into_iter().chain(gives_way).min();
            tokio::select! {
                biased;
                command = self.inbox.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return self.count(false),
                },
                Some(end) = self.ends.recv() => self.tell(end),
                Some(answer) = self.answers.next(), if !self.answers.is_empty() => self.tell(answer),
                Some((ticket, fetched)) = OptionFuture::from(self.fetch.as_mut()), if gives_way.is_none() => {
                    self.set_fetch(None);
                    self.fetched(ticket, fetched);
                }
                () = until(&mut self.alarm, &self.shared.clock, self.seen, timeout) => self.tell(Input::Tick),
            }
            self.drain();
            self.note_persisted();
            self.forget_when_released();
            self.count(self.engine.runs());
        }
    }

    /// Until when the fetch under way gives way to calls. It does not where nothing waits for a slot: then there is time for it.
    fn gives_way_until(&mut self) -> Option<Boot> {
        let may = self.fetch.is_some() && !self.calls.is_empty() && self.engine.heads_in_line() > 0;
        if may { self.pace.gives_way_until(self.seen.boot) } else { None }
    }

    /// Every change of what is being fetched goes through here.
    pub(super) fn set_fetch(&mut self, fetch: Option<BoxFuture<'static, Fetched>>) {
        self.fetch = fetch;
        self.pace.forget_fetch();
    }

    /// A shard counts for this instance's part of limits as long as it runs: before its first start, and not after its last.
    fn count(&mut self, runs: bool) {
        if std::mem::replace(&mut self.counts, runs) != runs {
            self.shared.slots.runs(self.shard, runs);
        }
    }

    /// Batches of a shard that is still held may need their records although nothing is fetched any more.
    fn forget_when_released(&mut self) {
        if self.engine.is_released() {
            self.records.clear();
            self.unpersisted.clear();
            self.alarm = Alarm::default();
        }
    }

    fn note_persisted(&mut self) {
        let applied = self.engine.next_offset();
        while self.records.first_key_value().is_some_and(|(offset, _)| *offset < applied) {
            self.records.pop_first();
        }
        while let Some((_, since)) = self.unpersisted.pop_front_if(|(offset, _)| *offset < applied) {
            self.shared.metrics.persisted(since.elapsed().as_secs_f64());
        }
    }

    /// Takes what else has arrived, so that facts of many attempts travel together.
    fn drain(&mut self) {
        for _ in 0..INPUTS_PER_TURN {
            if let Ok(end) = self.ends.try_recv() {
                self.tell(end);
            } else if let Ok(command) = self.inbox.try_recv() {
                self.obey(command);
            } else {
                return;
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Input(input) => self.tell(input),
            Command::Ask(question) => question(&self.engine),
        }
    }

    pub(super) fn tell(&mut self, input: Input) {
        // Who is not there any more was broken off, and counted then.
        if let Input::CallEnded(seq, end) = &input
            && let Some(call) = self.calls.remove(seq)
        {
            self.shared.slots.ended(&call.handler, end.outcome);
            self.pace.ended(self.seen.boot);
        }
        let now = self.shared.clock.now();
        self.seen = now;
        let jumps = self.shared.clock.jumps();
        if jumps != std::mem::replace(&mut self.clock_jumps, jumps) && !self.shared.options.sole_owner {
            self.engine.handle(now, Input::ClockJumped);
        }
        self.engine.handle(now, input);
    }

    fn perform_all(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            self.perform(effect);
        }
    }

    pub(super) fn answer_later(&mut self, answer: impl Future<Output = Input> + Send + 'static) {
        self.answers.push(Box::pin(answer));
    }
}

async fn until(alarm: &mut Alarm, clock: &Clock, seen: Now, at: Option<Boot>) {
    match at {
        None => std::future::pending().await,
        Some(at) => alarm.until(clock.instant_us(seen, at), boot_us()).await,
    }
}
