//! Facts about the page of a run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use dueline::testing::history::History;

use super::*;
use crate::sample;

/// A page of a run of twenty seconds, with a fault and two shards that changed hands.
fn html(history: &History) -> String {
    let course = Course::of(history, 0, Vec::new(), 20_000);
    let duplicates = BTreeMap::from([("failed", 3)]);
    let change = |at, instance: &str, phase: &str| Change {
        at,
        instance: instance.into(),
        shard: 1,
        epoch: 1,
        phase: phase.into(),
    };
    let changes =
        [change(0, "i-1", "running"), change(6_000, "i-1", "let go"), change(9_000, "i-2", "running")];
    let page = Page {
        title: "dc-loss <seed 1>".to_owned(),
        clean: false,
        run: vec![("commit", "abc".to_owned())],
        plan: vec!["lose dc1".to_owned()],
        places: BTreeMap::from([("i-1".to_owned(), "dc1"), ("i-2".to_owned(), "dc2")]),
        course: &course,
        recoveries: &[Recovery { dc: "dc1".into(), whole: true, from: 0, to: 9, took_ms: 7 }],
        bounds: &[Bound {
            what: "accepted".to_owned(),
            wanted: "at least 99.9 %".to_owned(),
            measured: "98 %".to_owned(),
            kept: false,
        }],
        faults: &[Fault { what: "dc1 lost".into(), from: 5_000, to: 9_000 }],
        marks: &[("i-3 joins".to_owned(), 12_000)],
        changes: &changes,
        shards: 2,
        rules: vec![("in order", 12, 1)],
        duplicates: &duplicates,
        wrongs: vec!["a <b> & c".to_owned()],
    };
    page.html().expect("a page")
}

#[test]
fn a_page_tells_of_everything_and_shows_no_markup_of_others() {
    let html = html(&History::default());
    for part in [
        "dc-loss &lt;seed 1&gt;",
        "dc1 lost",
        "i-3 joins",
        "kafka-1, kafka-2<td>cassandra-1, cassandra-2<td>i-1",
        "a &lt;b&gt; &amp; c",
        "lose dc1",
        "in order",
        "failed",
        "7 ms",
        "at least 99.9 %<td><span class=bad>98 %",
        "Not everything",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert_eq!(html.matches("<svg").count(), 4);
    assert!(
        !html.contains("http://www.w3.org/1999/xhtml") && !html.contains("src="),
        "it needs nothing else"
    );
}

fn history() -> History {
    let asked = |n: i64| sample::asked(&format!("q-{n}"), "t", n * 100 + 5);
    let called = |n: i64| sample::called(&format!("q-{n}"), "t", n * 100, (n * 100 + 50, n * 100 + 51));
    History {
        asked: (0..200).map(asked).collect(),
        called: (0..200).map(called).collect(),
        ..History::default()
    }
}

/// `DUELINE_TEST_BROWSER`, which `cargo xtask test` sets, or the one on PATH. Without it the test says what is not tested;
/// under CI it fails.
fn browser() -> Option<PathBuf> {
    let runs = |program: &Path| Command::new(program).arg("--version").output().is_ok();
    let set = std::env::var_os("DUELINE_TEST_BROWSER").filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(set) = &set {
        assert!(runs(set), "DUELINE_TEST_BROWSER: {} does not run", set.display());
    }
    let found = set.or_else(|| Some(PathBuf::from("chromium")).filter(|program| runs(program)));
    if found.is_none() {
        let wanted = "chromium is not there: Debian's package chromium";
        assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "{wanted}");
        // Written past the test harness, which would keep it to itself.
        writeln!(std::io::stderr(), "SKIPPED: {wanted}. The page of a run is NOT opened in a browser")
            .expect("stderr");
    }
    found
}

/// What a browser makes of a page: it measures, and writes what it found into the document.
const MEASURE: &str = "<script>
const box = one => one.getBoundingClientRect();
const wide = [...document.querySelectorAll('body *')].filter(one => box(one).right > innerWidth + 1);
const seen = (svg, kinds) => [...svg.querySelectorAll(kinds)].filter(one => box(one).width > 0 || box(one).height > 0);
const drawn = [...document.querySelectorAll('svg')].map(svg => [box(svg).width > 600, box(svg).height > 100,
    seen(svg, 'polyline').length > 0, seen(svg, 'rect').length > 0, seen(svg, 'text').length > 1]);
const legends = [...document.querySelectorAll('p.legend')].map(one => [...one.querySelectorAll('i')].map(colour =>
    box(colour).width > 5 && getComputedStyle(colour).backgroundColor !== 'rgba(0, 0, 0, 0)'));
document.title = JSON.stringify({ drawn, legends, wide: wide.length,
    bad: document.querySelector('.bad') && getComputedStyle(document.querySelector('.bad')).color });
</script>";

/// What the browser found in the page, which is written to that folder first.
fn opened(browser: &Path, dir: &Path, html: &str) -> serde_json::Value {
    let page = dir.join("report.html");
    std::fs::write(&page, html.to_owned() + MEASURE).expect("a page");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    serde_json::from_str(title.unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Lines, the band of the fault, and words at the axes; the picture of owners has bars and no lines but axes.
fn assert_drawn(found: &serde_json::Value) {
    assert_eq!(found["drawn"].as_array().map(Vec::len), Some(4), "{found}");
    for picture in found["drawn"].as_array().expect("a list") {
        assert!(picture.as_array().expect("a list").iter().all(|holds| *holds == true), "{found}");
    }
    assert_eq!(found["wide"], 0, "nothing is cut off at the right: {found}");
}

#[test]
fn a_browser_shows_the_pictures_within_the_page() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let found = opened(&browser, dir.path(), &html(&history()));
    assert_drawn(&found);
    assert_eq!(
        found["legends"],
        serde_json::json!([[true, true], [true, true], [true, true, true], [true, true]]),
        "{found}"
    );
    assert_eq!(found["bad"], "rgb(179, 38, 30)", "what is wrong is red: {found}");
}

#[test]
#[ignore = "DUELINE_TEST_REPORT names the page of a run, which cargo xtask test makes"]
fn a_browser_shows_the_page_of_a_run() {
    let report = std::env::var_os("DUELINE_TEST_REPORT").expect("DUELINE_TEST_REPORT");
    let html = std::fs::read_to_string(report).expect("the page of a run");
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let found = opened(&browser, dir.path(), &html);
    assert_drawn(&found);
    let legends: Vec<&Vec<serde_json::Value>> =
        found["legends"].as_array().into_iter().flatten().filter_map(|one| one.as_array()).collect();
    // Six instances ran shards.
    assert_eq!(legends.iter().map(|one| one.len()).collect::<Vec<_>>(), [2, 2, 3, 6], "{found}");
    assert!(legends.into_iter().flatten().all(|colour| *colour == true), "{found}");
    let happened = html.split("<h2>What happened</h2>").nth(1).and_then(|rest| rest.split("<h2>").next());
    let happened = happened.expect("what happened");
    assert!((1..=3).any(|dc| happened.contains(&format!("dc{dc} lost"))), "{happened}");
}
