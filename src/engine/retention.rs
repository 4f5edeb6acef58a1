//! What may be forgotten of a task: decided here from its rows, carried out by `runtime::retention`.
//!
//! A bucket of `due` goes as a whole, when all its tasks are finished and nothing of them is younger than the history that is
//! kept. Of a task's events those go that speak of it and of what was before it; while the newest of them is young, or says
//! that the task is what its id stands for and young, the bucket stays.

use crate::model::{EventRow, Fact, FactRow, Payload, Place, TaskKey, Version, Wall};

use super::fold::{Next, fold};
use super::load::LoadedTask;

/// What the rows of one place say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aged {
    /// It is not finished, or something of it is younger than what is kept.
    Young,
    /// No task was ever stored there.
    Nothing,
    /// It is old.
    Old {
        /// The task.
        key: TaskKey,
        /// Its payload lies apart.
        has_payload: bool,
    },
}

/// What may go of a task's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// Nothing, and the task itself has to stay.
    Keep,
    /// There is nothing.
    Nothing,
    /// Those up to this version.
    UpTo(Version),
}

/// Whether what lies at a place is finished and older than `before`. `rows`: all of that place.
pub fn aged(rows: &[FactRow], before: Wall, applied_to: Version) -> Aged {
    let folded = fold(rows.iter().map(|row| &row.fact), applied_to);
    let is_young = |row: &FactRow| match &row.fact {
        Fact::Task { appended, .. } => *appended >= before,
        Fact::Started(started) => started.at >= before,
        Fact::Ended(ended) => ended.at >= before,
        Fact::Closed { at, .. } => *at >= before,
        Fact::Superseded { .. } => false,
    };
    let Some(task) = LoadedTask::from_rows(rows) else { return Aged::Nothing };
    if !matches!(folded.next(), Next::Finished(_)) || rows.iter().any(is_young) {
        return Aged::Young;
    }
    Aged::Old { key: task.key, has_payload: matches!(task.content.payload, Payload::Stored(_)) }
}

/// What may go of the events of an old task at a place, by the newest of them.
pub fn forget(place: Place, newest: Option<&EventRow>, before: Wall) -> Forget {
    let Some(newest) = newest else { return Forget::Nothing };
    let is_current = newest.current.is_none_or(|current| current.place == place);
    match (is_current, newest.appended >= before) {
        // The id stands for a later task: that one's bucket takes the rest with it.
        (false, _) => Forget::UpTo(place.version),
        (true, true) => Forget::Keep,
        (true, false) => Forget::UpTo(newest.version),
    }
}
