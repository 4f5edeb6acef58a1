//! Memory that is short: the loader takes in what fits, and gives nothing back that it would read again at once.

use std::sync::Arc;

use super::rig::Rig;
use crate::engine::{Budget, CallEnd, Explanation, Input, LogEnd, Options};
use crate::model::{Outcome, Payload, Shard, TaskContent};

/// Tasks that wait in queues of their own, ready, when another owner with room for six takes over.
fn taken_over(tasks: usize, payload_bytes: usize) -> Rig {
    let mut rig = Rig::running();
    rig.no_slots = true;
    let payload: Arc<[u8]> = vec![b' '; payload_bytes].into();
    let large = |content| TaskContent { payload: Payload::Inline(payload.clone()), ..content };
    (0..tasks).for_each(|n| rig.schedule_with(&format!("q{n:02}"), "t", 0, large));
    rig.run(1_000);
    rig.budget = 6;
    (rig.most_in_memory, rig.no_slots) = (0, false);
    rig.take_over(2);
    rig
}

/// Ends every call as it comes; gives how many there were.
fn drain(rig: &mut Rig) -> usize {
    let mut ended = 0;
    while !rig.calls.is_empty() {
        rig.end_call(CallEnd::of(Outcome::Succeeded));
        ended += 1;
    }
    ended
}

#[test]
fn a_page_brings_no_more_tasks_than_fit() {
    let mut rig = taken_over(30, 2);
    assert_eq!(rig.most_in_memory, 6);
    assert_eq!(drain(&mut rig), 30);
    assert_eq!(rig.most_in_memory, 6);
}

#[test]
fn a_task_larger_than_all_of_memory_is_loaded_and_runs() {
    let mut rig = taken_over(3, 8 * 1024);
    assert_eq!(rig.most_in_memory, 1);
    assert_eq!(drain(&mut rig), 3);
}

#[test]
fn a_smaller_share_of_memory_makes_tasks_leave_that_are_loaded_again() {
    let mut rig = Rig::running();
    rig.no_slots = true;
    (0..30).for_each(|n| rig.schedule(&format!("q{n:02}"), "t", 0));
    rig.give(Input::Budget(Budget { tasks: 6, ..Budget::default() }));
    assert_eq!(rig.engine.tasks_in_memory(), 6);
    rig.no_slots = false;
    rig.take_over(2);
    assert_eq!(drain(&mut rig), 30);
}

#[test]
fn a_call_that_becomes_slow_makes_room_without_anything_else_happening() {
    let mut rig = Rig::running();
    rig.no_slots = true;
    (0..6).for_each(|n| rig.schedule("slow", &format!("s{n}"), 0));
    rig.run(10);
    rig.schedule("other", "o", 0);
    rig.run(1_000);
    (rig.budget, rig.no_slots) = (6, false);
    rig.take_over(2);
    assert_eq!(rig.called(), ["s0"], "it is at work for a second, and the lease is verified in half of one");
    rig.run(400);
    assert_eq!(rig.called(), ["s0", "o"]);
}

#[test]
fn nothing_starts_while_what_is_ready_is_still_to_be_read() {
    let mut rig = Rig::running();
    (rig.no_slots, rig.held_slices) = (true, Some(Vec::new()));
    rig.schedule("q", "b", 100_000);
    rig.run(125_000);
    rig.schedule("q", "a", -120_000);
    rig.no_slots = false;
    rig.give(Input::Slots(crate::engine::Lane::of(&super::rig::content().handler), 1));
    assert!(rig.calls.is_empty(), "the page that is being read may hold what comes first");
    rig.release_slices();
    rig.run(10);
    assert_eq!(rig.called(), ["a"]);
}

#[test]
fn a_shard_that_does_not_run_says_so() {
    let rig = Rig::with(Options::new(Shard(0), 1, "rig"));
    assert_eq!(rig.engine.not_running(), Some(Explanation::ShardNotRunning("idle", None)));
    assert_eq!(Rig::running().engine.not_running(), None);
}

/// Another owner whose tasks are not read yet; the log has a task that is due, and the store too.
fn loading() -> Rig {
    let mut rig = Rig::running();
    rig.no_slots = true;
    rig.schedule("q", "a", 0);
    rig.run(1_000);
    (rig.no_slots, rig.held_slices) = (false, Some(Vec::new()));
    rig.take_over_for(2, 6_200);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "loading");
    rig
}

#[test]
fn the_first_records_are_fetched_and_looked_up_while_tasks_are_read_and_decided_afterwards() {
    let mut rig = loading();
    let before = rig.looked_up;
    rig.schedule("q", "a", 0);
    assert_eq!((rig.engine.intake.backlog(), rig.decisions().len()), (1, 1));
    assert_eq!(rig.looked_up, before + 1);
    rig.release_slices();
    assert_eq!((rig.decisions().len(), rig.called()), (2, vec!["a"]));
}

/// Another owner that has not read its progress row yet.
fn before_its_progress(ends: Option<Vec<u64>>) -> Rig {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 10_000);
    rig.run(300);
    (rig.held_reads, rig.held_ends) = (Some(Vec::new()), ends);
    rig.take_over_for(2, 6_200);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "loading");
    rig
}

#[test]
fn an_end_of_the_log_that_is_known_before_the_progress_row_waits_for_it() {
    let mut rig = before_its_progress(None);
    assert!(rig.rejoins == 0 && rig.decisions().len() == 1);
    rig.held_ends = Some(Vec::new());
    rig.release_reads();
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running", "nothing more is asked of the log");
    assert_eq!(rig.progress.as_ref().map(|progress| progress.next_offset), Some(1));
    rig.run(5_000);
    assert_eq!((rig.called(), rig.decisions().len()), (vec!["a"], 1));
}

#[test]
fn an_end_of_the_log_that_the_progress_row_is_beyond_stops_the_shard() {
    let mut rig = before_its_progress(Some(Vec::new()));
    let ticket = rig.held_ends.take().and_then(|held| held.first().copied()).expect("the end is asked for");
    rig.give(Input::LogEndRead(ticket, Ok(LogEnd { next: 0, ..rig.end() })));
    assert!(!rig.stopped, "what it is to hold is not known yet");
    rig.release_reads();
    assert!(rig.stopped);
}

#[test]
fn an_end_of_the_log_from_before_a_jump_of_the_clock_judges_nothing() {
    let mut rig = before_its_progress(Some(Vec::new()));
    let tickets = rig.held_ends.take().unwrap_or_default();
    rig.give(Input::ClockJumped);
    for ticket in tickets {
        rig.give(Input::LogEndRead(ticket, Ok(LogEnd { next: 0, ..rig.end() })));
    }
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "loading");
    rig.release_reads();
    assert!(!rig.stopped, "it is asked for again");
    rig.run(5_000);
    assert_eq!((rig.called(), rig.decisions().len()), (vec!["a"], 1));
}

/// Another owner whose tasks are not read yet; the one that is due is cancelled, and that is not fetched yet.
fn loading_beside_a_cancel() -> Rig {
    let mut rig = loading();
    rig.fetch_to = rig.log.len();
    rig.append("q", "a", crate::model::Verb::Cancel);
    rig
}

/// The cancel is fetched.
fn read_on(mut rig: Rig) -> Rig {
    rig.fetch_to = usize::MAX;
    rig.append("q", "c", crate::model::Verb::Cancel);
    rig.run(1_000);
    assert!(rig.all_calls.is_empty(), "it is obeyed");
    rig
}

#[test]
fn a_load_that_took_long_is_followed_by_what_the_log_has_then() {
    let mut rig = loading_beside_a_cancel();
    rig.run(1_000);
    rig.release_slices();
    rig.run(500);
    assert!(rig.all_calls.is_empty(), "the cancel was accepted before the tasks were read");
    rig = read_on(rig);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
}

#[test]
fn an_end_asked_for_before_the_clock_jumped_is_asked_for_again() {
    let mut rig = loading_beside_a_cancel();
    rig.give(Input::ClockJumped);
    rig.release_slices();
    rig.run(500);
    assert!(rig.all_calls.is_empty(), "the boot clock may have stood still while the cancel was accepted");
    read_on(rig);
}
