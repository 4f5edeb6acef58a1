//! What an engine tells people: a shard, its queues, and why a task is not running. Reads only.

use std::sync::Arc;

use crate::model::{
    Bar, Boot, Epoch, Generation, HandlerName, Place, QueueName, TaskId, TaskKey, TaskState, Wall,
};

use super::lane::Lane;
use super::renew::Loss;
use super::window::Status;
use super::{Engine, Stage};

/// A shard as its owner sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardView {
    /// `idle`, `bumping`, `waiting`, `loading`, `catching_up`, `running`, `lapsed`, `releasing`, `fenced`, `stopped`.
    pub phase: &'static str,
    /// The epoch held.
    pub epoch: Epoch,
    /// The generation of the log.
    pub generation: Generation,
    /// What its log lost: why it is stopped.
    pub stopped: Option<Arc<Loss>>,
    /// Every record below this offset is applied.
    pub next_offset: u64,
    /// The log's end when it was last asked for, at most 30 seconds ago while the log answers.
    pub log_end: Option<u64>,
    /// Every task ready at or before this is finished.
    pub watermark: Wall,
    /// Tasks are loaded up to this time.
    pub loaded_to: Wall,
    /// Tasks in memory.
    pub tasks: usize,
    /// Records fetched and not applied.
    pub backlog: usize,
    /// The append time of the oldest of them.
    pub oldest_unapplied: Option<Wall>,
    /// Task events that are not published yet.
    pub events_waiting: usize,
    /// Milliseconds of lease left.
    pub lease_left_ms: u64,
    /// The ready time of the oldest task that is ready and not started.
    pub oldest_overdue: Option<Wall>,
    /// Queues whose head waits for its next try.
    pub queues_retrying: usize,
    /// Queues that wait for the open attempt of a lost owner.
    pub queues_held: usize,
    /// Queues whose head waits at a gate.
    pub queues_at_gates: usize,
    /// Why nothing more is read.
    pub paused: Option<Pause>,
}

/// Why a shard reads nothing more for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// What was read and is not stored yet fills its share of memory.
    Memory,
    /// The store does not answer.
    StoreUnavailable,
    /// The store refuses everything, or what cannot be rejected any more, until a person helps.
    StoreMisconfigured,
    /// The log does not answer.
    LogUnavailable,
    /// Task events that are not published yet fill their share of memory.
    Events,
    /// The lease lapsed.
    NoLease,
}

/// A queue as its owner sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    /// Its name.
    pub queue: QueueName,
    /// Tasks ready and in memory.
    pub ready: usize,
    /// Tasks with an attempt open.
    pub busy: usize,
    /// Its head's place.
    pub head: Option<Place>,
    /// Its head's id.
    pub head_id: Option<TaskId>,
    /// When its head is tried again, if it waits for that.
    pub next_try: Option<Wall>,
    /// Why it does not move, if it does not.
    pub blocked: Option<Blocked>,
    /// The gate its head waits at.
    pub gate: Option<Bar>,
    /// The slot that its head waits for.
    pub waits_for: Option<Lane>,
}

impl QueueView {
    /// A queue with nothing ready.
    pub fn nothing_of(queue: QueueName) -> QueueView {
        QueueView {
            queue,
            ready: 0,
            busy: 0,
            head: None,
            head_id: None,
            next_try: None,
            blocked: None,
            gate: None,
            waits_for: None,
        }
    }
}

/// A head that has waited for a slot for so long is said to be blocked, in milliseconds.
const SLOT_WAIT_MS: u64 = 1_000;

/// Why a queue with ready tasks does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Its head waits for its next try.
    Retrying,
    /// An attempt that nobody answers for is open until its deadline.
    OpenAttempt,
    /// Its head waits at a gate.
    Gate,
    /// Its head has waited for a slot of its handler for a second or more.
    Slot,
}

impl Blocked {
    /// The word used in metrics and API.
    pub fn word(self) -> &'static str {
        match self {
            Blocked::Retrying => "retrying",
            Blocked::OpenAttempt => "open_attempt",
            Blocked::Gate => "gate",
            Blocked::Slot => "slot",
        }
    }
}

/// The queues of a shard whose head has one handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerQueues {
    /// Heads with an attempt open, or being started.
    pub running: usize,
    /// Heads in line for a slot.
    pub in_line: usize,
    /// Heads that wait for their next try.
    pub retrying: usize,
    /// When the first of them is tried again.
    pub next_try: Option<Wall>,
    /// Heads that wait at a gate.
    pub at_gates: usize,
}

/// What a gate may stop a task by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// Its queue.
    pub queue: QueueName,
    /// Its handler.
    pub handler: HandlerName,
    /// Its collection.
    pub collection: Option<Arc<str>>,
}

/// Why a task is not running, from the outermost reason to the innermost.
#[derive(Clone, Debug, PartialEq)]
pub enum Explanation {
    /// The shard is not ready: its phase, and until when it waits for the lease of the owner before.
    ShardNotRunning(&'static str, Option<Wall>),
    /// Which gates are closed has not been known for as long as a lease: nothing starts until it is.
    GatesUnknown,
    /// Not due until then.
    NotDue(Wall),
    /// A gate is closed for it.
    Gate(Bar),
    /// Ready, stored, and not in memory: it stands far behind in its queue, or the budget is used up.
    NotLoaded,
    /// Another task of its queue is before it, with this attempt number and, when it waits, its next try.
    Behind {
        /// The head's id.
        head: TaskId,
        /// Where the head stands.
        state: TaskState,
        /// The head's next attempt.
        attempt: u32,
        /// When the head is tried again.
        next_try: Option<Wall>,
        /// The gate that the head waits at.
        gate: Option<Bar>,
        /// Tasks before it in all.
        ahead: usize,
    },
    /// Its own last attempt failed: tried again then.
    Retrying(u32, Wall),
    /// An attempt of a lost owner is open: its queue waits until then.
    HeldUntil(Wall),
    /// A decision about it is being written.
    BeingDecided,
    /// No slot of its handler was granted yet.
    WaitsForSlot {
        /// Its turn among the heads of this shard that wait for one: 1 = the next.
        position: usize,
        /// All of them.
        heads: usize,
        /// What it stands in line for.
        lane: Lane,
    },
    /// It is running.
    Running,
    /// It is not among the unfinished tasks.
    NotPending,
}

impl Engine {
    /// How the shard stands.
    pub fn shard_view(&self, now: Boot) -> ShardView {
        let ready = self.window.iter().take_while(|(place, _)| place.ready_at <= self.now.wall);
        let overdue =
            ready.filter(|(_, task)| task.status == Status::Queued).map(|(place, _)| place.ready_at).next();
        ShardView {
            phase: self.phase_word(),
            epoch: self.epoch(),
            generation: self.commit.generation(),
            stopped: self.lost.clone().filter(|_| self.stage == Stage::Stopped),
            next_offset: self.commit.next_offset(),
            log_end: self.commit.log_end(),
            watermark: self.commit.watermark(),
            loaded_to: self.window.cursor().ready_at,
            tasks: self.window.len(),
            backlog: self.intake.backlog(),
            oldest_unapplied: self.intake.oldest_unapplied(),
            events_waiting: self.outbox.len(),
            lease_left_ms: self.ownership.valid_until().ms_since(now),
            oldest_overdue: overdue,
            queues_retrying: self.queues.backing_off(),
            queues_held: self.attempts.held(),
            queues_at_gates: self.queues.at_gates(),
            paused: self.paused(now),
        }
    }

    fn paused(&self, now: Boot) -> Option<Pause> {
        if !matches!(self.stage, Stage::CatchingUp | Stage::Running) {
            return None;
        }
        if !self.ownership.valid(now) {
            return Some(Pause::NoLease);
        }
        let store = || self.intake.stuck_on_store().then_some(Pause::StoreUnavailable);
        let log = || self.intake.stuck_on_log().then_some(Pause::LogUnavailable);
        let memory = || self.intake.is_full(self.budget.intake_bytes).then_some(Pause::Memory);
        let events = || self.is_full_of_events().then_some(Pause::Events);
        self.writes.stuck().or_else(store).or_else(log).or_else(memory).or_else(events)
    }

    /// Whether the shard runs here: the phase `running` of [`Engine::shard_view`], without a look at its tasks.
    pub fn runs(&self) -> bool {
        self.phase_word() == "running"
    }

    /// How many heads of queues wait for a slot.
    pub fn heads_in_line(&self) -> usize {
        self.lines.heads()
    }

    fn phase_word(&self) -> &'static str {
        match (self.stage, self.ownership.phase_word()) {
            (Stage::Stopped, _) => "stopped",
            (Stage::Loading, "owned") => "loading",
            (Stage::CatchingUp, "owned") => "catching_up",
            (Stage::Running, "owned") => "running",
            (_, word) => word,
        }
    }

    /// The generation of the log.
    pub fn generation(&self) -> Generation {
        self.commit.generation()
    }

    /// Every record below this offset is applied.
    pub fn next_offset(&self) -> u64 {
        self.commit.next_offset()
    }

    /// Whether the shard is on its way from another owner to this one. Who ran it may have let go by now: nobody else runs it
    /// before the group has given it on.
    pub fn is_taking_over(&self) -> bool {
        let is_live = matches!(self.ownership.phase_word(), "bumping" | "waiting" | "owned");
        is_live && self.ownership.assigned() && !matches!(self.stage, Stage::Running | Stage::Stopped)
    }

    /// Whether another instance may take the shard over at once; calls may still be under way.
    pub fn is_released(&self) -> bool {
        self.stage == Stage::Out && matches!(self.ownership.phase_word(), "idle" | "fenced")
    }

    /// The tasks in memory: for gauges.
    pub fn tasks_in_memory(&self) -> usize {
        self.window.len()
    }

    /// Queues with tasks that are known by pointer only, or were.
    pub fn late_queues(&self) -> usize {
        self.late.len()
    }

    /// Queues with ready tasks, or of them those that do not move, in name order after `after`, at most `max`.
    pub fn queues(&self, after: Option<&QueueName>, only_blocked: bool, max: usize) -> Vec<QueueView> {
        let is_blocked = |name: &QueueName| self.queue(name).is_some_and(|queue| queue.blocked.is_some());
        let names = self.queues.by_name.keys().filter(|name| after.is_none_or(|after| *name > after));
        let mut names: Vec<&QueueName> = names.filter(|name| !only_blocked || is_blocked(name)).collect();
        if names.len() > max {
            names.select_nth_unstable(max);
            names.truncate(max);
        }
        names.sort_unstable();
        names.into_iter().filter_map(|name| self.queue(name)).collect()
    }

    /// One queue, if it has ready tasks.
    pub fn queue(&self, name: &QueueName) -> Option<QueueView> {
        let queue = self.queues.by_name.get(name)?;
        let (ready, busy, head) = (queue.len(), queue.busy.len(), queue.head());
        let head_id = head.and_then(|place| self.window.get(place)).map(|task| task.key.id.clone());
        let held = |place: &Place| self.window.get(*place).is_some_and(|task| task.status == Status::Held);
        let gate = head.filter(|_| queue.is_at_gate()).and_then(|place| self.bar_of(place)).cloned();
        let waits = |place: &Place| self.now.wall.ms_since(place.ready_at) >= SLOT_WAIT_MS;
        let in_line = queue.candidate.filter(|place| gate.is_none() && waits(place));
        let waits_for = in_line.and_then(|place| Some(self.lane_of(self.window.get(place)?)));
        let blocked = match queue.backoff {
            Some(_) => Some(Blocked::Retrying),
            None if queue.busy.iter().any(held) => Some(Blocked::OpenAttempt),
            None if gate.is_some() => Some(Blocked::Gate),
            None => waits_for.as_ref().map(|_| Blocked::Slot),
        };
        let (queue, next_try) = (name.clone(), queue.backoff);
        Some(QueueView { queue, ready, busy, head, head_id, next_try, blocked, gate, waits_for })
    }

    /// The next task of a queue that is in memory and not ready: its id, and when it is.
    pub fn next_of(&self, name: &QueueName) -> Option<(TaskId, Wall)> {
        let pending = self.window.iter().filter(|(_, task)| task.status == Status::Pending);
        let mut of_queue = pending.filter(|(_, task)| task.key.queue == *name);
        of_queue.next().map(|(place, task)| (task.key.id.clone(), place.ready_at))
    }

    /// Why nothing of this shard starts.
    pub fn not_running(&self) -> Option<Explanation> {
        let phase = self.phase_word();
        let is_behind = phase == "running" && self.is_loader_behind();
        let phase = if is_behind { "what is ready is still being read from the store" } else { phase };
        let wait = self.ownership.waits_until().map(|until| until.ms_since(self.now.boot));
        let until = wait.map(|ms| self.now.wall.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX)));
        let not_running = (phase != "running").then_some(Explanation::ShardNotRunning(phase, until));
        not_running.or_else(|| (!self.gates_are_known()).then_some(Explanation::GatesUnknown))
    }

    /// What the queues of this shard whose head has a handler wait for.
    pub fn handler_queues(&self, handler: &HandlerName) -> HandlerQueues {
        let mut found = HandlerQueues::default();
        for queue in self.queues.by_name.values() {
            let head = queue.busy.first().or_else(|| queue.head());
            let task = head.and_then(|place| self.window.get(place));
            if task.is_none_or(|task| task.content.handler != *handler) {
                continue;
            }
            found.running += usize::from(!queue.busy.is_empty());
            found.retrying += usize::from(queue.backoff.is_some());
            found.at_gates += usize::from(queue.is_at_gate());
            found.in_line += usize::from(queue.candidate.is_some());
            found.next_try = found.next_try.into_iter().chain(queue.backoff).min();
        }
        found
    }

    /// Where the task at `place` stands in memory.
    pub fn state_in_memory(&self, place: Place) -> Option<TaskState> {
        self.window.get(place).map(|task| match task.status {
            Status::Starting | Status::Running | Status::Ending | Status::Held => TaskState::Running,
            Status::Pending | Status::Queued | Status::Fetching if task.counts.attempt == 1 => {
                TaskState::Scheduled
            }
            Status::Parked => TaskState::Parked,
            Status::Pending | Status::Queued | Status::Fetching => TaskState::Retrying,
        })
    }

    /// Why the task at `place` is not running: all reasons, the outermost first.
    pub fn explain(&self, task: &Whose, place: Place) -> Vec<Explanation> {
        let queue = &task.queue;
        let mut reasons = Vec::new();
        reasons.extend(self.not_running());
        if place.ready_at > self.now.wall {
            reasons.push(Explanation::NotDue(place.ready_at));
        }
        if let Some(bar) = self.closed.bar(queue, &task.handler, task.collection.as_deref()) {
            reasons.push(Explanation::Gate(bar.clone()));
        }
        let Some(task) = self.window.get(place) else {
            if place.ready_at <= self.now.wall {
                let known = self.window.covers(place) && !self.late.has(queue);
                reasons.push(if known { Explanation::NotPending } else { Explanation::NotLoaded });
            }
            return reasons;
        };
        match task.status {
            Status::Starting | Status::Running | Status::Ending => reasons.push(Explanation::Running),
            Status::Held => {
                let until = self.attempts.hold_of(place).map_or(self.now.wall, |started| started.deadline);
                reasons.push(Explanation::HeldUntil(until));
            }
            Status::Pending => {}
            Status::Parked => {
                reasons.push(Explanation::Retrying(task.counts.attempt, task.counts.not_before));
            }
            Status::Queued | Status::Fetching => self.explain_queued(place, &mut reasons),
        }
        reasons
    }

    /// The state of the task with this key, and why it is not running; `None` = it is not in memory.
    pub fn explain_in_memory(&self, key: &TaskKey) -> Option<(TaskState, Vec<Explanation>)> {
        let of_key = self.window.iter().filter(|(_, task)| task.key == *key);
        let (&place, task) = of_key.max_by_key(|(place, _)| place.version)?;
        let (handler, collection) = (task.content.handler.clone(), task.content.collection.clone());
        let whose = Whose { queue: key.queue.clone(), handler, collection };
        Some((self.state_in_memory(place)?, self.explain(&whose, place)))
    }

    fn explain_queued(&self, place: Place, reasons: &mut Vec<Explanation>) {
        let Some(task) = self.window.get(place) else { return };
        let Some(queue) = self.queues.by_name.get(&task.key.queue) else { return };
        let head = queue.busy.first().or(queue.head());
        if let Some((head, first)) =
            head.filter(|head| *head != place).and_then(|p| Some((p, self.window.get(p)?)))
        {
            let waits = first.counts.not_before > self.now.wall;
            reasons.push(Explanation::Behind {
                head: first.key.id.clone(),
                state: self.state_in_memory(head).unwrap_or(TaskState::Scheduled),
                attempt: first.counts.attempt,
                next_try: waits.then_some(first.counts.not_before),
                gate: self.bar_of(head).filter(|_| queue.is_at_gate()).cloned(),
                ahead: queue.places().take_while(|other| *other != place).count(),
            });
        } else if self.intake.is_frozen(place) {
            reasons.push(Explanation::BeingDecided);
        } else if task.counts.not_before > self.now.wall {
            reasons.push(Explanation::Retrying(task.counts.attempt, task.counts.not_before));
        } else if queue.candidate == Some(place) {
            let lane = self.lane_of(task);
            let (before, heads) = self.lines.position(&lane, place);
            reasons.push(Explanation::WaitsForSlot { position: before + 1, heads, lane });
        }
    }
}
