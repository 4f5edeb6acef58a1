//! The shapes of answers: what is added stays, names are never changed.

mod task;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::dispatch::Policy;
use crate::engine::{Explanation, Holdup};
use crate::model::{Bar, CollectionLimit, GateAction, Rate, TaskState, Wall};
use crate::wire::time::format_time;

use super::problem::Problem;

pub(super) use task::{DecisionView, EarlierView, TaskView, task_view};

/// An event that was written to the log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct Accepted {
    /// The queue.
    pub(super) queue: String,
    /// The id.
    pub(super) id: String,
    /// The partition of the schedule topic it lies in.
    pub(super) partition: u32,
    /// Its offset there; absent when a broker had it from an earlier try and does not say any more where. Then nothing is
    /// waited for either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) offset: Option<u64>,
    /// What was decided, when the request waited for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) decision: Option<DecisionView>,
}

/// A page of tasks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct TaskPage {
    /// The tasks, by ready time.
    pub(super) tasks: Vec<TaskView>,
    /// Listed from this ready time …
    pub(super) from: String,
    /// … to before this one.
    pub(super) to: String,
    /// Give it as `page_token` for what follows; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_page_token: Option<String>,
}

/// Why a task is not running.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct ExplainView {
    /// Its queue.
    pub(super) queue: String,
    /// Its id.
    pub(super) id: String,
    /// Its state; `unknown` while the store does not answer and the task is not in memory here.
    pub(super) state: String,
    /// All reasons, the outermost first; empty when nothing holds it.
    pub(super) reasons: Vec<ReasonView>,
    /// The earliest time it can start, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) earliest_start: Option<String>,
}

/// Why a queue does not move.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct QueueExplainView {
    /// Its name.
    pub(super) queue: String,
    /// Its shard.
    pub(super) shard: u32,
    /// Tasks that are ready and in memory.
    pub(super) ready: usize,
    /// Attempts that are open.
    pub(super) running: usize,
    /// Why nothing of its shard starts; absent when the shard runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) not_running: Option<ReasonView>,
    /// Its head, and why that is not running; absent when nothing is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) head: Option<ExplainView>,
    /// The next of its tasks that is not ready yet and in memory (two minutes ahead).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<NextView>,
    /// Gates on it and on everything.
    pub(super) gates: Vec<ReasonView>,
}

/// A task that is not ready yet.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct NextView {
    /// Its id.
    pub(super) id: String,
    /// When it is.
    pub(super) ready_at: String,
}

/// What the tasks of a handler wait for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct HandlerExplainView {
    /// Its name.
    pub(super) handler: String,
    /// Gates on it and on everything.
    pub(super) gates: Vec<ReasonView>,
    /// On each instance.
    pub(super) instances: Vec<HandlerInstanceView>,
    /// Instances and shards that did not answer, and why.
    #[serde(default)]
    pub(super) missing: Vec<String>,
}

/// What the tasks of a handler wait for on one instance.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(super) struct HandlerInstanceView {
    /// The instance.
    pub(super) instance: String,
    /// Its slots: its part of the handler's, by the shards that it runs.
    pub(super) concurrency: u32,
    /// Those taken, by attempts and what is about to start.
    pub(super) slots_taken: u32,
    /// Why no slot is granted, whoever waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) held_up: Option<ReasonView>,
    /// What holds up some of the tasks that wait and not others: slots kept for priorities, the rate of late tasks, limits of
    /// collections. At most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) held_up_apart: Vec<ReasonView>,
    /// Queues whose head has an attempt open.
    pub(super) running: usize,
    /// Queues whose head waits for a slot.
    pub(super) in_line: usize,
    /// Queues whose head waits for its next try.
    pub(super) retrying: usize,
    /// When the first of them is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_try: Option<String>,
    /// Queues whose head waits at a gate.
    pub(super) at_gates: usize,
}

/// One reason.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct ReasonView {
    /// A word for programs.
    pub(super) code: String,
    /// A sentence for people.
    pub(super) detail: String,
    /// Until when, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
}

impl ReasonView {
    pub(super) fn new(code: &str, detail: String, until: Option<Wall>) -> ReasonView {
        ReasonView { code: code.to_owned(), detail, until: until.map(format_time) }
    }

    /// A reason in words.
    pub(super) fn of(reason: &Explanation) -> ReasonView {
        match reason {
            Explanation::ShardNotRunning(phase, until) => {
                let lease =
                    until.map(|at| format!(" until {}, for the lease of the owner before", format_time(at)));
                let detail =
                    format!("Its shard does not run tasks yet: {phase}{}.", lease.unwrap_or_default());
                ReasonView::new("shard_not_running", detail, *until)
            }
            Explanation::GatesUnknown => {
                let detail = "Which gates are closed was not heard from the store for as long as a lease: nothing starts until it is.";
                ReasonView::new("gates_unknown", detail.to_owned(), None)
            }
            Explanation::NotDue(at) => {
                ReasonView::new("not_due", format!("It is due at {}.", format_time(*at)), Some(*at))
            }
            Explanation::NotLoaded => {
                let detail = "It is stored and not in memory: many tasks of its queue are before it, or limits.tasks_in_memory is used up.";
                ReasonView::new("not_loaded", detail.to_owned(), None)
            }
            Explanation::Gate(bar) => {
                let what = match bar.action {
                    GateAction::Pause => "it waits",
                    GateAction::Drop => "it is dropped when its turn comes",
                };
                ReasonView::new(
                    "gate",
                    format!("A gate on {} is closed{}: {what}.", bar.target, of_bar(bar)),
                    bar.until,
                )
            }
            Explanation::Behind { head, state, attempt, next_try, gate, ahead } => {
                let next =
                    next_try.map(|at| format!(", tried again at {}", format_time(at))).unwrap_or_default();
                let at_gate =
                    gate.as_ref().map(|bar| format!(" and waits at a gate on {}{}", bar.target, of_bar(bar)));
                let detail = format!(
                    "It waits behind task {head} of its queue, which is {} on attempt {attempt}{next}{}; {ahead} task(s) are before it.",
                    state.word(),
                    at_gate.unwrap_or_default()
                );
                ReasonView::new(
                    "behind_head",
                    detail,
                    (*next_try).max(gate.as_ref().and_then(|bar| bar.until)),
                )
            }
            Explanation::Retrying(attempt, at) => {
                let detail =
                    format!("Its last attempt failed; attempt {attempt} comes at {}.", format_time(*at));
                ReasonView::new("retrying", detail, Some(*at))
            }
            Explanation::HeldUntil(at) => {
                let detail = format!(
                    "An attempt of a lost owner may still be at work; its queue waits until {}.",
                    format_time(*at)
                );
                ReasonView::new("open_attempt", detail, Some(*at))
            }
            Explanation::BeingDecided => ReasonView::new(
                "being_decided",
                "A cancel or change of it is being written.".to_owned(),
                None,
            ),
            Explanation::WaitsForSlot { position, heads, .. } => {
                let detail = format!(
                    "It waits for a slot of its handler: number {position} of {heads} on its shard, by priority and time."
                );
                ReasonView::new("no_slot", detail, None)
            }
            Explanation::Running => ReasonView::new("running", "It is running.".to_owned(), None),
            Explanation::NotPending => {
                ReasonView::new("finished", "It has ended; `task show` has its attempts.".to_owned(), None)
            }
        }
    }
}

impl ReasonView {
    /// Nobody can be asked about a task: its shard has no owner, or that does not answer.
    pub(super) fn of_problem(problem: &Problem) -> ReasonView {
        ReasonView::new(&problem.code, problem.detail.clone(), None)
    }

    /// What holds up a handler's slots, in words.
    pub(super) fn of_holdup(
        holdup: &Holdup,
        policy: &Policy,
        collection: Option<(&str, CollectionLimit)>,
        until: Option<Wall>,
    ) -> ReasonView {
        let name = collection.map_or("", |(name, _)| name);
        let text = |rate: Option<Rate>| rate.map(|rate| rate.to_string()).unwrap_or_default();
        let (word, detail) = match holdup {
            Holdup::Concurrency(taken) => {
                ("concurrency", format!("All {taken} slots of the handler on this instance are taken{} (concurrency).", part_of(*taken, policy.concurrency)))
            }
            Holdup::Rate(_) => {
                let rate = text(policy.rate);
                ("rate", format!("The handler's rate is {rate} over all instances; this one has the part of the shards it owns."))
            }
            Holdup::Breaker(_) => {
                let failures = policy.breaker.map_or(0, |breaker| breaker.failures);
                ("breaker", format!("The handler failed {failures} times in a row or more, and is left alone for a while (breaker)."))
            }
            Holdup::Probe => {
                ("breaker", "The handler failed too often; one call is under way to see whether it is well again (breaker).".to_owned())
            }
            Holdup::Reserved => {
                let (slots, priority) = policy.reserve.map_or((0, 0), |reserve| (reserve.slots, reserve.priority));
                ("reserved", format!("Of the handler's slots {slots} over all instances are kept for priority {priority} and above, and the others are taken (reserve)."))
            }
            Holdup::CatchUp(_) => {
                let rate = text(policy.catch_up);
                ("catch_up", format!("It was more than a minute late when its turn came, and the handler catches up at {rate} over all instances (catch_up)."))
            }
            Holdup::CollectionConcurrency(taken) => {
                let all = collection.and_then(|(_, limit)| limit.concurrency).unwrap_or(*taken);
                ("collection", format!("All {taken} slots of collection {name:?} on this instance are taken{} (concurrency).", part_of(*taken, all)))
            }
            Holdup::CollectionRate(_) => {
                let rate = text(collection.and_then(|(_, limit)| limit.rate));
                ("collection", format!("The rate of collection {name:?} is {rate} over all instances; this one has the part of the shards it owns."))
            }
        };
        ReasonView::new(word, detail, until)
    }
}

/// That an instance's slots are a part of all, as the middle of a sentence.
fn part_of(slots: u32, all: u32) -> String {
    if slots < all { format!(", its part of {all} over all instances") } else { String::new() }
}

/// Until when a gate is closed and why, as the middle of a sentence.
fn of_bar(bar: &Bar) -> String {
    let until = bar.until.map(|at| format!(" until {}", format_time(at))).unwrap_or_default();
    let note = bar.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
    until + &note
}

/// A queue with ready tasks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct QueueView {
    /// Its name.
    pub(super) queue: String,
    /// Its shard.
    pub(super) shard: u32,
    /// Tasks that are ready.
    pub(super) ready: usize,
    /// Attempts that are open.
    pub(super) running: usize,
    /// The instance that runs it.
    pub(super) instance: String,
    /// The id of its head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) head: Option<String>,
    /// Since when its head is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) head_ready_at: Option<String>,
    /// When its head is tried again, if it waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_try: Option<String>,
    /// Why it does not move, if it does not: retrying, open_attempt, gate, slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blocked: Option<String>,
    /// The gate that its head waits at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gate: Option<String>,
    /// What holds up the slot that its head waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) held_up: Option<ReasonView>,
}

/// A page of queues.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct QueuePage {
    /// The queues, by name.
    pub(super) queues: Vec<QueueView>,
    /// Give it as `page_token` for what follows; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_page_token: Option<String>,
    /// Instances and shards that did not answer, and why: their queues are not among these.
    #[serde(default)]
    pub(super) missing: Vec<String>,
}

/// All shards.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct ShardPage {
    /// The shards, by number.
    pub(super) shards: Vec<ShardView>,
    /// Instances and shards that did not answer, and why: what is said of their shards is from the store.
    #[serde(default)]
    pub(super) missing: Vec<String>,
}

/// A shard.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct ShardView {
    /// Its number.
    pub(super) shard: u32,
    /// Its owner's instance; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// Its epoch.
    pub(super) epoch: u64,
    /// How often it was reset: offsets are of this generation of its log. Absent when its owner is of an earlier build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) generation: Option<u32>,
    /// How far its owner is: bumping, waiting, loading, catching_up, running, lapsed, releasing, stopped; `unknown` when the owner does not answer, `free` when there
    /// is none.
    pub(super) phase: String,
    /// What its log lost, while it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<LossView>,
    /// The last applied offset, -1 for none.
    pub(super) applied: i64,
    /// Records accepted and not applied; null when that is not known.
    pub(super) lag: Option<u64>,
    /// Every task ready at or before this is finished; null when the shard has none yet.
    pub(super) watermark: Option<String>,
    /// Tasks in memory.
    pub(super) tasks_in_memory: usize,
}

/// What the log of a shard lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(super) struct LossView {
    /// How that is known.
    pub(super) why: String,
    /// Where the log has records again, or will have: a reset goes on there.
    pub(super) first: u64,
    /// Identity of the topic that is there; empty when it is not known.
    pub(super) topic_id: String,
}

/// The handlers.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct HandlerPage {
    /// Those of the instance that answers.
    pub(super) handlers: Vec<HandlerView>,
}

/// A handler.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct HandlerView {
    /// Its name.
    pub(super) name: String,
    /// http, topic, log or in-process.
    pub(super) kind: String,
    /// Calls at once, over all instances.
    pub(super) concurrency: u32,
    /// Attempts that begin, over all instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<String>,
    /// Attempts of late tasks that begin, over all instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) catch_up: Option<String>,
    /// Schedule events that are taken in, over all shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) intake: Option<String>,
    /// Slots of `concurrency` that are kept for high priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reserve_slots: Option<u32>,
    /// For this priority and above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reserve_priority: Option<u8>,
    /// After so many failures in a row it is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) breaker_failures: Option<u32>,
    /// For so long, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) breaker_pause_ms: Option<u64>,
    /// What holds up its slots on this instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) held_up: Option<ReasonView>,
    /// What holds up some of the tasks that wait and not others: slots kept for priorities, the rate of late tasks, limits of
    /// collections. At most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) held_up_apart: Vec<ReasonView>,
    /// Time for one attempt, in milliseconds.
    pub(super) timeout_ms: u64,
    /// Attempts in all.
    pub(super) max_attempts: u32,
}

/// Rejected records.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct RejectedPage {
    /// The newest of each partition.
    pub(super) rejected: Vec<RejectedView>,
}

/// A record that was rejected.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct RejectedView {
    /// Why, a word.
    pub(super) reason: String,
    /// Why, in words.
    pub(super) detail: String,
    /// The partition it lay in.
    pub(super) partition: u32,
    /// Its offset there.
    pub(super) offset: u64,
    /// Its first 4 KiB as text; what is not UTF-8 is replaced.
    pub(super) value: String,
}

/// The state of a task by its word, for filters.
pub(super) fn known_state(word: &str) -> bool {
    TaskState::from_word(word).is_some()
}
