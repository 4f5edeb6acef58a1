//! A real node with tasks that succeed, fail, die, wait at a gate and are cancelled by a batch, and what its scrape has.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::dashboards::queries;
use super::dev::Dev;
use super::expressions::{Asked, Known};
use super::rules::rules;
use super::scrape::Scrape;
use super::sink::Sink;
use super::{text, until};

/// A node's whole scrape after it did a little of everything.
async fn scraped(dir: &Path) -> String {
    let sink = Sink::start().await;
    let config = dir.join("dueline.toml");
    let url = sink.handler("ok");
    let fails = sink.handler("fail");
    let handlers = format!(
        "[[handler]]\nname = \"notify\"\nkind = \"http\"\nurl = \"{url}\"\n\
         [[handler]]\nname = \"broken\"\nkind = \"http\"\nurl = \"{fails}\"\n\
         retry = {{ max_attempts = 2, initial = \"100ms\", jitter = 0 }}\n"
    );
    std::fs::write(&config, handlers).unwrap();
    let dev = Dev::configured(&dir.join("data"), Some(&config)).await;
    let task = |queue: &str, id: &str, handler: &str| json!({"queue": queue, "id": id, "handler": handler});
    for (queue, handler) in [("fine", "notify"), ("lost", "broken")] {
        assert_eq!(dev.post("/v1/tasks", &task(queue, "t", handler)).await.status, 201);
    }
    dev.task_in("succeeded", "fine", "t").await;
    dev.task_in("dead", "lost", "t").await;
    let gate = json!({"queue": "shut", "reason": "a test"});
    assert_eq!(dev.post("/v1/gates", &gate).await.status, 200);
    dev.post("/v1/tasks", &task("shut", "t", "notify")).await;
    let later = json!({"queue": "later", "id": "t", "handler": "notify", "delay": "1h", "collection": "c"});
    dev.post("/v1/tasks", &later).await;
    assert_eq!(dev.post("/v1/batches", &json!({"verb": "cancel", "collection": "c"})).await.status, 202);
    dev.task_in("cancelled", "later", "t").await;
    until("the counts", || async {
        let text = dev.get("/metrics").await.text;
        let wanted = [
            "dueline_tasks_total{handler=\"notify\",outcome=\"succeeded\"} 1",
            "dueline_tasks_total{handler=\"broken\",outcome=\"retryable\"} 2",
            "dueline_dead_letters_total{handler=\"broken\"} 1",
            "dueline_queues_blocked{reason=\"gate\"} 1",
            "dueline_closed_total{reason=\"cancelled\"} 1",
        ];
        wanted.iter().all(|line| text.lines().any(|found| found == *line)).then_some(text)
    })
    .await
}

/// Metrics of docs/metrics.md that an embedded node does not have, by what the page says of them.
fn absent_when_embedded() -> Vec<String> {
    let page = text("docs/metrics.md");
    let rows = page.lines().filter(|line| line.contains("absent when embedded"));
    rows.map(|row| row.split('`').nth(1).unwrap().split('{').next().unwrap().to_owned()).collect()
}

/// Every metric of the reference, without its labels.
fn reference() -> BTreeSet<String> {
    let page = text("docs/metrics.md");
    let (table, _) = page.split_once("## Label values").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `dueline_"));
    rows.map(|row| format!("dueline_{}", row.split(['`', '{']).next().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_expression_asks_for_what_a_scrape_has() {
    let dir = tempfile::tempdir().unwrap();
    let mut scrape = Scrape::read(&scraped(dir.path()).await);
    let granted = absent_when_embedded();
    assert_eq!(granted, ["dueline_dc_loss_survivable"]);
    for metric in &granted {
        assert!(scrape.labels(metric).is_none(), "{metric} is there: no grant is needed");
        scrape.grant(metric, "layer", &["kafka", "cassandra"]);
    }
    let rules = rules();
    let recorded = rules.iter().filter_map(|rule| rule.record.clone()).collect();
    let known = Known { scrape, recorded };
    let mut wrong = Vec::new();
    let of_rules = rules.iter().map(|rule| (rule.name().to_owned(), rule.expr.clone()));
    let of_panels = queries().into_iter().map(|query| (query.place, query.expression));
    let mut checked = 0;
    for (place, expression) in of_rules.chain(of_panels) {
        wrong.extend(known.missing(&expression).into_iter().map(|what| format!("{place}: {what}")));
        checked += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 100, "{checked}");
    let pages = ["docs/runbooks.md", "deploy/monitoring/README.md"].map(text).join("\n");
    for name in pages.split('`').filter_map(|span| span.strip_prefix("dueline_")) {
        let name = format!("dueline_{}", name.split([' ', '{', '[']).next().unwrap());
        let is_there = known.scrape.names().any(|known| {
            let rest = known.strip_prefix(name.as_str());
            rest.is_some_and(|rest| ["", "_bucket"].contains(&rest))
        });
        assert!(is_there, "the pages name {name}, which no scrape has");
    }
}

#[test]
fn every_metric_of_the_reference_is_on_a_dashboard() {
    let mut shown = BTreeSet::new();
    for query in queries() {
        for metric in Asked::of(&query.expression).unwrap().metrics {
            let of_histogram = ["_bucket", "_count", "_sum"].iter().find_map(|end| metric.strip_suffix(end));
            shown.insert(of_histogram.unwrap_or(&metric).to_owned());
        }
    }
    let missing: Vec<String> = reference().difference(&shown).cloned().collect();
    assert!(missing.is_empty(), "on no dashboard: {missing:?}");
}

#[test]
fn every_legend_names_a_label_that_its_query_keeps() {
    for query in queries() {
        let kept = Asked::of(&query.expression).unwrap().grouping;
        let is_whole = kept.is_empty();
        for label in query.legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
            let is_target = ["namespace", "job", "instance", "dc"].contains(&label);
            assert!(
                kept.iter().any(|one| one == label) || (is_whole && is_target),
                "{}: {label}",
                query.place
            );
        }
    }
}
