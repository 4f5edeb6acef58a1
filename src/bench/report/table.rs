//! A report as a table for people.

use super::{GateEffect, Percentiles, Report, SlowStore};

impl Report {
    /// A table for people, one after the other where there are several runs.
    pub fn table(&self) -> String {
        if self.runs.is_empty() {
            return self.lines().into_iter().map(|(name, value)| format!("{name:<14} {value}\n")).collect();
        }
        let tables: Vec<String> = self.runs.iter().map(Report::table).collect();
        tables.join("\n")
    }

    /// Names and values of what was measured.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("scenario", format!("{} on {}", self.scenario, self.site)),
            ("tasks", format!("{} in {} queues on {} shards", self.tasks, self.queues, self.shards)),
            ("tasks/s", number(self.tasks_per_second)),
        ];
        let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
        add("payload bytes", self.payload_bytes.map(|bytes| bytes.to_string()));
        add("handlers", (self.handlers > 1).then(|| self.handlers.to_string()));
        add("open attempts", self.open_attempts.map(|open| open.to_string()));
        add("behind a head", self.tasks_behind.map(|tasks| tasks.to_string()));
        add("client alone/s", self.client_calls_per_second.map(number));
        add("done/s", self.done_per_second.map(number));
        add("persisted/s", self.persisted_per_second.map(number));
        add("raw ceiling/s", self.ceiling_tasks_per_second.map(number));
        add("ratio", self.ratio_to_ceiling.map(|ratio| format!("{ratio:.3}")));
        for raw in &self.raw {
            let over =
                if raw.spread_s == 0 { "one bucket".to_owned() } else { format!("{} s", raw.spread_s) };
            let again = if raw.is_again { ", once more" } else { "" };
            let (rate, seconds, bytes) = (raw.tasks_per_second, raw.seconds, raw.bytes_per_task);
            let ran = format!("{rate:>10.1}/s  {over}, {}{again}: {seconds:.1} s, {bytes:.0} bytes", raw.way);
            add("  raw", Some(ran));
        }
        add("lateness ms", (self.lateness_ms.max > 0.0).then(|| percentiles(self.lateness_ms)));
        add("p99 to raw", self.lateness_to_raw.map(|ratio| format!("{ratio:.2}")));
        for raw in &self.raw_lateness {
            let again = if raw.is_again { ", once more" } else { "" };
            let late = percentiles(raw.lateness_ms);
            add("  raw late ms", Some(format!("{late}  every {} ms{again}", raw.every_ms)));
        }
        add("  not blocked", self.lateness_before_ms.map(percentiles));
        add("newest 50 ms", self.list_newest_ms.map(percentiles));
        add("oldest 50 ms", self.list_oldest_ms.map(percentiles));
        add(
            "restart ms",
            self.restart.map(|restart| {
                format!(
                    "stop {:.0}  all shards run {:.0}  first run {:.0}",
                    restart.stop_ms, restart.running_ms, restart.first_run_ms
                )
            }),
        );
        add(
            "gate ms",
            self.gate.map(|gate| {
                let GateEffect { nodes, rounds, answered_ms, closed_ms } = gate;
                format!(
                    "on record {answered_ms:.0}  last call {closed_ms:.0} on {nodes} nodes, longest of {rounds}"
                )
            }),
        );
        add(
            "slow store",
            self.slow_store.map(|slow| {
                let SlowStore { before_per_second, rss_peak_before_mb, rows_per_second, .. } = slow;
                format!(
                    "{rows_per_second} rows/s; before {before_per_second:.1} tasks/s, peak {rss_peak_before_mb:.0} MiB"
                )
            }),
        );
        add(
            "mean late ms",
            self.slow_store.map(|slow| {
                format!("{:.1}, as published {:.1}", slow.lateness_mean_ms, slow.lateness_published_mean_ms)
            }),
        );
        add(
            "takeover ms",
            self.takeover.map(|takeover| {
                format!(
                    "one joins {:.0}  one stops {:.0}  one is lost {:.0}",
                    takeover.joined_ms, takeover.stopped_ms, takeover.lost_ms
                )
            }),
        );
        add(
            "order",
            self.order.map(|order| format!("kept in every queue, {} calls repeated", order.repeated)),
        );
        add("cpu µs/task", self.cpu_us_per_task.map(number));
        for (part, us) in self.cpu_us_per_task_by_part.iter().filter(|(_, us)| **us >= 0.05) {
            add("  by part", Some(format!("{us:>6.1}  {part}")));
        }
        let written = &self.written_per_task;
        for (table, rows) in &written.rows {
            add("rows/task", Some(format!("{rows:>6.2}  {table}")));
        }
        add(
            "bytes/task",
            (written.bytes > 0.0)
                .then(|| format!("{:.0} in {:.3} calls of the store", written.bytes, written.calls)),
        );
        add("requests/task", written.requests.map(|requests| format!("{requests:.3}")));
        let (at_rest, above) = (self.rss_mb.unwrap_or_default(), self.rss_above_idle_mb.unwrap_or_default());
        let memory = format!("{at_rest:.0} ({above:+.0} above idle, peak {:.0})", self.rss_peak_mb);
        add("memory MiB", Some(memory));
        add("fsync ms", self.fsync_ms.map(|fsync| format!("{fsync:.3}")));
        add("commit", Some(self.commit.clone()));
        lines
    }
}

fn number(value: f64) -> String {
    format!("{value:.1}")
}

fn percentiles(times: Percentiles) -> String {
    let Percentiles { p50, p99, p999, max } = times;
    format!("p50 {p50:.2}  p99 {p99:.2}  p99.9 {p999:.2}  max {max:.2}")
}
