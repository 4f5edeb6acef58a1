//! Brings back the brokers that librdkafka has forgotten.
//!
//! From 2.10 on librdkafka drops every broker that a metadata answer does not name. The last broker of a cluster that
//! shuts down may answer, on its way out, that there is none. Then nothing is left to connect to, and the re-bootstrap
//! that "all brokers are down" began is called off by that very answer: the client is lost until its process ends
//! (librdkafka's issue 5301, open at 2.16). So the configured brokers are added again a while after that event. A client
//! that still has brokers loses nothing by it: it asks one more for metadata, and drops it with the answer.

use std::ffi::CString;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::{Client, ClientContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::raw;

/// Brokers are added so long after all were down, in milliseconds: what the last of them said has arrived by then.
const AFTER_MS: u64 = 3_000;
/// Shortest time between two additions, in milliseconds. librdkafka keeps each: 8,640 short texts after a day's outage.
const BETWEEN_MS: u64 = 10_000;

/// What one client needs to find its cluster again.
pub(super) struct Recall {
    brokers: CString,
    times: Mutex<Times>,
}

#[derive(Clone, Copy, Default)]
struct Times {
    due: Option<Instant>,
    last: Option<Instant>,
}

impl Recall {
    /// `brokers` as configured; a text with a NUL, which no client takes, recalls nothing.
    pub(super) fn new(brokers: &str) -> Recall {
        Recall { brokers: CString::new(brokers).unwrap_or_default(), times: Mutex::default() }
    }

    /// Looks at what librdkafka says.
    pub(super) fn note(&self, error: &KafkaError) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.lost();
        }
    }

    /// No broker is there: the configured ones are due to be added.
    pub(super) fn lost(&self) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let soon = Instant::now() + Duration::from_millis(AFTER_MS);
        let next = times.last.map_or(soon, |last| soon.max(last + Duration::from_millis(BETWEEN_MS)));
        times.due.get_or_insert(next);
    }

    /// Adds the brokers when that is due; called often, by whoever serves the client.
    pub(super) fn serve<C: ClientContext>(&self, client: &Client<C>) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if times.due.is_none_or(|due| now < due) {
            return;
        }
        *times = Times { due: None, last: Some(now) };
        drop(times);
        raw::add_brokers(client, &self.brokers);
    }
}

#[cfg(test)]
mod tests;
