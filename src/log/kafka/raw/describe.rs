//! Brokers with their racks, the replicas of topics, and the rights that a client has (DescribeCluster, DescribeTopics).
//! None of it wants a right besides Describe on what is asked about.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char};
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::client::{Client, ClientContext};
use rdkafka::types::RDKafkaErrorCode;

use super::super::facts::{Broker, Partition, Right, Topic};
use super::queue::{Asking, Event, Queue, check};

/// What an answer may be late besides its timeout.
const SLACK: Duration = Duration::from_millis(500);

/// The cluster's id and its brokers that are there. Blocks, at most for `timeout` and half a second.
pub(in crate::log::kafka) fn cluster<C: ClientContext>(
    client: &Client<C>,
    timeout: Duration,
) -> Result<(Option<String>, Vec<Broker>), RDKafkaErrorCode> {
    let api = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER;
    // SAFETY: client, options and queue outlive the call.
    let event = ask(client, api, timeout, timeout + SLACK, |asking, queue| unsafe {
        rd::rd_kafka_DescribeCluster(asking.client, asking.options, queue.0);
    })?;
    // SAFETY: the nodes and their texts belong to the event, which is alive.
    unsafe {
        let result = rd::rd_kafka_event_DescribeCluster_result(event.0);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Fail);
        }
        let mut count = 0;
        let nodes = rd::rd_kafka_DescribeCluster_result_nodes(result, &mut count);
        let brokers = (0..count).map(|n| broker(*nodes.add(n))).collect();
        Ok((text(rd::rd_kafka_DescribeCluster_result_cluster_id(result)), brokers))
    }
}

/// The partitions of topics and the rights on them; for each topic, why not. Blocks, at most for `timeout` and half a
/// second.
pub(in crate::log::kafka) fn topics<C: ClientContext>(
    client: &Client<C>,
    names: &[&str],
    timeout: Duration,
) -> Result<BTreeMap<String, Result<Topic, RDKafkaErrorCode>>, RDKafkaErrorCode> {
    let names: Result<Vec<CString>, _> = names.iter().map(|name| CString::new(*name)).collect();
    let names = names.map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let api = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    // SAFETY: the names live until after the call, which copies them; client, options and queue outlive it.
    let event = ask(client, api, timeout, timeout + SLACK, |asking, queue| unsafe {
        let topics = rd::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        rd::rd_kafka_DescribeTopics(asking.client, topics, asking.options, queue.0);
        rd::rd_kafka_TopicCollection_destroy(topics);
    })?;
    // SAFETY: the descriptions and what they point to belong to the event, which is alive.
    unsafe {
        let result = rd::rd_kafka_event_DescribeTopics_result(event.0);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Fail);
        }
        let mut count = 0;
        let topics = rd::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        Ok((0..count).filter_map(|n| topic(*topics.add(n))).collect())
    }
}

/// Sends a request that also asks for the client's rights, and waits for its answer: so long, whatever its own timeout is.
pub(super) fn ask<C: ClientContext>(
    client: &Client<C>,
    api: rd::rd_kafka_admin_op_t,
    timeout: Duration,
    wait: Duration,
    send: impl FnOnce(&Asking, &Queue),
) -> Result<Event, RDKafkaErrorCode> {
    let queue = Queue::new(client.native_ptr());
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let asking = Asking::new(client.native_ptr(), api, 0, timeout_ms);
    asking.with_rights();
    send(&asking, &queue);
    let event = queue.poll(wait).ok_or(RDKafkaErrorCode::OperationTimedOut)?;
    event.check()?;
    Ok(event)
}

/// # Safety
/// The node is alive.
unsafe fn broker(node: *const rd::rd_kafka_Node_t) -> Broker {
    // SAFETY: the caller's node is alive, and with it its texts.
    unsafe {
        let host = text(rd::rd_kafka_Node_host(node)).unwrap_or_default();
        Broker {
            id: rd::rd_kafka_Node_id(node),
            address: format!("{host}:{}", rd::rd_kafka_Node_port(node)),
            rack: text(rd::rd_kafka_Node_rack(node)).filter(|rack| !rack.is_empty()),
        }
    }
}

/// # Safety
/// The description is alive.
unsafe fn topic(
    found: *const rd::rd_kafka_TopicDescription_t,
) -> Option<(String, Result<Topic, RDKafkaErrorCode>)> {
    // SAFETY: the caller's description is alive, and with it what it points to.
    unsafe {
        let name = text(rd::rd_kafka_TopicDescription_name(found))?;
        if let Err(code) = check(rd::rd_kafka_TopicDescription_error(found)) {
            return Some((name, Err(code)));
        }
        let mut count = 0;
        let partitions = rd::rd_kafka_TopicDescription_partitions(found, &mut count);
        let mut partitions: Vec<Partition> = (0..count).map(|n| partition(*partitions.add(n))).collect();
        partitions.sort_by_key(|partition| partition.id);
        let list = rd::rd_kafka_TopicDescription_authorized_operations(found, &mut count);
        Some((name, Ok(Topic { partitions, rights: rights(list, count) })))
    }
}

/// # Safety
/// The partition is alive.
unsafe fn partition(found: *const rd::rd_kafka_TopicPartitionInfo_t) -> Partition {
    // SAFETY: the caller's partition is alive, and with it its nodes.
    unsafe {
        let mut count = 0;
        let replicas = rd::rd_kafka_TopicPartitionInfo_replicas(found, &mut count);
        let replicas = (0..count).map(|n| rd::rd_kafka_Node_id(*replicas.add(n))).collect();
        let isr = rd::rd_kafka_TopicPartitionInfo_isr(found, &mut count);
        let in_sync = (0..count).map(|n| rd::rd_kafka_Node_id(*isr.add(n))).collect();
        Partition {
            id: rd::rd_kafka_TopicPartitionInfo_partition(found),
            has_leader: !rd::rd_kafka_TopicPartitionInfo_leader(found).is_null(),
            replicas,
            in_sync,
        }
    }
}

/// # Safety
/// The list is null, or has so many elements and is alive.
pub(super) unsafe fn rights(
    list: *const rd::rd_kafka_AclOperation_t,
    count: usize,
) -> Option<BTreeSet<Right>> {
    use rd::rd_kafka_AclOperation_t as Operation;
    if list.is_null() {
        return None;
    }
    // SAFETY: the caller's list has so many elements.
    let each = (0..count).map(|n| unsafe { *list.add(n) });
    let known = each.filter_map(|operation| match operation {
        Operation::RD_KAFKA_ACL_OPERATION_READ => Some(Right::Read),
        Operation::RD_KAFKA_ACL_OPERATION_WRITE => Some(Right::Write),
        Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE => Some(Right::Describe),
        Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS => Some(Right::DescribeConfigs),
        _ => None,
    });
    Some(known.collect())
}

/// # Safety
/// The text is null, or ends with a NUL and is alive.
unsafe fn text(found: *const c_char) -> Option<String> {
    // SAFETY: as the caller says.
    (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_string_lossy().into_owned())
}
