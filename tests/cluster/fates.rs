//! The fates of the walk on real servers: two instances, asked in turn, and what is told of each task on the events topic.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dueline::model::TaskEventKind;
use serde_json::{Value, json};

use crate::servers::Turn;
use crate::site::{Site, Wanted, on_site};
use crate::told::{Read, read};
use crate::topic;
use crate::walk::fates::{self, FATES};
use crate::walk::{Place, Sink, handlers};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fate_is_on_record_counted_and_told() {
    let sink = Sink::start().await;
    let more = handlers(&sink).leak();
    on_site(Wanted { more, ..Wanted::named("fates") }, Turn::Shared, |site| async move {
        let instances = site.settled(&["first", "second"]).await;
        let place = Place::new(instances.iter().map(|one| one.url.clone()).collect(), sink);
        fates::every_fate_is_on_record_and_counted(&place).await;
        let events = events(&site).await;
        let found = told(&events);
        for fate in &FATES {
            assert_eq!(found.get(&fate.queue()).map_or(&[][..], Vec::as_slice), fate.told, "{}", fate.name);
        }
        assert_eq!(found.len(), FATES.len(), "of nothing else: {found:?}");
        events.iter().for_each(is_complete);
        for kind in TaskEventKind::ALL.map(TaskEventKind::word) {
            let of_kind = events.iter().filter(|event| event.kind == kind).count();
            assert!(of_kind > 0, "{kind}");
            let series = format!("dueline_task_events_total{{event=\"{kind}\"}}");
            place.counted(&series, of_kind as u64).await;
        }
        let rejected = topic::read(&site, "rejected").await;
        let reasons: Vec<&str> = rejected.iter().map(|record| &*record.headers["dueline-reason"]).collect();
        assert_eq!(reasons, ["conflict"]);
    })
    .await;
}

/// What is published, once it is as much as the table has; each fits the schema, and a queue lies on one partition.
async fn events(site: &Site) -> Vec<Read> {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/events/task-event.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(schema).expect("a schema")).expect("JSON");
    let schema = jsonschema::options().should_validate_formats(true).build(&schema).expect("a schema");
    let wanted: usize = FATES.iter().map(|fate| fate.told.len()).sum();
    let begun = std::time::Instant::now();
    let records = loop {
        let records = topic::read(site, "events").await;
        let enough =
            told(&records.iter().map(read).collect::<Vec<_>>()).values().map(Vec::len).sum::<usize>();
        if enough >= wanted || begun.elapsed() > PATIENCE {
            break records;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let mut partitions = BTreeMap::<Vec<u8>, BTreeSet<i32>>::new();
    for record in &records {
        let value: Value = serde_json::from_slice(record.value.as_deref().expect("a value")).expect("JSON");
        let (subject, source) = (&record.headers["ce_subject"], &record.headers["ce_source"]);
        assert_eq!(value["id"], **subject);
        assert_eq!(*source, format!("/dueline/{}/shards/{}", site.unique, value["shard"]));
        let whole = json!({"headers": record.headers, "value": value});
        let errors: Vec<String> = schema.iter_errors(&whole).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{whole}: {errors:?}");
        partitions.entry(record.key.clone().expect("a key")).or_default().insert(record.partition);
    }
    assert!(partitions.values().all(|of| of.len() == 1), "{partitions:?}");
    records.iter().map(read).collect()
}

/// What is told of each queue, in its order, as the table writes it: without what came again, and without attempts that were
/// not called, which may be on a starved machine.
fn told(events: &[Read]) -> BTreeMap<String, Vec<String>> {
    let not_called = events.iter().filter(|event| event.data["outcome"] == "not_called");
    let not_called: BTreeSet<_> = not_called.map(attempt).collect();
    let mut seen = BTreeSet::new();
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for event in events.iter().filter(|event| !not_called.contains(&attempt(event)) && seen.insert(&event.id))
    {
        let words = [&event.kind, event.text("outcome"), event.text("reason")];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        found.entry(event.text("queue").to_owned()).or_default().push(words.join(" "));
    }
    found
}

/// Its queue, epoch and sequence.
fn attempt(event: &Read) -> (&str, Option<u64>, Option<u64>) {
    (event.text("queue"), event.data["epoch"].as_u64(), event.data["sequence"].as_u64())
}

/// What a kind has besides its outcome and reason.
fn is_complete(event: &Read) {
    let names: &[&str] = match &*event.kind {
        "started" => &["attempt", "deadline", "instance", "epoch", "sequence", "handler"],
        "failed" | "parked" => &["failures", "next_at", "epoch", "sequence", "handler"],
        "succeeded" | "dead" => &["failures", "epoch", "sequence", "handler"],
        "expired" | "skipped" | "dropped" => &["epoch", "sequence", "handler"],
        "scheduled" | "replaced" | "redriven" => &["handler"],
        "cancelled" | "rescheduled" => &[],
        kind => panic!("what is {kind}?"),
    };
    let is_there = |name: &&str| event.data.get(name).is_some();
    assert!(names.iter().all(is_there), "{}: {}", event.kind, event.data);
}
