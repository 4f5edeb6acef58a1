//! Blackouts as people write them: `mon-fri 22:00-06:00 Europe/Berlin`, and whether a moment lies in one.
//!
//! A blackout goes by the clock on the wall of its zone: where clocks are set forward it is an hour shorter, where they
//! are set back an hour longer.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::model::{Blackout, Wall};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY_MIN: u16 = 24 * 60;

/// Why a blackout was refused: the end of a sentence whose subject is the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not three words.
    #[error(
        "is not days, times and a zone, such as \"mon-fri 22:00-06:00 Europe/Berlin\" or \"daily 00:00-24:00 UTC\""
    )]
    Form,
    /// The first word.
    #[error("has days {0:?}: give \"daily\", or days such as \"mon-fri\" or \"sat,sun\"")]
    Days(String),
    /// The second word.
    #[error("has times {0:?}: give two times of day such as \"22:00-06:00\"; they differ")]
    Times(String),
    /// The third word.
    #[error("has the zone {0:?}, which is not in the IANA time zone database")]
    Zone(String),
}

/// Reads a blackout.
///
/// # Errors
/// Which of its three words is wrong.
pub fn parse(text: &str) -> Result<Blackout, Error> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [days, times, zone] = words[..] else { return Err(Error::Form) };
    let (from_min, to_min) = parse_times(times).ok_or_else(|| Error::Times(times.to_owned()))?;
    let known = TimeZone::get(zone).map_err(|_| Error::Zone(zone.to_owned()))?;
    let zone = known.iana_name().unwrap_or(zone);
    Ok(Blackout {
        days: parse_days(days).ok_or_else(|| Error::Days(days.to_owned()))?,
        from_min,
        to_min,
        zone: Arc::from(zone),
    })
}

fn parse_days(text: &str) -> Option<[bool; 7]> {
    if text == "daily" {
        return Some([true; 7]);
    }
    let number = |name: &str| DAYS.iter().position(|day| *day == name);
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut day, last) = (number(first)?, number(last)?);
        days[day] = true;
        while day != last {
            day = (day + 1) % 7;
            days[day] = true;
        }
    }
    Some(days)
}

fn parse_times(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (parse_minute(from)?, parse_minute(to)?);
    (from != to && from < DAY_MIN).then_some((from, to))
}

/// `hh:mm`, up to `24:00`, in minutes after midnight.
fn parse_minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |part: &str| part.parse::<u16>().ok().filter(|_| part.len() == 2);
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minute = hours.checked_mul(60)?.checked_add(minutes)?;
    (minutes < 60 && minute <= DAY_MIN).then_some(minute)
}

/// A blackout as [`parse`] reads it.
pub fn format(blackout: &Blackout) -> String {
    let mut text = if blackout.days == [true; 7] {
        "daily".to_owned()
    } else {
        let days = DAYS.iter().zip(blackout.days).filter(|(_, on)| *on).map(|(day, _)| *day);
        days.collect::<Vec<_>>().join(",")
    };
    let (from, to) = (blackout.from_min, blackout.to_min);
    let times = format_args!("{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60).to_string();
    let _ = write!(text, " {times} {}", blackout.zone);
    text
}

/// Whether a blackout is in force at `now`. A zone that is not known any more closes: a stop that somebody set is not
/// lifted by a missing file.
pub fn is_within(blackout: &Blackout, now: Wall) -> bool {
    let Ok(at) = Timestamp::from_millisecond(now.0) else { return true };
    let Ok(zone) = TimeZone::get(&blackout.zone) else { return true };
    let at = at.to_zoned(zone);
    let minute = u16::from(at.hour().unsigned_abs()) * 60 + u16::from(at.minute().unsigned_abs());
    let today = usize::from(at.weekday().to_monday_zero_offset().unsigned_abs());
    let (from, to) = (blackout.from_min, blackout.to_min);
    if from < to {
        return blackout.days[today] && (from..to).contains(&minute);
    }
    let yesterday = (today + 6) % 7;
    (blackout.days[today] && minute >= from) || (blackout.days[yesterday] && minute < to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::time::{Round, parse_time};

    fn within(text: &str, at: &str) -> bool {
        let at = parse_time(at, Round::Down).expect("a time");
        is_within(&parse(text).expect("a blackout"), at)
    }

    #[test]
    fn a_blackout_goes_by_the_days_and_times_of_its_zone() {
        // 2026-11-20 is a Friday; Berlin is one hour ahead of UTC in winter.
        let text = "mon-fri 22:00-06:00 Europe/Berlin";
        assert!(!within(text, "2026-11-20T20:59:59Z"));
        assert!(within(text, "2026-11-20T21:00:00Z"));
        assert!(within(text, "2026-11-21T04:59:59Z"), "what began on Friday ends on Saturday");
        assert!(!within(text, "2026-11-21T05:00:00Z"));
        assert!(!within(text, "2026-11-21T21:30:00Z"), "none begins on Saturday");
        assert!(within("sat,sun 00:00-24:00 UTC", "2026-11-22T23:59:59Z"));
        assert!(!within("sat,sun 00:00-24:00 UTC", "2026-11-23T00:00:00Z"));
    }

    #[test]
    fn clocks_that_are_set_move_the_blackout_with_them() {
        let text = "daily 01:00-04:00 Europe/Berlin";
        // Summer time ends on 2026-10-25 at 03:00: from 01:00 to 04:00 are four hours.
        assert!(within(text, "2026-10-24T23:00:00Z"));
        assert!(within(text, "2026-10-25T02:59:59Z"));
        assert!(!within(text, "2026-10-25T03:00:00Z"));
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for text in ["daily 22:00-06:00 Etc/UTC", "mon,tue,sun 00:00-24:00 Europe/Berlin"] {
            assert_eq!(format(&parse(text).expect("a blackout")), text);
        }
        let wrapped = parse("sat-mon 09:30-10:00 Etc/UTC").expect("a blackout");
        assert_eq!(wrapped.days, [true, false, false, false, false, true, true]);
    }

    #[test]
    fn each_wrong_word_is_named() {
        assert_eq!(parse("daily 22:00-06:00"), Err(Error::Form));
        assert_eq!(parse("never 22:00-06:00 UTC"), Err(Error::Days("never".into())));
        for times in ["22:00", "25:00-26:00", "24:00-01:00", "10:00-10:00", "1:00-2:00", "10:60-11:00"] {
            assert_eq!(parse(&format!("daily {times} UTC")), Err(Error::Times(times.into())));
        }
        assert_eq!(parse("daily 22:00-06:00 Mars/Base"), Err(Error::Zone("Mars/Base".into())));
    }
}
