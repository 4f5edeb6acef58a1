//! A scrape as data: the names of its series, with every label and all values it has.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, BTreeSet<String>>;

/// What a scrape has.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    series: BTreeMap<String, Labels>,
}

impl Scrape {
    /// Reads the text format.
    pub(crate) fn read(text: &str) -> Scrape {
        let mut scrape = Scrape::default();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (series, _value) = line.rsplit_once(' ').expect("a series and its value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let of_name = scrape.series.entry(name.to_owned()).or_default();
            for label in labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty()) {
                let (label, value) = label.split_once("=\"").expect("a label and its value");
                let values = of_name.entry(label.to_owned()).or_default();
                values.insert(value.trim_end_matches('"').to_owned());
            }
        }
        scrape
    }

    /// Labels of a metric, with their values; `None` when there is no such metric.
    pub(crate) fn labels(&self, metric: &str) -> Option<&Labels> {
        self.series.get(metric)
    }

    /// Every name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(String::as_str)
    }

    /// A metric, with a label and its values, that a node has under circumstances a test does not make.
    pub(crate) fn grant(&mut self, metric: &str, label: &str, values: &[&str]) {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        self.series.entry(metric.to_owned()).or_default().insert(label.to_owned(), values);
    }
}

#[test]
fn labels_and_values_are_read() {
    let scrape = Scrape::read("# HELP a b\na{x=\"1\",y=\"p, q\"} 3\na{x=\"2\",y=\"p, q\"} 4.5\nb 0\n");
    let labels = scrape.labels("a").unwrap();
    assert_eq!(labels["x"].iter().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(labels["y"].iter().collect::<Vec<_>>(), ["p, q"]);
    assert!(scrape.labels("b").unwrap().is_empty() && scrape.labels("c").is_none());
}
