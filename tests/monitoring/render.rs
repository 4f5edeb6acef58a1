//! Makes Grafana's JSON of a dashboard from its source, a short TOML file.
//!
//! A source has rows, a row has panels, a panel has queries, each with its legend. `{$scope}` in a query stands for the
//! chosen namespace, job and instance, `{$installation}` for namespace and job: what a recording rule has.

use serde::Deserialize;
use serde_json::{Value, json};

/// Width of a row in Grafana's units.
const ROW_WIDTH: u32 = 24;

const INSTALLATION: &str = r#"namespace=~"$namespace", job=~"$job""#;
const SCOPE: &str = r#"namespace=~"$namespace", job=~"$job", instance=~"$instance""#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dashboard {
    uid: String,
    title: String,
    about: String,
    row: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    title: String,
    panel: Vec<Panel>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    about: String,
    show: Show,
    unit: String,
    width: u32,
    red_above: Option<f64>,
    red_below: Option<f64>,
    /// Legend and expression.
    queries: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Show {
    /// One number, the last.
    Number,
    Lines,
    /// Lines with filled areas that add up.
    Stack,
    Bars,
    /// A heat map of a histogram's buckets.
    Heat,
}

impl Show {
    fn height(self) -> u32 {
        if self == Show::Number { 4 } else { 8 }
    }

    fn kind(self) -> &'static str {
        match self {
            Show::Number => "stat",
            Show::Heat => "heatmap",
            Show::Lines | Show::Stack | Show::Bars => "timeseries",
        }
    }
}

/// The JSON that Grafana imports.
pub(crate) fn dashboard(source: &str) -> String {
    let source: Dashboard = toml::from_str(source).unwrap_or_else(|error| panic!("{error}"));
    let mut panels = Vec::new();
    let mut y = 0;
    for row in &source.row {
        let place = json!({"x": 0, "y": y, "w": ROW_WIDTH, "h": 1});
        panels.push(
            json!({"type": "row", "title": row.title, "collapsed": false, "panels": [], "gridPos": place}),
        );
        y = place_panels(&row.panel, y + 1, &mut panels);
    }
    for (id, panel) in panels.iter_mut().enumerate() {
        panel["id"] = json!(id + 1);
    }
    let whole = json!({
        "uid": source.uid,
        "title": source.title,
        "description": source.about,
        "tags": ["dueline"],
        "schemaVersion": 39,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [{"type": "dashboards", "tags": ["dueline"], "title": "", "keepTime": true, "includeVars": true}],
        "templating": {"list": variables()},
        "panels": panels,
    });
    serde_json::to_string_pretty(&whole).unwrap() + "\n"
}

/// Puts panels side by side, as many as fit; gives the first free line below.
fn place_panels(row: &[Panel], first: u32, panels: &mut Vec<Value>) -> u32 {
    let (mut x, mut y, mut height) = (0, first, 0);
    for panel in row {
        if x + panel.width > ROW_WIDTH {
            (x, y, height) = (0, y + height, 0);
        }
        let place = json!({"x": x, "y": y, "w": panel.width, "h": panel.show.height()});
        panels.push(panel_at(panel, place));
        x += panel.width;
        height = height.max(panel.show.height());
    }
    y + height
}

fn panel_at(panel: &Panel, place: Value) -> Value {
    let targets = panel.queries.iter().zip('A'..).map(|(query, letter)| target(panel.show, query, letter));
    json!({
        "type": panel.show.kind(),
        "title": panel.title,
        "description": panel.about,
        "gridPos": place,
        "datasource": datasource(),
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": drawn(panel.show), "color": color(panel.show),
            "thresholds": thresholds(panel)}, "overrides": []},
        "options": options(panel),
        "targets": targets.collect::<Vec<Value>>(),
    })
}

fn target(show: Show, (legend, expression): &(String, String), letter: char) -> Value {
    let expression = expression.replace("$scope", SCOPE).replace("$installation", INSTALLATION);
    json!({
        "refId": letter.to_string(),
        "datasource": datasource(),
        "expr": expression,
        "legendFormat": legend,
        "instant": show == Show::Number,
        "range": show != Show::Number,
        "format": if show == Show::Heat { "heatmap" } else { "time_series" },
    })
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn drawn(show: Show) -> Value {
    let stacking = json!({"mode": "normal", "group": "A"});
    match show {
        Show::Number | Show::Heat => json!({}),
        Show::Lines => json!({"drawStyle": "line", "showPoints": "never"}),
        Show::Stack => {
            json!({"drawStyle": "line", "showPoints": "never", "fillOpacity": 40, "stacking": stacking})
        }
        Show::Bars => json!({"drawStyle": "bars", "fillOpacity": 80, "stacking": stacking}),
    }
}

fn color(show: Show) -> Value {
    json!({"mode": if show == Show::Number { "thresholds" } else { "palette-classic" }})
}

fn thresholds(panel: &Panel) -> Value {
    let step = |color: &str, value: Option<f64>| json!({"color": color, "value": value});
    let steps = match (panel.red_below, panel.red_above) {
        (Some(bound), _) => vec![step("red", None), step("green", Some(bound))],
        (None, Some(bound)) => vec![step("green", None), step("red", Some(bound))],
        (None, None) => vec![step("text", None)],
    };
    json!({"mode": "absolute", "steps": steps})
}

fn options(panel: &Panel) -> Value {
    match panel.show {
        Show::Number => {
            json!({"colorMode": "value", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}})
        }
        Show::Heat => {
            json!({"calculate": false, "yAxis": {"unit": panel.unit}, "color": {"scheme": "Oranges"}})
        }
        Show::Lines | Show::Stack | Show::Bars => {
            json!({"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}})
        }
    }
}

/// What one chooses at the top of a dashboard.
fn variables() -> Vec<Value> {
    let choice = |name: &str, query: &str| {
        json!({
            "name": name,
            "type": "query",
            "datasource": datasource(),
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": true,
            "includeAll": true,
            // A label that is absent, as a namespace is outside Kubernetes, is taken too.
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        })
    };
    vec![
        json!({"name": "datasource", "type": "datasource", "query": "prometheus"}),
        choice("namespace", "label_values(dueline_build_info, namespace)"),
        choice("job", "label_values(dueline_build_info{namespace=~\"$namespace\"}, job)"),
        choice("instance", &format!("label_values(dueline_build_info{{{INSTALLATION}}}, instance)")),
    ]
}
