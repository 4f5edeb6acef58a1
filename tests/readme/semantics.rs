//! docs/semantics.md names the tests that carry each promise: they have to exist.

use std::path::Path;

const PAGE: &str = include_str!("../../docs/semantics.md");
/// Promises that tests carry today; the last two are in part, or not there.
const CARRIED: usize = 12;

/// Names in lines that begin with `Tests:`, and in the lines of their paragraph.
fn named(paragraphs: &str) -> Vec<String> {
    let mut names = Vec::new();
    for paragraph in paragraphs.split("\n\n").filter(|text| text.trim_start().starts_with("Tests:")) {
        names.extend(paragraph.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    names
}

fn sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_semantics_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    ["src", "tests"].iter().for_each(|dir| sources(&root.join(dir), &mut text));
    let missing: Vec<String> =
        named(PAGE).into_iter().filter(|name| !text.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "docs/semantics.md names tests that do not exist: {missing:#?}");
}

#[test]
fn every_promise_that_is_kept_names_its_tests() {
    let (_, promises) = PAGE.split_once("\n## Promises").expect("the promises");
    let promises = promises.split("\n### ").skip(1);
    let promises: Vec<&str> =
        promises.take_while(|text| text.starts_with(|c: char| c.is_ascii_digit())).collect();
    assert_eq!(promises.len(), 13);
    for promise in &promises[..CARRIED] {
        assert!(
            !named(promise).is_empty(),
            "no test is named at {}",
            promise.lines().next().unwrap_or_default()
        );
    }
}
