//! Handlers that write a log line.
