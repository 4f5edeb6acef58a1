//! Late queues: what leaves memory, what the watermark passes, and that all of it comes back in order.

mod any;

use super::rig::{Rig, content, event};
use crate::engine::{CallEnd, Options, Whose};
use crate::model::{
    Decision, Due, Outcome, Place, Pointer, QueueName, Shard, TaskContent, TaskId, Verb, Version, Wall,
    limits,
};

fn small() -> Options {
    Options { queue_tasks_max: 4, late_rows: 10, late_after_ms: 1_000, ..Options::new(Shard(0), 1, "rig") }
}

fn budget(tasks: usize) -> crate::engine::Budget {
    crate::engine::Budget { tasks, ..crate::engine::Budget::default() }
}

fn succeeded() -> CallEnd {
    CallEnd::of(Outcome::Succeeded)
}

/// The head fails and is tried again in an hour.
fn blocked() -> CallEnd {
    CallEnd { after_ms: Some(3_600_000), ..CallEnd::of(Outcome::Retryable) }
}

fn name(text: &str) -> QueueName {
    QueueName::new(text).expect("a name")
}

fn whose(queue: &str) -> Whose {
    Whose { queue: name(queue), handler: content().handler, collection: None }
}

/// A shard whose queue `q` has a blocked head and `count` tasks behind it, `t0` first.
fn behind_a_blocked_head(options: Options, count: usize) -> Rig {
    let mut rig = Rig::running_with(options);
    rig.schedule("q", "head", 0);
    rig.end_call(blocked());
    (0..count).for_each(|n| rig.schedule("q", &format!("t{n}"), 0));
    rig
}

/// Lets time pass until something is called.
fn until_called(rig: &mut Rig) {
    for _ in 0..8_000 {
        if !rig.calls.is_empty() {
            return;
        }
        rig.run(1_000);
    }
}

/// Ends every call as it comes, until none comes any more: the ids in the order of the calls.
fn drain(rig: &mut Rig) -> Vec<String> {
    let mut ids = Vec::new();
    while !rig.calls.is_empty() {
        ids.push(rig.end_call(succeeded()).key.id.to_string());
    }
    ids
}

#[test]
fn tasks_behind_a_blocked_head_leave_memory_and_come_back_in_order() {
    let mut rig = behind_a_blocked_head(small(), 40);
    assert!(rig.engine.tasks_in_memory() <= 4, "{} in memory", rig.engine.tasks_in_memory());
    let last = rig.facts.keys().last().copied().expect("tasks are stored");
    assert_eq!(rig.engine.explain(&whose("q"), last), [crate::engine::Explanation::NotLoaded]);
    rig.schedule("r", "other", 0);
    assert_eq!(drain(&mut rig), ["other"], "another queue does not wait");
    until_called(&mut rig);
    let expected: Vec<String> =
        std::iter::once("head".into()).chain((0..40).map(|n| format!("t{n}"))).collect();
    assert_eq!(drain(&mut rig), expected);
    assert_eq!(rig.engine.late_queues(), 0);
    assert_eq!(rig.engine.tasks_in_memory(), 0);
}

#[test]
fn the_watermark_passes_a_blocked_head_and_a_takeover_finds_it() {
    let mut rig = behind_a_blocked_head(small(), 40);
    rig.run(120_000);
    let head = rig.facts.keys().next().copied().expect("a task is stored");
    let watermark = rig.progress.as_ref().map(|progress| progress.watermark);
    assert!(watermark > Some(head.ready_at), "{watermark:?}");
    rig.take_over(2);
    rig.take_over(3);
    rig.schedule("r", "other", 0);
    assert_eq!(drain(&mut rig), ["other"]);
    until_called(&mut rig);
    assert_eq!(drain(&mut rig).len(), 41);
}

/// The row that names the new owner's list is written again also when nothing else is to be written.
#[test]
fn a_takeover_goes_on_although_the_row_that_names_its_list_was_not_written() {
    let mut rig = behind_a_blocked_head(small(), 40);
    rig.run(60_000);
    // The first row opens the epoch, the second names the list.
    rig.fail_progress = Some(1);
    rig.take_over(2);
    assert_eq!(rig.fail_progress, None, "it was asked for");
    rig.run(2_000);
    assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
}

#[test]
fn an_earlier_due_arrival_at_a_late_queue_runs_before_all_it_stands_before() {
    for takeover in [false, true] {
        let mut rig = behind_a_blocked_head(small(), 20);
        rig.run(120_000);
        if takeover {
            rig.take_over(2);
        }
        rig.schedule("q", "middle", -60_000);
        rig.schedule("q", "early", -600_000);
        assert_eq!(rig.called(), ["early"]);
        rig.end_call(blocked());
        rig.run(120_000);
        rig.take_over(3);
        until_called(&mut rig);
        let ids = drain(&mut rig);
        assert_eq!(ids[..3], ["early", "head", "t0"], "the second is due at the same time after the first");
        assert!(ids.contains(&"middle".to_owned()));
        assert_eq!(ids.len(), 23);
    }
}

#[test]
fn a_task_known_by_pointer_only_is_cancelled_moved_and_replaced() {
    let mut rig = behind_a_blocked_head(small(), 20);
    rig.run(120_000);
    rig.take_over(2);
    rig.append("q", "t10", Verb::Cancel);
    rig.append("q", "t11", Verb::Reschedule(Due::After(7_200_000)));
    rig.schedule("q", "t12", 0);
    let last = [Decision::Cancelled, Decision::Rescheduled, Decision::Replaced];
    assert_eq!(rig.decisions()[rig.events.len() - 3..], last);
    until_called(&mut rig);
    let ids = drain(&mut rig);
    assert!(!ids.contains(&"t10".to_owned()) && !ids.contains(&"t11".to_owned()));
    assert_eq!(ids.last().map(String::as_str), Some("t12"), "the new version stands last");
    until_called(&mut rig);
    assert_eq!(drain(&mut rig), ["t11"]);
}

#[test]
fn a_pointer_to_nothing_or_to_a_finished_task_changes_nothing() {
    let mut rig = behind_a_blocked_head(small(), 20);
    rig.run(120_000);
    let start = rig.facts.keys().next().map(|place| place.ready_at).expect("a task is stored");
    let ghost = Place { ready_at: start.plus_ms(1), version: Version(500) };
    rig.pointers.insert((name("q"), Pointer::of(start, ghost).standing()), Pointer::of(start, ghost));
    rig.take_over(2);
    until_called(&mut rig);
    let mut ids = drain(&mut rig);
    let all = ids.len();
    ids.dedup();
    assert_eq!((all, ids.len()), (21, 21));
}

#[test]
fn a_mark_that_becomes_visible_while_a_task_is_read_holds() {
    let mut rig = behind_a_blocked_head(small(), 20);
    rig.run(120_000);
    rig.take_over(2);
    rig.run(3_400_000);
    rig.held_facts = Some(Vec::new());
    until_called(&mut rig);
    assert_eq!(rig.called(), ["head"]);
    rig.held_writes = Some(Vec::new());
    rig.end_call(succeeded());
    rig.release_writes();
    let held = rig.held_facts.take().unwrap_or_default();
    assert!(!held.is_empty(), "facts of the next tasks are being read");
    rig.append("q", "t3", Verb::Cancel);
    rig.append("q", "t8", Verb::Cancel);
    held.into_iter().for_each(|input| rig.give(input));
    let ids = drain(&mut rig);
    assert!(!ids.contains(&"t3".to_owned()) && !ids.contains(&"t8".to_owned()), "{ids:?}");
    assert_eq!(ids.len(), 18);
}

#[test]
fn a_shard_full_of_blocked_queues_has_room_for_others() {
    let mut rig = Rig::running_with(Options { queue_tasks_max: 64, ..small() });
    rig.give(crate::engine::Input::Budget(budget(40)));
    for queue in 0..10 {
        rig.schedule(&format!("q{queue}"), "head", 0);
        until_called(&mut rig);
        rig.end_call(blocked());
        (0..20).for_each(|n| rig.schedule(&format!("q{queue}"), &format!("t{n}"), 0));
    }
    assert!(rig.engine.tasks_in_memory() <= 41, "{} in memory", rig.engine.tasks_in_memory());
    (0..30).for_each(|n| rig.schedule(&format!("r{n}"), "other", 1_000));
    rig.run(1_100);
    assert_eq!(drain(&mut rig).len(), 30);
    let mut ended = 0;
    while ended < 210 {
        until_called(&mut rig);
        let more = drain(&mut rig).len();
        assert!(more > 0, "{ended} ended, and nothing is called any more");
        ended += more;
    }
}

#[test]
fn a_hundred_thousand_tasks_behind_one_head_cost_no_memory_and_a_takeover_reads_few_rows() {
    let mut rig = Rig::running_with(Options { late_rows: 2_000, ..Options::new(Shard(0), 1, "rig") });
    rig.schedule("q", "head", 0);
    rig.end_call(blocked());
    let behind = |n: u128| crate::model::Event {
        id: None,
        ..event("q", "x", Verb::Schedule(Due::Now, Box::new(content())), 1_000 + n)
    };
    for thousand in 0..100 {
        rig.append_all((0..1_000).map(|n| behind(thousand * 1_000 + n)));
        rig.run(50);
    }
    let bound = limits::QUEUE_TASKS_MAX + 3 * limits::INTAKE_BATCH_RECORDS_MAX;
    assert!(rig.most_in_memory <= bound, "{} in memory", rig.most_in_memory);
    assert!(rig.engine.tasks_in_memory() <= limits::QUEUE_TASKS_MAX);
    rig.schedule("r", "other", 0);
    assert_eq!(drain(&mut rig), ["other"]);
    rig.run(60_000);
    rig.reads = 0;
    rig.take_over(2);
    assert!(rig.reads < 3_000, "{} rows read", rig.reads);
    until_called(&mut rig);
    assert_eq!(rig.end_call(succeeded()).key.id.as_str(), "head");
    for n in 1..500 {
        assert_eq!(rig.end_call(succeeded()).place.version, Version(n));
    }
}

#[test]
fn a_list_that_is_mostly_out_of_date_is_written_anew() {
    let mut rig = Rig::running_with(Options { queue_tasks_max: 1, ..small() });
    for round in 0..200 {
        rig.schedule("q", &format!("a{round}"), 0);
        rig.schedule("q", &format!("b{round}"), 0);
        rig.schedule("q", &format!("c{round}"), 0);
        assert_eq!(drain(&mut rig).len(), 3);
        rig.run(300);
    }
    let newest = rig.late_queues.iter().map(|row| row.segment).max().expect("the queue was late");
    let rows = rig.late_queues.iter().filter(|row| row.segment == newest).count();
    assert!(newest.number > 5 && rows <= 10, "{newest:?} has {rows} rows");
    assert!(rig.progress.as_ref().and_then(|progress| progress.late).is_some_and(|late| late.number > 5));
}

#[test]
fn an_open_attempt_that_the_watermark_passed_holds_its_queue_whatever_came_before_it() {
    for pointed in [false, true] {
        let mut rig = Rig::running_with(small());
        rig.schedule_with("q", "long", 0, |content| TaskContent { timeout_ms: Some(600_000), ..content });
        (0..20).for_each(|n| rig.schedule("q", &format!("t{n}"), 0));
        rig.run(120_000);
        let long = rig.facts.keys().next().copied().expect("it is stored");
        assert!(rig.progress.as_ref().is_some_and(|progress| progress.watermark > long.ready_at));
        (0..20).for_each(|n| rig.schedule("q", &format!("early{n}"), -600_000));
        rig.run(if pointed { 120_000 } else { 0 });
        for owner in 2..5 {
            rig.take_over(owner);
            rig.run(60_000);
            assert!(rig.calls.is_empty(), "{:?} while the call of a lost owner is at work", rig.called());
        }
        until_called(&mut rig);
        let ids = drain(&mut rig);
        assert_eq!((ids[0].as_str(), ids[20].as_str(), ids.len()), ("early0", "long", 41));
    }
}

#[test]
fn an_attempt_of_the_first_holds_its_queue_although_one_that_is_named_behind_it_is_not_under_way_any_more() {
    let mut rig = Rig::running_with(small());
    let long = |content| TaskContent { timeout_ms: Some(600_000), ..content };
    rig.schedule_with("q", "named", 0, long);
    (0..20).for_each(|n| rig.schedule("q", &format!("t{n}"), 0));
    rig.run(120_000);
    rig.schedule_with("q", "early", -600_000, long);
    (0..20).for_each(|n| rig.schedule("q", &format!("early{n}"), -600_000));
    rig.run(120_000);
    rig.take_over(2);
    until_called(&mut rig);
    assert_eq!(rig.called(), ["early"], "the deadline of the other has passed");
    rig.schedule("q", "earliest", -3_000_000);
    rig.take_over(3);
    rig.run(60_000);
    assert!(rig.calls.is_empty(), "{:?} while the call of a lost owner is at work", rig.called());
    until_called(&mut rig);
    assert_eq!(drain(&mut rig)[..2], ["earliest", "early"]);
}

#[test]
fn an_attempt_behind_a_task_whose_cancel_is_to_be_applied_again_holds_its_queue() {
    let mut rig = behind_a_blocked_head(Options { queue_tasks_max: 1, ..small() }, 20);
    rig.run(120_000);
    rig.hold_progress = true;
    rig.append("q", "head", Verb::Cancel);
    assert_eq!(rig.called(), ["t0"]);
    rig.schedule("q", "early", -600_000);
    rig.hold_progress = false;
    rig.take_over(2);
    assert!(rig.calls.is_empty(), "{:?} while the call of a lost owner is at work", rig.called());
    until_called(&mut rig);
    assert_eq!(drain(&mut rig)[..3], ["early", "t0", "t1"]);
}

#[test]
fn a_read_that_fails_after_a_takeover_loses_no_task_and_runs_none_twice() {
    for (fail_every, tasks) in [(2, 1), (2, 6), (2, 10_000), (3, 1), (3, 10_000)] {
        let mut rig = Rig::running_with(small());
        rig.schedule_with("q", "long", 0, |content| TaskContent { timeout_ms: Some(600_000), ..content });
        (0..20).for_each(|n| rig.schedule("q", &format!("t{n}"), 0));
        rig.run(120_000);
        (0..20).for_each(|n| rig.schedule("q", &format!("early{n}"), -600_000));
        rig.run(120_000);
        rig.fail_every = fail_every;
        rig.budget = tasks;
        rig.take_over(2);
        rig.give(crate::engine::Input::Budget(budget(tasks)));
        let mut ids = Vec::new();
        for owner in 3..60 {
            until_called(&mut rig);
            for _ in 0..3 {
                if !rig.calls.is_empty() {
                    ids.push(rig.end_call(succeeded()).key.id.to_string());
                }
            }
            rig.take_over(owner);
            rig.give(crate::engine::Input::Budget(budget(tasks)));
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 41, "{fail_every} {tasks}: {ids:?}");
        assert_eq!(rig.engine.late_queues(), 0);
    }
}

#[test]
fn nothing_starts_before_the_own_list_counts() {
    let mut rig = behind_a_blocked_head(small(), 20);
    rig.run(120_000);
    rig.schedule("r", "other", 8_000);
    rig.hold_progress = true;
    rig.take_over(2);
    rig.run(60_000);
    assert!(rig.calls.is_empty());
    rig.hold_progress = false;
    rig.take_over(3);
    rig.run(10_000);
    assert_eq!(rig.called(), ["other"]);
}
