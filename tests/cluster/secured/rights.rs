//! The rights of deploy/k8s: they suffice, and a missing one is named.

use serde_json::json;

use super::{Secured, on_secured, text, users};
use crate::clock;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_the_manifests_suffice_and_no_more_are_held() {
    on_secured("rights", |secured| async move {
        let instance = secured.instance();
        let healthy = secured.run("doctor", &instance, &["doctor"]).await;
        assert!(healthy.succeeded, "{}", healthy.all());
        healthy.says(&[
            "all rights that are needed on topics are held",
            "all rights that are needed on group dueline are held",
            "keyspace dueline: all migrations are applied",
            "1 node(s) were there before the keyspace",
        ]);
        let started = secured.start("first", &instance);
        started.until_ready().await;
        let queue = format!("rights-{}", uuid::Uuid::new_v4().simple());
        secured.schedule(&queue, "a").await;
        secured.schedule(&queue, "b").await;
        clock::until("both run", 60, || secured.sink.ids_of(&queue) == ["a", "b"]).await;
        assert!(started.stop().await.success());
        // What belongs to the Jobs alone.
        let other = secured.config("other", &instance, 1, "");
        let named = text(&other).replace("[topics]", "[topics]\nprefix = \"other\"");
        let mut command =
            crate::instance::dueline(&["topics", "create"], &secured.file("other.toml", &named));
        command.env("DUELINE_LOG", "warn");
        let said = super::Said::of(crate::setup::output(command).await);
        assert!(!said.succeeded);
        said.says(&["topic other.", "is not created", "grant Create on it", "deploy/k8s/kafka/users.yaml"]);
    })
    .await;
}

/// Rights of the instance that are taken for a test, and given back after it.
async fn without(secured: &Secured, rights: &[(&str, &str, &str)], say: &[&str]) {
    let taken: Vec<users::Right> = users::rights()
        .into_iter()
        .filter(|right| right.user == "dueline")
        .filter(|right| {
            rights.contains(&(right.kind.as_str(), right.name.as_str(), right.operation.as_str()))
        })
        .collect();
    assert_eq!(taken.len(), rights.len(), "the manifests give all of {rights:?}");
    users::kafka(secured, json!({"take": taken})).await;
    let said = secured.run("doctor", &secured.instance(), &["doctor"]).await;
    users::kafka(secured, json!({"grant": taken})).await;
    assert!(!said.succeeded, "{rights:?} are not missed: {}", said.all());
    said.says(say);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_is_named() {
    on_secured("missing rights", |secured| async move {
        let some = [
            ("group", "dueline", "Read"),
            ("topic", "dueline.schedule", "Write"),
            ("topic", "dueline.dead", "Write"),
            ("topic", "dueline.events", "DescribeConfigs"),
        ];
        let named = [
            "missing on group dueline: Read",
            "missing on topic dueline.schedule: Write",
            "missing on topic dueline.dead: Write",
            "missing on topic dueline.events: DescribeConfigs",
            "the settings of dueline.events are not known",
            "grant DescribeConfigs on it",
        ];
        without(&secured, &some, &named).await;
        let all = ["Read", "Write", "Describe", "DescribeConfigs"]
            .map(|operation| ("topic", "dueline.schedule", operation));
        without(&secured, &all, &["dueline.schedule cannot be described", "grant Describe on it"]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_may_not_read_says_so_and_reads_once_it_may() {
    on_secured("no right to read", |secured| async move {
        let group = json!([{"user": "dueline", "kind": "group", "name": "dueline", "operation": "Read"}]);
        users::kafka(&secured, json!({"take": group})).await;
        let started = secured.start("blind", &secured.instance());
        let told = || {
            let log = text(&started.log);
            log.contains("the group's member may not read") && log.contains("grant Read on it")
        };
        clock::until("it says what it lacks", 30, told).await;
        users::kafka(&secured, json!({"grant": group})).await;
        clock::until_async("it reads", 60, || async { started.shards_owned().await == 8 }).await;
        assert!(started.stop().await.success());
    })
    .await;
}
