//! The figures that a scenario has to reach, beside the rules that hold in all of them.

use std::collections::BTreeSet;

use dueline::testing::history::{Called, End, Fault, History};
use serde::Serialize;

use crate::act::{MEANWHILE_QUEUE, RARE_QUEUE};
use crate::cluster::BROKERS;
use crate::course::{self, Answers, Course, First, HandOver, Recovery, Stretch};
use crate::event::is_even;
use crate::plan::Scenario;
use crate::run;
use crate::sink;
use crate::takeover::Spread;

/// Of all events so many are accepted while a data centre is lost, and none waits longer for it.
const ACCEPTED_PERCENT_MIN: f64 = 99.9;
/// And all of them while nothing is lost but what was drained before.
const ALL_PERCENT: f64 = 100.0;
const WAIT_MS_MAX: i64 = 15_000;
/// Others run the shards of a lost data centre within this.
const TAKEN_MS_MAX: i64 = 40_000;
/// When a drain, or a stop in good order, moves shards, none is without a running owner for longer.
const HAND_OVER_MS_MAX: i64 = 1_000;
/// While a data centre is emptied, off and filled again nothing is later (99th percentile of each 5 s).
const EVACUATION_LATE_MS_MAX: i64 = 1_000;
/// Lateness is what it was, so long after the loss.
const CALM_AFTER_MS_MAX: i64 = 90_000;
/// What is due while no event can be taken in is so late at most (99th percentile).
const MEANWHILE_MS_MAX: i64 = 1_000;

/// While one handler is bad, tasks of the other are so late at most (99th percentile).
const BESIDE_MS_MAX: i64 = 500;
/// A handler is bad for sure, so long after the beginning and before the end of its fault, in milliseconds.
const BAD_SINCE_MS: i64 = 100;

/// A figure, what is wanted of it, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Bound {
    pub(crate) what: String,
    pub(crate) wanted: String,
    pub(crate) measured: String,
    pub(crate) kept: bool,
}

/// What a run measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured<'a> {
    pub(crate) history: &'a History,
    pub(crate) course: &'a Course,
    pub(crate) recoveries: &'a [Recovery],
    pub(crate) hand_overs: &'a [HandOver],
    /// How long shards were without a running owner at each change of hands, in milliseconds.
    pub(crate) gaps: &'a [i64],
    /// Servers that were killed or frozen, since when, and until when.
    pub(crate) gone: &'a [(Vec<String>, i64, i64)],
    /// While there was no quorum of nodes, or no broker.
    pub(crate) answers: Answers,
}

/// The figures wanted in a scenario; none for those in which the rules are all.
pub(crate) fn of(scenario: Scenario, measured: &Measured<'_>) -> Vec<Bound> {
    match scenario {
        Scenario::DcLoss | Scenario::DcCut => {
            let mut all = vec![accepted(measured.course, ACCEPTED_PERCENT_MIN), waited(measured.course)];
            all.extend(measured.recoveries.iter().map(taken));
            all.extend(calm(measured));
            all
        }
        Scenario::RebalanceStorm => {
            vec![accepted(measured.course, ALL_PERCENT), all_handed_over(measured.gaps)]
        }
        Scenario::Drain | Scenario::Evacuate | Scenario::Upgrade | Scenario::Grow => {
            let mut all = vec![accepted(measured.course, ALL_PERCENT)];
            if scenario == Scenario::Grow {
                all.push(all_handed_over(measured.gaps));
            }
            all.extend(measured.hand_overs.iter().map(handed_over));
            if scenario == Scenario::Evacuate {
                let faults = measured.history.faults.iter();
                all.extend(faults.map(|fault| late_throughout(measured.course, fault)));
            }
            all
        }
        Scenario::ServersGrow => vec![accepted(measured.course, ALL_PERCENT), waited(measured.course)],
        Scenario::Mixed => measured.recoveries.iter().map(taken).collect(),
        Scenario::QuorumLoss | Scenario::CassandraGone => {
            let all = measured.recoveries.iter().map(taken);
            all.chain([answered("a quorum of nodes", measured.answers)]).collect()
        }
        Scenario::KafkaGone => {
            let all = measured.gone.iter().filter_map(|gone| meanwhile(measured.history, gone));
            all.chain([answered("a broker", measured.answers)]).collect()
        }
        Scenario::NodeWiped => vec![from_before(measured)],
        Scenario::Handlers => beside(measured.history).collect(),
        _ => Vec::new(),
    }
}

/// Whether the machine carries the load by itself.
pub(crate) fn carried(calm_ms: Option<i64>) -> Bound {
    Bound {
        what: "lateness below 1 s before anything is done".to_owned(),
        wanted: format!("after at most {} s", run::CALM_MS.1 / 1_000),
        measured: course::after_text(calm_ms, "never"),
        kept: calm_ms.is_some(),
    }
}

fn accepted(course: &Course, percent_min: f64) -> Bound {
    let share = course.accepted as f64 * 100.0 / course.sent.max(1) as f64;
    Bound {
        what: "events accepted".to_owned(),
        wanted: format!("at least {percent_min} %"),
        measured: format!("{share:.2} %"),
        kept: share >= percent_min,
    }
}

fn waited(course: &Course) -> Bound {
    let longest = course.waits.as_ref().map(|waits| waits.max_ms);
    Bound {
        what: "longest wait of an event for its acknowledgement".to_owned(),
        wanted: format!("at most {WAIT_MS_MAX} ms"),
        measured: longest.map_or_else(|| "none was accepted".to_owned(), |ms| format!("{ms} ms")),
        kept: longest.is_some_and(|ms| ms <= WAIT_MS_MAX),
    }
}

fn taken(Recovery { dc, took_ms, .. }: &Recovery) -> Bound {
    Bound {
        what: format!("{dc} lost: all shards run elsewhere"),
        wanted: format!("after at most {TAKEN_MS_MAX} ms"),
        measured: format!("{took_ms} ms"),
        kept: *took_ms <= TAKEN_MS_MAX,
    }
}

/// A drain that moved nothing was none.
fn handed_over(HandOver { what, shards, longest_ms, .. }: &HandOver) -> Bound {
    let told = longest_ms.map(|ms| format!("{ms} ms, {shards} changes of hands"));
    Bound {
        what: format!("{what}: a shard without a running owner"),
        wanted: format!("for at most {HAND_OVER_MS_MAX} ms"),
        measured: told.unwrap_or_else(|| "no shard changed hands".to_owned()),
        kept: longest_ms.is_some_and(|ms| ms <= HAND_OVER_MS_MAX),
    }
}

/// Whatever moved the shards: joins one after the other have no end that one could be measured by.
fn all_handed_over(gaps: &[i64]) -> Bound {
    let longest_ms = gaps.iter().max();
    Bound {
        what: "any change of hands: a shard without a running owner".to_owned(),
        wanted: format!("for at most {HAND_OVER_MS_MAX} ms"),
        measured: longest_ms
            .map_or_else(|| "none".to_owned(), |ms| format!("{ms} ms, {} changes of hands", gaps.len())),
        kept: longest_ms.is_some_and(|ms| *ms <= HAND_OVER_MS_MAX),
    }
}

/// Lateness all through a fault, a stretch without a call being none.
fn late_throughout(course: &Course, fault: &Fault) -> Bound {
    let is_within = |stretch: &&Stretch| {
        let at = course.begun + stretch.at_ms;
        fault.from < at + course::STRETCH_MS && at < fault.to
    };
    let stretches = course.stretches.iter().filter(is_within);
    let late: Vec<Option<i64>> = stretches.map(|one| Some(one.lateness.as_ref()?.p99_ms)).collect();
    let worst = late.iter().flatten().max();
    let silent = late.iter().filter(|late| late.is_none()).count();
    Bound {
        what: format!("{}: lateness (p99 of 5 s) all the time", fault.what),
        wanted: format!("at most {EVACUATION_LATE_MS_MAX} ms"),
        measured: match worst {
            Some(ms) => format!("{ms} ms at worst, {silent} of {} stretches without a call", late.len()),
            None => "no call".to_owned(),
        },
        kept: silent == 0 && worst.is_some_and(|ms| *ms <= EVACUATION_LATE_MS_MAX),
    }
}

fn calm<'a>(measured: &Measured<'a>) -> impl Iterator<Item = Bound> + use<'a> {
    measured.course.calm_after_ms.iter().map(|(what, calm_ms)| Bound {
        what: format!("{what}: lateness (p99 of 5 s) below 1 s again"),
        wanted: format!("after at most {} s", CALM_AFTER_MS_MAX / 1_000),
        measured: course::calm_text(*calm_ms),
        kept: calm_ms.is_some_and(|ms| ms <= CALM_AFTER_MS_MAX),
    })
}

/// Tasks of the handler that stays as it is, while the other is bad: slots and retries are its own.
fn beside(history: &History) -> impl Iterator<Item = Bound> {
    let first = course::first_attempts(history);
    history.faults.iter().map(move |fault| {
        let of_other = first
            .iter()
            .filter(|one| !is_even(one.queue) && one.since <= fault.to && one.arrived >= fault.from);
        let other = Spread::of(&mut of_other.map(First::late_ms).collect::<Vec<_>>());
        // A moment at each end, when it is not told yet, or was not.
        let inside = fault.from + BAD_SINCE_MS..fault.to - BAD_SINCE_MS;
        let bad = history.called.iter().filter(|one| is_even(&one.queue) && inside.contains(&one.arrived));
        let (calls, well) = (bad.clone().count(), bad.filter(|one| went_well(one)).count());
        let told = other.map_or_else(|| "no call".to_owned(), |late| late.to_string());
        Bound {
            what: format!("{}: lateness of the other handler's tasks", fault.what),
            wanted: format!("p99 at most {BESIDE_MS_MAX} ms, and no call of its own that goes well"),
            measured: format!("{told}; {well} of its own {calls} calls went well"),
            kept: other.is_some_and(|late| late.p99_ms <= BESIDE_MS_MAX) && calls > 0 && well == 0,
        }
    })
}

/// As a call of a bad handler does not: it succeeds, at once.
fn went_well(called: &Called) -> bool {
    let soon = called.arrived + sink::SLOW_MS;
    called.ended.is_some_and(|(at, end)| end == End::Succeeded && at < soon)
}

/// Tasks that were due while all brokers were gone.
fn meanwhile(history: &History, (names, from, to): &(Vec<String>, i64, i64)) -> Option<Bound> {
    if !BROKERS.iter().all(|broker| names.iter().any(|name| name == broker)) {
        return None;
    }
    let asked = history.asked.iter().filter(|asked| asked.queue.as_deref().is_some_and(is_meanwhile)).count();
    let first = |arrived: i64, attempt: u32| attempt == 1 && (*from..=*to).contains(&arrived);
    let called =
        history.called.iter().filter(|one| is_meanwhile(&one.queue) && first(one.arrived, one.attempt));
    let ran: BTreeSet<(&str, &str)> =
        called.clone().map(|one| (one.queue.as_str(), one.id.as_str())).collect();
    let late = Spread::of(&mut called.map(|one| one.arrived - one.due).collect::<Vec<_>>());
    let told = late.as_ref().map(|late| format!(": {late}")).unwrap_or_default();
    Some(Bound {
        what: "tasks due while all brokers were gone".to_owned(),
        wanted: format!("all run meanwhile, p99 at most {MEANWHILE_MS_MAX} ms late"),
        measured: format!("{} of {asked} ran{told}", ran.len()),
        kept: ran.len() == asked && late.is_some_and(|late| late.p99_ms <= MEANWHILE_MS_MAX),
    })
}

/// When nothing was refused, nobody was asked for what could not be done.
fn answered(without: &str, answers: Answers) -> Bound {
    Bound {
        what: format!("requests by HTTP without {without}"),
        wanted: "some refused, all with a clear error, the others done".to_owned(),
        measured: answers.to_string(),
        kept: answers.refused > 0 && answers.unclear == 0,
    }
}

fn is_meanwhile(queue: &str) -> bool {
    queue.starts_with(MEANWHILE_QUEUE)
}

/// Tasks that were taken in before a node lost its disk. While others are gone nobody has them but what took its place.
fn from_before(measured: &Measured<'_>) -> Bound {
    let Measured { history, gone, .. } = measured;
    let asked: BTreeSet<(&str, &str)> = history
        .asked
        .iter()
        .filter_map(|one| Some((one.queue.as_deref()?, one.id.as_deref()?)))
        .filter(|(queue, _)| queue.starts_with(RARE_QUEUE))
        .collect();
    let is_needed = |at: i64| gone.iter().any(|(_, from, to)| (*from..=*to).contains(&at));
    let ran: BTreeSet<(&str, &str)> = history
        .called
        .iter()
        .filter(|one| one.queue.starts_with(RARE_QUEUE) && is_needed(one.arrived))
        .map(|one| (one.queue.as_str(), one.id.as_str()))
        .collect();
    Bound {
        what: "tasks from before the wipe".to_owned(),
        wanted: "all run while every quorum needs the replacement".to_owned(),
        measured: format!("{} of {} ran", ran.len(), asked.len()),
        kept: !asked.is_empty() && ran == asked,
    }
}

#[cfg(test)]
mod tests;
