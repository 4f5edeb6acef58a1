//! Shards, their owners, and the numbers that order everything: epoch, version, fencing token.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::late::Segment;
use super::limits::VERSION_OFFSET_BITS;
use super::time::Wall;

/// One partition of the schedule topic with everything stored for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u32);

/// A shard's ownership number, only rising. 0 = never owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// The life of a shard's log: raised by `dueline shard reset`, else 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u32);

impl Generation {
    /// The last one that versions have room for.
    pub const MAX: Generation = Generation((i64::MAX as u64 >> VERSION_OFFSET_BITS) as u32);

    /// The one after it; `None` after the last.
    pub fn next(self) -> Option<Generation> {
        (self < Generation::MAX).then(|| Generation(self.0 + 1))
    }
}

/// The number of a schedule event in its shard: generation, then offset. Orders everything that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

impl Version {
    /// Before every version.
    pub const MIN: Version = Version(0);
    /// After every version.
    pub const MAX: Version = Version(i64::MAX as u64);

    /// The version of the record at `offset` in `generation`.
    pub fn new(generation: Generation, offset: u64) -> Version {
        assert!(offset < 1 << VERSION_OFFSET_BITS, "an offset never reaches 2^44");
        Version(u64::from(generation.0) << VERSION_OFFSET_BITS | offset)
    }

    /// The generation part.
    pub fn generation(self) -> Generation {
        Generation((self.0 >> VERSION_OFFSET_BITS) as u32)
    }

    /// The offset part.
    pub fn offset(self) -> u64 {
        self.0 & ((1 << VERSION_OFFSET_BITS) - 1)
    }
}

/// Names one attempt, rises within a queue, and is what a handler fences by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptToken {
    /// The shard's generation.
    pub generation: Generation,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Rising within the epoch.
    pub sequence: u64,
}

impl fmt::Display for AttemptToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.generation.0, self.epoch.0, self.sequence)
    }
}

/// The text is no token: `generation.epoch.sequence`, three whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no fencing token: wanted generation.epoch.sequence, as in 0.2.11")]
pub struct NoToken;

impl FromStr for AttemptToken {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<AttemptToken, NoToken> {
        let parts: Vec<&str> = text.split('.').collect();
        let [generation, epoch, sequence] = parts[..] else { return Err(NoToken) };
        let number = |part: &str| {
            let is_plain = part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| is_plain).ok_or(NoToken)
        };
        Ok(AttemptToken {
            generation: Generation(number(generation)?.try_into().map_err(|_| NoToken)?),
            epoch: Epoch(number(epoch)?),
            sequence: number(sequence)?,
        })
    }
}

/// Fresh for every bump, so that an unknown outcome can be told from another's success.
pub type OwnerUuid = u128;

/// The row of `shard_owner`: who may run a shard. Changed only by compare-and-set on the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OwnerRow {
    /// The present epoch; 0 when no row exists yet.
    pub epoch: Epoch,
    /// Fresh for the bump that made this epoch.
    pub owner: OwnerUuid,
    /// The highest epoch whose owner let go in order; equal to `epoch` = nobody owns the shard.
    pub released_epoch: Epoch,
    /// The lease of this epoch's owner, in milliseconds.
    pub lease_ms: u64,
    /// What this epoch's owner itself has to wait for, in milliseconds; 0 once the one before has let go for it; when it has let
    /// go, what the next owner has to wait for.
    pub wait_ms: u64,
    /// The owner's instance name, for people.
    pub instance: String,
    /// Where the owner's HTTP interface answers, for the hop.
    pub advertise: String,
}

/// Letting a shard go in order: a change of its owner row, applied only if that still has `epoch` and `owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release {
    /// The highest epoch that is let go.
    pub released: Epoch,
    /// The epoch that the row has to have: the one let go, or that of who has bumped since and waits.
    pub epoch: Epoch,
    /// Its owner.
    pub owner: OwnerUuid,
    /// What the next owner has to wait for, in milliseconds: the rest of a wait that had not ended; 0 for one that waits.
    pub wait_ms: u64,
}

/// The row of `shard_progress`: how far one epoch got. The newest of the highest epoch counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The epoch that wrote it.
    pub epoch: Epoch,
    /// The generation of the log.
    pub generation: Generation,
    /// Identity of the topic the offsets belong to; empty when not known yet.
    pub topic_id: String,
    /// The first offset whose rows are not all stored: everything below is applied.
    pub next_offset: u64,
    /// The highest leader epoch that is known, of records that are applied and of ends that were told: who leads in a lower one is
    /// not the leader any more. `None` = there is none, or it is not known.
    pub leader_epoch: Option<u32>,
    /// Every task ready at or before this time is finished, or has a pointer in a queue of `late`.
    pub watermark: Wall,
    /// The list of late queues that the watermark rests on; `None` = there are none.
    pub late: Option<Segment>,
    /// For each origin partition of forwarded records: the last one applied.
    pub marks: BTreeMap<Shard, OriginMark>,
    /// What is published as task events; `None` = everything, or nothing is to be.
    pub told: Option<Told>,
    /// Each event below `next_offset` that may be packed is in the rows of `event_ids` of this chunk and of those above. `None` = none is.
    pub ids_from: Option<u64>,
    /// And so is each other event: an id that is in none of them has none.
    pub ids_are_all: bool,
    /// Where each generation before this one ended that listed ids: what would have come next. Events from there on may be on record,
    /// and in no list.
    pub ends: Vec<Version>,
}

/// What is published as task events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Offsets below this: what was decided is published.
    pub next_offset: u64,
    /// Facts of the row's epoch with a time up to this are published.
    pub own: Wall,
    /// Of lower epochs: facts with a time after this may be left to be published; `None` = none are left.
    pub before: Option<Wall>,
}

/// The last record of an origin partition that was applied here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginMark {
    /// The origin partition's generation.
    pub generation: Generation,
    /// Its offset in the origin partition.
    pub origin_offset: u64,
    /// Its offset here.
    pub home_offset: u64,
}

#[cfg(test)]
mod tests {
    use super::{AttemptToken, Epoch, Generation, NoToken};

    #[test]
    fn a_token_is_read_back_from_its_text_and_compares_as_numbers() {
        let token = AttemptToken { generation: Generation(0), epoch: Epoch(10), sequence: 1 };
        assert_eq!(token.to_string().parse(), Ok(token));
        assert!("0.9.1".parse::<AttemptToken>().is_ok_and(|lower| lower < token));
        for text in
            ["", "1", "1.2", "1.2.3.4", "1.2.x", "+1.2.3", "1..3", "-1.2.3", "4294967296.1.1", " 1.2.3"]
        {
            assert_eq!(text.parse::<AttemptToken>(), Err(NoToken), "{text:?}");
        }
    }
}
