//! The handlers: they write down every call, refuse tokens lower than one seen for the queue, and succeed, fail,
//! hang past the deadline or go on after they were broken off.

use std::collections::{BTreeMap, BTreeSet};

use dueline::engine::{CallEnd, CallOrder, Input};
use dueline::model::{AttemptToken, HandlerName, OnFailure, Outcome, Payload, QueueName};
use dueline::planted;

use crate::ledger::{BASE, Call};
use crate::world::{Addr, Event, World};

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sent,
    BrokenOff,
    /// The connection is lost: the handler is at work, and nobody hears of it.
    Unheard,
    Arrived(usize),
}

/// All handlers.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    highest: BTreeMap<QueueName, AttemptToken>,
    ways: BTreeMap<(Addr, u64), Way>,
    froms: BTreeMap<usize, (Addr, u64, CallEnd, HandlerName)>,
    /// Calls that take almost all the time they have.
    slow: BTreeSet<(Addr, u64)>,
}

impl Handlers {
    pub(crate) fn sent(&mut self, from: Addr, seq: u64) {
        self.ways.insert((from, seq), Way::Sent);
    }

    /// A call is to take almost all the time it has, and to succeed.
    pub(crate) fn slow_down(&mut self, from: Addr, seq: u64) {
        self.slow.insert((from, seq));
    }
}

impl World {
    pub(crate) fn call_arrives(&mut self, from: Addr, order: Box<CallOrder>, sent: u64) {
        let seq = order.token.sequence;
        let frozen = self.alive(from) && self.instances[from.instance].frozen;
        if frozen && self.rng.chance(500) {
            self.ledger.count("frozen between check and send");
            return self.hold(from.instance, Event::Call(from, order, sent));
        }
        let broken = self.handlers.ways.get(&(from, seq)) == Some(&Way::BrokenOff);
        if (!self.alive(from) || broken) && self.rng.chance(500) {
            return;
        }
        let highest = self.handlers.highest.get(&order.key.queue).copied();
        let refused = highest.is_some_and(|highest| order.token < highest);
        if refused {
            self.ledger.count("guard refused a token");
        }
        let refused = refused && !planted!(NoGuard);
        // A guard that remembers more than there was: restored from a backup of another cluster, for one.
        let unwell = !self.healing && !refused && self.rng.chance(4);
        if unwell {
            self.ledger.count("handler refused a good token");
            self.handlers.highest.insert(order.key.queue.clone(), order.token);
        }
        let refused = refused || unwell;
        let ended = refused.then_some((self.now, Outcome::Aborted));
        let call = self.write_down(from, &order, sent, ended);
        let index = self.ledger.calls.len();
        self.say(call.shard, || format!("call #{index} {call:?}"));
        self.ledger.calls.push(Call { broken_off: broken, ..call });
        if refused {
            let end = CallEnd { fenced: true, ..CallEnd::of(Outcome::Aborted) };
            return self.answer(from, Input::CallEnded(seq, end));
        }
        self.handlers.highest.insert(order.key.queue.clone(), order.token);
        if !broken {
            self.handlers.ways.insert((from, seq), Way::Arrived(index));
        }
        let is_slow = self.handlers.slow.remove(&(from, seq));
        let (ms, end) = if is_slow { self.almost_all(&order) } else { self.draw_end(&order) };
        if !broken && !is_slow && !self.healing && self.rng.chance(8) {
            self.lose_connection(from, seq, index, ms);
        }
        self.handlers.froms.insert(index, (from, seq, end, order.content.handler.clone()));
        self.after(ms, Event::HandlerDone(index));
    }

    fn lose_connection(&mut self, from: Addr, seq: u64, index: usize, ms: u64) {
        self.ledger.count("connection to a handler lost");
        self.handlers.ways.insert((from, seq), Way::Unheard);
        self.ledger.calls[index].broken_off = true;
        let ms = self.rng.range(0, ms + 1);
        let lost = CallEnd { lost: true, ..CallEnd::of(Outcome::Retryable) };
        self.after(ms, Event::Deliver(from, Input::CallEnded(seq, lost)));
    }

    fn write_down(
        &mut self,
        from: Addr,
        order: &CallOrder,
        sent: u64,
        ended: Option<(u64, Outcome)>,
    ) -> Call {
        let timeout_ms = order.content.timeout_ms.unwrap_or(crate::world::HANDLER_TIMEOUT_MS) as i64;
        Call {
            shard: from.shard,
            sent,
            arrived: self.now,
            key: order.key.clone(),
            version: order.place.version,
            due: order.due_at.0 - BASE,
            ready: order.ready_at.0 - BASE,
            payload: payload_number(&order.payload),
            token: order.token,
            attempt: order.attempt,
            max_attempts: order.max_attempts,
            decided: order.deadline.0 - BASE - timeout_ms,
            deadline: order.deadline.0 - BASE,
            previous: order.previous,
            refused: ended.is_some(),
            ended,
            asks_ms: None,
            broken_off: false,
            parks: order.content.on_failure == OnFailure::Park,
        }
    }

    fn almost_all(&mut self, order: &CallOrder) -> (u64, CallEnd) {
        let left = (order.deadline.0 - BASE - self.now as i64).max(10) as u64;
        (self.rng.range(left * 9 / 10, left), CallEnd::of(Outcome::Succeeded))
    }

    /// How long a handler takes and what it answers.
    fn draw_end(&mut self, order: &CallOrder) -> (u64, CallEnd) {
        let long = (order.deadline.0 - BASE - self.now as i64).max(1) as u64;
        let kind = self.rng.below(1_000);
        let calm = if self.healing { 900 } else { 780 };
        let short = if self.rng.chance(100) { self.rng.range(500, 3_000) } else { self.rng.range(1, 300) };
        let stubborn = order.place.version.offset() % 40 == 7;
        match kind {
            n if n < 900 && stubborn => (short, CallEnd::of(Outcome::Retryable)),
            n if n < calm => (short, CallEnd::of(Outcome::Succeeded)),
            n if n < calm + 60 => (short, CallEnd::of(Outcome::Retryable)),
            n if n < calm + 65 => (short, CallEnd::of(Outcome::Fatal)),
            n if n < calm + 75 => (short, CallEnd { after_ms: Some(1_500), ..CallEnd::of(Outcome::Snoozed) }),
            n if n < 980 => (short, CallEnd { after_ms: Some(700), ..CallEnd::of(Outcome::Retryable) }),
            n if n < 985 => {
                self.ledger.count("handler panicked");
                let error = Some("the handler panicked".into());
                (short, CallEnd { error, ..CallEnd::of(Outcome::Retryable) })
            }
            n if n < 992 => (long + self.rng.range(1, 5_000), CallEnd::of(Outcome::Succeeded)),
            _ => (self.rng.range(long / 2, long), CallEnd::of(Outcome::Succeeded)),
        }
    }

    pub(crate) fn handler_done(&mut self, index: usize) {
        let Some((from, seq, end, handler)) = self.handlers.froms.remove(&index) else { return };
        self.ledger.calls[index].ended = Some((self.now, end.outcome));
        self.ledger.calls[index].asks_ms = end.after_ms;
        self.say(from.shard, || format!("call #{index} ended {:?}", end.outcome));
        if (self.now as i64) > self.ledger.calls[index].deadline {
            self.ledger.count("handler went on past its deadline");
        }
        if self.handlers.ways.get(&(from, seq)) == Some(&Way::Unheard) {
            return;
        }
        // The product heard the last of a call that it broke off.
        if self.handlers.ways.get(&(from, seq)) != Some(&Way::BrokenOff) {
            self.tell_breaker(from, &handler, end.outcome);
        }
        if !self.healing && self.rng.chance(8) {
            self.ledger.count("handler answered twice");
            self.answer(from, Input::CallEnded(seq, end.clone()));
        }
        self.answer(from, Input::CallEnded(seq, end));
    }

    /// A call is broken off, and has ended so for its owner: half the handlers notice.
    pub(crate) fn break_off(&mut self, from: Addr, seq: u64, outcome: Outcome) {
        if self.handlers.ways.get(&(from, seq)) == Some(&Way::Unheard) {
            return;
        }
        let way = self.handlers.ways.insert((from, seq), Way::BrokenOff);
        if let Some(Way::Arrived(index)) = way {
            let stops = self.rng.chance(500);
            self.ledger.calls[index].broken_off = true;
            if let Some((_, _, _, handler)) = self.handlers.froms.get(&index) {
                let handler = handler.clone();
                self.tell_breaker(from, &handler, outcome);
            }
            let call = &mut self.ledger.calls[index];
            if stops && call.ended.is_none() {
                call.ended = Some((self.now, Outcome::Aborted));
                self.handlers.froms.remove(&index);
            }
        }
    }
}

/// The number in a payload `{"n":12…}`.
fn payload_number(bytes: &[u8]) -> u64 {
    let digits =
        bytes.iter().skip_while(|byte| !byte.is_ascii_digit()).take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

/// How a payload begins that the store refuses.
pub(crate) const UNSTORABLE: &[u8] = b"{\"too_large\"";

/// The payload with a number, at times a large one.
pub(crate) fn payload(number: u64, bytes: usize) -> Payload {
    let text = format!("{{\"n\":{number},\"pad\":\"{}\"}}", "x".repeat(bytes));
    Payload::Inline(text.into_bytes().into())
}
