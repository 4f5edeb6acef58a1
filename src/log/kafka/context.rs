//! What librdkafka calls back: its logs, and the group's rebalances.
//!
//! Callbacks run inside `poll` on the member's thread. They move the assignment at once, write it on the board and
//! return: nobody is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use super::reason::Reason;
use super::recall::Recall;
use super::shared::{Command, Shared};
use crate::log::Assignment;
use crate::model::Shard;

/// Passes librdkafka's log lines on.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        // Hundreds at once when a group has gone on without this member. What counts is the progress row in the store.
        RDKafkaLogLevel::Warning if facility == "COMMITFAIL" => {
            tracing::debug!(target: "librdkafka", facility, "{text}");
        }
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, "{text}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::debug!(target: "librdkafka", facility, "{text}");
        }
        RDKafkaLogLevel::Debug => tracing::trace!(target: "librdkafka", facility, "{text}"),
    }
}

/// For clients that are only asked and answered.
#[derive(Default)]
pub(super) struct Plain {
    /// Why brokers are not reached.
    pub(super) reason: Reason,
}

impl ClientContext for Plain {
    /// Whoever asked is told the reason with the answer, so it is no warning here.
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, text: &str) {
        // Advice about the configuration fails nothing.
        if facility != "CONFWARN" {
            self.reason.note(text);
        }
        tracing::debug!(target: "librdkafka", facility, "{text}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.reason.note(reason);
        tracing::debug!(%error, reason, "kafka client");
    }
}

/// For the client in the group.
pub(super) struct Context {
    shared: Arc<Shared>,
    recall: Recall,
    retired: AtomicBool,
}

impl Context {
    pub(super) fn new(shared: Arc<Shared>, recall: Recall) -> Context {
        Context { shared, recall, retired: AtomicBool::new(false) }
    }

    /// What brings forgotten brokers back.
    pub(super) fn recall(&self) -> &Recall {
        &self.recall
    }

    /// From now on callbacks only let go: the client is on its way out and another one has the board.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Takes partitions over: paused, at a position of no meaning, until the engine says from where.
    fn assigned(&self, client: &BaseConsumer<Context>, list: &mut TopicPartitionList) -> KafkaResult<()> {
        list.set_all_offsets(Offset::Offset(0))?;
        // Paused before, so that nothing is fetched from a position of no meaning: unknown partitions are refused.
        let _ = client.pause(list);
        client.incremental_assign(list)?;
        client.pause(list)?;
        if !self.is_retired() {
            let shards = shards_of(list);
            // With too many orders waiting the connections are made when they are wanted.
            self.shared.order(Command::Meet(shards.clone()));
            for shard in &shards {
                // One that was read on begins anew, and what waited to be placed for it is of before.
                self.shared.order(Command::Stop(*shard));
            }
            self.shared.board.assign(shards);
        }
        Ok(())
    }

    /// Lets go first, then says so. What is taken in order is read on; what is lost is not.
    fn revoked(&self, client: &BaseConsumer<Context>, list: &TopicPartitionList) -> KafkaResult<()> {
        let lost = client.assignment_lost();
        let shards = if self.is_retired() { Vec::new() } else { shards_of(list) };
        #[cfg(feature = "testing")]
        if self.shared.fails_when_taken() {
            super::raw::fail(client.client());
        }
        let answer = client.incremental_unassign(list);
        if lost || answer.is_err() {
            self.shared.lose(&shards);
        } else {
            let taken = self.shared.board.take(&shards);
            self.shared.board.tell(Assignment::Revoked(taken));
        }
        answer
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka member");
        self.recall.note(&error);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, client: &BaseConsumer<Self>, kind: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let answer = match kind {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assigned(client, list),
            _ => self.revoked(client, list),
        };
        if let Err(error) = answer
            && !self.is_retired()
        {
            tracing::warn!(%error, "rebalance failed: the client is made anew");
            self.shared.mark_broken();
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::debug!(%error, "offsets were not committed");
        }
    }
}

fn shards_of(list: &TopicPartitionList) -> Vec<Shard> {
    list.elements().iter().filter_map(|element| u32::try_from(element.partition()).ok()).map(Shard).collect()
}
