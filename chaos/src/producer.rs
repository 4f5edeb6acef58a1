//! The harness's own producer: acks=all, idempotent, the partitioner of Java. Each record is in the ledger from when it
//! is handed to the client, and counts once a broker has acknowledged it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord};
use rdkafka::types::RDKafkaErrorCode;

use crate::clock;
use crate::event::Event;
use crate::ledger::{Ack, Sent};

/// A client whose queue is full is asked again after this.
const FULL: Duration = Duration::from_millis(50);
/// Kafka runs all the time: a record that is not acknowledged within this ends the run.
const ACKED_SECONDS_MAX: u64 = 60;

/// A producer for the schedule topic of a run.
#[derive(Clone)]
pub(crate) struct Producer {
    client: FutureProducer,
    topic: String,
    pub(crate) sent: Sent,
}

impl Producer {
    pub(crate) fn start(kafka: &str, topic: String, sent: Sent) -> Result<Producer> {
        let client = ClientConfig::new()
            .set("bootstrap.servers", kafka)
            .set("client.id", "chaos")
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "5")
            // A run may be without brokers for longer than the default of five minutes; no record is to be given up.
            .set("message.timeout.ms", "1800000")
            // As docs/operations.md advises: what a vanished broker was asked is given up long before the default of a minute.
            .set("socket.timeout.ms", "10000")
            .set("topic.metadata.refresh.interval.ms", "5000")
            .create()
            .context("a producer")?;
        Ok(Producer { client, topic, sent })
    }

    /// Hands a record to the client; waits only while that is full.
    pub(crate) async fn send(&self, event: &Event) -> Result<()> {
        let value = event.json();
        loop {
            let record = || FutureRecord::to(&self.topic).key(event.queue.as_str()).payload(value.as_str());
            let handed = self.sent.send(&event.queue, &event.id, &event.asks, || {
                self.client.send_result(record()).map_err(|(error, _)| error)
            });
            match handed {
                Ok((number, delivery)) => {
                    tokio::spawn(answered(self.sent.clone(), number, delivery));
                    return Ok(());
                }
                Err(KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) => {
                    tokio::time::sleep(FULL).await;
                }
                Err(error) => return Err(error).context("a record cannot be sent"),
            }
        }
    }

    /// Waits until every record that was sent until now is acknowledged.
    pub(crate) async fn settled(&self) -> Result<()> {
        let count = self.sent.count();
        let answered = || self.sent.under_way(count) == 0;
        clock::until("every record is acknowledged", ACKED_SECONDS_MAX, answered).await?;
        match self.sent.failure() {
            Some(error) => bail!("a record failed, and nobody knows whether it is in the log: {error}"),
            None => Ok(()),
        }
    }
}

async fn answered(sent: Sent, number: usize, delivery: DeliveryFuture) {
    match delivery.await {
        Ok(Ok(delivery)) => {
            let shard = u32::try_from(delivery.partition).unwrap_or(u32::MAX);
            let offset = u64::try_from(delivery.offset).ok();
            sent.acked(number, Ack { shard, offset, appended: delivery.timestamp.to_millis() });
        }
        Ok(Err((error, _))) => sent.failed(number, error.to_string()),
        Err(_) => sent.failed(number, "the producer went away".to_owned()),
    }
}
