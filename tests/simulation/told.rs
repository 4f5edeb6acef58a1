//! Task events: what was published, against what is on record. At least once, nothing that is not on record, and in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dueline::model::{Cause, Fact, Place, QueueName, Shard, TaskEvent, TaskEventKind, Version};

use crate::world::World;

/// What names an owner's fact: epoch, sequence number, and 1 for a start, 2 for an end, 3 for a closing.
type Name = (u64, u64, u8);

/// The events topic, and what should be there.
#[derive(Debug, Default)]
pub(crate) struct Told {
    published: Vec<Arc<TaskEvent>>,
    /// Facts that a majority has, and since when.
    facts: BTreeMap<(Shard, Place, Name), u64>,
    /// Tasks that were ever known by pointer.
    pointed: BTreeSet<(Shard, Place)>,
}

fn name_of(fact: &Fact) -> Option<Name> {
    match fact {
        Fact::Task { .. } | Fact::Superseded { .. } => None,
        Fact::Started(started) => Some((started.epoch.0, started.seq, 1)),
        Fact::Ended(ended) => Some((ended.epoch.0, ended.seq, 2)),
        Fact::Closed { epoch, seq, .. } => Some((epoch.0, *seq, 3)),
    }
}

fn name_in(cause: &Cause) -> Option<Name> {
    match cause {
        Cause::Event(..) => None,
        Cause::Started(started) => Some((started.epoch.0, started.seq, 1)),
        Cause::Ended(ended) => Some((ended.epoch.0, ended.seq, 2)),
        Cause::Closed { epoch, seq, .. } => Some((epoch.0, *seq, 3)),
    }
}

impl World {
    /// Events reach the log, in their order.
    pub(crate) fn publish(&mut self, events: &[Arc<TaskEvent>]) {
        let known: BTreeSet<(Shard, Name)> = self
            .told
            .published
            .iter()
            .rev()
            .take(200)
            .filter_map(|e| Some((e.shard, name_in(&e.cause)?)))
            .collect();
        for event in events {
            if name_in(&event.cause).is_some_and(|name| known.contains(&(event.shard, name))) {
                self.ledger.count("task event published again");
            }
        }
        self.told.published.extend(events.iter().cloned());
    }

    /// A majority has a fact.
    pub(crate) fn note_to_tell(&mut self, shard: Shard, place: Place, fact: &Fact) {
        if let Some(name) = name_of(fact) {
            self.told.facts.entry((shard, place, name)).or_insert(self.now);
        }
    }

    /// A task is known by pointer.
    pub(crate) fn note_pointed(&mut self, shard: Shard, place: Place) {
        self.told.pointed.insert((shard, place));
    }

    /// Judges what was published when everything has come to rest.
    pub(crate) fn judge_told(&mut self) {
        if !self.setup.publishes {
            return;
        }
        let mut wrongs = self.untold();
        wrongs.extend(self.made_up());
        wrongs.extend(self.out_of_order());
        wrongs.into_iter().take(3).for_each(|wrong| self.ledger.wrong(wrong));
    }

    fn untold(&self) -> Vec<String> {
        let published = &self.told.published;
        let facts: BTreeSet<(Shard, Place, Name)> = published
            .iter()
            .filter_map(|event| Some((event.shard, event.place, name_in(&event.cause)?)))
            .collect();
        let decisions: BTreeSet<(Shard, Version, TaskEventKind)> = published
            .iter()
            .filter_map(|event| match event.cause {
                Cause::Event(version, _) => Some((event.shard, version, event.kind)),
                _ => None,
            })
            .collect();
        let mut wrongs = Vec::new();
        for ((shard, place, name), at) in &self.told.facts {
            let is_late = self.landed_late(*shard, *name, *at);
            if !is_late && !self.is_silent(*shard, *place, *name) && !facts.contains(&(*shard, *place, *name))
            {
                wrongs
                    .push(format!("not published: shard {} {place:?} {name:?}, on record at {at}", shard.0));
            }
        }
        for ((shard, version), answered) in &self.ledger.answers {
            let Some(kind) = TaskEventKind::of_decision(answered.row.decision) else { continue };
            let is_rejected = self.ledger.rejected.contains_key(&(*shard, version.offset()));
            if !is_rejected && !decisions.contains(&(*shard, *version, kind)) {
                wrongs.push(format!("not published: {:?}", answered.row));
            }
        }
        wrongs
    }

    /// What landed after a later owner had read is seen by nobody: that one may have gone on without it.
    fn landed_late(&self, shard: Shard, name: Name, at: u64) -> bool {
        let mut later = self.ledger.loads.range((shard, name.0 + 1)..=(shard, u64::MAX));
        later.any(|(_, read)| *read <= at)
    }

    /// A closing of a task that is cancelled or replaced besides is no event.
    fn is_silent(&self, shard: Shard, place: Place, name: Name) -> bool {
        let facts = self.store.known(shard, place);
        name.2 == 3 && facts.iter().any(|row| matches!(row.fact, Fact::Superseded { .. }))
    }

    /// Events of what is on no replica.
    fn made_up(&self) -> Vec<String> {
        let known = |event: &TaskEvent| match name_in(&event.cause) {
            None => self.ledger.answers.keys().any(|at| {
                let Cause::Event(version, _) = event.cause else { return false };
                *at == (event.shard, version)
            }),
            name => self.store.known(event.shard, event.place).iter().any(|row| name_of(&row.fact) == name),
        };
        let made_up = self.told.published.iter().filter(|event| !known(event));
        made_up.map(|event| format!("published, and not on record: {event:?}")).collect()
    }

    /// Whether its schedule event was published when a later owner ran: that one had it still to apply.
    fn was_early(&self, event: &TaskEvent, name: Name) -> bool {
        let of_shard = self.told.published.iter().filter(|other| other.shard == event.shard);
        let mut later = false;
        for other in of_shard {
            if later && matches!(other.cause, Cause::Event(version, _) if version == event.place.version) {
                return true;
            }
            later |= name_in(&other.cause).is_some_and(|other| other.0 > name.0);
        }
        false
    }

    /// The first time that each is published, the facts of a task come in their order, and so do the starts of a queue.
    fn out_of_order(&self) -> Vec<String> {
        let mut seen: BTreeSet<(Shard, Name)> = BTreeSet::new();
        let mut of_task: BTreeMap<(Shard, Place), Name> = BTreeMap::new();
        let mut of_queue: BTreeMap<QueueName, Name> = BTreeMap::new();
        let mut wrongs = Vec::new();
        let mut begun: BTreeSet<(Shard, Place)> = BTreeSet::new();
        let mut made: BTreeSet<(Shard, Place)> = BTreeSet::new();
        for event in &self.told.published {
            let Some(name) = name_in(&event.cause) else {
                let (place, makes) = ((event.shard, event.place), event.kind.makes_a_task());
                if makes && made.insert(place) && begun.contains(&place) {
                    wrongs.push(format!("published behind what became of it: {event:?}"));
                }
                continue;
            };
            begun.insert((event.shard, event.place));
            let at = self.told.facts.get(&(event.shard, event.place, name)).copied().unwrap_or(u64::MAX);
            if !seen.insert((event.shard, name)) || self.landed_late(event.shard, name, at) {
                continue;
            }
            let last = of_task.insert((event.shard, event.place), name);
            if last.is_some_and(|last| last > name) {
                wrongs.push(format!("published out of order, behind {last:?}: {event:?}"));
            }
            // What an owner before left of a late queue is read, and told, in the order of its pointers; and of a task whose
            // schedule event could not be read for long, when it is.
            let is_late =
                self.told.pointed.contains(&(event.shard, event.place)) || self.was_early(event, name);
            if name.2 == 1 && !is_late {
                let last = of_queue.insert(event.key.queue.clone(), name);
                if last.is_some_and(|last| last > name) {
                    wrongs.push(format!("published out of its queue's order, behind {last:?}: {event:?}"));
                }
            }
        }
        wrongs
    }
}
