//! Order within a queue, and independence between queues.

use std::collections::BTreeMap;

use super::index::{Index, version_of};
use super::{Report, Rule};
use crate::testing::history::{Asked, Asks, Called};

/// The place of a call's task in the order of its queue, and from when its owner was to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    due: i64,
    arrival: u64,
    /// `None` = never known for sure.
    known: Option<i64>,
    /// When it could first run.
    ready: i64,
}

/// No task is called while an earlier one of its queue is known, ready and still to be called, be it again: the end of a
/// task is on record before the next of its queue starts.
pub(super) fn in_order(index: &Index<'_>, report: &mut Report) {
    if !index.slack.ordered {
        return;
    }
    for calls in index.queues.values() {
        let placed: Vec<(&Called, Placed)> =
            calls.iter().filter_map(|call| Some((*call, placed(index, call)?))).collect();
        let lasts = last_calls(&placed);
        for (call, place) in &placed {
            report.count(Rule::InOrder);
            let decided = call.decided.unwrap_or(call.arrived);
            let overtaken = lasts.iter().find(|(last, other)| {
                (other.due, other.arrival) < (place.due, place.arrival)
                    && last.arrived > call.arrived
                    && other.known.is_some_and(|known| known + index.slack.clocks_ms < decided)
                    && other.ready + index.slack.clocks_ms <= decided
                    && !is_aside(index, calls, last, decided + index.slack.clocks_ms)
            });
            let Some((other, late)) = overtaken else { continue };
            if index.slack.memory_short && late.ready > late.due {
                report.explained("past due and not in memory");
            } else {
                report.of_call(
                    Rule::InOrder,
                    "an earlier task of the queue was overtaken",
                    call,
                    (call, other),
                );
            }
        }
    }
}

/// Whether a task was tried before a time, and its queue does not wait for it then. A try that is at work still is another
/// rule's: two at once.
fn is_aside(index: &Index<'_>, calls: &[&Called], task: &Called, at: i64) -> bool {
    let mut same = calls.iter().filter(|call| version_of(call) == version_of(task));
    let ended = |call: &Called| call.ended.map_or(call.deadline, |(ended, _)| ended.min(call.deadline));
    let begun = task.version.and_then(|version| index.begun.get(&(task.shard, version)));
    let mut begun = begun.into_iter().flatten();
    let [_, epoch, sequence] = task.token;
    let was_tried = begun.any(|line| (line.epoch, line.sequence) < (epoch, sequence) && line.at <= at);
    task.parks && (was_tried || same.any(|call| ended(call) <= at))
}

/// The last call of each task of a queue.
fn last_calls<'a>(placed: &[(&'a Called, Placed)]) -> Vec<(&'a Called, Placed)> {
    let mut lasts = BTreeMap::new();
    for (call, place) in placed {
        lasts.insert(version_of(call), (*call, *place));
    }
    lasts.into_values().collect()
}

fn placed(index: &Index<'_>, call: &Called) -> Option<Placed> {
    if let Some(version) = call.version {
        let at = (call.shard, version);
        let known = index.applied_at(at);
        return Some(Placed {
            due: call.due,
            arrival: version,
            known,
            ready: call.ready.unwrap_or(call.due),
        });
    }
    let lines = index.by_key.get(&(call.queue.as_str(), call.id.as_str()))?;
    let sets = |line: &&(usize, &Asked)| match &line.1.asks {
        Asks::Schedule { due: Some(due), .. } | Asks::Reschedule { due } => *due == call.due,
        Asks::Schedule { due: None, .. } => true,
        Asks::Redrive { .. } | Asks::Abort | Asks::Cancel | Asks::Nonsense => false,
    };
    let (arrival, line) = lines.iter().rev().find(sets).or(lines.first())?;
    let known = index.known(line);
    Some(Placed { due: call.due, arrival: *arrival as u64, known, ready: call.due.max(line.appended) })
}

/// With no fault about, a task whose turn it is starts before long, whatever stands still in other queues.
pub(super) fn queues_are_independent(index: &Index<'_>, report: &mut Report) {
    let delay_ms = index.slack.delay_ms;
    let mut ready: BTreeMap<u32, BTreeMap<i64, &Called>> = BTreeMap::new();
    for calls in index.queues.values() {
        let mut free_from = i64::MIN;
        for call in calls {
            let known = call.version.map(|version| index.applied_at((call.shard, version)));
            let known = known.unwrap_or(Some(call.due));
            let turn = call.due.max(call.ready.unwrap_or(call.due)).max(free_from);
            let turn = known.map(|known| turn.max(known));
            if call.attempt == 1
                && let Some(turn) = turn
            {
                report.count(Rule::QueuesIndependent);
                if call.arrived > turn + delay_ms {
                    ready.entry(call.shard).or_default().insert(turn, call);
                }
            }
            free_from =
                free_from.max(call.ended.map_or(call.deadline, |(at, _)| at.max(call.deadline.min(at))));
        }
    }
    for (turn, call) in ready.into_values().flatten() {
        let to = call.arrived;
        let faulty = index.history.faults.iter().any(|fault| fault.from < to && fault.to + delay_ms > turn);
        if faulty {
            continue;
        }
        if index.slack.memory_short && behind_a_backlog(index, turn, call) {
            report.explained("behind what was ready before it and did not fit into memory");
        } else {
            report.of_call(Rule::QueuesIndependent, "waited for nothing in its queue", call, (turn, call));
        }
    }
}

/// Whether a shard went on all the time with what was ready before: it has more to do than fits into memory, and brings
/// it in by time. Further attempts do not count: those of a queue that stands still go on, too.
fn behind_a_backlog(index: &Index<'_>, turn: i64, call: &Called) -> bool {
    let ready = |call: &Called| call.ready.unwrap_or(call.due);
    let shard = index.queues.values().flatten().filter(|other| other.shard == call.shard);
    let before = shard.filter(|other| other.attempt == 1 && ready(other) <= ready(call));
    let mut times: Vec<i64> = before.map(|other| other.arrived).collect();
    times.retain(|at| (turn..=call.arrived).contains(at));
    times.push(turn);
    times.sort_unstable();
    times.windows(2).all(|pair| pair[1] - pair[0] <= index.slack.delay_ms)
}
