//! Links lead somewhere, and the commands of runbooks and alerts are there.

use std::collections::BTreeSet;

use super::dev::dueline;
use super::rules::alerts;
use super::{file, text};

const PAGES: [&str; 2] = ["docs/runbooks.md", "deploy/monitoring/README.md"];

/// Anchors of a page's headings, as forges make them: lower case, spaces as hyphens, no other signs.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[track_caller]
fn check_link(of: &str, path: &str, anchor: Option<&str>) {
    assert!(file(path).exists(), "{of} links to {path}, which is not there");
    if let Some(anchor) = anchor {
        assert!(anchors(&text(path)).contains(anchor), "{of} links to {path}#{anchor}: no such heading");
    }
}

#[test]
fn every_alert_has_a_runbook_that_is_there_and_names_it() {
    let runbooks = text("docs/runbooks.md");
    for alert in alerts() {
        let (name, link) = (alert.name(), &alert.annotations["runbook_url"]);
        let (path, anchor) = link.split_once('#').expect("a heading of a page");
        check_link(name, path, Some(anchor));
        let short = name.strip_prefix("DuelineLateBudgetGone").map(|rest| format!("…{rest}"));
        let is_named = runbooks.contains(name) || short.is_some_and(|short| runbooks.contains(&short));
        assert!(is_named || path == "docs/operations.md", "docs/runbooks.md does not name {name}");
    }
}

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    for page in PAGES {
        let dir = file(page).parent().unwrap().to_owned();
        let content = text(page);
        for target in content.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if target.starts_with("https://") {
                continue;
            }
            let (path, anchor) = match target.split_once('#') {
                Some((path, anchor)) => (path, Some(anchor)),
                None => (target, None),
            };
            let whole = if path.is_empty() { file(page) } else { dir.join(path) };
            let whole = whole.canonicalize().unwrap_or_else(|error| panic!("{page}: {target}: {error}"));
            let root = file(".").canonicalize().unwrap();
            check_link(page, whole.strip_prefix(&root).unwrap().to_str().unwrap(), anchor);
        }
    }
}

/// Every command of the pages and the alerts is taken as far as its first option, and its help has the options.
#[test]
fn every_command_that_is_named_is_there() {
    let described = alerts().into_iter().map(|alert| alert.annotations["description"].clone());
    let all = PAGES.iter().map(|page| text(page)).chain(described).collect::<Vec<_>>().join("\n");
    let all = all.replace("{{ $labels.handler }}", "notify");
    let spans = all.split('`').skip(1).step_by(2).filter(|span| span.starts_with("dueline "));
    let commands: BTreeSet<String> =
        spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let plain = words.iter().take_while(|word| !word.starts_with("--")).copied();
        let help = dueline(&plain.chain(["--help"]).collect::<Vec<_>>());
        assert_eq!(help.code, 0, "{command}: {}", help.err);
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.out.contains(*option), "{command}: {option} is not in its help");
        }
    }
}

#[test]
fn every_path_that_is_named_is_in_the_published_document() {
    let document = text("schemas/openapi.json");
    for page in PAGES {
        for span in text(page).split('`').skip(1).step_by(2).filter(|span| span.starts_with('/')) {
            assert!(document.contains(&format!("\"{span}\":")), "{page}: {span}");
        }
    }
}
