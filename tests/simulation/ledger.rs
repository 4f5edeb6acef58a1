//! What producers, handlers and the store's clients saw, each written down where it happened. The checker reads
//! nothing else. Times are simulated milliseconds since the start.

use std::collections::BTreeMap;

use dueline::model::{AttemptToken, EventRow, Outcome, Place, Shard, TaskKey, Version};

/// Wall time at the start of every simulation.
pub(crate) const BASE: i64 = 1_800_000_000_000;

/// What a producer asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Schedule,
    Cancel,
    Reschedule,
    /// A record that is no event.
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
    pub(crate) deadline: i64,
    pub(crate) says_previous: bool,
    /// The guard refused its token.
    pub(crate) refused: bool,
    pub(crate) ended: Option<(u64, Outcome)>,
    /// The owner broke it off.
    pub(crate) broken_off: bool,
}

/// The answer on record for one event: the row of the highest epoch, and when it was first stored.
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
    /// First mark stored, and the version that wrote it.
    pub(crate) marks: BTreeMap<Version, u64>,
    /// Whether it was closed without an attempt.
    pub(crate) closed: bool,
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
    /// When each epoch began.
    pub(crate) bumps: BTreeMap<(Shard, u64), u64>,
    /// When an epoch's owner first read tasks.
    pub(crate) loads: BTreeMap<(Shard, u64), u64>,
    /// (time, next offset) of the durable progress.
    pub(crate) applied: BTreeMap<Shard, Vec<(u64, u64)>>,
    /// When the log was away.
    pub(crate) log_away: Vec<(u64, u64)>,
    /// What broke a rule the moment it happened.
    pub(crate) wrongs: Vec<String>,
    /// The tasks do not all fit into memory: a past-due one that came late may still be in the store.
    pub(crate) memory_is_short: bool,
    /// Rare paths, by name.
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Ledger {
    pub(crate) fn count(&mut self, path: &'static str) {
        *self.counts.entry(path).or_insert(0) += 1;
    }

    /// The tasks that something is still to happen to.
    pub(crate) fn unfinished(&self, now: u64) -> Vec<(Shard, Place)> {
        let makes = |answered: &&Answered| {
            answered.row.current.is_some_and(|current| current.place.version == answered.row.version)
        };
        let places = self.answers.values().filter(makes).filter_map(|answered| {
            let place = answered.row.current?.place;
            Some((answered.row.shard, place))
        });
        places.filter(|at| !self.places.get(at).is_some_and(|place| place.finished_at(now))).collect()
    }

    /// When everything below the event of `version` and itself was durably applied.
    pub(crate) fn applied_at(&self, shard: Shard, version: Version) -> Option<u64> {
        let steps = self.applied.get(&shard)?;
        steps.iter().find(|(_, next)| *next > version.offset()).map(|(at, _)| *at)
    }
}

impl PlaceHistory {
    /// Whether it was finished at `at`.
    pub(crate) fn finished_at(&self, at: u64) -> bool {
        self.turns.iter().take_while(|(turn, _)| *turn <= at).last().is_some_and(|(_, finished)| *finished)
    }
}
