//! Order within a queue: by (due time, version) among the tasks known when a start was decided.

use dueline::model::QueueName;

use super::{CLOCKS_MS, Verdict, sim};
use crate::ledger::{Answered, Call, Ledger};

/// No task starts while an earlier one of its queue is known, ready and unfinished.
pub(super) fn in_order(ledger: &Ledger, calls: &[&Call], verdict: &mut Verdict) {
    let Some(first) = calls.first() else { return };
    let others = tasks_of(ledger, &first.key.queue);
    for call in calls {
        let starts = ledger.places.iter().find(|((shard, place), _)| {
            *shard == call.shard && place.version == call.version && sim(place.ready_at) == call.ready
        });
        let token = (call.token.epoch.0, call.token.sequence);
        let Some(at) = starts.and_then(|(_, history)| history.starts.get(&token)) else { continue };
        let at = *at - crate::ledger::BASE;
        let read = ledger.loads.get(&(call.shard, call.token.epoch.0));
        if starts.zip(read).is_some_and(|((_, history), read)| history.finished_at(*read)) {
            verdict.wrong("ran though it was finished", call);
        }
        let earlier = others.iter().find(|other| overtaken(ledger, call, at, other));
        let Some(earlier) = earlier else { continue };
        if ledger.memory_is_short && came_late(earlier, call) {
            verdict.explained("past due and not in memory");
        } else {
            verdict.wrong("an earlier task of the queue was overtaken", (call, &earlier.row));
        }
    }
}

/// The answers that made a task of this queue.
fn tasks_of<'a>(ledger: &'a Ledger, queue: &QueueName) -> Vec<&'a Answered> {
    let makes = |answer: &&Answered| {
        let own = answer.row.current.is_some_and(|current| current.place.version == answer.row.version);
        own && answer.row.key.queue == *queue
    };
    ledger.answers.values().filter(makes).collect()
}

/// Past due when it came, so it lies behind the other in the store although it is before it in the queue.
fn came_late(earlier: &Answered, call: &Call) -> bool {
    earlier.row.current.is_some_and(|current| {
        let behind = (sim(current.place.ready_at), current.place.version) > (call.ready, call.version);
        current.place.ready_at > current.due_at && behind
    })
}

fn overtaken(ledger: &Ledger, call: &Call, decided: i64, other: &Answered) -> bool {
    let Some(current) = other.row.current else { return false };
    let (due, version) = (sim(current.due_at), current.place.version);
    if version == call.version || (due, version) > (call.due, call.version) {
        return false;
    }
    let ready = sim(current.place.ready_at) + CLOCKS_MS <= decided;
    let known = ledger.applied_at(call.shard, version).is_some_and(|at| (at as i64) + CLOCKS_MS < decided);
    let at = (decided - CLOCKS_MS).max(0) as u64;
    let history = ledger.places.get(&(call.shard, current.place));
    let finished = history.is_some_and(|history| {
        history.finished_at(at) || history.finished_at(decided as u64 + CLOCKS_MS as u64)
    });
    ready && known && !finished
}
