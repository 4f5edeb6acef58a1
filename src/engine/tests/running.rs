//! How tasks run: order, retries, closing.

use super::rig::{Rig, content};
use crate::engine::{Budget, CallEnd, Failure, Input, Pause, fold};
use crate::model::{
    CloseReason, Due, Fact, Misfire, Outcome, Place, TaskContent, TaskState, Verb, Version, Wall,
};

fn of(outcome: Outcome) -> CallEnd {
    CallEnd::of(outcome)
}

pub(super) fn state(rig: &Rig, place: Place) -> TaskState {
    fold(rig.facts[&place].iter(), Version::MAX).state()
}

#[test]
fn second_task_of_a_queue_waits_for_the_first() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(of(Outcome::Succeeded));
    assert_eq!(rig.called(), ["b"]);
}

#[test]
fn queues_do_not_wait_for_each_other() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("r", "b", 0);
    assert_eq!(rig.called(), ["a", "b"]);
}

#[test]
fn a_task_is_not_called_before_it_is_due() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 5_000);
    rig.run(4_999);
    assert!(rig.calls.is_empty());
    rig.run(1);
    assert_eq!(rig.called(), ["a"]);
}

#[test]
fn a_far_task_is_loaded_and_runs_on_time() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 600_000);
    assert_eq!(rig.engine.tasks_in_memory(), 0);
    rig.run(599_999);
    assert!(rig.calls.is_empty());
    rig.run(1);
    assert_eq!(rig.called(), ["a"]);
}

#[test]
fn a_retry_keeps_its_place() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    rig.end_call(of(Outcome::Retryable));
    assert!(rig.calls.is_empty());
    rig.run(999);
    assert!(rig.calls.is_empty());
    rig.run(1);
    assert_eq!(rig.called(), ["a"]);
    assert_eq!(rig.calls[0].attempt, 2);
    assert_eq!(rig.calls[0].previous, Some(Outcome::Retryable));
}

#[test]
fn an_earlier_due_arrival_overtakes_a_waiting_head() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    rig.end_call(of(Outcome::Retryable));
    rig.schedule("q", "early", -60_000);
    assert_eq!(rig.called(), ["early"]);
}

#[test]
fn a_task_is_dead_when_its_attempts_are_used_up() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    let place = rig.end_call(of(Outcome::Retryable)).place;
    rig.run(1_000);
    rig.end_call(of(Outcome::TimedOut));
    rig.run(2_000);
    rig.end_call(of(Outcome::Retryable));
    assert_eq!(state(&rig, place), TaskState::Dead);
    assert_eq!(rig.called(), ["b"]);
}

#[test]
fn a_fatal_end_closes_the_task_and_the_queue_goes_on() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    let place = rig.end_call(of(Outcome::Fatal)).place;
    assert_eq!(state(&rig, place), TaskState::Dead);
    assert_eq!(rig.called(), ["b"]);
}

#[test]
fn a_snooze_is_no_failure() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    for _ in 0..10 {
        rig.end_call(CallEnd { after_ms: Some(3_000), ..of(Outcome::Snoozed) });
        assert!(rig.calls.is_empty());
        rig.run(3_000);
    }
    assert_eq!(rig.called(), ["a"]);
}

#[test]
fn a_result_is_kept_to_its_bound_and_says_that_there_was_more() {
    let most = crate::model::limits::RESULT_BYTES_MAX;
    for (bytes, was_cut, kept, is_cut) in
        [(most, false, most, false), (most, true, most, true), (most + 1, false, most, true)]
    {
        let mut rig = Rig::running();
        rig.schedule("q", "a", 0);
        let result = Some(vec![b'x'; bytes].into());
        rig.end_call(CallEnd { result, result_cut: was_cut, ..of(Outcome::Succeeded) });
        let ends = rig.facts.values().flatten().filter_map(|fact| match fact {
            Fact::Ended(ended) => Some((ended.result.as_ref().map(|result| result.len()), ended.result_cut)),
            _ => None,
        });
        assert_eq!(ends.collect::<Vec<_>>(), [(Some(kept), is_cut)], "{bytes} bytes");
    }
}

#[test]
fn retry_after_lengthens_the_wait_and_never_shortens_it() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.end_call(CallEnd { after_ms: Some(5_000), ..of(Outcome::Retryable) });
    rig.run(4_999);
    assert!(rig.calls.is_empty());
    rig.run(1);
    rig.end_call(CallEnd { after_ms: Some(1), ..of(Outcome::Retryable) });
    rig.run(1_999);
    assert!(rig.calls.is_empty());
    rig.run(1);
    assert_eq!(rig.called(), ["a"]);
}

#[test]
fn a_call_is_broken_off_at_its_deadline_and_tried_again() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.run(10_000);
    assert!(rig.broken_off.values().eq(&[Outcome::TimedOut]));
    rig.run(1_000);
    assert_eq!(rig.calls.back().map(|call| call.attempt), Some(2));
    assert_eq!(rig.calls.back().and_then(|call| call.previous), Some(Outcome::TimedOut));
}

#[test]
fn what_expired_or_is_too_late_is_closed_on_record() {
    let mut rig = Rig::running();
    let expires = rig.now().wall.plus_ms(1_000);
    rig.schedule("q", "first", 0);
    rig.schedule_with("q", "a", 0, |c| TaskContent { expires_at: Some(expires), ..c });
    rig.schedule_with("q", "b", 500, |c| TaskContent { misfire: Misfire::Skip, ..c });
    rig.schedule("q", "last", 600);
    rig.run(5_000);
    rig.end_call(of(Outcome::Succeeded));
    assert_eq!(rig.called(), ["last"]);
    let closed = rig.facts.values().flatten().filter_map(|fact| match fact {
        Fact::Closed { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(closed.collect::<Vec<_>>(), [CloseReason::Expired, CloseReason::Skipped]);
}

#[test]
fn what_expires_while_its_payload_is_read_is_closed_and_not_started() {
    let mut rig = Rig::running();
    let expires = rig.now().wall.plus_ms(1_000);
    let large = crate::model::Payload::Inline(vec![b' '; 20_000].into());
    rig.no_payloads = true;
    rig.schedule_with("q", "a", 0, |c| TaskContent { payload: large, expires_at: Some(expires), ..c });
    rig.run(2_000);
    let (ticket, place) = rig.payload_asked.expect("it is read");
    assert_eq!(state(&rig, place), TaskState::Scheduled);
    rig.give(Input::PayloadRead(ticket, place, Ok(Some(b"{}".as_slice().into()))));
    assert_eq!((state(&rig, place), rig.slots_out), (TaskState::Expired, 0));
    assert!(rig.calls.is_empty());
}

#[test]
fn ten_interruptions_make_a_task_dead() {
    let mut rig = Rig::running();
    rig.schedule_with("q", "a", 0, |c| TaskContent { timeout_ms: Some(20_000), ..c });
    let place = rig.calls[0].place;
    for owner in 2..=10 {
        rig.run(500);
        rig.take_over(owner);
        assert!(rig.calls.is_empty(), "the open attempt is waited for");
        (0..60).for_each(|_| {
            if rig.calls.is_empty() {
                rig.run(1_000)
            }
        });
        assert_eq!(rig.calls[0].previous, Some(Outcome::Interrupted));
        assert_eq!(rig.calls[0].max_attempts, 3);
    }
    rig.run(500);
    rig.take_over(11);
    rig.run(60_000);
    assert!(rig.calls.is_empty());
    assert_eq!(state(&rig, place), TaskState::Dead);
}

#[test]
fn a_handler_that_refuses_the_token_is_asked_less_and_less_often() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    let mut waits = Vec::new();
    for _ in 0..11 {
        let refused = CallEnd { fenced: true, ..CallEnd::of(Outcome::Aborted) };
        rig.end_call(refused);
        let before = rig.now().boot.0;
        while rig.calls.is_empty() {
            rig.run(500);
        }
        waits.push((rig.now().boot.0 - before) / 1_000);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    assert_eq!(rig.calls[0].max_attempts, 3, "none of them was a failure");
}

#[test]
fn a_start_acknowledged_after_the_lease_ran_out_is_not_called() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    rig.append("q", "a", Verb::Schedule(Due::Now, Box::new(content())));
    rig.release_writes();
    rig.held_writes = Some(Vec::new());
    rig.schedule("q", "b", 0);
    rig.ms += 60_000;
    rig.release_writes();
    assert!(rig.calls.iter().all(|call| call.key.id.as_str() != "b"));
}

/// Two starts are on their way, and that of c waits for them.
fn starting_three() -> Rig {
    let mut rig = Rig::running();
    ["a", "b", "c"].iter().zip(1_000..).for_each(|(queue, ms)| rig.schedule(queue, queue, ms));
    rig.run(990);
    rig.held_writes = Some(Vec::new());
    rig.run(20);
    assert_eq!(rig.held_writes.as_ref().map(Vec::len), Some(2), "that of c waits for one of the two before");
    rig
}

#[test]
fn a_start_that_waited_until_the_lease_was_over_is_not_sent() {
    let mut rig = starting_three();
    rig.ms += 60_000;
    let woken = rig.now().wall;
    rig.release_writes();
    rig.run(1_000);
    let starts = |queue: &str| {
        let facts = rig.facts.values().filter(|facts| {
            facts.iter().any(|fact| matches!(fact, Fact::Task { key, .. } if key.queue.as_str() == queue))
        });
        let started = facts.flatten().filter_map(|fact| match fact {
            Fact::Started(started) => Some(started.at >= woken),
            _ => None,
        });
        started.collect::<Vec<_>>()
    };
    assert_eq!(starts("a"), [false, true], "on its way when the lease was over");
    assert_eq!(starts("c"), [true]);
    assert_eq!(rig.called().len(), 3);
    assert_eq!(rig.slots_out, 3);
}

#[test]
fn a_start_that_waited_until_the_shard_was_let_go_is_not_sent() {
    let mut rig = starting_three();
    rig.give(Input::Revoked);
    rig.release_writes();
    let starts = rig.facts.values().flatten().filter(|fact| matches!(fact, Fact::Started(_)));
    assert_eq!(starts.count(), 2);
    assert_eq!(rig.slots_out, 0);
    assert!(rig.engine.is_idle());
}

#[test]
fn a_fence_breaks_off_calls_and_gives_slots_back() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    assert_eq!(rig.slots_out, 1);
    rig.owner.epoch = crate::model::Epoch(9);
    rig.run(2_000);
    assert_eq!(rig.slots_out, 0);
    assert!(rig.broken_off.values().eq(&[Outcome::Interrupted]));
    assert_eq!(rig.engine.tasks_in_memory(), 0);
}

#[test]
fn a_payload_being_read_when_the_shard_is_let_go_gives_its_slot_back() {
    let mut rig = Rig::running();
    let large = crate::model::Payload::Inline(vec![b' '; 20_000].into());
    rig.no_payloads = true;
    rig.schedule_with("q", "a", 0, |c| TaskContent { payload: large, ..c });
    assert_eq!(rig.slots_out, 1);
    rig.give(Input::Revoked);
    assert_eq!(rig.slots_out, 0);
    assert!(rig.engine.is_idle());
}

#[test]
fn the_watermark_never_passes_an_unfinished_task() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    let ready = rig.calls[0].place.ready_at;
    rig.run(9_000);
    assert!(rig.progress.as_ref().is_some_and(|progress| progress.watermark < ready));
    assert!(rig.progress.as_ref().is_some_and(|progress| progress.watermark > Wall::MIN.plus_ms(-1)));
}

#[test]
fn a_shard_says_why_its_intake_is_paused() {
    let mut rig = Rig::running();
    let paused = |rig: &Rig| rig.engine.shard_view(rig.now().boot).paused;
    rig.held_writes = Some(Vec::new());
    rig.append("q", "a", Verb::Schedule(Due::Now, Box::new(content())));
    assert_eq!(paused(&rig), None);
    let (ticket, _) = rig.held_writes.as_ref().and_then(|held| held.last().cloned()).expect("a write");
    rig.give(Input::Written(ticket, Err(Failure::Misconfigured("no such column".into()))));
    assert_eq!(paused(&rig), Some(Pause::StoreMisconfigured));
    rig.give(Input::Written(ticket, Err(Rig::away())));
    assert_eq!(paused(&rig), Some(Pause::StoreUnavailable));
    rig.release_writes();
    assert_eq!(paused(&rig), None);
}

#[test]
fn intake_holds_no_more_than_its_share_of_memory() {
    let mut rig = Rig::running();
    rig.give(Input::Budget(Budget { intake_bytes: 40_000, ..Budget::default() }));
    rig.held_writes = Some(Vec::new());
    for task in 0..100 {
        rig.append("q", &format!("t-{task}"), Verb::Schedule(Due::Now, Box::new(content())));
    }
    let view = rig.engine.shard_view(rig.now().boot);
    assert!((1..=13).contains(&view.backlog), "{} of 3 KiB and more each", view.backlog);
    assert_eq!(view.paused, Some(Pause::Memory));
    while rig.held_writes.as_ref().is_some_and(|held| !held.is_empty()) {
        rig.release_writes();
    }
    rig.run(1_000);
    assert_eq!(rig.engine.shard_view(rig.now().boot).next_offset, 100);
}
