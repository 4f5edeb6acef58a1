//! What producers, handlers and watchers of store and log saw, each written down where it happened. At the end it becomes
//! a history, in the checker's own words. Times are simulated milliseconds since the start.

use std::collections::BTreeMap;

use dueline::model::{AttemptToken, EventRow, Outcome, OwnerUuid, Place, Shard, TaskKey, Version, Wall};

/// Wall time at the start of every simulation.
pub(crate) const BASE: i64 = 1_800_000_000_000;

/// What a producer asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Schedule {
        may_lapse: bool,
    },
    Cancel,
    Reschedule,
    Redrive,
    Abort,
    /// A record that is no event, or that has to be refused.
    Garbage,
}

/// One record as it was appended to a partition, by a producer or by a forward.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) at: u64,
    pub(crate) shard: Shard,
    pub(crate) offset: u64,
    pub(crate) asked: Asked,
    /// Number in the payload of a schedule event.
    pub(crate) payload: Option<u64>,
    /// Where it was forwarded from.
    pub(crate) origin: Option<(Shard, u64)>,
    /// Lies on another shard than its home.
    pub(crate) misplaced: bool,
    /// Schedules a task of the collection.
    pub(crate) of_collection: bool,
}

/// One call as its handler saw it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) shard: Shard,
    /// When its owner let it go out.
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    pub(crate) key: TaskKey,
    pub(crate) version: Version,
    pub(crate) due: i64,
    pub(crate) ready: i64,
    pub(crate) payload: u64,
    pub(crate) token: AttemptToken,
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) decided: i64,
    pub(crate) deadline: i64,
    pub(crate) previous: Option<Outcome>,
    /// The guard refused its token.
    pub(crate) refused: bool,
    pub(crate) ended: Option<(u64, Outcome)>,
    /// When its handler asks to be called again, in milliseconds after its answer.
    pub(crate) asks_ms: Option<u64>,
    /// The owner broke it off.
    pub(crate) broken_off: bool,
    /// Its queue does not wait for its next try.
    pub(crate) parks: bool,
}

/// The answer on record for one event: the row of the highest epoch, and when a majority first had it.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) at: u64,
    pub(crate) row: EventRow,
}

/// What is on record about one place: when it became unfinished or finished, and when each attempt was decided.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlaceHistory {
    /// (time, whether its facts say finished from then on).
    pub(crate) turns: Vec<(u64, bool)>,
    /// (epoch, sequence) → when the start was decided.
    pub(crate) starts: BTreeMap<(u64, u64), i64>,
    /// (epoch, sequence) → when a majority first had the end.
    pub(crate) ends: BTreeMap<(u64, u64), u64>,
    /// Whether it was closed without an attempt, or given up as its policy says.
    pub(crate) closed: bool,
}

/// How far a shard was, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) at: u64,
    pub(crate) applied: Option<u64>,
    pub(crate) watermark: Option<Wall>,
    pub(crate) committed: Option<u64>,
}

/// How a shard came to rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rested {
    pub(crate) healed: u64,
    /// Where the log ended then.
    pub(crate) end: u64,
    pub(crate) owned: Option<u64>,
    pub(crate) caught_up: Option<u64>,
}

/// Everything that was written down.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) appends: Vec<Append>,
    pub(crate) calls: Vec<Call>,
    pub(crate) answers: BTreeMap<(Shard, Version), Answered>,
    pub(crate) places: BTreeMap<(Shard, Place), PlaceHistory>,
    /// Offsets on the rejected topic.
    pub(crate) rejected: BTreeMap<(Shard, u64), u64>,
    /// When each epoch began, and whose it is: more than one only if something went wrong.
    pub(crate) owners: BTreeMap<(Shard, u64), Vec<(u64, OwnerUuid)>>,
    /// When an epoch's owner first read tasks.
    pub(crate) loads: BTreeMap<(Shard, u64), u64>,
    /// The highest epoch of each shard that read the progress of those before: they reach nothing any more.
    pub(crate) took_over: BTreeMap<Shard, u64>,
    pub(crate) reached: BTreeMap<Shard, Vec<Reached>>,
    /// The most tasks a shard held in memory, and the bound.
    pub(crate) held: BTreeMap<Shard, (u64, usize, usize)>,
    pub(crate) rested: BTreeMap<Shard, Rested>,
    /// What went wrong from when to when.
    pub(crate) faults: Vec<(&'static str, u64, u64)>,
    /// What broke a rule the moment it happened.
    pub(crate) wrongs: Vec<String>,
    /// Rare events, by name.
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Ledger {
    /// Counts something that does not happen in every run.
    pub(crate) fn count(&mut self, event: &'static str) {
        *self.counts.entry(event).or_insert(0) += 1;
    }

    pub(crate) fn wrong(&mut self, what: String) {
        self.wrongs.push(what);
    }

    /// The tasks that answers made.
    pub(crate) fn made(&self) -> impl Iterator<Item = (Shard, Place)> {
        self.answers.values().filter_map(|answered| {
            let current = answered.row.current?;
            (current.place.version == answered.row.version).then_some((answered.row.shard, current.place))
        })
    }

    /// The tasks that something is still to happen to.
    pub(crate) fn unfinished(&self, now: u64) -> Vec<(Shard, Place)> {
        self.made().filter(|at| !self.is_finished(*at, now)).collect()
    }

    pub(crate) fn is_finished(&self, at: (Shard, Place), now: u64) -> bool {
        self.places.get(&at).is_some_and(|place| place.finished_at(now))
    }

    /// The durable progress of a shard as last written down.
    pub(crate) fn last_reached(&self, shard: Shard) -> Option<&Reached> {
        self.reached.get(&shard)?.iter().rev().find(|line| line.applied.is_some())
    }
}

impl PlaceHistory {
    /// Whether it was finished at `at`.
    pub(crate) fn finished_at(&self, at: u64) -> bool {
        self.turns.iter().take_while(|(turn, _)| *turn <= at).last().is_some_and(|(_, finished)| *finished)
    }
}
