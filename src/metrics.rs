//! All metrics, defined once: Prometheus, base units, a registry of their own.
//!
//! Every label has a closed set of values, all of them made at start: a series that nothing has counted yet reads 0
//! and can be alerted on. No label ever holds a queue, a task id or a schedule. Every update is O(1); nothing is
//! counted by looking through tasks.

mod family;
mod labels;

use std::collections::BTreeMap;

use prometheus::{Encoder as _, Gauge, Histogram, IntCounter, IntGauge, TextEncoder};

pub use family::Described;
use family::Families;
use family::Family;
pub use labels::{BlockedReason, LeaseLoss, PauseReason, RepeatCause, StopReason, StoreErrorKind, StoreOp};

use crate::model::{CloseReason, HandlerName, MarkKind, Outcome, RejectReason};
use crate::store;

/// Label of tasks whose handler is none of the configured ones: a loopback URL, or one that was taken out of the
/// config.
pub const OTHER_HANDLER: &str = "other";

/// Metrics that the interface names and that count what is not there yet, with what they wait for.
pub const NOT_YET: [(&str, &str); 1] =
    [("dueline_tasks_due_soon{horizon}", "a count of tasks by due time that needs no look at each of them")];

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
const CLOSE_REASONS: [CloseReason; 5] = [
    CloseReason::Exhausted,
    CloseReason::Fatal,
    CloseReason::Interrupted,
    CloseReason::Expired,
    CloseReason::Skipped,
];
const MARKS: [MarkKind; 3] = [MarkKind::Cancelled, MarkKind::Replaced, MarkKind::Rescheduled];
const REJECT_REASONS: [RejectReason; 13] = [
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
    RejectReason::Misrouted,
    RejectReason::RefusedByStore,
];

/// What the metrics are made with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names of the configured handlers.
    pub handlers: Vec<HandlerName>,
    /// Whether the replication can lose a data centre; `None` = embedded, where there is none to lose.
    pub dc_loss_survivable: Option<bool>,
}

/// Series of one handler.
#[derive(Clone, Debug)]
struct OfHandler {
    lateness: Histogram,
    run: Histogram,
    outcomes: Family<IntCounter>,
    dead_letters: IntCounter,
}

/// What the shards of an instance add up to at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
    /// Tasks in memory.
    pub tasks_in_memory: usize,
}

/// All metrics of a process.
#[derive(Debug)]
pub struct Metrics {
    families: Families,
    handlers: BTreeMap<HandlerName, OfHandler>,
    other: OfHandler,
    oldest_overdue: Gauge,
    tasks_in_memory: IntGauge,
    queues_blocked: Family<IntGauge>,
    closed: Family<IntCounter>,
    events_rejected: Family<IntCounter>,
    events_forwarded: IntCounter,
    events_repeated: IntCounter,
    repeat_starts: Family<IntCounter>,
    shards_owned: IntGauge,
    shards_stopped: Family<IntGauge>,
    intake_paused: Family<IntGauge>,
    ownership_gap: Histogram,
    lease_remaining: Gauge,
    leases_lost: Family<IntCounter>,
    consumer_lag: IntGauge,
    persist: Histogram,
    store_requests: Family<Histogram>,
    store_errors: BTreeMap<&'static str, Family<IntCounter>>,
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
        let (handlers, other) = handlers(&mut families, options.handlers);
        let metrics = Metrics {
            handlers,
            other,
            oldest_overdue: families.gauge(
                "dueline_oldest_overdue_seconds",
                "How long the oldest task that is due has waited; 0 = none waits",
            ),
            tasks_in_memory: families.int_gauge(
                "dueline_tasks_in_memory",
                "Tasks held in memory; bounded by limits.tasks_in_memory",
            ),
            queues_blocked: families.int_gauges(
                "dueline_queues_blocked",
                "Queues whose head waits though it is due",
                "reason",
                words(BlockedReason::ALL, BlockedReason::word),
            ),
            closed: families.counters(
                "dueline_closed_total",
                "Tasks closed without success",
                "reason",
                closed_words(),
            ),
            events_rejected: families.counters(
                "dueline_events_rejected_total",
                "Records sent to the rejected topic",
                "reason",
                words(REJECT_REASONS, RejectReason::word),
            ),
            events_forwarded: families.counter(
                "dueline_events_forwarded_total",
                "Events sent on to their home shard: their producer does not partition as Java does",
            ),
            events_repeated: families
                .counter("dueline_events_repeated_total", "Events that were a repeat and changed nothing"),
            repeat_starts: families.counters(
                "dueline_repeat_starts_total",
                "Attempts started although one before may have run",
                "cause",
                words(RepeatCause::ALL, RepeatCause::word),
            ),
            shards_owned: families
                .int_gauge("dueline_shards_owned", "Shards this instance owns and may start tasks of"),
            shards_stopped: families.int_gauges(
                "dueline_shards_stopped",
                "Shards stopped until a person looks",
                "reason",
                words(StopReason::ALL, StopReason::word),
            ),
            intake_paused: families.int_gauges(
                "dueline_intake_paused",
                "Shards whose intake is paused",
                "reason",
                words(PauseReason::ALL, PauseReason::word),
            ),
            ownership_gap: families.histogram(
                "dueline_ownership_gap_seconds",
                "How long a shard was without an owner that could start tasks",
                &GAP_S,
            ),
            lease_remaining: families
                .gauge("dueline_lease_remaining_seconds", "What is left of the lease that ends first"),
            leases_lost: families.counters(
                "dueline_leases_lost_total",
                "Leases that ended against the owner's will",
                "cause",
                words(LeaseLoss::ALL, LeaseLoss::word),
            ),
            consumer_lag: families.int_gauge(
                "dueline_consumer_lag_records",
                "Records of owned shards that are not applied yet",
            ),
            persist: families.histogram(
                "dueline_persist_seconds",
                "From reading an event to its rows being durable",
                &STORE_S,
            ),
            store_requests: families.histograms(
                "dueline_store_request_seconds",
                "Requests to the store",
                "op",
                words(StoreOp::ALL, StoreOp::word),
                &STORE_S,
            ),
            store_errors: families.counters_of_two(
                "dueline_store_errors_total",
                "Requests to the store that failed",
                ("op", words(StoreOp::ALL, StoreOp::word)),
                ("kind", words(StoreErrorKind::ALL, StoreErrorKind::word)),
            ),
            families,
        };
        metrics.constants(options.dc_loss_survivable)
    }

    fn constants(mut self, dc_loss_survivable: Option<bool>) -> Metrics {
        let version = vec![env!("CARGO_PKG_VERSION")];
        let info = self.families.int_gauges(
            "dueline_build_info",
            "Always 1; the version is the label",
            "version",
            version,
        );
        info.of(env!("CARGO_PKG_VERSION")).set(1);
        if let Some(survivable) = dc_loss_survivable {
            let help =
                "1 = the store's replication can lose a data centre, 0 = it cannot; absent when embedded";
            self.families.int_gauge("dueline_dc_loss_survivable", help).set(i64::from(survivable));
        }
        self
    }

    fn of_handler(&self, name: &HandlerName) -> &OfHandler {
        self.handlers.get(name).unwrap_or(&self.other)
    }

    /// A task's first attempt started so many seconds after it was due.
    pub fn lateness(&self, handler: &HandlerName, seconds: f64) {
        self.of_handler(handler).lateness.observe(seconds);
    }

    /// An attempt ended, so many seconds after its handler was called.
    pub fn attempt_ended(&self, handler: &HandlerName, outcome: Outcome, seconds: f64) {
        let handler = self.of_handler(handler);
        handler.outcomes.of(outcome.word()).inc();
        handler.run.observe(seconds);
    }

    /// A task became a dead letter.
    pub fn dead_letter(&self, handler: &HandlerName) {
        self.of_handler(handler).dead_letters.inc();
    }

    /// A task was closed without success.
    pub fn closed(&self, reason: CloseReason) {
        self.closed.of(reason.word()).inc();
    }

    /// An event closed a task: cancelled, replaced, rescheduled.
    pub fn superseded(&self, mark: MarkKind) {
        self.closed.of(mark.word()).inc();
    }

    /// An attempt started although one before may have run; a cause that is not a [`RepeatCause`] counts as `other`.
    pub fn repeat_start(&self, cause: &str) {
        self.repeat_starts.of(RepeatCause::known_word(cause)).inc();
    }

    /// An event was a repeat.
    pub fn event_repeated(&self) {
        self.events_repeated.inc();
    }

    /// A record went to the rejected topic.
    pub fn event_rejected(&self, reason: RejectReason) {
        self.events_rejected.of(reason.word()).inc();
    }

    /// An event was sent on to its home shard.
    pub fn event_forwarded(&self) {
        self.events_forwarded.inc();
    }

    /// Rows of events became durable, so many seconds after the events were read.
    pub fn persisted(&self, seconds: f64) {
        self.persist.observe(seconds);
    }

    /// A shard was without an owner that could start tasks, for so many seconds.
    pub fn ownership_gap(&self, seconds: f64) {
        self.ownership_gap.observe(seconds);
    }

    /// A lease ended against its owner's will; a cause that is not a [`LeaseLoss`] counts as `other`.
    pub fn lease_lost(&self, cause: &str) {
        self.leases_lost.of(LeaseLoss::known_word(cause)).inc();
    }

    /// A shard stopped just now; [`Metrics::shards`] corrects the number.
    pub fn shard_stopped(&self) {
        self.shards_stopped.of(StopReason::Log.word()).inc();
    }

    /// What the shards add up to now: to be told about once a second.
    pub fn shards(&self, totals: &ShardTotals) {
        self.shards_owned.set(gauge_of(totals.owned));
        self.shards_stopped.of(StopReason::Log.word()).set(gauge_of(totals.stopped));
        self.oldest_overdue.set(totals.oldest_overdue_s);
        self.lease_remaining.set(totals.lease_remaining_s);
        self.consumer_lag.set(i64::try_from(totals.lag_records).unwrap_or(i64::MAX));
        self.tasks_in_memory.set(gauge_of(totals.tasks_in_memory));
    }

    /// So many queues' heads wait now though they are due.
    pub fn queues_blocked(&self, reason: BlockedReason, queues: usize) {
        self.queues_blocked.of(reason.word()).set(gauge_of(queues));
    }

    /// So many shards' intake is paused now.
    pub fn intake_paused(&self, reason: PauseReason, shards: usize) {
        self.intake_paused.of(reason.word()).set(gauge_of(shards));
    }

    /// A request to the store was answered after so many seconds.
    pub fn store_request(&self, op: StoreOp, seconds: f64, error: Option<&store::Error>) {
        self.store_requests.of(op.word()).observe(seconds);
        if let Some(error) = error {
            let errors = self.store_errors.get(op.word()).expect("made for every op");
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

fn handlers(
    families: &mut Families,
    names: Vec<HandlerName>,
) -> (BTreeMap<HandlerName, OfHandler>, OfHandler) {
    let lateness = families.histogram_vec(
        "dueline_task_lateness_seconds",
        "From a task being due to the start of its first attempt",
        "handler",
        &LATENESS_S,
    );
    let tasks = families.counter_vec("dueline_tasks_total", "Attempts that ended", &["handler", "outcome"]);
    let run = families.histogram_vec(
        "dueline_task_run_seconds",
        "From calling a handler to the end of the attempt",
        "handler",
        &RUN_S,
    );
    let dead =
        families.counter_vec("dueline_dead_letters_total", "Tasks that became dead letters", &["handler"]);
    families.closed_set("outcome", words(OUTCOMES, Outcome::word));
    let of = |name: &str| OfHandler {
        lateness: lateness.with_label_values(&[name]),
        run: run.with_label_values(&[name]),
        outcomes: Family::new(words(OUTCOMES, Outcome::word), |word| tasks.with_label_values(&[name, word])),
        dead_letters: dead.with_label_values(&[name]),
    };
    let other = of(OTHER_HANDLER);
    let handlers = names.into_iter().map(|name| {
        let metrics = of(name.as_str());
        (name, metrics)
    });
    (handlers.collect(), other)
}

fn words<T: Copy, const N: usize>(all: [T; N], word: fn(T) -> &'static str) -> Vec<&'static str> {
    all.into_iter().map(word).collect()
}

fn closed_words() -> Vec<&'static str> {
    let marks = words(MARKS, MarkKind::word);
    words(CLOSE_REASONS, CloseReason::word).into_iter().chain(marks).collect()
}

fn gauge_of(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The reference of all metrics, as Markdown: docs/metrics.md.
pub fn reference() -> String {
    let metrics = Metrics::new(Options { handlers: Vec::new(), dc_loss_survivable: Some(true) });
    family::reference(metrics.described(), &NOT_YET)
}

#[cfg(test)]
mod tests {
    use super::{BlockedReason, Metrics, Options, ShardTotals, StoreOp};
    use crate::config::check_generated;
    use crate::model::{CloseReason, HandlerName, MarkKind, Outcome, RejectReason};
    use crate::store;

    fn metrics() -> Metrics {
        let handlers = vec![HandlerName::new("notify").expect("a name")];
        Metrics::new(Options { handlers, dc_loss_survivable: Some(false) })
    }

    #[track_caller]
    fn check_line(metrics: &Metrics, line: &str) {
        let text = metrics.encode();
        assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
    }

    #[test]
    fn the_reference_of_the_metrics_is_up_to_date() {
        check_generated("metrics.md", &super::reference());
    }

    #[test]
    fn every_series_is_there_before_anything_happened() {
        for line in [
            "dueline_tasks_total{handler=\"notify\",outcome=\"timed_out\"} 0",
            "dueline_events_rejected_total{reason=\"not_json\"} 0",
            "dueline_store_errors_total{kind=\"unavailable\",op=\"write\"} 0",
            "dueline_shards_stopped{reason=\"log\"} 0",
            "dueline_dc_loss_survivable 0",
            "dueline_oldest_overdue_seconds 0",
        ] {
            check_line(&metrics(), line);
        }
    }

    #[test]
    fn what_happens_is_counted_under_its_label() {
        let metrics = metrics();
        let notify = HandlerName::new("notify").expect("a name");
        metrics.attempt_ended(&notify, Outcome::Succeeded, 0.2);
        metrics.lateness(&notify, 0.003);
        metrics.dead_letter(&notify);
        metrics.closed(CloseReason::Expired);
        metrics.superseded(MarkKind::Cancelled);
        metrics.event_rejected(RejectReason::NotJson);
        metrics.repeat_start("owner_lost");
        metrics.lease_lost("fenced");
        metrics.lease_lost("struck by lightning");
        metrics.queues_blocked(BlockedReason::Retrying, 3);
        metrics.store_request(StoreOp::Write, 0.001, Some(&store::Error::Unavailable("timed out".into())));
        metrics.shard_stopped();
        metrics.shards(&ShardTotals { owned: 4, oldest_overdue_s: 1.5, ..ShardTotals::default() });
        for line in [
            "dueline_tasks_total{handler=\"notify\",outcome=\"succeeded\"} 1",
            "dueline_task_lateness_seconds_bucket{handler=\"notify\",le=\"0.002\"} 0",
            "dueline_task_lateness_seconds_bucket{handler=\"notify\",le=\"0.005\"} 1",
            "dueline_task_lateness_seconds_bucket{handler=\"notify\",le=\"3600\"} 1",
            "dueline_closed_total{reason=\"expired\"} 1",
            "dueline_closed_total{reason=\"cancelled\"} 1",
            "dueline_events_rejected_total{reason=\"not_json\"} 1",
            "dueline_dead_letters_total{handler=\"notify\"} 1",
            "dueline_repeat_starts_total{cause=\"owner_lost\"} 1",
            "dueline_leases_lost_total{cause=\"fenced\"} 1",
            "dueline_leases_lost_total{cause=\"other\"} 1",
            "dueline_queues_blocked{reason=\"retrying\"} 3",
            "dueline_shards_owned 4",
            "dueline_shards_stopped{reason=\"log\"} 0",
            "dueline_oldest_overdue_seconds 1.5",
            "dueline_store_errors_total{kind=\"unavailable\",op=\"write\"} 1",
        ] {
            check_line(&metrics, line);
        }
    }

    #[test]
    fn a_handler_that_is_not_configured_makes_no_new_series() {
        let metrics = metrics();
        let series = metrics.encode().lines().count();
        for index in 0..100 {
            let url = HandlerName::new(&format!("http://127.0.0.1:9000/{index}")).expect("a name");
            metrics.attempt_ended(&url, Outcome::Fatal, 0.0);
        }
        assert_eq!(metrics.encode().lines().count(), series);
        check_line(&metrics, "dueline_tasks_total{handler=\"other\",outcome=\"fatal\"} 100");
    }

    #[test]
    fn embedded_there_is_no_data_centre_to_lose() {
        assert!(!Metrics::default().encode().contains("dc_loss"));
    }
}
