//! Durations as text, as users write them: `10s`, `1h30m`, `500ms`, `30d`, or ISO 8601 `PT10M`, `P1DT2H`.
//!
//! Whole numbers only, units falling, each at most once; a bare number has no unit and is refused. Months and years
//! are refused, as they have no fixed length.

use std::fmt;

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// Nothing was written.
    Empty,
    /// A number without a unit, a unit without a number, an unknown unit, or units in the wrong order.
    Malformed,
    /// More milliseconds than 2^53.
    TooLong,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DurationError::Empty => "is empty; write a duration like \"10s\"",
            DurationError::Malformed => {
                "is not a duration; write one like \"500ms\", \"10s\", \"1h30m\" or \"PT10M\""
            }
            DurationError::TooLong => "is too long a duration",
        })
    }
}

impl std::error::Error for DurationError {}

const MS_MAX: u64 = 1 << 53;
const PLAIN: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const ISO_DATE: [(&str, u64); 2] = [("W", 604_800_000), ("D", 86_400_000)];
const ISO_TIME: [(&str, u64); 3] = [("H", 3_600_000), ("M", 60_000), ("S", 1_000)];

/// Milliseconds of a duration text.
///
/// # Errors
/// Says which rule the text breaks.
pub fn parse_ms(text: &str) -> Result<u64, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    let Some(iso) = text.strip_prefix('P') else {
        return sum(text, &PLAIN);
    };
    match iso.split_once('T') {
        None => sum(iso, &ISO_DATE),
        Some(("", time)) => sum(time, &ISO_TIME),
        Some((date, time)) => within(sum(date, &ISO_DATE)? + sum(time, &ISO_TIME)?),
    }
}

fn sum(text: &str, units: &[(&str, u64)]) -> Result<u64, DurationError> {
    let mut rest = text;
    let mut units = units;
    let mut total = 0_u64;
    if rest.is_empty() {
        return Err(DurationError::Malformed);
    }
    while !rest.is_empty() {
        let (number, tail) = split(rest, |c| c.is_ascii_digit());
        let (unit, tail) = split(tail, |c| !c.is_ascii_digit());
        let at = units.iter().position(|known| known.0 == unit).ok_or(DurationError::Malformed)?;
        if number.is_empty() {
            return Err(DurationError::Malformed);
        }
        let number: u64 = number.parse().map_err(|_| DurationError::TooLong)?;
        let ms = number.checked_mul(units[at].1).ok_or(DurationError::TooLong)?;
        total = within(total.checked_add(ms).ok_or(DurationError::TooLong)?)?;
        units = &units[at + 1..];
        rest = tail;
    }
    Ok(total)
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn within(ms: u64) -> Result<u64, DurationError> {
    if ms > MS_MAX { Err(DurationError::TooLong) } else { Ok(ms) }
}

/// The shortest plain text of a duration: `90000` is `1m30s`, `0` is `0s`.
pub fn text_of_ms(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut rest = ms;
    let mut text = String::new();
    for (unit, unit_ms) in PLAIN.into_iter().skip(1) {
        if rest >= unit_ms {
            text.push_str(&format!("{}{unit}", rest / unit_ms));
            rest %= unit_ms;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{DurationError, parse_ms, text_of_ms};

    #[test]
    fn durations_are_read_in_both_notations() {
        let known = [
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("1h30m", 5_400_000),
            ("1m1ms", 60_001),
            ("30d", 2_592_000_000),
            ("2w", 1_209_600_000),
            ("PT10M", 600_000),
            ("P1DT2H", 93_600_000),
            ("P3D", 259_200_000),
        ];
        for (text, ms) in known {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in [
            "10", "s", "-1s", "1.5s", "10 s", "1s1m", "1s1s", "P", "PT", "P1M", "PT1D", "1y", "ten", "10S",
            "1ſ",
        ] {
            assert_eq!(parse_ms(text), Err(DurationError::Malformed), "{text}");
        }
        assert_eq!(parse_ms(""), Err(DurationError::Empty));
        for text in ["99999999999999999999s", "9007199254740993ms", "18446744073709551615w"] {
            assert_eq!(parse_ms(text), Err(DurationError::TooLong), "{text}");
        }
    }

    #[test]
    fn the_text_of_a_duration_reads_back_the_same() {
        for ms in [0, 1, 999, 1_000, 6_000, 90_000, 86_400_000, 2_592_000_000, 123_456_789] {
            assert_eq!(parse_ms(&text_of_ms(ms)), Ok(ms));
        }
        assert_eq!(text_of_ms(90_000), "1m30s");
    }
}
