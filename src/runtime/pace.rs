//! When a shard reads on in its log, beside its calls.
//!
//! Whatever waits in memory is read from afar at each of its steps, so a shard that takes in faster than it runs gets slower by it.
//! While calls end fast and heads wait for slots, records are read when no call is under way; what is behind them waits in the log.
//! Where all calls take long, or nothing waits, nothing gives way; and a fetch, of 512 records at most, gives way for [`SPAN_MS`] at most.

use crate::model::Boot;

/// Longest time for which a fetch gives way, and over which ends are counted, in milliseconds.
const SPAN_MS: u64 = 50;
/// Calls that end within a span where they end fast.
const ENDS_MIN: u32 = 200;

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The span that is counted now, the calls that ended in it, and in the one before.
    span: u64,
    in_span: u32,
    in_last: u32,
    /// Until when the fetch under way gives way, once it did.
    until: Option<Boot>,
}

impl Pace {
    /// A call has ended.
    pub(super) fn ended(&mut self, now: Boot) {
        let span = now.0 / SPAN_MS;
        if span != self.span {
            self.in_last = if span == self.span + 1 { self.in_span } else { 0 };
            (self.span, self.in_span) = (span, 0);
        }
        self.in_span += 1;
    }

    /// The fetch under way is another, or none.
    pub(super) fn forget_fetch(&mut self) {
        self.until = None;
    }

    /// Until when a fetch under way gives way to calls under way; `None` = it does not.
    pub(super) fn gives_way_until(&mut self, now: Boot) -> Option<Boot> {
        if self.ended_lately(now) < ENDS_MIN {
            return None;
        }
        let until = *self.until.get_or_insert(now.plus_ms(SPAN_MS));
        (now < until).then_some(until)
    }

    /// Calls that ended in the span before this one.
    fn ended_lately(&self, now: Boot) -> u32 {
        match (now.0 / SPAN_MS).checked_sub(self.span) {
            Some(0) => self.in_last,
            Some(1) => self.in_span,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ENDS_MIN, Pace, SPAN_MS};
    use crate::model::Boot;

    /// The beginning of a span, and a shard in which so many calls ended in the one before.
    fn shard(ended: u32) -> (Boot, Pace) {
        let mut pace = Pace::default();
        (0..ended).for_each(|_| pace.ended(Boot(11 * SPAN_MS - 1)));
        (Boot(11 * SPAN_MS), pace)
    }

    #[test]
    fn a_fetch_gives_way_to_calls_that_end_fast_for_a_span_and_no_longer() {
        let (now, mut pace) = shard(ENDS_MIN);
        let until = now.plus_ms(SPAN_MS);
        assert_eq!(pace.gives_way_until(now), Some(until));
        (0..ENDS_MIN).for_each(|_| pace.ended(now));
        assert_eq!(pace.gives_way_until(Boot(until.0 - 1)), Some(until));
        assert_eq!(pace.gives_way_until(until), None);
        assert_eq!(pace.gives_way_until(until.plus_ms(SPAN_MS - 1)), None, "it is the same fetch");
        (0..ENDS_MIN).for_each(|_| pace.ended(until));
        pace.forget_fetch();
        assert_eq!(pace.gives_way_until(until), Some(until.plus_ms(SPAN_MS)), "the next one");
    }

    #[test]
    fn a_fetch_gives_no_way_to_calls_that_take_long() {
        let (now, mut pace) = shard(ENDS_MIN - 1);
        assert_eq!(pace.gives_way_until(now), None);
        let (now, mut pace) = shard(ENDS_MIN);
        let later = now.plus_ms(SPAN_MS);
        assert_eq!(pace.gives_way_until(later), None, "none ended in the span before");
        pace.ended(later);
        assert_eq!(pace.gives_way_until(later), None);
        assert_eq!(Pace::default().gives_way_until(Boot(0)), None);
    }
}
