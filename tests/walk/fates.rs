//! Every way in which a task can go, as a table: what is asked, what becomes of it, and what is told of it, in this order. Each
//! is on record, in the list of its state and in the metrics; where task events are published, they are those of the table.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Place, all, outcomes};

/// Of its queue, `fate-<name>`, it is the only task.
pub(crate) struct Fate {
    pub(crate) name: &'static str,
    handler: &'static str,
    /// More of the task, as JSON; `IN 6 S` stands for that time.
    task: &'static str,
    then: Then,
    /// The state in which it stays.
    state: &'static str,
    /// Each event's kind, then outcome and reason where it has them.
    pub(crate) told: &'static [&'static str],
}

/// What is asked further.
enum Then {
    Nothing,
    /// Once the task is in this state, this of it, with this body.
    In(&'static str, &'static str, &'static str),
    /// The task again with this instead, which is decided so.
    Again(&'static str, &'static str),
}

const TWICE: &str = r#"{"retry":{"max_attempts":2,"initial":"100ms","jitter":0},"payload":{"mended":false}}"#;
const LATER: &str = r#"{"delay":"1h","payload":{"n":1}}"#;
const DONE: &str = "succeeded succeeded";

/// The fates.
pub(crate) const FATES: [Fate; 21] = [
    Fate {
        name: "succeeds",
        handler: "plain",
        task: "{}",
        then: Then::Nothing,
        state: "succeeded",
        told: &["scheduled", "started", DONE],
    },
    Fate {
        name: "fails-once",
        handler: "flaky",
        task: TWICE,
        then: Then::Nothing,
        state: "succeeded",
        told: &["scheduled", "started", "failed retryable", "started", DONE],
    },
    Fate {
        name: "waits-aside",
        handler: "flaky",
        task: r#"{"on_failure":"park"}"#,
        then: Then::Nothing,
        state: "succeeded",
        told: &["scheduled", "started", "parked retryable", "started", DONE],
    },
    Fate {
        name: "fails-again",
        handler: "heads",
        task: TWICE,
        then: Then::Nothing,
        state: "dead",
        told: &["scheduled", "started", "failed retryable", "started", "dead retryable exhausted"],
    },
    Fate {
        name: "hangs",
        handler: "hang",
        task: r#"{"timeout":"2s","retry":{"max_attempts":2}}"#,
        then: Then::Nothing,
        state: "dead",
        told: &["scheduled", "started", "failed timed_out", "started", "dead timed_out exhausted"],
    },
    Fate {
        name: "is-broken-off",
        handler: "hang",
        task: r#"{"timeout":"4s","retry":{"max_attempts":1}}"#,
        then: Then::In("running", "abort", "{}"),
        state: "dead",
        told: &["scheduled", "started", "failed aborted", "started", "dead timed_out exhausted"],
    },
    Fate {
        name: "is-fatal",
        handler: "fatal",
        task: "{}",
        then: Then::Nothing,
        state: "dead",
        told: &["scheduled", "started", "dead fatal fatal"],
    },
    Fate {
        name: "runs-again",
        handler: "letters",
        task: TWICE,
        then: Then::In("dead", "redrive", r#"{"payload":{"mended":true},"reason":"typo"}"#),
        state: "succeeded",
        told: &["scheduled", "started", "dead fatal fatal", "redriven typo", "started", DONE],
    },
    Fate {
        name: "snoozes",
        handler: "snooze",
        task: "{}",
        then: Then::Nothing,
        state: "succeeded",
        told: &["scheduled", "started", "failed snoozed", "started", DONE],
    },
    Fate {
        name: "snoozes-past-its-age",
        handler: "snooze",
        task: r#"{"retry":{"max_age":"500ms"}}"#,
        then: Then::Nothing,
        state: "dead",
        told: &["scheduled", "started", "dead snoozed exhausted"],
    },
    Fate {
        name: "is-cancelled",
        handler: "plain",
        task: LATER,
        then: Then::In("scheduled", "cancel", r#"{"reason":"not needed"}"#),
        state: "cancelled",
        told: &["scheduled", "cancelled not needed"],
    },
    Fate {
        name: "is-cancelled-between-tries",
        handler: "heads",
        task: r#"{"retry":{"max_attempts":2,"initial":"1h","max":"1h"}}"#,
        then: Then::In("retrying", "cancel", r#"{"reason":"given up"}"#),
        state: "cancelled",
        told: &["scheduled", "started", "failed retryable", "cancelled given up"],
    },
    Fate {
        name: "is-moved",
        handler: "plain",
        task: LATER,
        then: Then::In("scheduled", "run", r#"{"reason":"sooner"}"#),
        state: "succeeded",
        told: &["scheduled", "rescheduled sooner", "started", DONE],
    },
    Fate {
        name: "is-replaced",
        handler: "plain",
        task: LATER,
        then: Then::Again(r#"{"payload":{"n":2}}"#, "replaced"),
        state: "succeeded",
        told: &["scheduled", "replaced", "started", DONE],
    },
    Fate {
        name: "is-repeated",
        handler: "plain",
        task: LATER,
        then: Then::Again(LATER, "repeated"),
        state: "scheduled",
        told: &["scheduled"],
    },
    Fate {
        name: "is-kept",
        handler: "plain",
        task: LATER,
        then: Then::Again(r#"{"on_conflict":"keep"}"#, "kept"),
        state: "scheduled",
        told: &["scheduled"],
    },
    Fate {
        name: "is-not-replaced",
        handler: "plain",
        task: LATER,
        then: Then::Again(r#"{"on_conflict":"reject"}"#, "conflict"),
        state: "scheduled",
        told: &["scheduled"],
    },
    Fate {
        name: "expires",
        handler: "plain",
        task: r#"{"expires_at":"2020-01-01T00:00:00Z"}"#,
        then: Then::Nothing,
        state: "expired",
        told: &["scheduled", "expired expired"],
    },
    Fate {
        name: "expires-between-tries",
        handler: "nap",
        task: r#"{"expires_at":"IN 6 S"}"#,
        then: Then::Nothing,
        state: "expired",
        told: &["scheduled", "started", "failed snoozed", "expired expired"],
    },
    Fate {
        name: "is-skipped",
        handler: "plain",
        task: r#"{"due_at":"2020-01-01T00:00:00Z","misfire":"skip","misfire_grace":"1d"}"#,
        then: Then::Nothing,
        state: "skipped",
        told: &["scheduled", "skipped skipped"],
    },
    Fate {
        name: "is-dropped",
        handler: "plain",
        task: r#"{"collection":"dropped"}"#,
        then: Then::Nothing,
        state: "dropped",
        told: &["scheduled", "dropped dropped"],
    },
];

impl Fate {
    pub(crate) fn queue(&self) -> String {
        format!("fate-{}", self.name)
    }

    /// How its attempts end, and the last reason that is told.
    fn told_ends(&self) -> (Vec<&str>, Option<&str>) {
        let (mut ends, mut last) = (Vec::new(), None);
        for told in self.told {
            let (kind, mut rest) = told.split_once(' ').unwrap_or((told, ""));
            if ["failed", "parked", "succeeded", "dead"].contains(&kind) {
                let (outcome, reason) = rest.split_once(' ').unwrap_or((rest, ""));
                ends.push(outcome);
                rest = reason;
            }
            last = Some(rest).filter(|reason| !reason.is_empty());
        }
        (ends, last)
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// A task that has time on a slow machine, unless it says another.
fn more_of(task: &str) -> Value {
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(6);
    let mut task = parsed(&task.replace("IN 6 S", &soon.to_string()));
    task.as_object_mut().expect("an object").entry("timeout").or_insert(json!("5s"));
    task
}

/// Each fate of a task is on record with its attempts and its reason, is listed, and counts in the metrics as often as it
/// happened. Nothing else may go on at the place.
pub(crate) async fn every_fate_is_on_record_and_counted(place: &Place) {
    place.done("/v1/gates", json!({"collection": "dropped", "action": "drop"})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    futures::future::join_all(FATES.iter().map(|fate| meets(place, fate))).await;
    let mut closed = BTreeMap::from([("interrupted", 0)]);
    for told in FATES.iter().flat_map(|fate| fate.told) {
        let (kind, last) = (told.split(' ').next(), told.rsplit(' ').next().expect("a word"));
        match kind.expect("a word") {
            "dead" => *closed.entry(last).or_default() += 1,
            kind @ ("cancelled" | "replaced" | "rescheduled" | "expired" | "skipped" | "dropped") => {
                *closed.entry(kind).or_default() += 1;
            }
            _ => {}
        }
    }
    for (reason, wanted) in closed {
        place.counted(&format!("dueline_closed_total{{reason=\"{reason}\"}}"), wanted).await;
    }
    place.counted("dueline_events_repeated_total", 1).await;
    place.counted("dueline_events_rejected_total{reason=\"conflict\"}", 1).await;
}

async fn meets(place: &Place, fate: &Fate) {
    let queue = fate.queue();
    let path = format!("/v1/tasks/{queue}/t");
    place.schedule(&queue, "t", fate.handler, more_of(fate.task)).await;
    match fate.then {
        Then::Nothing => {}
        Then::In(state, what, body) => {
            place.task_in(state, &queue, "t").await;
            place.done(&format!("{path}/{what}"), parsed(body)).await;
        }
        Then::Again(task, decided) => {
            let mut again = json!({"queue": queue, "id": "t", "handler": fate.handler});
            again.as_object_mut().expect("an object").extend(more_of(task).as_object().expect("one").clone());
            place.post("/v1/tasks", again).await;
            place.until(&path, |task| all(&task["events"], "decision").contains(&decided)).await;
        }
    }
    let task = place.task_in(fate.state, &queue, "t").await;
    is_on_record(place, fate, &task).await;
}

async fn is_on_record(place: &Place, fate: &Fate, task: &Value) {
    let (ends, reason) = fate.told_ends();
    let earlier = task["earlier"].as_array().cloned().unwrap_or_default();
    let before = earlier.iter().rev().flat_map(outcomes);
    let found: Vec<&str> = before.chain(outcomes(task)).collect();
    assert_eq!(found, ends, "{}: {task}", fate.name);
    if !["succeeded", "scheduled"].contains(&fate.state) {
        assert_eq!(task["reason"].as_str(), reason, "{}: {task}", fate.name);
    }
    let listed = async |state: &str| {
        let page = place.get(&format!("/v1/tasks?queue={}&state={state}", fate.queue())).await;
        all(&page["tasks"], "id").len()
    };
    assert_eq!(listed(fate.state).await, 1, "{} is listed as {}", fate.name, fate.state);
    let is_put_aside =
        |told: &&&str| ["replaced", "rescheduled", "redriven"].iter().any(|kind| told.starts_with(kind));
    let put_aside = fate.told.iter().filter(is_put_aside).count();
    assert_eq!((listed("replaced").await, earlier.len()), (put_aside, put_aside), "{}: {task}", fate.name);
}
