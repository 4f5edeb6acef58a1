//! How attempts are told.

use std::sync::Arc;

use super::{EarlierView, attempts, task_view};
use crate::model::{
    CloseReason, Ended, Epoch, Fact, FactRow, Generation, HandlerName, MarkKind, Outcome, Payload, Place,
    QueueName, Shard, Started, TaskContent, TaskId, TaskKey, Version, Wall,
};

fn row(fact: Fact) -> FactRow {
    FactRow { shard: Shard(0), place: Place { ready_at: Wall(0), version: Version(1) }, fact }
}

fn started(epoch: u64, attempt: u32) -> FactRow {
    row(Fact::Started(Started {
        generation: Generation(0),
        epoch: Epoch(epoch),
        seq: 1,
        at: Wall(0),
        deadline: Wall(1),
        attempt,
        failures: 0,
        interruptions: 0,
        instance: Arc::from("i"),
    }))
}

fn ended(epoch: u64) -> FactRow {
    row(Fact::Ended(Ended {
        epoch: Epoch(epoch),
        seq: 1,
        at: Wall(1),
        outcome: Outcome::Succeeded,
        failures: 0,
        next_at: None,
        closed: None,
        result: None,
        result_cut: false,
        error: None,
    }))
}

#[track_caller]
fn check(rows: &[FactRow], is_running: bool, wanted: &[Option<&str>]) {
    let views = attempts(rows, is_running);
    let outcomes: Vec<Option<&str>> = views.iter().map(|view| view.outcome.as_deref()).collect();
    assert_eq!(outcomes, wanted);
}

#[test]
fn an_attempt_without_an_end_is_open_while_its_task_runs_and_was_interrupted_otherwise() {
    let lost = || started(1, 1);
    check(&[lost()], true, &[None]);
    check(&[lost()], false, &[Some("interrupted")]);
    check(&[lost(), started(2, 2)], true, &[Some("interrupted"), None]);
    check(&[started(2, 2), lost(), ended(2)], false, &[Some("interrupted"), Some("succeeded")]);
}

fn task() -> FactRow {
    let name = |text: &str| QueueName::new(text).expect("a name");
    let handler = HandlerName::new("h").expect("a name");
    row(Fact::Task {
        key: TaskKey { queue: name("q"), id: TaskId::new("a").expect("a name") },
        due_at: Wall(0),
        appended: Wall(0),
        content: Arc::new(TaskContent::new(handler, Payload::Inline(b"{}".as_slice().into()))),
    })
}

fn marked(mark: MarkKind) -> FactRow {
    row(Fact::Superseded { by: Version(2), epoch: Epoch(9), mark })
}

fn closed(epoch: u64, reason: CloseReason) -> FactRow {
    row(Fact::Closed { epoch: Epoch(epoch), seq: 7, at: Wall(5), reason })
}

fn dead() -> FactRow {
    let FactRow { fact: Fact::Ended(end), .. } = ended(1) else { unreachable!("an end") };
    row(Fact::Ended(Ended { outcome: Outcome::Fatal, closed: Some(CloseReason::Fatal), ..end }))
}

#[test]
fn what_an_id_stood_for_before_is_told_as_it_had_become() {
    let state = |rows: &[FactRow]| EarlierView::of(rows).expect("a task").state;
    assert_eq!(state(&[task(), started(1, 1), dead(), marked(MarkKind::Redriven)]), "dead");
    assert_eq!(state(&[task(), closed(1, CloseReason::Expired), marked(MarkKind::Redriven)]), "expired");
    assert_eq!(state(&[task(), marked(MarkKind::Rescheduled)]), "replaced");
    // An attempt of a lost owner was open: the closing says no more than that it is over.
    assert_eq!(
        state(&[task(), marked(MarkKind::Cancelled), closed(9, CloseReason::Interrupted)]),
        "cancelled"
    );
    assert_eq!(state(&[task(), started(1, 1), ended(1), marked(MarkKind::Redriven)]), "succeeded");
}

#[test]
fn a_closing_is_told_where_it_counts() {
    let told = |rows: &[FactRow]| task_view(rows).expect("a task").closed.map(|closed| closed.epoch);
    assert_eq!(told(&[task(), closed(3, CloseReason::Expired)]), Some(3));
    assert_eq!(told(&[task(), started(1, 1), dead()]), None, "it died of an attempt");
    assert_eq!(
        told(&[task(), started(4, 1), closed(3, CloseReason::Expired)]),
        None,
        "a later owner runs it"
    );
}

#[test]
fn a_result_that_was_cut_says_so_in_the_task_and_in_its_attempt() {
    for is_cut in [false, true] {
        let FactRow { fact: Fact::Ended(end), .. } = ended(1) else { unreachable!("an end") };
        let result = Some(b"{\"sent\":".as_slice().into());
        let end = row(Fact::Ended(Ended { result, result_cut: is_cut, ..end }));
        let view = task_view(&[task(), started(1, 1), end]).expect("a task");
        assert_eq!((view.result_cut, view.attempts[0].result_cut), (is_cut, is_cut));
        let told = serde_json::to_value(&view).expect("JSON");
        assert_eq!(told["result"], "{\"sent\":", "as text, since it is no JSON any more");
        let wanted = is_cut.then_some(&serde_json::Value::Bool(true));
        assert_eq!((told.get("result_cut"), told["attempts"][0].get("result_cut")), (wanted, wanted));
    }
}
