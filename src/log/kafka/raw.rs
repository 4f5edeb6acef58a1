//! The calls of librdkafka that its safe wrapper lacks: the only unsafe code of the crate.
//!
//! What partitions hold and who their topic is, asked of the leaders ([`offsets`]); who has which partition and the
//! rights on a group, asked of its coordinator ([`group`]); racks, replicas and rights ([`describe`]); log lines that nobody
//! polls for ([`overhear`]); brokers added to a client; whether a record that failed was ever sent; and the headers of a
//! record, whose names the wrapper takes for UTF-8 and panics when they are not. Every pointer handed out by librdkafka is read before what owns it is destroyed, and never kept.

mod describe;
mod group;
mod offsets;
mod overheard;
mod queue;

use std::ffi::CStr;
use std::ptr;

use bytes::Bytes;
use rdkafka::bindings as rd;
use rdkafka::client::{Client, ClientContext};
use rdkafka::message::{BorrowedHeaders, BorrowedMessage};

use crate::log::Header;

pub(super) use self::describe::{cluster, topics};
pub(super) use self::group::{generation, group_rights, shared_out};
pub(super) use self::offsets::{Held, Offsets, Upto, offsets, wake_leaders};
pub(super) use self::overheard::overhear;

/// Gives a client brokers to connect to besides those it knows.
pub(super) fn add_brokers<C: ClientContext>(client: &Client<C>, brokers: &CStr) {
    // SAFETY: the client is alive; the text is copied.
    let added = unsafe { rd::rd_kafka_brokers_add(client.native_ptr(), brokers.as_ptr()) };
    tracing::debug!(added, "brokers are looked for again");
}

/// Has a client fail for good.
#[cfg(feature = "testing")]
pub(super) fn fail<C: ClientContext>(client: &Client<C>) {
    let code = rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN;
    // SAFETY: the client is alive; the text is copied.
    unsafe { rd::rd_kafka_test_fatal_error(client.native_ptr(), code, c"asked to fail".as_ptr()) };
}

/// Whether a record that failed was never sent, and so never will be written.
pub(super) fn was_never_sent(message: &BorrowedMessage<'_>) -> bool {
    // SAFETY: the message is borrowed, so alive.
    let status = unsafe { rd::rd_kafka_message_status(message.ptr()) };
    status == rd::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_NOT_PERSISTED
}

/// The epoch of the leader that took a record in; `None` = it is not known.
pub(super) fn leader_epoch(message: &BorrowedMessage<'_>) -> Option<u32> {
    // SAFETY: the message is borrowed, so alive.
    offsets::epoch_of(unsafe { rd::rd_kafka_message_leader_epoch(message.ptr()) })
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
            read.push((text.into(), bytes));
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
        assert_eq!(read, [("n\u{fffd}\u{fffd}".into(), None)]);
    }
}
