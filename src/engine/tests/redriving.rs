//! Redrive and abort: a task that is dead runs again as a new version; a call that hangs is broken off.

use super::rig::{Rig, content, event};
use crate::engine::{CallEnd, Input, fold};
use crate::model::{
    CloseReason, Decision, Due, Fact, MarkKind, OnDead, Outcome, Payload, Place, Redrive, RetryPolicy,
    TaskContent, TaskState, Verb, Version,
};

fn fatal() -> CallEnd {
    CallEnd { error: Some("no such user".into()), ..CallEnd::of(Outcome::Fatal) }
}

fn redrive(payload: Option<&str>) -> Verb {
    let payload = payload.map(|text| Payload::Inline(text.as_bytes().into()));
    Verb::Redrive(Redrive { due: Due::Now, payload })
}

fn states(rig: &Rig) -> Vec<TaskState> {
    let state = |facts: &Vec<Fact>| fold(facts.iter(), Version::MAX).state();
    rig.facts.values().map(state).collect()
}

#[test]
fn a_dead_task_is_on_the_list_of_the_dead_and_runs_again_with_all_its_attempts() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.end_call(fatal());
    let [letter] = &rig.dead_letters[..] else { panic!("one dead letter: {:?}", rig.dead_letters) };
    let place: Place = *rig.facts.keys().next().expect("a task");
    assert_eq!((letter.place, letter.reason, letter.attempts), (place, CloseReason::Fatal, 1));
    assert_eq!(letter.error.as_deref(), Some("no such user"));
    rig.append("q", "a", redrive(None));
    assert_eq!((rig.called(), rig.calls[0].attempt), (vec!["a"], 1));
    assert_eq!(rig.calls[0].payload[..], b"{}"[..]);
    for _ in 0..3 {
        rig.end_call(CallEnd::of(Outcome::Retryable));
        rig.run(10_000);
    }
    assert_eq!(states(&rig), [TaskState::Replaced, TaskState::Dead]);
    assert_eq!((rig.dead_letters.len(), rig.dead_letters[1].attempts), (2, 3));
    // The same words again are no repeat: it died again.
    rig.append("q", "a", redrive(Some("{\"better\":1}")));
    assert_eq!(rig.calls[0].payload[..], b"{\"better\":1}"[..]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    let wanted = [Decision::Scheduled, Decision::Redriven, Decision::Redriven];
    assert_eq!(rig.decisions(), wanted);
    assert_eq!(states(&rig), [TaskState::Replaced, TaskState::Replaced, TaskState::Succeeded]);
}

const DEAD: [&str; 3] = ["a", "b", "c"];

/// Three tasks in queues of their own that are dead.
fn with_dead() -> Rig {
    let mut rig = Rig::running();
    for id in DEAD {
        rig.schedule(id, id, 0);
        rig.end_call(fatal());
    }
    rig.run(1_000);
    rig
}

fn redrive_all(rig: &mut Rig) {
    let events: Vec<_> = (0..).zip(DEAD).map(|(n, id)| event(id, id, redrive(None), 1_000 + n)).collect();
    rig.append_all(events);
}

#[test]
fn what_is_redriven_together_is_read_at_once_and_a_late_answer_holds_up_those_behind_it() {
    let mut rig = with_dead();
    rig.held_facts = Some(Vec::new());
    redrive_all(&mut rig);
    let mut read = rig.held_facts.take().unwrap_or_default();
    assert_eq!(read.len(), 3, "all at once, each once");
    let first = read.remove(0);
    read.into_iter().rev().for_each(|answer| rig.give(answer));
    assert!(rig.called().is_empty(), "events are decided in order");
    rig.give(first);
    assert_eq!(rig.called(), DEAD);
}

#[test]
fn what_could_not_be_read_ahead_is_read_when_its_turn_has_come() {
    for fail_every in [1, 2, 3] {
        let mut rig = with_dead();
        rig.fail_every = fail_every;
        redrive_all(&mut rig);
        rig.fail_every = 0;
        rig.run(5_000);
        assert_eq!(rig.called(), DEAD, "every {fail_every}th failed");
    }
}

#[test]
fn only_what_is_closed_without_success_is_redriven() {
    let mut rig = Rig::running();
    rig.append("q", "a", redrive(None));
    rig.schedule("q", "far", 3_600_000);
    rig.append("q", "far", redrive(None));
    rig.schedule("q", "a", 0);
    rig.append("q", "a", redrive(None));
    rig.end_call(CallEnd::of(Outcome::Retryable));
    rig.append("q", "a", redrive(None));
    rig.run(2_000);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.append("q", "a", redrive(None));
    rig.append("q", "far", Verb::Cancel);
    rig.append("q", "far", redrive(None));
    let refused = rig.decisions().into_iter().filter(|decision| *decision == Decision::NotDead);
    assert_eq!(refused.count(), 5, "{:?}", rig.decisions());
    assert!(!rig.decisions().contains(&Decision::Redriven));
    assert_eq!(rig.decisions()[0], Decision::Unknown);
    assert!(rig.calls.is_empty());
}

#[test]
fn what_expired_runs_again_and_its_expiry_counts_no_more() {
    let mut rig = Rig::running();
    let past = rig.now().wall.plus_ms(-1_000);
    rig.schedule_with("q", "a", 0, |content| TaskContent { expires_at: Some(past), ..content });
    assert_eq!(states(&rig), [TaskState::Expired]);
    rig.append("q", "a", redrive(None));
    assert_eq!(rig.called(), ["a"]);
    assert!(rig.dead_letters.is_empty(), "what expired did not die");
}

#[test]
fn a_redrive_that_was_not_recorded_before_its_owner_was_lost_is_decided_the_same() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.end_call(fatal());
    rig.run(1_000);
    rig.held_writes = Some(Vec::new());
    rig.append("q", "a", redrive(None));
    // The task and the mark reach the store, the event does not.
    let written: Vec<_> = rig.held_writes.take().unwrap_or_default();
    written.iter().for_each(|(_, rows)| rig.store(rows));
    rig.take_over(2);
    rig.run(2_000);
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    assert_eq!(rig.decisions().iter().filter(|decision| **decision == Decision::Redriven).count(), 1);
    assert_eq!(states(&rig), [TaskState::Replaced, TaskState::Succeeded]);
    let marks = rig
        .facts
        .values()
        .flatten()
        .filter(|fact| matches!(fact, Fact::Superseded { mark: MarkKind::Redriven, .. }));
    assert!(marks.count() >= 1);
}

#[test]
fn a_redrive_that_is_read_again_runs_although_what_it_redrove_is_forgotten_meanwhile() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.end_call(fatal());
    rig.run(1_000);
    rig.hold_progress = true;
    let due = Due::At(rig.now().wall.plus_ms(30_000));
    rig.append("q", "a", Verb::Redrive(Redrive { due, payload: Some(Payload::Inline(b"2"[..].into())) }));
    rig.run(1_000);
    let first = *rig.facts.keys().next().expect("the task that died");
    rig.facts.remove(&first);
    rig.hold_progress = false;
    rig.take_over(2);
    rig.run(25_000);
    assert_eq!(rig.called(), ["a"]);
    assert_eq!(rig.calls[0].payload.as_ref(), b"2");
}

#[test]
fn an_abort_breaks_a_call_off_and_its_queue_waits_for_the_deadline() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    let seq = rig.calls[0].token.sequence;
    rig.append("q", "a", Verb::Abort);
    assert_eq!(rig.broken_off, [(seq, Outcome::Aborted)].into());
    rig.calls.clear();
    rig.append("q", "b", Verb::Abort);
    rig.run(9_000);
    assert!(rig.calls.is_empty());
    rig.run(3_000);
    assert_eq!((rig.called(), rig.calls[0].previous), (vec!["a"], Some(Outcome::Aborted)));
    assert_eq!(rig.decisions()[2..], [Decision::Aborted, Decision::NotRunning]);
    // An abort again, in the same words.
    rig.append("q", "a", Verb::Abort);
    assert_eq!(rig.decisions()[4..], [Decision::Aborted]);
    assert_eq!(content().timeout_ms, Some(10_000));
}

fn stops(content: TaskContent) -> TaskContent {
    TaskContent { on_dead: OnDead::Stop, ..content }
}

#[test]
fn a_task_that_stops_its_queue_is_dead_on_record_only_when_the_queue_is_stopped() {
    let mut rig = Rig::running();
    rig.schedule_with("q", "a", 0, stops);
    rig.schedule("q", "b", 0);
    rig.end_call(fatal());
    let (seq, queue) = rig.stopped_queues.pop().expect("the queue is to be stopped");
    assert_eq!(queue.as_str(), "q");
    rig.run(1_000);
    assert!(rig.calls.is_empty() && rig.dead_letters.is_empty(), "nothing moves until then");
    rig.give(Input::QueueStopped(seq, Err(Rig::away())));
    rig.run(1_000);
    let (again, _) = rig.stopped_queues.pop().expect("asked again");
    assert_eq!(again, seq);
    rig.give(super::gates::closed(&[super::gates::pause(crate::model::Target::Queue(queue))]));
    rig.give(Input::QueueStopped(seq, Ok(())));
    assert_eq!((rig.dead_letters.len(), states(&rig)[0]), (1, TaskState::Dead));
    rig.run(60_000);
    assert!(rig.calls.is_empty());
    rig.give(super::gates::open());
    assert_eq!(rig.called(), ["b"]);
}

#[test]
fn a_death_that_waits_for_its_queue_to_stop_is_an_open_attempt_to_the_next_owner() {
    let mut rig = Rig::running();
    rig.schedule_with("q", "a", 0, stops);
    rig.end_call(fatal());
    rig.take_over(2);
    while rig.calls.is_empty() {
        rig.run(500);
    }
    assert_eq!((rig.called(), rig.calls[0].previous), (vec!["a"], Some(Outcome::Interrupted)));
    assert!(rig.dead_letters.is_empty());
}

#[test]
fn no_try_comes_later_than_the_age_that_the_policy_allows() {
    let mut rig = Rig::running();
    rig.schedule_with("q", "a", 0, |content| {
        let retry =
            content.retry.map(|retry| RetryPolicy { max_attempts: 100, max_age_ms: Some(10_000), ..retry });
        TaskContent { retry, ..content }
    });
    let mut tries = 0;
    while !rig.calls.is_empty() {
        tries += 1;
        rig.end_call(CallEnd::of(Outcome::Retryable));
        rig.run(20_000);
    }
    // After 0, 1 and 3 s; the next would come 4 s after the 20 s of this test's clock.
    assert!((1..=3).contains(&tries), "{tries}");
    assert_eq!(states(&rig), [TaskState::Dead]);
    assert_eq!(rig.dead_letters[0].reason, CloseReason::Exhausted);
}

#[test]
fn a_handler_that_always_snoozes_is_dead_at_the_age_that_the_policy_allows() {
    let mut rig = Rig::running();
    rig.schedule_with("q", "a", 0, |content| {
        let retry = content.retry.map(|retry| RetryPolicy { max_age_ms: Some(10_000), ..retry });
        TaskContent { retry, ..content }
    });
    rig.schedule("q", "next", 0);
    let ready_at = rig.calls[0].place.ready_at;
    let mut last = ready_at;
    while rig.calls.front().is_some_and(|call| call.key.id.as_str() == "a") {
        last = rig.now().wall;
        rig.end_call(CallEnd { after_ms: Some(3_000), ..CallEnd::of(Outcome::Snoozed) });
        rig.run(3_000);
    }
    assert_eq!(states(&rig)[0], TaskState::Dead);
    let letter = &rig.dead_letters[0];
    let error = Some("it snoozed for longer than retry.max_age");
    assert_eq!((letter.reason, letter.error.as_deref()), (CloseReason::Exhausted, error));
    // The last call is in time, and another 3 s later would not be.
    let age_ms = last.ms_since(ready_at);
    assert!(age_ms <= 10_000 && age_ms + 3_000 > 10_000, "{age_ms}");
    assert_eq!(rig.called(), ["next"], "its queue goes on");
}

#[test]
fn what_snoozes_expires_and_its_queue_goes_on() {
    let mut rig = Rig::running();
    let expires = rig.now().wall.plus_ms(5_000);
    rig.schedule_with("q", "a", 0, |content| TaskContent { expires_at: Some(expires), ..content });
    rig.schedule("q", "next", 0);
    for _ in 0..2 {
        rig.end_call(CallEnd { after_ms: Some(3_000), ..CallEnd::of(Outcome::Snoozed) });
        rig.run(3_000);
    }
    assert_eq!(states(&rig)[0], TaskState::Expired);
    assert_eq!(rig.called(), ["next"]);
}
