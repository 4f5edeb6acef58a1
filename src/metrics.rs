//! All metrics, defined once.

use crate::model::{CloseReason, HandlerName, Outcome, RejectReason};

/// The metrics of a process.
#[derive(Debug, Default)]
pub struct Metrics {}

#[allow(missing_docs, clippy::unused_self, reason = "until the metrics room is merged")]
impl Metrics {
    pub fn lateness(&self, _handler: &HandlerName, _seconds: f64) {}
    pub fn attempt_ended(&self, _handler: &HandlerName, _outcome: Outcome, _seconds: f64) {}
    pub fn closed(&self, _reason: CloseReason) {}
    pub fn repeat_start(&self, _cause: &str) {}
    pub fn event_repeated(&self) {}
    pub fn event_rejected(&self, _reason: RejectReason) {}
    pub fn event_forwarded(&self) {}
    pub fn ownership_gap(&self, _seconds: f64) {}
    pub fn lease_lost(&self, _cause: &str) {}
    pub fn shard_stopped(&self) {}
}
