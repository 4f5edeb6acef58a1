//! Making and describing families of metrics: each is registered once, with all its series.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

/// One metric of each value of a closed label.
#[derive(Clone, Debug)]
pub(super) struct Family<M> {
    by_word: BTreeMap<&'static str, M>,
}

impl<M> Family<M> {
    pub(super) fn new(words: Vec<&'static str>, make: impl Fn(&'static str) -> M) -> Family<M> {
        Family { by_word: words.into_iter().map(|word| (word, make(word))).collect() }
    }

    pub(super) fn of(&self, word: &str) -> &M {
        self.by_word.get(word).expect("every word of a closed label has its metric")
    }
}

/// A family as the reference shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: &'static str,
    /// Its labels.
    pub labels: Vec<&'static str>,
    /// What it counts.
    pub help: &'static str,
    /// The values of its labels that are closed in code, by label.
    pub words: Vec<(&'static str, Vec<&'static str>)>,
    /// Bounds of a histogram's buckets, in seconds.
    pub buckets: Vec<f64>,
}

/// The registry and what was put into it.
#[derive(Debug)]
pub(super) struct Families {
    registry: Registry,
    described: Vec<Described>,
}

type Words = Vec<&'static str>;

impl Families {
    pub(super) fn new() -> Families {
        Families { registry: Registry::new(), described: Vec::new() }
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    pub(super) fn described(&self) -> &[Described] {
        &self.described
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> Gauge {
        self.describe(name, "gauge", &[], help, &[]);
        self.register(Gauge::new(name, help).expect(NAMES))
    }

    pub(super) fn int_gauge(&mut self, name: &'static str, help: &'static str) -> IntGauge {
        self.describe(name, "gauge", &[], help, &[]);
        self.register(IntGauge::new(name, help).expect(NAMES))
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> IntCounter {
        self.describe(name, "counter", &[], help, &[]);
        self.register(IntCounter::new(name, help).expect(NAMES))
    }

    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str, buckets: &[f64]) -> Histogram {
        self.describe(name, "histogram", &[], help, buckets);
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(Histogram::with_opts(options).expect(NAMES))
    }

    pub(super) fn int_gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        words: Words,
    ) -> Family<IntGauge> {
        self.describe(name, "gauge", &[label], help, &[]);
        self.words(label, &words);
        let gauges = self.register(IntGaugeVec::new(Opts::new(name, help), &[label]).expect(NAMES));
        Family::new(words, |word| gauges.with_label_values(&[word]))
    }

    pub(super) fn gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        words: Words,
    ) -> Family<Gauge> {
        self.describe(name, "gauge", &[label], help, &[]);
        self.words(label, &words);
        let gauges = self.register(GaugeVec::new(Opts::new(name, help), &[label]).expect(NAMES));
        Family::new(words, |word| gauges.with_label_values(&[word]))
    }

    pub(super) fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        words: Words,
    ) -> Family<IntCounter> {
        let counters = self.counter_vec(name, help, &[label]);
        self.words(label, &words);
        Family::new(words, |word| counters.with_label_values(&[word]))
    }

    pub(super) fn counters_of_two(
        &mut self,
        name: &'static str,
        help: &'static str,
        first: (&'static str, Words),
        second: (&'static str, Words),
    ) -> BTreeMap<&'static str, Family<IntCounter>> {
        let counters = self.counter_vec(name, help, &[first.0, second.0]);
        self.words(first.0, &first.1);
        self.words(second.0, &second.1);
        let of = |one| Family::new(second.1.clone(), |two| counters.with_label_values(&[one, two]));
        first.1.into_iter().map(|one| (one, of(one))).collect()
    }

    pub(super) fn histograms(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        words: Words,
        buckets: &[f64],
    ) -> Family<Histogram> {
        let histograms = self.histogram_vec(name, help, label, buckets);
        self.words(label, &words);
        Family::new(words, |word| histograms.with_label_values(&[word]))
    }

    pub(super) fn counter_vec(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
    ) -> IntCounterVec {
        self.describe(name, "counter", labels, help, &[]);
        self.register(IntCounterVec::new(Opts::new(name, help), labels).expect(NAMES))
    }

    pub(super) fn histogram_vec(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        buckets: &[f64],
    ) -> HistogramVec {
        self.describe(name, "histogram", &[label], help, buckets);
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(HistogramVec::new(options, &[label]).expect(NAMES))
    }

    fn describe(
        &mut self,
        name: &'static str,
        kind: &'static str,
        labels: &[&'static str],
        help: &'static str,
        buckets: &[f64],
    ) {
        let (labels, buckets) = (labels.to_vec(), buckets.to_vec());
        self.described.push(Described { name, kind, labels, help, words: Vec::new(), buckets });
    }

    /// Says which values a label of the family described last has.
    pub(super) fn words(&mut self, label: &'static str, words: &Words) {
        let family = self.described.last_mut().expect("a family was just described");
        family.words.push((label, words.clone()));
    }

    fn register<C: Collector + Clone + 'static>(&self, metric: C) -> C {
        self.registry.register(Box::new(metric.clone())).expect("every family is registered once");
        metric
    }
}

const NAMES: &str = "names and buckets are constants in order";

const BEGINNING: &str = "# Metrics

<!-- Made from src/metrics.rs by the test `the_reference_of_the_metrics_is_up_to_date`; run it with UPDATE_DOCS=1 to
write this file anew. -->

Served as text on `GET /metrics`. Base units; every label has a closed set of values, all of which are there from the
start. No label holds a queue, a task id or a schedule. `handler` is the name of a configured handler, or `other`.
";

/// The reference as Markdown.
pub(super) fn reference(described: &[Described]) -> String {
    let mut text = BEGINNING.to_owned();
    text.push_str("\n| metric | kind | meaning |\n|---|---|---|\n");
    for family in described {
        let labels =
            if family.labels.is_empty() { String::new() } else { format!("{{{}}}", family.labels.join(",")) };
        let _ = writeln!(text, "| `{}{labels}` | {} | {} |", family.name, family.kind, family.help);
    }
    text.push_str("\n## Label values\n\n| metric | label | values |\n|---|---|---|\n");
    for family in described.iter().filter(|family| family.name != "dueline_build_info") {
        for (label, words) in &family.words {
            let _ = writeln!(text, "| `{}` | `{label}` | `{}` |", family.name, words.join("` `"));
        }
    }
    text.push_str("\n## Buckets, in seconds\n\n| metric | bounds |\n|---|---|\n");
    for family in described.iter().filter(|family| !family.buckets.is_empty()) {
        let bounds: Vec<String> = family.buckets.iter().map(f64::to_string).collect();
        let _ = writeln!(text, "| `{}` | {} |", family.name, bounds.join(" · "));
    }
    text
}
