//! Asks now and then whether a data centre could be lost, and exports the answers.
//!
//! Judged as doctor does ([`crate::doctor`]). Of Cassandra nobody is asked: the driver knows who is connected. Of Kafka one
//! short-lived client asks who is there, where replicas are and what they need: a few requests a minute.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::doctor::{placement, quorum};
use crate::log::kafka::{self, facts};
use crate::metrics::{Layer, Metrics};
use crate::store::cassandra::Cassandra;

/// How often is asked.
const EVERY: Duration = Duration::from_secs(60);

/// What is asked.
pub(crate) struct Redundancy {
    pub(super) store: Cassandra,
    pub(super) log: kafka::Options,
    /// The installation's topics.
    pub(super) topics: Vec<String>,
    /// What a topic needs whose settings are not known.
    pub(super) min_insync_replicas: usize,
}

/// The asking; ends when it is dropped.
pub(super) struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Redundancy {
    /// Asks at once, then every minute.
    pub(super) fn watch(self, metrics: Arc<Metrics>) -> Watch {
        let asking = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                metrics.dc_loss_survivable(Layer::Cassandra, quorum::survives(&self.store.copies()));
                metrics.dc_loss_survivable(Layer::Kafka, self.of_log().await);
            }
        });
        Watch(asking.abort_handle())
    }

    async fn of_log(&self) -> Option<bool> {
        match facts::read(&self.log, &self.topics).await {
            Ok(facts) => placement::survives(&facts, self.topics.len(), self.min_insync_replicas),
            Err(error) => {
                tracing::debug!(%error, "whether a data centre can be lost is not known");
                None
            }
        }
    }
}
