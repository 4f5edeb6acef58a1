//! The page of a run: what was done, what came of it, and pictures over time, in one HTML file that needs nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use dueline::testing::history::Fault;

use crate::bounds::Bound;
use crate::cluster::{self, BROKERS, DCS, NODES};
use crate::course::{self, Course, Recovery};
use crate::watch::Change;

mod plot;

/// What a page is made of.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    pub(crate) title: String,
    pub(crate) clean: bool,
    /// What was run, in rows of a name and a value.
    pub(crate) run: Vec<(&'static str, String)>,
    pub(crate) plan: Vec<String>,
    /// Where instances and handlers were, if in data centres.
    pub(crate) places: BTreeMap<String, &'static str>,
    pub(crate) course: &'a Course,
    pub(crate) recoveries: &'a [Recovery],
    pub(crate) bounds: &'a [Bound],
    pub(crate) faults: &'a [Fault],
    /// Who came and went, and when.
    pub(crate) marks: &'a [(String, i64)],
    pub(crate) changes: &'a [Change],
    pub(crate) shards: u32,
    /// Rule, how often it was checked, violations.
    pub(crate) rules: Vec<(&'static str, u64, usize)>,
    pub(crate) duplicates: &'a BTreeMap<&'static str, u64>,
    /// What was wrong, for people.
    pub(crate) wrongs: Vec<String>,
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#1d2733}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse}\
td,th{padding:.2em .9em .2em 0;text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}\
.good{color:#0a7d33}.bad{color:#b3261e}svg{width:100%;height:auto}pre{white-space:pre-wrap;font-size:.85em}\
p.note{color:#5b6773;font-size:.9em}\
p.legend{margin:.3em 0;font-size:.9em}p.legend span{margin-right:1.4em}p.legend i{display:inline-block;width:1.1em;height:.7em;margin-right:.4em}";

impl Page<'_> {
    pub(crate) fn html(&self) -> Result<String> {
        let Page { title, clean, course, faults, .. } = self;
        let verdict = if *clean {
            "<p class=good>Everything that is checked holds.</p>"
        } else {
            "<p class=bad>Not everything that is checked holds.</p>"
        };
        let mut html = format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
             <title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{verdict}",
            title = escaped(title)
        );
        html += &rows("", self.run.iter().map(|(name, value)| vec![escaped(name), escaped(value)]));
        html += "<h2>What was done</h2><ol>";
        for step in &self.plan {
            write!(html, "<li>{}", escaped(step))?;
        }
        html += "</ol>";
        html += &self.places();
        html += &self.figures();
        html += &self.bounds();
        let whole = plot::Span::of(course, faults, self.marks);
        html += &self.timeline();
        write!(html, "<h2>Events accepted and calls, each second</h2>{}", plot::rates(course, &whole)?)?;
        write!(html, "<h2>Lateness of first attempts, milliseconds</h2>{}", plot::lateness(course, &whole)?)?;
        html += "<p class=note>From when a task is due, accepted, and first in its queue. Grey: a fault, by its number, from its beginning until what was lost is back.</p>";
        write!(html, "<h2>What went wrong with calls, each second</h2>{}", plot::errors(course, &whole)?)?;
        let owners = plot::owners(self.changes, self.shards, &self.places, &whole)?;
        write!(html, "<h2>Who ran which shard</h2>{owners}")?;
        html += "<p class=note>A row for each shard, a colour for each instance, in it the shard's epoch; white where no instance said that it ran the shard.</p>";
        html += "<h2>What was checked</h2>";
        html += &rows(
            "<tr><th>rule<th>checked<th>violations",
            self.rules.iter().map(|(rule, checked, wrong)| {
                let class = if *wrong > 0 { "bad" } else { "good" };
                vec![escaped(rule), checked.to_string(), format!("<span class={class}>{wrong}</span>")]
            }),
        );
        html += "<h2>Further runs of a task, by cause</h2>";
        html +=
            &rows("", self.duplicates.iter().map(|(cause, count)| vec![escaped(cause), count.to_string()]));
        for wrong in &self.wrongs {
            write!(html, "<pre class=bad>{}</pre>", escaped(wrong))?;
        }
        Ok(html)
    }

    /// Who was in which data centre.
    fn places(&self) -> String {
        if self.places.is_empty() {
            return String::new();
        }
        let servers = |of: &[&'static str], dc: &str| {
            let own: Vec<&str> = of.iter().copied().filter(|name| cluster::dc_of(name) == dc).collect();
            own.join(", ")
        };
        let row = |dc: &str| {
            let own = self.places.iter().filter(|(_, place)| **place == dc);
            let instances: Vec<&str> = own.map(|(name, _)| name.as_str()).collect();
            vec![escaped(dc), servers(&BROKERS, dc), servers(&NODES, dc), escaped(&instances.join(", "))]
        };
        let head = "<tr><th>data centre<th>brokers<th>nodes<th>instances, with handlers beside them";
        "<h2>Where things ran</h2>".to_owned() + &rows(head, DCS.into_iter().map(row))
    }

    /// The faults by their numbers in the pictures, and who came and went, in the order of time.
    fn timeline(&self) -> String {
        let seconds = |at: i64| format!("{:.1}", plot::since(self.course.begun, at));
        let faults = self.faults.iter().enumerate().map(|(n, fault)| {
            (fault.from, [(n + 1).to_string(), seconds(fault.from), seconds(fault.to), escaped(&fault.what)])
        });
        let marks = self.marks.iter();
        let marks =
            marks.map(|(what, at)| (*at, [String::new(), seconds(*at), String::new(), escaped(what)]));
        let mut all: Vec<(i64, [String; 4])> = faults.chain(marks).collect();
        if all.is_empty() {
            return String::new();
        }
        all.sort();
        let head = "<tr><th>number<th>from, s<th>until, s<th>what";
        "<h2>What happened</h2>".to_owned() + &rows(head, all.into_iter().map(|(_, row)| row.to_vec()))
    }

    fn figures(&self) -> String {
        let Course { sent, accepted, without_accepts_ms, without_calls_ms, waits, lateness, .. } =
            self.course;
        let share = *accepted as f64 * 100.0 / (*sent).max(1) as f64;
        let mut figures = vec![
            ("events accepted".to_owned(), format!("{accepted} of {sent} ({share:.2} %)")),
            ("longest time without an acknowledgement".to_owned(), format!("{without_accepts_ms} ms")),
            ("longest time without a call".to_owned(), format!("{without_calls_ms} ms")),
        ];
        let spread = |of: &Option<crate::takeover::Spread>| of.map(|of| of.to_string()).unwrap_or_default();
        figures.push(("from an event to its acknowledgement".to_owned(), spread(waits)));
        figures.push(("lateness of first attempts".to_owned(), spread(lateness)));
        for Recovery { dc, whole, took_ms, .. } in self.recoveries {
            let how = if *whole { "lost whole" } else { "cut off" };
            figures.push((format!("{dc} {how}: all shards run elsewhere after"), format!("{took_ms} ms")));
        }
        for (what, calm) in &self.course.calm_after_ms {
            figures
                .push((format!("{what}: lateness (p99 of 5 s) below 1 s again"), course::calm_text(*calm)));
        }
        "<h2>Figures</h2>".to_owned()
            + &rows("", figures.into_iter().map(|(name, value)| vec![escaped(&name), escaped(&value)]))
    }

    fn bounds(&self) -> String {
        if self.bounds.is_empty() {
            return String::new();
        }
        let row = |Bound { what, wanted, measured, kept }: &Bound| {
            let class = if *kept { "good" } else { "bad" };
            vec![escaped(what), escaped(wanted), format!("<span class={class}>{}</span>", escaped(measured))]
        };
        "<h2>What is wanted of it</h2>".to_owned()
            + &rows("<tr><th>figure<th>wanted<th>measured", self.bounds.iter().map(row))
    }
}

fn rows(head: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = format!("<table>{head}");
    for row in rows {
        table += "<tr>";
        for cell in row {
            let class = if cell.chars().all(|one| one.is_ascii_digit()) { " class=n" } else { "" };
            table += &format!("<td{class}>{cell}");
        }
    }
    table + "</table>"
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
