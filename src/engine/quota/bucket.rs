//! How often calls may begin, and when none may: token buckets and breakers.

use crate::model::{Boot, BreakerPolicy, Rate};

use super::Holdup;

/// Units of a token bucket that one call takes for each shard there is: a rate of one an hour gives one unit a millisecond and
/// shard owned, so that nothing is rounded.
const CALL_UNITS: u64 = 3_600_000;
/// What was not used within this time is not made up for, in milliseconds.
const BURST_MS: u64 = 100;

/// Shards owned here, and all of them: the part of each limit that this instance has.
pub(super) type Share = (u64, u64);

/// The part of so many slots over all instances: rounded up, and one at least, so that none stands still. All parts together are
/// less than one slot for each instance above the whole.
pub(super) fn part_of(slots: u32, (owned, all): Share) -> u32 {
    let part = (u64::from(slots) * owned).div_ceil(all);
    u32::try_from(part).unwrap_or(slots).max(1)
}

/// The part of so many slots that are kept: rounded down, so that it is less than the part of the slots they are kept of.
pub(super) fn part_kept(slots: u32, (owned, all): Share) -> u32 {
    u32::try_from(u64::from(slots) * owned / all).unwrap_or(slots)
}

/// A token bucket of whole numbers.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    units: u64,
    filled_at: Boot,
}

impl Bucket {
    /// It has one call to begin with.
    pub(super) fn new(now: Boot, (_, all): Share) -> Bucket {
        Bucket { units: CALL_UNITS * all, filled_at: now }
    }

    pub(super) fn fill(&mut self, now: Boot, rate: Option<Rate>, (owned, all): Share) {
        let Some(rate) = rate else { return };
        let passed = now.ms_since(self.filled_at);
        let a_ms = rate.an_hour().saturating_mul(owned);
        let most = a_ms.saturating_mul(BURST_MS).max(CALL_UNITS * all);
        self.units = self.units.saturating_add(a_ms.saturating_mul(passed)).min(most);
        self.filled_at = self.filled_at.max(now);
    }

    /// Takes a call out that [`Bucket::next`] allows.
    pub(super) fn take(&mut self, now: Boot, rate: Option<Rate>, share: Share) {
        if rate.is_some() {
            self.fill(now, rate, share);
            self.units = self.units.checked_sub(CALL_UNITS * share.1).expect("only what is there is taken");
        }
    }

    pub(super) fn put_back(&mut self, now: Boot, rate: Option<Rate>, share: Share, calls: u32) {
        self.units = self.units.saturating_add(CALL_UNITS * share.1 * u64::from(calls));
        self.fill(now, rate, share);
    }

    /// When the next call may begin, unless it may now; the inner `None` = never, with this share.
    pub(super) fn next(&self, now: Boot, rate: Rate, (owned, all): Share) -> Option<Option<Boot>> {
        let missing = (CALL_UNITS * all).saturating_sub(self.units);
        let a_ms = rate.an_hour().saturating_mul(owned);
        if missing > 0 && a_ms == 0 {
            return Some(None);
        }
        let at = if missing == 0 { self.filled_at } else { self.filled_at.plus_ms(missing.div_ceil(a_ms)) };
        (at > now).then_some(Some(at))
    }
}

/// Counts failures in a row; when there are too many it opens: nothing is granted for a while, then one slot at a time until
/// a call did not fail.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    pub(super) failures: u32,
    open_until: Option<Boot>,
    /// When a call was let through to see how the target is.
    probe_at: Option<Boot>,
}

impl Breaker {
    pub(super) fn ended(&mut self, now: Boot, policy: BreakerPolicy, is_well: bool) {
        if is_well {
            *self = Breaker::default();
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures >= policy.failures {
            self.open_until = Some(now.plus_ms(policy.pause_ms));
            self.probe_at = None;
        }
    }

    pub(super) fn holdup(&self, now: Boot, policy: BreakerPolicy) -> Option<Holdup> {
        let open_until = self.open_until.filter(|_| !planted!(BreakerIgnored))?;
        if now < open_until {
            return Some(Holdup::Breaker(open_until));
        }
        // A slot may come back unused: then nothing is heard of the target, and another is let through.
        let is_out = |at: Boot| now < at.plus_ms(policy.pause_ms) || planted!(ProbeAwaitedForEver);
        let is_out = self.probe_at.is_some_and(is_out);
        is_out.then_some(Holdup::Probe)
    }

    /// When another call is let through although nothing was heard of the last.
    pub(super) fn next_probe(&self, policy: BreakerPolicy) -> Option<Boot> {
        Some(self.probe_at?.plus_ms(policy.pause_ms))
    }

    pub(super) fn let_through(&mut self, now: Boot) {
        if self.open_until.is_some() && !planted!(ProbesTogether) {
            self.probe_at = Some(now);
        }
    }

    /// The call that was to show how the target is does not come.
    pub(super) fn probe_withdrawn(&mut self) {
        self.probe_at = None;
    }
}
