//! The index of a suite: what is wanted and what was reached, and a line for each scenario.

use anyhow::Context as _;

use super::super::Report;
use super::super::page::{begin, escaped, table};
use super::wanted::{Figure, figures};
use super::{Error, Suite};

impl Suite {
    fn figures(&self) -> Vec<Figure> {
        figures(&self.reports, self.is_servers)
    }

    /// Reached, missed, or why it is not judged.
    fn verdict(&self, figure: &Figure) -> &'static str {
        match figure.is_reached() {
            None => "",
            Some(_) if self.is_quick => "not judged: quick",
            Some(true) => "reached",
            Some(false) => "missed",
        }
    }

    /// For people, on a terminal.
    pub(super) fn text(&self) -> String {
        let line = |figure: &Figure| {
            let (wanted, measured) = figure.words();
            format!("{:<74} {wanted:<24} {measured:<16} {}\n", figure.what, self.verdict(figure))
        };
        self.figures().iter().map(line).collect()
    }

    pub(super) fn write_index(&self) -> Result<(), Error> {
        let file = self.dir.join("index.html");
        std::fs::write(&file, self.html()).with_context(|| file.display().to_string())?;
        Ok(())
    }

    fn html(&self) -> String {
        let site = if self.is_servers { "Kafka and Cassandra" } else { "the embedded log and store" };
        let mut html = begin(&format!("dueline bench suite on {site}"));
        if let Some(Report { machine, commit, .. }) = self.reports.values().next() {
            let about = [("version", commit), ("machine", machine)];
            html += &table(&[], about.iter().map(|(name, value)| vec![(*name).to_owned(), escaped(value)]));
        }
        html += "<h2>What is wanted</h2>";
        let head = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let figure = |figure: &Figure| {
            let (wanted, measured) = figure.words();
            let verdict = self.verdict(figure);
            let class = match verdict {
                "reached" => "good",
                "missed" => "bad",
                _ => "note",
            };
            let verdict = format!("<span class=\"{class}\">{verdict}</span>");
            vec![escaped(figure.what), escaped(&wanted), escaped(&measured), verdict]
        };
        html += &table(&head(&["figure", "wanted", "measured", ""]), self.figures().iter().map(figure));
        html += "<h2>Scenarios</h2>";
        let names =
            ["scenario", "command", "tasks/s", "beside the raw ceiling", "lateness p99, ms", "MiB at rest"];
        let scenarios = self.entries.iter().map(|entry| {
            let command = format!("<code>dueline {}</code>", escaped(&entry.line(self.is_quick)));
            match (self.reports.get(entry.name), self.failed.get(entry.name)) {
                (Some(report), failed) => {
                    let link =
                        format!("<a href=\"{0}.html\">{0}</a> <a href=\"{0}.json\">JSON</a>", entry.name);
                    let failed =
                        failed.map(|why| format!("\n<span class=\"bad\">failed: {}</span>", escaped(why)));
                    let command = command + &failed.unwrap_or_default();
                    [vec![link, command], row(report)].concat()
                }
                (None, Some(why)) => {
                    let why = format!("<span class=\"bad\">failed: {}</span>", escaped(why));
                    vec![entry.name.to_owned(), command, why]
                }
                (None, None) => vec![entry.name.to_owned(), command, "not run yet".to_owned()],
            }
        });
        html += &table(&head(&names), scenarios);
        html + "</body></html>\n"
    }
}

/// A line for each run, in every cell.
fn row(report: &Report) -> Vec<String> {
    let lines = |of: &dyn Fn(&Report) -> Option<String>| {
        let texts: Vec<String> =
            report.each().iter().map(|run| of(run).unwrap_or_else(|| "–".to_owned())).collect();
        texts.join("\n")
    };
    vec![
        lines(&|run| Some(format!("{:.0} ({})", run.tasks_per_second, run.name()))),
        lines(&|run| run.ratio_to_ceiling.map(|ratio| format!("{ratio:.2}"))),
        lines(&|run| (run.lateness_ms.max > 0.0).then(|| format!("{:.1}", run.lateness_ms.p99))),
        lines(&|run| run.rss_mb.map(|mb| format!("{mb:.0}"))),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Entry;
    use super::*;

    #[test]
    fn the_index_says_what_was_reached_what_failed_and_what_is_still_to_come() {
        let entry = |name| Entry { name, args: "--tasks 5" };
        let report = Report { tasks_per_second: 123_456.0, ..Report::default() };
        let mut suite = Suite {
            dir: "out".into(),
            is_quick: false,
            is_servers: false,
            entries: vec![entry("pipeline"), entry("herd"), entry("list")],
            reports: BTreeMap::from([("pipeline", report)]),
            failed: BTreeMap::from([("herd", "no <room>".to_owned())]),
        };
        let html = suite.html();
        for part in ["reached</span>", "href=\"pipeline.json\"", "failed: no &lt;room&gt;", "not run yet"] {
            assert!(html.contains(part), "{part}");
        }
        assert!(suite.text().contains("123456 tasks/s"), "{}", suite.text());
        suite.is_quick = true;
        assert!(!suite.html().contains(">reached<") && suite.html().contains("not judged"));
    }
}
