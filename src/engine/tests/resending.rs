//! Requests that the store does not answer.

use std::collections::BTreeSet;

use super::rig::Rig;
use crate::engine::Input;

/// How many requests were sent; each is answered, or fails.
fn sent(rig: &mut Rig, answered: bool) -> usize {
    let sent = rig.held_writes.replace(Vec::new()).expect("writes are held");
    let count = sent.len();
    for (ticket, rows) in sent {
        if answered {
            rig.store(&rows);
        }
        rig.give(Input::Written(ticket, answered.then_some(()).ok_or_else(Rig::away)));
    }
    count
}

#[test]
fn while_the_store_answers_nothing_one_request_at_a_time_is_tried() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    for n in 0..5 {
        rig.schedule(&format!("q{n}"), "a", 60_000);
    }
    let first = sent(&mut rig, false);
    assert!(first >= 3, "{first} under way");
    for _ in 0..5 {
        rig.run(5_000);
        assert_eq!(sent(&mut rig, false), 1, "of {first}");
    }
    rig.run(5_000);
    assert_eq!(sent(&mut rig, true), 1, "the one that tells");
    assert!(sent(&mut rig, true) >= first - 1, "all others, at once");
    rig.release_writes();
    rig.run(5_000);
    assert_eq!(rig.engine.next_offset(), 5);
}

#[test]
fn one_request_that_is_not_answered_holds_up_no_other() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    rig.schedule("q", "a", 60_000);
    assert_eq!(sent(&mut rig, false), 1);
    rig.schedule("r", "b", 60_000);
    assert_eq!(sent(&mut rig, true), 1, "the other, before the first is sent again");
}

#[test]
fn a_request_is_sent_again_after_a_wait_with_chance_in_it() {
    let mut waits = BTreeSet::new();
    for n in 0..20 {
        let mut rig = Rig::running();
        rig.take_over(100 + n);
        rig.held_writes = Some(Vec::new());
        rig.schedule("q", "a", 60_000);
        assert_eq!(sent(&mut rig, false), 1);
        let wait = (1..=100).find(|_| {
            rig.run(1);
            rig.held_writes.as_ref().is_some_and(|held| !held.is_empty())
        });
        waits.insert(wait.expect("within 100 ms"));
    }
    assert!(waits.iter().all(|wait| *wait >= 50), "{waits:?}");
    assert!(waits.len() > 5, "shards do not come in step: {waits:?}");
}
