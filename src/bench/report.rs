//! The report of one run: one JSON object, or a table for people.

use serde::Serialize;

/// What a scenario measured. The last line of `-o json` is this object.
#[derive(Clone, Debug, Default, Serialize)]
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
    /// Tasks per second from the first record sent to the last task done (or stored, in `ingest` and `pending`).
    pub tasks_per_second: f64,
    /// Tasks per second stored, where it was measured apart.
    pub persisted_per_second: Option<f64>,
    /// Tasks per second of the raw program in the same run.
    pub ceiling_tasks_per_second: Option<f64>,
    /// The first by the second.
    pub ratio_to_ceiling: Option<f64>,
    /// From a task's ready time to its handler's call, in milliseconds.
    pub lateness_ms: Percentiles,
    /// The same before the queue was blocked, in `blocked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness_before_ms: Option<Percentiles>,
    /// The 50 newest tasks of a queue over HTTP, in `list`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_newest_ms: Option<Percentiles>,
    /// The 50 oldest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_oldest_ms: Option<Percentiles>,
    /// Processor time of this process per task, in microseconds: node, producer, handler and clients of log and store.
    pub cpu_us_per_task: f64,
    /// Resident memory at the end, once settled, in MiB.
    pub rss_mb: f64,
    /// The most resident memory up to the last task, in MiB.
    pub rss_peak_mb: f64,
    /// Resident memory above that before the tasks, in MiB.
    pub rss_above_idle_mb: f64,
    /// One fsync of the disk an embedded run is on, in milliseconds.
    pub fsync_ms: Option<f64>,
    /// The commit this binary was built from, or its version.
    pub commit: String,
}

/// Percentiles, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Percentiles {
    /// Half of all.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Report {
    /// A table for people.
    pub fn table(&self) -> String {
        let number = |value: f64| format!("{value:.1}");
        let mut lines = vec![
            ("scenario", format!("{} on {}", self.scenario, self.site)),
            ("tasks", format!("{} in {} queues on {} shards", self.tasks, self.queues, self.shards)),
            ("tasks/s", number(self.tasks_per_second)),
        ];
        if let Some(persisted) = self.persisted_per_second {
            lines.push(("persisted/s", number(persisted)));
        }
        if let (Some(ceiling), Some(ratio)) = (self.ceiling_tasks_per_second, self.ratio_to_ceiling) {
            lines.push(("raw ceiling/s", number(ceiling)));
            lines.push(("ratio", format!("{ratio:.3}")));
        }
        let times = [
            ("lateness ms", Some(self.lateness_ms)),
            ("  not blocked", self.lateness_before_ms),
            ("newest 50 ms", self.list_newest_ms),
            ("oldest 50 ms", self.list_oldest_ms),
        ];
        for (name, times) in times {
            let text = |t: Percentiles| format!("p50 {:.2}  p99 {:.2}  max {:.2}", t.p50, t.p99, t.max);
            lines.extend(times.map(|times| (name, text(times))));
        }
        lines.push(("cpu µs/task", number(self.cpu_us_per_task)));
        lines.push((
            "memory MiB",
            format!(
                "{:.0} ({:+.0} above idle, peak {:.0})",
                self.rss_mb, self.rss_above_idle_mb, self.rss_peak_mb
            ),
        ));
        if let Some(fsync) = self.fsync_ms {
            lines.push(("fsync ms", format!("{fsync:.3}")));
        }
        lines.push(("commit", self.commit.clone()));
        lines.into_iter().map(|(name, value)| format!("{name:<14} {value}\n")).collect()
    }
}
