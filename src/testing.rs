//! What tests and chaos share.

pub mod log_conformance;
