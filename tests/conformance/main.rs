//! One conformance suite per port, run on every adapter, on real servers where it needs them.
#![cfg(feature = "testing")]

#[cfg(feature = "cassandra")]
mod cassandra;
mod embedded;
#[cfg(feature = "kafka")]
mod log;
