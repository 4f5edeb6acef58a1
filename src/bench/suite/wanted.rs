//! What is wanted of the figures of a suite.

use std::collections::BTreeMap;

use super::super::Report;
use super::super::report::Percentiles;

/// A figure that is wanted, and what it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) what: &'static str,
    pub(super) wanted: Bound,
    /// `None`: its scenario has no result, or not with these sizes.
    pub(super) measured: Option<f64>,
}

/// A bound with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64, &'static str),
    AtMost(f64, &'static str),
}

impl Figure {
    pub(super) fn is_reached(&self) -> Option<bool> {
        self.measured.map(|measured| match self.wanted {
            Bound::AtLeast(bound, _) => measured >= bound,
            Bound::AtMost(bound, _) => measured <= bound,
        })
    }

    /// The bound, and what was measured, in words.
    pub(super) fn words(&self) -> (String, String) {
        let (bound, unit, word) = match self.wanted {
            Bound::AtLeast(bound, unit) => (bound, unit, "at least"),
            Bound::AtMost(bound, unit) => (bound, unit, "at most"),
        };
        let number = |value: f64| if bound < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") };
        let with_unit = |text: String| if unit.is_empty() { text } else { format!("{text} {unit}") };
        let measured =
            self.measured.map_or_else(|| "not measured".to_owned(), |value| with_unit(number(value)));
        (format!("{word} {}", with_unit(number(bound))), measured)
    }
}

/// All that is wanted on a site.
pub(super) fn figures(reports: &BTreeMap<&'static str, Report>, is_servers: bool) -> Vec<Figure> {
    let report = |scenario: &str| reports.get(scenario);
    let mut figures = Vec::new();
    let mut add = |what, wanted, measured: Option<f64>| figures.push(Figure { what, wanted, measured });
    let (per_second, ratio) = (|of: &Report| of.tasks_per_second, |of: &Report| of.ratio_to_ceiling);
    if is_servers {
        add("pipeline beside the raw ceiling", Bound::AtLeast(0.6, ""), report("pipeline").and_then(ratio));
        add("ingest beside the raw ceiling", Bound::AtLeast(0.7, ""), report("ingest").and_then(ratio));
    } else {
        add("pipeline", Bound::AtLeast(100_000.0, "tasks/s"), report("pipeline").map(per_second));
        add("ingest", Bound::AtLeast(150_000.0, "tasks/s"), report("ingest").map(per_second));
    }
    let steady =
        |rate: u64| report("steady").and_then(|report| report.each().iter().find(|run| run.rate == rate));
    let late = |of: fn(&Percentiles) -> f64| steady(500).map(|run| of(&run.lateness_ms));
    let (p50, p99) = if is_servers { (5.0, 25.0) } else { (1.0, 3.0) };
    add("500 tasks a second: lateness p50", Bound::AtMost(p50, "ms"), late(|of| of.p50));
    add("500 tasks a second: lateness p99", Bound::AtMost(p99, "ms"), late(|of| of.p99));
    add(
        "5,000 tasks a second: lateness p99 beside the raw program's",
        Bound::AtMost(2.0, ""),
        steady(5_000).and_then(|run| run.lateness_to_raw),
    );
    let herd = report("herd").and_then(|report| report.each().iter().find(|run| run.tasks == 100_000));
    add(
        "herd of 100,000 beside the pipeline",
        Bound::AtLeast(1.0, ""),
        // Until all is on record, as the pipeline is.
        herd.zip(report("pipeline")).and_then(|(herd, of)| Some(herd.done_per_second? / of.tasks_per_second)),
    );
    let ends = report("pending").and_then(|report| ends(report, 100_000, 10_000_000, |run| run.tasks));
    let last = ends.map(|(_, last)| last);
    // 400 MB.
    let peak_mb = last.map(|last| last.rss_peak_mb);
    add("10 million pending: most memory while they are stored", Bound::AtMost(381.0, "MiB"), peak_mb);
    add(
        "10 million pending: ingest beside that of 0.1 million",
        Bound::AtLeast(0.85, ""),
        ends.map(|(first, last)| last.tasks_per_second / first.tasks_per_second),
    );
    add(
        "10 million pending: lateness p99 beside that of 0.1 million",
        Bound::AtMost(1.15, ""),
        ends.map(|(first, last)| last.lateness_ms.p99 / first.lateness_ms.p99),
    );
    add(
        "10 million pending: from a restart to a first run",
        Bound::AtMost(5.0, "s"),
        last.and_then(|last| Some(last.restart?.first_run_ms / 1e3)),
    );
    add(
        "a million queues beside 10,000",
        Bound::AtLeast(0.8, ""),
        report("queues")
            .and_then(|report| self::ends(report, 10_000, 1_000_000, |run| run.queues))
            .map(|(few, many)| many.tasks_per_second / few.tasks_per_second),
    );
    add(
        "a million behind one head: lateness p99 of the others beside that without",
        Bound::AtMost(1.1, ""),
        report("blocked").and_then(|report| Some(report.lateness_ms.p99 / report.lateness_before_ms?.p99)),
    );
    add(
        "a gate in force on all instances",
        Bound::AtMost(2.0, "s"),
        report("gate").and_then(|report| Some(report.gate?.closed_ms / 1e3)),
    );
    let slow = report("slow-store").and_then(|report| Some((report.rss_peak_mb, report.slow_store?)));
    add(
        "a store that takes a tenth of the rows: most memory beside that before",
        Bound::AtMost(1.2, ""),
        slow.map(|(rss_peak_mb, slow)| rss_peak_mb / slow.rss_peak_before_mb),
    );
    add(
        "a store that takes a tenth of the rows: mean lateness as published, off what handlers saw by",
        Bound::AtMost(0.05, ""),
        slow.map(|(_, slow)| (slow.lateness_published_mean_ms / slow.lateness_mean_ms - 1.0).abs()),
    );
    add("dead letters redriven", Bound::AtLeast(2_000.0, "tasks/s"), report("redrive").map(per_second));
    add(
        "the 50 newest tasks of a large queue, p99",
        Bound::AtMost(50.0, "ms"),
        report("list").and_then(|report| Some(report.list_newest_ms?.p99)),
    );
    figures
}

/// The runs at two sizes.
fn ends(report: &Report, few: u64, many: u64, size: impl Fn(&Report) -> u64) -> Option<(&Report, &Report)> {
    let at = |wanted: u64| report.each().iter().find(|run| size(run) == wanted);
    at(few).zip(at(many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_reached_at_its_bound_and_not_judged_without_a_result() {
        let figure = |wanted, measured| Figure { what: "x", wanted, measured };
        let cases = [
            (Bound::AtLeast(0.6, ""), Some(0.6), Some(true)),
            (Bound::AtLeast(0.6, ""), Some(0.59), Some(false)),
            (Bound::AtMost(5.0, "s"), Some(5.1), Some(false)),
            (Bound::AtMost(5.0, "s"), Some(4.9), Some(true)),
            (Bound::AtMost(5.0, "s"), None, None),
        ];
        for (wanted, measured, reached) in cases {
            assert_eq!(figure(wanted, measured).is_reached(), reached, "{wanted:?} {measured:?}");
        }
        let words = figure(Bound::AtMost(5.0, "s"), Some(4.9)).words();
        assert_eq!(words, ("at most 5.00 s".to_owned(), "4.90 s".to_owned()));
    }

    #[test]
    fn sizes_are_compared_with_one_another_only_when_both_were_run() {
        let run = |queues, tasks_per_second| Report { queues, tasks_per_second, ..Report::default() };
        let of = |runs| {
            let reports = BTreeMap::from([("queues", Report::of_all(runs))]);
            let all = figures(&reports, false);
            all.into_iter().find(|figure| figure.what.contains("queues")).expect("it is wanted").measured
        };
        assert_eq!(of(vec![run(10, 50.0), run(10_000, 200.0), run(1_000_000, 150.0)]), Some(0.75));
        assert_eq!(of(vec![run(10_000, 200.0), run(1_000, 150.0)]), None);
    }
}
