//! What may be forgotten of a task, and when.

use crate::engine::{Aged, Forget, aged, forget};
use crate::model::{
    CloseReason, Current, Decision, Ended, Epoch, EventRow, Fact, FactRow, Generation, MarkKind, Outcome,
    Payload, Place, QueueName, Shard, Started, TaskContent, TaskId, TaskKey, Version, Wall,
};

use super::rig::content;

const BEFORE: Wall = Wall(1_000_000);
const PLACE: Place = Place { ready_at: Wall(500), version: Version(7) };

fn key() -> TaskKey {
    TaskKey { queue: QueueName::new("q").expect("a name"), id: TaskId::new("t").expect("a name") }
}

fn task() -> Fact {
    Fact::Task { key: key(), due_at: PLACE.ready_at, appended: Wall(400), content: content().into() }
}

fn started(at: i64) -> Fact {
    Fact::Started(Started {
        generation: Generation(0),
        epoch: Epoch(1),
        seq: 1,
        at: Wall(at),
        deadline: Wall(at + 100),
        attempt: 1,
        failures: 0,
        interruptions: 0,
        instance: "i".into(),
    })
}

fn ended(at: i64, next_at: Option<i64>) -> Fact {
    let outcome = if next_at.is_some() { Outcome::Retryable } else { Outcome::Succeeded };
    Fact::Ended(Ended {
        epoch: Epoch(1),
        seq: 1,
        at: Wall(at),
        outcome,
        failures: u32::from(next_at.is_some()),
        next_at: next_at.map(Wall),
        closed: None,
        result: None,
        result_cut: false,
        error: None,
    })
}

fn mark(by: u64) -> Fact {
    Fact::Superseded { by: Version(by), epoch: Epoch(1), mark: MarkKind::Cancelled }
}

fn of(facts: &[Fact]) -> Aged {
    let row = |fact: &Fact| FactRow { shard: Shard(0), place: PLACE, fact: fact.clone() };
    aged(&facts.iter().map(row).collect::<Vec<_>>(), BEFORE, Version(100))
}

#[test]
fn only_what_is_finished_and_wholly_old_may_be_forgotten() {
    let old = Aged::Old { key: key(), has_payload: false, marked_by: None };
    assert_eq!(of(&[task(), started(600), ended(700, None)]), old);
    assert_eq!(of(&[task()]), Aged::Young, "it never ran: it waits at a gate, perhaps");
    assert_eq!(of(&[task(), started(600)]), Aged::Young, "an attempt is open");
    assert_eq!(of(&[task(), started(600), ended(700, Some(800))]), Aged::Young, "it is to be tried again");
    assert_eq!(of(&[task(), started(600), ended(1_000_000, None)]), Aged::Young, "it ended a short time ago");
    assert_eq!(of(&[task(), started(1_000_000)]), Aged::Young);
    let cancelled = Aged::Old { key: key(), has_payload: false, marked_by: Some(Version(50)) };
    assert_eq!(of(&[task(), mark(50)]), cancelled);
    assert_eq!(of(&[task(), mark(100)]), Aged::Young, "the event of its mark is not applied");
    let closed = |at| Fact::Closed { epoch: Epoch(1), seq: 2, at: Wall(at), reason: CloseReason::Expired };
    assert_eq!(of(&[task(), closed(999_999)]), old);
    assert_eq!(of(&[task(), closed(1_000_000)]), Aged::Young);
    assert_eq!(of(&[mark(50)]), Aged::Nothing, "the mark of an event that was rejected in the end");
    let stored = TaskContent { payload: Payload::Stored(50_000), ..content() };
    let large = Fact::Task { key: key(), due_at: Wall(1), appended: Wall(1), content: stored.into() };
    let large = of(&[large, started(600), ended(700, None)]);
    assert_eq!(large, Aged::Old { key: key(), has_payload: true, marked_by: None });
}

fn event(version: u64, appended: i64, current: Option<Place>) -> EventRow {
    let current = current.map(|place| Current {
        place,
        due_at: place.ready_at,
        content_hash: [0; 16],
        appended: Wall(1),
        cancelled: false,
    });
    EventRow {
        key: key(),
        version: Version(version),
        epoch: Epoch(1),
        shard: Shard(0),
        verb: "schedule".into(),
        content_hash: [0; 16],
        event_id_hash: None,
        appended: Wall(appended),
        decision: Decision::Scheduled,
        current,
        cancel_remembered: None,
        reason: None,
        is_first: false,
        is_listed: false,
    }
}

/// Events below this are durably applied.
const APPLIED: Version = Version(100);

fn forgotten(newest: Option<&EventRow>, mark: Option<&EventRow>) -> Forget {
    forget(PLACE, newest, mark, BEFORE, APPLIED)
}

#[test]
fn events_of_an_id_are_forgotten_as_far_as_no_later_task_or_young_event_needs_them() {
    let later = Place { ready_at: Wall(900), version: Version(9) };
    let before_it = Place { ready_at: Wall(900_000_000), version: Version(4) };
    assert_eq!(forgotten(None, None), Forget::Nothing);
    assert_eq!(forgotten(Some(&event(7, 400, Some(PLACE))), None), Forget::UpTo(Version(7)));
    assert_eq!(
        forgotten(Some(&event(8, 900, Some(PLACE))), None),
        Forget::UpTo(Version(8)),
        "a cancel that came too late, say, goes with its task"
    );
    assert_eq!(forgotten(Some(&event(8, 1_000_000, Some(PLACE))), None), Forget::Keep, "a repeat of today");
    assert_eq!(
        forgotten(Some(&event(10, 1_000_000, Some(later))), Some(&event(9, 900_000, Some(later)))),
        Forget::UpTo(Version(7)),
        "the id stands for a later task, which keeps its own events"
    );
    let today = event(9, 1_000_000, Some(later));
    assert_eq!(forgotten(Some(&today), Some(&today)), Forget::Keep, "it was put aside today");
    assert_eq!(
        forgotten(Some(&event(100, 900, Some(later))), None),
        Forget::Keep,
        "who reads this event again needs what it takes over"
    );
    assert_eq!(
        forgotten(Some(&event(4, 400, Some(before_it))), None),
        Forget::Nothing,
        "what lies here was rejected in the end: the id stands for a task from before it"
    );
}
