//! The reading side of the port: a handle to the member's thread.
//!
//! Dropped without `close`, it leaves the group as well, unobserved.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::leaders::Leaders;
use super::member::Member;
use super::options::Options;
use super::shared::{Command, Shared};
use crate::log::{self, Answer, Assignment, End, Error, Record};
use crate::model::Shard;

/// Longest time that a close is waited for, in milliseconds.
const CLOSE_MS: u64 = 6_000;
/// Longest time that a seek is waited for, in milliseconds.
const SEEK_MS: u64 = 10_000;

/// One member of the consumer group. To be used within a Tokio runtime with its timer on.
pub struct Consumer {
    shared: Arc<Shared>,
    leaders: Leaders,
}

impl Consumer {
    /// Starts to join the group; brokers that do not answer yet are waited for in the background.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::Fatal`] when the options are wrong.
    pub fn start(options: Options) -> Result<Consumer, Error> {
        let consumer = Consumer::start_away(options)?;
        log::Consumer::join(&consumer);
        Ok(consumer)
    }

    /// Starts outside the group: joins when it is told to.
    ///
    /// # Errors
    /// Those of [`Consumer::start`].
    pub fn start_away(options: Options) -> Result<Consumer, Error> {
        options.check()?;
        let shared = Arc::new(Shared::new(options.buffer_bytes));
        let leaders = Leaders::start(&options)?;
        Member::start(options, shared.clone(), leaders.clone())?;
        Ok(Consumer { shared, leaders })
    }

    /// Has the client fail for good, as librdkafka may at any moment.
    #[cfg(feature = "testing")]
    pub fn fail(&self) {
        self.shared.order(Command::Fail);
    }

    /// Has the client fail for good in the middle of the next rebalance, when it gives shards up.
    #[cfg(feature = "testing")]
    pub fn fail_when_taken(&self) {
        self.shared.fail_when_taken();
    }

    /// How many partitions the reading client has.
    #[cfg(feature = "testing")]
    pub fn reads(&self) -> usize {
        self.shared.reads()
    }

    /// Holds the member's thread up until what is returned is dropped.
    #[cfg(feature = "testing")]
    pub fn hold(&self) -> std::sync::mpsc::Sender<()> {
        let (holding, held) = std::sync::mpsc::channel();
        self.shared.order(Command::Hold(held));
        holding
    }
}

impl log::Consumer for Consumer {
    fn assignment(&self) -> BoxFuture<'_, Option<Assignment>> {
        self.shared.board.next_change().boxed()
    }

    fn seek(&self, shard: Shard, offset: u64) -> Answer<()> {
        let Some(cell) = self.shared.board.cell(shard) else {
            return futures::future::err(Error::NotAssigned(shard)).boxed();
        };
        cell.unplace();
        let (answer, answered) = oneshot::channel();
        let ordered = self.shared.order(Command::Seek { shard, offset, answer });
        async move {
            if !ordered {
                return Err(Error::Unavailable("the client is closed or has too many orders".into()));
            }
            match tokio::time::timeout(Duration::from_millis(SEEK_MS), answered).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Err(Error::NotAssigned(shard)),
                Err(_) => Err(Error::Unavailable("the seek was not begun in time".into())),
            }
        }
        .boxed()
    }

    fn fetch(&self, shard: Shard, records_max: usize, bytes_max: usize) -> Answer<Vec<Record>> {
        let shared = self.shared.clone();
        let cell = shared.board.cell(shard);
        async move {
            let cell = cell.ok_or(Error::NotAssigned(shard))?;
            let share_bytes = shared.board.share_bytes();
            let (answer, resume) = cell.fetch(shard, records_max, bytes_max, share_bytes).await;
            if resume {
                shared.order(Command::Resume(shard));
            }
            answer
        }
        .boxed()
    }

    fn stop(&self, shard: Shard) {
        self.shared.board.stop(shard);
        self.shared.order(Command::Stop(shard));
    }

    fn end(&self, shard: Shard) -> Answer<End> {
        self.leaders.clone().end(shard).boxed()
    }

    fn commit(&self, shard: Shard, next_offset: u64) {
        self.shared.commit(shard, next_offset);
    }

    fn leave(&self) {
        self.shared.order(Command::Leave);
    }

    fn join(&self) {
        self.shared.order(Command::Join);
    }

    fn silent_ms(&self) -> u64 {
        self.shared.silent_ms()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let mut closed = self.shared.closed();
        let shared = self.shared.clone();
        async move {
            shared.close();
            let waited = closed.wait_for(|closed| *closed);
            if tokio::time::timeout(Duration::from_millis(CLOSE_MS), waited).await.is_err() {
                tracing::warn!("the Kafka client did not close in time and is left behind");
                shared.board.end();
            }
        }
        .boxed()
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.close();
    }
}
