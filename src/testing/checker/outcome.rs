//! No loss and no phantom: what was asked for against what ran.

use std::collections::{BTreeMap, BTreeSet};

use super::index::{At, Index};
use super::{Report, Rule};
use crate::testing::history::{Asked, Asks, Called, End};

/// Each run is of an event that asked for it, with its payload.
pub(super) fn payloads_are_those_asked_for(index: &Index<'_>, report: &mut Report) {
    for call in &index.history.called {
        report.count(Rule::NoPhantom);
        let right = match call.version {
            Some(version) => asked_as_version(index, (call.shard, version), call),
            None => asked_as_key(index, call),
        };
        match right {
            None => report.of_call(Rule::NoPhantom, "nobody asked for this run", call, call),
            Some(false) => {
                report.of_call(Rule::NoPhantom, "the payload is not the one asked for", call, call);
            }
            Some(true) if made_no_task(index, call) => {
                report.of_call(Rule::NoPhantom, "ran though its event made no task", call, call);
            }
            Some(true) => {}
        }
    }
}

/// Whether the answer on record to the event of a call says that it made no task.
fn made_no_task(index: &Index<'_>, call: &Called) -> bool {
    let answer = call.version.and_then(|version| index.answered.get(&(call.shard, version)));
    answer.is_some_and(|answer| answer.current != Some(answer.offset))
}

fn asked_as_version(index: &Index<'_>, at: At, call: &Called) -> Option<bool> {
    Some(match &index.asked.get(&at)?.asks {
        Asks::Schedule { payload, .. } => *payload == call.payload,
        Asks::Reschedule { .. } | Asks::Redrive { payload: None } => scheduled_before(index, at, call),
        Asks::Redrive { payload: Some(payload) } => *payload == call.payload,
        Asks::Abort | Asks::Cancel | Asks::Nonsense => false,
    })
}

/// Whether an older version of the same task had this payload.
fn scheduled_before(index: &Index<'_>, at: At, call: &Called) -> bool {
    let older = index.answered.range((at.0, 0)..at);
    let mut same = older.filter(|(_, answer)| answer.queue == call.queue && answer.id == call.id);
    same.any(|(at, _)| match index.asked.get(at).map(|asked| &asked.asks) {
        Some(Asks::Schedule { payload, .. } | Asks::Redrive { payload: Some(payload) }) => {
            *payload == call.payload
        }
        _ => false,
    })
}

fn asked_as_key(index: &Index<'_>, call: &Called) -> Option<bool> {
    let lines = index.by_key.get(&(call.queue.as_str(), call.id.as_str()))?;
    Some(lines.iter().any(|(_, line)| match &line.asks {
        Asks::Schedule { payload, .. } | Asks::Redrive { payload: Some(payload) } => *payload == call.payload,
        _ => false,
    }))
}

/// Every version that was made and not stopped ran to its end.
pub(super) fn nothing_is_lost(index: &Index<'_>, report: &mut Report) {
    if index.knows_answers() {
        by_answers(index, report);
    } else {
        by_key(index, report);
    }
}

fn by_answers(index: &Index<'_>, report: &mut Report) {
    let stopped: BTreeSet<At> = index.stops().into_iter().map(|(version, _)| version).collect();
    let too_late = too_late_for(index);
    for answer in index.answered.values().filter(|answer| answer.current == Some(answer.offset)) {
        let version = (answer.shard, answer.offset);
        if stopped.contains(&version) || index.is_closed(version) {
            continue;
        }
        report.count(Rule::NothingLost);
        let calls = index.calls_of(version);
        let queue = Some(answer.queue.as_str());
        if !calls.iter().any(|call| call.ended.is_some()) {
            if !too_late.contains(&version) {
                report.wrong(Rule::NothingLost, "accepted and never run", queue, answer);
            }
            continue;
        }
        let ran_to_its_end = calls.iter().any(|call| {
            let last = call.max_attempts.is_some_and(|max| call.attempt >= max);
            last || matches!(call.ended, Some((_, End::Succeeded | End::Fatal)))
        });
        let ran_to_its_end = ran_to_its_end || last_call_was_lost(index, version, calls);
        if !ran_to_its_end && !too_late.contains(&version) {
            report.wrong(Rule::NothingLost, "given up too early", queue, (answer, calls));
        }
    }
}

/// The last attempt is on record behind all calls that arrived: its own was lost on the way, or came too late.
fn last_call_was_lost(index: &Index<'_>, version: At, calls: &[&Called]) -> bool {
    let Some(newest) = calls.iter().max_by_key(|call| call.token) else { return false };
    let is_last = newest.max_attempts.is_some_and(|max| newest.attempt + 1 >= max);
    let [_, epoch, sequence] = newest.token;
    let mut begun = index.begun.get(&version).into_iter().flatten();
    is_last && begun.any(|line| (line.epoch, line.sequence) > (epoch, sequence))
}

/// Versions that a cancel came too late for: it forbids further attempts all the same.
fn too_late_for(index: &Index<'_>) -> BTreeSet<At> {
    let late = index.answered.values().filter(|answer| {
        let asks = index.asked.get(&(answer.shard, answer.offset)).map(|asked| &asked.asks);
        answer.decided == crate::testing::history::Decided::TooLate && asks == Some(&Asks::Cancel)
    });
    late.filter_map(|answer| Some((answer.shard, answer.current?))).collect()
}

fn by_key(index: &Index<'_>, report: &mut Report) {
    let mut done: BTreeSet<(&str, &str)> = BTreeSet::new();
    for call in &index.history.called {
        if matches!(call.ended, Some((_, End::Succeeded))) {
            done.insert((&call.queue, &call.id));
        }
    }
    for (key, lines) in &index.by_key {
        let wanted = lines.last().is_some_and(|(_, line)| match &line.asks {
            Asks::Schedule { may_lapse, .. } => !may_lapse,
            Asks::Reschedule { .. } => true,
            Asks::Redrive { .. } | Asks::Abort | Asks::Cancel | Asks::Nonsense => false,
        });
        report.count(Rule::NothingLost);
        if wanted && !done.contains(key) {
            report.wrong(Rule::NothingLost, "lost: no call of this succeeded", Some(key.0), lines);
        }
    }
}

/// Every record the log took is answered: on record, rejected, or sent to its home and counted there once.
pub(super) fn every_record_is_answered(index: &Index<'_>, report: &mut Report) {
    if !index.knows_answers() {
        return;
    }
    let rejected: BTreeSet<At> = index.history.rejected.iter().copied().collect();
    let mut forwards: BTreeMap<At, Vec<&Asked>> = BTreeMap::new();
    for line in &index.history.asked {
        if let Some(origin) = line.origin {
            forwards.entry(origin).or_default().push(line);
        }
    }
    let answered =
        |line: &Asked| line.shard.zip(line.offset).is_some_and(|at| index.answered.contains_key(&at));
    let refused = |line: &&Asked| line.shard.zip(line.offset).is_some_and(|at| rejected.contains(&at));
    for (at, line) in &index.asked {
        report.count(Rule::RecordsAnswered);
        let sent = forwards.get(at).map_or(&[][..], Vec::as_slice);
        let twins = line.origin.and_then(|origin| forwards.get(&origin)).map_or(&[][..], Vec::as_slice);
        let right = match line.asks {
            Asks::Nonsense if !line.misplaced => rejected.contains(at) || twins.iter().any(refused),
            _ if line.misplaced => !sent.is_empty(),
            _ => answered(line) || twins.iter().any(|twin| answered(twin)),
        };
        if !right {
            report.wrong(Rule::RecordsAnswered, "a record was not answered", line.queue.as_deref(), line);
        }
        if sent.iter().filter(|twin| answered(twin)).count() > 1 {
            let what = "a forwarded record counted twice";
            report.wrong(Rule::RecordsAnswered, what, line.queue.as_deref(), (line, sent));
        }
    }
}
