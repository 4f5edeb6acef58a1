//! What partitions hold and who their topic is (ListOffsets, DescribeTopics).

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

use rdkafka::bindings as rd;
use rdkafka::client::{Client, ClientContext};
use rdkafka::types::RDKafkaErrorCode;

use super::queue::{Asking, Event, Queue, check};

/// What was asked in one go about partitions of one topic.
pub(in crate::log::kafka) struct Offsets {
    /// What each partition holds, or why its leader did not tell.
    pub(in crate::log::kafka) held: BTreeMap<i32, Result<Held, RDKafkaErrorCode>>,
    /// Identity of the topic; empty when the brokers have none.
    pub(in crate::log::kafka) topic_id: Result<String, RDKafkaErrorCode>,
}

/// What a leader says that its partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log::kafka) struct Held {
    /// The first offset.
    pub(in crate::log::kafka) first: u64,
    /// The next one to be written.
    pub(in crate::log::kafka) next: u64,
    /// The epoch in which it leads; `None` = it does not tell.
    pub(in crate::log::kafka) leader_epoch: Option<u32>,
}

/// Up to where a partition counts as written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::log::kafka) enum Upto {
    /// The last stable offset: what a reader of committed records gets to.
    Stable,
    /// The high watermark: what the leader accepts as a position.
    High,
}

const FIRST: usize = 1;
const NEXT: usize = 2;
const IDENTITY: usize = 3;
/// After so long a request that only wakes is forgotten, in milliseconds.
const WAKE_MS: i32 = 1_000;

/// Asks the leaders of partitions for first and next offsets and the topic for its id, three requests side by side.
/// Blocks, at most for `timeout` and half a second.
pub(in crate::log::kafka) fn offsets<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    partitions: &[i32],
    upto: Upto,
    timeout: Duration,
) -> Result<Offsets, RDKafkaErrorCode> {
    let topic = CString::new(topic).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
    let queue = Queue::new(client.native_ptr());
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let options = |kind, api| Asking::new(client.native_ptr(), api, kind, timeout_ms);
    use rd::rd_kafka_admin_op_t::{RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, RD_KAFKA_ADMIN_OP_LISTOFFSETS};
    let first = options(FIRST, RD_KAFKA_ADMIN_OP_LISTOFFSETS);
    list(&queue, &first, &topic, partitions, rd::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_EARLIEST as i64);
    let next = options(NEXT, RD_KAFKA_ADMIN_OP_LISTOFFSETS);
    if upto == Upto::Stable {
        next.read_committed();
    }
    list(&queue, &next, &topic, partitions, rd::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_LATEST as i64);
    describe(&queue, &options(IDENTITY, RD_KAFKA_ADMIN_OP_DESCRIBETOPICS), &topic);
    gather(&queue, Instant::now() + timeout + Duration::from_millis(500))
}

/// Sends the leaders of partitions a request whose answer nobody waits for. A leader's connection that has nothing to
/// fetch sleeps up to a second and does not notice that a partition was resumed; any request wakes it.
pub(in crate::log::kafka) fn wake_leaders<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    partitions: &[i32],
) {
    let Ok(topic) = CString::new(topic) else { return };
    let queue = Queue::new(client.native_ptr());
    let api = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTOFFSETS;
    let asking = Asking::new(client.native_ptr(), api, FIRST, WAKE_MS);
    list(
        &queue,
        &asking,
        &topic,
        partitions,
        rd::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_EARLIEST as i64,
    );
}

/// Collects the three answers.
fn gather(queue: &Queue, deadline: Instant) -> Result<Offsets, RDKafkaErrorCode> {
    let (mut first, mut next, mut topic_id) = (None, None, None);
    while first.is_none() || next.is_none() || topic_id.is_none() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(event) = queue.poll(left) else {
            return Err(RDKafkaErrorCode::OperationTimedOut);
        };
        match event.kind() {
            FIRST => first = Some(event.listed()),
            NEXT => next = Some(event.listed()),
            _ => topic_id = Some(event.identity()),
        }
    }
    let (first, next) = (first.unwrap_or_else(no_answer)?, next.unwrap_or_else(no_answer)?);
    let held = first
        .into_iter()
        .filter_map(|(partition, low)| {
            let high = *next.get(&partition)?;
            let held = low.and_then(|low| {
                high.map(|high| Held {
                    first: low.offset,
                    next: high.offset,
                    leader_epoch: high.leader_epoch,
                })
            });
            Some((partition, held))
        })
        .collect();
    Ok(Offsets { held, topic_id: topic_id.unwrap_or_else(no_answer) })
}

fn no_answer<T>() -> Result<T, RDKafkaErrorCode> {
    Err(RDKafkaErrorCode::OperationTimedOut)
}

fn list(queue: &Queue, asking: &Asking, topic: &CStr, partitions: &[i32], spec: i64) {
    // SAFETY: the list lives until after the call, which copies it; client, options and queue outlive it.
    unsafe {
        let list = rd::rd_kafka_topic_partition_list_new(i32::try_from(partitions.len()).unwrap_or(0));
        for partition in partitions {
            let entry = rd::rd_kafka_topic_partition_list_add(list, topic.as_ptr(), *partition);
            (*entry).offset = spec;
        }
        rd::rd_kafka_ListOffsets(asking.client, list, asking.options, queue.0);
        rd::rd_kafka_topic_partition_list_destroy(list);
    }
}

fn describe(queue: &Queue, asking: &Asking, topic: &CStr) {
    let mut names = [topic.as_ptr()];
    // SAFETY: the names live until after the call, which copies them; client, options and queue outlive it.
    unsafe {
        let topics = rd::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        rd::rd_kafka_DescribeTopics(asking.client, topics, asking.options, queue.0);
        rd::rd_kafka_TopicCollection_destroy(topics);
    }
}

impl Event {
    /// The offsets of an answer to ListOffsets.
    fn listed(&self) -> Result<BTreeMap<i32, Result<Listed, RDKafkaErrorCode>>, RDKafkaErrorCode> {
        self.check()?;
        let mut offsets = BTreeMap::new();
        // SAFETY: the array and its elements belong to the event, which is alive.
        unsafe {
            let result = rd::rd_kafka_event_ListOffsets_result(self.0);
            if result.is_null() {
                return Err(RDKafkaErrorCode::Fail);
            }
            let mut count = 0;
            let infos = rd::rd_kafka_ListOffsets_result_infos(result, &mut count);
            for index in 0..count {
                let entry = rd::rd_kafka_ListOffsetsResultInfo_topic_partition(*infos.add(index));
                let leader_epoch = rd::rd_kafka_topic_partition_get_leader_epoch(entry);
                let leader_epoch = epoch_of(leader_epoch);
                let listed =
                    told((*entry).err, (*entry).offset).map(|offset| Listed { offset, leader_epoch });
                offsets.insert((*entry).partition, listed);
            }
        }
        Ok(offsets)
    }

    /// The topic id of an answer to DescribeTopics.
    fn identity(&self) -> Result<String, RDKafkaErrorCode> {
        self.check()?;
        // SAFETY: the descriptions and what they point to belong to the event, which is alive.
        unsafe {
            let result = rd::rd_kafka_event_DescribeTopics_result(self.0);
            let mut count = 0;
            if result.is_null() {
                return Err(RDKafkaErrorCode::Fail);
            }
            let topics = rd::rd_kafka_DescribeTopics_result_topics(result, &mut count);
            if count != 1 {
                return Err(RDKafkaErrorCode::UnknownTopicOrPartition);
            }
            check(rd::rd_kafka_TopicDescription_error(*topics))?;
            let id = rd::rd_kafka_TopicDescription_topic_id(*topics);
            if id.is_null() || no_id(id) {
                return Ok(String::new());
            }
            Ok(CStr::from_ptr(rd::rd_kafka_Uuid_base64str(id)).to_string_lossy().into_owned())
        }
    }
}

/// One offset of an answer to ListOffsets, and the epoch of who told it.
#[derive(Clone, Copy)]
struct Listed {
    offset: u64,
    leader_epoch: Option<u32>,
}

/// librdkafka has -1 for an epoch that is not known.
pub(in crate::log::kafka) fn epoch_of(told: i32) -> Option<u32> {
    u32::try_from(told).ok()
}

/// The offset that a leader told. When one leader of several did not answer, librdkafka gives its partitions no error and
/// the offset "invalid", a negative number.
fn told(code: rd::rd_kafka_resp_err_t, offset: i64) -> Result<u64, RDKafkaErrorCode> {
    match RDKafkaErrorCode::from(code) {
        RDKafkaErrorCode::NoError => u64::try_from(offset).map_err(|_| RDKafkaErrorCode::OperationTimedOut),
        code => Err(code),
    }
}

/// Brokers before 2.8 give the zero id.
unsafe fn no_id(id: *const rd::rd_kafka_Uuid_t) -> bool {
    // SAFETY: the caller's id is alive.
    unsafe {
        rd::rd_kafka_Uuid_most_significant_bits(id) == 0 && rd::rd_kafka_Uuid_least_significant_bits(id) == 0
    }
}

#[cfg(test)]
mod tests;
