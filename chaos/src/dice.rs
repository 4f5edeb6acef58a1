//! The one source of chance: splitmix64 (Steele and others 2014), so that a seed means the same everywhere.

/// A small generator.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The dice of a seed; each `stream` of it is independent of the others.
    pub(crate) fn new(seed: u64, stream: u64) -> Dice {
        let mut mixed = Dice(seed ^ stream.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9);
        mixed.next();
        mixed
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `from` to before `to`.
    pub(crate) fn range(&mut self, from: i64, to: i64) -> i64 {
        from + (self.next() % to.saturating_sub(from).max(1).unsigned_abs()) as i64
    }

    /// True in `per_mille` of a thousand cases.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1_000 < per_mille
    }

    /// An index below `len`.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        (self.next() % len.max(1) as u64) as usize
    }

    /// Another order of the same.
    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.index(last + 1));
        }
    }
}
