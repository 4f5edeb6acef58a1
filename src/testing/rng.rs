//! The one source of chance of simulation and chaos: splitmix64 (Steele and others 2014), so that a seed means the same on
//! every machine.

/// A small generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9)
    }

    /// One of the generators of a seed; each `stream` is independent of the others.
    pub fn of_stream(seed: u64, stream: u64) -> Rng {
        let mut mixed = Rng(seed ^ Rng::new(stream).0);
        mixed.draw();
        mixed
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end` (at least 1).
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// A number from `from` to before `to`.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from))
    }

    /// As [`Rng::range`], for times and lengths.
    pub fn range_ms(&mut self, from: i64, to: i64) -> i64 {
        from + self.below(to.saturating_sub(from).max(0).unsigned_abs()) as i64
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Another order of the same.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.index(last + 1));
        }
    }
}
