//! Every adapter of a port is held to the port's suite, on real servers where it needs them.

#[cfg(feature = "cassandra")]
mod store;
