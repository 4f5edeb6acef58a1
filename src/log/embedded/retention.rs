//! Retention of all topics but the schedule topic: what is older than an age goes, and of each partition what is too much.
//!
//! Producers and readers know nothing of it. A round looks at the first record of each partition, and only where that is
//! to go searches for the first that stays: append times never fall.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::topic::TopicState;
use super::{Shared, trim};
use crate::log::{Error, Topic};
use crate::model::{Shard, Wall};
use crate::store::embedded::lock;

/// Time between rounds, at most, and after one that failed.
const EVERY_MAX: Duration = Duration::from_secs(10);
const AFTER_FAILURE: Duration = Duration::from_mins(5);
/// The same at least.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// Rounds within the time that records are kept.
const ROUNDS: u32 = 20;

/// How much each topic keeps besides the schedule topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Records older than this go.
    pub age: Duration,
    /// Records of a partition; between two rounds there may be more.
    pub records_max: u64,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { age: Duration::from_hours(7 * 24), records_max: 100_000 }
    }
}

/// The rounds; they end when it is dropped.
pub(super) struct Rounds(AbortHandle);

impl Drop for Rounds {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Rounds {
    /// Begins. Between rounds nothing of the log is held, so that it can be closed.
    pub(super) fn begin(shared: &Arc<Shared>) -> Rounds {
        Rounds(tokio::spawn(follow(Arc::downgrade(shared), shared.retention)).abort_handle())
    }
}

async fn follow(log: Weak<Shared>, retention: Retention) {
    let every = (retention.age / ROUNDS).clamp(EVERY_MIN, EVERY_MAX);
    let mut wait = every;
    loop {
        tokio::time::sleep(wait).await;
        let Some(shared) = log.upgrade() else { return };
        wait = match round(&shared, retention).await {
            Ok(()) => every,
            Err(error) => {
                tracing::warn!(%error, "not all that is old was dropped from topics; tried again soon");
                every.max(AFTER_FAILURE)
            }
        };
    }
}

/// A round over all topics. What fails for one does not hold up the others.
pub(super) async fn round(shared: &Arc<Shared>, retention: Retention) -> Result<(), Error> {
    let age_ms = i64::try_from(retention.age.as_millis()).unwrap_or(i64::MAX);
    let before = Wall((shared.clock)().0.saturating_sub(age_ms));
    let mut failed = None;
    for topic in shared.bounded_topics() {
        failed = trim_topic(shared, &topic, before, retention.records_max).await.err().or(failed);
    }
    failed.map_or(Ok(()), Err)
}

async fn trim_topic(
    shared: &Shared,
    topic: &Arc<TopicState>,
    before: Wall,
    records_max: u64,
) -> Result<(), Error> {
    let looked_at = Arc::clone(topic);
    let firsts = shared.db.read(move |tables| {
        let partitions = looked_at.partitions.iter();
        partitions.map(|partition| partition.first_to_keep(tables, before, records_max)).collect()
    });
    let firsts: Vec<u64> = firsts.await?;
    for (shard, first) in (0..).map(Shard).zip(firsts) {
        trim::forget(&shared.db, topic, shard, first).await?;
    }
    Ok(())
}

impl Shared {
    /// All topics but the schedule topic, which drops what is applied.
    fn bounded_topics(&self) -> Vec<Arc<TopicState>> {
        let ours = self.ours.iter().filter(|(topic, _)| **topic != Topic::Schedule);
        let named = lock(&self.named);
        ours.map(|(_, state)| state).chain(named.values()).cloned().collect()
    }
}
