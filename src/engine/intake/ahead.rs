//! Facts that are read before their event has its turn: of all that a batch redrives at once, instead of one after the other.
//!
//! Only of these: a task that is dead changes by an event of its id alone, of which one is under way at a time, so what is read
//! early is true still when it is decided. Of any other task the window may come to know more meanwhile.

use std::collections::BTreeMap;

use crate::model::{Place, Verb, Version};

use super::super::Engine;
use super::super::effect::Effect;
use super::batch::Batch;
use super::item::Item;

/// What was asked for ahead and is not answered.
#[derive(Debug, Default)]
pub(super) struct Ahead(BTreeMap<Place, Asked>);

#[derive(Debug)]
struct Asked {
    ticket: u64,
    /// Something became visible there since.
    is_old: bool,
}

impl Ahead {
    /// Whether a place was asked for and is not answered.
    pub(super) fn is_out(&self, place: Place) -> bool {
        self.0.contains_key(&place)
    }

    pub(super) fn out_of_date(&mut self, place: Place) {
        self.0.entry(place).and_modify(|asked| asked.is_old = true);
    }

    pub(super) fn all_out_of_date(&mut self) {
        self.0.values_mut().for_each(|asked| asked.is_old = true);
    }

    /// Whether this is the answer for a place.
    pub(super) fn is_answer(&self, place: Place, ticket: u64) -> bool {
        self.0.get(&place).is_some_and(|asked| asked.ticket == ticket)
    }

    /// Takes the answer for a place; true when it is out of date.
    pub(super) fn take(&mut self, place: Place, ticket: u64) -> bool {
        self.is_answer(place, ticket) && self.0.remove(&place).is_some_and(|asked| asked.is_old)
    }
}

impl Batch {
    /// The places of what this round redrives.
    fn redriven(&self) -> Vec<Place> {
        let place = |(version, item): (Version, &Item)| {
            let key = item.own_key()?;
            let is_redrive = matches!(item.event_and_key().0.verb, Verb::Redrive(_));
            let newest = self.newest_below(key, version).filter(|_| is_redrive)?;
            Some(newest.current?.place)
        };
        self.undecided().filter_map(place).collect()
    }
}

impl Engine {
    /// Asks for the facts of all that a batch redrives.
    pub(super) fn read_ahead(&mut self, index: usize) {
        if self.intake.batches[index].is_again {
            return;
        }
        for place in self.intake.batches[index].redriven() {
            let is_known = self.window.get(place).is_some() || self.window.early(place).is_some();
            if is_known || self.intake.batches[index].ahead.is_out(place) {
                continue;
            }
            let ticket = self.ticket();
            self.intake.batches[index].ahead.0.insert(place, Asked { ticket, is_old: false });
            self.effects.push_back(Effect::ReadFacts(ticket, place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Wall;

    #[test]
    fn an_answer_is_taken_once_by_its_ticket_and_says_whether_it_is_out_of_date() {
        let [one, other] = [1, 2].map(|version| Place { ready_at: Wall(5), version: Version(version) });
        let mut ahead = Ahead::default();
        ahead.0.insert(one, Asked { ticket: 7, is_old: false });
        ahead.0.insert(other, Asked { ticket: 8, is_old: false });
        ahead.out_of_date(one);
        assert!(!ahead.take(one, 6) && ahead.is_out(one), "somebody else asked for that");
        assert!(ahead.take(one, 7), "something became visible since");
        assert!(!ahead.is_out(one) && !ahead.is_answer(one, 7));
        assert!(ahead.is_answer(other, 8) && !ahead.take(other, 8), "nothing did");
        ahead.0.insert(other, Asked { ticket: 9, is_old: false });
        ahead.all_out_of_date();
        assert!(ahead.take(other, 9), "another round has begun");
    }
}
