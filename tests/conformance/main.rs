//! One conformance suite per port, run on every adapter.

mod log;
