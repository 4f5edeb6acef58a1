//! What one simulation is made with: sizes and rates drawn from the seed, and what is shown of it.

use std::ops::Range;

use dueline::engine::Timing;
use dueline::model::Shard;

use dueline::testing::rng::Rng;

/// Sizes and rates of a run.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) shards: u32,
    pub(crate) instances: usize,
    pub(crate) queues: u64,
    pub(crate) slots: u32,
    /// Tasks per shard in memory.
    pub(crate) budget: usize,
    pub(crate) page_rows: usize,
    pub(crate) fetch_records: usize,
    pub(crate) look_ahead_ms: i64,
    /// Ready tasks of one queue in memory.
    pub(crate) queue_tasks_max: usize,
    /// Rows above the watermark before unfinished tasks get pointers.
    pub(crate) late_rows: usize,
    pub(crate) timing: Timing,
    /// How far the wall clocks of instances are off at most, in milliseconds.
    pub(crate) wall_skew_ms: u64,
    /// The group gives a shard away before it was let go.
    pub(crate) eager_group: bool,
    /// Writes in a thousand that a replica drops.
    pub(crate) drops: u64,
    /// How far the clocks of the store's nodes are off at most, in milliseconds.
    pub(crate) node_skew_ms: u64,
    /// Producers and faults stop here, in milliseconds.
    pub(crate) chaos_ms: u64,
    pub(crate) produce_every_ms: u64,
    /// Store requests in a thousand that are not answered.
    pub(crate) unanswered: u64,
    /// Store requests in a thousand that are slow.
    pub(crate) slow: u64,
    pub(crate) faults: u64,
    /// What becomes of tasks is published.
    pub(crate) publishes: bool,
    /// Task events that wait have so much memory in each shard, in bytes.
    pub(crate) events_bytes: usize,
    /// The events topic alone takes nothing, in milliseconds.
    pub(crate) no_events: Range<u64>,
    /// Engines are given several facts of everyday before they say what to do.
    pub(crate) gathers: bool,
    /// Of handlers.
    pub(crate) limits: crate::limits::Limits,
    /// Ids that an owner knows of.
    pub(crate) ids: usize,
    /// Prints what this shard is told and asks for.
    pub(crate) show: Option<u32>,
}

impl Setup {
    pub(crate) fn of(seed: u64) -> Setup {
        let mut rng = Rng::new(seed ^ 0x5e7_0b5);
        let small = rng.chance(350);
        let from = rng.range(1_000, 300_000);
        Setup {
            shards: rng.range(2, 5) as u32,
            instances: rng.range(2, 5) as usize,
            queues: rng.range(6, 30),
            slots: rng.range(1, 5) as u32,
            budget: if small { rng.range(4, 16) as usize } else { 5_000 },
            page_rows: rng.range(3, 30) as usize,
            fetch_records: rng.range(2, 60) as usize,
            look_ahead_ms: [8_000, 20_000, 60_000][rng.index(3)],
            timing: Timing::default(),
            wall_skew_ms: [15, 15, 1_500][rng.index(3)],
            eager_group: rng.chance(250),
            drops: [0, 3, 40][rng.index(3)],
            node_skew_ms: [5, 2_000, 7_200_000][rng.index(3)],
            chaos_ms: rng.range(300_000, 420_000),
            produce_every_ms: rng.range(150, 700),
            unanswered: [0, 4, 25][rng.index(3)],
            slow: [5, 40][rng.index(2)],
            faults: rng.range(4, 30),
            queue_tasks_max: [1, 2, 5, 64][rng.index(4)],
            late_rows: [5, 20, 20_000][rng.index(3)],
            publishes: rng.chance(800),
            events_bytes: [64 * 1024, 64 * 1024, 1 << 30][rng.index(3)],
            no_events: if rng.chance(300) { from..from + rng.range(5_000, 120_000) } else { 0..0 },
            gathers: rng.chance(250),
            limits: crate::limits::Limits::of(seed),
            ids: [20, 100_000, 100_000][rng.index(3)],
            show: None,
        }
    }

    pub(crate) fn shows(&self, shard: Shard) -> bool {
        self.show == Some(shard.0)
    }
}
