//! Ends that wait for a start to go along with, and those that do not.

use std::sync::Arc;

use super::rig::Rig;
use super::running::state;
use crate::engine::{CallEnd, Input};
use crate::model::{Fact, FactRow, Outcome, Row, TaskState, limits};

/// The rows of what is sent within so many milliseconds, by request.
fn sent_within(rig: &mut Rig, ms: u64) -> Vec<Arc<[Row]>> {
    rig.held_writes = Some(Vec::new());
    rig.run(ms);
    rig.held_writes.take().unwrap_or_default().into_iter().map(|(_, rows)| rows).collect()
}

#[test]
fn an_end_that_nobody_waits_for_goes_along_with_the_next_start() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("r", "b", 10);
    let first = rig.end_call(CallEnd::of(Outcome::Succeeded)).place;
    rig.run(9);
    assert_eq!(state(&rig, first), TaskState::Running, "it waits");
    let sent = sent_within(&mut rig, 1);
    let is_both = |rows: &[Row]| {
        matches!(
            rows,
            [
                Row::Fact(FactRow { fact: Fact::Ended(_), .. }),
                Row::Fact(FactRow { fact: Fact::Started(_), .. })
            ]
        )
    };
    assert!(sent.len() == 1 && is_both(&sent[0]), "{sent:?}");
}

#[test]
fn an_end_waits_for_a_start_that_does_not_come_no_longer_than_it_may() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("r", "b", 10);
    rig.no_slots = true;
    let first = rig.end_call(CallEnd::of(Outcome::Succeeded)).place;
    rig.run(12);
    assert_eq!(state(&rig, first), TaskState::Running);
    rig.run(1);
    assert_eq!(state(&rig, first), TaskState::Succeeded);
}

#[test]
fn an_end_goes_at_once_where_no_start_is_near_or_somebody_waits_for_it() {
    let is_on_record = |other: &[(&str, i64)], outcome| {
        let mut rig = Rig::running();
        rig.schedule("q", "a", 0);
        for (queue, ms) in other {
            rig.schedule(queue, "b", *ms);
        }
        let first = rig.end_call(CallEnd::of(outcome)).place;
        rig.facts[&first].iter().any(|fact| matches!(fact, Fact::Ended(_)))
    };
    let near = limits::ENDS_WAIT_MS as i64 - 3;
    assert!(!is_on_record(&[("r", near)], Outcome::Succeeded));
    assert!(!is_on_record(&[("r", near), ("q", near + 10)], Outcome::Succeeded), "it is on record by then");
    assert!(is_on_record(&[("r", near + 1)], Outcome::Succeeded), "none is near");
    assert!(is_on_record(&[], Outcome::Succeeded), "none is known");
    assert!(is_on_record(&[("q", near)], Outcome::Succeeded), "the next of its queue would wait");
    assert!(
        is_on_record(&[("r", 5), ("q", 8)], Outcome::Succeeded),
        "it would wait for the other's start too"
    );
    assert!(is_on_record(&[("q", 0), ("r", near)], Outcome::Succeeded), "the next of its queue waits");
    assert!(is_on_record(&[("r", near)], Outcome::Retryable), "its next try is not known before");
}

#[test]
fn an_end_that_waits_goes_when_the_next_task_of_its_queue_comes() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("r", "b", 15);
    let first = rig.end_call(CallEnd::of(Outcome::Succeeded)).place;
    assert_eq!(state(&rig, first), TaskState::Running);
    rig.schedule("q", "c", 0);
    assert_eq!(state(&rig, first), TaskState::Succeeded);
    assert_eq!(rig.called(), ["c"]);
}

#[test]
fn who_may_start_nothing_holds_no_end_back() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("r", "b", 15);
    let first = rig.end_call(CallEnd::of(Outcome::Succeeded)).place;
    assert_eq!(state(&rig, first), TaskState::Running);
    rig.give(Input::Revoked);
    assert_eq!(state(&rig, first), TaskState::Succeeded);
}

#[test]
fn who_runs_on_without_the_group_holds_no_end_back() {
    let mut rig = Rig::running();
    rig.runs_on();
    rig.take_over(2);
    rig.schedule("q", "a", 0);
    rig.schedule("r", "b", 15);
    rig.give(Input::Revoked);
    assert_eq!(rig.called(), ["a"], "it runs on");
    let first = rig.end_call(CallEnd::of(Outcome::Succeeded)).place;
    assert_eq!(state(&rig, first), TaskState::Succeeded);
}
