//! A task that waits while memory is short: for what was ready before it, or for a queue that stands still.

use super::{called, good};
use crate::testing::checker::{Rule, Slack, check};
use crate::testing::history::{Called, End};

/// Calls of another queue every 60 s until a task that was ready at 1,000 is called at 400,000.
fn waited(others: impl Fn(u64, i64) -> Called, slack: &Slack) -> usize {
    let mut history = good();
    history.called[1] = called(2, 400_000, 2);
    let other = |n: u64| {
        let at = 60_000 * n as i64;
        Called { queue: "r".into(), id: format!("r{n}"), version: Some(100 + n), ..others(n, at) }
    };
    history.called.extend((1..7).map(other));
    check(&history, slack).violations(Rule::QueuesIndependent)
}

fn first(n: u64, at: i64) -> Called {
    Called { due: 500, ready: Some(500), ..called(2, at, n) }
}

#[test]
fn a_task_behind_others_that_were_ready_before_it_waits_for_something_when_memory_is_short() {
    let short = Slack { memory_short: true, ..Slack::default() };
    assert_eq!(waited(first, &short), 0);
    assert_eq!(waited(first, &Slack::default()), 1, "all of them fit into memory");
}

#[test]
fn a_task_behind_a_queue_that_stands_still_waits_for_nothing_of_its_own() {
    let short = Slack { memory_short: true, ..Slack::default() };
    let again = |n, at| Called { attempt: 1 + n as u32, ended: Some((at + 1, End::Failed)), ..first(n, at) };
    assert_eq!(waited(again, &short), 1, "its attempts go on, its tasks do not");
    let later = |n, at| Called { due: 5_000, ready: Some(5_000), ..first(n, at) };
    assert_eq!(waited(later, &short), 1, "others that were ready later were served");
    let seldom = |n, at| Called { arrived: 1_000 + at / 1_000, ..first(n, at) };
    assert_eq!(waited(seldom, &short), 1, "and after that nothing for long");
}
