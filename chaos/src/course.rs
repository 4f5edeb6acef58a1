//! How a run went over time, from its ledgers alone: what was accepted, what was called, how late.
//!
//! A task's lateness begins when nothing of its own queue stands before it: when it is due, was accepted, and the call
//! before it in its queue has ended. Only first attempts count; what a failed attempt waits for is its policy.

use std::collections::BTreeMap;
use std::fmt;

use dueline::testing::history::{Asked, Asks, Called, End, History};
use serde::Serialize;

use crate::takeover::Spread;

/// Lateness is looked at in stretches of this, in milliseconds.
pub(crate) const STRETCH_MS: i64 = 5_000;
/// After a fault it is to be below this again for 99 of 100, in milliseconds.
const CALM_MS: i64 = 1_000;

/// A data centre that was lost.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Recovery {
    pub(crate) dc: String,
    /// With all that was in it, or by its network alone.
    pub(crate) whole: bool,
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Until others ran all its shards, in milliseconds.
    pub(crate) took_ms: i64,
}

/// Shards that changed hands because somebody asked for it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HandOver {
    pub(crate) what: String,
    /// How many did, some twice perhaps.
    pub(crate) shards: usize,
    /// Without a running owner for so long, the longest of them; `None` = none changed hands.
    pub(crate) longest_ms: Option<i64>,
    /// From the request until all was as asked for, in milliseconds.
    pub(crate) took_ms: i64,
}

/// What instances answered by HTTP while there was no quorum of nodes, or no broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) done: usize,
    /// With an error that says what is away.
    pub(crate) refused: usize,
    /// Neither: not in time, or in words that say nothing.
    pub(crate) unclear: usize,
}

impl Answers {
    /// These and others.
    pub(crate) fn and(self, other: Answers) -> Answers {
        Answers {
            done: self.done + other.done,
            refused: self.refused + other.refused,
            unclear: self.unclear + other.unclear,
        }
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answers { done, refused, unclear } = self;
        let asked = done + refused + unclear;
        write!(text, "{asked} asked, {done} done, {refused} refused with a clear error, {unclear} neither")
    }
}

/// What a run came to, in figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Course {
    /// Events handed to the client, and those that a broker acknowledged.
    pub(crate) sent: usize,
    pub(crate) accepted: usize,
    /// The longest time between two acknowledgements, and between two calls, in milliseconds.
    pub(crate) without_accepts_ms: i64,
    pub(crate) without_calls_ms: i64,
    /// From handing an event to the client to its acknowledgement, in milliseconds.
    pub(crate) waits: Option<Spread>,
    /// Of all first attempts, in milliseconds.
    pub(crate) lateness: Option<Spread>,
    /// For each fault: how long after its beginning the last stretch ended in which lateness was above a second (99th percentile) or
    /// nothing was called, in milliseconds; 0 = there was none, `None` = it was above still when the next fault began, or the run ended.
    pub(crate) calm_after_ms: Vec<(String, Option<i64>)>,
    pub(crate) stretches: Vec<Stretch>,
    /// The same, for pictures: since when, and each second.
    #[serde(skip)]
    pub(crate) begun: i64,
    #[serde(skip)]
    pub(crate) seconds: Vec<Stretch>,
}

/// Some time of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stretch {
    /// When it begins, in milliseconds after the first event.
    pub(crate) at_ms: i64,
    pub(crate) accepted: usize,
    pub(crate) calls: usize,
    /// Calls that failed, that were broken off, and that the fence refused, by when they ended.
    pub(crate) failed: usize,
    pub(crate) broken_off: usize,
    pub(crate) refused: usize,
    pub(crate) lateness: Option<Spread>,
}

impl Course {
    /// `sent` events were handed to the client until `load_ended`; those acknowledged waited so long for it.
    pub(crate) fn of(history: &History, sent: usize, mut waits: Vec<i64>, load_ended: i64) -> Course {
        let until =
            history.called.iter().map(|called| called.arrived).max().unwrap_or(load_ended).max(load_ended);
        let begun = history.asked.iter().map(|asked| asked.appended).min().unwrap_or(until);
        let late = lateness(history);
        let of_length = |length_ms| stretches(history, &late, begun, until, length_ms);
        let (stretches, seconds) = (of_length(STRETCH_MS), of_length(1_000));
        let mut all: Vec<i64> = late.iter().map(|(_, late_ms)| *late_ms).collect();
        let calm_after = history.faults.iter().enumerate().map(|(number, fault)| {
            let end = history.faults.get(number + 1).map_or(until, |next| next.from);
            let is_of = |at: i64| (fault.from..end).contains(&at);
            // While events come all the time, nothing called is nothing that runs.
            let is_silent = |one: &Stretch| one.calls == 0 && begun + one.at_ms + STRETCH_MS <= load_ended;
            let bad = |one: &&Stretch| {
                let is_late = one.lateness.is_some_and(|late| late.p99_ms > CALM_MS);
                is_of(begun + one.at_ms) && (is_late || is_silent(one))
            };
            let last = stretches.iter().filter(bad).map(|one| begun + one.at_ms + STRETCH_MS).max();
            let calm = last.is_none_or(|last| last < end).then(|| last.map_or(0, |last| last - fault.from));
            (fault.what.clone(), calm)
        });
        let calm_after_ms = calm_after.collect();
        Course {
            sent,
            accepted: history.asked.len(),
            without_accepts_ms: longest_gap(history.asked.iter().map(|asked| asked.acked), load_ended),
            without_calls_ms: longest_gap(history.called.iter().map(|called| called.arrived), load_ended),
            waits: Spread::of(&mut waits),
            lateness: Spread::of(&mut all),
            calm_after_ms,
            stretches,
            begun,
            seconds,
        }
    }

    /// Whether lateness was below a second in the last stretch that is over.
    pub(crate) fn is_calm(&self) -> bool {
        let over = self.stretches.iter().rev().nth(1).and_then(|last| last.lateness);
        over.is_some_and(|late| late.p99_ms <= CALM_MS)
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let Course { sent, accepted, without_accepts_ms, without_calls_ms, lateness, .. } = self;
        let share = *accepted as f64 * 100.0 / (*sent).max(1) as f64;
        let mut text = format!(
            "{accepted} of {sent} events accepted ({share:.2} %); longest time without one {without_accepts_ms} ms, without a call {without_calls_ms} ms"
        );
        if let Some(waits) = &self.waits {
            text += &format!("\nfrom an event to its acknowledgement: {waits}");
        }
        if let Some(lateness) = lateness {
            text += &format!("\nlateness of first attempts: {lateness}");
        }
        for (what, calm) in &self.calm_after_ms {
            text += &format!("\n{what}: lateness (p99 of 5 s) below 1 s again {}", calm_text(*calm));
        }
        text
    }
}

/// When lateness was below a second again, for people.
pub(crate) fn calm_text(calm_ms: Option<i64>) -> String {
    after_text(calm_ms, "not before the next fault")
}

/// After how long something was so, or what to say when it never was, for people.
pub(crate) fn after_text(ms: Option<i64>, never: &str) -> String {
    ms.map_or_else(|| never.to_owned(), |ms| format!("after {:.0} s", ms as f64 / 1e3))
}

/// When each first attempt arrived, and how late it was.
fn lateness(history: &History) -> Vec<(i64, i64)> {
    first_attempts(history).into_iter().map(|one| (one.arrived, one.late_ms())).collect()
}

/// A first attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First<'a> {
    pub(crate) queue: &'a str,
    /// Since when it was due, accepted, and first in its queue.
    pub(crate) since: i64,
    pub(crate) arrived: i64,
}

impl First<'_> {
    pub(crate) fn late_ms(&self) -> i64 {
        (self.arrived - self.since).max(0)
    }
}

/// All of them, in the order in which they arrived.
pub(crate) fn first_attempts(history: &History) -> Vec<First<'_>> {
    let mut asked: BTreeMap<(&str, &str), Vec<&Asked>> = BTreeMap::new();
    for one in &history.asked {
        // A cancel that comes too late makes no task less late.
        let asks_for_a_run = matches!(one.asks, Asks::Schedule { .. } | Asks::Reschedule { .. });
        if let (Some(queue), Some(id)) = (&one.queue, &one.id)
            && asks_for_a_run
        {
            asked.entry((queue, id)).or_default().push(one);
        }
    }
    let mut calls: Vec<&Called> = history.called.iter().filter(|called| !called.refused).collect();
    calls.sort_by_key(|called| called.arrived);
    let mut free: BTreeMap<&str, i64> = BTreeMap::new();
    let mut late = Vec::new();
    for called in calls {
        let known = asked.get(&(called.queue.as_str(), called.id.as_str()));
        let accepted = accepted(called, known.map_or(&[], Vec::as_slice));
        let before = free.get(called.queue.as_str()).copied().unwrap_or(i64::MIN);
        if called.attempt == 1 {
            let since = called.due.max(accepted).max(before);
            late.push(First { queue: &called.queue, since, arrived: called.arrived });
        }
        let ended = called.ended.map_or(called.deadline, |(at, _)| at);
        free.insert(&called.queue, ended.max(before));
    }
    late
}

/// When it was heard of that a task was accepted with the due time of its call: that may be after the call, which is then no later than
/// it was called.
fn accepted(called: &Called, asked: &[&Asked]) -> i64 {
    let is_of = |one: &Asked| due_of(one) == called.due;
    let is_known = asked.iter().any(|one| is_of(one));
    let mut acked = asked.iter().filter(|one| !is_known || is_of(one)).map(|one| one.acked);
    let heard = acked.clone().filter(|acked| *acked <= called.arrived).max();
    heard.or_else(|| acked.next().map(|_| called.arrived)).unwrap_or(called.due)
}

/// When a task is due by what was asked.
fn due_of(asked: &Asked) -> i64 {
    match asked.asks {
        Asks::Reschedule { due } | Asks::Schedule { due: Some(due), .. } => due,
        _ => asked.appended,
    }
}

fn stretches(history: &History, late: &[(i64, i64)], begun: i64, until: i64, length_ms: i64) -> Vec<Stretch> {
    let count = usize::try_from((until - begun) / length_ms + 1).unwrap_or(0);
    let index = |at: i64| usize::try_from((at - begun).div_euclid(length_ms)).ok().filter(|n| *n < count);
    let (mut accepted, mut calls, mut lates) = (vec![0; count], vec![0; count], vec![Vec::new(); count]);
    history.asked.iter().filter_map(|asked| index(asked.acked)).for_each(|n| accepted[n] += 1);
    history.called.iter().filter_map(|called| index(called.arrived)).for_each(|n| calls[n] += 1);
    late.iter().filter_map(|(at, ms)| Some((index(*at)?, *ms))).for_each(|(n, ms)| lates[n].push(ms));
    let ended = |wanted: fn(&Called) -> bool| {
        let mut counts = vec![0; count];
        let of = history.called.iter().filter(|called| wanted(called));
        let ends = of.filter_map(|called| index(called.ended.map_or(called.arrived, |(at, _)| at)));
        ends.for_each(|n| counts[n] += 1);
        counts
    };
    let failed = ended(|called| matches!(called.ended, Some((_, End::Failed))));
    let broken_off = ended(|called| called.broken_off && !called.refused);
    let refused = ended(|called| called.refused);
    let of = |(n, mut late): (usize, Vec<i64>)| Stretch {
        at_ms: n as i64 * length_ms,
        accepted: accepted[n],
        calls: calls[n],
        failed: failed[n],
        broken_off: broken_off[n],
        refused: refused[n],
        lateness: Spread::of(&mut late),
    };
    lates.into_iter().enumerate().map(of).collect()
}

/// Between two of these times, or from the last one until then.
fn longest_gap(times: impl Iterator<Item = i64>, until: i64) -> i64 {
    let mut times: Vec<i64> = times.filter(|at| *at <= until).collect();
    times.sort_unstable();
    times.extend(times.last().map(|_| until));
    times.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use dueline::testing::history::Fault;

    use super::*;
    use crate::sample;

    fn asked(id: &str, acked: i64) -> Asked {
        sample::asked("q", id, acked)
    }

    fn called(id: &str, due: i64, arrived: i64, ended: i64, attempt: u32) -> Called {
        Called { attempt, ..sample::called("q", id, due, (arrived, ended)) }
    }

    #[test]
    fn lateness_begins_when_a_task_is_due_accepted_and_first_in_its_queue() {
        let history = History {
            asked: vec![asked("a", 0), asked("b", 10), asked("c", 4_000)],
            called: vec![
                called("a", 1_000, 1_005, 3_000, 1),
                called("a", 1_000, 3_500, 3_600, 2),
                called("b", 1_500, 3_607, 3_608, 1),
                called("c", 2_000, 4_009, 4_010, 1),
            ],
            ..History::default()
        };
        assert_eq!(lateness(&history).iter().map(|(_, late)| *late).collect::<Vec<_>>(), [5, 7, 9]);
        let course = Course::of(&history, 4, vec![3, 4, 5], 20_000);
        assert_eq!((course.accepted, course.sent), (3, 4));
        assert_eq!(
            (course.without_accepts_ms, course.without_calls_ms),
            (16_000, 15_991),
            "until the load ends"
        );
        assert_eq!(course.stretches.iter().map(|one| one.calls).collect::<Vec<_>>(), [4, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_called_before_its_acknowledgement_is_not_late() {
        let of = |asks: Asks, acked| Asked { asks, ..asked("a", acked) };
        let moved = |due, acked| of(Asks::Reschedule { due }, acked);
        let late = |asked: Vec<Asked>| {
            let called = vec![called("a", 10_000, 70_000, 70_050, 1)];
            lateness(&History { asked, called, ..History::default() })
        };
        assert_eq!(late(vec![asked("a", 5), moved(10_000, 70_030)]), [(70_000, 0)]);
        assert_eq!(late(vec![asked("a", 5), moved(10_000, 69_970)]), [(70_000, 30)]);
        assert_eq!(late(vec![asked("a", 5), moved(10_000, 50)]), [(70_000, 60_000)]);
    }

    #[test]
    fn what_goes_wrong_with_calls_is_counted_when_they_end() {
        let failed = Called { ended: Some((5_500, End::Failed)), ..called("a", 0, 1_000, 5_500, 1) };
        let broken = Called { broken_off: true, ended: Some((6_000, End::BrokenOff)), ..failed.clone() };
        let refused =
            Called { refused: true, arrived: 100, ended: Some((100, End::BrokenOff)), ..broken.clone() };
        let asked = vec![asked("a", 0)];
        let history = History { asked, called: vec![failed, broken, refused], ..History::default() };
        let course = Course::of(&history, 1, vec![1], 9_000);
        let errors: Vec<_> =
            course.stretches.iter().map(|one| (one.failed, one.broken_off, one.refused)).collect();
        assert_eq!(errors, [(0, 0, 1), (1, 1, 0)]);
    }

    #[test]
    fn a_fault_is_over_when_no_stretch_after_it_is_late_any_more() {
        let mut history = History { asked: vec![asked("a", 0)], ..History::default() };
        let late_until = 22_000;
        for n in 0..100 {
            let due = n * 1_000;
            let late = if (11_000..late_until).contains(&due) { 3_000 } else { 10 };
            let id = format!("t{n}");
            history.called.push(Called { queue: id.clone(), ..called(&id, due, due + late, due + late, 1) });
        }
        let fault = |what: &str, from| Fault { what: what.into(), from, to: from + 5_000 };
        history.faults = vec![fault("lost", 10_000), fault("lost again", 60_000)];
        let course = Course::of(&history, 1, vec![1], 100_000);
        assert_eq!(
            course.calm_after_ms,
            [("lost".to_owned(), Some(15_000)), ("lost again".to_owned(), Some(0))]
        );
        history.faults = vec![fault("lost", 10_000), fault("too soon", 17_000)];
        let course = Course::of(&history, 1, vec![1], 100_000);
        assert_eq!(course.calm_after_ms, [("lost".to_owned(), None), ("too soon".to_owned(), Some(8_000))]);
    }
}
