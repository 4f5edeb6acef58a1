//! Several events of an id in one batch: each is decided when the one before it is on record, as if they had come one by one.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::rig::{Rig, content, event};
use crate::engine::CallEnd;
use crate::model::{
    Decision, Due, Ended, Event, Fact, Generation, OnConflict, OnDead, Origin, Outcome, Place, Redrive, Row,
    Shard, TaskContent, TaskEventKind, Verb, Version, Wall,
};

/// Waits for none of the writes: answers one after the other what was sent until nothing is, and says how often.
fn answers_until_still(rig: &mut Rig) -> usize {
    let mut times = 0;
    while rig.answer_writes() > 0 {
        times += 1;
    }
    rig.held_writes = None;
    times
}

/// Answers what was sent until so many events are on record.
fn answers_until_on_record(rig: &mut Rig, events: usize) {
    while rig.decisions().len() < events {
        assert!(rig.answer_writes() > 0, "{:?}", rig.decisions());
    }
}

#[test]
fn a_backlog_takes_as_many_rounds_as_an_id_has_events() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    let far = |ms: i64| Due::At(Wall(super::rig::BASE + 900_000 + ms));
    let events = (0..240u64).map(|number| {
        let (id, verb) = match number % 3 {
            0 => (number / 3, Verb::Schedule(far(0), Box::new(content()))),
            1 => (number / 3, Verb::Reschedule(far(1_000))),
            _ => (number / 3, Verb::Cancel),
        };
        event(&format!("q{id}"), &format!("a{id}"), verb, u128::from(number))
    });
    rig.append_all(events);
    let times = answers_until_still(&mut rig);
    assert_eq!(rig.engine.next_offset(), 240);
    assert_eq!(rig.decisions().iter().filter(|decision| **decision == Decision::Cancelled).count(), 80);
    // A schedule is one write; of a move and of a cancel the mark is another.
    assert!(times <= 5, "{times} round trips");
}

#[test]
fn few_wait_for_what_is_not_the_first_of_its_id() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    let far = Due::At(Wall(super::rig::BASE + 900_000));
    // 300 ids, then an event for each once more.
    let events = (0..600u64).map(|number| {
        let id = number % 300;
        let verb = if number < 300 { Verb::Schedule(far, Box::new(content())) } else { Verb::Cancel };
        event(&format!("q{id}"), &format!("a{id}"), verb, u128::from(number))
    });
    rig.append_all(events);
    let written = rig.held_writes.iter().flatten().flat_map(|(_, rows)| rows.iter());
    let events = written.filter(|row| matches!(row, Row::Event(_))).count();
    assert_eq!(events, 300, "those of one event each are one batch");
    answers_until_still(&mut rig);
    assert_eq!(rig.engine.next_offset(), 600);
    assert_eq!(rig.decisions()[300..], [Decision::Cancelled; 300]);
}

#[test]
fn who_sends_one_id_again_and_again_holds_up_others_for_a_few_rounds_only() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    let mut events = vec![event("r", "b", rig.due_in(0, content()), 1)];
    for number in 2..40 {
        events.push(event("q", "a", rig.due_in(number, content()), number as u128));
    }
    rig.append_all(events);
    let mut times = 0;
    while rig.engine.next_offset() == 0 {
        times += 1;
        assert!(rig.answer_writes() > 0);
    }
    // Each that takes the place of another has three: its task, the mark on the other, its event.
    assert_eq!(times, 1 + 3 * 3);
    answers_until_still(&mut rig);
    rig.run(1_000);
    assert_eq!(rig.engine.next_offset(), 39);
    assert_eq!(rig.called(), ["b", "a"]);
}

#[test]
fn a_retry_that_a_cancel_forbade_is_not_moved_by_what_comes_behind_it() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.held_writes = Some(Vec::new());
    let moved = Verb::Reschedule(Due::At(rig.now().wall.plus_ms(5_000)));
    rig.append_all([event("q", "a", Verb::Cancel, 90), event("q", "a", moved, 91)]);
    rig.end_call(CallEnd::of(Outcome::Retryable));
    let is_end = |rows: &[Row]| {
        rows.iter().any(|row| matches!(row, Row::Fact(row) if matches!(row.fact, Fact::Ended(_))))
    };
    let sent = rig.held_writes.replace(Vec::new()).expect("writes are held");
    let (ends, others): (Vec<_>, Vec<_>) = sent.into_iter().partition(|(_, rows)| is_end(rows));
    assert_eq!((ends.len(), others.len()), (1, 1));
    rig.acknowledge(ends.into_iter().chain(others));
    answers_until_still(&mut rig);
    assert_eq!(rig.decisions()[1..], [Decision::TooLate, Decision::TooLate]);
    rig.run(60_000);
    assert!(rig.calls.is_empty(), "{:?}", rig.called());
}

/// Two events of the only task's id, of which the first is on record and the second is not.
fn put_between_two(rig: &mut Rig, verb: Verb) {
    rig.held_writes = Some(Vec::new());
    let moved = Verb::Reschedule(Due::At(rig.now().wall.plus_ms(5_000)));
    rig.append_all([event("q", "a", verb, 90), event("q", "a", moved, 91)]);
    answers_until_on_record(rig, 2);
    assert_eq!(rig.engine.next_offset(), 1, "the second is under way");
}

/// The same of a task that is called.
fn between_two(content: TaskContent, verb: Verb) -> Rig {
    let mut rig = Rig::publishing();
    let due = rig.due_in(0, content);
    rig.append("q", "a", due);
    put_between_two(&mut rig, verb);
    rig
}

#[test]
fn a_cancel_on_record_forbids_the_retry_while_its_batch_goes_on() {
    let mut rig = between_two(content(), Verb::Cancel);
    rig.until_told();
    rig.told.clear();
    rig.end_call(CallEnd::of(Outcome::Retryable));
    answers_until_still(&mut rig);
    assert_eq!(rig.decisions()[1..], [Decision::TooLate, Decision::TooLate]);
    rig.until_told();
    let told: Vec<TaskEventKind> = rig.told.iter().map(|event| event.kind).collect();
    assert_eq!(told, [TaskEventKind::Failed, TaskEventKind::Cancelled]);
    rig.run(60_000);
    assert!(rig.calls.is_empty());
}

#[test]
fn a_task_whose_cancel_is_on_record_stops_no_queue_while_its_batch_goes_on() {
    let stops = TaskContent { on_dead: OnDead::Stop, ..content() };
    let mut rig = between_two(stops.clone(), Verb::Cancel);
    rig.end_call(CallEnd::of(Outcome::Fatal));
    answers_until_still(&mut rig);
    assert_eq!(rig.stopped_queues, []);
    let mut rig = between_two(stops, Verb::Redrive(Redrive { due: Due::Now, payload: None }));
    rig.end_call(CallEnd::of(Outcome::Fatal));
    answers_until_still(&mut rig);
    assert_eq!(rig.stopped_queues.len(), 1, "as it does without");
}

#[test]
fn an_abort_on_record_breaks_the_call_off_while_its_batch_goes_on() {
    let rig = between_two(content(), Verb::Abort);
    assert_eq!(rig.broken_off.values().collect::<Vec<_>>(), [&Outcome::Aborted]);
}

#[test]
fn what_is_on_record_behind_a_batch_that_is_not_counts_for_calls_too() {
    let mut rig = Rig::publishing();
    rig.schedule("q", "a", 0);
    rig.held_writes = Some(Vec::new());
    rig.schedule("r", "b", 60_000);
    rig.append("q", "a", Verb::Abort);
    let sent = rig.held_writes.replace(Vec::new()).expect("writes are held");
    assert_eq!(sent.len(), 2, "a batch each");
    assert!(rig.broken_off.is_empty());
    rig.acknowledge(sent.into_iter().skip(1));
    assert_eq!(rig.broken_off.values().collect::<Vec<_>>(), [&Outcome::Aborted]);
    assert_eq!(rig.engine.next_offset(), 1, "the first is under way");
}

#[test]
fn a_task_that_is_replaced_keeps_its_place_until_what_replaces_it_is_visible() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule("q", "b", 0);
    rig.held_writes = Some(Vec::new());
    let again = rig.due_in(-1, content());
    let others = [rig.due_in(60_000, content()), Verb::Cancel];
    let [other, cancel] = others.map(|verb| event("r", "c", verb.clone(), u128::from(verb == Verb::Cancel)));
    rig.append_all([event("q", "a", again, 90), other, cancel]);
    answers_until_on_record(&mut rig, 4);
    assert_eq!(rig.engine.next_offset(), 2, "the second round is under way");
    rig.end_call(CallEnd::of(Outcome::Retryable));
    answers_until_still(&mut rig);
    rig.run(5_000);
    assert_eq!(rig.called(), ["a"], "not the one behind it");
}

#[test]
fn an_end_of_an_owner_before_is_told_with_the_cancel_that_is_on_record() {
    let mut rig = Rig::publishing();
    rig.schedule_with("q", "a", 0, |content| TaskContent { timeout_ms: Some(60_000), ..content });
    let call = rig.calls[0].clone();
    rig.run(1_000);
    rig.take_over(2);
    put_between_two(&mut rig, Verb::Cancel);
    let ended = Ended {
        epoch: call.token.epoch,
        seq: call.token.sequence,
        at: rig.now().wall,
        outcome: Outcome::Retryable,
        failures: 1,
        next_at: Some(rig.now().wall.plus_ms(1_000)),
        closed: None,
        result: None,
        result_cut: false,
        error: None,
    };
    rig.facts.entry(call.place).or_default().push(Fact::Ended(ended));
    rig.told.clear();
    rig.run(2_500);
    answers_until_still(&mut rig);
    rig.until_told();
    let told: Vec<TaskEventKind> = rig.told.iter().map(|event| event.kind).collect();
    assert_eq!(told, [TaskEventKind::Failed, TaskEventKind::Cancelled]);
    rig.run(60_000);
    assert!(rig.calls.is_empty());
}

#[test]
fn a_cancel_is_told_with_the_handler_of_a_task_that_is_not_visible_yet() {
    let mut rig = Rig::publishing();
    let due = rig.due_in(60_000, content());
    rig.append_all([event("q", "a", due, 90), event("q", "a", Verb::Cancel, 91)]);
    rig.until_told();
    let handlers: Vec<_> = rig.told.iter().map(|event| (event.kind, event.handler.is_some())).collect();
    assert_eq!(handlers, [(TaskEventKind::Scheduled, true), (TaskEventKind::Cancelled, true)]);
}

#[test]
fn forwarded_records_are_known_by_their_offsets_not_by_their_rounds() {
    let mut rig = Rig::running();
    let due = rig.due_in(60_000, content());
    let appended = rig.now().wall;
    let origin = |offset| Some(Origin { shard: Shard(1), generation: Generation(0), offset, appended });
    let events = [
        (event("q", "a", due.clone(), 1), None),
        (event("q", "a", Verb::Cancel, 2), origin(5)),
        (event("q", "b", due, 3), origin(6)),
    ];
    rig.append_from(events, appended);
    assert_eq!(rig.engine.next_offset(), 3);
    let decided: BTreeMap<u64, Decision> =
        rig.events.iter().map(|row| (row.version.offset(), row.decision)).collect();
    assert_eq!(decided[&1], Decision::Cancelled);
    assert_eq!(decided[&2], Decision::Scheduled);
}

/// A rig with a task that runs, one that is dead, one that is done, and one that is to come.
fn lived_in() -> Rig {
    let mut rig = Rig::publishing();
    for (id, outcome) in [("dead", Outcome::Fatal), ("done", Outcome::Succeeded)] {
        rig.schedule(id, id, 0);
        rig.end_call(CallEnd::of(outcome));
    }
    rig.schedule("runs", "runs", 0);
    rig.schedule("waits", "waits", 70_000);
    rig.schedule("far", "far", 7_000_000);
    rig.run(2_000);
    rig
}

fn any_event() -> impl Strategy<Value = (usize, usize, i64)> {
    (0usize..6, 0usize..8, 1i64..200)
}

fn events_of(rig: &Rig, chosen: &[(usize, usize, i64)]) -> Vec<Event> {
    let one = |(number, (id, verb, seconds)): (usize, &(usize, usize, i64))| {
        let id = ["dead", "done", "runs", "waits", "far", "new"][*id];
        let at = Due::At(rig.now().wall.plus_ms(60_000 * seconds));
        let task = |on_conflict| Verb::Schedule(at, Box::new(TaskContent { on_conflict, ..content() }));
        let verb = match verb {
            0 | 1 => task(OnConflict::Replace),
            2 => task(OnConflict::Keep),
            3 => task(OnConflict::Reject),
            4 => Verb::Cancel,
            5 => Verb::Reschedule(at),
            6 => Verb::Redrive(Redrive { due: at, payload: None }),
            _ => Verb::Abort,
        };
        event(id, id, verb, 1_000 + number as u128)
    };
    chosen.iter().enumerate().map(one).collect()
}

/// What came of all events: decisions, facts by place, what was told of each task, calls that were broken off.
type Came = (
    BTreeMap<Version, Decision>,
    BTreeMap<Place, Vec<String>>,
    BTreeMap<String, Vec<TaskEventKind>>,
    BTreeMap<u64, Outcome>,
    u64,
);

fn what_came(rig: &Rig) -> Came {
    let decisions = rig.events.iter().map(|row| (row.version, row.decision)).collect();
    let mut facts: BTreeMap<Place, Vec<String>> = BTreeMap::new();
    for (place, of_place) in &rig.facts {
        let texts: std::collections::BTreeSet<String> =
            of_place.iter().map(|fact| format!("{fact:?}")).collect();
        facts.insert(*place, texts.into_iter().collect());
    }
    let mut told: BTreeMap<String, Vec<TaskEventKind>> = BTreeMap::new();
    for event in &rig.told {
        told.entry(event.key.id.as_str().to_owned()).or_default().push(event.kind);
    }
    (decisions, facts, told, rig.broken_off.clone(), rig.engine.next_offset())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_comes_together_is_decided_as_if_it_came_one_by_one(
        chosen in proptest::collection::vec(any_event(), 1..24),
    ) {
        let (mut together, mut one_by_one) = (lived_in(), lived_in());
        let events = events_of(&together, &chosen);
        together.append_all(events.clone());
        for event in events {
            one_by_one.append_event(event);
        }
        prop_assert_eq!(what_came(&together), what_came(&one_by_one));
        for rig in [&mut together, &mut one_by_one] {
            rig.run(300_000);
        }
        prop_assert_eq!(together.called(), one_by_one.called());
        // The same when another owner decides it all once more.
        for rig in [&mut together, &mut one_by_one] {
            rig.take_over(2);
            rig.run(900_000);
        }
        prop_assert_eq!(together.called(), one_by_one.called());
    }

    #[test]
    fn an_owner_that_is_lost_between_rounds_leaves_what_the_next_one_decides_alike(
        chosen in proptest::collection::vec(any_event(), 2..24),
        answered in 0usize..6,
    ) {
        let (mut cut, mut whole) = (lived_in(), lived_in());
        let events = events_of(&cut, &chosen);
        cut.held_writes = Some(Vec::new());
        cut.append_all(events.clone());
        for _ in 0..answered {
            cut.answer_writes();
        }
        cut.held_writes = None;
        whole.append_all(events);
        for rig in [&mut cut, &mut whole] {
            rig.take_over_for(2, 20_000);
        }
        let decisions = |rig: &Rig| -> BTreeMap<Version, Decision> {
            rig.events.iter().map(|row| (row.version, row.decision)).collect()
        };
        // Who is called off, or was at work, is lost with its owner: what was decided of it may differ.
        let others = |decided: BTreeMap<Version, Decision>, rig: &Rig| -> Vec<(Version, Decision)> {
            let of_running: Vec<Version> =
                rig.events.iter().filter(|row| row.key.id.as_str() == "runs").map(|row| row.version).collect();
            decided.into_iter().filter(|(version, _)| !of_running.contains(version)).collect()
        };
        prop_assert_eq!(others(decisions(&cut), &cut), others(decisions(&whole), &whole));
        prop_assert_eq!(cut.engine.next_offset(), whole.engine.next_offset());
    }
}
