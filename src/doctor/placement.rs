//! Which racks may be lost: whether each partition keeps as many replicas as a write needs without any one of them.
//!
//! Two answers that can differ. By placement: where replicas are meant to be. Now: where those in sync are, while a broker
//! is down or behind.

use std::collections::{BTreeMap, BTreeSet};

use crate::log::kafka::facts::{Facts, Partition, Topic};

/// Partitions that would not take a record any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The rack that is lost.
    pub rack: String,
    /// The topic.
    pub topic: String,
    /// How many of its partitions.
    pub partitions: usize,
    /// The first of them.
    pub first: i32,
    /// Replicas that are left there.
    pub left: usize,
    /// Replicas that are needed.
    pub needed: usize,
}

/// Which replicas count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All, wherever they are meant to be. Those on brokers that are down count as in a rack that stays: their rack is not
    /// known.
    Placed,
    /// Those in sync.
    InSync,
}

/// The racks of brokers that are there.
pub fn racks(facts: &Facts) -> BTreeSet<&str> {
    facts.brokers.iter().filter_map(|broker| broker.rack.as_deref()).collect()
}

/// The partitions that would stand still, by rack that is lost. Empty when every rack can be lost.
///
/// `planned` is what a topic needs whose settings are not known. A broker without a rack stands for a rack of its own: it
/// is lost with one of the others, but nobody knows with which, so that it counts with each.
pub fn shorts(facts: &Facts, counted: Counted, planned: usize) -> Vec<Short> {
    let racks_of: BTreeMap<i32, Option<&str>> =
        facts.brokers.iter().map(|broker| (broker.id, broker.rack.as_deref())).collect();
    let mut found = Vec::new();
    for rack in racks(facts) {
        let stays = |id: &&i32| match racks_of.get(id) {
            Some(Some(of)) => *of != rack,
            Some(None) => false,
            None => true,
        };
        for (name, topic) in &facts.topics {
            let Ok(topic) = topic else { continue };
            let needed = needed(facts, name, planned);
            let left = |one: &Partition| match counted {
                Counted::Placed => one.replicas.iter().filter(stays).count(),
                Counted::InSync => one.in_sync.iter().filter(stays).count(),
            };
            found.extend(short(rack, name, topic, needed, left));
        }
    }
    found
}

fn short(
    rack: &str,
    name: &str,
    topic: &Topic,
    needed: usize,
    left: impl Fn(&Partition) -> usize,
) -> Option<Short> {
    let mut short = topic.partitions.iter().filter(|one| left(one) < needed).peekable();
    let first = short.peek()?.id;
    let fewest = topic.partitions.iter().map(&left).min().unwrap_or(0);
    let (rack, topic) = (rack.to_owned(), name.to_owned());
    Some(Short { rack, topic, partitions: short.count(), first, left: fewest, needed })
}

fn needed(facts: &Facts, topic: &str, planned: usize) -> usize {
    let settings = facts.settings.get(topic).and_then(|settings| settings.as_ref().ok());
    let min = settings.and_then(|settings| settings.get("min.insync.replicas"));
    min.and_then(|min| min.parse().ok()).unwrap_or(planned)
}

/// Whether any one rack can be lost now: all topics take records then. `None` = not known: a topic is missing or hidden.
pub fn survives(facts: &Facts, topics: usize, planned: usize) -> Option<bool> {
    let described = facts.topics.values().filter(|topic| topic.is_ok()).count();
    (described == topics)
        .then(|| racks(facts).len() > 1 && shorts(facts, Counted::InSync, planned).is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::kafka::tests::{cluster, without_broker};
    use super::*;

    fn lost(facts: &Facts, counted: Counted) -> Vec<(String, usize, usize)> {
        let shorts = shorts(facts, counted, 2);
        shorts.into_iter().map(|one| (one.rack, one.partitions, one.left)).collect()
    }

    #[test]
    fn a_copy_in_each_of_three_racks_survives_any() {
        let facts = cluster(&[&[1, 3, 5], &[2, 4, 6]]);
        assert_eq!(lost(&facts, Counted::Placed), []);
        assert_eq!(survives(&facts, 1, 2), Some(true));
        assert_eq!(survives(&facts, 2, 2), None, "a topic is missing");
    }

    #[test]
    fn two_copies_in_one_rack_are_lost_with_it() {
        let facts = cluster(&[&[1, 3, 5], &[1, 2, 3]]);
        assert_eq!(lost(&facts, Counted::Placed), [("dc1".to_owned(), 1, 1)]);
        assert_eq!(survives(&facts, 1, 2), Some(false));
    }

    #[test]
    fn a_broker_that_is_down_leaves_nothing_to_lose_where_it_had_a_copy() {
        let facts = without_broker(cluster(&[&[1, 3, 5], &[2, 4, 6]]), 5);
        assert_eq!(lost(&facts, Counted::Placed), [], "it is meant to come back");
        let now = lost(&facts, Counted::InSync);
        assert_eq!(now, [("dc1".to_owned(), 1, 1), ("dc2".to_owned(), 1, 1)]);
    }

    #[test]
    fn a_broker_without_a_rack_may_be_lost_with_any() {
        let mut facts = cluster(&[&[1, 3, 5]]);
        facts.brokers[4].rack = None;
        let short = lost(&facts, Counted::Placed);
        assert_eq!(
            short,
            [("dc1".to_owned(), 1, 1), ("dc2".to_owned(), 1, 1), ("dc3".to_owned(), 1, 2)][..2]
        );
    }

    #[test]
    fn one_rack_cannot_be_lost() {
        let mut facts = cluster(&[&[1, 3, 5]]);
        facts.brokers.iter_mut().for_each(|broker| broker.rack = Some("one".to_owned()));
        assert_eq!(survives(&facts, 1, 2), Some(false));
        facts.brokers.iter_mut().for_each(|broker| broker.rack = None);
        assert_eq!(survives(&facts, 1, 2), Some(false), "without racks nobody can tell");
    }
}
