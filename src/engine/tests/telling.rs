//! Task events: what is on record is published in order, at least once, and nothing waits for it.

use super::rig::{Rig, content, event};
use crate::engine::{Budget, CallEnd, Input, Pause};
use crate::model::{
    Cause, CloseReason, Decision, OnFailure, Outcome, TaskContent, TaskEventKind, Verb, Wall, limits,
};

/// What was told, and what still gathers.
fn told(rig: &mut Rig) -> Vec<(&str, TaskEventKind)> {
    rig.until_told();
    rig.told.iter().map(|event| (event.key.id.as_str(), event.kind)).collect()
}

#[test]
fn every_way_into_a_state_is_told_in_its_order() {
    use TaskEventKind::*;
    let mut rig = Rig::publishing();
    rig.schedule("q", "a", 0);
    rig.end_call(CallEnd::of(Outcome::Retryable));
    rig.run(10_000);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.schedule("q", "b", 60_000);
    rig.append("q", "b", Verb::Cancel);
    let wanted = [
        ("a", Scheduled),
        ("a", Started),
        ("a", Failed),
        ("a", Started),
        ("a", Succeeded),
        ("b", Scheduled),
        ("b", Cancelled),
    ];
    assert_eq!(told(&mut rig), wanted);
    rig.told.clear();
    rig.schedule_with("q", "c", 0, |content| TaskContent { on_failure: OnFailure::Park, ..content });
    rig.end_call(CallEnd::of(Outcome::TimedOut));
    rig.run(10_000);
    rig.end_call(CallEnd::of(Outcome::Fatal));
    let expires_at = Some(Wall(rig.now().wall.0 - 1));
    rig.schedule_with("q", "d", 0, |content| TaskContent { expires_at, ..content });
    let wanted = [
        ("c", Scheduled),
        ("c", Started),
        ("c", Parked),
        ("c", Started),
        ("c", Dead),
        ("d", Scheduled),
        ("d", Expired),
    ];
    assert_eq!(told(&mut rig), wanted);
    let dead = rig.told.iter().find(|event| event.kind == Dead).expect("told");
    assert!(matches!(&dead.cause, Cause::Ended(end) if end.closed == Some(CloseReason::Fatal)));
}

#[test]
fn what_is_applied_is_done_with_when_it_is_published_too() {
    for (mut rig, when_away) in [(Rig::publishing(), 1), (Rig::running(), 3)] {
        rig.schedule("q", "a", 600_000);
        rig.run(10_000);
        assert_eq!(rig.engine.done_with(), 1);
        rig.no_events = true;
        rig.schedule("q", "b", 600_000);
        rig.schedule("q", "c", 600_000);
        rig.run(10_000);
        assert_eq!(rig.progress.as_ref().map(|progress| progress.next_offset), Some(3));
        assert_eq!(rig.engine.done_with(), when_away);
        rig.no_events = false;
        rig.run(20_000);
        assert_eq!(rig.engine.done_with(), 3);
    }
}

#[test]
fn few_events_wait_for_others_and_many_go_at_once() {
    let mut rig = Rig::publishing();
    rig.schedule("q", "a", 600_000);
    rig.run(limits::EVENTS_WAIT_MS / 2);
    rig.schedule("q", "b", 600_000);
    assert_eq!(rig.told.len(), 0);
    rig.run(limits::EVENTS_WAIT_MS / 2);
    assert_eq!(rig.told.len(), 2, "the first has waited for so long");
    let due = rig.due_in(600_000, content());
    rig.append_all(
        (0..limits::EVENTS_AT_ONCE).map(|n| event("q", &format!("t-{n}"), due.clone(), n as u128)),
    );
    assert_eq!(rig.told.len(), 2 + limits::EVENTS_AT_ONCE);
}

#[test]
fn tasks_run_while_the_log_takes_nothing_and_the_next_owner_tells() {
    use TaskEventKind::*;
    let mut rig = Rig::publishing();
    rig.schedule("q", "first", 0);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.run(120_000);
    let before = rig.progress.clone().expect("written");
    rig.no_events = true;
    rig.told.clear();
    for id in ["a", "b"] {
        rig.schedule("q", id, 0);
        rig.end_call(CallEnd::of(Outcome::Succeeded));
    }
    rig.run(60_000);
    assert_eq!((told(&mut rig).len(), rig.engine.shard_view(rig.now().boot).events_waiting), (0, 6));
    let now = rig.progress.clone().expect("written");
    assert_eq!((before.next_offset, now.next_offset), (1, 3), "what is applied says so");
    assert_eq!(
        now.told.map(|told| told.next_offset),
        Some(1),
        "decisions that are not told hold their own offset"
    );
    assert!(now.watermark < Wall(rig.now().wall.0 - 50_000), "tasks that are not told hold it");
    rig.no_events = false;
    rig.take_over(9);
    assert_eq!(rig.calls.len(), 0, "nothing runs again");
    let wanted = [
        ("a", Scheduled),
        ("b", Scheduled),
        ("a", Started),
        ("a", Succeeded),
        ("b", Started),
        ("b", Succeeded),
    ];
    assert_eq!(told(&mut rig), wanted);
    rig.run(120_000);
    let then = rig.progress.clone().expect("written");
    assert_eq!((then.next_offset, rig.told.len()), (3, 6));
    assert!(then.watermark > now.watermark);
    // Once more: nothing is left to be told.
    rig.take_over(10);
    rig.run(20_000);
    assert_eq!(rig.told.len(), 6);
    let told = rig.progress.as_ref().and_then(|progress| progress.told);
    assert_eq!(told.map(|told| (told.next_offset, told.before)), Some((3, None)));
}

#[test]
fn what_the_log_lets_go_of_while_it_is_to_be_read_again_is_left_out() {
    use TaskEventKind::*;
    let mut rig = Rig::publishing();
    rig.schedule("q", "first", 0);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.run(120_000);
    rig.no_events = true;
    rig.told.clear();
    rig.schedule("q", "a", 600_000);
    rig.schedule("q", "b", 600_000);
    rig.run(1_000);
    rig.no_events = false;
    rig.first_at_seek = Some(2);
    rig.take_over(9);
    assert_eq!(told(&mut rig), [("b", Scheduled)], "the record of a is gone");
    rig.schedule("q", "c", 0);
    assert_eq!(rig.called(), ["c"], "what comes next is taken in and runs");
}

#[test]
fn what_ran_before_anything_was_published_is_not_told() {
    let mut rig = Rig::running();
    rig.hold_progress = true;
    rig.schedule("q", "a", 0);
    rig.end_call(CallEnd::of(Outcome::Retryable));
    rig.hold_progress = false;
    rig.options.publishes = true;
    if let Some(progress) = &mut rig.progress {
        progress.told = None;
    }
    rig.take_over(2);
    // Its schedule event is applied again, and its next attempt is this owner's.
    assert_eq!(told(&mut rig), [("a", TaskEventKind::Scheduled), ("a", TaskEventKind::Started)]);
    assert!(matches!(&rig.told[1].cause, Cause::Started(started) if started.attempt == 2));
}

#[test]
fn a_cancel_that_only_stops_the_retry_is_told_behind_the_failure() {
    use TaskEventKind::*;
    let mut rig = Rig::publishing();
    rig.schedule("q", "a", 0);
    rig.append("q", "a", Verb::Cancel);
    assert_eq!(rig.decisions().last(), Some(&Decision::TooLate));
    rig.end_call(CallEnd::of(Outcome::Retryable));
    assert_eq!(told(&mut rig), [("a", Scheduled), ("a", Started), ("a", Failed), ("a", Cancelled)]);
}

#[test]
fn an_event_that_the_topic_never_takes_is_left_out_and_the_others_follow() {
    use TaskEventKind::*;
    let mut rig = Rig::publishing();
    rig.refused_events = Some(Started);
    rig.schedule("q", "a", 0);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    assert_eq!(told(&mut rig), [("a", Scheduled), ("a", Succeeded)]);
    rig.run(20_000);
    assert_eq!(rig.engine.shard_view(rig.now().boot).events_waiting, 0);
}

#[test]
fn what_waits_keeps_to_its_memory_and_everything_follows_in_the_end() {
    let mut rig = Rig::publishing();
    rig.no_events = true;
    rig.give(Input::Budget(Budget { events_bytes: 20 * 512, ..Budget::default() }));
    for n in 0..40 {
        rig.schedule("q", &format!("t-{n:02}"), 0);
    }
    let view = rig.engine.shard_view(rig.now().boot);
    assert_eq!(view.paused, Some(Pause::Events));
    assert!(view.next_offset < 40, "at half of it no schedule events are taken in");
    for _ in 0..40 {
        if !rig.calls.is_empty() {
            rig.end_call(CallEnd::of(Outcome::Succeeded));
        }
    }
    let view = rig.engine.shard_view(rig.now().boot);
    assert!(view.events_waiting <= 22, "{} wait: at all of it nothing starts", view.events_waiting);
    assert!(rig.calls.is_empty());
    rig.no_events = false;
    for _ in 0..40 {
        rig.run(6_000);
        while !rig.calls.is_empty() {
            rig.end_call(CallEnd::of(Outcome::Succeeded));
        }
    }
    assert_eq!(rig.told.len(), 120);
    assert_eq!(rig.engine.shard_view(rig.now().boot).paused, None);
}

#[test]
fn an_open_attempt_of_what_is_not_told_yet_holds_its_queue_while_the_log_is_away() {
    let mut rig = Rig::publishing();
    rig.no_events = true;
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    rig.run(1_000);
    assert_eq!(rig.called(), ["a"]);
    rig.held_ends = Some(Vec::new());
    rig.take_over(9);
    assert_eq!(rig.engine.shard_view(rig.now().boot).tasks, 2, "both are known without the log");
    assert!(rig.calls.is_empty());
}
