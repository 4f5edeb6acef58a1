//! The report of one run: one JSON object, or a table for people.

mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::args::Plan;
use super::measure::{Times, machine};
use super::rows::Written;
use super::samples::Samples;

/// What a scenario measured. The last line of `-o json` is this object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// `kafka+cassandra` or `embedded`.
    pub site: String,
    /// Tasks measured.
    pub tasks: u64,
    /// Queues they belong to.
    pub queues: u64,
    /// Shards.
    pub shards: u32,
    /// Tasks per second of the steady load, where there is one.
    pub rate: u64,
    /// Bytes of each payload, where it was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u64>,
    /// Handlers that the tasks are spread over.
    pub handlers: u64,
    /// What queues and payloads come of.
    pub seed: u64,
    /// Tasks per second from the first record sent to the last task done (or stored, in `ingest` and `pending`); in `herd` and
    /// `takeover` from the instant at which all are due to the last call; in `ceiling` of the best raw program.
    pub tasks_per_second: f64,
    /// In `http`: calls a second of handlers' HTTP client and the sink alone, as many at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_calls_per_second: Option<f64>,
    /// In `herd`: tasks per second until the last end and the last task event are on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_per_second: Option<f64>,
    /// Tasks per second stored, where it was measured apart.
    pub persisted_per_second: Option<f64>,
    /// Tasks per second of the raw program in the same run, batched in the best of several ways: the mean of before and after.
    pub ceiling_tasks_per_second: Option<f64>,
    /// The first by the second.
    pub ratio_to_ceiling: Option<f64>,
    /// Every raw program that ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub raw: Vec<Raw>,
    /// From a task's due time to its handler's call, in milliseconds.
    pub lateness_ms: Percentiles,
    /// How many calls were how late: the buckets grow by a quarter each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lateness_histogram: Vec<Bucket>,
    /// The raw program at the same rate, in `steady`: at each pace, and the best once more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub raw_lateness: Vec<RawLateness>,
    /// The 99th percentile of the first by that of the second: the mean of the best before and of the same after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness_to_raw: Option<f64>,
    /// The same before the queue was blocked, in `blocked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness_before_ms: Option<Percentiles>,
    /// The 50 newest tasks of a queue over HTTP, in `list`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_newest_ms: Option<Percentiles>,
    /// The 50 oldest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_oldest_ms: Option<Percentiles>,
    /// Attempts that were open all the while, in `long-running`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_attempts: Option<u64>,
    /// Tasks that waited behind one head, in `blocked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_behind: Option<u64>,
    /// A stop and a start on what was stored, in `pending`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// A gate under a steady load, in `gate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateEffect>,
    /// Changes of owners, in `takeover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takeover: Option<Takeover>,
    /// The same load before the store was slowed, and what was published while it was, in `slow-store`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_store: Option<SlowStore>,
    /// In which order tasks came, where it can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Processor time of this process per task, in microseconds, while the tasks were measured: node, producer, handler and
    /// clients of log and store; in `pending` of storing them.
    pub cpu_us_per_task: Option<f64>,
    /// The same by what the threads do: the async runtime has the engine, its actors, the client of Cassandra and the handlers,
    /// `other` the main thread, which makes the records that are sent.
    pub cpu_us_per_task_by_part: BTreeMap<String, f64>,
    /// What was written to the store per task while they were measured.
    pub written_per_task: Written,
    /// Resident memory at the end, once settled, in MiB; in `long-running` with the attempts open.
    pub rss_mb: Option<f64>,
    /// The most resident memory while the tasks were measured, in MiB.
    pub rss_peak_mb: f64,
    /// Resident memory above that at rest before the tasks, in MiB.
    pub rss_above_idle_mb: Option<f64>,
    /// One fsync of the disk an embedded run is on, in milliseconds.
    pub fsync_ms: Option<f64>,
    /// The commit this binary was built from, or its version.
    pub commit: String,
    /// The machine: processors, memory, kernel.
    pub machine: String,
    /// The same over time.
    pub samples: Samples,
    /// Each run, where there are several; what stands above is of the last one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Report>,
}

/// Percentiles, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Percentiles {
    /// Half of all.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1,000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// A bucket of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Times up to this one, in milliseconds, and above that of the bucket before.
    pub up_to_ms: f64,
    /// How many.
    pub count: u64,
}

/// What one raw program reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Raw {
    /// How it batched.
    pub way: String,
    /// Over how many seconds its tasks were due; 0 = all at once, in one bucket.
    pub spread_s: u64,
    /// It ran once more, after what it is compared with.
    pub is_again: bool,
    /// Tasks it wrote.
    pub tasks: u64,
    /// For so long.
    pub seconds: f64,
    /// Tasks per second.
    pub tasks_per_second: f64,
    /// Bytes of a task's four rows, counted as those of `written_per_task`.
    pub bytes_per_task: f64,
}

impl Raw {
    /// The fastest.
    pub(super) fn best(of: &[Raw]) -> Option<&Raw> {
        of.iter().max_by(|one, other| one.tasks_per_second.total_cmp(&other.tasks_per_second))
    }

    /// Tasks per second of the best before and of the same after: their mean.
    pub(super) fn ceiling(of: &[Raw]) -> Option<f64> {
        let (again, before): (Vec<Raw>, Vec<Raw>) = of.iter().cloned().partition(|raw| raw.is_again);
        let (before, again) = (Raw::best(&before)?, Raw::best(&again)?);
        Some((before.tasks_per_second + again.tasks_per_second) / 2.0)
    }
}

/// How late the raw program's starts were on record, at the rate of a steady load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RawLateness {
    /// How often it wrote what there was, in milliseconds.
    pub every_ms: u64,
    /// It ran once more, after what it is compared with.
    pub is_again: bool,
    /// Tasks.
    pub tasks: u64,
    /// From a task's due time until its start was on record, in milliseconds.
    pub lateness_ms: Percentiles,
}

impl RawLateness {
    /// The one with the lowest 99th percentile.
    pub(super) fn best(of: &[RawLateness]) -> Option<&RawLateness> {
        of.iter().min_by(|one, other| one.lateness_ms.p99.total_cmp(&other.lateness_ms.p99))
    }

    /// The 99th percentile of the best before and of the same after: their mean, in milliseconds.
    fn p99_ms(of: &[RawLateness]) -> Option<f64> {
        let (again, before): (Vec<_>, Vec<_>) = of.iter().cloned().partition(|raw| raw.is_again);
        let (before, again) = (RawLateness::best(&before)?, RawLateness::best(&again)?);
        Some((before.lateness_ms.p99 + again.lateness_ms.p99) / 2.0)
    }
}

/// A node stopped and another started on the same site, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// The stop in order.
    pub stop_ms: f64,
    /// From the start until every shard runs.
    pub running_ms: f64,
    /// From the start until a task that became due meanwhile is called.
    pub first_run_ms: f64,
}

/// A gate on everything, asked for at one node under a steady load: the longest of some rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GateEffect {
    /// Nodes that run tasks.
    pub nodes: usize,
    /// How often it was set and cleared.
    pub rounds: usize,
    /// From the question until it was on record, in milliseconds.
    pub answered_ms: f64,
    /// From the question until the last call of any node, in milliseconds.
    pub closed_ms: f64,
}

/// A pipeline before its store takes a tenth of the rows a second, and how late tasks are while it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowStore {
    /// Tasks per second before.
    pub before_per_second: f64,
    /// The most resident memory before, in MiB.
    pub rss_peak_before_mb: f64,
    /// Rows a second that the store takes then, packed ones each counted.
    pub rows_per_second: u64,
    /// How late the slowed tasks were by the handlers' own clock, on average, in milliseconds.
    pub lateness_mean_ms: f64,
    /// The same by `dueline_task_lateness_seconds`.
    pub lateness_published_mean_ms: f64,
}

/// From a change until every shard runs again, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Takeover {
    /// A second node starts and takes its share.
    pub joined_ms: f64,
    /// One of two stops in order.
    pub stopped_ms: f64,
    /// One of two is lost and lets go of no lease.
    pub lost_ms: f64,
}

/// Order of calls within queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Order {
    /// Calls after one that stands behind them in their queue: must be 0.
    pub out_of_order: u64,
    /// Calls that began before the one before them in their queue had ended: must be 0.
    pub overlapped: u64,
    /// Calls of a task that was called before.
    pub repeated: u64,
}

/// The commit that this was built from, where that was said, or the version.
pub(super) fn commit() -> &'static str {
    option_env!("DUELINE_COMMIT").unwrap_or(env!("CARGO_PKG_VERSION"))
}

impl Report {
    /// Says what was run, and where.
    #[must_use]
    pub(super) fn of(mut self, plan: &Plan, site: &str) -> Report {
        site.clone_into(&mut self.site);
        plan.scenario.word().clone_into(&mut self.scenario);
        self.queues = if plan.scenario == super::Scenario::List { 1 } else { plan.queues };
        self.shards = plan.shards;
        self.rate = plan.rate;
        self.payload_bytes = plan.payload;
        self.handlers = plan.handlers;
        self.seed = plan.seed;
        commit().clone_into(&mut self.commit);
        self.machine = machine();
        self
    }

    /// Says how late calls were.
    #[must_use]
    pub(super) fn late(self, times: &Times) -> Report {
        Report { lateness_ms: times.percentiles(), lateness_histogram: times.buckets(), ..self }
    }

    /// Of several runs the last, with each of them in it.
    pub(super) fn of_all(mut runs: Vec<Report>) -> Report {
        match runs.len() {
            0 | 1 => runs.pop().unwrap_or_default(),
            last => Report { runs: runs.clone(), ..runs.swap_remove(last - 1) },
        }
    }

    /// Its runs: itself, where there is one.
    pub(super) fn each(&self) -> &[Report] {
        if self.runs.is_empty() { std::slice::from_ref(self) } else { &self.runs }
    }

    /// What tells a run from the others of its scenario.
    pub(super) fn name(&self) -> String {
        match (self.scenario.as_str(), self.payload_bytes) {
            ("queues", _) => format!("{} queues", self.queues),
            ("steady", _) => format!("rate {}", self.rate),
            ("payload", Some(bytes)) => format!("{bytes} bytes"),
            _ => format!("{} tasks", self.tasks),
        }
    }

    /// The page of what was called so: one HTML file that needs nothing else.
    ///
    /// # Errors
    /// A picture cannot be drawn.
    pub fn page(&self, command: &str) -> anyhow::Result<String> {
        super::page::page(self, command)
    }

    /// Memory at rest, and that before the tasks, in MiB.
    pub(super) fn at_rest(&mut self, rss_mb: f64, idle_mb: f64) {
        self.rss_mb = Some(rss_mb);
        self.rss_above_idle_mb = Some(rss_mb - idle_mb);
    }

    /// The raw programs of the same run.
    pub(super) fn beside(&mut self, raw: Vec<Raw>) {
        if let Some(ceiling) = Raw::ceiling(&raw).filter(|ceiling| *ceiling > 0.0) {
            self.ceiling_tasks_per_second = Some(ceiling);
            self.ratio_to_ceiling = Some(self.tasks_per_second / ceiling);
        }
        self.raw = raw;
    }

    /// The raw programs of the same run, at its rate.
    pub(super) fn late_beside(&mut self, raw: Vec<RawLateness>) {
        let p99 = RawLateness::p99_ms(&raw).filter(|p99| *p99 > 0.0);
        self.lateness_to_raw = p99.map(|p99| self.lateness_ms.p99 / p99);
        self.raw_lateness = raw;
    }

    /// Says nothing per task: tasks are not what was done.
    #[must_use]
    pub(super) fn without_shares(self) -> Report {
        Report {
            cpu_us_per_task: None,
            cpu_us_per_task_by_part: BTreeMap::new(),
            written_per_task: Written::default(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_the_mean_of_the_best_before_and_of_the_same_after() {
        let raw = |tasks_per_second, is_again| Raw { tasks_per_second, is_again, ..Raw::default() };
        let mut report = Report { tasks_per_second: 50.0, ..Report::default() };
        report.beside(vec![raw(80.0, false), raw(120.0, false), raw(80.0, true)]);
        assert_eq!((report.ceiling_tasks_per_second, report.ratio_to_ceiling), (Some(100.0), Some(0.5)));
        report = Report::default();
        report.beside(vec![raw(80.0, false)]);
        assert_eq!(report.ceiling_tasks_per_second, None, "one side alone is no comparison");
    }
}
