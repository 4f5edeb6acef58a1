//! Handlers that are Kafka topics.
