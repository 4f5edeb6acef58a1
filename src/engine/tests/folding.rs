//! Properties of the fold: order, repetition and late facts of lost owners change nothing.

use proptest::prelude::*;

use crate::engine::{Next, fold};
use crate::model::{
    CloseReason, Ended, Epoch, Fact, Generation, MarkKind, Outcome, Started, TaskState, Version, Wall,
};

fn started(epoch: u64, seq: u64, attempt: u32) -> Fact {
    Fact::Started(Started {
        generation: Generation(0),
        epoch: Epoch(epoch),
        seq,
        at: Wall(0),
        deadline: Wall(10),
        attempt,
        failures: 0,
        interruptions: 0,
        instance: "i".into(),
    })
}

fn ended(epoch: u64, seq: u64, outcome: Outcome) -> Fact {
    let again = outcome != Outcome::Succeeded;
    Fact::Ended(Ended {
        epoch: Epoch(epoch),
        seq,
        at: Wall(5),
        outcome,
        failures: u32::from(again),
        next_at: again.then_some(Wall(20)),
        closed: None,
        result: None,
        result_cut: false,
        error: None,
    })
}

fn mark(by: u64, epoch: u64) -> Fact {
    Fact::Superseded { by: Version(by), epoch: Epoch(epoch), mark: MarkKind::Cancelled }
}

/// Facts as owners one after the other may have written them: (epoch, sequence) names an attempt once.
fn history() -> impl Strategy<Value = Vec<Fact>> {
    let attempt = (1u64..5, 0u8..5);
    let marks = proptest::collection::vec((1u64..20, 1u64..5), 0..2);
    (proptest::collection::vec(attempt, 0..6), marks).prop_map(|(attempts, marks)| {
        let mut facts: Vec<Fact> = marks.into_iter().map(|(by, epoch)| mark(by, epoch)).collect();
        for (index, (epoch, how)) in attempts.into_iter().enumerate() {
            let seq = index as u64 + 1;
            facts.push(started(epoch, seq, seq as u32));
            match how {
                0 => facts.push(ended(epoch, seq, Outcome::Succeeded)),
                1 | 2 => facts.push(ended(epoch, seq, Outcome::Retryable)),
                3 => facts.push(ended(epoch, seq, Outcome::NotCalled)),
                _ => {}
            }
        }
        facts
    })
}

proptest! {
    #[test]
    fn order_and_repetition_of_facts_do_not_matter(
        facts in history(),
        order in proptest::collection::vec(any::<proptest::sample::Index>(), 0..40),
    ) {
        let next = fold(facts.iter(), Version(10)).next();
        let mut shuffled: Vec<&Fact> = Vec::new();
        if !facts.is_empty() {
            shuffled.extend(order.iter().map(|index| index.get(&facts)));
        }
        shuffled.extend(facts.iter().rev());
        prop_assert_eq!(fold(shuffled, Version(10)).next(), next);
    }

    #[test]
    fn a_start_of_a_higher_epoch_hides_everything_below(facts in history()) {
        let mut with = facts;
        with.push(started(9, 99, 7));
        let open = fold(with.iter(), Version(10)).next();
        prop_assert!(matches!(open, Next::Open(start) if start.seq == 99));
        with.push(ended(9, 99, Outcome::Retryable));
        let again = fold(with.iter(), Version(10)).next();
        prop_assert!(matches!(again, Next::Run(counts) if counts.attempt == 8 && counts.failures == 1));
    }

    #[test]
    fn late_facts_of_lower_epochs_change_no_decision(facts in history(), late in history()) {
        let mut decided = facts;
        decided.push(started(9, 99, 7));
        decided.push(ended(9, 99, Outcome::Retryable));
        let next = fold(decided.iter(), Version(10)).next();
        decided.extend(late);
        prop_assert_eq!(fold(decided.iter(), Version(10)).next(), next);
    }

    #[test]
    fn a_mark_above_the_applied_offset_is_left_to_intake(facts in history()) {
        let mut with = facts.clone();
        with.push(mark(10, 9));
        prop_assert_eq!(fold(with.iter(), Version(10)).next(), fold(facts.iter(), Version(10)).next());
    }

    #[test]
    fn any_prefix_of_what_an_owner_wrote_is_safe(facts in history(), cut in any::<proptest::sample::Index>()) {
        let cut = if facts.is_empty() { 0 } else { cut.index(facts.len()) };
        let crashed = fold(facts[..cut].iter(), Version(10)).next();
        let succeeded = facts[..cut].iter().any(|fact| {
            matches!(fact, Fact::Ended(end) if end.outcome == Outcome::Succeeded)
        });
        let highest = facts[..cut].iter().filter_map(|fact| match fact {
            Fact::Started(start) => Some((start.epoch, start.seq)),
            _ => None,
        }).max();
        if let (Next::Finished(_), Some(highest)) = (&crashed, highest) {
            let named = facts[..cut].iter().any(|fact| {
                matches!(fact, Fact::Ended(end) if (end.epoch, end.seq) == highest)
            });
            prop_assert!(named, "finished only by the end of the newest start: {succeeded}");
        }
    }
}

#[test]
fn a_start_that_was_never_called_opens_nothing_that_was_over_before_it() {
    let over = [started(1, 1, 1), ended(1, 1, Outcome::Succeeded)];
    let closed = Fact::Closed { epoch: Epoch(1), seq: 1, at: Wall(0), reason: CloseReason::Expired };
    let not_called = [started(2, 1, 2), ended(2, 1, Outcome::NotCalled)];
    let state = |facts: &[&[Fact]]| fold(facts.iter().copied().flatten(), Version::MAX).state();
    assert_eq!(state(&[&over, &not_called]), TaskState::Succeeded);
    assert_eq!(state(&[&[closed], &not_called]), TaskState::Expired);
    assert_eq!(state(&[&over, &not_called[..1]]), TaskState::Running, "it may be called yet");
    let failed = [started(2, 2, 3), ended(2, 2, Outcome::Retryable)];
    let again = [started(3, 1, 4), ended(3, 1, Outcome::NotCalled)];
    assert_eq!(state(&[&over, &not_called, &failed, &again]), TaskState::Retrying, "one after it was called");
}

#[test]
fn a_closing_of_an_old_epoch_does_not_hide_a_later_start() {
    let closed = Fact::Closed { epoch: Epoch(1), seq: 4, at: Wall(0), reason: CloseReason::Expired };
    let facts = [closed.clone(), started(2, 1, 1)];
    assert!(matches!(fold(facts.iter(), Version::MAX).next(), Next::Open(_)));
    assert!(matches!(fold([closed].iter(), Version::MAX).next(), Next::Finished(_)));
}

#[test]
fn a_marked_attempt_that_was_interrupted_shows_the_mark() {
    let closed = Fact::Closed { epoch: Epoch(2), seq: 4, at: Wall(0), reason: CloseReason::Interrupted };
    let facts = [started(1, 1, 1), mark(3, 1), closed];
    let state = fold(facts.iter(), Version::MAX).state();
    assert_eq!(state, TaskState::Cancelled);
}

#[test]
fn a_mark_that_lands_when_a_higher_epoch_has_started_the_task_stops_nothing() {
    let state = |facts: &[Fact]| fold(facts.iter(), Version::MAX).state();
    let snoozed = [started(4, 1, 1), ended(4, 1, Outcome::Snoozed)];
    let [start, end] = &snoozed;
    assert_eq!(state(&[mark(3, 3), start.clone(), end.clone()]), TaskState::Retrying);
    assert_eq!(
        state(&[mark(3, 4), start.clone(), end.clone()]),
        TaskState::Cancelled,
        "it had seen the start"
    );
    assert_eq!(state(&[mark(3, 3), mark(3, 4), start.clone(), end.clone()]), TaskState::Cancelled);
    let not_called = [started(4, 1, 1), ended(4, 1, Outcome::NotCalled), mark(3, 3)];
    assert_eq!(state(&not_called), TaskState::Cancelled, "nothing was started");
}
