//! The writing side: records get their offset and append time from the writer thread, in the order of the calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;

use super::topic::TopicState;
use super::{Shared, frame};
use crate::log::{Answer, Error, Message, Producer, Record, Target, Topic, Written};
use crate::model::partition_of;
use crate::store::embedded::{Batch, Failure};

/// What a rejected record may have over others, in bytes: the reason it carries.
const REJECTED_EXTRA_BYTES: usize = 64 * 1024;
/// Bytes that a record's key and framing count for in the writer's bounds.
const FRAME_BYTES: usize = 64;

/// The producer of an [`super::EmbeddedLog`].
pub(super) struct EmbeddedProducer {
    shared: Arc<Shared>,
    /// For records without key and partition: they go around.
    turn: AtomicU32,
}

impl EmbeddedProducer {
    /// A producer.
    pub(super) fn new(shared: Arc<Shared>) -> EmbeddedProducer {
        EmbeddedProducer { shared, turn: AtomicU32::new(0) }
    }

    fn partition(&self, topic: &TopicState, message: &Message) -> Result<u32, Error> {
        let count = u32::try_from(topic.partitions.len()).expect("made from a u32");
        match (message.partition, &message.key) {
            (Some(wanted), _) if wanted >= count => {
                Err(Error::Refused(format!("topic {} has {count} partitions, not {wanted}", topic.name)))
            }
            (Some(wanted), _) => Ok(wanted),
            (None, Some(key)) => Ok(partition_of(key, count)),
            (None, None) => Ok(self.turn.fetch_add(1, Ordering::Relaxed) % count),
        }
    }

    fn check_size(&self, message: &Message, data: &[u8]) -> Result<(), Error> {
        let extra = if message.target == Target::Topic(Topic::Rejected) { REJECTED_EXTRA_BYTES } else { 0 };
        let max = self.shared.record_bytes_max + extra;
        if data.len() > max {
            return Err(Error::TooLarge(format!("{} bytes, at most {max} are taken", data.len())));
        }
        Ok(())
    }

    fn append(&self, message: Message) -> Result<Answer<Written>, Error> {
        if message.headers.len() > frame::HEADERS_MAX {
            return Err(Error::Refused(format!("more than {} headers", frame::HEADERS_MAX)));
        }
        let data = frame::encode(message.key.as_ref(), &message.headers, message.value.as_ref());
        self.check_size(&message, &data)?;
        let topic = self.shared.topic(&message.target)?;
        let number = self.partition(&topic, &message)?;
        let append =
            Append { shared: Arc::clone(&self.shared), topic: Arc::clone(&topic), number, message, data };
        let asked = self.shared.db.ask_now(
            append.data.len() + FRAME_BYTES,
            move |batch| append.stage(batch),
            move |record: &Record| topic.partitions[number as usize].publish(record.clone()),
        )?;
        Ok(Box::pin(async move {
            let record = asked.await.unwrap_or_else(|_| Err(Failure::writer_gone()))?;
            let (offset, appended) = (Some(record.offset), Some(record.appended));
            Ok(Written { partition: number, offset, appended })
        }))
    }
}

/// A record on its way to the writer.
struct Append {
    shared: Arc<Shared>,
    topic: Arc<TopicState>,
    number: u32,
    message: Message,
    data: Vec<u8>,
}

impl Append {
    fn stage(self, batch: &mut Batch<'_>) -> Record {
        let now = (self.shared.clock)();
        let (offset, appended) = self.topic.append(self.number, batch, now, self.data);
        let Message { key, headers, value, .. } = self.message;
        Record { offset, appended, leader_epoch: None, key, headers, value }
    }
}

impl Producer for EmbeddedProducer {
    fn produce(&self, message: Message) -> Answer<Written> {
        self.append(message).unwrap_or_else(|error| Box::pin(async move { Err(error) }))
    }

    fn flush(&self, wait_ms: u64) -> BoxFuture<'static, ()> {
        // The queue is first in, first out: when this is answered, so is all before it.
        let asked = self.shared.db.ask_now(0, |_| (), |()| ());
        Box::pin(async move {
            if let Ok(asked) = asked {
                let _ = tokio::time::timeout(Duration::from_millis(wait_ms), asked).await;
            }
        })
    }
}
