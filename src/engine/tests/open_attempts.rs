//! Attempts whose end nobody knows: a connection was lost, or an owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rig::{Rig, content};
use crate::engine::{Budget, CallEnd, Input, Options, Policy};
use crate::model::{OpenAttempts, Outcome, Shard, TaskContent};

fn lost() -> CallEnd {
    CallEnd { lost: true, error: Some("connection lost".into()), ..CallEnd::of(Outcome::Retryable) }
}

#[test]
fn a_lost_connection_holds_its_queue_until_the_deadline_on_the_last_attempt_too() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    for attempt in 1..=3 {
        let slots = rig.slots_out;
        assert_eq!((rig.called(), rig.calls[0].attempt), (vec!["a"], attempt));
        rig.end_call(lost());
        assert_eq!(rig.slots_out, slots - 1, "its slot is free");
        rig.run(9_900);
        assert!(rig.calls.is_empty(), "the handler may be at work");
        while rig.calls.is_empty() {
            rig.run(100);
        }
    }
    assert_eq!(rig.called(), ["b"]);
    assert_eq!(rig.slots_out, 1);
}

#[test]
fn a_handler_that_bears_an_overlap_is_not_waited_for() {
    let rerun = Policy { open_attempts: OpenAttempts::Rerun, ..Policy::default() };
    let policies = Arc::new(BTreeMap::from([(content().handler, rerun)]));
    let mut rig = Rig::running_with(Options { policies, ..Options::new(Shard(0), 1, "rig") });
    let patient = |content| TaskContent { timeout_ms: Some(60_000), ..content };
    rig.schedule_with("q", "a", 0, patient);
    rig.end_call(lost());
    rig.run(1_000);
    assert_eq!(rig.calls[0].previous, Some(Outcome::Retryable), "after the wait of any failure");
    rig.take_over(2);
    rig.run(1_000);
    assert_eq!((rig.called(), rig.calls[0].previous), (vec!["a"], Some(Outcome::Interrupted)));
}

#[test]
fn queues_behind_lost_calls_leave_room_for_others() {
    let mut rig = Rig::running();
    rig.give(Input::Budget(Budget { tasks: 12, ..Budget::default() }));
    for queue in ["p", "q"] {
        (0..6).for_each(|n| rig.schedule(queue, &format!("{queue}{n}"), 0));
        rig.end_call(lost());
    }
    rig.schedule("r", "r", 0);
    rig.run(3_000);
    assert_eq!(rig.called(), ["r"], "the others wait for deadlines");
}

#[test]
fn what_comes_to_nothing_is_called_again_less_and_less_often() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        rig.end_call(CallEnd::of(Outcome::Aborted));
        let before = rig.now().boot.0;
        while rig.calls.is_empty() {
            rig.run(500);
        }
        waits.push((rig.now().boot.0 - before) / 1_000);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
}

#[test]
fn a_lost_call_holds_up_no_stop() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.end_call(lost());
    rig.give(Input::Revoked);
    rig.run(100);
    assert!(rig.engine.is_idle());
}
