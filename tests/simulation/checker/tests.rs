//! One bad history for each rule, made by hand: a checker that finds nothing is not a checker.

use std::sync::Arc;

use dueline::model::{
    AttemptToken, Current, Decision, Epoch, EventRow, Generation, Outcome, Place, QueueName, Shard, TaskId,
    TaskKey, Version, Wall,
};

use super::check;
use crate::ledger::{Answered, Append, Asked, BASE, Call, Ledger, PlaceHistory};

const SHARD: Shard = Shard(0);

fn key(id: &str) -> TaskKey {
    TaskKey { queue: QueueName::new("q").expect("a name"), id: TaskId::new(id).expect("a name") }
}

/// A call from `at` to `at + 100` that succeeds.
fn call(version: u64, at: u64, seq: u64) -> Call {
    Call {
        shard: SHARD,
        sent: at,
        arrived: at,
        key: key(&format!("t{version}")),
        version: Version(version),
        due: 1_000,
        ready: 1_000,
        payload: version,
        token: AttemptToken { generation: Generation(0), epoch: Epoch(1), sequence: seq },
        attempt: 1,
        max_attempts: 3,
        deadline: at as i64 + 5_000,
        says_previous: false,
        refused: false,
        ended: Some((at + 100, Outcome::Succeeded)),
        broken_off: false,
    }
}

fn place(version: u64) -> Place {
    Place { ready_at: Wall(BASE + 1_000), version: Version(version) }
}

fn answer(version: u64, at: u64, decision: Decision, target: u64) -> Answered {
    let current = Current {
        place: place(target),
        due_at: Wall(BASE + 1_000),
        content_hash: [0; 16],
        appended: Wall(BASE),
        cancelled: decision == Decision::Cancelled,
    };
    let row = EventRow {
        key: key(&format!("t{target}")),
        version: Version(version),
        epoch: Epoch(1),
        shard: SHARD,
        verb: Arc::from("schedule"),
        content_hash: [0; 16],
        event_id_hash: None,
        appended: Wall(BASE),
        decision,
        current: Some(current),
        cancel_remembered: None,
        reason: None,
    };
    Answered { at, row }
}

fn append(offset: u64, at: u64, asked: Asked) -> Append {
    let payload = (asked == Asked::Schedule).then_some(offset);
    Append { at, shard: SHARD, offset, asked, payload, origin: None, misplaced: false }
}

/// Two tasks of a queue that were scheduled, called one after the other and finished.
fn good() -> Ledger {
    let mut ledger = Ledger::default();
    for (version, at) in [(1, 1_000), (2, 1_200)] {
        ledger.appends.push(append(version, 10, Asked::Schedule));
        ledger.answers.insert((SHARD, Version(version)), answer(version, 20, Decision::Scheduled, version));
        let history = PlaceHistory {
            turns: vec![(20, false), (at + 110, true)],
            starts: [((1, version), BASE + at as i64)].into(),
            ..PlaceHistory::default()
        };
        ledger.places.insert((SHARD, place(version)), history);
        ledger.calls.push(call(version, at, version));
    }
    ledger.applied.insert(SHARD, vec![(30, 3)]);
    ledger.bumps.insert((SHARD, 1), 0);
    ledger.loads.insert((SHARD, 1), 1);
    ledger
}

fn finds(rule: &str, spoil: impl FnOnce(&mut Ledger)) {
    let mut ledger = good();
    spoil(&mut ledger);
    let wrongs = check(&ledger, true).wrongs;
    assert!(wrongs.iter().any(|wrong| wrong.starts_with(rule)), "{rule}: found {wrongs:#?}");
}

fn history(ledger: &mut Ledger, version: u64) -> &mut PlaceHistory {
    ledger.places.entry((SHARD, place(version))).or_default()
}

fn stop(ledger: &mut Ledger, decision: Decision, at: u64) {
    ledger.appends.push(append(3, at - 5, Asked::Cancel));
    let row = answer(3, at, decision, 2);
    ledger.answers.insert((SHARD, Version(3)), row);
}

#[test]
fn a_good_history_has_no_wrongs() {
    let verdict = check(&good(), true);
    assert_eq!(verdict.wrongs, Vec::<String>::new());
    assert_eq!(verdict.checked, 2);
}

#[test]
fn a_lost_task_is_found() {
    finds("accepted and never run", |ledger| {
        ledger.calls.pop();
    });
    finds("not finished at the end", |ledger| history(ledger, 2).turns.truncate(1));
    finds("given up too early", |ledger| {
        ledger.calls[1].ended = Some((1_300, Outcome::Retryable));
    });
}

#[test]
fn a_phantom_is_found() {
    finds("nobody asked for this run", |ledger| ledger.calls[1].version = Version(9));
    finds("the payload is not the one asked for", |ledger| ledger.calls[1].payload = 77);
}

#[test]
fn a_run_after_an_effective_cancel_is_found() {
    finds("ran though it was stopped", |ledger| stop(ledger, Decision::Cancelled, 1_100));
}

#[test]
fn a_cancel_from_before_an_owner_that_lost_is_found() {
    finds("ran though it was stopped before its owner came", |ledger| {
        stop(ledger, Decision::Cancelled, 1_900);
        ledger.appends[2].at = 50;
        ledger.bumps.insert((SHARD, 1), 60);
    });
}

#[test]
fn too_late_for_what_never_started_is_found() {
    finds("too late, but it never started", |ledger| {
        stop(ledger, Decision::TooLate, 500);
        history(ledger, 2).starts.clear();
    });
}

#[test]
fn two_calls_at_once_are_found() {
    finds("two calls of a queue at once", |ledger| ledger.calls[0].ended = Some((1_900, Outcome::Succeeded)));
}

#[test]
fn an_overtaken_task_is_found() {
    finds("an earlier task of the queue was overtaken", |ledger| {
        history(ledger, 1).turns[1].0 = 1_900;
    });
}

#[test]
fn an_early_call_is_found() {
    finds("called before it was due", |ledger| {
        ledger.calls[0].arrived = 900;
    });
}

#[test]
fn a_falling_token_is_found() {
    finds("tokens fell within a queue", |ledger| ledger.calls[1].token.sequence = 0);
}

#[test]
fn a_refusal_within_an_epoch_is_found() {
    finds("tokens fell within a queue", |ledger| {
        ledger.calls[1].token.sequence = 0;
        ledger.calls[1].refused = true;
    });
}

#[test]
fn a_call_of_an_owner_that_was_replaced_is_found() {
    finds("sent after the next owner had read", |ledger| {
        ledger.loads.insert((SHARD, 2), 1_100);
    });
}

#[test]
fn a_second_run_for_no_reason_is_found() {
    finds("ran again for no reason", |ledger| {
        let again = Call { attempt: 2, says_previous: true, ..call(2, 1_500, 3) };
        ledger.calls.push(again);
    });
}

#[test]
fn a_run_of_what_was_finished_is_found() {
    finds("ran though it was finished", |ledger| {
        ledger.loads.insert((SHARD, 1), 1_000);
        history(ledger, 2).turns = vec![(20, false), (900, true)];
    });
}

#[test]
fn an_attempt_too_many_is_found() {
    finds("tried more often than allowed", |ledger| {
        for n in 0..4 {
            let ended = Some((3_100 + 1_000 * n, Outcome::Retryable));
            ledger.calls.push(Call { ended, says_previous: true, ..call(2, 3_000 + 1_000 * n, 3 + n) });
        }
    });
}

#[test]
fn a_repeat_that_does_not_say_so_is_found() {
    finds("a repeat does not say so", |ledger| {
        ledger.calls[1].ended = Some((1_300, Outcome::Retryable));
        ledger.calls.push(Call { attempt: 2, ..call(2, 3_000, 3) });
    });
}

#[test]
fn a_record_without_an_answer_is_found() {
    finds("a record was not answered", |ledger| ledger.appends.push(append(7, 40, Asked::Garbage)));
    finds("a record was not answered", |ledger| ledger.appends.push(append(8, 40, Asked::Cancel)));
}

#[test]
fn a_forwarded_record_that_counts_twice_is_found() {
    finds("a forwarded record counted twice", |ledger| {
        let lost = Append { shard: Shard(1), misplaced: true, ..append(5, 5, Asked::Schedule) };
        ledger.appends.push(lost);
        ledger.appends[0].origin = Some((Shard(1), 5));
        ledger.appends[1].origin = Some((Shard(1), 5));
    });
}

#[test]
fn what_the_store_saw_go_wrong_is_passed_on() {
    finds("applied went back", |ledger| ledger.wrongs.push("applied went back: 3 became 2".into()));
}
