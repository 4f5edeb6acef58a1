//! A client's group: whether it is in it, and who has which partition (DescribeConsumerGroups).

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::client::{Client, ClientContext};
use rdkafka::types::RDKafkaErrorCode;

use super::queue::{Asking, Event, Queue, check};

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
/// is in one. Blocks, at most for `timeout` and half a second.
pub(in crate::log::kafka) fn shared_out<C: ClientContext>(
    client: &Client<C>,
    group: &str,
    topic: &str,
    timeout: Duration,
) -> Result<Option<BTreeSet<i32>>, RDKafkaErrorCode> {
    let group = CString::new(group).map_err(|_| RDKafkaErrorCode::InvalidGroupId)?;
    let queue = Queue::new(client.native_ptr());
    let api = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    let asking =
        Asking::new(client.native_ptr(), api, 0, i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    let mut names = [group.as_ptr()];
    // SAFETY: the names live until after the call, which copies them; client, options and queue outlive it.
    unsafe {
        rd::rd_kafka_DescribeConsumerGroups(
            asking.client,
            names.as_mut_ptr(),
            names.len(),
            asking.options,
            queue.0,
        );
    }
    match queue.poll(timeout + Duration::from_millis(500)) {
        Some(event) => event.shared_out(topic),
        None => Err(RDKafkaErrorCode::OperationTimedOut),
    }
}

impl Event {
    /// The partitions of an answer to DescribeConsumerGroups about one group.
    fn shared_out(&self, topic: &str) -> Result<Option<BTreeSet<i32>>, RDKafkaErrorCode> {
        self.check()?;
        // SAFETY: the descriptions and what they point to belong to the event, which is alive.
        unsafe {
            let result = rd::rd_kafka_event_DescribeConsumerGroups_result(self.0);
            let mut count = 0;
            if result.is_null() {
                return Err(RDKafkaErrorCode::Fail);
            }
            let groups = rd::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
            if count != 1 {
                return Err(RDKafkaErrorCode::Fail);
            }
            check(rd::rd_kafka_ConsumerGroupDescription_error(*groups))?;
            let stable = rd::rd_kafka_consumer_group_state_t::RD_KAFKA_CONSUMER_GROUP_STATE_STABLE;
            if rd::rd_kafka_ConsumerGroupDescription_state(*groups) != stable {
                return Ok(None);
            }
            let members = rd::rd_kafka_ConsumerGroupDescription_member_count(*groups);
            let each = (0..members).map(|n| rd::rd_kafka_ConsumerGroupDescription_member(*groups, n));
            Ok(Some(each.flat_map(|member| partitions_of(member, topic)).collect()))
        }
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
