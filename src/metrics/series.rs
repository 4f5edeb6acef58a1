//! The series themselves, by what they count.

use std::collections::BTreeMap;

use prometheus::{Gauge, Histogram, IntCounter, IntGauge};

use super::OTHER_HANDLER;
use super::family::{Families, Family};
use super::labels::{
    BlockedReason, DeniedReason, HoldupReason, Horizon, Layer, LeaseLoss, PauseReason, RepeatCause,
    StopReason, StoreErrorKind, StoreOp, TakeoverPhase,
};
use crate::model::{CloseReason, HandlerName, MarkKind, Outcome, RejectReason, TaskEventKind};

const LATENESS_S: [f64; 20] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
    600.0, 1_800.0, 3_600.0,
];
const RUN_S: [f64; 16] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 21_600.0,
    86_400.0,
];
const STORE_S: [f64; 14] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
// Leases are 6 s by default: a wait for one is told from a longer wait.
const TAKEOVER_S: [f64; 16] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 6.5, 8.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0];
const GAP_S: [f64; 12] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0];

const OUTCOMES: [Outcome; 8] = [
    Outcome::Succeeded,
    Outcome::Retryable,
    Outcome::Fatal,
    Outcome::TimedOut,
    Outcome::Aborted,
    Outcome::Interrupted,
    Outcome::Snoozed,
    Outcome::NotCalled,
];
const CLOSE_REASONS: [CloseReason; 6] = [
    CloseReason::Exhausted,
    CloseReason::Fatal,
    CloseReason::Interrupted,
    CloseReason::Expired,
    CloseReason::Skipped,
    CloseReason::Dropped,
];
const MARKS: [MarkKind; 3] = [MarkKind::Cancelled, MarkKind::Replaced, MarkKind::Rescheduled];
const REJECT_REASONS: [RejectReason; 14] = [
    RejectReason::Tombstone,
    RejectReason::Empty,
    RejectReason::TooLarge,
    RejectReason::NotUtf8,
    RejectReason::NotJson,
    RejectReason::InvalidField,
    RejectReason::UnknownField,
    RejectReason::UnknownType,
    RejectReason::UnknownHandler,
    RejectReason::Unsupported,
    RejectReason::Conflict,
    RejectReason::OverQuota,
    RejectReason::Misrouted,
    RejectReason::RefusedByStore,
];

/// Series of one handler.
#[derive(Clone, Debug)]
pub(super) struct OfHandler {
    pub lateness: Histogram,
    pub run: Histogram,
    pub outcomes: Family<IntCounter>,
    pub dead_letters: IntCounter,
}

/// Series of all handlers.
#[derive(Debug)]
pub(super) struct Handlers {
    by_name: BTreeMap<HandlerName, OfHandler>,
    other: OfHandler,
}

impl Handlers {
    pub(super) fn new(families: &mut Families, names: Vec<HandlerName>) -> Handlers {
        let help = "From a task being ready (due and arrived) to the start of its first attempt";
        let lateness = families.histogram_vec("dueline_task_lateness_seconds", help, "handler", &LATENESS_S);
        let tasks =
            families.counter_vec("dueline_tasks_total", "Attempts that ended", &["handler", "outcome"]);
        families.words("outcome", &words(OUTCOMES, Outcome::word));
        let help = "From calling a handler to the end of the attempt";
        let run = families.histogram_vec("dueline_task_run_seconds", help, "handler", &RUN_S);
        let help = "Tasks that became dead letters";
        let dead = families.counter_vec("dueline_dead_letters_total", help, &["handler"]);
        let of = |name: &str| OfHandler {
            lateness: lateness.with_label_values(&[name]),
            run: run.with_label_values(&[name]),
            outcomes: Family::new(words(OUTCOMES, Outcome::word), |word| {
                tasks.with_label_values(&[name, word])
            }),
            dead_letters: dead.with_label_values(&[name]),
        };
        let other = of(OTHER_HANDLER);
        let by_name = names.into_iter().map(|name| (name.clone(), of(name.as_str()))).collect();
        Handlers { by_name, other }
    }

    pub(super) fn of(&self, name: &HandlerName) -> &OfHandler {
        self.by_name.get(name).unwrap_or(&self.other)
    }
}

/// Series of tasks and queues.
#[derive(Debug)]
pub(super) struct Tasks {
    pub oldest_overdue: Gauge,
    pub in_memory: IntGauge,
    pub due_soon: Family<Gauge>,
    pub queues_blocked: Family<IntGauge>,
    pub handlers_held_up: Family<IntGauge>,
    pub closed: Family<IntCounter>,
    pub repeat_starts: Family<IntCounter>,
    pub told: Family<IntCounter>,
    pub to_tell: IntGauge,
    pub not_told: IntCounter,
}

impl Tasks {
    pub(super) fn new(families: &mut Families) -> Tasks {
        let help = "How long the oldest task that is due has waited; 0 = none waits";
        let oldest_overdue = families.gauge("dueline_oldest_overdue_seconds", help);
        let help = "Tasks held in memory; bounded by limits.tasks_in_memory";
        let in_memory = families.int_gauge("dueline_tasks_in_memory", help);
        let help = "Tasks that come due within that time, of the shards that run here, as last counted: every 15 s at best, the day in minutes, less often with many shards; NaN = not yet";
        let due_soon =
            families.gauges("dueline_tasks_due_soon", help, "horizon", words(Horizon::ALL, Horizon::word));
        Horizon::ALL.iter().for_each(|horizon| due_soon.of(horizon.word()).set(f64::NAN));
        let help = "Queues whose head waits though it is due";
        let reasons = words(BlockedReason::ALL, BlockedReason::word);
        let queues_blocked = families.int_gauges("dueline_queues_blocked", help, "reason", reasons);
        let help = "Handlers whose tasks wait for a slot on this instance";
        let reasons = words(HoldupReason::ALL, HoldupReason::word);
        let handlers_held_up = families.int_gauges("dueline_handlers_held_up", help, "reason", reasons);
        let help = "Tasks closed without success";
        let closed = families.counters("dueline_closed_total", help, "reason", closed_words());
        let help = "Attempts started although one before may have run";
        let causes = words(RepeatCause::ALL, RepeatCause::word);
        let repeat_starts = families.counters("dueline_repeat_starts_total", help, "cause", causes);
        let help = "Task events published, those published again among them";
        let kinds = words(TaskEventKind::ALL, TaskEventKind::word);
        let told = families.counters("dueline_task_events_total", help, "event", kinds);
        let help = "Task events that are not published yet";
        let to_tell = families.int_gauge("dueline_task_events_waiting", help);
        let help = "Task events that the events topic never takes, as too large; they are left out";
        let not_told = families.counter("dueline_task_events_refused_total", help);
        Tasks {
            oldest_overdue,
            in_memory,
            due_soon,
            queues_blocked,
            handlers_held_up,
            closed,
            repeat_starts,
            told,
            to_tell,
            not_told,
        }
    }
}

/// Series of schedule events.
#[derive(Debug)]
pub(super) struct Events {
    pub rejected: Family<IntCounter>,
    pub forwarded: IntCounter,
    pub forgotten: IntCounter,
    pub repeated: IntCounter,
    pub persist: Histogram,
    pub intake_paused: Family<IntGauge>,
    pub consumer_lag: IntGauge,
    pub oldest_unapplied: Gauge,
}

impl Events {
    pub(super) fn new(families: &mut Families) -> Events {
        let help = "Records sent to the rejected topic";
        let reasons = words(REJECT_REASONS, RejectReason::word);
        let rejected = families.counters("dueline_events_rejected_total", help, "reason", reasons);
        let help = "Events sent on to their home shard: their producer does not partition as Java does";
        let forwarded = families.counter("dueline_events_forwarded_total", help);
        let help = "Finished tasks that were forgotten, as they are older than retention.history";
        let forgotten = families.counter("dueline_history_forgotten_total", help);
        let help = "Events that were a repeat and changed nothing";
        let repeated = families.counter("dueline_events_repeated_total", help);
        let help = "From reading an event to its rows being durable";
        let persist = families.histogram("dueline_persist_seconds", help, &STORE_S);
        let reasons = words(PauseReason::ALL, PauseReason::word);
        let help = "Shards whose intake is paused";
        let intake_paused = families.int_gauges("dueline_intake_paused", help, "reason", reasons);
        let help = "Records of owned shards that are not applied yet";
        let consumer_lag = families.int_gauge("dueline_consumer_lag_records", help);
        let help = "How long ago the oldest schedule event was appended that was read and is not applied yet; 0 = there is none";
        let oldest_unapplied = families.gauge("dueline_oldest_unapplied_seconds", help);
        Events {
            rejected,
            forwarded,
            forgotten,
            repeated,
            persist,
            intake_paused,
            consumer_lag,
            oldest_unapplied,
        }
    }
}

/// Series of ownership.
#[derive(Debug)]
pub(super) struct Shards {
    pub owned: IntGauge,
    pub stopped: Family<IntGauge>,
    pub gap: Histogram,
    pub takeover: Family<Histogram>,
    pub lease_remaining: Gauge,
    pub leases_lost: Family<IntCounter>,
}

impl Shards {
    pub(super) fn new(families: &mut Families) -> Shards {
        let help = "Shards this instance owns and may start tasks of";
        let owned = families.int_gauge("dueline_shards_owned", help);
        let help = "Shards stopped until a person looks";
        let reasons = words(StopReason::ALL, StopReason::word);
        let stopped = families.int_gauges("dueline_shards_stopped", help, "reason", reasons);
        let help = "How long a shard was without an owner that could start tasks";
        let gap = families.histogram("dueline_ownership_gap_seconds", help, &GAP_S);
        let help = "How long a shard that was taken over was in each phase before it ran";
        let phases = words(TakeoverPhase::ALL, TakeoverPhase::word);
        let name = "dueline_takeover_phase_seconds";
        let takeover = families.histograms(name, help, "phase", phases, &TAKEOVER_S);
        let help = "What is left of the lease that ends first; 0 without a shard";
        let lease_remaining = families.gauge("dueline_lease_remaining_seconds", help);
        let help = "Leases that ended against the owner's will";
        let causes = words(LeaseLoss::ALL, LeaseLoss::word);
        let leases_lost = families.counters("dueline_leases_lost_total", help, "cause", causes);
        Shards { owned, stopped, gap, takeover, lease_remaining, leases_lost }
    }
}

/// Whether the instance is drained.
pub(super) fn drained(families: &mut Families) -> IntGauge {
    families.int_gauge(
        "dueline_instance_drained",
        "1 = this instance is drained: it lets its shards go and takes none until a person undoes that",
    )
}

/// Spans that were not exported.
pub(super) fn spans_dropped(families: &mut Families) -> IntCounter {
    let help = "Spans of attempts that were dropped, as the collector is away, slow or refuses them";
    families.counter("dueline_otlp_spans_dropped_total", help)
}

/// Whether any data centre could be lost. Not known until it was asked.
pub(super) fn dc_loss(families: &mut Families) -> Family<Gauge> {
    let help =
        "1 = any data centre could be lost now, 0 = one could not, NaN = not known; absent when embedded";
    let layers = families.gauges("dueline_dc_loss_survivable", help, "layer", words(Layer::ALL, Layer::word));
    Layer::ALL.iter().for_each(|layer| layers.of(layer.word()).set(f64::NAN));
    layers
}

/// Series of requests: to the store, and to the HTTP interface.
#[derive(Debug)]
pub(super) struct Requests {
    pub denied: Family<IntCounter>,
    pub seconds: Family<Histogram>,
    pub errors: BTreeMap<&'static str, Family<IntCounter>>,
}

impl Requests {
    pub(super) fn new(families: &mut Families) -> Requests {
        let ops = || words(StoreOp::ALL, StoreOp::word);
        let kinds = words(StoreErrorKind::ALL, StoreErrorKind::word);
        let name = "dueline_store_request_seconds";
        let seconds = families.histograms(name, "Requests to the store", "op", ops(), &STORE_S);
        let (name, help) = ("dueline_store_errors_total", "Requests to the store that failed");
        let errors = families.counters_of_two(name, help, ("op", ops()), ("kind", kinds));
        let help = "Requests to the HTTP interface that were denied: without a token, with one that is not known, or of too small a role";
        let reasons = words(DeniedReason::ALL, DeniedReason::word);
        let denied = families.counters("dueline_http_denied_total", help, "reason", reasons);
        Requests { denied, seconds, errors }
    }
}

fn words<T: Copy, const N: usize>(all: [T; N], word: fn(T) -> &'static str) -> Vec<&'static str> {
    all.into_iter().map(word).collect()
}

fn closed_words() -> Vec<&'static str> {
    let marks = words(MARKS, MarkKind::word);
    words(CLOSE_REASONS, CloseReason::word).into_iter().chain(marks).collect()
}
