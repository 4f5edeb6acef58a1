//! The alerts: what each must have, the object for the Prometheus operator, and their unit tests.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{check_generated, names, text};

const ALERTS: &str = "deploy/monitoring/alerts.yaml";
/// Where the unit tests are.
pub(crate) const UNIT_TESTS: &str = "deploy/monitoring/alerts.test";

const OBJECT: &str = "\
# Made from alerts.yaml by the test `the_object_of_the_operator_has_the_same_rules`; run it with UPDATE_DOCS=1 to write
# this file anew.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: dueline
  labels:
    app.kubernetes.io/name: dueline
spec:
";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[allow(dead_code, reason = "there must be one")]
    name: String,
    rules: Vec<Rule>,
}

/// An alert, or a recording rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) alert: Option<String>,
    pub(crate) record: Option<String>,
    pub(crate) expr: String,
    #[serde(default, rename = "for")]
    #[allow(dead_code, reason = "promtool reads it")]
    lasting: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Rule {
    pub(crate) fn name(&self) -> &str {
        self.alert.as_deref().or(self.record.as_deref()).expect("an alert or a record")
    }
}

#[derive(Debug, Deserialize)]
struct UnitTests {
    rule_files: Vec<String>,
    tests: Vec<UnitTest>,
}

#[derive(Debug, Deserialize)]
struct UnitTest {
    name: String,
    promql_expr_test: Vec<Moment>,
}

#[derive(Debug, Deserialize)]
struct Moment {
    expr: String,
    #[serde(default)]
    exp_samples: Vec<Sample>,
}

#[derive(Debug, Deserialize)]
struct Sample {
    labels: String,
}

/// All rules.
pub(crate) fn rules() -> Vec<Rule> {
    let file: File =
        serde_saphyr::from_str(&text(ALERTS)).unwrap_or_else(|error| panic!("{ALERTS}: {error}"));
    file.groups.into_iter().flat_map(|group| group.rules).collect()
}

/// All alerts.
pub(crate) fn alerts() -> Vec<Rule> {
    rules().into_iter().filter(|rule| rule.alert.is_some()).collect()
}

#[test]
fn the_object_of_the_operator_has_the_same_rules() {
    let indented: String = text(ALERTS)
        .lines()
        .map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") })
        .collect();
    check_generated("deploy/monitoring/prometheus-rule.yaml", &(OBJECT.to_owned() + &indented));
}

#[test]
fn every_alert_says_how_bad_it_is_and_what_to_do_first() {
    let mut seen = BTreeSet::new();
    for alert in alerts() {
        let name = alert.name();
        assert!(name.starts_with("Dueline") && seen.insert(name.to_owned()), "{name}");
        let severity = alert.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning")), "{name}: {severity:?}");
        let annotations: Vec<&str> = alert.annotations.keys().map(String::as_str).collect();
        assert_eq!(annotations, ["description", "runbook_url", "summary"], "{name}");
        let description = &alert.annotations["description"];
        assert!(description.contains('`') || description.contains("look"), "{name} says no first step");
    }
    assert!(seen.len() > 20, "{seen:?}");
}

/// Names of alerts in a test's expectations: `None` when the moment is about something else, or about some alerts only.
fn firing(moment: &Moment) -> Option<BTreeSet<String>> {
    moment.expr.strip_prefix("ALERTS{alertstate=\"firing\"")?;
    let name = |sample: &Sample| {
        let (_, rest) = sample.labels.split_once("alertname=\"").expect("an alert's name");
        rest.split_once('"').expect("its end").0.to_owned()
    };
    Some(moment.exp_samples.iter().map(name).collect())
}

#[test]
fn every_alert_has_a_test_in_which_it_fires_at_one_moment_and_not_at_another() {
    let (mut fires, mut rests) = (BTreeSet::new(), BTreeSet::new());
    for name in names(UNIT_TESTS, ".yaml") {
        let tests = text(&format!("{UNIT_TESTS}/{name}.yaml"));
        let file: UnitTests =
            serde_saphyr::from_str(&tests).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(file.rule_files, ["../alerts.yaml"], "{name}");
        for test in file.tests {
            let moments: Vec<BTreeSet<String>> = test.promql_expr_test.iter().filter_map(firing).collect();
            let all: BTreeSet<String> = moments.iter().flatten().cloned().collect();
            for alert in &all {
                if moments.iter().any(|moment| !moment.contains(alert)) {
                    rests.insert(alert.clone());
                }
            }
            assert!(!test.name.is_empty());
            fires.extend(all);
        }
    }
    let alerts: BTreeSet<String> = alerts().iter().map(|alert| alert.name().to_owned()).collect();
    assert_eq!(fires, alerts, "those that fire in a test, and those that there are");
    assert_eq!(
        rests, alerts,
        "those that do not fire at another moment of the same test, and those that there are"
    );
}

#[test]
fn the_component_has_every_dashboard_and_the_rules() {
    #[derive(Deserialize)]
    struct Component {
        kind: String,
        resources: Vec<String>,
        #[serde(rename = "configMapGenerator")]
        maps: Vec<Map>,
    }
    #[derive(Deserialize)]
    struct Map {
        files: Vec<String>,
        options: Options,
    }
    #[derive(Deserialize)]
    struct Options {
        labels: BTreeMap<String, String>,
    }
    let component: Component = serde_saphyr::from_str(&text("deploy/monitoring/kustomization.yaml")).unwrap();
    assert_eq!(
        (component.kind.as_str(), &component.resources[..]),
        ("Component", &["prometheus-rule.yaml".to_owned()][..])
    );
    let mut files: Vec<String> = component.maps.iter().flat_map(|map| map.files.clone()).collect();
    files.sort();
    let dashboards = names("deploy/monitoring/dashboards", ".json");
    let wanted: Vec<String> = dashboards.iter().map(|name| format!("dashboards/{name}.json")).collect();
    assert_eq!(files, wanted);
    for map in &component.maps {
        assert_eq!(map.options.labels.get("grafana_dashboard").map(String::as_str), Some("1"));
    }
}
