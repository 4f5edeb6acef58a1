//! One conformance suite per port, run on every adapter.
#![cfg(feature = "testing")]

mod embedded;
mod log;
mod store;
