//! Owner rows: compare-and-set by a majority, with proposals that were accepted and not answered. A later operation that
//! meets one of those who accepted finishes it first; one that meets none of them makes it void.

use std::collections::BTreeMap;

use dueline::model::{Epoch, OwnerRow, OwnerUuid, Release, Shard};

use super::cell::{Cell, Mask};

/// A compare-and-set of an owner row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Bump { expected: Epoch, owner: OwnerUuid, lease_ms: u64, wait_ms: u64 },
    Release(Release),
}

/// How far a change gets before its answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Committed on these.
    Committed(Mask),
    /// Accepted by these, and never committed by who asked.
    Accepted(Mask),
}

#[derive(Debug, Default)]
struct Register {
    row: Cell<OwnerRow>,
    accepted: Option<(Mask, Change)>,
    ballot: u64,
}

/// The owner rows of all shards.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    registers: BTreeMap<Shard, Register>,
}

impl Change {
    /// The row after this change; `None` when its condition does not hold.
    fn of(self, row: &OwnerRow) -> Option<OwnerRow> {
        match self {
            Change::Bump { expected, owner, lease_ms, wait_ms } => (row.epoch == expected)
                .then(|| OwnerRow { epoch: Epoch(expected.0 + 1), owner, lease_ms, wait_ms, ..row.clone() }),
            Change::Release(Release { released, epoch, owner, wait_ms }) => (row.epoch == epoch
                && row.owner == owner)
                .then(|| OwnerRow { released_epoch: released, wait_ms, ..row.clone() }),
        }
    }
}

impl Register {
    fn value(&self, from: Mask) -> OwnerRow {
        self.row.read(from).map(|(row, _)| row.clone()).unwrap_or_default()
    }

    fn commit(&mut self, change: Change, from: Mask, to: Mask) -> Option<OwnerRow> {
        let row = change.of(&self.value(from))?;
        self.ballot += 1;
        self.row.put(self.ballot, row.clone(), to);
        Some(row)
    }

    /// What every operation does first: finish what it meets half done. True when there was something.
    fn prepare(&mut self, met: Mask) -> Option<OwnerRow> {
        let (acceptors, change) = self.accepted.take()?;
        if acceptors & met == 0 {
            return None;
        }
        self.commit(change, met | acceptors, met)
    }
}

impl Owners {
    /// A linearizable read by these replicas, and the row of a change that it finished.
    pub(crate) fn read(&mut self, shard: Shard, met: Mask) -> (OwnerRow, Option<OwnerRow>) {
        let register = self.registers.entry(shard).or_default();
        let finished = register.prepare(met);
        register.row.spread(met, met);
        (register.value(met), finished)
    }

    /// What a plain read by these replicas shows: the newest row that is committed on one of them.
    pub(crate) fn look(&self, shard: Shard, asked: Mask) -> OwnerRow {
        self.registers.get(&shard).map(|register| register.value(asked)).unwrap_or_default()
    }

    /// A compare-and-set by these replicas: the new row if it applied, and the row of a change that it finished.
    pub(crate) fn change(
        &mut self,
        shard: Shard,
        met: Mask,
        change: Change,
        reach: Reach,
    ) -> (Option<OwnerRow>, Option<OwnerRow>) {
        let register = self.registers.entry(shard).or_default();
        let finished = register.prepare(met);
        let applied = match reach {
            Reach::Committed(to) => register.commit(change, met, to | met),
            Reach::Accepted(by) => {
                if change.of(&register.value(met)).is_some() {
                    register.accepted = Some((by, change));
                }
                None
            }
        };
        (applied, finished)
    }

    pub(crate) fn wipe(&mut self, replica: usize) {
        for register in self.registers.values_mut() {
            register.row.wipe(replica);
            if let Some((acceptors, _)) = &mut register.accepted {
                *acceptors &= !(1 << replica);
            }
        }
    }

    /// Repair finishes what is half done, and gives a replica the newest rows.
    pub(crate) fn repair(&mut self, from: Mask, to: Mask) -> Vec<(Shard, OwnerRow)> {
        let mut finished = Vec::new();
        for (shard, register) in &mut self.registers {
            finished.extend(register.prepare(from).map(|row| (*shard, row)));
            register.row.spread(from, to);
        }
        finished
    }
}
