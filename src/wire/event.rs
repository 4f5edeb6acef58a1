//! Schedule events, three encodings, to the model; and requests of our own to the plain encoding.
//!
//! ```text
//! record ─ envelope (plain | CloudEvents structured | CloudEvents binary) ─ verb + fields ─ Event
//!             └ not an envelope we know                                       └ Fault: which field, what is wrong
//! ```
//! A record is judged by itself, its append time and the rules: the answer is the same on every replay. Nothing is
//! guessed or dropped: what is not understood is refused by name, with the JSON pointer of the field. The payload is
//! not looked into; the handler gets the bytes that were sent.

mod canonical;
mod envelope;
mod fault;
mod fields;
mod handlers;
pub mod request;
mod verb;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

pub use fault::Fault;
pub use handlers::{Handlers, is_loopback_url};

use crate::log::Record;
use crate::model::limits::{EVENT_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::model::{Event, Origin, RejectReason, Rejection, Wall};
use crate::wire::forward;

/// The JSON Schema (2020-12) of schedule events, as text.
pub const SCHEMA: &str = include_str!("../../schemas/events/schedule-event.schema.json");

/// What an installation allows in events.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Largest payload, in bytes; an event may have 64 KiB more.
    pub payload_bytes_max: usize,
    /// The handlers that an event may name.
    pub handlers: Arc<Handlers>,
    /// Key that signs the headers of forwarded records.
    pub signing_key: [u8; 32],
}

impl Rules {
    /// Largest event, in bytes.
    pub fn event_bytes_max(&self) -> usize {
        self.payload_bytes_max.saturating_add(EVENT_BYTES_MAX - PAYLOAD_BYTES_MAX)
    }
}

/// A record that is a schedule event.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The event.
    pub event: Event,
    /// Where it first landed, if it was forwarded.
    pub origin: Option<Origin>,
}

/// Reads a record of the schedule topic. `delay` and bounds count from its append time, the origin's if forwarded.
///
/// # Errors
/// Why the record is rejected, with the JSON pointer of the field or the name of the header.
pub fn decode(record: &Record, rules: &Rules) -> Result<Decoded, Rejection> {
    let origin = forward::origin(record, &rules.signing_key)?;
    let appended = origin.map_or(record.appended, |origin| origin.appended);
    let event = read(record, appended, rules)?;
    Ok(Decoded { event, origin })
}

/// Reads an event in plain JSON, as in the body of an HTTP request; `now` stands for its append time.
///
/// # Errors
/// Which field is wrong.
pub fn decode_plain(body: &[u8], now: Wall, rules: &Rules) -> Result<Event, Fault> {
    let text = text_of(body, rules)?;
    verb::event(envelope::plain(text, None)?, now, rules)
}

fn read(record: &Record, appended: Wall, rules: &Rules) -> Result<Event, Fault> {
    let value = record.value.as_ref().ok_or_else(|| {
        Fault::event(
            RejectReason::Tombstone,
            "has no value (a tombstone); a task is cancelled by a cancel event",
        )
    })?;
    let text = text_of(value, rules)?;
    verb::event(envelope::open(&record.headers, text)?, appended, rules)
}

fn text_of<'a>(value: &'a [u8], rules: &Rules) -> Result<&'a str, Fault> {
    if value.is_empty() {
        return Err(Fault::event(RejectReason::Empty, "has no bytes"));
    }
    let (len, max) = (value.len(), rules.event_bytes_max());
    if len > max {
        return Err(Fault::event(
            RejectReason::TooLarge,
            format!("has {len} bytes; at most {max} are allowed"),
        ));
    }
    std::str::from_utf8(value).map_err(|error| {
        let detail = format!("is not UTF-8: the byte at offset {} is not valid", error.valid_up_to());
        Fault::event(RejectReason::NotUtf8, detail)
    })
}

/// The first 16 bytes of SHA-256.
fn short_hash(hasher: Sha256) -> [u8; 16] {
    let mut hash = [0; 16];
    hash.copy_from_slice(&hasher.finalize()[..16]);
    hash
}

/// The text of a header; `None` when there is none.
///
/// # Errors
/// It occurs twice, has no value, or is not UTF-8.
fn header<'a>(headers: &'a [crate::log::Header], name: &str) -> Result<Option<&'a str>, Fault> {
    let mut found = headers.iter().filter(|header| header.0.eq_ignore_ascii_case(name));
    let Some((_, value)) = found.next() else { return Ok(None) };
    let fault = |detail: &str| Fault::header(name, detail);
    if found.next().is_some() {
        return Err(fault("is given more than once"));
    }
    let value: &'a Bytes = value.as_ref().ok_or_else(|| fault("has no value"))?;
    std::str::from_utf8(value).map(Some).map_err(|_| fault("is not UTF-8"))
}
