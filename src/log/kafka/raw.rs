//! The calls of librdkafka that its safe wrapper lacks: the only unsafe code of the crate.
//!
//! Five things: what partitions hold and who their topic is, asked of the leaders (ListOffsets, DescribeTopics); brokers
//! added to a client; whether a client is in its group, and a record that failed was ever sent; and the headers of a record,
//! whose names the wrapper takes for UTF-8 and panics when they are not. Every pointer handed out by librdkafka is read
//! before what owns it is destroyed, and never kept.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::bindings as rd;
use rdkafka::client::{Client, ClientContext};
use rdkafka::message::{BorrowedHeaders, BorrowedMessage};
use rdkafka::types::RDKafkaErrorCode;

use crate::log::Header;

/// What was asked in one go about partitions of one topic.
pub(super) struct Offsets {
    /// First and next offset of each partition answered, or why not.
    pub(super) held: BTreeMap<i32, Result<(i64, i64), RDKafkaErrorCode>>,
    /// Identity of the topic; empty when the brokers have none.
    pub(super) topic_id: Result<String, RDKafkaErrorCode>,
}

/// Up to where a partition counts as written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Upto {
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
pub(super) fn offsets<C: ClientContext>(
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
pub(super) fn wake_leaders<C: ClientContext>(client: &Client<C>, topic: &str, partitions: &[i32]) {
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

/// Gives a client brokers to connect to besides those it knows.
pub(super) fn add_brokers<C: ClientContext>(client: &Client<C>, brokers: &CStr) {
    // SAFETY: the client is alive; the text is copied.
    let added = unsafe { rd::rd_kafka_brokers_add(client.native_ptr(), brokers.as_ptr()) };
    tracing::debug!(added, "brokers are looked for again");
}

/// Whether a client is a member of its group, as far as it knows.
pub(super) fn is_member<C: ClientContext>(client: &Client<C>) -> bool {
    // SAFETY: the client is alive; what it gives is ours, read before it is destroyed, and destroyed once.
    unsafe {
        let found = rd::rd_kafka_consumer_group_metadata(client.native_ptr());
        if found.is_null() {
            return false;
        }
        let id = rd::rd_kafka_consumer_group_metadata_member_id(found);
        let generation = rd::rd_kafka_consumer_group_metadata_generation_id(found);
        let is_member = !id.is_null() && *id != 0 && generation > 0;
        rd::rd_kafka_consumer_group_metadata_destroy(found);
        is_member
    }
}

/// Has a client fail for good.
#[cfg(feature = "testing")]
pub(super) fn fail<C: ClientContext>(client: &Client<C>) {
    let code = rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN;
    // SAFETY: the client is alive; the text is copied.
    unsafe { rd::rd_kafka_test_fatal_error(client.native_ptr(), code, c"asked to fail".as_ptr()) };
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
            Some((partition, low.and_then(|low| high.map(|high| (low, high)))))
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

/// Options of one administrative request.
struct Asking {
    client: *mut rd::rd_kafka_t,
    options: *mut rd::rd_kafka_AdminOptions_t,
}

impl Asking {
    fn new(
        client: *mut rd::rd_kafka_t,
        api: rd::rd_kafka_admin_op_t,
        kind: usize,
        timeout_ms: i32,
    ) -> Asking {
        let mut text = [0 as c_char; 256];
        // SAFETY: the client is alive; the opaque is a number and never dereferenced.
        unsafe {
            let options = rd::rd_kafka_AdminOptions_new(client, api);
            rd::rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, text.as_mut_ptr(), text.len());
            rd::rd_kafka_AdminOptions_set_opaque(options, ptr::without_provenance_mut::<c_void>(kind));
            Asking { client, options }
        }
    }

    fn read_committed(&self) {
        // SAFETY: the options are alive; the error, if any, is owned by us.
        unsafe {
            let error = rd::rd_kafka_AdminOptions_set_isolation_level(
                self.options,
                rd::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED,
            );
            if !error.is_null() {
                rd::rd_kafka_error_destroy(error);
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe { rd::rd_kafka_AdminOptions_destroy(self.options) }
    }
}

/// A queue for the answers of requests.
struct Queue(*mut rd::rd_kafka_queue_t);

impl Queue {
    fn new(client: *mut rd::rd_kafka_t) -> Queue {
        // SAFETY: the client is alive.
        Queue(unsafe { rd::rd_kafka_queue_new(client) })
    }

    fn poll(&self, wait: Duration) -> Option<Event> {
        let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive; the event is ours.
        let event = unsafe { rd::rd_kafka_queue_poll(self.0, wait_ms) };
        (!event.is_null()).then_some(Event(event))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once; late answers find it closed.
        unsafe { rd::rd_kafka_queue_destroy(self.0) }
    }
}

/// An answer.
struct Event(*mut rd::rd_kafka_event_t);

impl Event {
    /// The number its request was sent with.
    fn kind(&self) -> usize {
        // SAFETY: the event is alive; the opaque is a number.
        unsafe { rd::rd_kafka_event_opaque(self.0) }.addr()
    }

    fn check(&self) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: the event is alive.
        match RDKafkaErrorCode::from(unsafe { rd::rd_kafka_event_error(self.0) }) {
            RDKafkaErrorCode::NoError => Ok(()),
            code => Err(code),
        }
    }

    /// The offsets of an answer to ListOffsets.
    fn listed(&self) -> Result<BTreeMap<i32, Result<i64, RDKafkaErrorCode>>, RDKafkaErrorCode> {
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
                let offset = match RDKafkaErrorCode::from((*entry).err) {
                    RDKafkaErrorCode::NoError => Ok((*entry).offset),
                    code => Err(code),
                };
                offsets.insert((*entry).partition, offset);
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
            let error = rd::rd_kafka_TopicDescription_error(*topics);
            if !error.is_null() {
                match RDKafkaErrorCode::from(rd::rd_kafka_error_code(error)) {
                    RDKafkaErrorCode::NoError => {}
                    code => return Err(code),
                }
            }
            let id = rd::rd_kafka_TopicDescription_topic_id(*topics);
            if id.is_null() || no_id(id) {
                return Ok(String::new());
            }
            Ok(CStr::from_ptr(rd::rd_kafka_Uuid_base64str(id)).to_string_lossy().into_owned())
        }
    }
}

/// Brokers before 2.8 give the zero id.
unsafe fn no_id(id: *const rd::rd_kafka_Uuid_t) -> bool {
    // SAFETY: the caller's id is alive.
    unsafe {
        rd::rd_kafka_Uuid_most_significant_bits(id) == 0 && rd::rd_kafka_Uuid_least_significant_bits(id) == 0
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, destroyed once.
        unsafe { rd::rd_kafka_event_destroy(self.0) }
    }
}

/// Whether a record that failed was never sent, and so never will be written.
pub(super) fn was_never_sent(message: &BorrowedMessage<'_>) -> bool {
    // SAFETY: the message is borrowed, so alive.
    let status = unsafe { rd::rd_kafka_message_status(message.ptr()) };
    status == rd::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_NOT_PERSISTED
}

/// The headers of a record, whatever bytes their names are: those that are not UTF-8 are replaced.
pub(super) fn headers(headers: &BorrowedHeaders) -> Vec<Header> {
    // The wrapper's type is the native one by another name; it lives as long as the record it was borrowed from.
    headers_at(ptr::from_ref(headers).cast::<rd::rd_kafka_headers_t>())
}

fn headers_at(native: *const rd::rd_kafka_headers_t) -> Vec<Header> {
    let mut read = Vec::new();
    let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
    // SAFETY: the headers are alive; librdkafka ends each name with a NUL and says the value's size.
    unsafe {
        let mut index = 0;
        while rd::rd_kafka_header_get_all(native, index, &mut name, &mut value, &mut size)
            == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
        {
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            let bytes = (!value.is_null())
                .then(|| Bytes::copy_from_slice(std::slice::from_raw_parts(value.cast::<u8>(), size)));
            read.push((text, bytes));
            index += 1;
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_whose_name_is_not_utf8_is_read() {
        let name = [b'n', 0xff, 0xfe];
        // SAFETY: name and value live until after the calls, which copy them.
        let read = unsafe {
            let native = rd::rd_kafka_headers_new(1);
            rd::rd_kafka_header_add(native, name.as_ptr().cast(), name.len() as isize, ptr::null(), 0);
            let read = headers_at(native);
            rd::rd_kafka_headers_destroy(native);
            read
        };
        assert_eq!(read, [("n\u{fffd}\u{fffd}".to_owned(), None)]);
    }
}
