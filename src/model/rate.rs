//! What handlers and collections are limited to.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Calls in a time: `100/s`, `30/m`, `1000/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
}

/// The text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no rate: write a whole number from 1 to 1000000 for a second, a minute or an hour, as in 100/s, 30/m or 1000/h"
)]
pub struct NoRate;

impl Rate {
    /// Most calls of one unit.
    const COUNT_MAX: u32 = 1_000_000;

    /// So many in an hour.
    pub fn an_hour(self) -> u64 {
        u64::from(self.count) * (3_600_000 / self.unit_ms())
    }

    /// How many in one of its units of time.
    pub fn count(self) -> u64 {
        u64::from(self.count)
    }

    /// Its unit of time, in milliseconds.
    pub fn unit_ms(self) -> u64 {
        match self.unit {
            Unit::Second => 1_000,
            Unit::Minute => 60_000,
            Unit::Hour => 3_600_000,
        }
    }
}

impl FromStr for Rate {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Rate, NoRate> {
        let (count, unit) = text.split_once('/').ok_or(NoRate)?;
        let unit = match unit {
            "s" => Unit::Second,
            "m" => Unit::Minute,
            "h" => Unit::Hour,
            _ => return Err(NoRate),
        };
        let is_plain = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse().ok().filter(|count| is_plain && (1..=Rate::COUNT_MAX).contains(count));
        Ok(Rate { count: count.ok_or(NoRate)?, unit })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Second => 's',
            Unit::Minute => 'm',
            Unit::Hour => 'h',
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// When the target of a handler is left alone: a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// After so many failures in a row, at least 1.
    pub failures: u32,
    /// For so long, in milliseconds.
    pub pause_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::{NoRate, Rate};

    #[test]
    fn a_rate_is_a_number_for_a_time() {
        for (text, an_hour) in [("100/s", 360_000), ("30/m", 1_800), ("1/h", 1), ("1000000/s", 3_600_000_000)]
        {
            let rate: Rate = text.parse().expect(text);
            assert_eq!((rate.an_hour(), rate.to_string().as_str()), (an_hour, text));
        }
        for text in
            ["", "100", "0/s", "-1/s", "1.5/s", "+1/s", "1/d", "1/", "/s", "1000001/s", "1 /s", "1/s/s"]
        {
            assert_eq!(text.parse::<Rate>(), Err(NoRate), "{text:?}");
        }
    }
}

/// Slots of a handler that only tasks of some priority may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// This priority and above.
    pub priority: u8,
    /// How many, less than the concurrency.
    pub slots: u32,
}

/// What a collection is limited to, over all handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionLimit {
    /// Calls at once on this instance; `None` = as many as its handlers allow.
    pub concurrency: Option<u32>,
    /// Calls that begin, over all instances.
    pub rate: Option<Rate>,
    /// Its part of the slots of a handler when there are not enough, against others'; tasks of no such collection have 1
    /// together.
    pub weight: u32,
    /// Schedule events that are taken in, over all shards.
    pub intake: Option<Rate>,
}

/// The limits of collections: of those named, and of each other one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionLimits {
    /// By name.
    pub by_name: BTreeMap<Arc<str>, CollectionLimit>,
    /// Of each that is not named, on its own.
    pub each_other: Option<CollectionLimit>,
}

impl CollectionLimits {
    /// Those of a collection.
    pub fn of(&self, name: &str) -> Option<CollectionLimit> {
        self.by_name.get(name).copied().or(self.each_other)
    }

    /// All that there are.
    pub fn all(&self) -> impl Iterator<Item = &CollectionLimit> {
        self.by_name.values().chain(&self.each_other)
    }
}
