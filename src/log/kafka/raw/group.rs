//! A client's group: whether it is in it, who has which partition, and the rights on it (DescribeConsumerGroups).

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::time::Duration;

use rdkafka::admin::AdminClient;
use rdkafka::bindings as rd;
use rdkafka::client::{Client, ClientContext};
use rdkafka::types::RDKafkaErrorCode;

use super::super::facts::Right;
use super::describe::{ask, rights};
use super::queue::check;

/// Longest time that librdkafka gives a request: longer than anybody waits here.
const NEVER: Duration = Duration::from_secs(3_600);

/// The generation of its group that a client is a member of, as far as it knows.
pub(in crate::log::kafka) fn generation<C: ClientContext>(client: &Client<C>) -> Option<i32> {
    // SAFETY: the client is alive; what it gives is ours, read before it is destroyed, and destroyed once.
    unsafe {
        let found = rd::rd_kafka_consumer_group_metadata(client.native_ptr());
        if found.is_null() {
            return None;
        }
        let id = rd::rd_kafka_consumer_group_metadata_member_id(found);
        let generation = rd::rd_kafka_consumer_group_metadata_generation_id(found);
        let is_member = !id.is_null() && *id != 0 && generation > 0;
        rd::rd_kafka_consumer_group_metadata_destroy(found);
        is_member.then_some(generation)
    }
}

/// The partitions of a topic that the members of a group have, when the group is between two rebalances; nothing while it
/// is in one. Blocks, at most for `timeout` and until the client has ended.
pub(in crate::log::kafka) fn shared_out<C: ClientContext>(
    client: AdminClient<C>,
    group: &str,
    topic: &str,
    timeout: Duration,
) -> Result<Option<BTreeSet<i32>>, RDKafkaErrorCode> {
    // SAFETY: the description and what it points to are alive while they are read.
    describe(client, group, timeout, |found| unsafe {
        let stable = rd::rd_kafka_consumer_group_state_t::RD_KAFKA_CONSUMER_GROUP_STATE_STABLE;
        if rd::rd_kafka_ConsumerGroupDescription_state(found) != stable {
            return None;
        }
        let members = rd::rd_kafka_ConsumerGroupDescription_member_count(found);
        let each = (0..members).map(|n| rd::rd_kafka_ConsumerGroupDescription_member(found, n));
        Some(each.flat_map(|member| partitions_of(member, topic)).collect())
    })
}

/// The rights on a group; nothing when the broker does not tell. Blocks, at most for `timeout` and until the client has
/// ended.
pub(in crate::log::kafka) fn group_rights<C: ClientContext>(
    client: AdminClient<C>,
    group: &str,
    timeout: Duration,
) -> Result<Option<BTreeSet<Right>>, RDKafkaErrorCode> {
    // SAFETY: the description and its rights are alive while they are read.
    describe(client, group, timeout, |found| unsafe {
        let mut count = 0;
        let list = rd::rd_kafka_ConsumerGroupDescription_authorized_operations(found, &mut count);
        rights(list, count)
    })
}

/// Asks a group's coordinator about it. The client ends with the question.
///
/// librdkafka goes on with a coordinator's request that has timed out: it is sent when the coordinator is there again, its
/// state is given back twice, and an assertion ends the process (librdkafka's issue 4605, open at 2.12). So none times out
/// here: who waits gives up, and the request ends with its client. (What an answered request leaves behind in librdkafka, about
/// a kilobyte, goes when its time is up, or never.)
fn describe<C: ClientContext, T>(
    client: AdminClient<C>,
    group: &str,
    timeout: Duration,
    read: impl FnOnce(*const rd::rd_kafka_ConsumerGroupDescription_t) -> T,
) -> Result<T, RDKafkaErrorCode> {
    let group = CString::new(group).map_err(|_| RDKafkaErrorCode::InvalidGroupId)?;
    let mut names = [group.as_ptr()];
    let api = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    // SAFETY: the names live until after the call, which copies them; client, options and queue outlive it.
    let event = ask(client.inner(), api, NEVER, timeout, |asking, queue| unsafe {
        let (names, count) = (names.as_mut_ptr(), names.len());
        rd::rd_kafka_DescribeConsumerGroups(asking.client, names, count, asking.options, queue.0);
    })?;
    // SAFETY: the description belongs to the event, which is alive and ends before the client does.
    unsafe {
        let result = rd::rd_kafka_event_DescribeConsumerGroups_result(event.0);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Fail);
        }
        let mut count = 0;
        let groups = rd::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
        if count != 1 {
            return Err(RDKafkaErrorCode::Fail);
        }
        check(rd::rd_kafka_ConsumerGroupDescription_error(*groups))?;
        Ok(read(*groups))
    }
}

/// The partitions of one topic that a member has.
///
/// # Safety
/// The member must be alive.
unsafe fn partitions_of(member: *const rd::rd_kafka_MemberDescription_t, topic: &str) -> Vec<i32> {
    // SAFETY: the list and its elements belong to the member; names end with a NUL.
    unsafe {
        let assignment = rd::rd_kafka_MemberDescription_assignment(member);
        if assignment.is_null() {
            return Vec::new();
        }
        let list = rd::rd_kafka_MemberAssignment_partitions(assignment);
        if list.is_null() {
            return Vec::new();
        }
        let count = usize::try_from((*list).cnt).unwrap_or(0);
        let elements = (0..count).map(|n| &*(*list).elems.add(n));
        elements
            .filter(|element| CStr::from_ptr(element.topic).to_bytes() == topic.as_bytes())
            .map(|element| element.partition)
            .collect()
    }
}

#[cfg(test)]
mod tests;
