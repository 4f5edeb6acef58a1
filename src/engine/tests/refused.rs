//! Rows that the store does not take although it takes others of the same request.

use super::rig::Rig;
use crate::engine::fold;
use crate::model::{TaskContent, TaskState, Version};

fn refused(content: TaskContent) -> TaskContent {
    TaskContent { priority: 9, ..content }
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
