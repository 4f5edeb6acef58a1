//! How many copies of a row are left, at least, when nodes are lost: over every set of nodes that has the copies of some
//! rows, as the ring has them. No guess from factors: which nodes share rows depends on tokens and racks.

use std::collections::BTreeSet;

use crate::store::cassandra::facts::{Copies, Node};

/// The data centres that have copies.
pub fn dcs(copies: &Copies) -> BTreeSet<&str> {
    let with_copies = copies.sets.iter().flatten().filter_map(|node| copies.nodes.get(*node));
    with_copies.map(|node| node.dc.as_str()).collect()
}

/// Copies left of the row that has the fewest, on nodes that stay. `None` when there are no rows to be had.
pub fn fewest(copies: &Copies, stays: impl Fn(&Node) -> bool) -> Option<usize> {
    let left =
        |set: &Vec<usize>| set.iter().filter(|node| copies.nodes.get(**node).is_some_and(&stays)).count();
    copies.sets.iter().map(left).min()
}

/// Whether any one data centre can be lost now, with the nodes that are up. `None` = not known.
pub fn survives(copies: &Copies) -> Option<bool> {
    let dcs = dcs(copies);
    (!dcs.is_empty()).then(|| {
        let left = |dc| fewest(copies, |node| node.is_up && node.dc != dc);
        dcs.iter().all(|dc| left(*dc).is_some_and(|left| left >= copies.quorum))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Nodes of data centres, in the order given, all up; every row has copies on all sets of the right size.
    pub(in crate::doctor) fn copies(nodes: &[(&str, usize)], factors: &[(&str, usize)]) -> Copies {
        let mut all = Vec::new();
        for (dc, count) in nodes {
            for number in 1..=*count {
                let address = format!("{dc}-{number}:9042");
                all.push(Node { address, dc: (*dc).to_owned(), is_up: true });
            }
        }
        let mut sets = BTreeSet::from([Vec::new()]);
        for (dc, factor) in factors {
            let of: Vec<usize> = (0..all.len()).filter(|n| all[*n].dc == *dc).collect();
            let choices = chosen(&of, (*factor).min(of.len()));
            sets = sets
                .iter()
                .flat_map(|set| choices.iter().map(move |one| [set.clone(), one.clone()].concat()))
                .collect();
        }
        let quorum = factors.iter().map(|(_, factor)| factor).sum::<usize>() / 2 + 1;
        Copies { nodes: all, quorum, sets }
    }

    fn chosen(of: &[usize], count: usize) -> Vec<Vec<usize>> {
        match (count, of) {
            (0, _) => vec![Vec::new()],
            (_, []) => Vec::new(),
            (_, [first, rest @ ..]) => {
                let with = chosen(rest, count - 1).into_iter().map(|one| [vec![*first], one].concat());
                with.chain(chosen(rest, count)).collect()
            }
        }
    }

    fn down(mut copies: Copies, nodes: &[&str]) -> Copies {
        for node in &mut copies.nodes {
            node.is_up = !nodes.iter().any(|name| node.address.starts_with(name));
        }
        copies
    }

    fn check(copies: &Copies, now: usize, survives_loss: bool) {
        assert_eq!(fewest(copies, |node| node.is_up), Some(now), "{copies:?}");
        assert_eq!(survives(copies), Some(survives_loss), "{copies:?}");
    }

    #[test]
    fn what_is_left_is_counted_on_the_sets_that_are() {
        let spread = [("dc1", 2), ("dc2", 2), ("dc3", 1)];
        let whole = || copies(&spread, &spread);
        check(&whole(), 5, true);
        check(&down(whole(), &["dc1-1"]), 4, false);
        check(&down(whole(), &["dc3-1"]), 4, false);
        check(&down(whole(), &["dc1-1", "dc2-1"]), 3, false);
        check(&down(whole(), &["dc1"]), 3, false);
        check(&down(whole(), &["dc1", "dc3"]), 2, false);
        // Fewer nodes than copies, and copies in one place.
        check(&copies(&spread, &[("dc1", 3), ("dc2", 1), ("dc3", 1)]), 4, false);
        check(&copies(&[("dc1", 3)], &[("dc1", 3)]), 3, false);
    }

    #[test]
    fn a_node_that_is_down_costs_only_the_rows_it_has() {
        let many = copies(&[("dc1", 4), ("dc2", 4), ("dc3", 4)], &[("dc1", 3), ("dc2", 3), ("dc3", 3)]);
        check(&many, 9, true);
        check(&down(many.clone(), &["dc1-1"]), 8, true);
        check(&down(many, &["dc1-1", "dc1-2"]), 7, false);
    }

    #[test]
    fn without_rows_nothing_is_known() {
        assert_eq!(survives(&Copies::default()), None);
        assert_eq!(fewest(&Copies::default(), |_| true), None);
    }
}
