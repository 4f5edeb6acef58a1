//! Cancels, replacements and reschedules: what was stopped does not run, and what is answered is true.

use std::collections::BTreeMap;
use std::ops::Range;

use super::index::{At, Index};
use super::{Report, Rule};
use crate::testing::history::{Answered, Asked, Asks, Called, Decided};

/// What an owner that stood still had begun goes out within this of its going on, in milliseconds.
const THAWED_MS: i64 = 2_000;

pub(super) fn what_was_stopped_stays_stopped(index: &Index<'_>, report: &mut Report) {
    if index.knows_answers() {
        by_answers(index, report);
        cancels_are_read_before_anything_starts(index, report);
    } else {
        by_time(index, report);
    }
}

/// What was stopped does not run once that is on record; and an event that lay in the log before an owner came wins
/// against everything this owner starts, unless the log could not be read, or a broker that led before was believed.
fn by_answers(index: &Index<'_>, report: &mut Report) {
    for (version, answer) in index.stops() {
        report.count(Rule::StoppedStaysStopped);
        let appended = index.asked.get(&(answer.shard, answer.offset)).map(|asked| asked.appended);
        for call in index.calls_of(version) {
            let sent = call.sent.unwrap_or(call.arrived);
            let running = answer.decided == Decided::Replaced && begun_by(index, version, call, answer.at);
            if sent > answer.at && !running {
                report.of_call(Rule::StoppedStaysStopped, "ran though it was stopped", call, (call, answer));
            }
            if appended.is_some_and(|appended| came_after(index, call, appended)) {
                let what = "ran though it was stopped before its owner came";
                report.of_call(Rule::StoppedStaysStopped, what, call, (call, answer));
            }
        }
    }
}

/// The same for a cancel that came too late: whatever had begun, who came after it starts nothing of the task any more.
fn cancels_are_read_before_anything_starts(index: &Index<'_>, report: &mut Report) {
    for answer in index.answered.values().filter(|answer| answer.decided == Decided::TooLate) {
        let asked = index.asked.get(&(answer.shard, answer.offset));
        let cancel = asked.filter(|asked| asked.asks == Asks::Cancel);
        let Some((asked, current)) = cancel.zip(answer.current) else { continue };
        report.count(Rule::StoppedStaysStopped);
        for call in index.calls_of((answer.shard, current)) {
            if came_after(index, call, asked.appended) {
                let what = "ran though a cancel lay in the log before its owner came";
                report.of_call(Rule::StoppedStaysStopped, what, call, (call, answer));
            }
        }
    }
}

/// Whether the owner that made a call came when an event lay in the log already, and could read the log.
fn came_after(index: &Index<'_>, call: &Called, appended: i64) -> bool {
    let sent = call.sent.unwrap_or(call.arrived);
    let bumped = index.owned.get(&(call.shard, call.token[1])).map(|owned| owned.at);
    // A broker that led before may be believed: a limit of the promise that is written down (docs/semantics.md, 7).
    let not_told = ["log away", "former leader"];
    bumped.is_some_and(|bumped| {
        appended < bumped && !not_told.iter().any(|fault| index.fault_between(fault, bumped, sent))
    })
}

fn begun_by(index: &Index<'_>, version: At, call: &Called, at: i64) -> bool {
    let begun = index.begun.get(&version).map_or(&[][..], Vec::as_slice);
    let own = |epoch: u64, sequence: u64| epoch == call.token[1] && sequence == call.token[2];
    begun.iter().any(|line| own(line.epoch, line.sequence) && line.at <= at + index.slack.clocks_ms)
}

/// After a cancel or reschedule that came well before its task was ready, the old task does not start. A cancel that came later
/// forbids what its owner does after it has heard of it.
fn by_time(index: &Index<'_>, report: &mut Report) {
    for (key, lines) in &index.by_key {
        let moves = |line: &&(usize, &Asked)| !matches!(line.1.asks, Asks::Redrive { .. } | Asks::Abort);
        let lines: Vec<_> = lines.iter().filter(moves).collect();
        let ready: Vec<Option<i64>> = lines.iter().map(|(_, line)| line.ready()).collect();
        let calls = index.queues.get(key.0).map_or(&[][..], Vec::as_slice);
        // What stood before the event before may have run if that came too late; then only calls after this event count.
        let mut all_in_time = true;
        for (number, pair) in ready.windows(2).enumerate() {
            let (Some(before), event) = (pair[0], lines[number + 1].1) else { continue };
            let known = index.known(event);
            let Some(in_time) = known.filter(|known| *known <= before) else {
                all_in_time = false;
                if let Some(known) = known
                    && event.asks == Asks::Cancel
                {
                    let next = lines.get(number + 2).map_or(i64::MAX, |(_, next)| next.earliest());
                    nothing_starts_after(index, report, key.1, calls, (event, known..next));
                }
                continue;
            };
            report.count(Rule::StoppedStaysStopped);
            let since = if all_in_time { i64::MIN } else { in_time };
            let from = pair[1].unwrap_or(i64::MAX);
            let early = |call: &&&Called| {
                call.id == key.1 && (since..from - index.slack.clocks_ms).contains(&call.arrived)
            };
            if let Some(call) = calls.iter().find(early) {
                let what = "ran although it was stopped in time";
                report.of_call(Rule::StoppedStaysStopped, what, call, (event, call));
            }
        }
    }
}

/// No call of a task in a time that begins when its cancel was known, unless by an owner that stood still.
fn nothing_starts_after(
    index: &Index<'_>,
    report: &mut Report,
    id: &str,
    calls: &[&Called],
    (cancel, time): (&Asked, Range<i64>),
) {
    report.count(Rule::StoppedStaysStopped);
    let late = |call: &&&Called| {
        let own = call.id == id && time.contains(&call.arrived);
        own && !index.halted_within(call, call.arrived - THAWED_MS, call.arrived)
    };
    if let Some(call) = calls.iter().find(late) {
        let what = "started although its cancel was known";
        report.of_call(Rule::StoppedStaysStopped, what, call, (cancel, call));
    }
}

/// Too late means that an attempt was on record, or that the task was over; what is redriven was over, and what is broken
/// off had begun.
pub(super) fn answers_are_true(index: &Index<'_>, report: &mut Report) {
    redrives_are_of_what_was_over(index, report);
    for answer in index.answered.values() {
        if answer.decided != Decided::TooLate {
            continue;
        }
        report.count(Rule::AnswersTrue);
        let Some(current) = answer.current else {
            report.wrong(Rule::AnswersTrue, "too late for nothing", Some(&answer.queue), answer);
            continue;
        };
        let version = (answer.shard, current);
        let begun = index.begun.contains_key(&version) || index.is_closed(version);
        if !begun && !stopped_before(index, version, answer) {
            let what = "too late, but it never started";
            report.wrong(Rule::AnswersTrue, what, Some(&answer.queue), answer);
        }
    }
}

fn redrives_are_of_what_was_over(index: &Index<'_>, report: &mut Report) {
    let mut before: BTreeMap<(&str, &str), &Answered> = BTreeMap::new();
    for answer in index.answered.values() {
        let prior = before.insert((&answer.queue, &answer.id), answer).and_then(|prior| prior.current);
        let prior = prior.map(|prior| (answer.shard, prior));
        let (is_true, what) = match (answer.decided, prior) {
            (Decided::Redriven | Decided::Aborted, None) => (false, "redriven or broken off, but unknown"),
            (Decided::Redriven, Some(prior)) => {
                (index.is_finished(prior, answer.at), "redriven, but it was not over")
            }
            (Decided::Aborted, Some(prior)) => {
                (index.begun.contains_key(&prior), "broken off, but it never began")
            }
            _ => continue,
        };
        report.count(Rule::AnswersTrue);
        if !is_true {
            report.wrong(Rule::AnswersTrue, what, Some(&answer.queue), answer);
        }
    }
}

fn stopped_before(index: &Index<'_>, version: At, answer: &Answered) -> bool {
    let earlier = index.answered.range((answer.shard, 0)..(answer.shard, answer.offset));
    let same = earlier.filter(|(_, line)| line.queue == answer.queue && line.id == answer.id);
    let stops = |line: &Answered| {
        let own = line.current == Some(version.1);
        own && matches!(line.decided, Decided::Cancelled | Decided::CancelledBefore | Decided::TooLate)
            || !own && matches!(line.decided, Decided::Replaced | Decided::Rescheduled)
    };
    same.into_iter().any(|(_, line)| stops(line))
}
