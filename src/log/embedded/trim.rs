//! Dropping the first records of a partition: of the schedule topic what is applied, but for the newest records; of the
//! others what their retention says.
//!
//! The engine commits only offsets whose records are applied, so a commit is the hint to drop below it. Records go
//! in steps, one change of the writer's for each, never one by one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::partition::{DROP_FRAMES_MAX, Span};
use super::topic::TopicState;
use crate::log::Error;
use crate::model::Shard;
use crate::store::embedded::{Batch, Database, Failure};

/// Newest records of a partition that stay, applied or not, for whoever looks.
pub(super) const KEEP_RECORDS: u64 = 1_000;
/// A commit drops nothing while fewer records than this could go.
const DROP_RECORDS_MIN: u64 = 1_000;
/// Bytes that a step counts for in the writer's bounds.
const STEP_BYTES: usize = 32 * DROP_FRAMES_MAX;

/// Clears the partition's `trimming` however the trim ends.
struct Trimming {
    topic: Arc<TopicState>,
    index: usize,
}

impl Drop for Trimming {
    fn drop(&mut self) {
        self.topic.partitions[self.index].trimming.store(false, Ordering::Release);
    }
}

/// Drops records below `below`, as many as may go at once, if there are enough of them and no drop is on its way. Never waits; a
/// hint that finds no room is lost, and the next one makes up for it.
pub(super) fn hint(db: &Database, topic: &Arc<TopicState>, shard: Shard, below: u64) {
    let Some(partition) = usize::try_from(shard.0).ok().and_then(|index| topic.partitions.get(index)) else {
        return;
    };
    let Span { first, next } = partition.span();
    let below = below.min(next.saturating_sub(KEEP_RECORDS));
    if below < first + DROP_RECORDS_MIN || partition.trimming.swap(true, Ordering::AcqRel) {
        return;
    }
    let trimming = Trimming { topic: Arc::clone(topic), index: shard.0 as usize };
    let said = move |dropped: &Result<(), Failure>| {
        if let Err(failure) = dropped {
            tracing::warn!(shard = shard.0, error = %failure, "applied records stay in the log");
        }
    };
    let asked = db.ask_now(STEP_BYTES, move |batch| drop_step(batch, &trimming, below), said);
    if let Err(failure) = asked {
        tracing::debug!(shard = shard.0, error = %failure, "trim put off");
    }
}

/// Drops everything below `below` (at most what is held), the newest records too, a step at a time.
pub(super) async fn forget(
    db: &Database,
    topic: &Arc<TopicState>,
    shard: Shard,
    below: u64,
) -> Result<bool, Error> {
    let index = usize::try_from(shard.0).ok().filter(|index| *index < topic.partitions.len());
    let index = index.ok_or(Error::NotAssigned(shard))?;
    while topic.partitions[index].span().first < below.min(topic.partitions[index].span().next) {
        let trimming = Trimming { topic: Arc::clone(topic), index };
        db.ask(STEP_BYTES, move |batch| drop_step(batch, &trimming, below)).await??;
    }
    Ok(true)
}

fn drop_step(batch: &mut Batch<'_>, trimming: &Trimming, below: u64) -> Result<(), Failure> {
    let partition = &trimming.topic.partitions[trimming.index];
    let Span { first, next } = partition.span();
    partition.drop_below(batch, first, below.min(next))
}
