//! All metrics, defined once: Prometheus, base units, a registry of their own.
//!
//! Every label has a closed set of values, all of them made at start: a series that nothing has counted yet reads 0
//! and can be alerted on. No label ever holds a queue, a task id or a schedule. Every update is O(1); nothing is
//! counted by looking through tasks.

mod family;
mod labels;
mod series;

use std::collections::BTreeMap;

use prometheus::{Encoder as _, Gauge, IntCounter, IntGauge, TextEncoder};

pub use family::Described;
use family::{Families, Family};
pub use labels::{
    BlockedReason, DeniedReason, HoldupReason, Horizon, Layer, LeaseLoss, PauseReason, RepeatCause,
    StopReason, StoreErrorKind, StoreOp, TakeoverPhase,
};
use series::{Events, Handlers, Requests, Shards, Tasks};

use crate::model::{CloseReason, HandlerName, MarkKind, Outcome, RejectReason, TaskEventKind};
use crate::store;

/// Label of tasks whose handler is none of the configured ones: a loopback URL, or one that was taken out of the
/// config.
pub const OTHER_HANDLER: &str = "other";

/// What the metrics are made with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names of the configured handlers.
    pub handlers: Vec<HandlerName>,
    /// On servers, which may be in several data centres. Embedded there is none to lose.
    pub on_servers: bool,
}

/// What the shards of an instance add up to at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardTotals {
    /// Shards owned, whose tasks may start.
    pub owned: usize,
    /// Shards stopped until a person looks.
    pub stopped: usize,
    /// How long the oldest task that is due has waited, in seconds.
    pub oldest_overdue_s: f64,
    /// What is left of the lease that ends first, in seconds; 0 without a shard.
    pub lease_remaining_s: f64,
    /// Records that are not applied yet.
    pub lag_records: u64,
    /// How long ago the oldest record was appended that was read and is not applied yet, in seconds; 0 = there is none.
    pub oldest_unapplied_s: f64,
    /// Tasks in memory.
    pub tasks_in_memory: usize,
    /// Task events that are not published yet.
    pub events_waiting: usize,
    /// Queues whose head waits for its next try.
    pub queues_retrying: usize,
    /// Queues that wait for the open attempt of a lost owner.
    pub queues_held: usize,
    /// Queues whose head waits at a gate.
    pub queues_at_gates: usize,
    /// Shards that read nothing more for now, by why.
    pub intake_paused: BTreeMap<PauseReason, usize>,
}

/// All metrics of a process.
#[derive(Debug)]
pub struct Metrics {
    handlers: Handlers,
    tasks: Tasks,
    events: Events,
    shards: Shards,
    requests: Requests,
    drained: IntGauge,
    spans_dropped: IntCounter,
    dc_loss: Option<Family<Gauge>>,
    families: Families,
}

impl Default for Metrics {
    /// Metrics without configured handlers, embedded.
    fn default() -> Metrics {
        Metrics::new(Options::default())
    }
}

impl Metrics {
    /// All metrics, at 0.
    pub fn new(options: Options) -> Metrics {
        let mut families = Families::new();
        Metrics {
            handlers: Handlers::new(&mut families, options.handlers),
            tasks: Tasks::new(&mut families),
            events: Events::new(&mut families),
            shards: Shards::new(&mut families),
            requests: Requests::new(&mut families),
            drained: series::drained(&mut families),
            spans_dropped: series::spans_dropped(&mut families),
            dc_loss: options.on_servers.then(|| series::dc_loss(&mut families)),
            families,
        }
        .with_version()
    }

    fn with_version(mut self) -> Metrics {
        let version = vec![env!("CARGO_PKG_VERSION")];
        let info = self.families.int_gauges(
            "dueline_build_info",
            "Always 1; the version is the label",
            "version",
            version,
        );
        info.of(env!("CARGO_PKG_VERSION")).set(1);
        self
    }

    /// Whether any data centre could be lost now; `None` = not known.
    pub fn dc_loss_survivable(&self, layer: Layer, answer: Option<bool>) {
        if let Some(layers) = &self.dc_loss {
            layers
                .of(layer.word())
                .set(answer.map_or(f64::NAN, |survivable| f64::from(u8::from(survivable))));
        }
    }

    /// Whether this instance is drained.
    pub fn drained(&self, is_drained: bool) {
        self.drained.set(i64::from(is_drained));
    }

    /// So many tasks come due within that time, as counted just now.
    pub fn due_soon(&self, horizon: Horizon, tasks: usize) {
        self.tasks.due_soon.of(horizon.word()).set(tasks as f64);
    }

    /// So many spans of attempts were dropped.
    pub fn otlp_spans_dropped(&self, spans: usize) {
        self.spans_dropped.inc_by(spans as u64);
    }

    /// A task's first attempt started so many seconds after it was due.
    pub fn lateness(&self, handler: &HandlerName, seconds: f64) {
        self.handlers.of(handler).lateness.observe(seconds);
    }

    /// An attempt ended, so many seconds after its handler was called.
    pub fn attempt_ended(&self, handler: &HandlerName, outcome: Outcome, seconds: f64) {
        let handler = self.handlers.of(handler);
        handler.outcomes.of(outcome.word()).inc();
        handler.run.observe(seconds);
    }

    /// A task became a dead letter.
    pub fn dead_letter(&self, handler: &HandlerName) {
        self.handlers.of(handler).dead_letters.inc();
    }

    /// A task was closed without success.
    pub fn closed(&self, reason: CloseReason) {
        self.tasks.closed.of(reason.word()).inc();
    }

    /// A task event was left out: the topic never takes it.
    pub fn task_event_refused(&self) {
        self.tasks.not_told.inc();
    }

    /// A task event was published.
    pub fn task_event(&self, kind: TaskEventKind) {
        self.tasks.told.of(kind.word()).inc();
    }

    /// An event closed a task: cancelled, replaced, rescheduled.
    pub fn superseded(&self, mark: MarkKind) {
        self.tasks.closed.of(mark.word()).inc();
    }

    /// An attempt started although one before may have run; a cause that is not a [`RepeatCause`] counts as `other`.
    pub fn repeat_start(&self, cause: &str) {
        self.tasks.repeat_starts.of(RepeatCause::known_word(cause)).inc();
    }

    /// An event was a repeat.
    pub fn event_repeated(&self) {
        self.events.repeated.inc();
    }

    /// A record went to the rejected topic.
    pub fn event_rejected(&self, reason: RejectReason) {
        self.events.rejected.of(reason.word()).inc();
    }

    /// So many finished tasks were forgotten.
    pub fn history_forgotten(&self, tasks: usize) {
        self.events.forgotten.inc_by(tasks as u64);
    }

    /// An event was sent on to its home shard.
    pub fn event_forwarded(&self) {
        self.events.forwarded.inc();
    }

    /// Rows of events became durable, so many seconds after the events were read.
    pub fn persisted(&self, seconds: f64) {
        self.events.persist.observe(seconds);
    }

    /// A shard was without an owner that could start tasks, for so many seconds.
    pub fn ownership_gap(&self, seconds: f64) {
        self.shards.gap.observe(seconds);
    }

    /// A shard that runs now was in this phase for so many seconds.
    pub fn takeover(&self, phase: TakeoverPhase, seconds: f64) {
        self.shards.takeover.of(phase.word()).observe(seconds);
    }

    /// A lease ended against its owner's will; a cause that is not a [`LeaseLoss`] counts as `other`.
    pub fn lease_lost(&self, cause: &str) {
        self.shards.leases_lost.of(LeaseLoss::known_word(cause)).inc();
    }

    /// A shard stopped just now; [`Metrics::shards`] corrects the number.
    pub fn shard_stopped(&self) {
        self.shards.stopped.of(StopReason::Log.word()).inc();
    }

    /// What the shards add up to now: to be told about once a second.
    pub fn shards(&self, totals: &ShardTotals) {
        self.shards.owned.set(gauge_of(totals.owned));
        self.shards.stopped.of(StopReason::Log.word()).set(gauge_of(totals.stopped));
        self.tasks.oldest_overdue.set(totals.oldest_overdue_s);
        self.shards.lease_remaining.set(totals.lease_remaining_s);
        self.events.consumer_lag.set(i64::try_from(totals.lag_records).unwrap_or(i64::MAX));
        self.events.oldest_unapplied.set(totals.oldest_unapplied_s);
        self.tasks.in_memory.set(gauge_of(totals.tasks_in_memory));
        self.tasks.to_tell.set(gauge_of(totals.events_waiting));
        let blocked = [
            (BlockedReason::Retrying, totals.queues_retrying),
            (BlockedReason::OpenAttempt, totals.queues_held),
            (BlockedReason::Gate, totals.queues_at_gates),
        ];
        for (reason, queues) in blocked {
            self.tasks.queues_blocked.of(reason.word()).set(gauge_of(queues));
        }
        for reason in PauseReason::ALL {
            let shards = totals.intake_paused.get(&reason).copied().unwrap_or(0);
            self.events.intake_paused.of(reason.word()).set(gauge_of(shards));
        }
    }

    /// How many handlers are held up by what: to be told about once a second.
    pub fn held_up(&self, handlers: &BTreeMap<HoldupReason, usize>) {
        for reason in HoldupReason::ALL {
            let count = handlers.get(&reason).copied().unwrap_or(0);
            self.tasks.handlers_held_up.of(reason.word()).set(gauge_of(count));
        }
    }

    /// A request to the HTTP interface was denied.
    pub fn denied(&self, reason: DeniedReason) {
        self.requests.denied.of(reason.word()).inc();
    }

    /// A request to the store was answered after so many seconds.
    pub fn store_request(&self, op: StoreOp, seconds: f64, error: Option<&store::Error>) {
        self.requests.seconds.of(op.word()).observe(seconds);
        if let Some(error) = error {
            let errors = self.requests.errors.get(op.word()).expect("made for every op");
            errors.of(StoreErrorKind::from(error).word()).inc();
        }
    }

    /// All metrics in the text format of Prometheus.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        let encoded = TextEncoder::new().encode(&self.families.gather(), &mut bytes);
        encoded.expect("metrics with checked names are written to memory");
        String::from_utf8(bytes).expect("the text format is UTF-8")
    }

    /// What there is, for docs/metrics.md.
    pub fn described(&self) -> &[Described] {
        self.families.described()
    }
}

fn gauge_of(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The reference of all metrics, as Markdown: docs/metrics.md.
pub fn reference() -> String {
    let metrics = Metrics::new(Options { handlers: Vec::new(), on_servers: true });
    family::reference(metrics.described())
}

#[cfg(test)]
mod tests;
