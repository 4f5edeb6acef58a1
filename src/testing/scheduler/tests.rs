//! The virtual clock does what the product would do.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::TestScheduler;
use crate::dispatch::in_process::{Context, Done, Failure};
use crate::model::{Decision, Gate, Outcome, QueueName, Target, TaskState};

const START: &str = "2026-11-21T09:00:00Z";

async fn ok(_: Context) -> Result<Done, Failure> {
    Ok(Done::Succeeded)
}

fn event(queue: &str, id: &str, rest: &str) -> String {
    format!(r#"{{"type":"schedule","queue":"{queue}","id":"{id}","handler":"h","payload":{{}}{rest}}}"#)
}

fn days(days: u64) -> Duration {
    Duration::from_secs(days * 86_400)
}

#[tokio::test]
async fn years_pass_and_everything_runs_at_its_time() {
    let mut dueline = TestScheduler::at(START).handler("h", ok);
    for day in [400, 1, 2_000, 30, 31] {
        let rest = format!(r#","delay":"P{day}D""#);
        assert_eq!(dueline.send(&event("q", &format!("d{day}"), &rest)).await, Ok(Decision::Scheduled));
    }
    dueline.advance(days(29)).await;
    assert_eq!(dueline.succeeded(), ["d1"]);
    dueline.advance(days(2_000)).await;
    assert_eq!(dueline.succeeded(), ["d1", "d30", "d31", "d400", "d2000"]);
    let at: Vec<&str> = dueline.runs().iter().map(|run| &run.at[..19]).collect();
    assert_eq!(at[..2], ["2026-11-22T09:00:00", "2026-12-21T09:00:00"]);
}

#[tokio::test]
async fn a_queue_waits_for_its_head_and_others_do_not() {
    let fails = |context: Context| async move {
        let first = context.call.key.id.as_str() == "head" && context.call.attempt < 4;
        if first { Err(Failure::RetryAfter("busy".to_owned(), 3_600_000)) } else { Ok(Done::Succeeded) }
    };
    let mut dueline = TestScheduler::at(START).handler("h", fails);
    dueline.send(&event("q", "head", "")).await.unwrap();
    dueline.send(&event("q", "next", "")).await.unwrap();
    dueline.send(&event("other", "o", "")).await.unwrap();
    assert_eq!(dueline.succeeded(), ["o"]);
    dueline.advance(Duration::from_secs(4 * 3_600)).await;
    assert_eq!(dueline.succeeded(), ["o", "head", "next"]);
    assert_eq!(dueline.runs().iter().filter(|run| run.outcome == Outcome::Retryable).count(), 3);
}

#[tokio::test]
async fn a_death_stops_its_queue_until_the_gate_is_opened() {
    let dies = |context: Context| async move {
        if context.call.key.id.as_str() == "bad" {
            Err(Failure::Fatal("no".to_owned()))
        } else {
            ok(context).await
        }
    };
    let mut dueline = TestScheduler::at(START).handler("h", dies);
    dueline.send(&event("q", "bad", r#","on_dead":"stop""#)).await.unwrap();
    dueline.send(&event("q", "next", "")).await.unwrap();
    dueline.advance(days(1)).await;
    assert_eq!((dueline.state("q", "bad"), dueline.succeeded().len()), (Some(TaskState::Dead), 0));
    dueline.open(Target::Queue(QueueName::new("q").unwrap()), "on_dead").await;
    assert_eq!(dueline.succeeded(), ["next"]);
    let redrive = r#"{"type":"redrive","queue":"q","id":"bad"}"#;
    assert_eq!(dueline.send(redrive).await, Ok(Decision::Redriven));
}

#[tokio::test]
async fn a_gate_with_an_end_opens_by_itself() {
    let mut dueline = TestScheduler::at(START).handler("h", ok);
    let until = Some(dueline.wall().plus_ms(7_200_000));
    dueline.close(Gate { until, ..Gate::pause(Target::All, "night".into()) }).await;
    dueline.send(&event("q", "a", "")).await.unwrap();
    dueline.advance(Duration::from_secs(7_000)).await;
    assert_eq!(dueline.succeeded().len(), 0);
    dueline.advance_to("2026-11-21T11:05:00Z").await;
    assert_eq!(dueline.succeeded(), ["a"]);
}

#[tokio::test]
async fn mistakes_are_refused_by_name_and_large_payloads_arrive() {
    let large = "x".repeat(100_000);
    let size = |context: Context| async move { Done::json(&context.call.payload.len()) };
    let mut dueline = TestScheduler::at(START).handler("h", size);
    let refused = dueline.send(&event("q", "a", r#","delay":"-PT5S""#)).await.unwrap_err();
    assert!(refused.to_string().contains("delay"), "{refused}");
    assert!(dueline.send("{").await.is_err());
    let event = format!(r#"{{"type":"schedule","queue":"q","id":"big","handler":"h","payload":"{large}"}}"#);
    assert_eq!(dueline.send(&event).await, Ok(Decision::Scheduled));
    assert_eq!(dueline.send(&event).await, Ok(Decision::Repeated));
    assert_eq!(dueline.state("q", "big"), Some(TaskState::Succeeded));
    assert_eq!(dueline.state("q", "never"), None);
}
