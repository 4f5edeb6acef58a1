//! The log port on a real Kafka, named by `DUELINE_TEST_KAFKA=host:port`; skipped loudly without.

#![cfg(feature = "kafka")]

mod kafka;
mod kafka_failures;
mod kafka_faults;
mod kafka_process;
mod kafka_sessions;
mod kafka_static;
mod kafka_topics;
