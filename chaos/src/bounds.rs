//! The figures that a scenario has to reach, beside the rules that hold in all of them.

use std::collections::BTreeSet;

use dueline::testing::history::{Fault, History};
use serde::Serialize;

use crate::act::MEANWHILE_QUEUE;
use crate::cluster::BROKERS;
use crate::course::{self, Course, HandOver, Recovery, Stretch};
use crate::plan::Scenario;
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
    /// Servers that were killed or frozen, since when, and until when.
    pub(crate) gone: &'a [(Vec<String>, i64, i64)],
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
        Scenario::Drain | Scenario::Evacuate | Scenario::Upgrade | Scenario::Grow => {
            let mut all = vec![accepted(measured.course, ALL_PERCENT)];
            all.extend(measured.hand_overs.iter().map(handed_over));
            if scenario == Scenario::Evacuate {
                let faults = measured.history.faults.iter();
                all.extend(faults.map(|fault| late_throughout(measured.course, fault)));
            }
            all
        }
        Scenario::ServersGrow => vec![accepted(measured.course, ALL_PERCENT), waited(measured.course)],
        Scenario::QuorumLoss | Scenario::Mixed => measured.recoveries.iter().map(taken).collect(),
        Scenario::KafkaGone => {
            measured.gone.iter().filter_map(|gone| meanwhile(measured.history, gone)).collect()
        }
        _ => Vec::new(),
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

fn is_meanwhile(queue: &str) -> bool {
    queue.starts_with(MEANWHILE_QUEUE)
}

#[cfg(test)]
mod tests {
    use dueline::testing::history::{Asked, Asks, Fault};

    use super::*;
    use crate::sample;

    fn measured(history: &History, recovery: Recovery, sent: usize, waits: Vec<i64>) -> Vec<bool> {
        let course = Course::of(history, sent, waits, 25_100);
        let brokers = BROKERS.iter().map(ToString::to_string).collect();
        let measured = Measured {
            history,
            course: &course,
            recoveries: &[recovery],
            hand_overs: &[],
            gone: &[(brokers, 10_000, 60_000)],
        };
        let scenarios = [Scenario::DcLoss, Scenario::KafkaGone];
        scenarios.iter().flat_map(|one| of(*one, &measured)).map(|bound| bound.kept).collect()
    }

    #[test]
    fn a_drain_keeps_its_figures_when_shards_moved_and_none_stood_still_for_long() {
        let kept = |longest_ms: Option<i64>, sent| {
            let history = history(5);
            let course = Course::of(&history, sent, vec![1], 200_000);
            let what = "i-1 drained".to_owned();
            let hand_over = HandOver { what, shards: 3, longest_ms, took_ms: 9 };
            let (recoveries, gone) = (&[], &[]);
            let measured =
                Measured { history: &history, course: &course, recoveries, hand_overs: &[hand_over], gone };
            of(Scenario::Drain, &measured).iter().map(|bound| bound.kept).collect::<Vec<_>>()
        };
        assert_eq!(kept(Some(1_000), 1), [true, true]);
        assert_eq!(kept(Some(1_001), 1), [true, false]);
        assert_eq!(kept(None, 1), [true, false]);
        assert_eq!(kept(Some(1), 2), [false, true]);
    }

    fn recovery(took_ms: i64) -> Recovery {
        Recovery { dc: "dc1".into(), whole: true, from: 10_000, to: 60_000, took_ms }
    }

    fn history(late_ms: i64) -> History {
        let queue = format!("{MEANWHILE_QUEUE}1");
        let asks = Asks::Schedule { due: Some(20_000), payload: String::new(), may_lapse: false };
        let asked = Asked { asks, ..sample::asked(&queue, "t", 5) };
        let arrived = 20_000 + late_ms;
        let called = sample::called(&queue, "t", 20_000, (arrived, arrived + 1));
        let faults = vec![Fault { what: "dc1 lost".into(), from: 10_000, to: 60_000 }];
        History { asked: vec![asked], called: vec![called], faults, ..History::default() }
    }

    #[test]
    fn an_evacuation_keeps_lateness_low_all_the_time_and_something_runs_all_the_time() {
        let kept = |late_ms: i64, silent: bool| {
            let fault = Fault { what: "dc1 evacuated".into(), from: 10_000, to: 40_000 };
            let mut history = History {
                asked: vec![sample::asked("q", "t", 0)],
                faults: vec![fault],
                ..History::default()
            };
            for at in (0..60_000).step_by(1_000) {
                let queue = format!("q{at}");
                let arrived = at + if at == 20_000 { late_ms } else { 5 };
                if !silent || !(24_000..36_000).contains(&at) {
                    history.called.push(sample::called(&queue, "t", at, (arrived, arrived)));
                }
            }
            let course = Course::of(&history, 1, vec![1], 60_000);
            let (recoveries, hand_overs, gone) = (&[], &[], &[]);
            let measured = Measured { history: &history, course: &course, recoveries, hand_overs, gone };
            of(Scenario::Evacuate, &measured).last().map(|bound| bound.kept)
        };
        assert_eq!(
            (kept(1_000, false), kept(1_001, false), kept(5, true)),
            (Some(true), Some(false), Some(false))
        );
    }

    #[test]
    fn each_figure_is_missed_alone_and_all_can_be_kept() {
        assert_eq!(measured(&history(5), recovery(40_000), 1, vec![15_000]), [true; 5]);
        assert_eq!(measured(&history(5), recovery(40_000), 2, vec![15_000]), [false, true, true, true, true]);
        assert_eq!(measured(&history(5), recovery(40_000), 1, vec![15_001]), [true, false, true, true, true]);
        assert_eq!(measured(&history(5), recovery(40_001), 1, vec![1]), [true, true, false, true, true]);
        // Late, and after the outage; the first has lateness above a second until 25 s after the loss.
        assert_eq!(measured(&history(1_001), recovery(1), 1, vec![1]), [true, true, true, true, false]);
        assert_eq!(measured(&history(85_000), recovery(1), 1, vec![1]), [true, true, true, false, false]);
    }
}
