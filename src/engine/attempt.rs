//! Attempts: from a head with a slot, through its start on record, its call and its end on record.
//!
//! ```text
//!   head ─► (payload) ─► started written ─► called ─► ended written ─► gone, or back in its place for the next try
//!                              │ no lease any more       │ broken off, owner lost
//!                              ▼                         ▼
//!                          not called                  held until its deadline ─► interrupted
//! ```
//!
//! The moment a start is sent to the store decides between it and a cancel. It is called only when the start is
//! acknowledged and the lease still holds. The next task of the queue waits until the end is acknowledged, so that
//! after a crash nothing runs again behind something that ran.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{
    Boot, CloseReason, Ended, Fact, OpenAttempts, Outcome, Place, QueueName, Started, TaskContent, TaskKey,
    Wall, limits,
};

use super::death::{Death, Dying};
use super::effect::{CallOrder, Effect, Observation, inline};
use super::ending::{ABORTED_WAIT_MS_MAX, FENCED_WAIT_MS_MAX, aborted_wait_ms, cut, follow};
use super::fold::Counts;
use super::hold::Hold;
use super::input::{CallEnd, Failure};
use super::lane::Lane;
use super::map::{self, Map};
use super::queue::Queue;
use super::window::Status;
use super::writes::Purpose;
use super::{Engine, Stage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Calling,
    /// Its connection was lost: its end is written at the deadline.
    Lost,
    Ending,
}

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) place: Place,
    key: TaskKey,
    due_at: Wall,
    pub(super) content: Arc<TaskContent>,
    payload: Arc<[u8]>,
    /// Whose slot it has.
    pub(super) lane: Lane,
    pub(super) started: Started,
    previous: Option<Outcome>,
    max_attempts: u32,
    pub(super) deadline: Boot,
    called_at: Option<Boot>,
    phase: Phase,
    /// What is known of the end of a lost call.
    lost: Option<CallEnd>,
    ended: Option<Ended>,
    /// The shard was let go: only the end is still to be written.
    pub(super) leftover: bool,
}

impl Attempt {
    pub(super) fn queue(&self) -> &QueueName {
        &self.key.queue
    }

    /// Its task: key, place, due time.
    pub(super) fn task(&self) -> (&TaskKey, Place, Wall) {
        (&self.key, self.place, self.due_at)
    }
}

/// The attempts of a shard.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    pub(super) last_seq: u64,
    pub(super) open: Map<u64, Attempt>,
    pub(super) deadlines: BTreeSet<(Boot, u64)>,
    pub(super) holds: BTreeMap<Place, Hold>,
    /// Deaths that are not on record yet.
    pub(super) dying: BTreeMap<u64, Dying>,
}

const PAYLOAD_RETRY_MS: i64 = 1_000;
/// After it has become ready, a task has its slot and its start is about to be sent, in milliseconds.
const START_COMES_MS: u64 = 3;
/// Of so many tasks that come next it is known whether one is of the queue whose end would wait.
const COMING_MAX: usize = 8;

impl Attempts {
    /// Whether nothing is under way. Of a lost call there is nothing more to be heard once its shard was let go: the next
    /// owner waits for its deadline.
    pub(super) fn is_empty(&self) -> bool {
        let nothing_open = self.open.values().all(|attempt| attempt.leftover && attempt.phase == Phase::Lost);
        nothing_open && self.dying.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Attempts { last_seq: self.last_seq, ..Attempts::default() };
    }

    /// The lanes of attempts that hold a slot.
    pub(super) fn slots(&self) -> Vec<Lane> {
        let holds =
            self.open.values().filter(|attempt| !matches!(attempt.phase, Phase::Lost | Phase::Ending));
        holds.map(|attempt| attempt.lane.clone()).collect()
    }

    pub(super) fn let_go(&mut self) {
        self.holds.clear();
        for attempt in self.open.values_mut() {
            attempt.leftover = true;
        }
    }

    /// Whether an attempt at `place` is on record and its end is not.
    pub(super) fn has_open(&self, place: Place) -> bool {
        self.open.values().any(|attempt| attempt.place == place && !attempt.leftover)
    }

    pub(super) fn running(&self) -> Vec<u64> {
        let calling = self.open.iter().filter(|(_, attempt)| attempt.phase == Phase::Calling);
        let mut running: Vec<u64> = calling.map(|(seq, _)| *seq).collect();
        running.sort_unstable();
        running
    }

    /// Whether a call is at work.
    pub(super) fn is_running(&self, seq: u64) -> bool {
        self.open.get(&seq).is_some_and(|attempt| attempt.phase == Phase::Calling)
    }

    /// The call of a task that is at work.
    pub(super) fn running_at(&self, place: Place) -> Option<u64> {
        let mut calling = self.open.iter().filter(|(_, attempt)| attempt.phase == Phase::Calling);
        calling.find(|(_, attempt)| attempt.place == place && !attempt.leftover).map(|(seq, _)| *seq)
    }

    /// The places of calls that are at work since before `called`.
    pub(super) fn at_work_since(&self, called: Boot) -> BTreeSet<Place> {
        let open = self.open.values().filter(|attempt| matches!(attempt.phase, Phase::Calling | Phase::Lost));
        open.filter(|attempt| attempt.called_at < Some(called)).map(|attempt| attempt.place).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(super) fn next_hold(&self) -> Option<Wall> {
        self.holds.values().map(Hold::next).min()
    }

    /// Queues held by the open attempt of a lost owner.
    pub(super) fn held(&self) -> usize {
        self.holds.len()
    }

    pub(super) fn hold_of(&self, place: Place) -> Option<&Started> {
        self.holds.get(&place).map(|hold| &hold.started)
    }
}

impl Engine {
    /// Starts heads that have a slot, while the lease allows it.
    pub(super) fn start_heads(&mut self) {
        while self.may_start() {
            let Some((place, lane)) = self.lines.next() else { return };
            self.begin(place, lane);
        }
    }

    /// Whether anything may be started now.
    pub(super) fn may_start(&self) -> bool {
        self.may_call()
            && (!self.is_loader_behind() || planted!(StartBehindLoader))
            && !self.outbox.takes(self.budget.events_bytes)
    }

    /// Whether a start on record may be called now.
    pub(super) fn may_call(&self) -> bool {
        self.stage == Stage::Running && self.ownership.valid(self.now.boot) && self.gates_are_known()
    }

    /// Whether tasks that are ready are still to be read although there is room for them: one of them may come first in
    /// its queue.
    pub(super) fn is_loader_behind(&self) -> bool {
        self.window.cursor().ready_at <= self.now.wall && !self.window.is_full()
    }

    fn begin(&mut self, place: Place, lane: Lane) {
        let task = self.window.get(place).expect("a head in line is in memory");
        let (name, content) = (task.key.queue.clone(), task.content.clone());
        if let Some(reason) = self.overdue(place) {
            self.lines.unused(&lane);
            self.close(place, reason);
            return;
        }
        let queue = self.queues.by_name.get_mut(&name).expect("a head in line has a queue");
        assert!(queue.busy.is_empty(), "one task of a queue at a time");
        queue.candidate = None;
        queue.busy.insert(place);
        match inline(&content.payload) {
            Some(payload) => self.write_start(place, lane, payload),
            None => {
                self.set_status(place, Status::Fetching);
                let ticket = self.ticket();
                self.effects.push_back(Effect::ReadPayload(ticket, place));
            }
        }
    }

    fn overdue(&self, place: Place) -> Option<CloseReason> {
        let task = self.window.get(place)?;
        if task.content.expires_at.is_some_and(|at| self.now.wall > at) && !planted!(ExpiryIgnored) {
            return Some(CloseReason::Expired);
        }
        if self.is_dropped(place) {
            return Some(CloseReason::Dropped);
        }
        let grace = i64::try_from(task.content.misfire_grace_ms).unwrap_or(i64::MAX);
        let skips = task.content.misfire == crate::model::Misfire::Skip && task.counts.attempt == 1;
        let skips = skips && !planted!(MisfireIgnored);
        let late_at = task.due_at.plus_ms(grace).plus_ms(SKIP_SLACK_MS);
        (skips && self.now.wall > late_at).then_some(CloseReason::Skipped)
    }

    pub(super) fn task_payload_read(&mut self, place: Place, payload: Result<Option<Arc<[u8]>>, Failure>) {
        let Some(task) = self.window.get(place).filter(|task| task.status == Status::Fetching) else {
            return;
        };
        let (name, lane) = (task.key.queue.clone(), self.lane_of(task));
        let is_head = self.queues.by_name.get(&name).and_then(Queue::head) == Some(place);
        // Reading took time: a gate may have closed, and the task expired.
        let is_free = self.bar_of(place).is_none() && self.overdue(place).is_none();
        let may_start = self.may_start() && is_head && !self.intake.is_frozen(place) && is_free;
        if let (Ok(Some(bytes)), true) = (&payload, may_start) {
            return self.write_start(place, lane, bytes.clone());
        }
        if !matches!(payload, Ok(Some(_))) {
            let failure = payload.err().unwrap_or(Failure::Unavailable("a stored payload is missing".into()));
            self.trouble("payload read", &failure);
            let retry_at = self.now.wall.plus_ms(PAYLOAD_RETRY_MS);
            if let Some(task) = self.window.get_mut(place) {
                task.counts.not_before = retry_at;
            }
        }
        self.lines.unused(&lane);
        self.set_status(place, Status::Queued);
        if let Some(queue) = self.queues.by_name.get_mut(&name) {
            queue.busy.remove(place);
        }
        self.pump(&name);
    }

    fn write_start(&mut self, place: Place, lane: Lane, payload: Arc<[u8]>) {
        self.set_status(place, Status::Starting);
        let task = self.window.get(place).expect("a task that starts is in memory");
        let (counts, content) = (task.counts, task.content.clone());
        let (key, due_at) = (task.key.clone(), task.due_at);
        let policy = self.options.policy(&content.handler);
        let timeout_ms = content.timeout_ms.unwrap_or(policy.timeout_ms);
        let max_attempts = content.retry.unwrap_or(policy.retry).max_attempts;
        self.attempts.last_seq += 1;
        let seq = self.attempts.last_seq;
        let started = Started {
            generation: self.commit.generation(),
            epoch: self.epoch(),
            seq,
            at: self.now.wall,
            deadline: self.now.wall.plus_ms(i64::try_from(timeout_ms).unwrap_or(i64::MAX)),
            attempt: counts.attempt,
            failures: counts.failures,
            interruptions: counts.interruptions,
            instance: self.options.instance.clone(),
        };
        if counts.previous == Some(Outcome::Interrupted) {
            self.observe(Observation::RepeatStart(key.clone()));
        }
        self.push_fact(place, Fact::Started(started.clone()), Purpose::Started(seq));
        let attempt = Attempt {
            place,
            key,
            due_at,
            content,
            payload,
            lane,
            started,
            previous: counts.previous,
            max_attempts,
            deadline: self.now.boot.plus_ms(timeout_ms),
            called_at: None,
            phase: Phase::Starting,
            lost: None,
            ended: None,
            leftover: false,
        };
        self.attempts.open.insert(seq, attempt);
    }

    pub(super) fn start_written(&mut self, seq: u64) {
        let may_call = self.may_call();
        if let Some(place) = self.attempts.open.get(&seq).map(|attempt| attempt.place) {
            self.intake.on_record(place);
        }
        let at_gate =
            self.attempts.open.get(&seq).is_some_and(|attempt| self.bar_of(attempt.place).is_some());
        let at_gate = at_gate && !planted!(GateNotAskedAgain);
        let Some(attempt) = self.attempts.open.get_mut(&seq) else { return };
        let left_ms = attempt.deadline.ms_since(self.now.boot);
        let full_ms = attempt.started.deadline.ms_since(attempt.started.at);
        let may_call = may_call
            || planted!(NoSecondLeaseCheck)
            || (attempt.leftover && planted!(LateStartOfReleasedOwner));
        let leftover = attempt.leftover && !planted!(LateStartOfReleasedOwner);
        if leftover || !may_call || at_gate || left_ms < full_ms / 2 {
            return self.end(seq, CallEnd::of(Outcome::NotCalled));
        }
        attempt.phase = Phase::Calling;
        attempt.called_at = Some(self.now.boot);
        self.attempts.deadlines.insert((attempt.deadline, seq));
        let order = CallOrder {
            key: attempt.key.clone(),
            place: attempt.place,
            content: attempt.content.clone(),
            payload: attempt.payload.clone(),
            token: attempt.started.token(),
            attempt: attempt.started.attempt,
            max_attempts: attempt.max_attempts,
            due_at: attempt.due_at,
            ready_at: attempt.place.ready_at,
            deadline: attempt.started.deadline,
            previous: attempt.previous,
        };
        let place = attempt.place;
        self.set_status(place, Status::Running);
        self.effects.push_back(Effect::Call(Box::new(order)));
    }

    pub(super) fn call_ended(&mut self, seq: u64, mut end: CallEnd) {
        let calling = |attempt: &&Attempt| attempt.phase == Phase::Calling;
        let Some(attempt) = self.attempts.open.get(&seq).filter(calling) else { return };
        if end.outcome == Outcome::Aborted {
            let wait_ms_max = if end.fenced { FENCED_WAIT_MS_MAX } else { ABORTED_WAIT_MS_MAX };
            let wait_ms = aborted_wait_ms(&attempt.started, attempt.previous, wait_ms_max);
            end.after_ms = end.after_ms.max(Some(wait_ms));
        }
        if end.fenced {
            self.ownership.doubt(self.now.boot);
        }
        if end.lost && self.options.policy(&attempt.content.handler).open_attempts == OpenAttempts::Wait {
            return self.call_lost(seq, end);
        }
        self.end(seq, end);
    }

    /// The handler may be at work: its queue waits for the deadline, its slot is free.
    fn call_lost(&mut self, seq: u64, end: CallEnd) {
        let Some(attempt) = self.attempts.open.get_mut(&seq) else { return };
        attempt.phase = Phase::Lost;
        attempt.lost = Some(end);
        let lane = attempt.lane.clone();
        self.free_slot(lane);
    }

    /// Breaks off calls whose deadline has passed.
    pub(super) fn end_deadlines(&mut self) {
        while let Some((_, seq)) =
            self.attempts.deadlines.first().copied().filter(|(at, _)| *at <= self.now.boot)
        {
            self.attempts.deadlines.pop_first();
            let lost = self.attempts.open.get_mut(&seq).and_then(|attempt| attempt.lost.take());
            if lost.is_none() {
                self.effects.push_back(Effect::BreakOff(seq, Outcome::TimedOut));
            }
            self.end(seq, lost.unwrap_or(CallEnd::of(Outcome::TimedOut)));
        }
    }

    fn end(&mut self, seq: u64, mut end: CallEnd) {
        if planted!(RefusedTokenIsFailure) && end.fenced {
            end.outcome = Outcome::Fatal;
        }
        let fraction = self.draw_fraction();
        let now = self.now;
        let Some(attempt) = self.attempts.open.get_mut(&seq) else { return };
        self.attempts.deadlines.remove(&(attempt.deadline, seq));
        let has_slot = attempt.phase != Phase::Lost;
        attempt.phase = Phase::Ending;
        let policy = attempt.content.retry.unwrap_or(self.options.policy(&attempt.content.handler).retry);
        let marked = self.window.get(attempt.place).is_some_and(|task| task.mark.is_some());
        let is_too_long = |bytes: &Arc<[u8]>| bytes.len() > limits::RESULT_BYTES_MAX;
        let mut ended = Ended {
            epoch: attempt.started.epoch,
            seq,
            at: now.wall,
            outcome: end.outcome,
            failures: attempt.started.failures,
            next_at: None,
            closed: None,
            result_cut: end.result_cut || end.result.as_ref().is_some_and(is_too_long),
            result: end.result.map(|bytes| cut(bytes, limits::RESULT_BYTES_MAX)),
            error: end.error,
        };
        follow(&mut ended, &policy, attempt.place.ready_at, end.after_ms, fraction);
        if marked {
            ended.next_at = None;
        }
        attempt.ended = Some(ended.clone());
        if planted!(NextBeforeTheEnd)
            && let Some(queue) = self.queues.by_name.get_mut(&attempt.key.queue)
            && ended.next_at.is_none()
            && !attempt.leftover
        {
            queue.remove(attempt.due_at, attempt.place);
            queue.busy.remove(attempt.place);
            let name = attempt.key.queue.clone();
            self.pump(&name);
        }
        let Some(attempt) = self.attempts.open.get_mut(&seq) else { return };
        let (place, handler, called_at) = (attempt.place, attempt.content.handler.clone(), attempt.called_at);
        let lane = attempt.lane.clone();
        let (key, attempts, content) =
            (attempt.key.clone(), attempt.started.attempt, attempt.content.clone());
        if !attempt.leftover {
            self.set_status(place, Status::Ending);
        }
        if has_slot {
            self.free_slot(lane);
        }
        if let Some(called_at) = called_at {
            let run_ms = now.boot.ms_since(called_at);
            let (key, handler, outcome) = (key.clone(), handler.clone(), end.outcome);
            self.observe(Observation::AttemptEnded { key, handler, outcome, run_ms });
        }
        let Some(reason) = ended.closed else {
            let waits_until = self.end_waits_until(&ended, &key.queue);
            return self.push_patient_fact(place, Fact::Ended(ended), Purpose::Ended(seq), waits_until);
        };
        let (at, error) = (ended.at, ended.error.clone());
        let death = Death { seq, at, key: key.clone(), content, reason, attempts, error, marked };
        self.push_death(place, Fact::Ended(ended), death, Purpose::Ended(seq));
        self.observe(Observation::Closed { reason, key, handler });
    }

    /// Until when the end of an attempt may wait for the start of another task to go along with: where one is about to become
    /// ready, and nobody waits for the end or is about to.
    fn end_waits_until(&self, ended: &Ended, queue: &QueueName) -> Option<Boot> {
        let has_more = self.queues.by_name.get(queue).is_some_and(|queue| queue.len() > 1);
        if ended.outcome != Outcome::Succeeded || has_more || self.late.has(queue) || !self.may_start() {
            return None;
        }
        let first = self.window.coming().next()?.ready_at;
        let wait_ms = first.ms_since(self.now.wall) + START_COMES_MS;
        if wait_ms > self.options.ends_wait_ms {
            return None;
        }
        let until = first.plus_ms(2 * START_COMES_MS as i64);
        let near = self.window.coming().take(COMING_MAX).take_while(|place| place.ready_at <= until);
        let mut near = near.filter_map(|place| self.window.get(place));
        near.all(|task| task.key.queue != *queue).then(|| self.now.boot.plus_ms(wait_ms))
    }

    pub(super) fn end_written(&mut self, seq: u64) {
        let Some(attempt) = map::take(&mut self.attempts.open, &seq) else { return };
        let Some(ended) = attempt.ended.filter(|_| !attempt.leftover) else { return };
        let place = attempt.place;
        let Some(task) = self.window.get_mut(place) else { return };
        match ended.next_at.filter(|_| task.mark.is_none()) {
            None => self.finish(place),
            Some(next_at) => {
                task.counts = Counts::after_end(&attempt.started, &ended, next_at);
                if planted!(RetrySortsByNextTry) {
                    let due_at = std::mem::replace(&mut task.due_at, next_at);
                    let queue = task.key.queue.clone();
                    if let Some(queue) = self.queues.by_name.get_mut(&queue) {
                        queue.remove(due_at, place);
                        queue.insert(next_at, place);
                    }
                }
                self.back_in_line(place);
            }
        }
    }

    /// Its start was not sent while the lease held: as if it had never been decided.
    pub(super) fn not_started(&mut self, seq: u64) {
        let Some(attempt) = map::take(&mut self.attempts.open, &seq) else { return };
        let place = attempt.place;
        self.intake.on_record(place);
        self.outbox.take_back(&Fact::Started(attempt.started.clone()));
        self.free_slot(attempt.lane);
        if attempt.leftover {
            return;
        }
        match self.window.get(place).and_then(|task| task.mark) {
            Some(mark) => self.stop_marked(place, mark),
            None => self.back_in_line(place),
        }
    }

    pub(super) fn back_in_line(&mut self, place: Place) {
        self.set_status(place, Status::Queued);
        let Some((name, due_at)) = self.window.get(place).map(|task| (task.key.queue.clone(), task.due_at))
        else {
            return;
        };
        let is_parked = self.park(place);
        if let Some(queue) = self.queues.by_name.get_mut(&name) {
            queue.busy.remove(place);
            if is_parked {
                queue.remove(due_at, place);
            }
        }
        self.pump(&name);
    }

    pub(super) fn set_status(&mut self, place: Place, status: Status) {
        if let Some(task) = self.window.get_mut(place) {
            task.status = status;
        }
    }

    pub(super) fn free_slot(&mut self, lane: Lane) {
        self.effects.push_back(Effect::FreeSlots(lane, 1));
    }
}

/// How late a task that must not be late may be all the same: one start takes this long.
const SKIP_SLACK_MS: i64 = 100;

impl CallEnd {
    /// An end with only an outcome.
    pub fn of(outcome: Outcome) -> CallEnd {
        CallEnd {
            outcome,
            result: None,
            result_cut: false,
            error: None,
            after_ms: None,
            fenced: false,
            lost: false,
        }
    }
}
