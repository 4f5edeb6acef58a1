//! Rules that need nothing but what handlers wrote down.

use std::collections::BTreeMap;

use super::index::{Index, Version, version_of};
use super::{Report, Rule};
use crate::testing::history::{Asks, Called, End};

/// An owner that was lost so long before the next one came that it put no end of a call on record: longer than any takeover, in
/// milliseconds.
const RECORDED_MS: i64 = 60_000;

pub(super) fn never_early(index: &Index<'_>, report: &mut Report) {
    let earliest = earliest_by_key(index);
    for call in index.history.called.iter().filter(|call| !call.refused) {
        report.count(Rule::NeverEarly);
        let key = (call.queue.as_str(), call.id.as_str());
        let asked = earliest.get(&key).copied().filter(|_| call.version.is_none()).unwrap_or(i64::MIN);
        let from = call.due.max(call.ready.unwrap_or(i64::MIN)).max(asked);
        if call.arrived < from - index.slack.clocks_ms {
            report.of_call(Rule::NeverEarly, "called before it was due", call, call);
        }
    }
}

/// The earliest time any record of a key allows.
fn earliest_by_key<'a>(index: &Index<'a>) -> BTreeMap<(&'a str, &'a str), i64> {
    let mut earliest: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for (key, lines) in &index.by_key {
        if let Some(first) = lines.iter().filter_map(|(_, line)| line.ready()).min() {
            earliest.insert(*key, first);
        }
    }
    earliest
}

/// Calls of one queue follow each other. One that was broken off, or that nobody ended, holds its queue until its
/// deadline; what outlives its deadline holds nothing.
pub(super) fn no_overlap(index: &Index<'_>, report: &mut Report) {
    for calls in index.queues.values() {
        let mut holder: Option<(&Called, i64)> = None;
        for call in calls {
            report.count(Rule::NoOverlap);
            let held = holder.filter(|(_, until)| call.arrived < until - index.slack.clocks_ms);
            if let Some((first, _)) = held {
                report.of_call(Rule::NoOverlap, "two calls of a queue at once", call, (first, call));
            }
            let until = held_until(call);
            if holder.is_none_or(|(_, before)| until > before) {
                holder = Some((call, until));
            }
        }
    }
}

fn held_until(call: &Called) -> i64 {
    match call.ended {
        Some((_, End::BrokenOff)) if call.version.is_none() => call.deadline,
        Some((at, _)) => at.min(call.deadline),
        None => call.deadline,
    }
}

/// A handler takes no token below one it took before, and refuses only what comes from an owner that was replaced, or
/// after the attempt's deadline by the owner's clock.
pub(super) fn tokens_never_fall(index: &Index<'_>, report: &mut Report) {
    let mut highest: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    let mut calls: Vec<&Called> = index.history.called.iter().collect();
    calls.sort_by_key(|call| call.arrived);
    for call in calls {
        report.count(Rule::TokensNeverFall);
        match highest.get_mut(call.queue.as_str()) {
            None => {
                highest.insert(&call.queue, call.token);
            }
            Some(seen) => {
                let same_owner = call.token[..2] == seen[..2];
                let in_time = call.arrived <= call.deadline - index.slack.clocks_ms;
                if call.token <= *seen && (!call.refused || same_owner && in_time) {
                    report.of_call(Rule::TokensNeverFall, "tokens fell within a queue", call, (call, *seen));
                }
                *seen = (*seen).max(call.token);
            }
        }
    }
}

/// A further run of a version follows a failure, or the loss of an owner, and says so.
pub(super) fn duplicates_are_explained(index: &Index<'_>, report: &mut Report) {
    for calls in index.versions.values() {
        for pair in calls.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            report.count(Rule::DuplicatesExplained);
            match cause(index, first, second) {
                Some(cause) => report.explained(cause),
                None => {
                    report.of_call(
                        Rule::DuplicatesExplained,
                        "ran again for no reason",
                        second,
                        (first, second),
                    );
                }
            }
            if second.previous.is_none() {
                report.of_call(
                    Rule::DuplicatesExplained,
                    "a repeat does not say so",
                    second,
                    (first, second),
                );
            }
            if second.attempt <= first.attempt {
                report.of_call(
                    Rule::DuplicatesExplained,
                    "an attempt was not counted",
                    second,
                    (first, second),
                );
            }
        }
    }
    finished_stays_finished(index, report);
    what_succeeded_is_over(index, report);
}

/// A task without versions that has succeeded does not run for another due time: a reschedule came too late for it.
fn what_succeeded_is_over(index: &Index<'_>, report: &mut Report) {
    for (key, lines) in &index.by_key {
        let of = |wanted: fn(&Asks) -> bool| lines.iter().filter(|(_, line)| wanted(&line.asks)).count();
        let once = of(|asks| matches!(asks, Asks::Schedule { .. })) == 1;
        if !once || of(|asks| matches!(asks, Asks::Redrive { .. })) > 0 {
            continue;
        }
        let calls = index.queues.get(key.0).map_or(&[][..], Vec::as_slice);
        let own = calls.iter().filter(|call| call.id == key.1 && call.version.is_none());
        let mut done: Option<&Called> = None;
        for call in own {
            if let Some(done) = done.filter(|done| done.due != call.due) {
                let what = "ran for another time though it had succeeded";
                report.of_call(Rule::DuplicatesExplained, what, call, (done, call));
            }
            let succeeded = matches!(call.ended, Some((_, End::Succeeded)));
            done = done.or(succeeded.then_some(*call));
        }
    }
}

fn cause(index: &Index<'_>, first: &Called, second: &Called) -> Option<&'static str> {
    let in_time = first.ended.filter(|(at, _)| *at < first.deadline - index.slack.clocks_ms);
    match in_time {
        _ if second.token[..2] > first.token[..2] => {
            let forgotten = is_overlooked(index, first, second) || is_forgotten(index, first);
            (!forgotten).then_some("owner lost")
        }
        _ if first.broken_off => Some("broken off"),
        None => Some("timed out"),
        Some((_, End::BrokenOff)) => Some("broken off"),
        Some((_, End::Failed)) => Some("failed"),
        Some((_, End::Snoozed)) => Some("snoozed"),
        Some((at, End::Succeeded | End::Fatal)) => index.halted_at(first, at).then_some("owner stood still"),
    }
}

/// Whether a run that waited until the deadline of a lost owner's was begun although the end of that was on record by then.
fn is_overlooked(index: &Index<'_>, first: &Called, second: &Called) -> bool {
    let slack = index.slack.clocks_ms;
    let waited = second.decided.is_some_and(|decided| decided > first.deadline + slack);
    let Version::Known(shard, version) = version_of(first) else { return false };
    waited && index.was_finished((shard, version), first.arrived..first.deadline - slack)
}

/// Whether a call that nobody wrote versions of was over long before another owner came, and its own was there all the time to
/// put that on record.
fn is_forgotten(index: &Index<'_>, first: &Called) -> bool {
    let Some((ended, End::Succeeded | End::Fatal)) = first.ended else { return false };
    let on_record = ended + RECORDED_MS.max(index.slack.known_near_ms);
    let followed = index.followed_at((first.shard, first.token[1]));
    let in_time = first.version.is_none() && !first.broken_off && ended < first.deadline;
    in_time && followed.is_some_and(|at| on_record < at) && !index.halted_within(first, ended, on_record)
}

/// An owner that read a task as finished does not run it.
fn finished_stays_finished(index: &Index<'_>, report: &mut Report) {
    for call in index.history.called.iter().filter(|call| !call.refused) {
        let Version::Known(shard, version) = version_of(call) else { continue };
        let read = index.owned.get(&(shard, call.token[1])).and_then(|owned| owned.read);
        if read.is_some_and(|read| index.is_finished((shard, version), read)) {
            report.of_call(Rule::DuplicatesExplained, "ran though it was finished", call, call);
        }
    }
}

/// Nobody tries more often than the policy allows.
pub(super) fn attempts_are_counted(index: &Index<'_>, report: &mut Report) {
    for calls in index.versions.values() {
        let failed = |call: &&&Called| !call.broken_off && matches!(call.ended, Some((_, End::Failed)));
        let mut failures: BTreeMap<u64, u32> = BTreeMap::new();
        for call in calls.iter().filter(failed) {
            let count = failures.entry(call.token[1]).or_insert(0);
            *count += 1;
            if call.max_attempts.is_some_and(|max| *count > max) {
                report.of_call(Rule::DuplicatesExplained, "tried more often than allowed", call, call);
            }
        }
    }
}
