//! What events do to tasks, as seen from outside, and the table of decisions.

use std::sync::Arc;

use super::rig::{Rig, content, event};
use crate::engine::decide::{Known, Live, decide};
use crate::engine::{CallEnd, Input};
use crate::model::{
    Current, Decision, Due, Epoch, EventRow, Fact, MarkKind, OnConflict, Outcome, Place, QueueName, Redrive,
    Row, Shard, Started, TaskContent, TaskId, TaskKey, Verb, Version, Wall,
};

#[test]
fn a_cancel_before_the_start_wins() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 5_000);
    rig.append("q", "a", Verb::Cancel);
    rig.run(10_000);
    assert!(rig.calls.is_empty());
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Cancelled]);
}

#[test]
fn a_cancel_of_a_far_task_holds() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 900_000);
    rig.append("q", "a", Verb::Cancel);
    rig.run(1_000_000);
    assert!(rig.calls.is_empty());
    assert_eq!(rig.decisions()[1], Decision::Cancelled);
}

#[test]
fn a_cancel_while_starting_is_too_late_and_forbids_a_retry() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 1_000);
    rig.held_writes = Some(Vec::new());
    rig.run(1_000);
    assert!(rig.calls.is_empty(), "the start is not stored yet");
    rig.append("q", "a", Verb::Cancel);
    rig.release_writes();
    assert_eq!(rig.decisions()[1], Decision::TooLate);
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(CallEnd::of(Outcome::Retryable));
    rig.run(60_000);
    assert!(rig.calls.is_empty());
}

#[test]
fn a_head_that_waits_for_a_slot_is_not_started_once_its_cancel_is_decided() {
    let mut rig = Rig::running();
    rig.no_slots = true;
    rig.schedule("q", "a", 1_000);
    rig.run(1_000);
    rig.held_writes = Some(Vec::new());
    rig.append("q", "a", Verb::Cancel);
    rig.give(Input::Slots(crate::engine::Lane::of(&content().handler), 1));
    rig.release_writes();
    assert!(rig.calls.is_empty());
    assert_eq!(rig.decisions()[1], Decision::Cancelled);
}

#[test]
fn a_replace_while_running_runs_the_new_version_after() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    let first = rig.calls[0].place;
    rig.schedule("q", "a", 0);
    assert_eq!(rig.calls.len(), 1);
    rig.end_call(CallEnd::of(Outcome::Retryable));
    assert_eq!(rig.called(), ["a"], "the new version, without waiting for a retry of the old");
    assert_ne!(rig.calls[0].place, first);
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Replaced]);
}

#[test]
fn a_repeat_is_on_record_and_changes_nothing() {
    let mut rig = Rig::running();
    let same = event("q", "a", Verb::Schedule(Due::After(1_000), Box::new(content())), 7);
    rig.append_event(same.clone());
    rig.run(500);
    rig.append_event(same);
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Repeated]);
    rig.run(500);
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.run(60_000);
    assert!(rig.calls.is_empty());
}

#[test]
fn content_dropped_as_a_repeat_by_event_id_is_no_repeat_when_it_comes_for_itself() {
    let mut rig = Rig::running();
    let with = |content_hash, event_id| crate::model::Event {
        event_id_hash: Some([event_id; 16]),
        ..event("q", "a", Verb::Schedule(Due::After(1_000), Box::new(content())), content_hash)
    };
    rig.append_event(with(1, 10));
    rig.append_event(with(2, 10));
    rig.append_event(with(2, 11));
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Repeated, Decision::Replaced]);
}

#[test]
fn a_cancel_that_overtook_its_schedule_is_remembered_for_an_hour() {
    let mut rig = Rig::running();
    rig.append("q", "a", Verb::Cancel);
    rig.append("q", "b", Verb::Cancel);
    rig.schedule("q", "a", 0);
    assert!(rig.calls.is_empty());
    rig.run(3_600_001);
    rig.schedule("q", "b", 0);
    assert_eq!(rig.called(), ["b"]);
    let last = [Decision::CancelledBefore, Decision::Scheduled];
    assert_eq!(rig.decisions()[2..], last);
}

#[test]
fn a_reschedule_moves_a_task_with_its_content() {
    let mut rig = Rig::running();
    rig.schedule_with("q", "a", 5_000, |c| TaskContent { priority: 9, ..c });
    rig.append("q", "a", Verb::Reschedule(Due::After(1_000)));
    rig.run(1_000);
    assert_eq!(rig.calls[0].content.priority, 9);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.run(60_000);
    assert!(rig.calls.is_empty());
}

#[test]
fn a_conflict_is_decided_anew_when_it_comes_again() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    let reject = TaskContent { on_conflict: OnConflict::Reject, ..content() };
    let other = event("q", "a", Verb::Schedule(Due::Now, Box::new(reject)), 99);
    rig.append_event(other.clone());
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.append_event(other);
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Conflict, Decision::Scheduled]);
    assert_eq!(rig.called(), ["a"]);
}

#[test]
fn a_cancel_of_an_id_made_from_coordinates_finds_it_in_flight() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    let mut made = event("q", "x", Verb::Schedule(Due::After(60_000), Box::new(content())), 1);
    made.id = None;
    rig.append_event(made);
    rig.append("q", "0-0-0", Verb::Cancel);
    rig.release_writes();
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Cancelled]);
}

/// A record whose id is made from its coordinates.
fn without_id() -> crate::model::Event {
    let event = event("q", "x", Verb::Schedule(Due::At(Wall(0)), Box::new(content())), 1);
    crate::model::Event { id: None, ..event }
}

#[test]
fn a_task_of_a_made_id_keeps_the_place_above_a_watermark_that_was_lost() {
    let mut rig = Rig::running();
    let before = rig.now().wall;
    rig.run(60_000);
    rig.schedule("r", "far", 900_000);
    rig.hold_progress = true;
    rig.run(300);
    rig.append_stamped([without_id()], before.plus_ms(50_000));
    let place = rig.calls[0].place;
    assert!(place.ready_at > before.plus_ms(50_000), "lifted above the watermark");
    rig.hold_progress = false;
    rig.take_over(2);
    rig.run(20_000);
    let places: Vec<_> = rig.facts.keys().filter(|at| at.version == place.version).collect();
    assert_eq!(places, [&place], "and not a second task at the place it would get now");
    assert_eq!(rig.calls[0].previous, Some(Outcome::Interrupted));
}

#[test]
fn no_watermark_passes_what_an_owner_before_placed_and_this_one_has_not_read() {
    let mut rig = Rig::running();
    let (before, first) = (rig.now().wall, event("r", "far", Verb::Cancel, 2));
    rig.run(60_000);
    rig.hold_progress = true;
    rig.append_all([first]);
    rig.append_stamped([without_id()], before.plus_ms(50_000));
    let place = rig.calls[0].place;
    assert_eq!(place.ready_at, before.plus_ms(50_000));
    rig.hold_progress = false;
    rig.fetch_to = 1;
    rig.take_over(2);
    rig.run(1_000);
    assert!(rig.progress.as_ref().is_some_and(|progress| progress.next_offset == 1));
    rig.fetch_to = usize::MAX;
    rig.append_all([]);
    rig.run(1_000);
    assert!(rig.progress.as_ref().is_some_and(|progress| progress.next_offset == 2));
    rig.take_over(3);
    rig.run(20_000);
    assert!(rig.calls.iter().any(|call| call.place == place), "it is found again");
    let places: Vec<_> = rig.facts.keys().filter(|at| at.version == place.version).collect();
    assert_eq!(places, [&place]);
}

fn row(decision: Decision, current: Option<Current>) -> EventRow {
    let queue = QueueName::new("q").expect("a name");
    EventRow {
        key: TaskKey { queue, id: TaskId::new("a").expect("a name") },
        version: Version(5),
        epoch: Epoch(1),
        shard: Shard(0),
        verb: Arc::from("schedule"),
        content_hash: [1; 16],
        event_id_hash: Some([3; 16]),
        appended: Wall(1_000),
        decision,
        current,
        cancel_remembered: None,
        reason: None,
        is_first: false,
        is_listed: false,
    }
}

fn current(cancelled: bool) -> Current {
    let place = Place { ready_at: Wall(2_000), version: Version(5) };
    Current { place, due_at: Wall(2_000), content_hash: [1; 16], appended: Wall(1_000), cancelled }
}

fn known(newest: Option<&EventRow>, live: Live) -> Known<'_> {
    Known {
        version: Version(9),
        appended: Wall(5_000),
        asked: Wall(5_000),
        newest,
        live,
        calling: (live == Live::Open).then_some(7),
        watermark: Wall(100),
        repeat_window_ms: 60_000,
    }
}

#[test]
fn decisions_follow_from_the_verb_and_the_state() {
    use Decision::*;
    let schedule = |on_conflict| {
        let content = TaskContent { on_conflict, ..content() };
        Verb::Schedule(Due::At(Wall(9_000)), Box::new(content))
    };
    let table = [
        (schedule(OnConflict::Replace), Replaced, Replaced, Scheduled, Scheduled),
        (schedule(OnConflict::Keep), Kept, Kept, Scheduled, Scheduled),
        (schedule(OnConflict::Reject), Conflict, Conflict, Scheduled, Scheduled),
        (Verb::Cancel, Cancelled, TooLate, TooLate, TooLate),
        (Verb::Reschedule(Due::At(Wall(9_000))), Rescheduled, TooLate, TooLate, TooLate),
        (Verb::Redrive(Redrive { due: Due::Now, payload: None }), NotDead, NotDead, NotDead, NotDead),
        (Verb::Abort, NotRunning, Aborted, NotRunning, NotRunning),
    ];
    for (verb, stoppable, open, finished, cancelled) in table {
        let asked = event("q", "a", verb, 2);
        let unfinished = row(Scheduled, Some(current(false)));
        let stopped = row(Cancelled, Some(current(true)));
        assert_eq!(decide(&asked, &known(Some(&unfinished), Live::Stoppable)).decision, stoppable);
        assert_eq!(decide(&asked, &known(Some(&unfinished), Live::Open)).decision, open);
        assert_eq!(decide(&asked, &known(Some(&unfinished), Live::Finished)).decision, finished);
        assert_eq!(decide(&asked, &known(Some(&stopped), Live::Stoppable)).decision, cancelled);
        let nothing = decide(&asked, &known(None, Live::Finished)).decision;
        let of_schedule = matches!(asked.verb, Verb::Schedule(..));
        assert_eq!(nothing, if of_schedule { Scheduled } else { Unknown });
    }
}

#[test]
fn a_cancel_too_late_for_an_open_attempt_still_marks_it() {
    let unfinished = row(Decision::Scheduled, Some(current(false)));
    let plan = decide(&event("q", "a", Verb::Cancel, 2), &known(Some(&unfinished), Live::Open));
    assert_eq!(plan.mark, Some((current(false).place, MarkKind::Cancelled)));
    let plan = decide(&event("q", "a", Verb::Cancel, 2), &known(Some(&unfinished), Live::Finished));
    assert_eq!(plan.mark, None);
}

#[test]
fn a_place_is_never_at_or_below_the_watermark() {
    let asked = event("q", "a", Verb::Schedule(Due::At(Wall(50)), Box::new(content())), 2);
    let mut known = known(None, Live::Finished);
    known.watermark = Wall(7_000);
    let plan = decide(&asked, &known);
    assert!(plan.lifted);
    assert_eq!(plan.task.map(|task| (task.place.ready_at, task.due_at)), Some((Wall(7_001), Wall(50))));
}

/// A task whose start is on its way to the store, and a cancel of it.
fn cancelled_while_starting() -> Rig {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 1_000);
    rig.run(300);
    rig.held_writes = Some(Vec::new());
    rig.run(1_000);
    rig.append("q", "a", Verb::Cancel);
    rig
}

#[test]
fn too_late_is_not_said_of_a_start_that_is_not_on_record_yet() {
    let mut rig = cancelled_while_starting();
    let held = rig.held_writes.take().expect("the start is held");
    assert_eq!(held.len(), 1, "only the start is on its way");
    rig.take_over(2);
    rig.run(60_000);
    assert!(rig.calls.is_empty());
    assert_eq!(rig.decisions()[1], Decision::Cancelled, "the start was lost with its owner");
}

#[test]
fn a_cancel_is_decided_when_the_start_is_on_record() {
    let mut rig = cancelled_while_starting();
    rig.release_writes();
    assert_eq!((rig.called(), rig.decisions()[1]), (vec!["a"], Decision::TooLate));
}

#[test]
fn an_answer_that_stops_a_task_is_on_record_only_when_its_mark_is() {
    let replacing = Verb::Schedule(Due::After(30_000), Box::new(content()));
    for verb in [Verb::Cancel, Verb::Reschedule(Due::After(30_000)), replacing] {
        let mut rig = Rig::running();
        rig.schedule("q", "a", 20_000);
        rig.held_writes = Some(Vec::new());
        rig.append("q", "a", verb);
        let mut requests = 0;
        while let Some((ticket, rows)) = rig.held_writes.as_mut().and_then(Vec::pop) {
            requests += 1;
            let is_marked =
                |facts: &Vec<Fact>| facts.iter().any(|fact| matches!(fact, Fact::Superseded { .. }));
            let marked = rig.facts.values().any(is_marked);
            let answers = rows.iter().any(|row| matches!(row, Row::Event(_)));
            assert!(marked || !answers, "answered before it is marked");
            rig.store(&rows);
            rig.give(Input::Written(ticket, Ok(())));
        }
        assert!(requests >= 2);
        assert_eq!(rig.decisions().len(), 2);
    }
}

#[test]
fn what_an_owner_before_marked_as_moved_is_moved_although_a_start_comes_into_sight() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 20_000);
    rig.run(300);
    rig.held_writes = Some(Vec::new());
    rig.append("q", "a", Verb::Reschedule(Due::After(30_000)));
    let requests = rig.held_writes.take().expect("writes are held");
    requests.iter().for_each(|(_, rows)| rig.store(rows));
    assert_eq!(rig.decisions(), [Decision::Scheduled], "the owner dies before its answer is on record");
    let (at, instance) = (rig.now().wall, Arc::from("lost"));
    let (epoch, seq, deadline) = (Epoch(1), 9, at.plus_ms(5_000));
    let generation = crate::model::Generation(0);
    let started =
        Started { generation, epoch, seq, at, deadline, attempt: 1, failures: 0, interruptions: 0, instance };
    rig.facts.values_mut().for_each(|facts| facts.push(Fact::Started(started.clone())));
    rig.take_over(2);
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Rescheduled]);
    rig.run(25_000);
    assert_eq!(rig.called(), ["a"]);
    assert_eq!(rig.calls[0].attempt, 1, "it runs as what it was moved to, once");
}

#[test]
fn a_mark_holds_its_task_though_neither_event_is_applied() {
    let mut rig = Rig::running();
    rig.hold_progress = true;
    rig.schedule("q", "a", 5_000);
    rig.append("q", "a", Verb::Cancel);
    rig.hold_progress = false;
    assert_eq!(rig.progress.as_ref().map(|progress| progress.next_offset), Some(0));
    let cancel = rig.log.pop().expect("the log gives the schedule event, and not yet the cancel");
    rig.take_over(2);
    rig.run(10_000);
    assert!(rig.calls.is_empty(), "the answer may have been given");
    rig.append_all([cancel.decoded.expect("an event").0]);
    rig.run(10_000);
    assert!(rig.calls.is_empty());
}
