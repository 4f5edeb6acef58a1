//! A store in memory, as far as the scenarios need one.

use std::collections::BTreeMap;

use alone::engine::{Effect, Input};
use alone::model::{
    Fact, FactRow, LateQueueRow, Place, Pointer, PointerPage, PointerRange, QueueName, Row, Shard, Standing,
    Version, limits,
};

/// Rows of a page of a slice, about.
const PAGE_ROWS: usize = 2_000;

#[derive(Default)]
pub(super) struct Memory {
    pub(super) tasks: u64,
    pub(super) ended: u64,
    facts: BTreeMap<Place, Vec<Fact>>,
    pointers: BTreeMap<(QueueName, Standing), Pointer>,
    late_queues: Vec<LateQueueRow>,
}

impl Memory {
    /// Does what an effect asks of the store.
    pub(super) fn answer(&mut self, effect: Effect) -> Option<Input> {
        Some(match effect {
            // No id comes twice.
            Effect::LookUp(ticket, lookups) => Input::LookedUp(ticket, Ok(vec![Vec::new(); lookups.len()])),
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
                let facts = self.facts.get(&place).map(Vec::as_slice).unwrap_or_default();
                Input::FactsRead(ticket, place, Ok(rows_of(place, facts).collect()))
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
            other => panic!("the scenarios have no answer to {other:?}"),
        })
    }

    fn store(&mut self, row: &Row) {
        match row {
            Row::Fact(row) => {
                self.tasks += u64::from(matches!(row.fact, Fact::Task { .. }));
                self.ended += u64::from(matches!(row.fact, Fact::Ended(_)));
                self.facts.entry(row.place).or_default().push(row.fact.clone());
            }
            Row::Pointer(row) => {
                self.pointers.insert((row.queue.clone(), row.pointer.standing()), row.pointer);
            }
            Row::LateQueue(row) => self.late_queues.push(row.clone()),
            Row::Event(_) | Row::Payload(_) | Row::DeadLetter(_) => {}
        }
    }
}

fn rows_of(place: Place, facts: &[Fact]) -> impl Iterator<Item = FactRow> {
    facts.iter().map(move |fact| FactRow { shard: Shard(0), place, fact: fact.clone() })
}
