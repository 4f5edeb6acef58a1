//! The page of a report: figures, and pictures over time, in one HTML file that needs nothing else.

mod plot;

use std::fmt::Write as _;

use super::report::Report;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#1d2733}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}h3{font-size:1em;margin-bottom:0}table{border-collapse:collapse}\
td,th{padding:.2em 1.2em .2em 0;text-align:left;vertical-align:top;white-space:pre-wrap}\
.good{color:#0a7d33}.bad{color:#b3261e}svg{width:100%;height:auto}p.note{color:#5b6773;font-size:.9em}code{white-space:pre-wrap}";

/// The page of one command: `command` is how it was called.
///
/// # Errors
/// A picture cannot be drawn.
pub(super) fn page(report: &Report, command: &str) -> anyhow::Result<String> {
    let title = format!("dueline bench {} on {}", report.scenario, report.site);
    let mut html = begin(&title);
    let about = [
        ("command", format!("<code>{}</code>", escaped(command))),
        ("version", escaped(&report.commit)),
        ("machine", escaped(&report.machine)),
        ("seed", report.seed.to_string()),
    ];
    html += &table(&[], about.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]));
    let runs = report.each();
    html += "<h2>Figures</h2>";
    html += &figures(runs);
    for run in runs {
        if runs.len() > 1 {
            write!(html, "<h2>{}</h2>", escaped(&run.name()))?;
        }
        html += &pictures(run)?;
    }
    Ok(html + "</body></html>\n")
}

/// A page up to its heading.
pub(super) fn begin(title: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" \
         content=\"width=device-width\"/><title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
    )
}

/// A row for each figure, a column for each run.
fn figures(runs: &[Report]) -> String {
    let columns: Vec<Vec<(&str, String)>> = runs.iter().map(Report::lines).collect();
    let head: Vec<String> = match runs {
        [_] => Vec::new(),
        _ => std::iter::once(String::new()).chain(runs.iter().map(|run| escaped(&run.name()))).collect(),
    };
    // Lines of one name, as those of tables, are one row; runs do not all have every figure.
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in columns.iter().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let cell = |name: &str, column: &[(&str, String)]| {
        let of: Vec<&str> =
            column.iter().filter(|(other, _)| *other == name).map(|(_, value)| value.trim()).collect();
        escaped(&of.join("\n"))
    };
    let row = |name: &&str| {
        let cells = columns.iter().map(|column| cell(name, column));
        std::iter::once(escaped(name.trim())).chain(cells).collect()
    };
    table(&head, names.iter().map(row))
}

fn pictures(run: &Report) -> anyhow::Result<String> {
    let mut html = String::new();
    let samples = &run.samples;
    if !samples.at_s.is_empty() {
        write!(html, "<h3>Done and stored, tasks a second</h3>{}", plot::throughput(samples)?)?;
    }
    if !run.lateness_histogram.is_empty() {
        write!(html, "<h3>Lateness, calls by milliseconds</h3>{}", plot::lateness(&run.lateness_histogram)?)?;
        html += "<p class=\"note\">From a task's due time to its handler's call. Where all tasks are due at once it is \
                 how long each had to wait for its turn.</p>";
    }
    if !samples.at_s.is_empty() {
        write!(html, "<h3>Processors used, by part of the process</h3>{}", plot::cpu(samples)?)?;
        write!(html, "<h3>Resident memory, MiB</h3>{}", plot::memory(samples)?)?;
    }
    Ok(html)
}

/// A table of cells that are HTML already.
pub(super) fn table(head: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let row = |cells: Vec<String>, tag: &str| -> String {
        let cells: String = cells.into_iter().map(|cell| format!("<{tag}>{cell}</{tag}>")).collect();
        format!("<tr>{cells}</tr>")
    };
    let head = if head.is_empty() { String::new() } else { row(head.to_vec(), "th") };
    let rows: String = rows.map(|cells| row(cells, "td")).collect();
    format!("<table>{head}{rows}</table>")
}

/// Text as HTML shows it.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::measure::Times;
    use super::super::samples::Samples;
    use super::*;

    fn report() -> Report {
        let mut times = Times::default();
        (1..500).for_each(|us| times.add_us(us * 37));
        let samples = Samples {
            at_s: vec![0.1, 0.2, 0.3],
            done_per_second: vec![0.0, 900.0, 1_100.0],
            stored_per_second: vec![1_000.0, 1_000.0, 0.0],
            rss_mb: vec![20.0, 30.0, 25.0],
            cpu: [("async runtime".to_owned(), vec![0.5, 1.5, 1.0])].into(),
        };
        Report { scenario: "steady".into(), site: "a <site>".into(), samples, ..Report::default() }
            .late(&times)
    }

    #[test]
    fn a_page_shows_every_run_and_no_markup_of_others() {
        let runs = vec![Report { rate: 500, ..report() }, Report { rate: 2_000, ..report() }];
        let html = page(&Report::of_all(runs), "dueline bench steady --rate 500,2000").expect("a page");
        assert_eq!(html.matches("<svg").count(), 8, "four pictures a run");
        for part in ["a &lt;site&gt;", "rate 500", "rate 2000", "lateness ms", "--rate 500,2000", "seconds"] {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("src=") && !html.contains("<script"), "it needs nothing else");
    }

    #[test]
    fn every_tag_of_a_page_is_closed_where_it_was_opened() {
        let html = page(&report(), "dueline bench").expect("a page");
        let mut open: Vec<&str> = Vec::new();
        for tag in html.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or_default()) {
            let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap_or_default();
            if tag.starts_with('!') || tag.ends_with('/') {
                continue;
            }
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "in {tag}");
            } else {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn a_report_without_samples_has_a_page_without_pictures() {
        let html = page(&Report::default(), "dueline bench list").expect("a page");
        assert_eq!(html.matches("<svg").count(), 0);
    }
}
