//! What librdkafka has to say to a client that nobody polls: an administrative one is asked and answered past the queue that
//! its log lines come to.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::RDKafkaLogLevel as Level;
use rdkafka::error::KafkaError;

use super::queue::{Event, Queue};

/// Hands all log lines and errors that wait to the client's context.
pub(in crate::log::kafka) fn overhear<C: ClientContext>(client: &Client<C>) {
    let queue = Queue::main(client.native_ptr());
    while let Some(event) = queue.poll(Duration::ZERO) {
        if let Some((level, facility, text)) = line(&event) {
            client.context().log(level, facility.trim(), text.trim());
        } else if let Err(code) = event.check() {
            // SAFETY: the event is alive; the text is its own, and copied before it ends.
            let text = unsafe { copied(rd::rd_kafka_event_error_string(event.0)) };
            client.context().error(KafkaError::Global(code), text.trim());
        }
    }
}

/// A log line, if that is what it is.
fn line(event: &Event) -> Option<(Level, String, String)> {
    let (mut facility, mut text, mut level): (*const c_char, *const c_char, i32) =
        (ptr::null(), ptr::null(), 0);
    // SAFETY: the event is alive; the texts are its own, and copied before it ends.
    unsafe {
        if rd::rd_kafka_event_log(event.0, &mut facility, &mut text, &mut level) != 0 {
            return None;
        }
        // As syslog has them.
        let level = match level {
            ..=4 => Level::Warning,
            5 | 6 => Level::Info,
            _ => Level::Debug,
        };
        Some((level, copied(facility), copied(text)))
    }
}

/// # Safety
/// The text is alive and ends with a NUL.
unsafe fn copied(text: *const c_char) -> String {
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
