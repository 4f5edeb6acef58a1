//! Reads the producers' ledger and the sink's, and says which promise was broken. Each check is a sort and a sweep.
//!
//! It is small and shares nothing with the checker of the simulation: that one is told versions and epochs, this one
//! only sees what any producer and any handler of an installation see.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::ledger::{Asks, Call, End, Sent};

/// Clocks are those of one machine; the product promises 50 ms.
const EARLY_MS: i64 = 50;
/// What was acknowledged this long before is known to the owner of a queue; how far intake may lag under load.
const KNOWN_AFTER_MS: i64 = 5_000;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) wrongs: Vec<String>,
    pub(crate) tasks: usize,
    pub(crate) calls: usize,
    /// Tasks whose cancel came in time for sure.
    pub(crate) cancelled: usize,
    /// Calls after one that succeeded, each of which said what became of the one before.
    pub(crate) duplicates: usize,
    /// Calls whose caller went away.
    pub(crate) broken_off: usize,
}

/// Promises that hold for every producer but order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Of each queue one producer with one partitioner.
    Kept,
    /// Producers with several partitioners write to one queue.
    NotPromised,
}

type Key<'a> = (&'a str, &'a str);
/// A record and its number in the ledger: of one queue, the order they were sent in is that of their arrival.
type Event<'a> = (usize, &'a Sent);

/// What the records of one task add up to.
#[derive(Default)]
struct Task<'a> {
    events: Vec<Event<'a>>,
    calls: Vec<&'a Call>,
}

/// The place of a task in the order of its queue, and from when it was to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Placed {
    due: i64,
    arrival: usize,
    acked: i64,
}

/// Checks both ledgers after everything was given time to run.
pub(crate) fn check(sent: &[Sent], calls: &[Call], order: Order) -> Verdict {
    let mut verdict = Verdict { calls: calls.len(), ..Verdict::default() };
    let mut tasks: BTreeMap<Key<'_>, Task<'_>> = BTreeMap::new();
    for (n, sent) in sent.iter().enumerate().filter(|(_, sent)| sent.planned.asks != Asks::Nonsense) {
        tasks.entry((&sent.planned.queue, &sent.planned.id)).or_default().events.push((n, sent));
    }
    for call in calls {
        match tasks.get_mut(&(call.queue.as_str(), call.id.as_str())) {
            Some(task) => task.calls.push(call),
            None => verdict.wrong("phantom: nobody asked for this", call),
        }
    }
    verdict.tasks = tasks.len();
    tasks.values().for_each(|task| task.check(&mut verdict));
    let mut queues: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    calls.iter().for_each(|call| queues.entry(&call.queue).or_default().push(call));
    for calls in queues.values_mut() {
        calls.sort_by_key(|call| call.begun_us);
        no_overlap(calls, &mut verdict);
        tokens_never_fall(calls, &mut verdict);
        if order == Order::Kept {
            in_order(calls, &tasks, &mut verdict);
        }
    }
    verdict
}

impl Verdict {
    fn wrong(&mut self, what: &str, shown: impl Debug) {
        self.wrongs.push(format!("{what}: {shown:?}"));
    }

    /// Panics with the first violations, if there are any.
    pub(crate) fn expect_clean(&self) {
        let Verdict { wrongs, tasks, calls, cancelled, duplicates, broken_off } = self;
        eprintln!(
            "checked {tasks} tasks, {calls} calls, {cancelled} cancelled in time, {duplicates} duplicates explained, {broken_off} calls broken off: {} violations",
            wrongs.len()
        );
        let shown: Vec<&String> = wrongs.iter().take(10).collect();
        assert!(wrongs.is_empty(), "{} violations, among them {shown:#?}", wrongs.len());
    }
}

impl Task<'_> {
    fn check(&self, verdict: &mut Verdict) {
        self.runs_once_unless_stopped(verdict);
        self.stopped_in_time(verdict);
        self.never_early(verdict);
        self.payload_is_as_sent(verdict);
        self.repeats_are_explained(verdict);
    }

    /// From when the task may run after each of its events: `None` = not at all.
    fn ready_after(&self) -> Vec<Option<i64>> {
        let ready = self.events.iter().map(|(_, event)| match &event.planned.asks {
            Asks::Schedule { due, .. } => Some(due.unwrap_or(event.appended).max(event.appended)),
            Asks::Reschedule { due } => Some((*due).max(event.appended)),
            Asks::Cancel | Asks::Nonsense => None,
        });
        ready.collect()
    }

    fn runs_once_unless_stopped(&self, verdict: &mut Verdict) {
        let may_not_run = self.ready_after().last().is_none_or(Option::is_none);
        if !may_not_run && !self.calls.iter().any(|call| call.succeeded()) {
            verdict.wrong("lost: no call of this succeeded", (&self.events, &self.calls));
        }
    }

    /// After a cancel or reschedule that came well before its task was ready, the old task does not start.
    fn stopped_in_time(&self, verdict: &mut Verdict) {
        let ready = self.ready_after();
        for (index, pair) in ready.windows(2).enumerate() {
            let (Some(before), event) = (pair[0], self.events[index + 1].1) else { continue };
            if event.acked + KNOWN_AFTER_MS > before {
                continue;
            }
            verdict.cancelled += usize::from(pair[1].is_none());
            let from = pair[1].unwrap_or(i64::MAX);
            if let Some(call) = self.calls.iter().find(|call| call.wall < from - EARLY_MS) {
                verdict.wrong("ran although it was stopped in time", (event, call));
            }
        }
    }

    fn never_early(&self, verdict: &mut Verdict) {
        let earliest = self.ready_after().into_iter().flatten().min().unwrap_or(i64::MAX);
        if let Some(call) = self.calls.iter().find(|call| call.wall < earliest.max(call.due) - EARLY_MS) {
            verdict.wrong("called before it was due", (call, earliest));
        }
    }

    fn payload_is_as_sent(&self, verdict: &mut Verdict) {
        let sent = |call: &&Call| {
            self.events.iter().any(|(_, event)| match &event.planned.asks {
                Asks::Schedule { payload, .. } => *payload == call.payload,
                _ => false,
            })
        };
        if let Some(call) = self.calls.iter().copied().find(|call| !sent(call)) {
            verdict.wrong("phantom: another payload than any that was sent", call);
        }
    }

    /// A further call has a reason, and says so.
    fn repeats_are_explained(&self, verdict: &mut Verdict) {
        for pair in self.calls.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            verdict.duplicates += usize::from(first.succeeded());
            let later_owner = second.token[..2] > first.token[..2];
            if first.succeeded() && !later_owner {
                verdict.wrong("ran again although it succeeded", (first, second));
            }
            if second.previous.is_none() {
                verdict.wrong("a repeat does not say so", (first, second));
            }
        }
        verdict.broken_off +=
            self.calls.iter().filter(|call| matches!(call.ended, Some((_, End::BrokenOff)))).count();
    }
}

/// A call that was broken off holds its queue until its deadline.
fn no_overlap(calls: &[&Call], verdict: &mut Verdict) {
    for pair in calls.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        let deadline = first.begun_us + (first.deadline - first.wall) * 1_000;
        let held_until = match first.ended {
            Some((at, End::Succeeded | End::Failed)) => at.min(deadline),
            Some((_, End::BrokenOff)) | None => deadline,
        };
        if second.begun_us < held_until - EARLY_MS * 1_000 {
            verdict.wrong("two calls of a queue at once", (first, second));
        }
    }
}

fn tokens_never_fall(calls: &[&Call], verdict: &mut Verdict) {
    for pair in calls.windows(2) {
        if pair[1].token <= pair[0].token {
            verdict.wrong("fencing tokens do not rise within a queue", (pair[0], pair[1]));
        }
    }
}

/// No task starts for the first time while one before it, known and ready, has not succeeded.
fn in_order(calls: &[&Call], tasks: &BTreeMap<Key<'_>, Task<'_>>, verdict: &mut Verdict) {
    let mut first_of: BTreeMap<&str, &Call> = BTreeMap::new();
    calls.iter().for_each(|call| {
        first_of.entry(&call.id).or_insert(call);
    });
    let mut firsts: Vec<(&Call, Placed)> = first_of
        .values()
        .filter_map(|call| {
            let task = tasks.get(&(call.queue.as_str(), call.id.as_str()))?;
            Some((*call, placed(task, call)))
        })
        .collect();
    firsts.sort_by_key(|(call, _)| call.begun_us);
    for (index, (call, place)) in firsts.iter().enumerate() {
        let overtaken = firsts[index + 1..].iter().find(|(_, later)| {
            later < place && later.acked + KNOWN_AFTER_MS < call.wall && later.due <= call.wall
        });
        if let Some(overtaken) = overtaken {
            verdict.wrong("ran before another that comes first", ((call, place), overtaken));
        }
    }
}

/// The place by the last event that set the due time the call was made for.
fn placed(task: &Task<'_>, call: &Call) -> Placed {
    let sets = |event: &&Event<'_>| match &event.1.planned.asks {
        Asks::Schedule { due: Some(due), .. } | Asks::Reschedule { due } => *due == call.due,
        Asks::Schedule { due: None, .. } => true,
        Asks::Cancel | Asks::Nonsense => false,
    };
    let (arrival, event) = *task.events.iter().rev().find(sets).unwrap_or(&task.events[0]);
    Placed { due: call.due, arrival, acked: event.acked }
}
