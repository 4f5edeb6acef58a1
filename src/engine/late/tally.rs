//! How many task rows lie above the watermark, by second of ready time: what a takeover would read.

use std::collections::BTreeMap;

use crate::model::Wall;

const SLOT_MS: i64 = 1_000;

/// Counts of task rows by second.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tally {
    slots: BTreeMap<i64, usize>,
}

impl Tally {
    /// Notes a task row. One that is read twice counts twice: too many is safe.
    pub(in crate::engine) fn note(&mut self, ready_at: Wall) {
        *self.slots.entry(ready_at.0.div_euclid(SLOT_MS)).or_insert(0) += 1;
    }

    /// The watermark passed.
    pub(in crate::engine) fn forget_to(&mut self, watermark: Wall) {
        let first = watermark.0.saturating_add(1).div_euclid(SLOT_MS);
        self.slots = self.slots.split_off(&first);
    }

    /// When more than `max` rows lie before `now`: the time up to which the watermark has to come so that no more than
    /// half of them do.
    pub(in crate::engine) fn excess(&self, now: Wall, max: usize) -> Option<Wall> {
        let past = ..now.0.div_euclid(SLOT_MS);
        if self.slots.range(past).map(|(_, count)| count).sum::<usize>() <= max {
            return None;
        }
        let mut rows = 0;
        let slot = self.slots.range(past).rev().find(|(_, count)| {
            rows += **count;
            rows > max / 2
        });
        slot.map(|(slot, _)| Wall((slot + 1) * SLOT_MS - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;
    use crate::model::Wall;

    #[test]
    fn the_watermark_is_to_pass_all_but_half_of_the_rows_allowed() {
        let mut tally = Tally::default();
        for second in 0..30 {
            tally.note(Wall(second * 1_000 + 7));
        }
        assert_eq!(tally.excess(Wall(20_500), 20), None);
        assert_eq!(tally.excess(Wall(30_500), 20), Some(Wall(19_999)), "ten rows lie after it");
        tally.forget_to(Wall(19_999));
        assert_eq!(tally.excess(Wall(30_500), 9), Some(Wall(25_999)));
    }
}
