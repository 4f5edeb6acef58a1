//! How much of a handler and of a collection is taken in.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rig::{Rig, content, event};
use crate::engine::{CallEnd, Options, Policy};
use crate::model::{
    CollectionLimit, CollectionLimits, Decision, Event, Outcome, RejectReason, Row, Shard, TaskContent, Verb,
};

fn rig(handler: Option<&str>, collection: Option<&str>) -> Rig {
    let rate = |text: &str| text.parse().expect("a rate");
    let policy = Policy { intake: handler.map(rate), ..Policy::default() };
    let limit = CollectionLimit { concurrency: None, rate: None, weight: 1, intake: collection.map(rate) };
    let collections =
        CollectionLimits { by_name: BTreeMap::from([(Arc::from("c"), limit)]), each_other: None };
    Rig::running_with(Options {
        policies: Arc::new(BTreeMap::from([(content().handler, policy)])),
        collections: Arc::new(collections),
        ..Options::new(Shard(0), 1, "rig")
    })
}

fn accepted(rig: &Rig) -> usize {
    rig.decisions().iter().filter(|decision| **decision == Decision::Scheduled).count()
}

#[test]
fn more_than_a_handlers_quota_is_rejected_visibly_and_taken_in_again_in_time() {
    let mut rig = rig(Some("10/m"), None);
    for n in 0..15 {
        rig.schedule("q", &format!("t-{n}"), 1_000_000);
    }
    assert_eq!(accepted(&rig), 10);
    assert_eq!(rig.rejected.len(), 5);
    assert!(rig.rejected.iter().all(|rejection| rejection.reason == RejectReason::OverQuota));
    assert!(rig.rejected[0].detail.contains("10/m"), "{}", rig.rejected[0].detail);
    rig.run(6_001);
    rig.schedule("q", "t-15", 1_000_000);
    rig.schedule("q", "t-16", 1_000_000);
    assert_eq!((accepted(&rig), rig.rejected.len()), (11, 6), "one in six seconds");
    rig.run(600_000);
    for n in 20..40 {
        rig.schedule("q", &format!("t-{n}"), 1_000_000);
    }
    assert_eq!(accepted(&rig), 21, "a minute's worth was saved up, no more");
}

#[test]
fn what_was_refused_is_no_repeat_and_a_repeat_uses_up_nothing() {
    let mut rig = rig(Some("1/m"), None);
    let (a, b) = (rig.due_in(1_000_000, content()), rig.due_in(1_000_000, content()));
    rig.append_all([event("q", "a", a.clone(), 1), event("q", "b", b.clone(), 2), event("q", "a", a, 1)]);
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::OverQuota, Decision::Repeated]);
    rig.run(60_000);
    rig.append_event(event("q", "b", b, 2));
    assert_eq!(rig.decisions().last(), Some(&Decision::Scheduled), "the same again is decided anew");
}

#[test]
fn what_was_refused_under_an_event_id_comes_in_with_the_next_try_and_is_answered_by_no_other() {
    let mut rig = rig(Some("1/m"), None);
    let due = rig.due_in(1_000_000, content());
    let under = |id: u8, hash| Event { event_id_hash: Some([id; 16]), ..event("q", "b", due.clone(), hash) };
    rig.schedule("q", "a", 1_000_000);
    rig.append_event(under(1, 2));
    rig.append_event(under(1, 2));
    rig.append_event(under(2, 2));
    assert_eq!(rig.decisions()[1..], [Decision::OverQuota; 3]);
    rig.run(60_000);
    rig.append_event(under(1, 2));
    rig.append_event(under(1, 2));
    assert_eq!(rig.decisions()[4..], [Decision::Scheduled, Decision::Repeated]);
}

#[test]
fn a_collection_has_a_quota_of_its_own_and_others_are_not_held_up() {
    let mut rig = rig(None, Some("2/h"));
    for n in 0..4 {
        let of = |content| TaskContent { collection: Some("c".into()), ..content };
        rig.schedule_with("q", &format!("c-{n}"), 1_000_000, of);
        rig.schedule("q", &format!("d-{n}"), 1_000_000);
    }
    assert_eq!((accepted(&rig), rig.rejected.len()), (6, 2));
    assert!(rig.rejected[0].detail.contains("collection \"c\""), "{}", rig.rejected[0].detail);
}

#[test]
fn what_is_on_record_stands_for_the_next_owner_and_counts() {
    let mut rig = rig(Some("1/h"), None);
    rig.schedule("q", "a", 1_000_000);
    rig.schedule("q", "b", 1_000_000);
    rig.take_over(7);
    rig.run(60_000);
    rig.schedule("q", "c", 1_000_000);
    let last: BTreeMap<_, _> = rig.events.iter().map(|row| (row.version, row.decision)).collect();
    let last: Vec<Decision> = last.into_values().collect();
    assert_eq!(last, [Decision::Scheduled, Decision::OverQuota, Decision::OverQuota]);
    assert!(
        rig.events.iter().all(|row| row.decision == last[row.version.offset() as usize]),
        "none was changed"
    );
}

/// The owner takes all of `verbs` in without a quota, and is lost when the store has only their `kept` rows; the next one has
/// a quota of one an hour.
fn lost_between_rows(rig: &mut Rig, verbs: Vec<(&str, Verb)>, kept: impl Fn(&Row) -> bool) {
    rig.held_writes = Some(Vec::new());
    let events = verbs.into_iter().zip(10..).map(|((id, verb), hash)| event("q", id, verb, hash));
    rig.append_all(events.collect::<Vec<_>>());
    let rows: Vec<Row> =
        rig.held_writes.take().into_iter().flatten().flat_map(|(_, rows)| rows.to_vec()).collect();
    let rows: Vec<Row> = rows.into_iter().filter(kept).collect();
    assert!(!rows.is_empty());
    rig.store(&rows);
    let policy = Policy { intake: Some("1/h".parse().expect("a rate")), ..Policy::default() };
    rig.options.policies = Arc::new(BTreeMap::from([(content().handler, policy)]));
    rig.take_over(7);
}

#[test]
fn what_is_refused_never_runs_though_an_owner_before_had_stored_it() {
    let mut rig = rig(None, None);
    let due = rig.due_in(60_000, content());
    let is_of_b = |row: &Row| matches!(row, Row::Fact(row) if row.place.version.offset() == 1);
    lost_between_rows(&mut rig, vec![("a", due.clone()), ("b", due)], is_of_b);
    assert_eq!(rig.decisions(), [Decision::Scheduled, Decision::OverQuota]);
    rig.run(60_000);
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.take_over(8);
    rig.run(60_000);
    assert!(rig.called().is_empty(), "nor by the next owner");
}

#[test]
fn what_may_have_stopped_another_is_not_refused() {
    let mut rig = rig(None, None);
    let (soon, later) = (rig.due_in(60_000, content()), rig.due_in(90_000, content()));
    rig.append("q", "b", soon.clone());
    let of_b = |row: &Row| matches!(row, Row::Fact(row) if row.place.version.offset() == 2);
    lost_between_rows(&mut rig, vec![("a", soon), ("b", later)], of_b);
    assert_eq!(rig.decisions()[2..], [Decision::OverQuota, Decision::Replaced]);
}

/// An owner that takes `b` in stores its task alone; the next one has a quota of one an hour, refuses it, and is lost when the
/// store has only the `kept` rows of that. The third has no quota.
fn lost_while_it_refuses(kept: impl Fn(&Row) -> bool) -> Rig {
    let mut rig = rig(None, None);
    let due = rig.due_in(60_000, content());
    let policies = rig.options.policies.clone();
    rig.held_writes = Some(Vec::new());
    rig.append_all(vec![event("q", "a", due.clone(), 10), event("q", "b", due, 11)]);
    let held = |rig: &mut Rig| -> Vec<Row> {
        let writes = rig.held_writes.take().into_iter().flatten();
        writes.flat_map(|(_, rows)| rows.to_vec()).collect()
    };
    let rows = held(&mut rig);
    let of_b = |row: &Row| matches!(row, Row::Fact(row) if row.place.version.offset() == 1);
    rig.store(&rows.into_iter().filter(of_b).collect::<Vec<_>>());
    let policy = Policy { intake: Some("1/h".parse().expect("a rate")), ..Policy::default() };
    rig.options.policies = Arc::new(BTreeMap::from([(content().handler, policy)]));
    rig.held_writes = Some(Vec::new());
    rig.take_over(7);
    let rows = held(&mut rig);
    rig.store(&rows.into_iter().filter(kept).collect::<Vec<_>>());
    rig.options.policies = policies;
    rig.take_over(8);
    rig.run(50_000);
    rig
}

#[test]
fn a_refusal_that_is_not_on_record_has_marked_nothing() {
    let mut rig = lost_while_it_refuses(|row| !matches!(row, Row::Event(_)));
    assert_eq!(rig.decisions(), [Decision::Scheduled; 2]);
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    assert_eq!(rig.called(), ["b"], "accepted, and so it runs");
}

#[test]
fn a_refusal_on_record_is_marked_by_the_next_owner() {
    let mut rig = lost_while_it_refuses(|row| matches!(row, Row::Event(_)));
    let decided = [Decision::Scheduled, Decision::OverQuota];
    assert_eq!(rig.decisions(), [decided, decided].concat(), "written again as they were");
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.take_over(9);
    rig.run(60_000);
    assert!(rig.called().is_empty(), "nor by the next owner");
}
