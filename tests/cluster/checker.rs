//! The ledgers of this test as a history, for the checker that the simulation and chaos use too.

use dueline::testing::checker::{self, Report, Rule, Slack};
use dueline::testing::history::{self, Asked, Called, History};

use crate::ledger::{Asks, Call, End, Sent};

/// Promises that hold for every producer but order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Of each queue one producer with one partitioner.
    Kept,
    /// Producers with several partitioners write to one queue.
    NotPromised,
}

/// What was found.
pub(crate) struct Verdict {
    report: Report,
    /// Events that came in time for sure to stop what was before them.
    pub(crate) stopped: usize,
}

/// Checks both ledgers after everything was given time to run.
pub(crate) fn check(sent: &[Sent], calls: &[Call], order: Order) -> Verdict {
    let history = History {
        asked: sent.iter().map(asked).collect(),
        called: calls.iter().map(called).collect(),
        ..History::default()
    };
    let slack = Slack { ordered: order == Order::Kept, ..Slack::default() };
    let report = checker::check(&history, &slack);
    let stopped = report.checked.get(&Rule::StoppedStaysStopped).copied().unwrap_or(0);
    Verdict { report, stopped: usize::try_from(stopped).unwrap_or(usize::MAX) }
}

impl Verdict {
    /// Panics with the first violations, if there are any.
    pub(crate) fn expect_clean(&self) {
        eprintln!("{}", self.report);
        let shown: Vec<_> = self.report.wrongs.iter().take(10).collect();
        assert!(self.report.is_clean(), "{} violations, among them {shown:#?}", self.report.wrongs.len());
    }
}

fn asked(sent: &Sent) -> Asked {
    let asks = match &sent.planned.asks {
        Asks::Schedule { due, payload } => {
            history::Asks::Schedule { due: *due, payload: payload.clone(), may_lapse: false }
        }
        Asks::Fragile { payload } => {
            history::Asks::Schedule { due: None, payload: payload.clone(), may_lapse: true }
        }
        Asks::Redrive { payload } => history::Asks::Redrive { payload: Some(payload.clone()) },
        Asks::Reschedule { due } => history::Asks::Reschedule { due: *due },
        Asks::Cancel => history::Asks::Cancel,
        Asks::Nonsense => history::Asks::Nonsense,
    };
    Asked {
        shard: None,
        offset: None,
        appended: sent.appended,
        handed: None,
        acked: sent.acked,
        queue: Some(sent.planned.queue.clone()),
        id: Some(sent.planned.id.clone()),
        asks,
        origin: None,
        misplaced: false,
    }
}

/// Lengths are those of the clock that never steps.
fn called(call: &Call) -> Called {
    let end = |end: End| match end {
        End::Succeeded => history::End::Succeeded,
        End::Failed => history::End::Failed,
        End::BrokenOff => history::End::BrokenOff,
    };
    Called {
        shard: call.shard,
        version: None,
        decided: None,
        sent: None,
        arrived: call.wall,
        ended: call.ended.map(|(at_us, how)| (call.wall + (at_us - call.begun_us) / 1_000, end(how))),
        queue: call.queue.clone(),
        id: call.id.clone(),
        due: call.due,
        ready: None,
        deadline: call.deadline,
        token: call.token,
        attempt: call.attempt,
        max_attempts: None,
        previous: call.previous.clone(),
        payload: call.payload.clone(),
        refused: false,
        broken_off: matches!(call.ended, Some((_, End::BrokenOff))),
        parks: false,
    }
}
