//! Handing over in good order: the owner before runs and reads on until the next one has bumped.

use super::rig::Rig;
use crate::engine::{Engine, Input};
use crate::model::{Epoch, OwnerRow, Verb};

/// One that runs on when its shard is taken.
fn running_on() -> Rig {
    let mut rig = Rig::running();
    rig.runs_on();
    rig.owner.released_epoch = rig.owner.epoch;
    rig.take_over(2);
    rig
}

#[test]
fn a_shard_that_is_taken_and_that_nobody_bumps_runs_on_for_a_while() {
    let mut rig = running_on();
    rig.give(Input::Revoked);
    rig.run(3_900);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
    rig.run(100);
    assert!(rig.engine.is_released());
}

#[test]
fn who_runs_on_reads_on_until_it_lets_go() {
    let mut rig = running_on();
    rig.schedule("p", "cancelled", 2_000);
    rig.give(Input::Revoked);
    rig.schedule("q", "a", 0);
    rig.append("p", "cancelled", Verb::Cancel);
    rig.run(3_900);
    assert_eq!(rig.called(), ["a"], "what is new is run, what is cancelled is not");
    rig.run(100);
    rig.schedule("q", "unread", 0);
    rig.run(1_000);
    assert_eq!(rig.called(), ["a"], "it has let go");
    assert_eq!(rig.progress.as_ref().map(|progress| progress.next_offset), Some(3));
}

#[test]
fn who_does_not_run_on_reads_no_more() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    rig.schedule("q", "under way", 0);
    rig.give(Input::Lost);
    rig.schedule("q", "unread", 0);
    rig.release_writes();
    rig.run(1_000);
    assert_eq!(rig.called(), ["under way"]);
}

#[test]
fn who_does_not_run_yet_lets_go_and_reads_no_more() {
    let mut rig = Rig::running();
    rig.runs_on();
    rig.owner.released_epoch = rig.owner.epoch;
    rig.held_slices = Some(Vec::new());
    rig.take_over_for(2, 1_000);
    assert!(rig.fetch.is_some(), "it reads while it loads");
    rig.give(Input::Revoked);
    rig.give(Input::Tick);
    assert!(rig.engine.is_released() && rig.fetch.is_none());
}

#[test]
fn who_lets_go_writes_down_what_is_applied_though_a_row_is_under_way() {
    let mut rig = running_on();
    rig.schedule("q", "a", 60_000);
    rig.run(1_000);
    rig.hold_progress = true;
    rig.schedule("q", "b", 60_000);
    rig.run(250);
    rig.schedule("q", "c", 60_000);
    rig.hold_progress = false;
    assert_eq!(rig.progress.as_ref().map(|progress| progress.next_offset), Some(1), "one is under way");
    rig.give(Input::Revoked);
    bumped_by_another(&mut rig, Epoch(0));
    rig.run(1_000);
    assert!(rig.engine.is_released());
    assert_eq!(rig.progress.as_ref().map(|progress| progress.next_offset), Some(3));
}

#[test]
fn what_is_read_on_and_lost_is_left_to_the_next_owner_without_a_word() {
    let mut rig = running_on();
    rig.give(Input::Revoked);
    let (ticket, _) = rig.fetch.take().expect("it reads on");
    rig.give(Input::Fetched(ticket, Err(Rig::away())));
    rig.schedule("q", "unread", 0);
    rig.run(2_000);
    assert!(rig.called().is_empty() && rig.fetch.is_none(), "nothing is asked for again");
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
}

#[test]
fn what_becomes_due_while_a_taken_shard_runs_on_starts() {
    let mut rig = running_on();
    rig.schedule("q", "a", 3_900);
    rig.schedule("p", "b", 4_100);
    rig.give(Input::Revoked);
    rig.run(4_500);
    assert_eq!(rig.called(), ["a"], "b is left to the next owner");
}

#[test]
fn a_shard_that_comes_back_while_it_runs_on_is_not_let_go() {
    let mut rig = running_on();
    rig.give(Input::Revoked);
    rig.run(300);
    rig.assign(3);
    rig.run(2_000);
    rig.schedule("q", "a", 0);
    assert_eq!((rig.called(), rig.owner.epoch.0), (vec!["a"], 2), "under the epoch it had");
}

/// Another bumps the row of an engine that runs on; `released_epoch` is what the row says then.
fn bumped_by_another(rig: &mut Rig, released_epoch: Epoch) {
    let epoch = Epoch(rig.owner.epoch.0 + 1);
    rig.owner = OwnerRow { epoch, owner: 3 << 64, released_epoch, wait_ms: 6_000, ..rig.owner.clone() };
}

#[test]
fn an_owner_lets_go_as_soon_as_the_next_one_has_bumped() {
    let mut rig = running_on();
    rig.schedule("q", "a", 2_000);
    rig.give(Input::Revoked);
    rig.run(1_000);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
    bumped_by_another(&mut rig, Epoch(1));
    rig.run(100);
    assert!(rig.engine.is_released());
    assert_eq!((rig.owner.epoch, rig.owner.owner), (Epoch(3), 3 << 64), "it is the other's row");
    assert_eq!((rig.owner.released_epoch, rig.owner.wait_ms), (Epoch(2), 0), "who waits no longer");
    rig.run(2_000);
    assert!(rig.calls.is_empty());
}

#[test]
fn an_owner_lets_go_for_one_that_has_let_go_itself() {
    let mut rig = running_on();
    rig.give(Input::Revoked);
    bumped_by_another(&mut rig, Epoch(3));
    rig.run(100);
    assert!(rig.engine.is_released());
    assert_eq!(
        (rig.owner.released_epoch, rig.owner.wait_ms),
        (Epoch(3), 0),
        "nobody owns it, and nothing is left"
    );
}

#[test]
fn an_owner_whose_assignment_was_lost_lets_go_for_the_next_one() {
    let mut rig = running_on();
    rig.give(Input::Lost);
    rig.run(10_000);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running", "however long it takes");
    bumped_by_another(&mut rig, Epoch(1));
    rig.run(1_500);
    assert!(rig.engine.is_released());
    assert_eq!((rig.owner.released_epoch, rig.owner.wait_ms), (Epoch(2), 0));
}

#[test]
fn who_was_bumped_between_its_last_look_and_its_release_finds_it_out() {
    let mut rig = running_on();
    rig.give(Input::Revoked);
    rig.run(3_999);
    bumped_by_another(&mut rig, Epoch(1));
    rig.run(1);
    assert!(rig.engine.is_released());
    assert_eq!((rig.owner.released_epoch, rig.owner.wait_ms), (Epoch(2), 0));
}

#[test]
fn an_owner_that_was_bumped_twice_between_two_looks_lets_go_all_the_same() {
    let mut rig = running_on();
    rig.schedule("q", "a", 0);
    rig.give(Input::Revoked);
    bumped_by_another(&mut rig, Epoch(1));
    bumped_by_another(&mut rig, Epoch(3));
    let before = rig.owner.clone();
    rig.run(100);
    assert_eq!((rig.engine.is_released(), rig.broken_off.len(), &rig.owner), (true, 0, &before));
}

#[test]
fn an_owner_with_its_assignment_is_fenced_by_anothers_epoch() {
    let mut rig = running_on();
    bumped_by_another(&mut rig, Epoch(1));
    let before = rig.owner.clone();
    rig.run(2_000);
    assert_eq!((rig.engine.shard_view(rig.now().boot).phase, &rig.owner), ("fenced", &before));
}

#[test]
fn who_bumped_before_the_owner_let_go_starts_when_it_does() {
    let mut rig = running_on();
    rig.engine = Engine::new(rig.options.clone());
    rig.assign(3);
    rig.run(500);
    assert_eq!((rig.engine.shard_view(rig.now().boot).phase, rig.owner.epoch), ("waiting", Epoch(3)));
    (rig.owner.released_epoch, rig.owner.wait_ms) = (Epoch(2), 0);
    rig.run(100);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
}

#[test]
fn who_bumped_over_an_owner_that_never_lets_go_waits_for_its_lease() {
    let mut rig = running_on();
    rig.engine = Engine::new(rig.options.clone());
    rig.assign(3);
    rig.run(5_999);
    assert_eq!((rig.engine.shard_view(rig.now().boot).phase, rig.owner.epoch), ("waiting", Epoch(3)));
    rig.run(1);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
}
