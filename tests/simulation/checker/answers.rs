//! The answers on record against what ran: truth of cancels, no phantom, no loss.

use dueline::model::{Decision, Outcome};

use super::{CLOCKS_MS, Verdict, accepted, asked_at, stops};
use crate::ledger::{Asked, Ledger};

/// Each run is of an event that asked for it, with its payload.
pub(super) fn payloads_are_those_asked_for(ledger: &Ledger, verdict: &mut Verdict) {
    for call in &ledger.calls {
        let Some((_, asked, payload)) = asked_at(ledger, call.shard, call.version) else {
            verdict.wrong("nobody asked for this run", call);
            continue;
        };
        let right = match asked {
            Asked::Schedule => payload == Some(call.payload),
            Asked::Reschedule => scheduled_before(ledger, call),
            Asked::Cancel | Asked::Garbage => false,
        };
        if !right {
            verdict.wrong("the payload is not the one asked for", (call, payload));
        }
    }
}

/// Whether an older version of the same task had this payload.
fn scheduled_before(ledger: &Ledger, call: &crate::ledger::Call) -> bool {
    let older = ledger.answers.range((call.shard, dueline::model::Version::MIN)..(call.shard, call.version));
    let mut same = older.filter(|(_, answered)| answered.row.key == call.key);
    same.any(|((shard, version), _)| {
        asked_at(ledger, *shard, *version).is_some_and(|(_, _, payload)| payload == Some(call.payload))
    })
}

/// What was cancelled, replaced or rescheduled in time does not run once that is on record; an event that was there
/// before an owner came wins against everything this owner starts.
pub(super) fn what_was_stopped_does_not_run(ledger: &Ledger, verdict: &mut Verdict) {
    for (shard, version, answered) in stops(ledger) {
        let asked = asked_at(ledger, shard, answered.row.version).map(|(at, ..)| at);
        for call in accepted(ledger).filter(|call| call.shard == shard && call.version == version) {
            let stoppable =
                answered.row.decision != Decision::Replaced || !open_at(ledger, call, answered.at);
            if stoppable && call.sent > answered.at {
                verdict.wrong("ran though it was stopped", (call, &answered.row));
            }
            let bump = ledger.bumps.get(&(shard, call.token.epoch.0)).copied();
            let before = asked.zip(bump).is_some_and(|(asked, bump)| asked < bump);
            if before && !log_was_away(ledger, bump, call.sent) {
                verdict.wrong("ran though it was stopped before its owner came", (call, &answered.row));
            }
        }
    }
}

fn open_at(ledger: &Ledger, call: &crate::ledger::Call, at: u64) -> bool {
    let places = ledger.places.iter();
    let mut own = places.filter(|((shard, place), _)| *shard == call.shard && place.version == call.version);
    let token = (call.token.epoch.0, call.token.sequence);
    own.any(|(_, history)| {
        history.starts.get(&token).is_some_and(|start| start - crate::ledger::BASE <= at as i64 + CLOCKS_MS)
    })
}

/// Whether the log was out of reach so long that an owner could start without it.
fn log_was_away(ledger: &Ledger, bump: Option<u64>, sent: u64) -> bool {
    let Some(bump) = bump else { return false };
    ledger.log_away.iter().any(|(from, to)| *from < sent && *to > bump)
}

/// Too late means that an attempt was on record, or that the task was over.
pub(super) fn too_late_is_true(ledger: &Ledger, verdict: &mut Verdict) {
    for ((shard, version), answered) in &ledger.answers {
        if answered.row.decision != Decision::TooLate {
            continue;
        }
        let Some(current) = answered.row.current else {
            verdict.wrong("too late for nothing", &answered.row);
            continue;
        };
        let history = ledger.places.get(&(*shard, current.place));
        let begun = history.is_some_and(|history| {
            !history.starts.is_empty() || history.closed || history.marks.keys().any(|mark| mark < version)
        });
        let asked = asked_at(ledger, *shard, *version).map_or(0, |(at, ..)| at as i64);
        let close = |start: &i64| (start - crate::ledger::BASE - asked).abs() < 200;
        if history.is_some_and(|history| history.starts.values().any(close)) {
            verdict.explained("cancel racing a start");
        }
        if !begun && !current.cancelled {
            verdict.wrong("too late, but it never started", &answered.row);
        }
    }
}

/// Every record the log took is answered: on record, rejected, or sent to its home.
pub(super) fn every_record_is_answered(ledger: &Ledger, verdict: &mut Verdict) {
    for append in &ledger.appends {
        let version = dueline::model::Version(append.offset);
        let on_record = ledger.answers.contains_key(&(append.shard, version));
        let rejected = ledger.rejected.contains_key(&(append.shard, append.offset));
        let forwards = ledger.appends.iter().filter(|a| a.origin == Some((append.shard, append.offset)));
        let forwarded = forwards.clone().count();
        let answered_at_home = append.origin.is_some_and(|origin| {
            let mut twins =
                ledger.appends.iter().filter(|a| a.shard == append.shard && a.origin == Some(origin));
            twins.any(|twin| ledger.answers.contains_key(&(twin.shard, dueline::model::Version(twin.offset))))
        });
        let right = match append.asked {
            Asked::Garbage => rejected,
            _ if append.misplaced => forwarded > 0,
            _ => on_record || answered_at_home,
        };
        if !right {
            verdict.wrong("a record was not answered", append);
        }
        let once = forwards
            .filter(|a| ledger.answers.contains_key(&(a.shard, dueline::model::Version(a.offset))))
            .count();
        if once > 1 {
            verdict.wrong("a forwarded record counted twice", append);
        }
    }
}

/// Every version that was made and not stopped was called, and is finished on record.
pub(super) fn nothing_is_lost(ledger: &Ledger, verdict: &mut Verdict) {
    let stopped: std::collections::BTreeSet<_> =
        stops(ledger).into_iter().map(|(shard, version, _)| (shard, version)).collect();
    for ((shard, version), answered) in &ledger.answers {
        let Some(current) = answered.row.current.filter(|current| current.place.version == *version) else {
            continue;
        };
        let history = ledger.places.get(&(*shard, current.place));
        if !history.is_some_and(|history| history.finished_at(u64::MAX)) {
            verdict.wrong("not finished at the end", &answered.row);
        }
        if stopped.contains(&(*shard, *version)) || history.is_some_and(|history| !history.marks.is_empty()) {
            continue;
        }
        let mut calls = accepted(ledger).filter(|call| call.shard == *shard && call.version == *version);
        let closed = history.is_some_and(|history| history.closed);
        if !closed && !calls.any(|call| call.ended.is_some()) {
            verdict.wrong("accepted and never run", &answered.row);
        }
        let ran = |call: &crate::ledger::Call| {
            let last = call.attempt >= call.max_attempts;
            call.ended
                .is_some_and(|(_, outcome)| matches!(outcome, Outcome::Succeeded | Outcome::Fatal) || last)
                || last
        };
        if !closed && !accepted(ledger).any(|c| c.shard == *shard && c.version == *version && ran(c)) {
            verdict.wrong("given up too early", &answered.row);
        }
    }
}
