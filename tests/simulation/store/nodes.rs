//! The nodes of the store: which are up, which serve, which data centres hear each other, and how far their clocks are
//! off.

use super::cell::{ALL, Mask, QUORUM, REPLICAS, dc_of, replicas_of};
use dueline::planted;
use dueline::testing::rng::Rng;

/// Data centres.
pub(crate) const DCS: usize = 3;

/// The nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    up: Mask,
    /// Lost their disk and are not repaired yet: they take writes and answer no reads.
    joining: Mask,
    /// `cut[a][b]`: nothing gets from data centre a to b.
    cut: [[bool; DCS]; DCS],
    /// By how much the clock of each is off, in microseconds.
    skew_us: [i64; REPLICAS],
}

/// What a coordinator reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    /// Replicas that a request gets to.
    pub(crate) asked: Mask,
    /// Those of them whose answer comes back.
    pub(crate) heard: Mask,
    /// The clock of the coordinator, in microseconds after the simulation's own.
    pub(crate) skew_us: i64,
    pub(crate) dc: usize,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes { up: ALL, joining: 0, cut: [[false; DCS]; DCS], skew_us: [0; REPLICAS] }
    }
}

impl Nodes {
    pub(crate) fn skew(&mut self, rng: &mut Rng, ms_max: u64) {
        for skew in &mut self.skew_us {
            *skew = (rng.below(2 * ms_max + 1) as i64 - ms_max as i64) * 1_000;
        }
    }

    /// What a request of a client in `dc` reaches: by a node of its own data centre, or of another when none is up.
    pub(crate) fn reach(&self, dc: usize, rng: &mut Rng) -> Option<Reached> {
        let from_there = |other: usize| !self.cut[dc][other] && !self.cut[other][dc];
        let dcs = (0..DCS).map(|step| (dc + step) % DCS);
        let via = dcs.into_iter().find(|via| self.up & replicas_of(*via) != 0 && from_there(*via))?;
        let nodes: Vec<usize> = super::cell::bits(self.up & replicas_of(via)).collect();
        let coordinator = nodes[rng.index(nodes.len())];
        let gets_to = |from: usize, to: usize| from == to || !self.cut[from][to];
        let (mut asked, mut heard) = (0, 0);
        for replica in super::cell::bits(self.up) {
            if gets_to(via, dc_of(replica)) {
                asked |= 1 << replica;
                if gets_to(dc_of(replica), via) {
                    heard |= 1 << replica;
                }
            }
        }
        Some(Reached { asked, heard, skew_us: self.skew_us[coordinator], dc: via })
    }

    /// A majority out of those that may answer reads; `None` when there is none.
    pub(crate) fn quorum(&self, heard: Mask, rng: &mut Rng) -> Option<Mask> {
        let mut may = heard & !self.joining;
        if may.count_ones() < QUORUM {
            return None;
        }
        let enough = if planted!(ReadOne) { 1 } else { QUORUM };
        while may.count_ones() > enough {
            let drop = rng.index(REPLICAS);
            may &= !(1 << drop);
        }
        Some(may)
    }

    pub(crate) fn is_up(&self, replica: usize) -> bool {
        self.up & 1 << replica != 0
    }

    pub(crate) fn up(&self) -> Mask {
        self.up
    }

    pub(crate) fn serving(&self) -> Mask {
        self.up & !self.joining
    }

    pub(crate) fn stop(&mut self, mask: Mask) {
        self.up &= !mask;
    }

    pub(crate) fn start(&mut self, mask: Mask) {
        self.up |= mask;
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.cut[from][to] = true;
    }

    pub(crate) fn join(&mut self) {
        self.cut = [[false; DCS]; DCS];
    }

    /// Whether a replica may lose its disk with all that was acknowledged still on a quorum of the others.
    pub(crate) fn may_lose(&self, replica: usize) -> bool {
        self.joining == 0 && self.up == ALL && replica < REPLICAS
    }

    pub(crate) fn wiped(&mut self, replica: usize) {
        self.joining |= 1 << replica;
    }

    pub(crate) fn repaired(&mut self, replica: usize) {
        self.joining &= !(1 << replica);
    }

    pub(crate) fn joining(&self) -> Mask {
        self.joining
    }
}
