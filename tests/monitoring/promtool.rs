//! promtool reads the rules and runs their unit tests. Without it the tests say what is not tested; under CI they fail.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::dashboards::queries;
use super::rules::UNIT_TESTS;
use super::{file, names};

/// `DUELINE_TEST_PROMTOOL`, which `cargo xtask test` sets and which has to run, or the one on PATH.
fn promtool() -> Option<PathBuf> {
    let runs = |program: &Path| Command::new(program).arg("--version").output().is_ok();
    if let Some(set) = std::env::var_os("DUELINE_TEST_PROMTOOL").filter(|path| !path.is_empty()) {
        assert!(runs(Path::new(&set)), "DUELINE_TEST_PROMTOOL: {} does not run", set.display());
        return Some(set.into());
    }
    if runs(Path::new("promtool")) {
        return Some("promtool".into());
    }
    let wanted =
        "promtool is not there: it comes with Debian's package prometheus, or `cargo xtask test` unpacks it";
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!is_ci, "{wanted}");
    // Written past the test harness, which would keep it to itself.
    let said =
        format!("SKIPPED: {wanted}. Prometheus does NOT check the rules, the alerts' unit tests are NOT run");
    writeln!(std::io::stderr(), "{said}").expect("stderr");
    None
}

#[track_caller]
fn run(promtool: &Path, verb: &str, files: &[PathBuf]) {
    let output = Command::new(promtool).args([verb, "rules"]).args(files).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {verb} rules: {}", String::from_utf8_lossy(&said));
}

#[test]
fn prometheus_takes_the_rules() {
    let Some(promtool) = promtool() else { return };
    run(&promtool, "check", &[file("deploy/monitoring/alerts.yaml")]);
}

#[test]
fn the_unit_tests_of_the_alerts_pass() {
    let Some(promtool) = promtool() else { return };
    let tests = names(UNIT_TESTS, ".yaml");
    let tests: Vec<PathBuf> = tests.iter().map(|name| file(&format!("{UNIT_TESTS}/{name}.yaml"))).collect();
    run(&promtool, "test", &tests);
}

/// Grafana hands its expressions to the same parser.
#[test]
fn prometheus_takes_every_expression_of_the_dashboards() {
    let Some(promtool) = promtool() else { return };
    let rules: Vec<_> = queries()
        .iter()
        .enumerate()
        .map(|(number, query)| serde_json::json!({"record": format!("panel:{number}"), "expr": query.expression}))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("panels.yaml");
    let groups = serde_json::json!({"groups": [{"name": "panels", "rules": rules}]});
    std::fs::write(&path, groups.to_string()).unwrap();
    run(&promtool, "check", &[path]);
}
