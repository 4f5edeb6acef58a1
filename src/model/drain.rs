//! Drains: instances, alone or all of a data centre, that run no shard until a person undoes it.
//!
//! Made of the same operations as gates. A drain holds for a name, whoever bears it: an instance that starts anew under it is
//! drained from its first moment, and one that starts in a drained data centre too, whatever its name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::gate::{Change, Operation};

/// What is drained.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The instance of a name.
    Instance(Arc<str>),
    /// All instances of a data centre.
    Dc(Arc<str>),
}

impl Place {
    /// The word used in rows and API.
    pub fn word(&self) -> &'static str {
        match self {
            Place::Instance(_) => "instance",
            Place::Dc(_) => "dc",
        }
    }

    /// The name of the instance or data centre.
    pub fn name(&self) -> &str {
        match self {
            Place::Instance(name) | Place::Dc(name) => name,
        }
    }

    /// The place of a word and a name; `None` = a kind that a newer build knows.
    pub fn from_word(word: &str, name: &str) -> Option<Place> {
        match word {
            "instance" => Some(Place::Instance(Arc::from(name))),
            "dc" => Some(Place::Dc(Arc::from(name))),
            _ => None,
        }
    }

    /// Whether an instance of a data centre is in it.
    pub fn has(&self, instance: &str, dc: &str) -> bool {
        match self {
            Place::Instance(name) => **name == *instance,
            Place::Dc(name) => **name == *dc,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Instance(name) => write!(f, "instance {name}"),
            Place::Dc(name) => write!(f, "data centre {name}"),
        }
    }
}

/// The drains that were begun and not undone, as of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drains {
    last: u64,
    set: BTreeMap<Place, Operation>,
}

impl Drains {
    /// Takes the next operation. One that was taken before changes nothing.
    pub fn apply(&mut self, operation: &Operation) {
        if operation.number <= self.last {
            return;
        }
        self.last = operation.number;
        match &operation.change {
            Change::Drained(place) => {
                self.set.insert(place.clone(), operation.clone());
            }
            Change::Undrained(place) => {
                self.set.remove(place);
            }
            Change::GateSet(_)
            | Change::GateCleared(..)
            | Change::BatchBegun(_)
            | Change::BatchStopped(_)
            | Change::BatchResumed(_)
            | Change::ShardsReset(_)
            | Change::Other(_) => {}
        }
    }

    /// What is drained, each with the operation that did it.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, &Operation)> {
        self.set.iter()
    }

    /// The operation that drained a place.
    pub fn get(&self, place: &Place) -> Option<&Operation> {
        self.set.get(place)
    }

    /// Why an instance of a data centre is drained: on its own account, or with its data centre.
    pub fn of(&self, instance: &str, dc: &str) -> Option<(&Place, &Operation)> {
        self.iter().find(|(place, _)| place.has(instance, dc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Wall;

    fn instance(name: &str) -> Place {
        Place::Instance(Arc::from(name))
    }

    fn dc(name: &str) -> Place {
        Place::Dc(Arc::from(name))
    }

    fn drains(changes: Vec<Change>) -> Drains {
        let mut drains = Drains::default();
        for (number, change) in (1..).zip(changes) {
            let operation =
                Operation { number, id: u128::from(number), at: Wall(1), by: None, reason: None, change };
            drains.apply(&operation);
            drains.apply(&operation);
        }
        drains
    }

    #[test]
    fn an_instance_is_drained_by_its_name_or_with_its_data_centre() {
        let drains = drains(vec![Change::Drained(instance("a")), Change::Drained(dc("dc2"))]);
        let why = |name: &str, dc: &str| drains.of(name, dc).map(|(place, _)| place.to_string());
        assert_eq!(why("a", "dc1").as_deref(), Some("instance a"));
        assert_eq!(why("b", "dc2").as_deref(), Some("data centre dc2"));
        assert_eq!(why("b", "dc1"), None);
        assert_eq!(why("dc2", "a"), None, "a name of the other kind");
    }

    #[test]
    fn what_is_undone_leaves_the_other_drains_and_the_last_operation_decides() {
        let both = vec![Change::Drained(instance("a")), Change::Drained(dc("dc1"))];
        let without_dc = drains([both.clone(), vec![Change::Undrained(dc("dc1"))]].concat());
        assert!(without_dc.of("a", "dc1").is_some() && without_dc.of("b", "dc1").is_none());
        let changed = [both, vec![Change::Undrained(instance("a")), Change::Drained(instance("a"))]].concat();
        assert_eq!(drains(changed).get(&instance("a")).map(|operation| operation.number), Some(4));
    }

    #[test]
    fn a_place_is_read_from_its_word() {
        for place in [instance("a"), dc("dc 1")] {
            assert_eq!(Place::from_word(place.word(), place.name()), Some(place));
        }
        assert_eq!(Place::from_word("region", "eu"), None);
    }
}
