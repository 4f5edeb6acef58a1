//! The log on Kafka.
