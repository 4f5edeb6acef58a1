//! What may be forgotten of a task: decided here from its rows, carried out by `runtime::retention`.
//!
//! A bucket of `due` goes as a whole, when all its tasks are finished and nothing of them is younger than the history that is
//! kept: neither a fact, nor the event that put it aside, nor, while its id stands for it, any event of it. Of a task's events
//! those go that speak of it and of what was before it. What a later event takes over from it stays until that event is
//! durably applied: whoever reads it again needs it.

use crate::model::{EventRow, Fact, FactRow, Payload, Place, TaskKey, Version, Wall};

use super::fold::{Next, fold, marked_by};
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
        /// The last event that put it aside, if any did.
        marked_by: Option<Version>,
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
    let has_payload = matches!(task.content.payload, Payload::Stored(_));
    Aged::Old { key: task.key, has_payload, marked_by: marked_by(rows).max() }
}

/// What may go of the events of an old task at a place. `newest`: of its id; `mark`: the event that put it aside, where there
/// is one; events below `applied_to` are durably applied.
pub fn forget(
    place: Place,
    newest: Option<&EventRow>,
    mark: Option<&EventRow>,
    before: Wall,
    applied_to: Version,
) -> Forget {
    let Some(newest) = newest else { return Forget::Nothing };
    if newest.version >= applied_to || mark.is_some_and(|mark| mark.appended >= before) {
        return Forget::Keep;
    }
    match newest.current.filter(|current| current.place != place) {
        // The id stands for another task: that one's bucket takes the rest with it.
        Some(current) if current.place.version > place.version => Forget::UpTo(place.version),
        // What lies here was rejected in the end, and its id stands for what was before it.
        Some(_) => Forget::Nothing,
        None if newest.appended >= before => Forget::Keep,
        None => Forget::UpTo(newest.version),
    }
}
