//! The ledger as a history of the checker: the only place where the product's values become plain ones.

use dueline::model::{Decision, Outcome, Shard};
use dueline::testing::checker::Slack;
use dueline::testing::history as plain;

use crate::ledger::{Append, Asked, BASE, Call, Ledger, PlaceHistory, Reached};
use crate::setup::Setup;
use crate::workload::HANDLERS;

/// What the simulation's clocks and memory allow.
pub(crate) fn slack(setup: &Setup) -> Slack {
    let clocks_ms = 2 * setup.wall_skew_ms as i64 + 10;
    // All tasks of one handler may be late, and are caught up with at the declared rate.
    let late = setup.chaos_ms / setup.produce_every_ms / HANDLERS;
    let late_ms = setup.limits.catch_up.map_or(0, |a_second| late * 1_000 / a_second) as i64;
    let delay_ms = Slack::default().delay_ms + late_ms;
    Slack { clocks_ms, delay_ms, memory_short: setup.budget < 1_000, ..Slack::default() }
}

pub(crate) fn of(ledger: &Ledger) -> plain::History {
    let mut history = plain::History { wrongs: ledger.wrongs.clone(), ..plain::History::default() };
    history.asked = ledger.appends.iter().map(asked).collect();
    history.called = ledger.calls.iter().map(called).collect();
    history.rejected = ledger.rejected.keys().map(|(shard, offset)| (shard.0, *offset)).collect();
    answers(ledger, &mut history);
    for ((shard, place), known) in &ledger.places {
        let version = place.version.0;
        for ((epoch, sequence), at) in &known.starts {
            let (epoch, sequence, at) = (*epoch, *sequence, *at - BASE);
            history.begun.push(plain::Begun { at, shard: shard.0, version, epoch, sequence });
        }
        history.finished.extend(finished(*shard, version, known));
    }
    for ((shard, epoch), owners) in &ledger.owners {
        let read = ledger.loads.get(&(*shard, *epoch)).map(|at| *at as i64);
        history.owned.extend(owners.iter().map(|(at, owner)| plain::Owned {
            shard: shard.0,
            epoch: *epoch,
            owner: format!("{owner:032x}"),
            at: *at as i64,
            read,
        }));
    }
    for (shard, lines) in &ledger.reached {
        history.reached.extend(lines.iter().map(|line| reached(*shard, line)));
    }
    for (shard, (at, tasks, tasks_max)) in &ledger.held {
        let (at, tasks, tasks_max) = (*at as i64, *tasks, *tasks_max);
        history.held.push(plain::Held { at, shard: shard.0, tasks, tasks_max });
    }
    for (what, from, to) in &ledger.faults {
        let (from, to) = (*from as i64, *to as i64);
        history.faults.push(plain::Fault { what: (*what).into(), from, to });
    }
    for (shard, line) in &ledger.rested {
        let (owned, caught_up) = (line.owned.map(|at| at as i64), line.caught_up.map(|at| at as i64));
        history.rested.push(plain::Rested { shard: shard.0, healed: line.healed as i64, owned, caught_up });
    }
    left(ledger, &mut history);
    history
}

fn asked(append: &Append) -> plain::Asked {
    let at = append.at as i64;
    let asks = match append.asked {
        Asked::Schedule { may_lapse } => {
            plain::Asks::Schedule { due: None, payload: append.payload.unwrap_or(0).to_string(), may_lapse }
        }
        Asked::Cancel => plain::Asks::Cancel,
        Asked::Reschedule => plain::Asks::Reschedule { due: at },
        Asked::Redrive => plain::Asks::Redrive { payload: append.payload.map(|number| number.to_string()) },
        Asked::Abort => plain::Asks::Abort,
        Asked::Garbage => plain::Asks::Nonsense,
    };
    plain::Asked {
        shard: Some(append.shard.0),
        offset: Some(append.offset),
        appended: at,
        handed: None,
        acked: at,
        queue: None,
        id: None,
        asks,
        origin: append.origin.map(|(shard, offset)| (shard.0, offset)),
        misplaced: append.misplaced,
    }
}

fn called(call: &Call) -> plain::Called {
    let end = |outcome: Outcome| match outcome {
        Outcome::Succeeded => plain::End::Succeeded,
        Outcome::Fatal => plain::End::Fatal,
        Outcome::Snoozed => plain::End::Snoozed,
        Outcome::Retryable | Outcome::TimedOut => plain::End::Failed,
        Outcome::Aborted | Outcome::Interrupted | Outcome::NotCalled => plain::End::BrokenOff,
    };
    plain::Called {
        shard: call.shard.0,
        version: Some(call.version.0),
        decided: Some(call.decided),
        sent: Some(call.sent as i64),
        arrived: call.arrived as i64,
        ended: call.ended.map(|(at, outcome)| (at as i64, end(outcome))),
        queue: call.key.queue.as_str().into(),
        id: call.key.id.as_str().into(),
        due: call.due,
        ready: Some(call.ready),
        deadline: call.deadline,
        token: [u64::from(call.token.generation.0), call.token.epoch.0, call.token.sequence],
        attempt: call.attempt,
        max_attempts: Some(call.max_attempts),
        previous: call.previous.map(|outcome| outcome.word().into()),
        payload: call.payload.to_string(),
        refused: call.refused,
        broken_off: call.broken_off,
        parks: call.parks,
    }
}

fn answers(ledger: &Ledger, history: &mut plain::History) {
    for ((shard, version), answered) in &ledger.answers {
        let row = &answered.row;
        let current = row.current;
        let at = |wall: Option<dueline::model::Wall>| wall.map_or(0, |wall| wall.0 - BASE);
        history.answered.push(plain::Answered {
            at: answered.at as i64,
            shard: shard.0,
            offset: version.0,
            queue: row.key.queue.as_str().into(),
            id: row.key.id.as_str().into(),
            decided: decided(row.decision),
            current: current.map(|current| current.place.version.0),
            due: at(current.map(|current| current.due_at)),
            ready: at(current.map(|current| current.place.ready_at)),
        });
    }
}

fn decided(decision: Decision) -> plain::Decided {
    match decision {
        Decision::Scheduled => plain::Decided::Scheduled,
        Decision::Replaced => plain::Decided::Replaced,
        Decision::Rescheduled => plain::Decided::Rescheduled,
        Decision::Cancelled => plain::Decided::Cancelled,
        Decision::TooLate => plain::Decided::TooLate,
        Decision::Repeated => plain::Decided::Repeated,
        Decision::Kept | Decision::Conflict | Decision::OverQuota => plain::Decided::Refused,
        Decision::Unknown => plain::Decided::Unknown,
        Decision::CancelledBefore => plain::Decided::CancelledBefore,
        Decision::Redriven => plain::Decided::Redriven,
        Decision::NotDead => plain::Decided::NotDead,
        Decision::Aborted => plain::Decided::Aborted,
        Decision::NotRunning => plain::Decided::NotRunning,
    }
}

fn finished(shard: Shard, version: u64, known: &PlaceHistory) -> Vec<plain::Finished> {
    let mut lines: Vec<plain::Finished> = Vec::new();
    for (at, finished) in &known.turns {
        let at = *at as i64;
        let open = lines.last_mut().filter(|line| line.to.is_none());
        match (open, finished) {
            (None, true) => {
                let (from, to, closed) = (at, None, known.closed);
                lines.push(plain::Finished { shard: shard.0, version, from, to, closed });
            }
            (Some(line), false) => line.to = Some(at),
            (Some(_), true) | (None, false) => {}
        }
    }
    lines
}

fn reached(shard: Shard, line: &Reached) -> plain::Reached {
    plain::Reached {
        at: line.at as i64,
        shard: shard.0,
        applied: line.applied,
        watermark: line.watermark.map(|wall| wall.0 - BASE),
        committed: line.committed,
    }
}

fn left(ledger: &Ledger, history: &mut plain::History) {
    for (shard, place) in ledger.made() {
        let watermark = ledger.last_reached(shard).and_then(|line| line.watermark);
        history.left.push(plain::Left {
            shard: shard.0,
            version: place.version.0,
            ready: place.ready_at.0 - BASE,
            watermark: watermark.map_or(i64::MIN, |wall| wall.0 - BASE),
            finished: ledger.is_finished((shard, place), u64::MAX),
        });
    }
}
