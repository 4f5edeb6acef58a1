//! Dueline: an event-driven task scheduler on Kafka and Cassandra.
//!
//! Schedule events come from a partitioned log, tasks are kept in a store with quorum writes, and every logical queue
//! is run in order by a single owner. The same engine runs embedded, with no servers at all.
//! ARCHITECTURE.md has the map.

pub mod bench;
pub mod cli;
pub mod client;
pub mod config;
pub mod dispatch;
#[cfg(all(feature = "kafka", feature = "cassandra"))]
pub mod doctor;
pub mod engine;
pub mod log;
pub mod metrics;
pub mod model;
pub mod node;
pub mod runtime;
pub mod server;
pub mod store;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wire;
