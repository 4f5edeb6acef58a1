//! The raw program at the rate of a steady load: how late the start of a task is on record with no scheduler in between.
//!
//! Every few milliseconds it writes what has come since: a record, a by-id row and a row in a bucket for each task; and, two
//! seconds later, what is due by then: a start, and once that is on record an end. Rows that are written together share
//! requests wherever they lie, ten in each on servers.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::task::JoinSet;

use super::super::measure::Times;
use super::super::report::RawLateness;
use super::{Program, Shared, Writer, all_of, embedded};

/// How often it writes what there is: the shorter, the sooner, and the more requests.
const EVERY_MS: [u64; 3] = [1, 5, 20];

/// Which of a task's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// By-id row and task.
    Come,
    Started,
    Ended,
}

impl Program {
    /// At each pace, one after the other: `rate` tasks a second, each due `ahead` after it has come, for so long.
    pub(in super::super) async fn paced(
        &self,
        rate: u64,
        ahead: Duration,
    ) -> anyhow::Result<Vec<RawLateness>> {
        let mut all = Vec::new();
        for every_ms in EVERY_MS {
            all.push(self.at_pace(every_ms, rate, ahead).await?);
        }
        Ok(all)
    }

    /// The best of these once more.
    pub(in super::super) async fn paced_again(
        &self,
        of: &[RawLateness],
        rate: u64,
        ahead: Duration,
    ) -> anyhow::Result<RawLateness> {
        let best = RawLateness::best(of).context("a raw program that ran")?;
        let ran = self.at_pace(best.every_ms, rate, ahead).await?;
        Ok(RawLateness { is_again: true, ..ran })
    }

    async fn at_pace(&self, every_ms: u64, rate: u64, ahead: Duration) -> anyhow::Result<RawLateness> {
        let shared = self.begin().await?;
        let (mut under_way, late) = (JoinSet::new(), Arc::<Mutex<Times>>::default());
        let ran = self.pace(&shared, (every_ms, rate, ahead), &mut under_way, &late).await;
        under_way.shutdown().await;
        let tasks = ran?;
        self.end(shared).await?;
        let lateness_ms = late.lock().unwrap_or_else(PoisonError::into_inner).percentiles();
        Ok(RawLateness { every_ms, is_again: false, tasks, lateness_ms })
    }

    /// Says how many tasks there were.
    async fn pace(
        &self,
        shared: &Arc<Shared>,
        (every_ms, rate, ahead): (u64, u64, Duration),
        under_way: &mut JoinSet<anyhow::Result<()>>,
        late: &Arc<Mutex<Times>>,
    ) -> anyhow::Result<u64> {
        let first = self.next.load(Ordering::Relaxed);
        let time = self.load.plan.raw;
        let tasks = (time.as_secs_f64() * rate as f64).ceil().max(1.0) as u64;
        // Others come while the last ones are due, as they do beside the first.
        let all = ((time + ahead).as_secs_f64() * rate as f64).ceil().max(1.0) as u64;
        self.next.store(first + all, Ordering::Relaxed);
        let (mut come, mut due) = (0, 0);
        let mut ticks = tokio::time::interval(Duration::from_millis(every_ms));
        let start = Instant::now();
        while due < tasks {
            ticks.tick().await;
            let elapsed = start.elapsed();
            let come_now = by(elapsed, rate).min(all);
            let due_now = elapsed.checked_sub(ahead).map_or(0, |elapsed| by(elapsed, rate)).min(tasks);
            let (coming, starting) = (first + come..first + come_now, first + due..first + due_now);
            if !coming.is_empty() {
                under_way.spawn(shared.clone().come(coming));
            }
            if !starting.is_empty() {
                let due_at = (due..due_now)
                    .map(|task| start + ahead + Duration::from_secs_f64(task as f64 / rate as f64));
                let times = due_at.collect();
                under_way.spawn(shared.clone().run_due(starting, times, late.clone()));
            }
            (come, due) = (come_now, due_now);
            while let Some(ended) = under_way.try_join_next() {
                ended.context("a part of the raw program")??;
            }
        }
        all_of(under_way).await?;
        Ok(tasks)
    }
}

impl Shared {
    /// Tasks that have come.
    async fn come(self: Arc<Shared>, tasks: Range<u64>) -> anyhow::Result<()> {
        let shards = u64::from(self.load.plan.shards);
        let sends = tasks.clone().map(|task| self.send(&self.load, task, (task % shards) as u32));
        let sends = futures::future::try_join_all(sends.collect::<Vec<_>>());
        let (sent, written) = tokio::join!(sends, self.write(tasks, Step::Come));
        sent.context("a record of the raw program")?;
        written
    }

    /// Tasks that are due: each is late until its start is on record.
    async fn run_due(
        self: Arc<Shared>,
        tasks: Range<u64>,
        due_at: Vec<Instant>,
        late: Arc<Mutex<Times>>,
    ) -> anyhow::Result<()> {
        self.write(tasks.clone(), Step::Started).await?;
        let now = Instant::now();
        {
            let mut late = late.lock().unwrap_or_else(PoisonError::into_inner);
            due_at.iter().for_each(|due| late.add_us(now.duration_since(*due).as_micros() as i64));
        }
        self.write(tasks, Step::Ended).await
    }

    async fn write(&self, tasks: Range<u64>, step: Step) -> anyhow::Result<()> {
        match &self.writer {
            Writer::Embedded(store) => {
                embedded::write_step(store, &self.drawn, &self.load, tasks, step).await
            }
            #[cfg(feature = "cassandra")]
            Writer::Servers(tables) => tables.write_step(&self.drawn, &self.load, tasks, step).await,
        }
    }
}

/// How many have come after so long: the first at once.
fn by(elapsed: Duration, rate: u64) -> u64 {
    (elapsed.as_secs_f64() * rate as f64) as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_comes_when_its_time_has_come_and_not_with_the_one_behind_it() {
        assert_eq!(by(Duration::ZERO, 500), 1);
        assert_eq!(by(Duration::from_micros(1_999), 500), 1);
        assert_eq!(by(Duration::from_micros(2_001), 500), 2);
        assert_eq!(by(Duration::from_millis(1_001), 500), 501);
    }
}
