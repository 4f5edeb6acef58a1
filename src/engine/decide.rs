//! What a schedule event does, given the newest event of its id and what is known of the task it stands for.
//!
//! A decision that is on record already stands on replay. A bad update never acts as a cancel: rescheduling what is
//! not known changes nothing, and is answered so.

use std::sync::Arc;

use crate::model::{
    Current, Decision, Due, Event, EventRow, MarkKind, OnConflict, Place, TaskContent, Verb, Version, Wall,
    limits,
};

/// Where the task stands that an id means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Live {
    /// No attempt is open: it can still be stopped or moved.
    Stoppable,
    /// An attempt is open.
    Open,
    /// Nothing will happen to it any more.
    Finished,
    /// Nothing will, and it did not succeed: closed, by no cancel. Told apart only for who wants to redrive it.
    Failed,
}

/// What is known when an event is decided.
pub(super) struct Known<'a> {
    pub(super) version: Version,
    /// Append time here: from when it can run.
    pub(super) appended: Wall,
    /// Append time where it first landed: what delays count from.
    pub(super) asked: Wall,
    /// The newest event of the id below this one.
    pub(super) newest: Option<&'a EventRow>,
    /// Where its current task stands.
    pub(super) live: Live,
    /// Its call that is at work here; looked for only for an abort.
    pub(super) calling: Option<u64>,
    /// No place may lie at or below this.
    pub(super) watermark: Wall,
    pub(super) repeat_window_ms: i64,
}

/// A new task row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NewTask {
    pub(super) place: Place,
    pub(super) due_at: Wall,
    /// `None` = that of the task it takes over from.
    pub(super) content: Option<Arc<TaskContent>>,
}

/// What is to be written and shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) decision: Decision,
    pub(super) current: Option<Current>,
    pub(super) cancel_remembered: Option<Wall>,
    /// Of a repeat: the hash its row carries, so that dropped content never counts as the newest.
    pub(super) repeated_hash: Option<[u8; 16]>,
    pub(super) task: Option<NewTask>,
    pub(super) mark: Option<(Place, MarkKind)>,
    /// The call that is broken off.
    pub(super) abort: Option<u64>,
    /// The place was lifted above the watermark: it is recorded before the task is.
    pub(super) lifted: bool,
}

impl Plan {
    pub(super) fn of(decision: Decision, known: &Known<'_>) -> Plan {
        Plan {
            decision,
            current: known.newest.and_then(|row| row.current),
            cancel_remembered: known.newest.and_then(|row| row.cancel_remembered),
            repeated_hash: None,
            task: None,
            mark: None,
            abort: None,
            lifted: false,
        }
    }
}

/// Decides an event that is not on record yet.
pub(super) fn decide(event: &Event, known: &Known<'_>) -> Plan {
    if is_repeat(event, known) {
        let repeated_hash = known.newest.map(|row| row.content_hash);
        return Plan { repeated_hash, ..Plan::of(Decision::Repeated, known) };
    }
    match &event.verb {
        Verb::Schedule(due, content) => schedule(event, *due, content, known),
        Verb::Cancel => cancel(known),
        Verb::Reschedule(due) => reschedule(*due, known),
        Verb::Redrive(redrive) => run_again(redrive.due, known),
        Verb::Abort => abort(known),
    }
}

fn is_repeat(event: &Event, known: &Known<'_>) -> bool {
    let Some(newest) = known.newest else { return false };
    let within = known.asked.0 - newest.appended.0 <= known.repeat_window_ms;
    // One that was refused for a quota may come in with the next try, under the same id.
    let has_answer = newest.decision != Decision::OverQuota;
    if has_answer && event.event_id_hash.is_some() && event.event_id_hash == newest.event_id_hash && within {
        return true;
    }
    let same_as_newest = newest.content_hash == event.content_hash && *newest.verb == *event.verb.word();
    if same_as_newest && within && changed_something(newest.decision) {
        return true;
    }
    let of_current = |current: Current| {
        current.content_hash == event.content_hash
            && known.asked.0 - current.appended.0 <= known.repeat_window_ms
    };
    matches!(event.verb, Verb::Schedule(..)) && newest.current.is_some_and(of_current)
}

/// Whether an event so answered was accepted: one that was not is decided anew when it comes again.
fn changed_something(decision: Decision) -> bool {
    match decision {
        Decision::Scheduled
        | Decision::Replaced
        | Decision::Rescheduled
        | Decision::Cancelled
        | Decision::CancelledBefore
        | Decision::Repeated => true,
        // What was redriven may die again, and be redriven again in the same words; so with an abort.
        Decision::Redriven | Decision::NotDead | Decision::Aborted | Decision::NotRunning => false,
        Decision::TooLate | Decision::Kept | Decision::Conflict | Decision::OverQuota | Decision::Unknown => {
            false
        }
    }
}

fn schedule(event: &Event, due: Due, content: &TaskContent, known: &Known<'_>) -> Plan {
    let current = known.newest.and_then(|row| row.current);
    let unfinished = current.filter(|current| !current.cancelled && known.live != Live::Finished);
    match (unfinished, content.on_conflict) {
        (Some(_), OnConflict::Keep) => return Plan::of(Decision::Kept, known),
        (Some(_), OnConflict::Reject) => return Plan::of(Decision::Conflict, known),
        (Some(_), OnConflict::Replace) | (None, _) => {}
    }
    let remembered = known.newest.and_then(|row| row.cancel_remembered);
    let forbidden = current.is_none()
        && remembered.is_some_and(|at| known.asked.0 - at.0 <= limits::REMEMBERED_CANCEL_MS);
    let (place, due_at, lifted) = place(due, known);
    let decision = match (forbidden, unfinished) {
        (true, _) => Decision::CancelledBefore,
        (false, Some(_)) => Decision::Replaced,
        (false, None) => Decision::Scheduled,
    };
    let mark = match (forbidden, unfinished) {
        (true, _) => Some((place, MarkKind::Cancelled)),
        (false, Some(old)) => Some((old.place, MarkKind::Replaced)),
        (false, None) => None,
    };
    let current = Current {
        place,
        due_at,
        content_hash: event.content_hash,
        appended: known.asked,
        cancelled: forbidden,
    };
    let content = Some(Arc::new(content.clone()));
    Plan {
        decision,
        current: Some(current),
        cancel_remembered: None,
        repeated_hash: None,
        task: Some(NewTask { place, due_at, content }),
        mark,
        abort: None,
        lifted,
    }
}

fn cancel(known: &Known<'_>) -> Plan {
    let Some(current) = known.newest.and_then(|row| row.current) else {
        return Plan { cancel_remembered: Some(known.asked), ..Plan::of(Decision::Unknown, known) };
    };
    if current.cancelled || known.live == Live::Finished {
        return Plan::of(Decision::TooLate, known);
    }
    let mark = Some((current.place, MarkKind::Cancelled));
    if known.live == Live::Open {
        return Plan { mark, ..Plan::of(Decision::TooLate, known) };
    }
    let current = Some(Current { cancelled: true, ..current });
    Plan { mark, current, ..Plan::of(Decision::Cancelled, known) }
}

fn reschedule(due: Due, known: &Known<'_>) -> Plan {
    let Some(current) = known.newest.and_then(|row| row.current) else {
        return Plan::of(Decision::Unknown, known);
    };
    if current.cancelled || known.live != Live::Stoppable {
        return Plan::of(Decision::TooLate, known);
    }
    moved(Decision::Rescheduled, MarkKind::Rescheduled, current, due, known)
}

fn run_again(due: Due, known: &Known<'_>) -> Plan {
    let Some(current) = known.newest.and_then(|row| row.current) else {
        return Plan::of(Decision::Unknown, known);
    };
    if (current.cancelled || known.live != Live::Failed) && !planted!(RedriveOfWhatRuns) {
        return Plan::of(Decision::NotDead, known);
    }
    moved(Decision::Redriven, MarkKind::Redriven, current, due, known)
}

/// The task goes on as this version, at a place of its own.
fn moved(decision: Decision, kind: MarkKind, current: Current, due: Due, known: &Known<'_>) -> Plan {
    let (place, due_at, lifted) = place(due, known);
    Plan {
        task: Some(NewTask { place, due_at, content: None }),
        mark: Some((current.place, kind)),
        current: Some(Current { place, due_at, ..current }),
        lifted,
        ..Plan::of(decision, known)
    }
}

fn abort(known: &Known<'_>) -> Plan {
    let Some(current) = known.newest.and_then(|row| row.current) else {
        return Plan::of(Decision::Unknown, known);
    };
    match known.calling.filter(|_| known.live == Live::Open && !current.cancelled) {
        None => Plan::of(Decision::NotRunning, known),
        Some(seq) => Plan { abort: Some(seq), ..Plan::of(Decision::Aborted, known) },
    }
}

fn place(due: Due, known: &Known<'_>) -> (Place, Wall, bool) {
    let due_at = due.at(known.asked);
    let wanted = due_at.max(known.appended);
    let above = if planted!(WriteBelowWatermark) { wanted } else { known.watermark.plus_ms(1) };
    let ready_at = wanted.max(above);
    (Place { ready_at, version: known.version }, due_at, ready_at > wanted)
}

/// What a decision on record means for rows and memory: the same as when it was made.
pub(super) fn stands(event: &Event, row: &EventRow, prior: Option<&EventRow>, known: &Known<'_>) -> Plan {
    let before = prior.and_then(|prior| prior.current);
    let new_task = |content: Option<Arc<TaskContent>>| {
        row.current.map(|current| NewTask { place: current.place, due_at: current.due_at, content })
    };
    let own_content = match &event.verb {
        Verb::Schedule(_, content) => Some(Arc::new((**content).clone())),
        Verb::Cancel | Verb::Reschedule(_) | Verb::Redrive(_) | Verb::Abort => None,
    };
    let mark_before = |kind| before.map(|current| (current.place, kind));
    let (task, mark) = match row.decision {
        Decision::Scheduled => (new_task(own_content), None),
        Decision::CancelledBefore => {
            (new_task(own_content), row.current.map(|current| (current.place, MarkKind::Cancelled)))
        }
        Decision::Replaced => (new_task(own_content), mark_before(MarkKind::Replaced)),
        Decision::Rescheduled => (new_task(None), mark_before(MarkKind::Rescheduled)),
        Decision::Redriven => (new_task(None), mark_before(MarkKind::Redriven)),
        Decision::Cancelled => (None, row.current.map(|current| (current.place, MarkKind::Cancelled))),
        Decision::TooLate if matches!(event.verb, Verb::Cancel) => {
            (None, row.current.map(|current| (current.place, MarkKind::Cancelled)))
        }
        // An attempt that is broken off is one of this owner: another has none under way.
        Decision::NotDead | Decision::Aborted | Decision::NotRunning => (None, None),
        // What an owner before that may have stored it had placed never runs.
        Decision::OverQuota => match &event.verb {
            Verb::Schedule(due, _) => (None, Some((place(*due, known).0, MarkKind::Cancelled))),
            Verb::Cancel | Verb::Reschedule(_) | Verb::Redrive(_) | Verb::Abort => (None, None),
        },
        Decision::TooLate | Decision::Repeated | Decision::Kept | Decision::Conflict | Decision::Unknown => {
            (None, None)
        }
    };
    Plan {
        decision: row.decision,
        current: row.current,
        cancel_remembered: row.cancel_remembered,
        repeated_hash: None,
        task,
        mark,
        abort: None,
        lifted: known.watermark >= row.current.map_or(Wall::MAX, |current| current.place.ready_at),
    }
}
