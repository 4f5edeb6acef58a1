//! Fold: what is to happen next with one task, from the facts stored about it, in any order, however often repeated.
//!
//! Only the start with the highest (epoch, sequence) decides, with the end that names it. An end of a lower epoch
//! counts whenever it is seen until a higher epoch has started the task, and never after; so late writes of a lost
//! owner cannot change a decision. A start carries all counts, so older facts are not needed. One that was never called
//! opens nothing that was over before it: it may have been on its way while the end before it was not in sight, and come
//! into sight when others had gone on. A mark counts unless a higher epoch has started the task: that one had not seen it, since
//! it would not have started, and decides the event anew. A mark of an event at or above `applied_to` is left out: intake will bring that event.

use std::collections::BTreeSet;

use crate::model::{
    CloseReason, Ended, Epoch, Fact, FactRow, MarkKind, OnFailure, Outcome, Started, TaskState, Version, Wall,
};

/// What the facts about one task say.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Folded {
    /// The start that decides.
    pub started: Option<Started>,
    /// The end of that start.
    pub ended: Option<Ended>,
    /// The first mark, by version.
    pub mark: Option<(Version, MarkKind)>,
    /// Closed without an attempt.
    pub closed: Option<CloseReason>,
}

/// What is to happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run it, not before its next try.
    Run(Counts),
    /// An attempt is open: its owner may be alive, its end may come.
    Open(Started),
    /// Nothing.
    Finished(TaskState),
}

/// What a further attempt has to know of those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of the next attempt, from 1.
    pub attempt: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Attempts whose owner was lost.
    pub interruptions: u32,
    /// How the last one ended.
    pub previous: Option<Outcome>,
    /// Not to be started before.
    pub not_before: Wall,
}

impl Counts {
    /// Of a task never tried.
    pub const FRESH: Counts =
        Counts { attempt: 1, failures: 0, interruptions: 0, previous: None, not_before: Wall::MIN };

    /// Whether the last attempt failed.
    pub fn has_failed(&self) -> bool {
        matches!(self.previous, Some(Outcome::Retryable | Outcome::TimedOut))
    }

    /// After an attempt that nobody will end any more.
    pub fn after_interruption(started: &Started) -> Counts {
        Counts {
            attempt: started.attempt + 1,
            failures: started.failures + u32::from(planted!(InterruptionIsFailure)),
            interruptions: started.interruptions + 1,
            previous: Some(Outcome::Interrupted),
            not_before: Wall::MIN,
        }
    }

    /// After an attempt that ended and is to be followed by another at `next_at`.
    pub fn after_end(started: &Started, ended: &Ended, next_at: Wall) -> Counts {
        let called = ended.outcome != Outcome::NotCalled;
        Counts {
            attempt: if planted!(RetryForgetsAttempts) { 1 } else { started.attempt + u32::from(called) },
            failures: ended.failures,
            interruptions: started.interruptions,
            previous: if called { Some(ended.outcome) } else { Counts::before(started) },
            not_before: next_at,
        }
    }

    /// How the attempt before `started` ended, as far as its counts tell.
    fn before(started: &Started) -> Option<Outcome> {
        let failed = if started.failures > 0 { Outcome::Retryable } else { Outcome::Snoozed };
        let last = if started.interruptions > 0 { Outcome::Interrupted } else { failed };
        (started.attempt > 1).then_some(last)
    }
}

/// Folds the facts about one task. Facts of other kinds than start, end, mark and closing are passed over.
pub fn fold<'a>(facts: impl IntoIterator<Item = &'a Fact> + Clone, applied_to: Version) -> Folded {
    let folded = fold_all(facts.clone(), applied_to);
    if folded.ended.as_ref().is_none_or(|ended| ended.outcome != Outcome::NotCalled) {
        return folded;
    }
    let not_called = facts.clone().into_iter().filter_map(|fact| match fact {
        Fact::Ended(ended) if ended.outcome == Outcome::NotCalled => Some((ended.epoch, ended.seq)),
        _ => None,
    });
    let not_called: BTreeSet<_> = not_called.collect();
    let called = |fact: &&Fact| match fact {
        Fact::Started(started) => !not_called.contains(&(started.epoch, started.seq)),
        _ => true,
    };
    let called: Vec<&Fact> = facts.into_iter().filter(called).collect();
    let before = fold_all(called, applied_to);
    let over = |folded: &Folded| matches!(folded.next(), Next::Finished(_));
    if over(&before) && !over(&folded) { before } else { folded }
}

fn fold_all<'a>(facts: impl IntoIterator<Item = &'a Fact> + Clone, applied_to: Version) -> Folded {
    let mut folded = Folded::default();
    for fact in facts.clone() {
        match fact {
            Fact::Started(started) => {
                let newer = |old: &Started| (started.epoch, started.seq) > (old.epoch, old.seq);
                if folded.started.as_ref().is_none_or(newer) {
                    folded.started = Some(started.clone());
                }
            }
            Fact::Superseded { .. } | Fact::Task { .. } | Fact::Ended(_) | Fact::Closed { .. } => {}
        }
    }
    for fact in facts {
        match fact {
            Fact::Ended(ended) => {
                let named = |s: &Started| {
                    let late = planted!(LateFactObeyed) && ended.epoch < s.epoch;
                    (s.epoch, s.seq) == (ended.epoch, ended.seq) || late
                };
                if folded.started.as_ref().is_some_and(named) {
                    folded.ended = Some(ended.clone());
                }
            }
            Fact::Closed { epoch, reason, .. } => {
                if folded.started.as_ref().is_none_or(|s| *epoch >= s.epoch) {
                    folded.closed = Some(*reason);
                }
            }
            Fact::Superseded { by, epoch, mark } if *by < applied_to => {
                let is_first = folded.mark.is_none_or(|(first, _)| *by < first);
                if is_first && folded.started.as_ref().is_none_or(|s| is_obeyed(*epoch, s)) {
                    folded.mark = Some((*by, *mark));
                }
            }
            Fact::Started(_) | Fact::Superseded { .. } | Fact::Task { .. } => {}
        }
    }
    folded
}

fn is_obeyed(mark: Epoch, started: &Started) -> bool {
    mark >= started.epoch || planted!(LateFactObeyed)
}

/// The events whose marks count, of the rows of one place.
pub(super) fn marked_by(rows: &[FactRow]) -> impl Iterator<Item = Version> {
    let started = rows.iter().filter_map(|row| match &row.fact {
        Fact::Started(started) => Some(started),
        _ => None,
    });
    let newest = started.max_by_key(|started| started.epoch);
    rows.iter().filter_map(move |row| match row.fact {
        Fact::Superseded { by, epoch, .. } => newest.is_none_or(|s| is_obeyed(epoch, s)).then_some(by),
        _ => None,
    })
}

impl Folded {
    /// What is to happen next.
    pub fn next(&self) -> Next {
        if let Some(ended) = &self.ended {
            if ended.outcome == Outcome::Succeeded {
                return Next::Finished(TaskState::Succeeded);
            }
            if ended.closed.is_some() {
                return Next::Finished(self.closed_as(TaskState::Dead));
            }
        }
        if let Some(reason) = self.closed {
            let stopped = self.mark.filter(|_| reason == CloseReason::Interrupted);
            if let Some((_, mark)) = stopped {
                return Next::Finished(state_of(mark));
            }
            return Next::Finished(self.closed_as(reason.state()));
        }
        match (&self.started, &self.ended, self.mark) {
            (Some(started), None, _) => Next::Open(started.clone()),
            (_, _, Some((_, mark))) => Next::Finished(state_of(mark)),
            (Some(started), Some(ended), None) => {
                let next_at = ended.next_at.filter(|_| !planted!(WaitForgottenAtTakeover));
                Next::Run(Counts::after_end(started, ended, next_at.unwrap_or(Wall::MIN)))
            }
            (None, _, None) => Next::Run(Counts::FRESH),
        }
    }

    /// The state of a task that was closed: another version stands for one that was redriven.
    fn closed_as(&self, state: TaskState) -> TaskState {
        let is_redriven = self.mark.is_some_and(|(_, mark)| mark == MarkKind::Redriven);
        if is_redriven { TaskState::Replaced } else { state }
    }

    /// The state users see, of a task that waits aside between attempts when `on_failure` says so.
    pub fn state_of(&self, on_failure: OnFailure) -> TaskState {
        match self.next() {
            Next::Run(counts) if on_failure == OnFailure::Park && counts.has_failed() => TaskState::Parked,
            Next::Run(_) | Next::Open(_) | Next::Finished(_) => self.state(),
        }
    }

    /// The same, whatever its `on_failure` is.
    pub fn state(&self) -> TaskState {
        match self.next() {
            Next::Finished(state) => state,
            Next::Open(_) => TaskState::Running,
            Next::Run(counts) if counts.attempt == 1 => TaskState::Scheduled,
            Next::Run(_) => TaskState::Retrying,
        }
    }
}

/// The state a mark leaves a task in.
pub fn state_of(mark: MarkKind) -> TaskState {
    match mark {
        MarkKind::Cancelled => TaskState::Cancelled,
        MarkKind::Replaced | MarkKind::Rescheduled | MarkKind::Redriven => TaskState::Replaced,
    }
}
