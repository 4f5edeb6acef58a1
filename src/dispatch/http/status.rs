//! Which HTTP status means which outcome, per handler.

use std::fmt;
use std::str::FromStr;

/// A status or a class of them: `429` or `5xx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

/// A text that is no status an outcome can be chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatusRangeError {
    /// Not a status at all.
    #[error("is not a status; write one like \"429\" or a class like \"5xx\"")]
    Malformed,
    /// Informational, or a redirect, which always is fatal.
    #[error("must lie in 200 to 299 or 400 to 599: redirects are never followed and always fatal")]
    Fixed,
}

impl StatusRange {
    /// A class: `of_class(5)` is 500 to 599.
    const fn of_class(class: u16) -> StatusRange {
        StatusRange { first: class * 100, last: class * 100 + 99 }
    }

    const fn of(status: u16) -> StatusRange {
        StatusRange { first: status, last: status }
    }

    fn holds(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }

    /// Whether some status lies in both.
    pub fn overlaps(self, other: StatusRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl FromStr for StatusRange {
    type Err = StatusRangeError;

    fn from_str(text: &str) -> Result<StatusRange, StatusRangeError> {
        let digits = text.strip_suffix("xx").unwrap_or(text);
        if digits.len() + if digits == text { 0 } else { 2 } != 3
            || !digits.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(StatusRangeError::Malformed);
        }
        let number: u16 = digits.parse().map_err(|_| StatusRangeError::Malformed)?;
        let range = if digits == text { StatusRange::of(number) } else { StatusRange::of_class(number) };
        match range.first / 100 {
            2 | 4 | 5 => Ok(range),
            1 | 3 => Err(StatusRangeError::Fixed),
            _ => Err(StatusRangeError::Malformed),
        }
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}xx", self.first / 100)
        }
    }
}

/// Which statuses are a success and which are worth another attempt; all others are fatal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRules {
    /// Succeeded, or snoozed with its header.
    pub succeeded: Vec<StatusRange>,
    /// Retryable.
    pub retryable: Vec<StatusRange>,
}

/// What a status means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Succeeded,
    Retryable,
    Redirect,
    Fatal,
}

impl Default for StatusRules {
    /// 2xx; 408, 425, 429, 5xx.
    fn default() -> Self {
        StatusRules {
            succeeded: vec![StatusRange::of_class(2)],
            retryable: vec![
                StatusRange::of(408),
                StatusRange::of(425),
                StatusRange::of(429),
                StatusRange::of_class(5),
            ],
        }
    }
}

impl StatusRules {
    pub(super) fn meaning(&self, status: u16) -> Meaning {
        let any = |ranges: &[StatusRange]| ranges.iter().any(|range| range.holds(status));
        if (300..400).contains(&status) {
            Meaning::Redirect
        } else if any(&self.succeeded) {
            Meaning::Succeeded
        } else if any(&self.retryable) {
            Meaning::Retryable
        } else {
            Meaning::Fatal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Meaning, StatusRange, StatusRangeError, StatusRules};

    #[test]
    fn each_status_has_one_meaning_by_default() {
        let rules = StatusRules::default();
        for status in 100..600 {
            let wanted = match status {
                200..300 => Meaning::Succeeded,
                300..400 => Meaning::Redirect,
                408 | 425 | 429 | 500..600 => Meaning::Retryable,
                _ => Meaning::Fatal,
            };
            assert_eq!(rules.meaning(status), wanted, "{status}");
        }
    }

    #[test]
    fn ranges_read_back_and_nonsense_is_refused() {
        for text in ["200", "429", "5xx", "4xx"] {
            assert_eq!(text.parse::<StatusRange>().map(|range| range.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "5", "5x", "55xx", "xxx", "0xx", "6xx", "999", "+20", "2000", "xx"] {
            assert_eq!(text.parse::<StatusRange>(), Err(StatusRangeError::Malformed), "{text}");
        }
        for text in ["302", "3xx", "100"] {
            assert_eq!(text.parse::<StatusRange>(), Err(StatusRangeError::Fixed), "{text}");
        }
    }
}
