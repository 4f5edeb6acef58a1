//! Gates: what comes to one waits in its place or is dropped, and goes on when it opens.

use std::sync::Arc;

use super::rig::{Rig, content};
use crate::engine::{Blocked, CallEnd, Explanation, Input, Whose, fold};
use crate::model::{
    Boot, Change, Closed, Gate, GateAction, Gates, HandlerName, Operation, Outcome, QueueName, Target,
    TaskContent, TaskState, Version, Wall,
};

/// Asked for so late that they are young for the whole test.
const FOR_EVER: Boot = Boot(1 << 60);

fn gate(target: Target, action: GateAction) -> Gate {
    Gate { action, ..Gate::pause(target, "manual".into()) }
}

pub(super) fn pause(target: Target) -> Gate {
    gate(target, GateAction::Pause)
}

pub(super) fn closed(gates: &[Gate]) -> Input {
    let mut all = Gates::default();
    for (gate, number) in gates.iter().zip(1..) {
        let change = Change::GateSet(gate.clone());
        all.apply(&Operation { number, id: 1, at: Wall(1), by: None, reason: None, change });
    }
    Input::Gates(Arc::new(all.closed(Wall(2), |_, _| true)), FOR_EVER)
}

pub(super) fn open() -> Input {
    Input::Gates(Arc::new(Closed::default()), FOR_EVER)
}

fn handler() -> Target {
    Target::Handler(content().handler)
}

fn other(content: TaskContent) -> TaskContent {
    TaskContent { handler: HandlerName::new("other").expect("a name"), ..content }
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

#[test]
fn a_paused_handler_holds_its_queues_and_no_others_and_takes_no_slot() {
    let mut rig = Rig::running();
    rig.give(closed(&[pause(handler())]));
    rig.schedule("q", "a", 0);
    rig.schedule_with("q", "b", 0, other);
    rig.schedule_with("r", "c", 0, other);
    assert_eq!(rig.called(), ["c"], "b waits behind a");
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    assert_eq!(rig.slots_out, 0);
    let view = rig.engine.queue(&queue("q")).expect("a queue");
    assert_eq!((view.blocked, view.ready), (Some(Blocked::Gate), 2));
    assert_eq!(rig.engine.shard_view(rig.now().boot).queues_at_gates, 1);
    rig.give(open());
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    assert_eq!(rig.called(), ["b"]);
    assert_eq!(rig.engine.shard_view(rig.now().boot).queues_at_gates, 0);
}

#[test]
fn what_is_in_line_when_a_gate_closes_is_not_started() {
    let mut rig = Rig::running();
    rig.no_slots = true;
    rig.schedule("q", "a", 0);
    rig.schedule_with("r", "b", 0, |content| TaskContent { collection: Some("c".into()), ..content });
    rig.give(closed(&[pause(Target::Queue(queue("q"))), pause(Target::Collection("c".into()))]));
    rig.no_slots = false;
    let handler = content().handler;
    rig.give(Input::Slots(crate::engine::Lane::of(&handler), 2));
    assert!(rig.calls.is_empty());
    rig.give(open());
    assert_eq!(rig.called(), ["a", "b"]);
}

#[test]
fn a_start_that_is_being_written_when_a_gate_closes_is_not_called_and_uses_up_no_attempt() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 1_000);
    rig.held_writes = Some(Vec::new());
    rig.run(1_000);
    rig.give(closed(&[pause(Target::All)]));
    rig.release_writes();
    assert!(rig.calls.is_empty());
    rig.run(60_000);
    assert!(rig.calls.is_empty());
    rig.give(open());
    assert_eq!((rig.called(), rig.calls[0].attempt), (vec!["a"], 1));
}

#[test]
fn a_gate_that_drops_closes_what_comes_to_it_on_record() {
    let mut rig = Rig::running();
    rig.give(closed(&[gate(handler(), GateAction::Drop)]));
    rig.schedule("q", "a", 0);
    rig.schedule("q", "later", 1_000);
    assert!(rig.calls.is_empty());
    rig.give(open());
    rig.run(1_000);
    assert_eq!(rig.called(), ["later"]);
    let dropped = rig.facts.values().map(|facts| fold(facts.iter(), Version::MAX).state());
    assert_eq!(dropped.filter(|state| *state == TaskState::Dropped).count(), 1);
    assert_eq!(rig.slots_out, 1);
}

#[test]
fn a_gate_that_breaks_off_holds_the_queue_until_the_deadline_and_uses_up_no_attempt() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 0);
    rig.schedule_with("r", "b", 0, other);
    let seq = rig.calls[0].token.sequence;
    rig.give(closed(&[Gate { abort_running: true, ..pause(handler()) }]));
    assert_eq!(rig.broken_off, [(seq, Outcome::Aborted)].into());
    rig.give(open());
    rig.calls.pop_front();
    assert_eq!(rig.end_call(CallEnd::of(Outcome::Succeeded)).key.id.as_str(), "b");
    rig.run(9_900);
    assert!(rig.calls.is_empty(), "its handler may be at work");
    rig.run(2_000);
    assert_eq!(rig.called(), ["a"]);
    assert_eq!(rig.calls[0].previous, Some(Outcome::Aborted));
    let failures: Vec<u32> = rig
        .facts
        .values()
        .flatten()
        .filter_map(|fact| match fact {
            crate::model::Fact::Started(started) => Some(started.failures),
            _ => None,
        })
        .collect();
    assert!(failures.iter().all(|failures| *failures == 0), "{failures:?}");
}

#[test]
fn a_task_says_which_gate_it_waits_at_wherever_it_is() {
    let mut rig = Rig::running();
    rig.give(closed(&[pause(handler())]));
    rig.schedule("q", "a", 0);
    rig.schedule_with("q", "b", 0, other);
    rig.schedule("r", "far", 3_600_000);
    let explain = |rig: &Rig, index: usize, name: &str, handler: HandlerName| {
        let place = *rig.facts.keys().nth(index).expect("a task");
        let whose = Whose { queue: queue(name), handler, collection: None };
        rig.engine.explain(&whose, place)
    };
    let own = explain(&rig, 0, "q", content().handler);
    assert!(matches!(&own[..], [Explanation::Gate(bar)] if bar.target == handler()), "{own:?}");
    let behind = explain(&rig, 1, "q", other(content()).handler);
    assert!(matches!(&behind[..], [Explanation::Behind { gate: Some(_), .. }]), "{behind:?}");
    let far = explain(&rig, 2, "r", content().handler);
    assert!(matches!(&far[..], [Explanation::NotDue(_), Explanation::Gate(_)]), "{far:?}");
}

#[test]
fn tasks_behind_a_gate_leave_memory_and_run_in_order_when_it_opens() {
    use crate::engine::Options;
    use crate::model::Shard;
    let small = Options {
        queue_tasks_max: 4,
        late_rows: 10,
        late_after_ms: 1_000,
        ..Options::new(Shard(0), 1, "rig")
    };
    let mut rig = Rig::running_with(small);
    rig.give(closed(&[pause(handler())]));
    (0..40).for_each(|n| rig.schedule("q", &format!("t{n}"), 0));
    rig.run(5_000);
    assert!(rig.engine.tasks_in_memory() <= 4, "{} in memory", rig.engine.tasks_in_memory());
    rig.take_over(2);
    rig.run(2_000);
    assert_eq!(rig.called(), ["t0"], "a new engine is told of gates by whoever makes it");
    rig.give(closed(&[pause(handler())]));
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    assert!(rig.calls.is_empty());
    rig.give(open());
    for n in 1..40 {
        assert_eq!(rig.called(), [format!("t{n}")]);
        rig.end_call(CallEnd::of(Outcome::Succeeded));
        rig.run(10);
    }
}

#[test]
fn who_has_not_heard_of_gates_for_a_lease_starts_nothing_until_it_has() {
    let mut rig = Rig::running();
    let asked_at = rig.now().boot;
    rig.give(Input::Gates(Arc::default(), asked_at));
    rig.run(5_900);
    rig.schedule("q", "a", 0);
    assert_eq!(rig.called(), ["a"]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.run(200);
    rig.schedule("q", "b", 0);
    assert!(rig.calls.is_empty(), "the lease is verified, the gates are not");
    assert_eq!(rig.engine.not_running(), Some(Explanation::GatesUnknown));
    let asked_at = rig.now().boot;
    rig.give(Input::Gates(Arc::default(), asked_at));
    assert_eq!(rig.called(), ["b"]);
    assert_eq!(rig.engine.not_running(), None);
}
