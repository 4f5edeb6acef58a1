//! How attempts are told.

use std::sync::Arc;

use super::attempts;
use crate::model::{Ended, Epoch, Fact, FactRow, Generation, Outcome, Place, Shard, Started, Version, Wall};

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
