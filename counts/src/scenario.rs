//! What is counted: tasks taken in, and tasks run.

use std::sync::Arc;
use std::time::Duration;

use alone::engine::Options;
use alone::model::{CollectionLimit, CollectionLimits};

use super::SHARD;
use super::shard::Shard;

/// Queues that tasks are spread over.
const QUEUES: u64 = 1_000;
/// Collections that they belong to, where collections are limited.
const COLLECTIONS: u64 = 10;
/// Tasks behind one head, for each that is counted beside them.
const BEHIND: u64 = 5;
/// Beyond the look-ahead, and within it, in milliseconds.
const FAR_MS: i64 = 3_600_000;
const NEAR_MS: i64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// Records of plain schedule events, read.
    Decode,
    /// Schedule events of tasks due in an hour, until they are stored.
    Intake,
    /// Tasks that are due: start, call, end.
    Run,
    /// The same with an event of each step for the events topic.
    RunTold,
    /// The same in collections with limits that hold nothing up.
    RunLimited,
    /// The same beside many tasks that are due and wait behind one head, at a gate.
    RunBlocked,
}

impl Scenario {
    pub(super) const ALL: [Scenario; 6] = [
        Scenario::Decode,
        Scenario::Intake,
        Scenario::Run,
        Scenario::RunTold,
        Scenario::RunLimited,
        Scenario::RunBlocked,
    ];

    pub(super) fn word(self) -> &'static str {
        match self {
            Scenario::Decode => "decode",
            Scenario::Intake => "intake",
            Scenario::Run => "run",
            Scenario::RunTold => "run-told",
            Scenario::RunLimited => "run-limited",
            Scenario::RunBlocked => "run-blocked",
        }
    }

    /// Runs it; says how long the engine took for what is counted.
    ///
    /// # Errors
    /// Not all tasks were stored, or run.
    pub(super) fn run(self, tasks: u64) -> anyhow::Result<Duration> {
        if self == Scenario::Decode {
            return super::decode::run(tasks);
        }
        let mut shard = Shard::running(self.options());
        if self == Scenario::Intake {
            shard.count(|shard| shard.schedule(tasks, FAR_MS, |task| format!("q-{}", task % QUEUES), None));
            anyhow::ensure!(shard.stored() == tasks, "{} of {tasks} tasks are stored", shard.stored());
            return Ok(shard.took());
        }
        if self == Scenario::RunBlocked {
            shard.close("blocked");
            shard.schedule(tasks * BEHIND, 0, |_| "blocked".to_owned(), None);
            // Long enough to be late: they leave the memory.
            shard.advance(120_000);
            anyhow::ensure!(shard.ended() == 0, "{} tasks ran through a gate", shard.ended());
        }
        let collections = (self == Scenario::RunLimited).then_some(COLLECTIONS);
        shard.schedule(tasks, NEAR_MS, |task| format!("q-{}", task % QUEUES), collections);
        shard.count(|shard| shard.advance(NEAR_MS as u64));
        anyhow::ensure!(shard.ended() == tasks, "{} of {tasks} tasks ended", shard.ended());
        Ok(shard.took())
    }

    fn options(self) -> Options {
        let mut options = Options::new(SHARD, 1, "counts");
        options.publishes = self == Scenario::RunTold;
        if self == Scenario::RunLimited {
            let limit = CollectionLimit { concurrency: Some(100_000), rate: None, weight: 1, intake: None };
            let limits = CollectionLimits { each_other: Some(limit), ..CollectionLimits::default() };
            options.collections = Arc::new(limits);
        }
        options
    }
}
