//! The dashboards: what is generated, and that nobody is left guessing.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{check_generated, names, render, text};

/// A query of a panel, as Grafana sends it.
pub(crate) struct Query {
    /// Dashboard and panel.
    pub(crate) place: String,
    pub(crate) legend: String,
    /// With its variables put in.
    pub(crate) expression: String,
}

fn panels() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for name in names("deploy/monitoring/dashboards", ".json") {
        let whole: Value =
            serde_json::from_str(&text(&format!("deploy/monitoring/dashboards/{name}.json"))).unwrap();
        let panels = whole["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
        found.extend(panels.map(|panel| (name.clone(), panel.clone())));
    }
    found
}

/// All queries of all panels.
pub(crate) fn queries() -> Vec<Query> {
    let mut found = Vec::new();
    for (name, panel) in panels() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            found.push(Query {
                place: format!("{name}: {}", panel["title"]),
                legend: target["legendFormat"].as_str().unwrap().to_owned(),
                expression: expression.replace("$__rate_interval", "5m").replace("$__range", "1h"),
            });
        }
    }
    found
}

#[test]
fn what_grafana_imports_is_made_from_the_sources() {
    for name in names("deploy/monitoring/dashboards", ".toml") {
        let source = text(&format!("deploy/monitoring/dashboards/{name}.toml"));
        check_generated(&format!("deploy/monitoring/dashboards/{name}.json"), &render::dashboard(&source));
    }
    let sources = names("deploy/monitoring/dashboards", ".toml");
    assert_eq!(sources, names("deploy/monitoring/dashboards", ".json"), "each has its source");
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() {
    // Grafana's names: seconds, a share of one, per second, numbers, numbers shortened.
    let units = ["s", "percentunit", "ops", "none", "short"];
    let mut seen = BTreeSet::new();
    for (name, panel) in panels() {
        let title = panel["title"].as_str().unwrap();
        assert!(panel["description"].as_str().unwrap().ends_with('.'), "{name}: {title}");
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap();
        assert!(units.contains(&unit), "{name}: {title}: {unit}");
        assert!(seen.insert((name.clone(), title.to_owned())), "{name} has {title} twice");
    }
}

#[test]
fn panels_of_one_kind_of_number_have_its_unit() {
    for (name, panel) in panels() {
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let wanted = match expression {
                text if text.contains("_sum{") => "none",
                text if text.contains("histogram_quantile") || text.starts_with("max(dueline_oldest") => "s",
                text if text.contains(" / sum") => "percentunit",
                text if text.contains("rate(") && !text.contains("increase(") => "ops",
                _ => continue,
            };
            assert_eq!(unit, wanted, "{name}: {}", panel["title"]);
        }
    }
}
