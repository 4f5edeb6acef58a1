//! Attempts under way at a takeover hold their queue, wherever they lie and however little fits into memory.

use super::rig::Rig;
use crate::engine::{Budget, CallEnd, Input, Lane};
use crate::model::{HandlerName, Outcome, Place};

/// `first` waits for a slot; then `x` comes, stands before it, and is called.
fn with_a_call_behind_a_waiting_task(between: impl FnOnce(&mut Rig)) -> Rig {
    let mut rig = Rig::running();
    rig.no_slots = true;
    rig.schedule("q", "first", 0);
    rig.run(1_000);
    between(&mut rig);
    rig.schedule("q", "x", -60_000);
    rig.give(Input::Slots(Lane::of(&HandlerName::new("h").expect("a name")), 1));
    assert_eq!(rig.called(), ["x"]);
    rig.no_slots = false;
    rig
}

/// The next owner has room for one task, and reads one at a time.
fn take_over_with_little_memory(rig: &mut Rig) {
    (rig.budget, rig.page_rows) = (1, 1);
    rig.take_over(2);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
}

fn runs_after_its_deadline(rig: &mut Rig) {
    assert!(rig.calls.is_empty(), "{:?} while the call of a lost owner is at work", rig.called());
    rig.give(Input::Budget(Budget::default()));
    let mut ids = Vec::new();
    for _ in 0..60 {
        rig.run(1_000);
        if !rig.calls.is_empty() {
            ids.push(rig.end_call(CallEnd::of(Outcome::Succeeded)).key.id.to_string());
        }
    }
    assert_eq!(ids, ["x", "first"]);
}

#[test]
fn an_open_attempt_that_does_not_fit_into_memory_holds_its_queue() {
    let mut rig = with_a_call_behind_a_waiting_task(|_| {});
    take_over_with_little_memory(&mut rig);
    runs_after_its_deadline(&mut rig);
}

#[test]
fn so_does_one_whose_event_is_to_be_applied_again() {
    let mut rig = with_a_call_behind_a_waiting_task(|rig| rig.hold_progress = true);
    rig.hold_progress = false;
    assert_eq!(rig.progress.as_ref().map(|progress| progress.next_offset), Some(1));
    take_over_with_little_memory(&mut rig);
    runs_after_its_deadline(&mut rig);
}

#[test]
fn an_attempt_that_began_by_a_clock_that_was_ahead_holds_its_queue() {
    let mut rig = Rig::running();
    rig.run(20_000);
    rig.schedule("q", "x", 2_000);
    rig.run(2_000);
    assert_eq!(rig.called(), ["x"]);
    rig.ms -= 8_500;
    rig.take_over(2);
    rig.schedule("q", "first", -60_000);
    assert_eq!(rig.facts.len(), 2);
    let ready = |place: &Place| place.ready_at <= rig.now().wall;
    assert_eq!(rig.facts.keys().map(ready).collect::<Vec<bool>>(), [true, false], "by this clock");
    assert!(rig.calls.is_empty(), "{:?} while the call of a lost owner is at work", rig.called());
    rig.run(12_000);
    assert_eq!(rig.called(), ["first"], "it stands before the other, whose deadline has passed");
}
