//! Rows that the store does not take although it takes others of the same request.

use std::collections::BTreeMap;

use super::rig::{Rig, content, event};
use crate::engine::fold;
use crate::engine::view::Pause;
use crate::engine::{CallEnd, Failure, Input};
use crate::model::{
    Decision, Due, Event, Fact, FactRow, Outcome, Payload, Row, TaskContent, TaskState, Verb, Version, limits,
};

fn refused(content: TaskContent) -> TaskContent {
    TaskContent { priority: 9, ..content }
}

/// What the store may well refuse: events behind it wait until it is known.
fn refused_and_large(content: TaskContent) -> TaskContent {
    let payload = Payload::Inline(vec![b' '; limits::PAYLOAD_INLINE_BYTES_MAX + 1].into());
    TaskContent { payload, ..refused(content) }
}

/// An event with other content each time.
fn asking(id: &str, hash: u128, verb: Verb) -> Event {
    event("q", id, verb, hash)
}

#[test]
fn a_task_that_was_refused_after_its_event_was_stored_is_not_open_for_ever() {
    let mut rig = Rig::running();
    rig.refused_priority = Some(9);
    rig.schedule_with("q", "a", 1_000, refused);
    assert_eq!(rig.events.len(), 1, "its event is on record");
    let facts = rig.facts.values().next().expect("something lies at its place");
    assert_eq!(fold(facts, Version::MAX).state(), TaskState::Cancelled);
    rig.take_over(2);
    rig.run(10_000);
    assert!(rig.calls.is_empty());
}

#[test]
fn a_replacement_that_was_refused_leaves_the_task_it_was_to_replace() {
    let mut rig = Rig::running();
    rig.refused_priority = Some(9);
    rig.schedule("q", "a", 20_000);
    rig.schedule_with("q", "a", 20_000, refused);
    rig.run(300);
    rig.take_over(2);
    rig.run(15_000);
    assert_eq!(rig.called(), ["a"]);
    assert_eq!(rig.calls[0].content.priority, 5);
}

/// As before, when the log's clock stepped back and the other gets a place above the watermark.
#[test]
fn a_lifted_replacement_that_was_refused_leaves_the_task_it_was_to_replace() {
    let mut rig = Rig::running();
    let before = rig.now().wall;
    rig.schedule("q", "a", 90_000);
    rig.run(60_000);
    rig.schedule("r", "far", 900_000);
    rig.run(300);
    rig.refused_payloads = true;
    let replace = rig.due_in(-20_000, refused_and_large(content()));
    let [first, again] = [90, 91].map(|hash| asking("a", hash, replace.clone()));
    rig.append_stamped([first, again], before.plus_ms(30_000));
    rig.run(300);
    assert_eq!((rig.engine.next_offset(), rig.decisions()), (4, vec![Decision::Scheduled; 2]));
    rig.take_over(2);
    rig.run(30_000);
    assert_eq!(rig.called(), ["a"]);
    assert_eq!(rig.calls[0].content.priority, 5);
}

#[test]
fn a_cancel_that_is_refused_after_its_mark_stands_is_not_rejected() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 20_000);
    rig.schedule("q", "b", 20_000);
    rig.refused_cancels = true;
    rig.append("q", "a", Verb::Cancel);
    rig.run(5_000);
    assert_eq!(rig.decisions(), [Decision::Scheduled; 2]);
    assert_eq!(rig.engine.shard_view(rig.now().boot).paused, Some(Pause::StoreMisconfigured));
    rig.refused_cancels = false;
    rig.run(5_000);
    assert_eq!(rig.decisions().last(), Some(&Decision::Cancelled), "not: rejected");
    assert_eq!(rig.engine.shard_view(rig.now().boot).paused, None);
    rig.take_over(2);
    rig.run(9_000);
    assert_eq!(rig.called(), ["b"]);
}

#[test]
fn what_rests_on_a_mark_waits_for_the_lease() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 60_000);
    rig.held_writes = Some(Vec::new());
    rig.append("q", "a", Verb::Cancel);
    let mark = rig.held_writes.take().expect("the mark is sent");
    assert_eq!(mark.len(), 1);
    rig.lapse();
    rig.held_writes = Some(Vec::new());
    rig.store(&mark[0].1);
    rig.give(Input::Written(mark[0].0, Ok(())));
    rig.run(5_000);
    assert_eq!(
        rig.held_writes.as_ref().map(Vec::len),
        Some(0),
        "another may own the shard, and have run the task"
    );
    rig.regain();
    rig.run(5_000);
    rig.release_writes();
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Cancelled]);
}

#[test]
fn a_batch_that_failed_is_sent_again_under_the_lease_only() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    rig.schedule("q", "a", 60_000);
    let sent = rig.held_writes.replace(Vec::new()).expect("its rows are sent");
    rig.lapse();
    for (ticket, _) in sent {
        rig.give(Input::Written(ticket, Err(Rig::away())));
    }
    rig.run(5_000);
    assert_eq!(rig.held_writes.as_ref().map(Vec::len), Some(0));
    rig.regain();
    rig.run(10_000);
    rig.release_writes();
    assert_eq!(rig.decisions(), [Decision::Scheduled]);
}

#[test]
fn a_request_of_which_nothing_is_left_does_not_hold_up_the_rest() {
    let mut rig = Rig::running();
    rig.refused_priority = Some(9);
    rig.schedule("q", "b", 30_000);
    rig.held_writes = Some(Vec::new());
    rig.schedule_with("q", "a", 20_000, refused);
    rig.schedule("q", "c", 20_000);
    rig.append("q", "b", Verb::Cancel);
    let of_a = |row: &Row| match row {
        Row::Fact(FactRow { fact: Fact::Task { content, .. }, .. }) => content.priority == 9,
        _ => false,
    };
    for (ticket, rows) in rig.held_writes.take().expect("rows are sent") {
        if let Some(index) = rows.iter().position(of_a) {
            let refused = Failure::RowRefused(index, "too large".into());
            rig.give(Input::Written(ticket, Err(refused)));
        } else {
            rig.store(&rows);
            rig.give(Input::Written(ticket, Ok(())));
        }
    }
    rig.run(5_000);
    assert_eq!(rig.engine.next_offset(), 4);
    rig.take_over(2);
    rig.run(15_000);
    assert_eq!(rig.called(), ["c"]);
}

#[test]
fn what_comes_behind_a_task_that_is_refused_is_decided_without_it() {
    let mut rig = Rig::running();
    rig.refused_priority = Some(9);
    rig.schedule("q", "a", 5_000);
    let replace = rig.due_in(6_000, refused_and_large(content()));
    rig.append_all([asking("a", 90, replace), asking("a", 91, Verb::Cancel)]);
    assert_eq!(rig.decisions().last(), Some(&Decision::Cancelled));
    rig.schedule("q", "b", 7_000);
    rig.run(8_000);
    assert_eq!(rig.called(), ["b"], "neither the one that was refused nor the one that was cancelled");
    rig.take_over(2);
    rig.run(10_000);
    assert!(rig.all_calls.iter().all(|call| call.key.id.as_str() == "b"));
}

#[test]
fn a_refused_task_cannot_be_moved_and_the_shard_goes_on() {
    let mut rig = Rig::running();
    rig.refused_priority = Some(9);
    let schedule = rig.due_in(20_000, refused_and_large(content()));
    let moved = Verb::Reschedule(Due::At(rig.now().wall.plus_ms(30_000)));
    let next = rig.due_in(1_000, content());
    rig.append_all([asking("a", 90, schedule), asking("a", 91, moved), asking("b", 92, next)]);
    rig.run(3_000);
    assert_eq!(rig.engine.next_offset(), 3);
    let decided: BTreeMap<_, _> = rig.events.iter().map(|row| (row.version.offset(), row.decision)).collect();
    assert_eq!(decided, BTreeMap::from([(1, Decision::Unknown), (2, Decision::Scheduled)]));
    assert_eq!(rig.called(), ["b"]);
}

#[test]
fn an_event_waits_until_the_one_before_it_of_its_id_is_on_record() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    let [first, second] = [30_000, 31_000].map(|ms| rig.due_in(ms, content()));
    let other = rig.due_in(30_000, content());
    rig.append_all([asking("a", 90, first), asking("a", 91, second), asking("b", 92, other)]);
    let sent = |rig: &Rig| -> Vec<u64> {
        let rows = rig.held_writes.iter().flatten().flat_map(|(_, rows)| rows.iter());
        rows.filter_map(|row| match row {
            Row::Event(row) => Some(row.version.offset()),
            _ => None,
        })
        .collect()
    };
    assert_eq!(sent(&rig), [0, 2], "those of other ids do not wait");
    rig.release_writes();
    rig.run(1_000);
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Scheduled, Decision::Replaced]);
    rig.run(30_000);
    for id in ["b", "a"] {
        assert_eq!(rig.end_call(CallEnd::of(Outcome::Succeeded)).key.id.as_str(), id);
        rig.run(1_000);
    }
    assert!(rig.calls.is_empty());
}

#[test]
fn a_mark_that_may_be_stored_is_sent_until_it_is() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 30_000);
    rig.held_writes = Some(Vec::new());
    rig.append("q", "a", Verb::Cancel);
    for failure in [Rig::away(), Failure::RowRefused(0, "invalid".into())] {
        let sent = rig.held_writes.replace(Vec::new()).expect("writes are held");
        assert_eq!(sent.len(), 1, "the mark");
        rig.give(Input::Written(sent[0].0, Err(failure)));
        rig.run(5_000);
    }
    rig.release_writes();
    rig.run(5_000);
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::Cancelled]);
}

#[test]
fn nobody_rejects_an_event_without_the_lease() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    rig.schedule_with("q", "a", 60_000, refused);
    let sent = rig.held_writes.replace(Vec::new()).expect("writes are held");
    rig.lapse();
    rig.give(Input::Written(sent[0].0, Err(Failure::RowRefused(0, "too large".into()))));
    rig.run(1_000);
    rig.regain();
    rig.run(5_000);
    rig.release_writes();
    assert_eq!(rig.decisions(), [Decision::Scheduled], "another may have taken it in: it is tried again");
}
