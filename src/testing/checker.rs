//! The history checker: reads ledgers, never the product, and says which promise was broken. One for the simulation, for
//! tests on real servers and for chaos.
//!
//! Each rule is a sort and a sweep. A rule whose ledger nobody wrote checks nothing, and the report says so: a count of
//! zero is not a proof. Where a ledger of answers is there, what was decided is known; otherwise only what a producer
//! can be sure of is judged, with time for the owner to have heard of it ([`Slack::known_ms`], and
//! [`Slack::known_near_ms`] near a fault).

use std::collections::BTreeMap;
use std::fmt::{Debug, Display, Formatter};

use super::history::{Called, History};

mod calls;
mod index;
mod order;
mod outcome;
mod shards;
mod stops;
mod story;
#[cfg(test)]
mod tests;

use index::Index;
pub use story::story;

/// What a history is judged by. The names are those of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Every acknowledged schedule that was not effectively stopped ran to its end.
    NothingLost,
    /// Every record is answered: on record, rejected, or counted once at its home.
    RecordsAnswered,
    /// Every run belongs to an acknowledged event, with its payload.
    NoPhantom,
    /// What was stopped in time does not run.
    StoppedStaysStopped,
    /// Accepted attempts of a queue do not overlap.
    NoOverlap,
    /// Order by (due, arrival) among tasks known at the time.
    InOrder,
    /// Nothing is called before it is due.
    NeverEarly,
    /// Epochs rise, one owner each, and nobody sends after the next owner has read.
    EpochsRise,
    /// Accepted tokens never fall within a queue.
    TokensNeverFall,
    /// Each further run has a reason, and says so; attempts are counted.
    DuplicatesExplained,
    /// Applied, watermark and committed offsets never go back.
    OffsetsNeverGoBack,
    /// Too late means that it had begun, or was over.
    AnswersTrue,
    /// A stuck queue delays no other.
    QueuesIndependent,
    /// The bound on tasks in memory is held.
    MemoryBounded,
    /// After faults end, every shard is owned and has caught up.
    ComesToRest,
    /// At the end the store holds nothing unfinished, least of all below the watermark.
    NothingUnfinished,
    /// Nothing that must never be was seen while it happened.
    NeverSeen,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 17] = [
        Rule::NothingLost,
        Rule::RecordsAnswered,
        Rule::NoPhantom,
        Rule::StoppedStaysStopped,
        Rule::NoOverlap,
        Rule::InOrder,
        Rule::NeverEarly,
        Rule::EpochsRise,
        Rule::TokensNeverFall,
        Rule::DuplicatesExplained,
        Rule::OffsetsNeverGoBack,
        Rule::AnswersTrue,
        Rule::QueuesIndependent,
        Rule::MemoryBounded,
        Rule::ComesToRest,
        Rule::NothingUnfinished,
        Rule::NeverSeen,
    ];

    /// Its name in a report.
    pub fn word(self) -> &'static str {
        match self {
            Rule::NothingLost => "nothing lost",
            Rule::RecordsAnswered => "records answered",
            Rule::NoPhantom => "no phantom",
            Rule::StoppedStaysStopped => "stopped stays stopped",
            Rule::NoOverlap => "no overlap",
            Rule::InOrder => "in order",
            Rule::NeverEarly => "never early",
            Rule::EpochsRise => "epochs rise",
            Rule::TokensNeverFall => "tokens never fall",
            Rule::DuplicatesExplained => "duplicates explained",
            Rule::OffsetsNeverGoBack => "offsets never go back",
            Rule::AnswersTrue => "answers true",
            Rule::QueuesIndependent => "queues independent",
            Rule::MemoryBounded => "memory bounded",
            Rule::ComesToRest => "comes to rest",
            Rule::NothingUnfinished => "nothing unfinished",
            Rule::NeverSeen => "forbidden state",
        }
    }
}

/// What the judge lets pass, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slack {
    /// Clocks differ by this much at most.
    pub clocks_ms: i64,
    /// What was acknowledged this long before is known to the owner of its queue.
    pub known_ms: i64,
    /// The same near a fault: of what was acknowledged from so long before its beginning to so long after its end.
    pub known_near_ms: i64,
    /// Both count from when the owner first said to have applied it, where that was later: on a slow machine it reads its log late,
    /// which is no broken promise.
    pub from_applied: bool,
    /// After faults end, a shard is owned and has caught up within this time.
    pub rest_ms: i64,
    /// With no fault about, a task whose turn it is starts within this time.
    pub delay_ms: i64,
    /// Records of one queue come from one producer with one partitioner: order is judged.
    pub ordered: bool,
    /// Tasks do not all fit into memory: one that came past due may still be in the store when its turn comes.
    pub memory_short: bool,
}

impl Default for Slack {
    fn default() -> Self {
        Slack {
            clocks_ms: 50,
            known_ms: 5_000,
            known_near_ms: 5_000,
            from_applied: false,
            rest_ms: 60_000,
            delay_ms: 120_000,
            ordered: true,
            memory_short: false,
        }
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which.
    pub rule: Rule,
    /// How, with the lines that show it.
    pub what: String,
    /// The queue concerned, where there is one.
    pub queue: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How much each rule had to go by.
    pub checked: BTreeMap<Rule, u64>,
    /// What was broken.
    pub wrongs: Vec<Wrong>,
    /// Further runs of a version, by cause.
    pub duplicates: BTreeMap<&'static str, u64>,
    /// Calls in all.
    pub calls: u64,
}

/// Broken promises that are kept word for word: more help nobody.
const WRONGS_MAX: usize = 200;

impl Report {
    fn count(&mut self, rule: Rule) {
        *self.checked.entry(rule).or_insert(0) += 1;
    }

    fn wrong(&mut self, rule: Rule, what: &str, queue: Option<&str>, shown: impl Debug) {
        if self.wrongs.len() < WRONGS_MAX {
            let what = format!("{what}: {shown:?}");
            self.wrongs.push(Wrong { rule, what, queue: queue.map(str::to_owned) });
        }
    }

    fn of_call(&mut self, rule: Rule, what: &str, call: &Called, shown: impl Debug) {
        self.wrong(rule, what, Some(&call.queue), shown);
    }

    fn explained(&mut self, cause: &'static str) {
        *self.duplicates.entry(cause).or_insert(0) += 1;
    }

    /// Violations of a rule.
    pub fn violations(&self, rule: Rule) -> usize {
        self.wrongs.iter().filter(|wrong| wrong.rule == rule).count()
    }

    /// Whether nothing was broken.
    pub fn is_clean(&self) -> bool {
        self.wrongs.is_empty()
    }
}

impl Display for Report {
    /// A line for each rule, then duplicates with their causes.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for rule in Rule::ALL {
            let checked = self.checked.get(&rule).copied().unwrap_or(0);
            writeln!(f, "{:<24} checked {checked:>8}  violations {}", rule.word(), self.violations(rule))?;
        }
        let all: u64 = self.duplicates.values().sum();
        let causes: Vec<String> = self.duplicates.iter().map(|(cause, n)| format!("{cause} {n}")).collect();
        write!(f, "{} calls, {all} further runs: {}", self.calls, causes.join(", "))
    }
}

/// Judges a history in which everything was given time to end.
pub fn check(history: &History, slack: &Slack) -> Report {
    let mut report = Report { calls: history.called.len() as u64, ..Report::default() };
    report.count(Rule::NeverSeen);
    for wrong in &history.wrongs {
        report.wrong(Rule::NeverSeen, "seen", None, wrong);
    }
    let index = Index::of(history, slack);
    calls::never_early(&index, &mut report);
    calls::no_overlap(&index, &mut report);
    calls::tokens_never_fall(&index, &mut report);
    calls::duplicates_are_explained(&index, &mut report);
    calls::attempts_are_counted(&index, &mut report);
    order::in_order(&index, &mut report);
    order::queues_are_independent(&index, &mut report);
    stops::what_was_stopped_stays_stopped(&index, &mut report);
    stops::answers_are_true(&index, &mut report);
    outcome::payloads_are_those_asked_for(&index, &mut report);
    outcome::nothing_is_lost(&index, &mut report);
    outcome::every_record_is_answered(&index, &mut report);
    shards::epochs_rise(&index, &mut report);
    shards::offsets_never_go_back(&index, &mut report);
    shards::memory_is_bounded(&index, &mut report);
    shards::comes_to_rest(&index, &mut report);
    shards::nothing_is_unfinished(&index, &mut report);
    report
}
