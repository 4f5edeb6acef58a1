//! Parked tasks: one that failed waits aside, its queue goes on, and it comes back to its place.

use super::rig::{Rig, content};
use crate::engine::{Blocked, CallEnd, Explanation, Options, Whose};
use crate::model::{Decision, OnFailure, Outcome, QueueName, Shard, TaskContent, TaskState, Verb};

fn parks(content: TaskContent) -> TaskContent {
    TaskContent { on_failure: OnFailure::Park, ..content }
}

fn failed(after_ms: u64) -> CallEnd {
    CallEnd { after_ms: Some(after_ms), ..CallEnd::of(Outcome::Retryable) }
}

fn succeeded() -> CallEnd {
    CallEnd::of(Outcome::Succeeded)
}

/// A queue with a task aside, tried again in a minute, and two behind it.
fn with_one_aside(options: Options) -> Rig {
    let mut rig = Rig::running_with(options);
    rig.schedule_with("q", "a", 0, parks);
    rig.schedule("q", "b", 0);
    rig.schedule("q", "c", 0);
    rig.end_call(failed(60_000));
    rig
}

fn usual() -> Options {
    Options::new(Shard(0), 1, "rig")
}

#[test]
fn a_task_that_is_parked_lets_its_queue_go_on_and_comes_back_to_its_place() {
    let mut rig = with_one_aside(usual());
    assert_eq!(rig.called(), ["b"]);
    let place = *rig.facts.keys().next().expect("a task");
    assert_eq!(rig.engine.state_in_memory(place), Some(TaskState::Parked));
    let whose =
        Whose { queue: QueueName::new("q").expect("a name"), handler: content().handler, collection: None };
    assert!(matches!(rig.engine.explain(&whose, place)[..], [Explanation::Retrying(2, _)]));
    rig.end_call(succeeded());
    assert_eq!(rig.called(), ["c"]);
    rig.run(9_000);
    rig.end_call(succeeded());
    rig.run(51_500);
    assert_eq!((rig.called(), rig.calls[0].attempt), (vec!["a"], 2));
    rig.schedule("q", "d", 0);
    assert_eq!(rig.called(), ["a"], "one at a time");
}

#[test]
fn a_parked_task_whose_time_has_come_goes_before_those_behind_it_and_waits_for_the_one_under_way() {
    let mut rig = Rig::running();
    rig.schedule_with("q", "a", 0, |content| TaskContent { timeout_ms: Some(600_000), ..parks(content) });
    rig.schedule_with("q", "b", 0, |content| TaskContent { timeout_ms: Some(600_000), ..content });
    rig.schedule("q", "c", 0);
    rig.end_call(failed(10_000));
    rig.run(20_000);
    assert_eq!(rig.called(), ["b"]);
    rig.end_call(succeeded());
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(succeeded());
    assert_eq!(rig.called(), ["c"]);
}

#[test]
fn a_parked_task_is_cancelled_and_never_comes_back() {
    let mut rig = with_one_aside(usual());
    rig.append("q", "a", Verb::Cancel);
    assert_eq!(rig.decisions().last(), Some(&Decision::Cancelled));
    rig.end_call(succeeded());
    rig.end_call(succeeded());
    rig.run(120_000);
    assert!(rig.calls.is_empty());
    assert_eq!(rig.engine.tasks_in_memory(), 0);
}

#[test]
fn a_new_owner_leaves_it_aside_until_its_time() {
    let mut rig = with_one_aside(usual());
    rig.end_call(succeeded());
    rig.take_over(2);
    rig.run(10_500);
    let at_work = rig.called().len();
    assert!(at_work <= 1, "c was open: {:?}", rig.called());
    rig.run(2_000);
    assert_eq!(rig.called(), ["c"], "a waits aside");
    rig.end_call(succeeded());
    while rig.calls.is_empty() {
        rig.run(500);
    }
    assert!(rig.now().wall.0 >= super::rig::BASE + 60_000);
    assert_eq!((rig.called(), rig.calls[0].attempt), (vec!["a"], 2));
}

#[test]
fn an_attempt_behind_a_parked_task_that_the_watermark_passed_is_known_to_the_next_owner() {
    let small = Options { queue_tasks_max: 64, late_rows: 2, late_after_ms: 500, ..usual() };
    let mut rig = Rig::running_with(small);
    let patient = |content| TaskContent { timeout_ms: Some(600_000), ..content };
    rig.schedule_with("q", "a", 0, |content| patient(parks(content)));
    rig.schedule_with("q", "b", 0, patient);
    (0..6).for_each(|n| rig.schedule("q", &format!("t{n}"), 0));
    // All of them have pointers by the time the first fails.
    rig.run(200_000);
    rig.end_call(failed(3_600_000));
    assert_eq!(rig.called(), ["b"]);
    let began = rig.now().wall;
    rig.run(20_000);
    let watermark = rig.engine.shard_view(rig.now().boot).watermark;
    let (first, second) = (rig.facts.keys().next().copied(), rig.facts.keys().nth(1).copied());
    assert!(first.zip(second).is_some_and(|(_, second)| watermark >= second.ready_at), "it passed both");
    rig.take_over(2);
    // Due before them all, and not aside.
    rig.schedule("q", "early", -1_000_000);
    rig.run(20_000);
    assert!(
        rig.calls.is_empty(),
        "b may be at work at its lost owner until its deadline: {:?}",
        rig.called()
    );
    while rig.calls.is_empty() {
        rig.run(1_000);
    }
    assert_eq!(rig.called(), ["early"]);
    assert!(rig.now().wall >= began.plus_ms(600_000));
}

#[test]
fn what_fails_when_half_of_memory_is_aside_holds_its_queue() {
    let mut rig = Rig::running();
    rig.budget = 4;
    rig.take_over(2);
    for n in 0..3 {
        let queue = format!("q{n}");
        rig.schedule_with(&queue, "a", 0, parks);
        rig.schedule(&queue, "b", 0);
        rig.end_call(failed(3_600_000));
        if n < 2 {
            assert_eq!(rig.end_call(succeeded()).key.id.as_str(), "b");
        }
    }
    assert!(rig.calls.is_empty());
    let view = rig.engine.queue(&QueueName::new("q2").expect("a name")).expect("a queue");
    assert_eq!(view.blocked, Some(Blocked::Retrying));
}
