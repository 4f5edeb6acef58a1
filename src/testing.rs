//! What tests and chaos share.

pub mod log_conformance;
pub mod store_conformance;
