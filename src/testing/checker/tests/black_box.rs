//! Histories of which only producers and handlers wrote: no answers, no versions, no epochs' beginnings.

use super::{Called, Fault, Halted, History, Rule, Slack, asked, called, check, schedule};
use crate::testing::history::{Asks, End, Told};

/// What handlers see of the calls, and producers of their records.
fn good() -> History {
    let mut history = History::default();
    for (version, at) in [(1, 20_000), (2, 20_200)] {
        let Asks::Schedule { payload, .. } = schedule(version) else { return history };
        let due = Some(19_000 + version as i64);
        let asks = Asks::Schedule { due, payload, may_lapse: false };
        history.asked.push(asked(version, 10, asks));
        history.called.push(seen(called(version, at, version)));
    }
    history
}

fn seen(call: Called) -> Called {
    let due = 19_000 + call.version.map_or(0, |version| version as i64);
    Called { version: None, decided: None, sent: None, ready: None, max_attempts: None, due, ..call }
}

fn finds(rule: Rule, what: &str, spoil: impl FnOnce(&mut History)) {
    let mut history = good();
    spoil(&mut history);
    let report = check(&history, &Slack::default());
    let found = report.wrongs.iter().any(|wrong| wrong.rule == rule && wrong.what.starts_with(what));
    assert!(found, "{rule:?}, {what}: found {:#?}", report.wrongs);
}

#[test]
fn a_good_history_of_producers_and_handlers_has_no_wrongs() {
    assert_eq!(check(&good(), &Slack::default()).wrongs, []);
}

#[test]
fn a_task_without_a_call_that_succeeded_is_lost() {
    finds(Rule::NothingLost, "lost: no call of this succeeded", |history| {
        history.called[1].ended = Some((20_300, End::Failed));
    });
}

/// The acknowledgement is of a copy that was appended when the task had run.
fn acknowledged_after_its_run(history: &mut History) {
    let second = &mut history.asked[1];
    (second.appended, second.acked) = (25_000, 25_001);
}

#[test]
fn a_run_before_its_record_was_appended_is_early_unless_an_earlier_copy_may_have_been() {
    finds(Rule::NeverEarly, "called before it was due", acknowledged_after_its_run);
    let mut history = good();
    acknowledged_after_its_run(&mut history);
    history.asked[1].handed = Some(10);
    assert_eq!(check(&history, &Slack::default()).wrongs, []);
    history.asked[1].handed = Some(24_000);
    let report = check(&history, &Slack::default());
    assert_eq!(report.violations(Rule::NeverEarly), 1, "nobody had it by then: {:#?}", report.wrongs);
}

#[test]
fn a_call_nobody_asked_for_is_a_phantom() {
    finds(Rule::NoPhantom, "nobody asked for this run", |history| history.called[1].id = "t9".into());
    finds(Rule::NoPhantom, "the payload is not the one", |history| history.called[1].payload = "x".into());
}

#[test]
fn a_run_after_a_cancel_that_came_well_before_is_found() {
    finds(Rule::StoppedStaysStopped, "ran although it was stopped in time", |history| {
        let cancel = asked(3, 5_000, Asks::Cancel);
        history.asked.push(super::Asked { id: Some("t2".into()), ..cancel });
    });
}

/// Acknowledged when the second task is not due yet, and known when it is.
fn cancelled_late(history: &mut History) {
    let cancel = asked(3, 15_000, Asks::Cancel);
    history.asked.push(super::Asked { id: Some("t2".into()), ..cancel });
}

#[test]
fn a_start_after_a_cancel_is_known_is_found_though_the_task_was_due_before() {
    finds(Rule::StoppedStaysStopped, "started although its cancel was known", cancelled_late);
    let mut history = good();
    cancelled_late(&mut history);
    history.halted.push(Halted { shard: super::SHARD, epoch: 1, from: 14_000, to: 20_000 });
    assert_eq!(check(&history, &Slack::default()).wrongs, [], "its owner stood still until then");
    let mut history = good();
    cancelled_late(&mut history);
    history.asked.iter_mut().for_each(|line| line.acked += 300);
    assert_eq!(check(&history, &Slack::default()).wrongs, [], "its owner may not have known");
}

/// How often this breaks a rule when there was a fault, near which events count as known so late.
fn near(known_near_ms: i64, (from, to): (i64, i64), rule: Rule, spoil: impl FnOnce(&mut History)) -> usize {
    let mut history = good();
    spoil(&mut history);
    history.faults.push(Fault { what: "a loss".into(), from, to });
    check(&history, &Slack { known_near_ms, ..Slack::default() }).violations(rule)
}

#[test]
fn near_a_fault_alone_an_event_counts_as_known_later() {
    // The cancel is acknowledged at 15,001, and the call it is about comes at 20,200.
    let far = [(-10, 0), (30_002, 40_000)];
    let about = [(-10, 1), (-10, 90_000), (15_000, 16_000), (30_001, 40_000)];
    for (faults, found) in [(&far[..], 1), (&about[..], 0)] {
        for fault in faults {
            let violations = near(15_000, *fault, Rule::StoppedStaysStopped, cancelled_late);
            assert_eq!(violations, found, "a fault at {fault:?}");
        }
    }
    // The task is acknowledged at 11, and overtaken at 20,200.
    let overtaken = |history: &mut History| history.called[0] = seen(called(1, 20_600, 3));
    let cases = [(30_000, (0, 20), 0), (30_000, (30_012, 32_000), 1), (15_000, (0, 20), 1)];
    for (known_ms, fault, found) in cases {
        let violations = near(known_ms, fault, Rule::InOrder, overtaken);
        assert_eq!(violations, found, "known after {known_ms} ms, a fault at {fault:?}");
    }
}

#[test]
fn a_run_for_another_time_after_it_succeeded_is_found() {
    finds(Rule::DuplicatesExplained, "ran for another time though it had succeeded", |history| {
        let moved = asked(3, 20_500, Asks::Reschedule { due: 60_000 });
        history.asked.push(super::Asked { id: Some("t2".into()), ..moved });
        history.called.push(Called { due: 60_000, ..seen(called(2, 60_000, 9)) });
    });
}

/// The second task runs again under the next owner, who comes at this time.
fn run_again_by_the_next_owner(history: &mut History, at: i64) {
    history.owned = vec![super::owned(1, 5, 6), super::owned(2, at, at + 1)];
    let again = seen(called(2, at + 500, 9));
    let (token, previous) = ([0, 2, 1], Some("interrupted".into()));
    history.called.push(Called { token, previous, attempt: 2, ..again });
}

#[test]
fn an_owner_that_was_lost_explains_no_run_of_what_was_over_long_before() {
    finds(Rule::DuplicatesExplained, "ran again for no reason", |history| {
        run_again_by_the_next_owner(history, 90_000);
    });
    let mut history = good();
    run_again_by_the_next_owner(&mut history, 60_000);
    let report = check(&history, &Slack::default());
    assert_eq!((&report.wrongs[..], report.duplicates.get("owner lost")), (&[][..], Some(&1)));
}

/// The task is moved when it has run already, and what it was moved to is cancelled.
fn moved_too_late_and_cancelled(history: &mut History) {
    let moved = asked(3, 20_500, Asks::Reschedule { due: 60_000 });
    let cancel = asked(4, 30_000, Asks::Cancel);
    history.asked.extend([moved, cancel].map(|line| super::Asked { id: Some("t2".into()), ..line }));
}

#[test]
fn a_run_from_before_it_was_moved_too_late_is_no_run_of_what_was_cancelled() {
    let mut history = good();
    moved_too_late_and_cancelled(&mut history);
    let report = check(&history, &Slack::default());
    assert_eq!(report.wrongs, []);
    assert_eq!(report.checked.get(&Rule::StoppedStaysStopped), Some(&1));
}

#[test]
fn a_run_after_such_a_cancel_is_found() {
    finds(Rule::StoppedStaysStopped, "ran although it was stopped in time", |history| {
        moved_too_late_and_cancelled(history);
        let late = Called { due: 60_000, ..seen(called(2, 60_000, 9)) };
        history.called.push(late);
    });
}

#[test]
fn a_task_known_well_before_that_runs_after_a_later_one_is_overtaken() {
    finds(Rule::InOrder, "an earlier task of the queue was overtaken", |history| {
        history.called[0] = seen(called(1, 20_600, 3));
    });
}

#[test]
fn on_a_slow_machine_it_counts_from_when_its_owner_said_to_have_applied_it() {
    let slow = Slack { from_applied: true, ..Slack::default() };
    let mut history = good();
    history.called[0] = seen(called(1, 20_600, 3));
    let overtaken = |told: &[(i64, u64)]| {
        let told = told.iter().map(|(at, applied)| Told { at: *at, shard: super::SHARD, applied: *applied });
        let history = History { told: told.collect(), ..history.clone() };
        check(&history, &slow).violations(Rule::InOrder)
    };
    let offset = history.asked[0].offset.expect("an offset");
    assert_eq!(overtaken(&[(14_000, offset)]), 1, "known at 19 s, a second before the other began");
    assert_eq!(overtaken(&[(14_000, offset - 1), (15_500, offset + 1)]), 0, "known at 20.5 s");
    assert_eq!(overtaken(&[]), 0, "nobody said so");
}

#[test]
fn a_call_that_was_broken_off_holds_its_queue() {
    finds(Rule::NoOverlap, "two calls of a queue at once", |history| {
        history.called[0].ended = Some((20_050, End::BrokenOff));
    });
}
