//! Every adapter against the suite of its port, on real servers where it needs them.
#![cfg(feature = "testing")]

#[cfg(feature = "cassandra")]
mod cassandra;
mod embedded;
