//! One conformance suite per port, run on every adapter, on real servers where it needs them.
#![cfg(feature = "testing")]

#[cfg(feature = "cassandra")]
mod cassandra;
mod embedded;
#[cfg(feature = "cassandra")]
mod event_packs;
#[cfg(feature = "kafka")]
mod log;
