//! What the repository promises about itself: imports go downwards, the engine is pure, files stay small.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Rooms from the top down: a room may import itself and what stands after it.
const ROOMS: [&str; 17] = [
    "main",
    "cli",
    "bench",
    "server",
    "node",
    "doctor",
    "client",
    "runtime",
    "engine",
    "testing",
    "telemetry",
    "config",
    "dispatch",
    "log",
    "store",
    "metrics",
    "wire",
];
/// What a room may import although it stands above.
const ALLOWED: [(&str, &str, &str); 3] = [
    ("wire", "log", "records and messages are values of the port"),
    ("store", "metrics", "the decorator that times every call"),
    ("metrics", "store", "the kinds of its errors are label values"),
];
const LINES_MAX: usize = 700;
const LINES_WANTED: usize = 400;

fn sources(dir: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).expect("a folder of the repository").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a source file")
}

fn room(path: &Path) -> String {
    let below = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("below src");
    let first = below.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// Code without the tests at its end.
fn code(path: &Path) -> String {
    let all = text(path);
    all.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

fn is_test(path: &Path) -> bool {
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    ["tests", "golden"].contains(&name.as_str())
        || path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "testing")
}

fn imported_rooms(code: &str) -> Vec<String> {
    let words = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    words
        .flat_map(|line| line.split("crate::").skip(1).map(str::to_owned).collect::<Vec<_>>())
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
        .collect()
}

#[test]
fn imports_go_downwards() {
    let height: BTreeMap<&str, usize> =
        ROOMS.iter().enumerate().map(|(index, room)| (*room, index)).collect();
    let mut wrong = Vec::new();
    for path in sources("src") {
        let from = room(&path);
        let Some(own) = height.get(from.as_str()) else { continue };
        for to in imported_rooms(&code(&path)) {
            let above = height.get(to.as_str()).is_some_and(|other| other < own);
            let allowed = ALLOWED.iter().any(|(a, b, _)| *a == from && *b == to);
            if above && !allowed && !is_test(&path) {
                wrong.push(format!("{}: {from} imports {to}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "imports that go up:\n{}", wrong.join("\n"));
}

#[test]
fn the_engine_sees_only_the_model() {
    let banned =
        ["tokio", "serde", "std::time", "Instant", "SystemTime", "HashMap", "HashSet", "async ", "rand::"];
    let mut wrong = Vec::new();
    for path in sources("src").into_iter().filter(|path| ["engine", "model"].contains(&room(path).as_str())) {
        let code = code(&path);
        for to in imported_rooms(&code) {
            let known = to == "model" || (to == "engine" && room(&path) == "engine");
            if !known && !is_test(&path) {
                wrong.push(format!("{}: imports {to}", path.display()));
            }
        }
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let lines: Vec<&str> = lines.collect();
        for word in banned.iter().filter(|word| lines.iter().any(|line| line.contains(**word))) {
            if !is_test(&path) {
                wrong.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "the engine is not pure:\n{}", wrong.join("\n"));
}

#[test]
fn no_file_is_a_giant() {
    let all: Vec<PathBuf> =
        ["src", "tests", "xtask/src", "chaos/src"].iter().flat_map(|dir| sources(dir)).collect();
    let mut lengths: Vec<(usize, PathBuf)> =
        all.into_iter().map(|path| (text(&path).lines().count(), path)).collect();
    lengths.sort();
    let giants: Vec<_> = lengths.iter().filter(|(lines, _)| *lines > LINES_MAX).collect();
    assert!(giants.is_empty(), "files over {LINES_MAX} lines: {giants:?}");
    let large = lengths.iter().filter(|(lines, _)| *lines > LINES_WANTED).count();
    assert!(large * 20 <= lengths.len(), "{large} of {} files are over {LINES_WANTED} lines", lengths.len());
    let median = lengths[lengths.len() / 2].0;
    assert!(median <= 200, "the median file has {median} lines");
}

#[test]
fn no_function_is_a_giant() {
    let mut wrong = Vec::new();
    for path in sources("src").into_iter().filter(|path| !is_test(path)) {
        let text = text(&path);
        let mut begun: Option<(usize, String, usize)> = None;
        for (number, line) in text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let opens = line
                .trim_start()
                .split('(')
                .next()
                .is_some_and(|head| head.split(' ').any(|word| word == "fn"));
            if opens && begun.is_none() && !line.trim_start().starts_with("//") {
                begun = Some((number, line.trim().to_owned(), indent));
            }
            if let Some((start, name, at)) = &begun
                && indent == *at
                && (line.trim() == "}" || line.trim_end().ends_with(';') || line.trim_end().ends_with('}'))
            {
                if number - start + 1 > 70 {
                    wrong.push(format!("{}: {name}: {} lines", path.display(), number - start + 1));
                }
                begun = None;
            }
        }
    }
    assert!(wrong.is_empty(), "functions over 70 lines:\n{}", wrong.join("\n"));
}

#[test]
fn product_code_never_unwraps() {
    let mut wrong = Vec::new();
    for path in sources("src").into_iter().filter(|path| !is_test(path)) {
        for (number, line) in code(&path).lines().enumerate() {
            let unwraps =
                line.contains(".unwrap()") || line.contains("todo!(") || line.contains("unimplemented!(");
            if unwraps && !line.trim_start().starts_with("//") {
                wrong.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "unwrap, todo or unimplemented:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_says_what_it_is_for() {
    let silent: Vec<PathBuf> =
        sources("src").into_iter().filter(|path| !text(path).starts_with("//!")).collect();
    assert!(silent.is_empty(), "no `//!` at the top: {silent:?}");
}

#[test]
fn no_test_is_ignored() {
    let mark = concat!("#[", "ignore");
    let ignored: Vec<PathBuf> = ["src", "tests"]
        .iter()
        .flat_map(|dir| sources(dir))
        .filter(|path| text(path).contains(mark))
        .collect();
    assert!(ignored.is_empty(), "ignored tests in {ignored:?}");
}
