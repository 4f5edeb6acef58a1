//! What is told of a task: which events a fact or a decision is, and what owners before may have left.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::model::{
    Cause, EventRow, Fact, FactRow, HandlerName, MarkKind, Place, Row, TaskContent, TaskEvent, TaskEventKind,
    TaskKey, Wall,
};

use super::super::Engine;
use super::super::load::LoadedTask;
use super::super::window::Written;
use super::{Gone, Of, id_of};

impl Engine {
    /// A fact of this owner is to be written.
    pub(in crate::engine) fn will_be_told(&mut self, fact: &Fact) {
        if let Some((_, id)) = id_of(fact).filter(|_| self.options.publishes) {
            self.outbox.open.insert(id, None);
        }
    }

    /// Rows are on record: what they say of this owner's facts is published. Before they take effect: who knows of the task
    /// then still does.
    pub(in crate::engine) fn tell_facts(&mut self, rows: &[Row]) {
        if self.outbox.open.is_empty() {
            return;
        }
        for row in rows {
            let Row::Fact(FactRow { place, fact, .. }) = row else { continue };
            let Some((epoch, id)) = id_of(fact) else { continue };
            let events =
                if epoch == self.epoch() { self.events_of_own(*place, id.1, fact) } else { Vec::new() };
            let Entry::Occupied(mut open) = self.outbox.open.entry(id) else { continue };
            match u32::try_from(events.len()) {
                Ok(count) if count > 0 => drop(open.insert(Some(count))),
                _ => drop(open.remove()),
            }
            events.into_iter().for_each(|event| self.tell(event, Of::Own(id)));
        }
    }

    fn events_of_own(&self, place: Place, seq: u64, fact: &Fact) -> Vec<TaskEvent> {
        let mark = self.window.get(place).and_then(|task| task.mark);
        if let Fact::Closed { .. } = fact {
            let Some(task) = self.window.get(place) else { return Vec::new() };
            return self.events_of((&task.key, place, task.due_at), &task.content, fact, mark);
        }
        let Some(attempt) = self.attempts.open.get(&seq).filter(|attempt| !attempt.leftover) else {
            return Vec::new();
        };
        self.events_of(attempt.task(), &attempt.content, fact, mark)
    }

    /// The events of an owner's fact about a task.
    fn events_of(
        &self,
        (key, place, due_at): (&TaskKey, Place, Wall),
        content: &TaskContent,
        fact: &Fact,
        mark: Option<MarkKind>,
    ) -> Vec<TaskEvent> {
        let (at, cause) = match fact {
            Fact::Task { .. } | Fact::Superseded { .. } => return Vec::new(),
            Fact::Started(started) => (started.at, Cause::Started(started.clone())),
            Fact::Ended(ended) => (ended.at, Cause::Ended(ended.clone())),
            Fact::Closed { epoch, seq, at, reason } => {
                (*at, Cause::Closed { epoch: *epoch, seq: *seq, reason: *reason })
            }
        };
        let event = |kind| TaskEvent {
            kind,
            key: key.clone(),
            shard: self.options.shard,
            place,
            due_at,
            at,
            handler: Some(content.handler.clone()),
            collection: content.collection.clone(),
            cause: cause.clone(),
            payload: (kind == TaskEventKind::Dead).then(|| content.payload.clone()),
        };
        TaskEventKind::of_fact(fact, content, mark).map(event).collect()
    }

    /// The event of what a schedule event did, from the row of it; `content` is that of a task that it made.
    pub(in crate::engine) fn event_of_decision(
        &self,
        row: &EventRow,
        content: Option<&TaskContent>,
    ) -> Option<TaskEvent> {
        let kind = TaskEventKind::of_decision(row.decision).filter(|_| self.options.publishes)?;
        let place =
            row.current.map_or(Place { ready_at: row.appended, version: row.version }, |now| now.place);
        let known = self.window.get(place);
        let content = content.or(known.map(|task| &*task.content));
        let handler: Option<HandlerName> = content.map(|content| content.handler.clone());
        Some(TaskEvent {
            kind,
            key: row.key.clone(),
            shard: self.options.shard,
            place,
            due_at: row.current.map_or(row.appended, |now| now.due_at),
            at: row.appended,
            handler,
            collection: content.and_then(|content| content.collection.clone()),
            cause: Cause::Event(row.version, row.reason.as_deref().map(Arc::from)),
            payload: None,
        })
    }

    /// The end of an attempt of an owner before has come into sight.
    pub(in crate::engine) fn tell_end_of_before(
        &mut self,
        place: Place,
        rows: &[FactRow],
        mark: Option<MarkKind>,
    ) {
        let Some(hold) = self.attempts.holds.get(&place).filter(|hold| hold.is_of_before()) else { return };
        let of_hold = |fact: &Fact| matches!(fact, Fact::Ended(ended) if hold.is_ended_by(ended));
        let Some(end) = rows.iter().map(|row| &row.fact).find(|fact| of_hold(fact)) else { return };
        let Some(task) = self.window.get(place).filter(|_| self.is_left(end)) else { return };
        let events = self.events_of((&task.key, place, task.due_at), &task.content, end, mark);
        events.into_iter().for_each(|event| self.tell(event, Of::Before));
    }

    /// Whether a fact of an owner before may not have been published.
    fn is_left(&self, fact: &Fact) -> bool {
        let (Some(before), Some((epoch, id))) = (self.outbox.before, id_of(fact)) else { return false };
        self.options.publishes && epoch < self.epoch() && id.0 > before
    }

    /// Tells what an owner before left untold of a task. A task that is over is kept until it is told.
    pub(in crate::engine) fn retell<'a>(
        &mut self,
        place: Place,
        task: &LoadedTask,
        facts: impl Iterator<Item = &'a Fact>,
        (is_over, mark): (bool, Option<MarkKind>),
    ) {
        if self.outbox.before.is_none() || planted!(EventsOfBeforeForgotten) {
            return;
        }
        let mut facts: Vec<&Fact> = facts.filter(|fact| self.is_left(fact)).collect();
        facts.sort_by_key(|fact| id_of(fact).map(|(epoch, (_, seq, kind))| (epoch, seq, kind)));
        if facts.is_empty() || !self.outbox.looked_through.insert(place) {
            return;
        }
        let last = facts.len() - 1;
        for (index, fact) in facts.into_iter().enumerate() {
            let mark = mark.filter(|_| index == last || matches!(fact, Fact::Closed { .. }));
            let events = self.events_of((&task.key, place, task.due_at), &task.content, fact, mark);
            events.into_iter().for_each(|event| self.tell(event, Of::Before));
        }
        if is_over && self.outbox.of_place.contains_key(&place) {
            let (queue, due_at) = (task.key.queue.clone(), task.due_at);
            self.outbox.gone.insert(place, Gone { queue, due_at, pointer: Written::No });
        }
    }
}
