//! Administrative requests and the queue that their answers come to.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::types::RDKafkaErrorCode;

/// Options of one administrative request.
pub(super) struct Asking {
    pub(super) client: *mut rd::rd_kafka_t,
    pub(super) options: *mut rd::rd_kafka_AdminOptions_t,
}

impl Asking {
    pub(super) fn new(
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

    pub(super) fn read_committed(&self) {
        let level = rd::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED;
        // SAFETY: the options are alive; the error, if any, is owned by us.
        unsafe { drop_error(rd::rd_kafka_AdminOptions_set_isolation_level(self.options, level)) }
    }

    /// Asks for the client's rights on what is asked about, too.
    pub(super) fn with_rights(&self) {
        // SAFETY: the options are alive; the error, if any, is owned by us.
        unsafe {
            drop_error(rd::rd_kafka_AdminOptions_set_include_authorized_operations(self.options, 1));
        }
    }
}

/// # Safety
/// The error is null, or ours.
unsafe fn drop_error(error: *mut rd::rd_kafka_error_t) {
    if !error.is_null() {
        // SAFETY: as the caller says.
        unsafe { rd::rd_kafka_error_destroy(error) }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe { rd::rd_kafka_AdminOptions_destroy(self.options) }
    }
}

/// A queue for the answers of requests.
pub(super) struct Queue(pub(super) *mut rd::rd_kafka_queue_t);

impl Queue {
    pub(super) fn new(client: *mut rd::rd_kafka_t) -> Queue {
        // SAFETY: the client is alive.
        Queue(unsafe { rd::rd_kafka_queue_new(client) })
    }

    /// The queue of a client itself.
    pub(super) fn main(client: *mut rd::rd_kafka_t) -> Queue {
        // SAFETY: the client is alive; this adds a reference, which the drop takes away.
        Queue(unsafe { rd::rd_kafka_queue_get_main(client) })
    }

    pub(super) fn poll(&self, wait: Duration) -> Option<Event> {
        let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive; the event is ours.
        let event = unsafe { rd::rd_kafka_queue_poll(self.0, wait_ms) };
        (!event.is_null()).then_some(Event(event))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: our reference, given back once; late answers find it closed.
        unsafe { rd::rd_kafka_queue_destroy(self.0) }
    }
}

/// An answer.
pub(super) struct Event(pub(super) *mut rd::rd_kafka_event_t);

impl Event {
    /// The number its request was sent with.
    pub(super) fn kind(&self) -> usize {
        // SAFETY: the event is alive; the opaque is a number.
        unsafe { rd::rd_kafka_event_opaque(self.0) }.addr()
    }

    pub(super) fn check(&self) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: the event is alive.
        match RDKafkaErrorCode::from(unsafe { rd::rd_kafka_event_error(self.0) }) {
            RDKafkaErrorCode::NoError => Ok(()),
            code => Err(code),
        }
    }
}

/// What an error that belongs to a part of an answer says; there may be none.
///
/// # Safety
/// The error is null, or its answer is alive.
pub(super) unsafe fn check(error: *const rd::rd_kafka_error_t) -> Result<(), RDKafkaErrorCode> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's error is alive.
    match RDKafkaErrorCode::from(unsafe { rd::rd_kafka_error_code(error) }) {
        RDKafkaErrorCode::NoError => Ok(()),
        code => Err(code),
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, destroyed once.
        unsafe { rd::rd_kafka_event_destroy(self.0) }
    }
}
