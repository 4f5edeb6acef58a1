//! Judging one event: what is known of its task, from memory and from the store.
//!
//! Nothing is changed here: the plan is carried out by the batch. What is not known yet is named as a [`Need`] and read
//! before the event is judged again.

use std::sync::Arc;

use crate::model::{
    Fact, FactRow, Payload, Place, Redrive, TaskContent, TaskKey, TaskState, Verb, Version, Wall,
};

use super::super::Engine;
use super::super::decide::{Known, Live, Plan, decide, stands};
use super::super::effect::inline;
use super::super::fold::{Next, fold, marked_by};
use super::super::load::LoadedTask;
use super::super::window::Status;
use super::Need;
use super::batch::Batch;

impl Engine {
    pub(super) fn plan(&mut self, index: usize, version: Version) -> Result<Plan, Need> {
        let batch = &self.intake.batches[index];
        let item = batch.next_item();
        let (event, key) = item.event_and_key();
        let recorded = batch.recorded(key, version).filter(|_| !planted!(ReplayDecidesAnew));
        let newest = batch.newest_below(key, version);
        let live = match newest.and_then(|row| row.current) {
            Some(current) if recorded.is_none() => self.live_for(batch, version, current.place)?,
            Some(_) | None => Live::Finished,
        };
        // Who breaks off asks for it; a search through all calls is spared to every other event.
        let calling = newest
            .and_then(|row| row.current)
            .filter(|_| matches!(event.verb, Verb::Abort))
            .and_then(|current| self.attempts.running_at(current.place));
        let known = Known {
            version,
            appended: if planted!(PlaceFromTheClock) { self.now.wall } else { item.record.appended },
            asked: item.origin().map_or(item.record.appended, |origin| origin.appended),
            newest,
            live,
            calling,
            watermark: self.commit.watermark(),
            repeat_window_ms: self.options.repeat_window_ms,
        };
        let mut plan = match recorded {
            Some(row) => stands(event, row, newest, &known),
            None => self.within_quota(item, decide(event, &known), &known),
        };
        if let Some(task) = plan.task.as_mut().filter(|task| task.content.is_none()) {
            let from = newest.and_then(|row| row.current).map(|current| current.place);
            let content = from.map(|place| self.content_at(batch, place)).transpose()?.flatten();
            task.content = match (&event.verb, content) {
                (Verb::Redrive(redrive), Some(content)) => {
                    Some(Arc::new(redriven(&content, redrive, task.due_at)))
                }
                // What it takes over from is forgotten; an owner before stored it as a task of its own.
                (_, None) if recorded.is_some() => self.content_at(batch, task.place)?,
                (_, content) => content,
            };
        }
        if plan.task.as_ref().is_some_and(|task| task.content.is_none()) {
            plan.task = None;
        }
        Ok(plan)
    }

    /// Where the task at `place` stands for the next event. One that an owner before marked as moved by this very event was
    /// moved in time, whatever of it came into sight since.
    fn live_for(&self, batch: &Batch, version: Version, place: Place) -> Result<Live, Need> {
        let (event, key) = batch.next_item().event_and_key();
        let mut live = self.live(batch, version, key, place)?;
        if live == Live::Stoppable && batch.has_marked(place) {
            live = Live::Finished;
        }
        if live == Live::Finished && matches!(event.verb, Verb::Redrive(_)) {
            let rows = batch.facts.get(&place).ok_or(Need::Facts(place))?;
            let folded = fold(rows.iter().map(|row| &row.fact), version);
            let Next::Finished(state) = folded.next() else { return Ok(live) };
            let is_closed = [TaskState::Dead, TaskState::Expired, TaskState::Skipped, TaskState::Dropped];
            return Ok(if is_closed.contains(&state) { Live::Failed } else { live });
        }
        if live != Live::Open || !matches!(event.verb, Verb::Reschedule(_)) {
            return Ok(live);
        }
        let of_this = |rows: &Vec<FactRow>| marked_by(rows).any(|by| by == version);
        let read = batch.facts.get(&place).is_some_and(of_this);
        let is_moved = read || self.intake.early_marks.contains(&(version, place));
        Ok(if is_moved { Live::Stoppable } else { live })
    }

    /// Where the task at `place` stands for the event `version`, read from the store when memory does not know. Marks of
    /// all its events before that one are on record.
    fn live(&self, batch: &Batch, version: Version, key: &TaskKey, place: Place) -> Result<Live, Need> {
        if let Some(task) = self.window.get(place) {
            return Ok(match task.status {
                Status::Pending | Status::Queued | Status::Parked | Status::Fetching => Live::Stoppable,
                Status::Starting => return Err(Need::Record(place)),
                Status::Ending if !self.attempts.has_open(place) => return Err(Need::Record(place)),
                Status::Running | Status::Ending | Status::Held => Live::Open,
            });
        }
        let live = |facts: Vec<&Fact>| match fold(facts, version).next() {
            Next::Run(_) => Live::Stoppable,
            Next::Open(_) => Live::Open,
            Next::Finished(_) => Live::Finished,
        };
        if let Some(facts) = self.window.early(place) {
            return Ok(live(facts.iter().collect()));
        }
        if self.window.covers(place) && !self.late.has(&key.queue) {
            return Ok(if batch.made(place).is_some() { Live::Stoppable } else { Live::Finished });
        }
        if place.ready_at > self.now.wall {
            return Ok(Live::Stoppable);
        }
        let rows = batch.facts.get(&place).ok_or(Need::Facts(place))?;
        // Its event is on record, so it was stored: it is forgotten.
        if rows.is_empty() {
            return Ok(Live::Finished);
        }
        Ok(live(rows.iter().map(|row| &row.fact).collect()))
    }

    /// What the task at `place` runs. `None` when the store has no such task.
    pub(super) fn content_at(&self, batch: &Batch, place: Place) -> Result<Option<Arc<TaskContent>>, Need> {
        let content = match (self.window.get(place), batch.made(place)) {
            (Some(task), _) => Some(task.content.clone()),
            (None, Some(made)) => return Ok(Some(made.content.clone())),
            (None, None) => {
                let rows = batch.facts.get(&place).ok_or(Need::Facts(place))?;
                LoadedTask::from_rows(rows).map(|task| task.content)
            }
        };
        let Some(content) = content else { return Ok(None) };
        if inline(&content.payload).is_some() {
            return Ok(Some(content));
        }
        match batch.payloads.get(&place) {
            None => Err(Need::Payload(place)),
            // It is being forgotten.
            Some(None) => Ok(None),
            Some(Some(bytes)) => {
                let payload = Payload::Inline(bytes.clone());
                Ok(Some(Arc::new(TaskContent { payload, ..(*content).clone() })))
            }
        }
    }
}

/// What a redriven task runs: what it ran before, or that with another payload; an expiry that is over counts no more.
fn redriven(content: &TaskContent, redrive: &Redrive, due_at: Wall) -> TaskContent {
    let payload = redrive.payload.clone().unwrap_or_else(|| content.payload.clone());
    let expires_at = content.expires_at.filter(|at| *at > due_at);
    TaskContent { payload, expires_at, ..content.clone() }
}
