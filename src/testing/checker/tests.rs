//! One good history, and for each rule bad ones made from it by hand: a checker that finds nothing is not a checker.

use super::{Report, Rule, Slack, check};
use crate::testing::history::{
    Answered, Asked, Asks, Begun, Called, Decided, End, Fault, Finished, Halted, Held, History, Left, Owned,
    Reached, Rested,
};

mod backlog;
mod black_box;

const SHARD: u32 = 0;

fn payload(version: u64) -> String {
    format!("p{version}")
}

fn asked(offset: u64, at: i64, asks: Asks) -> Asked {
    let id = Some(format!("t{offset}"));
    let (queue, shard, offset) = (Some("q".into()), Some(SHARD), Some(offset));
    let (handed, origin, misplaced) = (None, None, false);
    Asked { shard, offset, appended: at, handed, acked: at + 1, queue, id, asks, origin, misplaced }
}

fn schedule(version: u64) -> Asks {
    Asks::Schedule { due: Some(1_000), payload: payload(version), may_lapse: false }
}

/// A call from `at` to `at + 100` that succeeds.
fn called(version: u64, at: i64, sequence: u64) -> Called {
    Called {
        shard: SHARD,
        version: Some(version),
        decided: Some(at - 5),
        sent: Some(at - 1),
        arrived: at,
        ended: Some((at + 100, End::Succeeded)),
        queue: "q".into(),
        id: format!("t{version}"),
        due: 1_000,
        ready: Some(1_000),
        deadline: at + 5_000,
        token: [0, 1, sequence],
        attempt: 1,
        max_attempts: Some(3),
        previous: None,
        payload: payload(version),
        refused: false,
        broken_off: false,
        parks: false,
    }
}

fn again(version: u64, at: i64, sequence: u64, attempt: u32) -> Called {
    Called { attempt, previous: Some("retryable".into()), ..called(version, at, sequence) }
}

fn answered(offset: u64, at: i64, decided: Decided, current: u64) -> Answered {
    let (queue, id) = ("q".into(), format!("t{current}"));
    Answered {
        at,
        shard: SHARD,
        offset,
        queue,
        id,
        decided,
        current: Some(current),
        due: 1_000,
        ready: 1_000,
    }
}

fn owned(epoch: u64, at: i64, read: i64) -> Owned {
    Owned { shard: SHARD, epoch, owner: format!("o{epoch}"), at, read: Some(read) }
}

fn reached(at: i64, applied: u64, watermark: i64, committed: u64) -> Reached {
    let (applied, watermark, committed) = (Some(applied), Some(watermark), Some(committed));
    Reached { at, shard: SHARD, applied, watermark, committed }
}

/// Two tasks of a queue that were scheduled, called one after the other and finished.
fn good() -> History {
    let mut history = History::default();
    for (version, at) in [(1, 1_000), (2, 1_200)] {
        history.asked.push(asked(version, 10, schedule(version)));
        history.answered.push(answered(version, 20, Decided::Scheduled, version));
        history.begun.push(Begun { at, shard: SHARD, version, epoch: 1, sequence: version });
        let from = at + 110;
        history.finished.push(Finished { shard: SHARD, version, from, to: None, closed: false });
        history.called.push(called(version, at, version));
        let (ready, watermark) = (1_000, 2_000);
        history.left.push(Left { shard: SHARD, version, ready, watermark, finished: true });
    }
    history.reached.extend([reached(30, 3, 0, 0), reached(40, 3, 900, 3)]);
    history.owned.push(owned(1, 0, 1));
    history.held.push(Held { at: 100, shard: SHARD, tasks: 2, tasks_max: 10 });
    history.rested.push(Rested { shard: SHARD, healed: 2_000, owned: Some(2_000), caught_up: Some(2_500) });
    history
}

fn judged(spoil: impl FnOnce(&mut History)) -> Report {
    let mut history = good();
    spoil(&mut history);
    check(&history, &Slack::default())
}

/// A history spoilt in one way breaks this rule in these words.
fn finds(rule: Rule, what: &str, spoil: impl FnOnce(&mut History)) {
    let report = judged(spoil);
    let found = report.wrongs.iter().any(|wrong| wrong.rule == rule && wrong.what.starts_with(what));
    assert!(found, "{rule:?}, {what}: found {:#?}", report.wrongs);
}

fn stop(history: &mut History, decided: Decided, at: i64) {
    history.asked.push(asked(3, at - 5, Asks::Cancel));
    history.answered.push(answered(3, at, decided, 2));
}

#[test]
fn a_good_history_has_no_wrongs_and_every_rule_had_something_to_go_by() {
    let report = judged(|history| stop(history, Decided::TooLate, 5_000));
    assert_eq!(report.wrongs, []);
    let with_stop = [Rule::StoppedStaysStopped, Rule::DuplicatesExplained];
    for rule in Rule::ALL.into_iter().filter(|rule| !with_stop.contains(rule)) {
        assert!(report.checked.contains_key(&rule), "{rule:?} checked nothing");
    }
}

#[test]
fn a_history_is_the_same_after_it_was_written_and_read() {
    let mut bytes = Vec::new();
    good().write(&mut bytes).expect("memory takes it");
    let mut read = History::default();
    read.read(bytes.as_slice()).expect("it reads");
    assert_eq!(read, good());
}

#[test]
fn a_lost_task_is_found() {
    finds(Rule::NothingLost, "accepted and never run", |history| {
        history.called.pop();
    });
    finds(Rule::NothingLost, "given up too early", |history| {
        history.called[1].ended = Some((1_300, End::Failed));
    });
}

#[test]
fn a_last_attempt_whose_call_never_arrived_is_one_all_the_same() {
    for (attempts, lost) in [(2, 0), (3, 1)] {
        let report = judged(|history| {
            history.called[1].ended = Some((1_300, End::Failed));
            history.called[1].max_attempts = Some(attempts);
            history.begun.push(Begun { at: 1_400, shard: SHARD, version: 2, epoch: 1, sequence: 3 });
        });
        assert_eq!(report.violations(Rule::NothingLost), lost, "{attempts} attempts in all");
    }
}

#[test]
fn what_the_store_holds_unfinished_at_the_end_is_found() {
    finds(Rule::NothingUnfinished, "unfinished below the watermark", |history| {
        history.left[1].finished = false;
    });
    finds(Rule::NothingUnfinished, "unfinished at the end", |history| {
        history.left[1] = Left { ready: 9_000, finished: false, ..history.left[1] };
    });
}

#[test]
fn a_run_of_an_event_that_was_refused_is_found() {
    finds(Rule::NoPhantom, "ran though its event made no task", |history| {
        history.answered[1] = answered(2, 20, Decided::Refused, 1);
    });
}

#[test]
fn a_phantom_is_found() {
    finds(Rule::NoPhantom, "nobody asked for this run", |history| history.called[1].version = Some(9));
    finds(Rule::NoPhantom, "the payload is not the one", |history| history.called[1].payload = payload(7));
}

#[test]
fn a_run_after_an_effective_cancel_is_found() {
    finds(Rule::StoppedStaysStopped, "ran though it was stopped", |history| {
        stop(history, Decided::Cancelled, 1_100);
    });
}

#[test]
fn a_cancel_from_before_an_owner_that_lost_is_found() {
    finds(Rule::StoppedStaysStopped, "ran though it was stopped before its owner came", |history| {
        stop(history, Decided::Cancelled, 1_900);
        history.asked[2].appended = 50;
        history.owned[0].at = 60;
    });
    let excused = judged(|history| {
        stop(history, Decided::Cancelled, 1_900);
        history.asked[2].appended = 50;
        history.owned[0].at = 60;
        history.faults.push(Fault { what: "log away".into(), from: 55, to: 1_950 });
    });
    assert_eq!(excused.violations(Rule::StoppedStaysStopped), 0);
}

#[test]
fn a_cancel_that_an_owner_could_have_read_before_its_first_run_is_found_whatever_it_says_of_it() {
    let what = "ran though a cancel lay in the log before its owner came";
    finds(Rule::StoppedStaysStopped, what, |history| {
        stop(history, Decided::TooLate, 1_900);
        history.asked[2].appended = 50;
        history.owned[0].at = 60;
    });
}

#[test]
fn too_late_for_what_never_started_is_found() {
    finds(Rule::AnswersTrue, "too late, but it never started", |history| {
        stop(history, Decided::TooLate, 500);
        history.begun.pop();
    });
}

#[test]
fn two_calls_at_once_are_found() {
    finds(Rule::NoOverlap, "two calls of a queue at once", |history| {
        history.called[0].ended = Some((1_900, End::Succeeded));
    });
    finds(Rule::NoOverlap, "two calls of a queue at once", |history| history.called[0].ended = None);
}

#[test]
fn an_overtaken_task_is_found() {
    finds(Rule::InOrder, "an earlier task of the queue was overtaken", |history| {
        history.called[0] = called(1, 1_600, 3);
    });
}

#[test]
fn a_task_that_came_after_the_start_overtakes_nothing() {
    let report = judged(|history| {
        history.called[0] = called(1, 1_600, 3);
        history.reached[0].at = 1_190;
    });
    assert_eq!(report.violations(Rule::InOrder), 0);
}

#[test]
fn an_early_call_is_found() {
    finds(Rule::NeverEarly, "called before it was due", |history| history.called[0].arrived = 900);
}

#[test]
fn a_falling_token_is_found() {
    finds(Rule::TokensNeverFall, "tokens fell within a queue", |history| history.called[1].token[2] = 0);
    finds(Rule::TokensNeverFall, "tokens fell within a queue", |history| {
        history.called[1].token[2] = 0;
        history.called[1].refused = true;
    });
}

#[test]
fn a_call_on_its_way_past_its_deadline_by_its_owners_clock_may_be_refused() {
    for (left_ms, violations) in [(49, 0), (51, 1)] {
        let report = judged(|history| {
            history.called[1].token[2] = 0;
            history.called[1].refused = true;
            history.called[1].deadline = history.called[1].arrived + left_ms;
        });
        assert_eq!(report.violations(Rule::TokensNeverFall), violations, "{left_ms} ms before it");
    }
}

#[test]
fn an_epoch_with_two_owners_and_one_that_falls_are_found() {
    finds(Rule::EpochsRise, "two owners of one epoch", |history| {
        history.owned.push(Owned { owner: "other".into(), ..owned(1, 5, 6) });
    });
    finds(Rule::EpochsRise, "an epoch began before the one below it", |history| {
        history.owned.push(owned(2, -5, 3_000));
    });
}

#[test]
fn a_call_of_an_owner_that_was_replaced_is_found() {
    finds(Rule::EpochsRise, "sent after the next owner had read", |history| {
        history.owned.push(owned(2, 1_050, 1_100));
    });
}

#[test]
fn a_second_run_for_no_reason_is_found() {
    finds(Rule::DuplicatesExplained, "ran again for no reason", |history| {
        history.called.push(again(2, 1_500, 3, 2));
    });
}

#[test]
fn an_end_that_its_owner_could_not_hear_of_explains_a_second_run_and_another_one_does_not() {
    let halted = |from: i64, to: i64, epoch: u64| {
        judged(|history| {
            history.called.push(again(2, 1_500, 3, 2));
            history.halted.push(Halted { shard: SHARD, epoch, from, to });
        })
    };
    let report = halted(1_250, 1_400, 1);
    assert_eq!(report.duplicates.get("owner stood still"), Some(&1), "the handler ended at 1300: {report:?}");
    for (from, to, epoch) in [(1_000, 1_200, 1), (1_400, 1_600, 1), (1_250, 1_400, 2)] {
        let report = halted(from, to, epoch);
        let found = report.wrongs.iter().any(|wrong| wrong.what.starts_with("ran again for no reason"));
        assert!(found, "{from} to {to}, epoch {epoch}");
    }
}

#[test]
fn who_waited_for_a_lost_owners_deadline_and_overlooked_its_end_is_found() {
    let runs_again = |recorded: i64, decided: i64| {
        judged(|history| {
            history.finished[1].from = recorded;
            let token = [0, 2, 3];
            history.called.push(Called { token, decided: Some(decided), ..again(2, decided, 3, 2) });
        })
    };
    let deadline = good().called[1].deadline;
    let found =
        |report: &Report| report.wrongs.iter().any(|wrong| wrong.what.starts_with("ran again for no reason"));
    assert!(found(&runs_again(deadline - 1_000, deadline + 1_000)));
    assert!(!found(&runs_again(deadline + 10, deadline + 1_000)), "the end came too late to be seen");
    assert!(!found(&runs_again(deadline - 1_000, deadline - 10)), "nobody waited");
    assert!(!found(&runs_again(1_000, deadline + 1_000)), "the end of an attempt before");
}

#[test]
fn a_run_of_what_was_finished_is_found() {
    finds(Rule::DuplicatesExplained, "ran though it was finished", |history| {
        history.owned[0].read = Some(1_000);
        history.finished[1].from = 900;
    });
}

#[test]
fn an_attempt_too_many_is_found() {
    finds(Rule::DuplicatesExplained, "tried more often than allowed", |history| {
        for n in 0..4 {
            let at = 3_000 + 1_000 * n;
            let ended = Some((at + 100, End::Failed));
            history.called.push(Called { ended, ..again(2, at, 3 + n as u64, 2 + n as u32) });
        }
    });
}

#[test]
fn a_repeat_that_does_not_say_so_and_one_that_does_not_count_are_found() {
    let failed = |history: &mut History| history.called[1].ended = Some((1_300, End::Failed));
    finds(Rule::DuplicatesExplained, "a repeat does not say so", |history| {
        failed(history);
        history.called.push(Called { attempt: 2, ..called(2, 3_000, 3) });
    });
    finds(Rule::DuplicatesExplained, "an attempt was not counted", |history| {
        failed(history);
        history.called.push(again(2, 3_000, 3, 1));
    });
}

#[test]
fn a_record_without_an_answer_is_found() {
    finds(Rule::RecordsAnswered, "a record was not answered", |history| {
        history.asked.push(asked(7, 40, Asks::Nonsense));
    });
    finds(Rule::RecordsAnswered, "a record was not answered", |history| {
        history.asked.push(asked(8, 40, Asks::Cancel));
    });
}

#[test]
fn a_forwarded_record_that_counts_twice_is_found() {
    finds(Rule::RecordsAnswered, "a forwarded record counted twice", |history| {
        let lost = Asked { shard: Some(1), misplaced: true, ..asked(5, 5, schedule(5)) };
        history.asked.push(lost);
        history.asked[0].origin = Some((1, 5));
        history.asked[1].origin = Some((1, 5));
    });
}

#[test]
fn offsets_that_go_back_are_found() {
    let line = |history: &mut History, line| history.reached.push(line);
    finds(Rule::OffsetsNeverGoBack, "applied went back", |history| line(history, reached(50, 2, 900, 3)));
    finds(Rule::OffsetsNeverGoBack, "the watermark went back", |history| {
        line(history, reached(50, 3, 800, 3))
    });
    finds(Rule::OffsetsNeverGoBack, "the commit went back", |history| line(history, reached(50, 3, 900, 2)));
    finds(Rule::OffsetsNeverGoBack, "committed before it was applied", |history| {
        line(history, reached(50, 3, 900, 4));
    });
}

#[test]
fn a_queue_that_waits_for_another_is_found() {
    finds(Rule::QueuesIndependent, "waited for nothing in its queue", |history| {
        history.called[1] = called(2, 200_000, 2);
    });
    let excused = judged(|history| {
        history.called[1] = called(2, 200_000, 2);
        history.faults.push(Fault { what: "crash".into(), from: 500, to: 150_000 });
    });
    assert_eq!(excused.violations(Rule::QueuesIndependent), 0);
}

#[test]
fn memory_above_its_bound_is_found() {
    finds(Rule::MemoryBounded, "more tasks in memory than the bound", |history| history.held[0].tasks = 11);
}

#[test]
fn a_shard_that_does_not_come_to_rest_is_found() {
    finds(Rule::ComesToRest, "a shard has no running owner", |history| history.rested[0].owned = None);
    finds(Rule::ComesToRest, "a shard does not catch up", |history| {
        history.rested[0].caught_up = Some(70_000);
    });
}

#[test]
fn what_was_seen_go_wrong_is_passed_on() {
    finds(Rule::NeverSeen, "seen", |history| history.wrongs.push("a row changed".into()));
}
