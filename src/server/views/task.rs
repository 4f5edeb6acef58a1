//! A task, its attempts and its events, from the rows of the store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::engine::{Folded, Next, fold};
use crate::model::{
    CloseReason, EventRow, Fact, FactRow, MarkKind, Outcome, Payload, TaskState, Version, Wall,
};
use crate::wire::task_event::json_or_text;
use crate::wire::time::format_time;

/// What was decided about an event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(in super::super) struct DecisionView {
    /// The event's kind.
    pub(in super::super) verb: String,
    /// The decision: scheduled, replaced, rescheduled, cancelled, redriven, not_dead, aborted, not_running, too_late, repeated, kept, conflict, unknown_task, cancelled_before.
    pub(in super::super) decision: String,
    /// When its record was appended.
    pub(in super::super) appended_at: String,
    /// Its offset in the shard.
    pub(in super::super) offset: u64,
    /// The epoch of the owner that decided.
    pub(in super::super) epoch: u64,
    /// When the task is due, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) due_at: Option<String>,
    /// Why, in the producer's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) reason: Option<String>,
}

impl DecisionView {
    /// What a row says.
    pub(in super::super) fn of(row: &EventRow) -> DecisionView {
        DecisionView {
            verb: row.verb.to_string(),
            decision: row.decision.word().to_owned(),
            appended_at: format_time(row.appended),
            offset: row.version.offset(),
            epoch: row.epoch.0,
            due_at: row.current.map(|current| format_time(current.due_at)),
            reason: row.reason.clone(),
        }
    }
}

/// A task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(in super::super) struct TaskView {
    /// Its queue.
    pub(in super::super) queue: String,
    /// Its id.
    pub(in super::super) id: String,
    /// scheduled, running, retrying, parked, succeeded, dead, cancelled, replaced, expired, skipped, dropped.
    pub(in super::super) state: String,
    /// When it is due.
    pub(in super::super) due_at: String,
    /// When it could first run: due and appended.
    pub(in super::super) ready_at: String,
    /// Its handler.
    pub(in super::super) handler: String,
    /// 0 to 9, 9 first.
    pub(in super::super) priority: u8,
    /// The caller's tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) collection: Option<String>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) created_by: Option<String>,
    /// Its shard.
    pub(in super::super) shard: u32,
    /// The offset of its event in the shard.
    pub(in super::super) offset: u64,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) next_at: Option<String>,
    /// Why it was closed without success: the word of the closing, or the words given with the cancel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) reason: Option<String>,
    /// When it was closed without an attempt (expired, skipped, dropped, or too many interruptions), and by the owner of which epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) closed: Option<ClosedView>,
    /// What its handler answered: as JSON if it was JSON, else as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub(in super::super) result: Option<Box<RawValue>>,
    /// `true` when the answer had more than the 16 KiB that are kept; left out else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in super::super) result_cut: bool,
    /// Not started after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) expires_at: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(in super::super) labels: BTreeMap<String, String>,
    /// Its payload; left out in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub(in super::super) payload: Option<Box<RawValue>>,
    /// Every attempt, oldest first.
    #[serde(default)]
    pub(in super::super) attempts: Vec<AttemptView>,
    /// Every event about the id, newest first; left out in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in super::super) events: Vec<DecisionView>,
    /// What became of the tasks that the id stood for before, newest first: a redrive, a reschedule and a replacement are a new task
    /// each. The last ten; left out in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in super::super) earlier: Vec<EarlierView>,
}

/// A task that was closed without an attempt.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(in super::super) struct ClosedView {
    /// When.
    pub(in super::super) at: String,
    /// The owner's epoch.
    pub(in super::super) epoch: u64,
}

/// A task that an id stood for before.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(in super::super) struct EarlierView {
    /// The offset of its event in the shard.
    pub(in super::super) offset: u64,
    /// As of a task.
    pub(in super::super) state: String,
    /// When it was due.
    pub(in super::super) due_at: String,
    /// Why it was closed without success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) reason: Option<String>,
    /// When it was closed without an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) closed: Option<ClosedView>,
    /// Every attempt, oldest first.
    pub(in super::super) attempts: Vec<AttemptView>,
}

impl EarlierView {
    /// From the rows of its place; `None` when its own row is not among them.
    pub(in super::super) fn of(rows: &[FactRow]) -> Option<EarlierView> {
        let folded = fold(rows.iter().map(|row| &row.fact), Version::MAX);
        let TaskView { offset, state, due_at, reason, closed, attempts, .. } = task_view(rows)?;
        // One that was redriven is replaced in lists; here it is what it had become.
        let is_redriven = folded.mark.is_some_and(|(_, mark)| mark == MarkKind::Redriven);
        let became = closing(&folded).filter(|_| is_redriven).map(|reason| reason.state().word().to_owned());
        Some(EarlierView { offset, state: became.unwrap_or(state), due_at, reason, closed, attempts })
    }
}

/// Why a task was closed without success, if it was.
fn closing(folded: &Folded) -> Option<CloseReason> {
    folded.ended.as_ref().and_then(|ended| ended.closed).or(folded.closed)
}

/// One attempt.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(in super::super) struct AttemptView {
    /// Its number, from 1.
    pub(in super::super) attempt: u32,
    /// The owner's epoch.
    pub(in super::super) epoch: u64,
    /// The fencing token that its handler was given.
    pub(in super::super) fencing_token: String,
    /// The instance that made it.
    pub(in super::super) instance: String,
    /// When it started.
    pub(in super::super) started_at: String,
    /// When it ends at the latest.
    pub(in super::super) deadline: String,
    /// How it ended: `interrupted` too when its owner was lost before it could tell. Absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) outcome: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) ended_at: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) error: Option<String>,
    /// The handler's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) result: Option<String>,
    /// `true` when the answer had more than the 16 KiB that are kept; left out else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in super::super) result_cut: bool,
}

/// A task from the rows of its place; `None` when its own row is not among them.
pub(in super::super) fn task_view(rows: &[FactRow]) -> Option<TaskView> {
    let facts = rows.iter().map(|row| &row.fact);
    let first = rows.first()?;
    let (key, due_at, content) = facts.clone().find_map(|fact| match fact {
        Fact::Task { key, due_at, content, .. } => Some((key, due_at, content)),
        Fact::Superseded { .. } | Fact::Started(_) | Fact::Ended(_) | Fact::Closed { .. } => None,
    })?;
    let folded = fold(facts.clone(), Version::MAX);
    let next_at = match folded.next() {
        Next::Run(counts) if counts.not_before > Wall::MIN => Some(format_time(counts.not_before)),
        Next::Run(_) | Next::Open(_) | Next::Finished(_) => None,
    };
    let state = folded.state_of(content.on_failure);
    let closed = closing(&folded);
    // A closing that does not count, of an owner that was not one any more, is not told.
    let without_attempt =
        folded.closed.filter(|_| folded.ended.as_ref().is_none_or(|ended| ended.closed.is_none()));
    let result = folded.ended.as_ref().filter(|ended| ended.outcome == Outcome::Succeeded);
    let payload = match &content.payload {
        Payload::Inline(bytes) => serde_json::from_slice(bytes).ok(),
        Payload::Stored(_) => None,
    };
    Some(TaskView {
        queue: key.queue.to_string(),
        id: key.id.to_string(),
        state: state.word().to_owned(),
        due_at: format_time(*due_at),
        ready_at: format_time(first.place.ready_at),
        handler: content.handler.to_string(),
        priority: content.priority,
        collection: content.collection.as_ref().map(ToString::to_string),
        created_by: content.created_by.as_ref().map(ToString::to_string),
        shard: first.shard.0,
        offset: first.place.version.offset(),
        next_at,
        reason: closed.map(|reason| reason.word().to_owned()),
        closed: facts.clone().find_map(|fact| match fact {
            Fact::Closed { at, epoch, reason, .. } if without_attempt == Some(*reason) => {
                Some(ClosedView { at: format_time(*at), epoch: epoch.0 })
            }
            _ => None,
        }),
        result_cut: result.is_some_and(|ended| ended.result_cut),
        result: result.and_then(|ended| ended.result.as_deref()).and_then(json_or_text),
        expires_at: content.expires_at.map(format_time),
        labels: content.labels.clone(),
        payload,
        attempts: attempts(rows, state == TaskState::Running),
        events: Vec::new(),
        earlier: Vec::new(),
    })
}

/// The attempts in their order. One without an end was given up with its owner, but for the last of a task that runs.
fn attempts(rows: &[FactRow], is_running: bool) -> Vec<AttemptView> {
    let mut started: Vec<_> = rows
        .iter()
        .filter_map(|row| match &row.fact {
            Fact::Started(started) => Some(started),
            Fact::Task { .. } | Fact::Superseded { .. } | Fact::Ended(_) | Fact::Closed { .. } => None,
        })
        .collect();
    started.sort_by_key(|started| (started.epoch, started.seq));
    let end_of = |epoch, seq| {
        rows.iter().find_map(|row| match &row.fact {
            Fact::Ended(ended) if (ended.epoch, ended.seq) == (epoch, seq) => Some(ended),
            _ => None,
        })
    };
    let count = started.len();
    let view = |(number, started): (usize, &&crate::model::Started)| {
        let ended = end_of(started.epoch, started.seq);
        let is_open = ended.is_none() && is_running && number + 1 == count;
        let outcome = ended.map_or(Outcome::Interrupted, |ended| ended.outcome);
        AttemptView {
            attempt: started.attempt,
            epoch: started.epoch.0,
            fencing_token: started.token().to_string(),
            instance: started.instance.to_string(),
            started_at: format_time(started.at),
            deadline: format_time(started.deadline),
            outcome: (!is_open).then(|| outcome.word().to_owned()),
            ended_at: ended.map(|ended| format_time(ended.at)),
            error: ended.and_then(|ended| ended.error.as_ref().map(ToString::to_string)),
            result_cut: ended.is_some_and(|ended| ended.result_cut),
            result: ended
                .and_then(|ended| ended.result.as_ref().map(|r| String::from_utf8_lossy(r).into_owned())),
        }
    };
    started.iter().enumerate().map(view).collect()
}

#[cfg(test)]
mod tests;
