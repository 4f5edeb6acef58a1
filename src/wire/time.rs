//! Times and durations as people write them: RFC 3339, `1h30m`, `PT10M`.
//!
//! What is finer than a millisecond is rounded so that nothing happens early. Nothing is guessed: a text that is not
//! wholly understood is refused. A day is 24 hours and a week 7 days; months and years have no length here.

use std::cell::RefCell;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::Serializer;

use crate::model::Wall;

/// Longest duration text, in bytes.
const DURATION_BYTES_MAX: usize = 64;
/// Most digits before and after the point of one part.
const WHOLE_DIGITS_MAX: usize = 18;
const FRACTION_DIGITS_MAX: usize = 9;
/// A time from 1970 to 9999, and what comes before its point.
const TIME_BYTES: usize = 24;
const SECOND_BYTES: usize = 19;
/// For so many bytes the printer wants room.
const PRINTED_BYTES: usize = 33;
/// The last second of a time of 24 bytes that the library prints: some hours before the year 9999 ends.
const SECOND_MAX: i64 = 253_402_207_199;
/// Seconds whose text a thread keeps.
const SECONDS_KEPT: usize = 64;
const NS_PER_MS: i128 = 1_000_000;

/// Why a time or duration was refused: the end of a sentence whose subject is the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a time of RFC 3339.
    #[error("is not an RFC 3339 time such as \"2026-11-21T10:00:00Z\"")]
    NotTime,
    /// The right form, but no such moment.
    #[error("is a date or time that does not exist (a leap second is given as the second after it)")]
    NoSuchTime,
    /// Before 1970.
    #[error("is before 1970")]
    BeforeEpoch,
    /// Not a duration.
    #[error("is not a duration such as \"10s\", \"1h30m\" or \"PT10M\"")]
    NotDuration,
    /// Below zero.
    #[error("is negative")]
    Negative,
    /// More than can be counted.
    #[error("is too long")]
    TooLong,
}

/// What is done with the part of a time below a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// For times before which nothing may happen.
    Up,
    /// For times after which nothing may happen.
    Down,
}

/// A time of RFC 3339 with offset, from 1970 to 9999, seconds with at most nine decimals.
///
/// # Errors
/// Says which part of that does not hold.
pub fn parse_time(text: &str, round: Round) -> Result<Wall, Error> {
    if !has_form_of_time(text.as_bytes()) {
        return Err(Error::NotTime);
    }
    if &text[17..19] > "59" {
        return Err(Error::NoSuchTime);
    }
    let ns = text.parse::<Timestamp>().map_err(|_| Error::NoSuchTime)?.as_nanosecond();
    if ns < 0 {
        return Err(Error::BeforeEpoch);
    }
    let ms = match round {
        Round::Up => (ns + NS_PER_MS - 1) / NS_PER_MS,
        Round::Down => ns / NS_PER_MS,
    };
    i64::try_from(ms).map(Wall).map_err(|_| Error::NoSuchTime)
}

/// A wall time in RFC 3339, UTC, with milliseconds; the ends of what a calendar can show stand for what lies beyond.
pub fn format_time(at: Wall) -> String {
    let mut text = Vec::with_capacity(PRINTED_BYTES);
    write_time(at, &mut text);
    String::from_utf8(text).expect("the printer writes ASCII")
}

/// Adds what [`format_time`] gives.
pub(super) fn write_time(at: Wall, to: &mut Vec<u8>) {
    match time_bytes(at) {
        Some(text) => to.extend_from_slice(&text),
        None => print_time(at, to),
    }
}

/// The same as a field.
pub(super) fn serialize_time<S: Serializer>(at: Wall, serializer: S) -> Result<S::Ok, S::Error> {
    match time_bytes(at).as_ref().map(|text| str::from_utf8(text)) {
        Some(Ok(text)) => serializer.serialize_str(text),
        _ => serializer.serialize_str(&format_time(at)),
    }
}

/// What [`format_time`] gives of usual times. Many are of one second: its text is made once.
fn time_bytes(at: Wall) -> Option<[u8; TIME_BYTES]> {
    thread_local! {
        static SECONDS: RefCell<[(i64, [u8; SECOND_BYTES]); SECONDS_KEPT]> =
            const { RefCell::new([(-1, [0; SECOND_BYTES]); SECONDS_KEPT]) };
    }
    let (second, ms) = (at.0.div_euclid(1_000), at.0.rem_euclid(1_000));
    if !(0..=SECOND_MAX).contains(&second) {
        return None;
    }
    let mut text = *b"0000-00-00T00:00:00.000Z";
    SECONDS.with_borrow_mut(|kept| {
        let (of, begin) = &mut kept[second as usize % SECONDS_KEPT];
        if *of != second {
            let mut printed = Vec::with_capacity(PRINTED_BYTES);
            print_time(Wall(second * 1_000), &mut printed);
            (*of, *begin) = (second, *printed.first_chunk()?);
        }
        text[..SECOND_BYTES].copy_from_slice(begin);
        Some(())
    })?;
    for (at, unit) in [(20, 100), (21, 10), (22, 1)] {
        text[at] = b'0' + (ms / unit % 10) as u8;
    }
    Some(text)
}

fn print_time(at: Wall, to: &mut Vec<u8>) {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
    let end = if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let at = Timestamp::from_millisecond(at.0).unwrap_or(end);
    PRINTER.print_timestamp(&at, to).expect("a vector takes what is written to it");
}

/// `dddd-dd-ddTdd:dd:dd[.d…](Z|±dd:dd)`
fn has_form_of_time(text: &[u8]) -> bool {
    let Some((date, rest)) = text.split_at_checked(19) else { return false };
    let dated = date.iter().zip(b"dddd-dd-ddTdd:dd:dd").all(|(byte, form)| match form {
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't'),
        other => byte == other,
    });
    let rest = match rest.split_first() {
        Some((b'.', rest)) => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=FRACTION_DIGITS_MAX).contains(&digits) {
                return false;
            }
            &rest[digits..]
        }
        _ => rest,
    };
    dated && has_form_of_offset(rest)
}

fn has_form_of_offset(text: &[u8]) -> bool {
    match text {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit()) && [*h1, *h2] <= *b"23" && *m1 <= b'5'
        }
        _ => false,
    }
}

/// A unit of a duration: its letters, and its length in nanoseconds.
type Unit = (&'static str, u128);

const SECOND: u128 = 1_000_000_000;
const COMPACT: [Unit; 6] = [
    ("w", 604_800 * SECOND),
    ("d", 86_400 * SECOND),
    ("h", 3_600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
    ("ms", SECOND / 1_000),
];
const ISO_DATE: [Unit; 2] = [("W", 604_800 * SECOND), ("D", 86_400 * SECOND)];
const ISO_TIME: [Unit; 3] = [("H", 3_600 * SECOND), ("M", 60 * SECOND), ("S", SECOND)];

/// A duration as [`parse_duration_ms`] reads it: `1h 30m`.
pub fn format_duration_ms(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    format!("{:#}", jiff::SignedDuration::from_millis(ms))
}

/// A duration in milliseconds, rounded up: `10s`, `1h30m`, `1.5h`, `250ms`, `2w3d`, `PT10M`, `P1DT12H`.
///
/// Each unit occurs at most once, larger ones first; a part may have up to nine decimals.
///
/// # Errors
/// Says whether it is no duration, negative, or too long to count.
pub fn parse_duration_ms(text: &str) -> Result<u64, Error> {
    if text.len() > DURATION_BYTES_MAX {
        return Err(Error::NotDuration);
    }
    if let Some(positive) = text.strip_prefix('-') {
        return Err(if ns_of(positive).is_ok() { Error::Negative } else { Error::NotDuration });
    }
    u64::try_from(ns_of(text)?.div_ceil(1_000_000)).map_err(|_| Error::TooLong)
}

fn ns_of(text: &str) -> Result<u128, Error> {
    let Some(iso) = text.strip_prefix('P') else { return sum_of(text, &COMPACT) };
    match iso.split_once('T') {
        None => sum_of(iso, &ISO_DATE),
        Some(("", time)) => sum_of(time, &ISO_TIME),
        Some((date, time)) => Ok(sum_of(date, &ISO_DATE)? + sum_of(time, &ISO_TIME)?),
    }
}

fn sum_of(mut text: &str, mut units: &[Unit]) -> Result<u128, Error> {
    let mut sum = 0;
    if text.is_empty() {
        return Err(Error::NotDuration);
    }
    while !text.is_empty() {
        let number_len = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, rest) = text.split_at(number_len);
        let unit_len = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (letters, rest) = rest.split_at(unit_len);
        let place = units.iter().position(|unit| unit.0 == letters).ok_or(Error::NotDuration)?;
        sum += part_ns(number, units[place].1)?;
        units = &units[place + 1..];
        text = rest;
    }
    Ok(sum)
}

fn part_ns(number: &str, unit_ns: u128) -> Result<u128, Error> {
    let (whole, fraction) = match number.split_once('.') {
        None => (number, "0"),
        Some((whole, fraction)) => (whole, fraction),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > FRACTION_DIGITS_MAX {
        return Err(Error::NotDuration);
    }
    if whole.len() > WHOLE_DIGITS_MAX {
        return Err(Error::TooLong);
    }
    let parsed = |text: &str| text.parse::<u128>().map_err(|_| Error::NotDuration);
    let scale = (0..fraction.len()).fold(1, |scale: u128, _| scale * 10);
    Ok(parsed(whole)? * unit_ns + (parsed(fraction)? * unit_ns).div_ceil(scale))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_time_is_written_as_the_library_writes_it(
            times in proptest::collection::vec(
                prop_oneof![
                    any::<i64>(),
                    -2_000..2_000i64,
                    0..4_000_000_000_000i64,
                    1_700_000_000_000..1_700_000_100_000i64,
                    (SECOND_MAX * 1_000 - 2_000)..(SECOND_MAX * 1_000 + 2_000),
                ],
                1..40,
            ),
        ) {
            for at in times.into_iter().map(Wall) {
                let mut printed = Vec::new();
                print_time(at, &mut printed);
                let printed = String::from_utf8(printed).expect("text");
                prop_assert_eq!(format_time(at), &*printed);
                let field = serialize_time(at, serde_json::value::Serializer).expect("a text");
                prop_assert_eq!(field, serde_json::Value::from(printed));
            }
        }
    }

    #[test]
    fn a_duration_is_read_in_both_forms() {
        for (text, ms) in [
            ("10s", 10_000),
            ("0s", 0),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("1s1ms", 1_001),
            ("2w3d", 17 * 86_400_000),
            ("PT10M", 600_000),
            ("P1DT12H", 129_600_000),
            ("P1W", 604_800_000),
            ("PT0.5S", 500),
            ("30d", 30 * 86_400_000),
        ] {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn a_duration_finer_than_a_millisecond_is_rounded_up() {
        assert_eq!(parse_duration_ms("0.000000001s"), Ok(1));
        assert_eq!(parse_duration_ms("0.1ms"), Ok(1));
        assert_eq!(parse_duration_ms("1.0000001s"), Ok(1_001));
    }

    #[test]
    fn a_text_that_is_no_duration_is_refused() {
        let long = "1".repeat(65);
        for text in [
            "",
            "10",
            "s",
            "10 s",
            " 10s",
            "10s ",
            "10S",
            "1m1h",
            "1s1s",
            "P",
            "PT",
            "P1DT",
            "P1M",
            "P1Y",
            "1y",
            "1mo",
            ".5s",
            "5.s",
            "1.2.3s",
            "+1s",
            "1e3s",
            "pt10m",
            "PT1D",
            "--1s",
            "-",
            "-x",
            "1.0000000001s",
            "٣s",
            &long,
        ] {
            assert_eq!(parse_duration_ms(text), Err(Error::NotDuration), "{text}");
        }
        assert_eq!(parse_duration_ms("-5s"), Err(Error::Negative));
        assert_eq!(parse_duration_ms("-PT5S"), Err(Error::Negative));
        assert_eq!(parse_duration_ms("9999999999999999999s"), Err(Error::TooLong));
        assert_eq!(parse_duration_ms("999999999999999999w"), Err(Error::TooLong));
    }

    #[test]
    fn a_time_is_read_to_the_millisecond() {
        let up = |text| parse_time(text, Round::Up);
        assert_eq!(up("1970-01-01T00:00:00Z"), Ok(Wall(0)));
        assert_eq!(up("2026-11-21T10:00:00Z"), Ok(Wall(1_795_255_200_000)));
        assert_eq!(up("2026-11-21t11:30:00.5+01:30"), Ok(Wall(1_795_255_200_500)));
        assert_eq!(up("2026-11-21T10:00:00.000000001z"), Ok(Wall(1_795_255_200_001)));
        assert_eq!(parse_time("2026-11-21T10:00:00.0009Z", Round::Down), Ok(Wall(1_795_255_200_000)));
        assert_eq!(format_time(Wall(1_795_255_200_500)), "2026-11-21T10:00:00.500Z");
        assert_eq!(format_time(Wall(0)), "1970-01-01T00:00:00.000Z");
        assert!(format_time(Wall(i64::MAX)).starts_with("9999-12-30"));
        assert!(format_time(Wall(i64::MIN)).starts_with("-009999-"));
    }

    #[test]
    fn a_text_that_is_no_time_is_refused() {
        for text in [
            "",
            "tomorrow",
            "2026-11-21",
            "2026-11-21T10:00:00",
            "2026-11-21 10:00:00Z",
            "2026-11-21T10:00Z",
            "2026-11-21T10:00:00.Z",
            "2026-11-21T10:00:00.0000000001Z",
            "2026-11-21T10:00:00,5Z",
            "2026-11-21T10:00:00+01",
            "2026-11-21T10:00:00+24:00",
            "2026-11-21T10:00:00+01:60",
            "2026-11-21T10:00:00Z[UTC]",
            "20261121T100000Z",
            "1795255200",
            "２０26-11-21T10:00:00Z",
        ] {
            assert_eq!(parse_time(text, Round::Up), Err(Error::NotTime), "{text}");
        }
        for text in
            ["2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2016-12-31T23:59:60Z"]
        {
            assert_eq!(parse_time(text, Round::Up), Err(Error::NoSuchTime), "{text}");
        }
        assert_eq!(parse_time("1969-12-31T23:59:59.999Z", Round::Up), Err(Error::BeforeEpoch));
        assert_eq!(parse_time("1970-01-01T00:00:00+00:01", Round::Up), Err(Error::BeforeEpoch));
    }

    proptest! {
        #[test]
        fn a_time_that_is_shown_reads_back(ms in 0..250_000_000_000_000i64) {
            prop_assert_eq!(parse_time(&format_time(Wall(ms)), Round::Up), Ok(Wall(ms)));
        }

        #[test]
        fn any_text_is_a_time_or_duration_or_refused(text: String) {
            let _ = (parse_time(&text, Round::Up), parse_duration_ms(&text));
        }
    }
}
