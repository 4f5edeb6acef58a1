//! Taking over, letting go, and catching up.

use super::rig::Rig;
use crate::engine::ownership::{Ownership, Timing, Turn};
use crate::engine::{CallEnd, Effect, Engine, Input, LogEnd, Step};
use crate::model::{Boot, Decision, Epoch, Outcome, OwnerRow, Release, Verb, limits};

#[test]
fn an_owner_waits_for_the_lease_of_the_one_before() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 1_000);
    rig.engine = Engine::new(rig.options.clone());
    rig.assign(2);
    rig.run(5_999);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "waiting");
    rig.run(1);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
    assert_eq!(rig.called(), ["a"]);
}

#[test]
fn a_takeover_is_told_of_once_with_when_it_came_to_each_step() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 1_000);
    rig.takeovers.clear();
    rig.engine = Engine::new(rig.options.clone());
    rig.assign(2);
    assert!(rig.takeovers.is_empty(), "it waits for the lease of the one before");
    rig.run(6_000);
    let [takeover] = rig.takeovers.as_slice() else { panic!("{:?}", rig.takeovers) };
    assert_eq!(takeover.phases_ms(), [0, 6_000, 0, 0]);
    let steps = [Step::Bumped, Step::Owned, Step::Loaded, Step::EndKnown, Step::Applied, Step::Running];
    let came = steps.map(|step| takeover.after_ms(step));
    assert_eq!(came, [Some(0), Some(6_000), Some(6_000), Some(6_000), Some(6_000), Some(6_000)]);
    rig.give(Input::ClockJumped);
    rig.run(60_000);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
    assert_eq!(rig.takeovers.len(), 1, "a lease that is verified anew is no takeover");
}

#[test]
fn a_shard_let_go_in_order_is_taken_without_a_wait() {
    let mut rig = Rig::running();
    rig.give(Input::Revoked);
    assert!(rig.engine.is_idle());
    rig.engine = Engine::new(rig.options.clone());
    rig.assign(2);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
}

#[test]
fn the_release_waits_for_no_row_of_progress_and_the_next_owner_needs_none() {
    for is_lost in [false, true] {
        let mut rig = Rig::running();
        rig.hold_progress = true;
        rig.schedule("q", "a", 1_000);
        rig.hold_progress = is_lost;
        rig.give(Input::Revoked);
        rig.give(Input::Tick);
        assert!(rig.engine.is_released());
        let on_record = rig.progress.as_ref().map(|progress| progress.next_offset);
        assert_eq!(on_record, Some(if is_lost { 0 } else { 1 }), "it is asked for all the same");
        rig.hold_progress = false;
        rig.engine = Engine::new(rig.options.clone());
        rig.assign(2);
        rig.run(2_000);
        assert_eq!(rig.called(), ["a"]);
    }
}

#[test]
fn who_looks_for_the_other_of_a_hand_over_is_in_the_way_of_no_compare_and_set() {
    for is_owner in [true, false] {
        let mut lease = waiting_for_another();
        let mut asked = Vec::new();
        if is_owner {
            lease.tick(Boot(6_000), &mut asked);
            let row = OwnerRow { epoch: Epoch(2), owner: 7, lease_ms: 6_000, ..OwnerRow::default() };
            lease.owner_read(Boot(6_000), Ok(row));
            assert!(lease.valid(Boot(6_000)));
            lease.unassign();
            lease.begin_looks(Boot(6_000), 1_500);
        }
        asked.clear();
        let from = if is_owner { 6_000 } else { 0 };
        for ms in from..from + 1_500 {
            lease.tick(Boot(ms), &mut asked);
            lease.owner_seen(Boot(ms), Err(Rig::away()));
        }
        assert_eq!(asked, vec![Effect::LookAtOwner; 50], "no linearizable read before its time");
    }
}

#[test]
fn a_look_without_an_answer_is_asked_again() {
    let mut lease = waiting_for_another();
    let mut asked = Vec::new();
    for ms in 0..1_000 {
        lease.tick(Boot(ms), &mut asked);
    }
    assert_eq!(asked, vec![Effect::LookAtOwner; 4], "every quarter of a second");
}

#[test]
fn an_owner_runs_on_while_a_verify_is_in_the_way_of_its_release() {
    let mut lease = waiting_for_another();
    let mut asked = Vec::new();
    let mine = OwnerRow { epoch: Epoch(2), owner: 7, lease_ms: 6_000, ..OwnerRow::default() };
    let others = OwnerRow { epoch: Epoch(3), owner: 9, wait_ms: 6_000, ..mine.clone() };
    lease.tick(Boot(6_000), &mut asked);
    lease.owner_read(Boot(6_000), Ok(mine));
    lease.unassign();
    lease.begin_looks(Boot(6_000), 4_000);
    lease.tick(Boot(7_500), &mut asked);
    assert_eq!(asked[asked.len() - 2..], [Effect::ReadOwner, Effect::LookAtOwner]);
    assert_eq!(lease.owner_seen(Boot(7_550), Ok(others.clone())), Turn::Nothing);
    assert!(lease.valid(Boot(7_550)));
    assert_eq!(lease.owner_read(Boot(7_600), Ok(others)), Turn::Followed);
}

#[test]
fn a_row_of_before_ends_no_wait() {
    let mut lease = waiting_for_another();
    let mine = OwnerRow { epoch: Epoch(2), owner: 7, wait_ms: 6_000, ..OwnerRow::default() };
    let before = OwnerRow { epoch: Epoch(1), owner: 3, wait_ms: 0, ..mine.clone() };
    let anothers = OwnerRow { owner: 8, wait_ms: 0, ..mine.clone() };
    for row in [OwnerRow::default(), before, anothers, mine.clone()] {
        assert_eq!(lease.owner_seen(Boot(100), Ok(row)), Turn::Nothing);
        assert_eq!((lease.phase_word(), lease.valid(Boot(100))), ("waiting", false));
    }
    assert_eq!(lease.owner_seen(Boot(100), Ok(OwnerRow { wait_ms: 0, ..mine })), Turn::Load);
    assert!(lease.valid(Boot(100)));
}

#[test]
fn a_look_ends_the_wait_of_no_one_whose_lease_has_run_out() {
    let mut lease = waiting_for_another();
    let mine = OwnerRow { epoch: Epoch(2), owner: 7, wait_ms: 0, ..OwnerRow::default() };
    assert_eq!(lease.owner_seen(Boot(5_000), Ok(mine)), Turn::Nothing);
    assert!(!lease.valid(Boot(5_000)));
}

/// The owner crashed, another waited for two seconds of its lease, and is told that the shard is taken.
fn revoked_after_two_seconds_of_the_wait() -> Rig {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 1_000);
    rig.engine = Engine::new(rig.options.clone());
    rig.assign(2);
    rig.run(2_000);
    rig.give(Input::Revoked);
    rig
}

#[test]
fn who_is_revoked_during_its_wait_leaves_the_rest_of_it_to_the_next_owner() {
    let mut rig = revoked_after_two_seconds_of_the_wait();
    assert!(rig.engine.is_idle());
    assert_eq!((rig.owner.released_epoch, rig.owner.wait_ms), (Epoch(2), 4_000));
    rig.engine = Engine::new(rig.options.clone());
    rig.run(500);
    rig.assign(3);
    rig.run(3_999);
    assert_eq!((rig.called().len(), rig.engine.shard_view(rig.now().boot).phase), (0, "waiting"));
    rig.run(1);
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.give(Input::Revoked);
    assert_eq!((rig.owner.released_epoch, rig.owner.wait_ms), (Epoch(3), 0), "its own wait has ended");
}

#[test]
fn who_gets_a_shard_back_waits_for_what_it_left_itself() {
    let mut rig = revoked_after_two_seconds_of_the_wait();
    rig.assign(3);
    rig.run(3_999);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "waiting");
    rig.run(1);
    assert_eq!((rig.called(), rig.owner.epoch), (vec!["a"], Epoch(3)));
}

#[test]
fn a_release_that_has_to_be_asked_again_says_what_is_left_by_then() {
    let mut lease = waiting_for_another();
    let mut asked = Vec::new();
    assert!(lease.give_up_early(Boot(2_000)));
    let epoch = Epoch(2);
    let released = |wait_ms| Effect::Release(Release { released: epoch, epoch, owner: 7, wait_ms });
    lease.tick(Boot(2_000), &mut asked);
    lease.released(Boot(2_900), Err(Rig::away()));
    lease.tick(Boot(3_000), &mut asked);
    assert_eq!(asked, [released(4_000), released(3_000)]);
    lease.released(Boot(3_000), Err(Rig::away()));
    asked.clear();
    lease.tick(Boot(9_000), &mut asked);
    assert_eq!(asked, [released(0)]);
}

/// A lease that bumped over an owner that never let go, at the time 0.
fn waiting_for_another() -> Ownership {
    let mut lease = Ownership::new(Timing { run_on_ms: 0, ..Timing::default() });
    let mut asked = Vec::new();
    let others = OwnerRow { epoch: Epoch(1), owner: 3, lease_ms: 6_000, ..OwnerRow::default() };
    lease.assign(7, Boot(0));
    lease.tick(Boot(0), &mut asked);
    lease.owner_read(Boot(0), Ok(others));
    lease.tick(Boot(0), &mut asked);
    assert_eq!(lease.bumped(Boot(0), Ok(true)), Turn::Nothing, "it waits");
    lease
}

#[test]
fn a_cancel_appended_while_nobody_owned_the_shard_wins() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 5_000);
    rig.run(300);
    rig.engine = Engine::new(rig.options.clone());
    rig.append("q", "a", Verb::Cancel);
    rig.assign(2);
    rig.run(60_000);
    assert!(rig.calls.is_empty());
    assert_eq!(rig.decisions()[1], Decision::Cancelled);
}

#[test]
fn a_replayed_event_finds_what_the_lost_owner_started() {
    let mut rig = Rig::running();
    let before = rig.progress.clone();
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    assert_eq!(rig.called(), ["b"]);
    rig.progress = before;
    rig.take_over(2);
    assert!(rig.calls.is_empty(), "a is done, and b may still be at work");
    rig.run(10_000);
    assert_eq!(rig.called(), ["b"]);
    assert_eq!(rig.calls[0].previous, Some(Outcome::Interrupted));
}

/// Another has taken over, and waits for the call that was open, when its end comes into the store.
fn taken_over_before_the_end() -> Rig {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    let call = rig.calls[0].clone();
    rig.run(300);
    rig.take_over(2);
    let ended = crate::model::Ended {
        epoch: call.token.epoch,
        seq: call.token.sequence,
        at: rig.now().wall,
        outcome: Outcome::Succeeded,
        failures: 0,
        next_at: None,
        closed: None,
        result: None,
        result_cut: false,
        error: None,
    };
    rig.facts.entry(call.place).or_default().push(crate::model::Fact::Ended(ended));
    rig
}

#[test]
fn an_end_of_the_lost_owner_that_comes_late_ends_the_wait() {
    let mut rig = taken_over_before_the_end();
    rig.run(60_000);
    assert!(rig.calls.is_empty());
    assert_eq!(rig.engine.tasks_in_memory(), 0);
}

#[test]
fn who_slept_over_a_deadline_looks_for_the_end_before_it_runs_anything_again() {
    let mut rig = taken_over_before_the_end();
    rig.ms += 30_000;
    rig.run(30_000);
    assert!(rig.calls.is_empty());
    assert_eq!(rig.engine.tasks_in_memory(), 0);
}

#[test]
fn a_member_that_hears_nothing_of_the_owner_row_leaves_the_group_until_the_store_answers() {
    let mut rig = Rig::running();
    rig.no_owner = true;
    rig.run(17_000);
    assert_eq!(rig.rejoins, 0, "the lease has lapsed, and that is all");
    rig.run(7_000);
    assert_eq!(rig.rejoins, 1);
    rig.run(10_000);
    assert_eq!(rig.rejoins, 1, "not again so soon");
    rig.regain();
    rig.run(60_000);
    assert_eq!((rig.rejoins, rig.engine.shard_view(rig.now().boot).phase), (1, "running"));
}

#[test]
fn an_answer_about_the_end_of_the_log_may_come_after_more_was_applied() {
    let mut rig = Rig::running();
    rig.held_ends = Some(Vec::new());
    rig.run(31_000);
    let ticket = rig.held_ends.as_ref().and_then(|held| held.first().copied()).expect("the end is asked for");
    let end: LogEnd = rig.end();
    rig.schedule("q", "a", 0);
    rig.give(Input::LogEndRead(ticket, Ok(end)));
    assert!(!rig.stopped);
}

#[test]
fn a_log_that_lost_records_stops_the_shard() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.held_ends = Some(Vec::new());
    rig.run(31_000);
    let ticket = rig.held_ends.as_ref().and_then(|held| held.first().copied()).expect("the end is asked for");
    rig.give(Input::LogEndRead(ticket, Ok(LogEnd { next: 0, ..rig.end() })));
    assert!(rig.stopped);
    assert!(rig.engine.poll_timeout().is_none_or(|at| at > rig.now().boot), "and does not spin");
}

#[test]
fn a_broker_that_does_not_lead_any_more_is_not_believed_that_records_are_gone() {
    let mut rig = Rig::running();
    rig.leads = Some(1);
    rig.schedule("q", "a", 0);
    let former = rig.end();
    rig.leads = Some(2);
    rig.schedule("q", "b", 1_000);
    rig.run(300);
    // One that led before, one that had not heard from its followers when it was cut off, and one that lost a record.
    for (owner, epoch, is_believed) in [(2, 1, false), (3, 2, false), (4, 3, true)] {
        rig.held_ends = Some(Vec::new());
        rig.take_over(owner);
        rig.run(10_000);
        let ticket =
            rig.held_ends.take().and_then(|held| held.first().copied()).expect("the end is asked for");
        rig.give(Input::LogEndRead(ticket, Ok(LogEnd { leader_epoch: Some(epoch), ..former.clone() })));
        rig.run(1_000);
        assert_eq!(rig.stopped, is_believed, "epoch {epoch}");
        let runs = rig.engine.shard_view(rig.now().boot).phase == "running";
        assert_eq!(runs, !is_believed, "the next answer is that of the leader");
    }
}

#[test]
fn the_epoch_of_an_end_is_known_of_without_a_record() {
    let mut rig = Rig::running();
    rig.leads = Some(5);
    rig.run(60_000);
    rig.leads = Some(4);
    rig.take_over(2);
    rig.run(10_000);
    assert_eq!(
        rig.engine.shard_view(rig.now().boot).phase,
        "catching_up",
        "who led in between is not believed"
    );
    rig.leads = Some(5);
    rig.run(1_000);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
}

#[test]
fn a_topic_that_was_made_anew_begins_with_low_epochs_and_stops_the_shard() {
    let mut rig = Rig::running();
    rig.leads = Some(2);
    rig.schedule("q", "a", 1_000);
    rig.run(300);
    (rig.topic, rig.leads) = ("another", Some(0));
    rig.take_over(2);
    rig.run(10_000);
    assert!(rig.stopped);
}

#[test]
fn a_sleeper_does_not_judge_the_log_by_where_it_was_before_it_slept() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 60_000);
    rig.held_ends = Some(Vec::new());
    rig.run(31_000);
    let ticket = rig.held_ends.as_ref().and_then(|held| held.first().copied()).expect("the end is asked for");
    rig.ms += 60_000;
    rig.give(Input::LogEndRead(ticket, Ok(LogEnd { first: 9, next: 9, ..rig.end() })));
    assert!(!rig.stopped, "another owner may have gone on, and retention with it");
}

#[test]
fn a_log_that_stays_silent_does_not_hold_up_a_takeover_for_ever() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 1_000);
    rig.run(300);
    rig.held_ends = Some(Vec::new());
    rig.take_over(2);
    rig.run(52_000);
    assert!(rig.calls.is_empty());
    let tickets = rig.held_ends.clone().unwrap_or_default();
    tickets.into_iter().for_each(|ticket| rig.give(Input::LogEndRead(ticket, Err(Rig::away()))));
    rig.run(8_000);
    assert_eq!(rig.called(), ["a"]);
}

#[test]
fn what_is_accepted_while_a_takeover_takes_long_counts_before_anything_starts() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 20_000);
    rig.run(300);
    rig.fetch_to = 1;
    for id in ["b", "c", "d"] {
        rig.schedule("r", id, 60_000);
    }
    rig.take_over(2);
    // Two of three are applied when one more is accepted: less is missing than before.
    rig.fetch_to = 3;
    rig.append("q", "a", Verb::Cancel);
    rig.run(2_000);
    // All that was there when the shard was taken over.
    rig.fetch_to = 4;
    rig.append_all([]);
    rig.run(14_000);
    assert!(rig.calls.is_empty(), "a cancel was accepted before the task began");
    rig.fetch_to = usize::MAX;
    rig.append_all([]);
    rig.run(40_000);
    assert_eq!(rig.called(), ["b"]);
}

#[test]
fn who_applies_more_slowly_than_records_come_starts_in_spite_of_that() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 10_000);
    rig.run(300);
    rig.fetch_to = 1;
    rig.schedule("r", "b", 60_000);
    rig.take_over(2);
    for applied in 2..12 {
        rig.schedule("r", &format!("{applied}"), 60_000);
        rig.schedule("r", &format!("{applied} too"), 60_000);
        rig.fetch_to = applied;
        rig.append_all([]);
        rig.run(1_000);
    }
    assert_eq!(rig.called(), ["a"]);
}

#[test]
fn who_hardly_gains_on_what_comes_starts_after_a_minute() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 10_000);
    rig.run(300);
    rig.fetch_to = 1;
    for gathered in 0..400 {
        rig.schedule("r", &format!("b {gathered}"), 600_000);
    }
    rig.take_over(2);
    // Each second one more is applied than comes.
    for second in 0..200 {
        (0..3).for_each(|n| rig.schedule("r", &format!("c {second} {n}"), 600_000));
        rig.fetch_to += 4;
        rig.append_all([]);
        rig.run(1_000);
    }
    // Again and again, since nobody says how it ends.
    assert_eq!(rig.called().first(), Some(&"a"));
}

#[test]
fn a_clock_that_jumped_breaks_calls_off_and_the_lease_is_verified_anew() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    let call = rig.calls[0].clone();
    rig.give(Input::ClockJumped);
    let how = rig.broken_off.get(&call.token.sequence);
    assert_eq!(how, Some(&Outcome::Interrupted), "it may run at another owner by now");
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running", "still its own: a read said so");
    rig.schedule("r", "b", 0);
    assert_eq!(rig.called(), ["a", "b"]);
}

#[test]
fn an_answer_to_a_question_from_before_a_jump_extends_no_lease() {
    let mut lease = Ownership::new(Timing::default());
    let mut asked = Vec::new();
    lease.assign(7, Boot(0));
    lease.tick(Boot(0), &mut asked);
    lease.owner_read(Boot(0), Ok(OwnerRow::default()));
    lease.tick(Boot(0), &mut asked);
    assert_eq!(lease.bumped(Boot(0), Ok(true)), Turn::Load, "nobody had it");
    lease.tick(Boot(1_500), &mut asked);
    lease.clock_jumped(Boot(1_500));
    let mine = OwnerRow { epoch: Epoch(1), owner: 7, ..OwnerRow::default() };
    assert_eq!(lease.tick(Boot(1_500), &mut asked), Turn::Lapsed("clock_jump"));
    assert_eq!(lease.owner_read(Boot(1_500), Ok(mine.clone())), Turn::Nothing);
    assert!(!lease.valid(Boot(1_500)), "the row may have been read before another took the shard");
    lease.tick(Boot(1_500), &mut asked);
    assert_eq!(lease.owner_read(Boot(1_510), Ok(mine)), Turn::Regained(u64::MAX));
    assert!(lease.valid(Boot(1_510)));
}

#[test]
fn a_start_that_was_not_sent_before_the_shard_was_let_go_is_never_sent() {
    let mut rig = Rig::running();
    for number in 0..=limits::WRITES_IN_FLIGHT_MAX {
        rig.schedule(&format!("q{number}"), "a", 1_000 * (1 + number as i64));
    }
    let last = *rig.facts.keys().next_back().expect("the last of them");
    rig.held_writes = Some(Vec::new());
    rig.run(1_000 * (2 + limits::WRITES_IN_FLIGHT_MAX as u64));
    let sent = rig.held_writes.as_ref().map_or(0, Vec::len);
    assert_eq!(sent, limits::WRITES_IN_FLIGHT_MAX, "the last start waits");
    rig.give(Input::Revoked);
    rig.release_writes();
    rig.run(10_000);
    assert_eq!(rig.facts[&last].len(), 1, "only its task: {:?}", rig.facts[&last]);
    assert_eq!(rig.slots_out, 0);
    rig.take_over(2);
    assert!(rig.called().contains(&"a"));
}
