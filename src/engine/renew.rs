//! A log that lost records, and one that begins anew: a person accepts the loss, and the shard goes on with what the log holds.
//!
//! ```text
//!   the log lacks what comes next ──► what was fetched is applied ──► stopped ──reset──► lets go ──► takes itself over
//!                                                                                                        │
//!        the next generation, from where the loss ends ◄── the reset is of this progress and this topic ─┘
//! ```
//!
//! Versions are of generation, then offset: everything of the log before comes first. An accepted loss is that of one generation,
//! up to one offset, and one topic that follows it ([`Reset::fits`]): any other stops the shard again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{OriginMark, Progress, Reset, Shard, Told, Version};

use super::effect::Observation;
use super::input::{Failure, LogEnd};
use super::{Engine, Stage};

/// What a log lost of what was still to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// How that is known, in words.
    pub why: String,
    /// Where the log has records again, or will have.
    pub first: u64,
    /// Identity of the topic that is there; empty when it is not known.
    pub topic_id: String,
}

impl Engine {
    /// The log says that an offset is gone: its end tells whether that is so.
    pub(super) fn look_for_loss(&mut self, what: &'static str, failure: &Failure) {
        self.trouble(what, failure);
        self.stop_intake();
        self.read_end_soon();
    }

    /// Nothing more is read. The shard stops once what was fetched is applied: of half of it rows may be on record.
    pub(super) fn lose(&mut self, loss: Loss) {
        self.stop_intake();
        self.end_is_known();
        self.lost = Some(Arc::new(loss));
        self.stop_when_applied();
    }

    /// Who still reads its tasks has applied nothing of what was fetched.
    pub(super) fn stop_when_applied(&mut self) {
        let Some(loss) = self.lost.clone().filter(|_| self.is_active()) else { return };
        if self.stage == Stage::Loading || self.intake.backlog() == 0 {
            self.stage = Stage::Stopped;
            self.observe(Observation::Stopped(loss.why.clone()));
        }
    }

    /// A person accepts a loss. It may have been told before, and may be of a loss that is over.
    pub(super) fn reset_asked(&mut self, reset: Arc<Reset>) {
        let is_seen = |loss: &Arc<Loss>| (&loss.topic_id, loss.first) == (&reset.topic_id, reset.first);
        let is_of_now = self.stage == Stage::Stopped && self.lost.as_ref().is_some_and(is_seen);
        let is_of_now = is_of_now && self.commit.has_come_to(&reset);
        self.accepted = Some(reset);
        if is_of_now {
            self.let_go();
        }
    }

    /// Whether the log has to be seen before this progress is taken.
    pub(super) fn may_begin_anew(&self, progress: &Progress) -> bool {
        self.accepted.as_ref().is_some_and(|reset| reset.fits(progress))
    }

    /// The progress with which a shard goes on that came to `progress` before its log lost records: of the next generation, from
    /// where the loss ends. As it was, when that loss is not accepted, or another topic is there by now.
    pub(super) fn begun_anew(&mut self, progress: Progress, end: &LogEnd) -> Progress {
        let accepted = self.accepted.clone().filter(|reset| reset.fits(&progress));
        let Some(reset) = accepted.filter(|reset| reset.topic_id == end.topic_id) else { return progress };
        let Some(generation) = progress.generation.next() else { return progress };
        let (wanted, first) = (progress.next_offset, reset.first);
        self.observe(Observation::BegunAnew { generation, wanted, first });
        Progress {
            generation,
            next_offset: first,
            // Epochs begin anew with a topic.
            leader_epoch: progress.leader_epoch.filter(|_| progress.topic_id == end.topic_id),
            topic_id: end.topic_id.clone(),
            // Decisions that were not published cannot be read again.
            told: progress.told.map(|told| Told { next_offset: first, ..told }),
            marks: before_all(progress.marks),
            // What comes after it is on record, maybe, and will be read again by nobody.
            ids_are_all: false,
            ends: progress.ids_from.map_or_else(Vec::new, |_| {
                let mut ends = progress.ends.clone();
                ends.push(Version::new(progress.generation, wanted));
                ends
            }),
            ..progress
        }
    }
}

/// Marks whose home offsets are of another log. The last record of an origin that they name is a repeat wherever it comes again, and
/// the next one is not.
fn before_all(marks: BTreeMap<Shard, OriginMark>) -> BTreeMap<Shard, OriginMark> {
    let next = |mark: OriginMark| OriginMark {
        origin_offset: mark.origin_offset + 1,
        home_offset: i64::MAX as u64,
        ..mark
    };
    marks.into_iter().map(|(origin, mark)| (origin, next(mark))).collect()
}

impl LogEnd {
    /// Why it is not believed: a later leader epoch is known of, so who said it led before, and does not know what was written since.
    /// A leader that is cut off from its controllers answers on as if nothing were. While it leads its end never falls: one of the
    /// epoch that is known, and below `next`, was not told yet what its followers had when it was cut off. The epochs of another
    /// topic are others.
    pub(super) fn of_a_former_leader(&self, progress: &Progress, next: u64) -> Option<Failure> {
        let (led, leads) = (progress.leader_epoch?, self.leader_epoch?);
        let is_of_it = !self.topic_id.is_empty() && self.topic_id == progress.topic_id;
        let is_former = leads < led || (leads == led && self.next < next);
        (is_of_it && is_former).then(|| {
            Failure::Unavailable(format!(
                "a broker that led in epoch {leads} says that the log ends at {}: epoch {led} is known of, and {next} is what comes next",
                self.next
            ))
        })
    }

    /// What the log lost of what comes after a progress; `next` = the offset after what was applied when its end was asked for.
    pub(super) fn loss(&self, progress: &Progress, next: u64) -> Option<Loss> {
        let (was, is) = (&progress.topic_id, &self.topic_id);
        let are_known = !was.is_empty() && !is.is_empty();
        let loss = |first, why| Some(Loss { why, first, topic_id: is.clone() });
        let (wanted, first) = (progress.next_offset, self.first);
        if are_known && was != is {
            return loss(first, format!("the topic was created anew: {was} became {is}"));
        }
        if wanted < first {
            let why = format!("offset {wanted} is wanted, the log begins at {first}: records are gone");
            return loss(first, why);
        }
        if next <= self.next {
            return None;
        }
        // What comes now lies behind what is left of that topic; of one that is not known it may be all there is.
        let first = if are_known { self.next } else { first };
        loss(first, format!("offset {next} is wanted, the log ends at {}: records are gone", self.next))
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Generation, Version};

    #[test]
    fn generations_end_where_versions_do() {
        assert_eq!(Generation(0).next(), Some(Generation(1)));
        assert_eq!(Generation::MAX.next(), None);
        let last = Version::new(Generation::MAX, (1 << 44) - 1);
        assert_eq!(last, Version::MAX);
    }
}
