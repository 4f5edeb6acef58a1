//! Operations: one a number, without gaps, read in order by everybody.

use futures::future::join_all;

use super::{Case, CheckFn, ok};
use crate::model::{
    Batch, BatchFilter, BatchVerb, Blackout, Change, CloseReason, DrainPlace, Gate, GateAction, Generation,
    HandlerName, Operation, QueueName, Reset, Shard, Target, TaskState, Wall,
};
use crate::store::Error;

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("an_operation_is_read_as_it_was_written", |case| Box::pin(read_back(case))),
    ("of_concurrent_operations_with_one_number_exactly_one_is_taken", |case| Box::pin(one_a_number(case))),
];

fn operation(number: u64, id: u128, change: Change) -> Operation {
    Operation {
        number,
        id,
        at: Wall(1_900_000_000_123),
        by: Some("me \"and\" ü".into()),
        reason: None,
        change,
    }
}

fn gates(case: &Case) -> Vec<Change> {
    let name = |text: &str| format!("{text}-{}", case.number);
    let queue = Target::Queue(QueueName::new(&name("q/ü")).expect("a name"));
    let gate = |target| Gate {
        target,
        name: "nightly".into(),
        action: GateAction::Drop,
        abort_running: true,
        until: Some(Wall(1_900_000_000_456)),
        blackout: Some(Blackout {
            days: [true, false, true, false, true, false, true],
            from_min: 1_320,
            to_min: 360,
            zone: "Europe/Berlin".into(),
        }),
    };
    let handler = Target::Handler(HandlerName::new(&name("h")).expect("a name"));
    let plain = Gate::pause(handler, "nightly".into());
    vec![
        Change::GateSet(gate(Target::Collection(name("c").into()))),
        Change::GateSet(plain),
        Change::GateSet(gate(queue.clone())),
        Change::GateCleared(queue, "nightly".into()),
        Change::GateCleared(Target::All, "manual".into()),
        Change::BatchBegun(batch(
            BatchVerb::Cancel,
            BatchFilter { state: Some(TaskState::Parked), ..filter(case) },
        )),
        Change::BatchBegun(batch(
            BatchVerb::Purge,
            BatchFilter { died: Some(CloseReason::Interrupted), ..BatchFilter::default() },
        )),
        Change::BatchStopped(u64::MAX >> 1),
        Change::BatchResumed(3),
        Change::Drained(DrainPlace::Instance(name("i \"3\"").into())),
        Change::Undrained(DrainPlace::Dc(name("dc2").into())),
        Change::ShardsReset(vec![reset(u32::MAX, name("t \"1\"")), reset(0, String::new())]),
    ]
}

fn reset(shard: u32, topic_id: String) -> Reset {
    let (shard, generation) = (Shard(shard), Generation(3));
    Reset { shard, generation, next_offset: u64::MAX >> 20, first: 7, topic_id }
}

fn filter(case: &Case) -> BatchFilter {
    let key = case.key("id \"ü\"/1");
    BatchFilter {
        queue: Some(key.queue),
        id: Some(key.id),
        handler: HandlerName::new("h").ok(),
        collection: Some("c \"1\"".into()),
        ..BatchFilter::default()
    }
}

fn batch(verb: BatchVerb, filter: BatchFilter) -> Batch {
    Batch {
        verb,
        filter,
        from: Wall(0),
        to: Wall(1_900_000_000_789),
        shift_ms: -1_500,
        rate: 100_000,
        dry_run: verb == BatchVerb::Purge,
    }
}

async fn last(case: &Case) -> u64 {
    let mut last = 0;
    loop {
        let found = ok("operations", case.store.operations(last, 7).await);
        assert!(found.len() <= 7);
        for operation in &found {
            assert_eq!(operation.number, last + 1, "numbers rise by one");
            last = operation.number;
        }
        if found.is_empty() {
            return last;
        }
    }
}

/// Adds with the next number, whoever else adds too.
async fn added(case: &Case, id: u128, change: Change) -> Operation {
    loop {
        let next = operation(last(case).await + 1, id, change.clone());
        match case.store.add_operation(next.clone()).await {
            Ok(true) => return next,
            Ok(false) => {}
            Err(Error::Unavailable(_)) => {
                let there = ok("operations", case.store.operations(next.number - 1, 1).await);
                if there.first().is_some_and(|there| there.id == id) {
                    return next;
                }
            }
            Err(error) => panic!("add_operation: {error}"),
        }
    }
}

async fn read_back(case: Case) {
    for (change, n) in gates(&case).into_iter().zip(1..) {
        let id = u128::from(case.number) << 64 | n;
        let written = added(&case, id, change).await;
        let found = ok("operations", case.store.operations(written.number - 1, 1).await);
        assert_eq!(found, std::slice::from_ref(&written));
        assert!(!ok("add", case.store.add_operation(written).await), "its number is taken");
    }
    let end = last(&case).await;
    assert_eq!(ok("operations", case.store.operations(end, 5).await), []);
}

async fn one_a_number(case: Case) {
    let ids = (1..=6).map(|n| u128::from(case.number) << 64 | n << 32);
    let adds = ids.clone().map(|id| added(&case, id, Change::GateCleared(Target::All, "race".into())));
    let mut numbers: Vec<u64> = join_all(adds).await.iter().map(|operation| operation.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 6, "{numbers:?}");
    for (number, id) in numbers.iter().zip(1..) {
        let there = ok("operations", case.store.operations(number - 1, 1).await);
        assert!(ids.clone().any(|own| own == there[0].id), "{id}: {there:?}");
    }
}
