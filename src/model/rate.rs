//! How often calls of a handler may begin, and when its target is left alone.

use std::fmt;
use std::str::FromStr;

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
        let times = match self.unit {
            Unit::Second => 3_600,
            Unit::Minute => 60,
            Unit::Hour => 1,
        };
        u64::from(self.count) * times
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
