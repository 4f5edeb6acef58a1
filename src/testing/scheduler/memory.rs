//! The store of a test: rows in memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::{Effect, Input};
use crate::model::{
    Decision, EventRow, Fact, FactRow, LateQueueRow, Place, Pointer, PointerPage, PointerRange, QueueName,
    Row, Standing, TaskKey, Version, limits,
};

/// Rows of a page of a slice, about.
const PAGE_ROWS: usize = 2_000;

use super::SHARD;

/// Rows.
#[derive(Default)]
pub(super) struct Memory {
    events: BTreeMap<TaskKey, Vec<EventRow>>,
    decisions: BTreeMap<Version, Decision>,
    facts: BTreeMap<Place, Vec<Fact>>,
    payloads: BTreeMap<Place, Arc<[u8]>>,
    pointers: BTreeMap<(QueueName, Standing), Pointer>,
    late_queues: Vec<LateQueueRow>,
}

impl Memory {
    pub(super) fn decision(&self, version: Version) -> Option<Decision> {
        self.decisions.get(&version).copied()
    }

    /// The place of the task that an id stands for.
    pub(super) fn current(&self, key: &TaskKey) -> Option<Place> {
        let newest = self.events.get(key)?.iter().max_by_key(|row| row.version)?;
        Some(newest.current?.place)
    }

    pub(super) fn facts(&self, place: Place) -> &[Fact] {
        self.facts.get(&place).map(Vec::as_slice).unwrap_or_default()
    }

    /// Does what an effect asks of the store.
    pub(super) fn answer(&mut self, effect: Effect) -> Option<Input> {
        Some(match effect {
            Effect::LookUp(ticket, lookups) => {
                let rows = |key: &TaskKey| {
                    let mut rows = self.events.get(key).cloned().unwrap_or_default();
                    rows.sort_by_key(|row| Reverse(row.version));
                    rows
                };
                Input::LookedUp(ticket, Ok(lookups.iter().map(|lookup| rows(&lookup.key)).collect()))
            }
            Effect::Slice(ticket, from, to) => {
                let (mut rows, mut places) = (Vec::new(), self.facts.range(from..to));
                while rows.len() < PAGE_ROWS
                    && let Some((place, facts)) = places.next()
                {
                    rows.extend(rows_of(*place, facts));
                }
                Input::Sliced(ticket, Ok((rows, places.next().map(|(place, _)| *place))))
            }
            Effect::ReadFacts(ticket, place) => {
                Input::FactsRead(ticket, place, Ok(rows_of(place, self.facts(place)).collect()))
            }
            Effect::ReadPayload(ticket, place) => {
                Input::PayloadRead(ticket, place, Ok(self.payloads.get(&place).cloned()))
            }
            Effect::ReadLateQueues(ticket, segment) => {
                let rows = self.late_queues.iter().filter(|row| row.segment == segment).cloned();
                Input::LateQueuesRead(ticket, Ok(rows.collect()))
            }
            Effect::ReadPointers(ticket, PointerRange { queue, from, to, .. }) => {
                let end = Standing { due_at: to, version: Version::MIN };
                let mut left = self.pointers.range((queue.clone(), from)..(queue, end));
                let page = left.by_ref().take(limits::LATE_PAGE_ROWS).map(|(_, pointer)| *pointer);
                let pointers: Vec<Pointer> = page.collect();
                let next = left.next().map(|((_, standing), _)| *standing);
                Input::PointersRead(ticket, Ok(PointerPage { pointers, next }))
            }
            Effect::Write(ticket, rows) => {
                rows.iter().for_each(|row| self.store(row));
                Input::Written(ticket, Ok(()))
            }
            _ => return None,
        })
    }

    fn store(&mut self, row: &Row) {
        match row {
            Row::Event(row) => {
                self.decisions.insert(row.version, row.decision);
                self.events.entry(row.key.clone()).or_default().push(row.clone());
            }
            Row::Fact(row) => self.facts.entry(row.place).or_default().push(row.fact.clone()),
            Row::Payload(row) => drop(self.payloads.insert(row.place, row.bytes.clone())),
            Row::Pointer(row) => {
                self.pointers.insert((row.queue.clone(), row.pointer.standing()), row.pointer);
            }
            Row::LateQueue(row) => self.late_queues.push(row.clone()),
            Row::DeadLetter(_) => {}
        }
    }
}

fn rows_of(place: Place, facts: &[Fact]) -> impl Iterator<Item = FactRow> {
    facts.iter().map(move |fact| FactRow { shard: SHARD, place, fact: fact.clone() })
}
