//! Facts about the figures.

use dueline::testing::history::{Asked, Asks, Fault};

use super::*;
use crate::sample;

const CLEAR: Answers = Answers { done: 1, refused: 1, unclear: 0 };

fn measured(history: &History, recovery: Recovery, sent: usize, waits: Vec<i64>) -> Vec<bool> {
    let course = Course::of(history, sent, waits, 25_100);
    let brokers = BROKERS.iter().map(ToString::to_string).collect();
    let measured = Measured {
        history,
        course: &course,
        recoveries: &[recovery],
        hand_overs: &[],
        gaps: &[],
        gone: &[(brokers, 10_000, 60_000)],
        answers: CLEAR,
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
        let measured = Measured { hand_overs: &[hand_over], ..nothing(&history, &course) };
        of(Scenario::Drain, &measured).iter().map(|bound| bound.kept).collect::<Vec<_>>()
    };
    assert_eq!(kept(Some(1_000), 1), [true, true]);
    assert_eq!(kept(Some(1_001), 1), [true, false]);
    assert_eq!(kept(None, 1), [true, false]);
    assert_eq!(kept(Some(1), 2), [false, true]);
}

/// A run in which nothing was done but the load.
fn nothing<'a>(history: &'a History, course: &'a Course) -> Measured<'a> {
    Measured { history, course, recoveries: &[], hand_overs: &[], gaps: &[], gone: &[], answers: CLEAR }
}

#[test]
fn requests_without_a_quorum_or_a_broker_are_refused_clearly_or_done() {
    let (history, course) = (History::default(), Course::of(&History::default(), 0, Vec::new(), 0));
    let kept = |answers: Answers| {
        let measured = Measured { answers, ..nothing(&history, &course) };
        let scenarios = [Scenario::QuorumLoss, Scenario::CassandraGone, Scenario::KafkaGone];
        scenarios.map(|one| of(one, &measured).iter().all(|bound| bound.kept))
    };
    assert_eq!(kept(CLEAR), [true; 3]);
    assert_eq!(kept(Answers { unclear: 1, ..CLEAR }), [false; 3]);
    assert_eq!(kept(Answers { refused: 0, ..CLEAR }), [false; 3], "nobody asked for what cannot be done");
}

#[test]
fn a_bad_handler_makes_no_task_of_the_other_late() {
    let kept = |other: &[(i64, i64)], bad: Called| {
        let mut history = History {
            faults: vec![Fault { what: "bad".into(), from: 10_000, to: 30_000 }],
            called: vec![bad],
            ..History::default()
        };
        for (number, (due, late_ms)) in other.iter().enumerate() {
            let queue = format!("q{number}-1");
            history.asked.push(sample::asked(&queue, "t", 5));
            history.called.push(sample::called(&queue, "t", *due, (due + late_ms, due + late_ms + 1)));
        }
        let course = Course::of(&history, 2, Vec::new(), 40_000);
        let bounds = of(Scenario::Handlers, &nothing(&history, &course));
        bounds.iter().map(|bound| bound.kept).collect::<Vec<_>>()
    };
    let called = |ended| Called { ended, ..sample::called("q-2", "t", 15_000, (15_000, 15_001)) };
    let (failed, slow) = (called(Some((15_001, End::Failed))), called(Some((17_001, End::Succeeded))));
    assert_eq!(kept(&[(12_000, 500)], failed.clone()), [true]);
    assert_eq!(kept(&[(12_000, 500)], slow), [true]);
    assert_eq!(kept(&[(12_000, 501)], failed.clone()), [false]);
    assert_eq!(kept(&[(12_000, 5), (13_000, 20_000)], failed.clone()), [false], "it had to wait for the end");
    assert_eq!(kept(&[(1_000, 20_000)], failed.clone()), [false]);
    assert_eq!(kept(&[], failed), [false], "nothing of the other ran meanwhile");
    assert_eq!(kept(&[(12_000, 5)], called(Some((15_001, End::Succeeded)))), [false], "it was not bad");
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
        let mut history =
            History { asked: vec![sample::asked("q", "t", 0)], faults: vec![fault], ..History::default() };
        for at in (0..60_000).step_by(1_000) {
            let queue = format!("q{at}");
            let arrived = at + if at == 20_000 { late_ms } else { 5 };
            if !silent || !(24_000..36_000).contains(&at) {
                history.called.push(sample::called(&queue, "t", at, (arrived, arrived)));
            }
        }
        let course = Course::of(&history, 1, vec![1], 60_000);
        of(Scenario::Evacuate, &nothing(&history, &course)).last().map(|bound| bound.kept)
    };
    assert_eq!(
        (kept(1_000, false), kept(1_001, false), kept(5, true)),
        (Some(true), Some(false), Some(false))
    );
}

#[test]
fn all_tasks_from_before_a_wipe_run_while_every_quorum_needs_the_replacement() {
    let kept = |asked: &[&str], arrived: &[i64]| {
        let queue = format!("{RARE_QUEUE}1");
        let call = |(id, at): (&&str, &i64)| sample::called(&queue, id, 20_000, (*at, *at));
        let history = History {
            asked: asked.iter().map(|id| sample::asked(&queue, id, 5)).collect(),
            called: asked.iter().zip(arrived).map(call).collect(),
            ..History::default()
        };
        let course = Course::of(&history, asked.len(), vec![1], 60_000);
        let gone = &[(vec!["cassandra-1".to_owned()], 10_000, 60_000)];
        let measured = Measured { gone, ..nothing(&history, &course) };
        of(Scenario::NodeWiped, &measured).iter().all(|bound| bound.kept)
    };
    assert!(kept(&["a", "b"], &[10_000, 60_000]));
    // Never, before others were gone, when they were back; and where nothing was asked for nothing is shown.
    assert!(!kept(&["a", "b"], &[10_000]));
    assert!(!kept(&["a", "b"], &[10_000, 9_999]));
    assert!(!kept(&["a", "b"], &[10_000, 60_001]));
    assert!(!kept(&[], &[]));
}

#[test]
fn each_figure_is_missed_alone_and_all_can_be_kept() {
    assert_eq!(measured(&history(5), recovery(40_000), 1, vec![15_000]), [true; 6]);
    assert_eq!(
        measured(&history(5), recovery(40_000), 2, vec![15_000]),
        [false, true, true, true, true, true]
    );
    assert_eq!(
        measured(&history(5), recovery(40_000), 1, vec![15_001]),
        [true, false, true, true, true, true]
    );
    assert_eq!(measured(&history(5), recovery(40_001), 1, vec![1]), [true, true, false, true, true, true]);
    // Late, and after the outage; the first has lateness above a second until 25 s after the loss.
    assert_eq!(measured(&history(1_001), recovery(1), 1, vec![1]), [true, true, true, true, false, true]);
    assert_eq!(measured(&history(85_000), recovery(1), 1, vec![1]), [true, true, true, false, false, true]);
}

#[test]
fn when_instances_come_and_go_no_shard_stands_still_for_long() {
    let (history, course) = (history(5), Course::of(&history(5), 1, vec![1], 200_000));
    let kept = |gaps: &[i64]| {
        let measured = Measured { gaps, ..nothing(&history, &course) };
        let scenarios = [Scenario::Grow, Scenario::RebalanceStorm];
        scenarios.map(|one| of(one, &measured).iter().all(|bound| bound.kept))
    };
    assert_eq!(kept(&[10, 1_000]), [true; 2]);
    assert_eq!(kept(&[10, 1_001]), [false; 2]);
    assert_eq!(kept(&[]), [false; 2], "nothing moved");
}
