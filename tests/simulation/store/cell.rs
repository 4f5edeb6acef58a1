//! One cell on five replicas: its values by write time, and which replicas have each. Of two values a replica keeps the
//! one with the higher time (last write wins).

/// Replicas of every partition: data centres of two, two and one.
pub(crate) const REPLICAS: usize = 5;
/// A majority of them.
pub(crate) const QUORUM: u32 = 3;
/// Replicas as bits.
pub(crate) type Mask = u8;
pub(crate) const ALL: Mask = 0b1_1111;

/// The data centre of a replica.
pub(crate) fn dc_of(replica: usize) -> usize {
    replica / 2
}

/// The replicas of a data centre.
pub(crate) fn replicas_of(dc: usize) -> Mask {
    [0b0_0011, 0b0_1100, 0b1_0000][dc]
}

pub(crate) fn bits(mask: Mask) -> impl Iterator<Item = usize> {
    (0..REPLICAS).filter(move |replica| mask & 1 << replica != 0)
}

#[derive(Debug)]
struct Value<V> {
    stamp: u64,
    value: V,
    on: Mask,
}

/// The values of one cell.
#[derive(Debug)]
pub(crate) struct Cell<V> {
    values: Vec<Value<V>>,
}

impl<V> Default for Cell<V> {
    fn default() -> Self {
        Cell { values: Vec::new() }
    }
}

/// What a write changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    /// No replica had it before.
    pub(crate) new: bool,
    /// It is the newest on a quorum now, and was not before.
    pub(crate) durable: bool,
    /// Another value was there.
    pub(crate) other: bool,
}

impl<V: PartialEq> Cell<V> {
    /// Writes a value on replicas.
    pub(crate) fn put(&mut self, stamp: u64, value: V, on: Mask) -> Landed {
        let other = self.values.iter().any(|known| known.value != value);
        let newer: Mask = self.values.iter().filter(|v| v.stamp > stamp).fold(0, |mask, v| mask | v.on);
        let index = match self.values.iter().position(|known| known.value == value) {
            Some(index) => index,
            None => {
                self.values.push(Value { stamp, value, on: 0 });
                self.values.len() - 1
            }
        };
        let known = &mut self.values[index];
        let before = known.on;
        known.stamp = known.stamp.max(stamp);
        known.on |= on & !newer;
        let durable = before.count_ones() < QUORUM && known.on.count_ones() >= QUORUM;
        let landed = Landed { new: before == 0 && on != 0, durable, other };
        if other {
            self.settle();
        }
        landed
    }

    /// Replicas that have a newer value do not keep an older one.
    fn settle(&mut self) {
        self.values.sort_by_key(|value| value.stamp);
        let mut newer = 0;
        for value in self.values.iter_mut().rev() {
            value.on &= !newer;
            newer |= value.on;
        }
        self.values.retain(|value| value.on != 0);
    }

    /// The newest value that any of these replicas has, and whether all of them have it.
    pub(crate) fn read(&self, from: Mask) -> Option<(&V, bool)> {
        let newest = self.values.iter().filter(|value| value.on & from != 0).max_by_key(|v| v.stamp)?;
        Some((&newest.value, newest.on & from == from))
    }

    /// The newest value that any of these replicas has, and its write time.
    pub(crate) fn read_with_time(&self, from: Mask) -> Option<(u64, &V)> {
        let newest = self.values.iter().filter(|value| value.on & from != 0).max_by_key(|v| v.stamp)?;
        Some((newest.stamp, &newest.value))
    }

    /// Gives the newest value of `from` to `to`. True when it is on a quorum by that and was not before.
    pub(crate) fn spread(&mut self, from: Mask, to: Mask) -> bool {
        let newest = self.values.iter_mut().filter(|value| value.on & from != 0).max_by_key(|v| v.stamp);
        let Some(newest) = newest else { return false };
        let before = newest.on;
        newest.on |= to;
        let durable = before.count_ones() < QUORUM && newest.on.count_ones() >= QUORUM;
        if self.values.len() > 1 {
            self.settle();
        }
        durable
    }

    /// A replica loses everything.
    pub(crate) fn wipe(&mut self, replica: usize) {
        self.values.iter_mut().for_each(|value| value.on &= !(1 << replica));
        self.values.retain(|value| value.on != 0);
    }
}
